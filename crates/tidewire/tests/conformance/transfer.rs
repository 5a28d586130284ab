//! Bytes in bulk and in pieces: in order, exact, and bounded.

use std::io::{Read, Write};
use std::time::Duration;

use tidewire::{Chunk, Input, Next};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE};
use crate::fixture::Setup;
use crate::probe::{Context, Role};
use crate::roles::{Echo, Receives, Rng, echo, noise};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(replies_in_order_under_random_fragmentation),
        case!(echo_in_small_kernel_buffers),
        case!(both_directions_at_once),
        case!(many_connections_at_once),
        case!(chunk_is_the_most_that_is_new),
        case!(taken_chunks_are_sent_intact),
        case!(every_kind_of_write_keeps_its_order),
        case!(pool_exhaustion_and_recovery),
        case!(peers_that_do_not_read_hold_up_no_other),
        case!(flood_beside_a_hundred_polite_connections),
    ]
}

/// Answers each frame (two bytes of length, then as many bytes) with itself, reversed.
struct Frames;

impl Role for Frames {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        loop {
            let Some(head) = input.bytes().first_chunk::<2>() else {
                return Next::AtLeast(2);
            };
            let len = usize::from(u16::from_be_bytes(*head));
            if input.len() < 2 + len {
                return Next::AtLeast(2 + len);
            }
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let frame = &input.bytes()[2..2 + len];
            cx.link.write(head);
            cx.link.write_with(len.max(1), |space| {
                for (to, from) in space.iter_mut().zip(frame.iter().rev()) {
                    *to = *from;
                }
                len
            });
            input.consume(2 + len);
        }
    }
}

fn replies_in_order_under_random_fragmentation(v: Variant) {
    let server = Setup::on(v).small_buffers().start(|| Frames);
    let clients: Vec<_> = (0..4u64)
        .map(|seed| {
            let mut client = server.connect();
            world::spawn(move || {
                let mut rng = Rng(seed);
                client.small_buffer(16 << 10);
                let (mut requests, mut replies) = (Vec::new(), Vec::new());
                for i in 0..120 {
                    let len = match rng.between(0, 3) {
                        0 => 0,
                        1 => rng.between(0, 20),
                        2 => rng.between(0, 3000),
                        _ => rng.between(0, 12_000),
                    };
                    let mut body = noise(seed * 1000 + i, len);
                    let head = (len as u16).to_be_bytes();
                    requests.extend_from_slice(&head);
                    requests.extend_from_slice(&body);
                    body.reverse();
                    replies.extend_from_slice(&head);
                    replies.extend_from_slice(&body);
                }
                let mut writer = client.second();
                let sender = world::spawn(move || {
                    let mut rng = Rng(seed + 100);
                    let mut rest = &requests[..];
                    while !rest.is_empty() {
                        let most = [1, 5, 100, 5000, 70_000][rng.between(0, 4)];
                        let n = rng.between(1, most).min(rest.len());
                        writer.send(&rest[..n]);
                        rest = &rest[n..];
                        if rng.between(0, 20) == 0 {
                            world::sleep(Duration::from_micros(300));
                        }
                    }
                    writer.finish();
                });
                let mut got = Vec::new();
                let mut buffer = vec![0; 10_000];
                loop {
                    let most = rng.between(1, buffer.len());
                    match client.read(&mut buffer[..most]).expect("replies") {
                        0 => break,
                        n => got.extend_from_slice(&buffer[..n]),
                    }
                    if rng.between(0, 30) == 0 {
                        world::sleep(Duration::from_micros(300));
                    }
                }
                sender.join().expect("the sender");
                assert!(got == replies, "seed {seed}");
            })
        })
        .collect();
    for client in clients {
        client.join().expect("a client");
    }
    server.record.until("4 ends", |r| r.closed() == 4);
    server.stop();
}

/// Sends `sent` and checks that it comes back.
fn exchange(client: Client, sent: Vec<u8>) {
    let mut client = client;
    let mut writer = client.second();
    let bytes = sent.clone();
    let sender = world::spawn(move || {
        writer.send(&bytes);
        writer.finish();
    });
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        match client.read(&mut buffer).expect("replies") {
            0 => break,
            n => {
                assert!(buffer[..n] == sent[at..at + n], "at {at}");
                at += n;
            }
        }
    }
    assert_eq!(at, sent.len());
    sender.join().expect("the sender");
}

fn echo_in_small_kernel_buffers(v: Variant) {
    let server = Setup::on(v).small_buffers().start(|| Echo);
    exchange(server.connect(), noise(8, 6 << 20));
    server.record.why_closed(0);
    server.stop();
}

fn both_directions_at_once(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    exchange(server.connect(), noise(9, 64 << 20));
    server.record.why_closed(0);
    let counters = server.stop();
    assert_eq!(
        (counters.bytes_in, counters.bytes_out),
        (64 << 20, 64 << 20)
    );
}

fn many_connections_at_once(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let clients: Vec<_> = (0..16u64)
        .map(|i| {
            let client = server.connect();
            world::spawn(move || exchange(client, noise(i, 1 << 20)))
        })
        .collect();
    for client in clients {
        client.join().expect("a client");
    }
    server.record.until("16 ends", |r| r.closed() == 16);
    server.stop();
}

fn chunk_is_the_most_that_is_new(v: Variant) {
    const CHUNK: usize = 2048;
    let server = Setup::on(v).chunk(CHUNK).start(|| {
        Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
            assert!(input.len() <= CHUNK);
            echo(input, cx)
        })
    });
    exchange(server.connect(), noise(10, 1 << 20));
    server.record.why_closed(0);
    assert!(server.record.calls() >= (1 << 20) / CHUNK as u64);
    server.stop();
}

/// Takes chunks and sends them only once it holds several.
struct Holds {
    held: Vec<Chunk>,
    most: usize,
}

impl Role for Holds {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        self.held.push(input.take(input.len()));
        if self.held.len() == self.most {
            self.held.drain(..).for_each(|c| cx.link.write_chunk(c));
        }
        Next::More
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        self.held.drain(..).for_each(|c| cx.link.write_chunk(c));
        cx.link.finish();
    }
}

fn taken_chunks_are_sent_intact(v: Variant) {
    let server = Setup::on(v).start(|| Holds {
        held: Vec::new(),
        most: 5,
    });
    let clients: Vec<_> = (0..4u64)
        .map(|i| {
            let client = server.connect();
            world::spawn(move || exchange(client, noise(i, 4 << 20)))
        })
        .collect();
    for client in clients {
        client.join().expect("a client");
    }
    server.record.until("4 ends", |r| r.closed() == 4);
    server.stop();
}

fn every_kind_of_write_keeps_its_order(v: Variant) {
    /// Cuts its input into pieces and sends each in another way.
    struct Mixes(Rng);
    impl Role for Mixes {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            while !input.is_empty() {
                if cx.link.full() {
                    return Next::AfterDrain;
                }
                let n = self.0.between(1, 30_000).min(input.len());
                let piece = &input.bytes()[..n];
                match self.0.between(0, 4) {
                    0 => cx.link.write(piece),
                    1 => cx.link.write_shared(bytes::Bytes::copy_from_slice(piece)),
                    2 => cx.link.write_with(n + 3, |space| {
                        space[..n].copy_from_slice(piece);
                        n
                    }),
                    3 => {
                        let chunk = input.take(n);
                        cx.link.write_chunk(chunk);
                        continue;
                    }
                    _ => {
                        cx.link.forward(input, n);
                        continue;
                    }
                }
                input.consume(n);
            }
            Next::More
        }
    }
    let server = Setup::on(v).start(|| Mixes(Rng(11)));
    exchange(server.connect(), noise(12, 8 << 20));
    server.record.why_closed(0);
    server.stop();
}

/// Writes until the server takes no more; how much it took.
fn stuff(client: &mut Client, sent: &[u8]) -> usize {
    client.patience(Duration::from_millis(150));
    let mut at = 0;
    while at < sent.len() {
        match client.write(&sent[at..]) {
            Ok(n) => at += n,
            Err(_) => break,
        }
    }
    client.patience(PATIENCE);
    at
}

/// Two receive buffers, and peers that make the server hold on to them.
fn pool_exhaustion_and_recovery(v: Variant) {
    let server = Setup::on(v).small_buffers().buffers(2).start(|| Holds {
        held: Vec::new(),
        most: 3,
    });
    let sent = noise(13, 4 << 20);
    let stuck: Vec<_> = (0..6)
        .map(|_| {
            let (mut client, sent) = (server.connect(), sent.clone());
            world::spawn(move || {
                let n = stuff(&mut client, &sent);
                (client, n)
            })
        })
        .map(|t| t.join().expect("a writer"))
        .collect();
    // All clients are stuck, and yet:
    let mut polite = server.connect();
    polite.send(b"still served");
    polite.finish();
    polite.expect(b"still served");
    polite.expect_end();
    for (mut client, n) in stuck {
        client.finish();
        let back = client.rest();
        assert_eq!(back.len(), n);
        assert!(back == sent[..n]);
    }
    drop(polite);
    server.record.until("7 ends", |r| r.closed() == 7);
    server.stop();
}

fn peers_that_do_not_read_hold_up_no_other(v: Variant) {
    let server = Setup::on(v).small_buffers().start(|| Echo);
    let sent = noise(14, 8 << 20);
    let mut stuck: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            let n = stuff(&mut client, &sent);
            (client, n)
        })
        .collect();
    assert!(stuck.iter().all(|(_, n)| *n < sent.len()), "reading paused");
    server.until("the pauses", |c| c.output_pauses >= 3);
    let quiet = server.counters().bytes_in;
    let mut others: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    for round in 0..50u32 {
        for client in &mut others {
            client.send(&round.to_be_bytes());
            client.expect(&round.to_be_bytes());
        }
    }
    assert_eq!(
        server.counters().bytes_in,
        quiet + 50 * 10 * 4,
        "nothing more was read of them"
    );
    // One of the peers reads after all.
    let (mut client, n) = stuck.pop().expect("three");
    client.finish();
    assert!(client.rest() == sent[..n]);
    server.cut();
}

/// A hundred that ask one thing at a time, beside one that never stops.
fn flood_beside_a_hundred_polite_connections(v: Variant) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let server = Setup::on(v).start(|| Echo);
    let over = Arc::new(AtomicBool::new(false));
    let flood = server.connect();
    let (mut writer, mut reader) = (flood.second(), flood.second());
    let theirs = over.clone();
    let sender = world::spawn(move || {
        let piece = vec![1; 1 << 20];
        let mut sent = 0u64;
        while !theirs.load(SeqCst) {
            writer.send(&piece);
            sent += piece.len() as u64;
        }
        writer.finish();
        sent
    });
    let receiver = world::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        let mut got = 0u64;
        loop {
            match reader.read(&mut buffer).expect("the flood's echo") {
                0 => return got,
                n => got += n as u64,
            }
        }
    });
    server.until("the flood", |c| c.bytes_in > 8 << 20);
    let mut polite: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    let before = server.counters().bytes_in;
    for round in 0..10u32 {
        for client in &mut polite {
            client.send(&round.to_be_bytes());
        }
        for client in &mut polite {
            client.expect(&round.to_be_bytes());
        }
    }
    let during = server.counters().bytes_in - before;
    assert!(during > 10 * 100 * 4, "and the flood went on meanwhile");
    over.store(true, SeqCst);
    let sent = sender.join().expect("the sender");
    assert_eq!(receiver.join().expect("the receiver"), sent);
    drop((polite, flood));
    server.record.until("101 ends", |r| r.closed() == 101);
    server.stop();
}
