//! What all connections hold together is limited, too.

use std::time::Duration;

use tidewire::{Chunk, Closed, Dial, Input, Next, Refusal};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE};
use crate::fixture::{Server, Setup};
use crate::listener::Listener;
use crate::probe::{Context, Role};
use crate::roles::{echo, noise};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(short_memory_refuses_then_closes_the_greediest),
        case!(short_memory_holds_back_the_largest_holders),
        case!(short_memory_closes_one_loops_greediest_only),
        case!(short_memory_refuses_dials),
        case!(chunks_that_protocols_keep_count),
        case!(what_is_sent_of_a_large_piece_is_held),
        case!(what_is_announced_takes_no_memory),
    ]
}

const LIMIT: usize = 8 << 20;
/// Four of these are more than seven eighths of the limit, five more than all of it.
const MUCH: usize = 1900 << 10;

/// With the innocent, four of these are no shortage yet.
const SOME: usize = 1400 << 10;
/// More than any other, and enough for all when it has gone.
const MOST: usize = 3 << 20;

/// Holds much after `h`, for ever, some after `S`, most after `M`, and echoes everything else.
struct Holds;

impl Role for Holds {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let held = match input.bytes()[0] {
            b'h' => MUCH,
            b'S' => SOME,
            b'M' => MOST,
            _ => return echo(input, cx),
        };
        cx.link.hold_until(1);
        for _ in 0..held >> 10 {
            cx.link.write(&[1; 1 << 10]);
        }
        input.consume(input.len());
        Next::More
    }
}

fn server(v: Variant) -> Server {
    Setup::on(v)
        .memory(LIMIT)
        .limits(|l| (l.output_low, l.output_high) = (1 << 20, 4 << 20))
        .start(|| Holds)
}

fn short_memory_refuses_then_closes_the_greediest(v: Variant) {
    let server = server(v);
    let mut innocent = server.connect();
    // Taken in before memory is short: a thread of its own may be late.
    innocent.send(b"e");
    innocent.expect(b"e");
    let mut greedy: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    for client in &mut greedy {
        client.send(b"e");
        client.expect(b"e");
    }
    for client in &mut greedy[..4] {
        client.send(b"h");
    }
    server.until("it to be held", |c| c.memory >= 4 * MUCH as u64);
    Client::connect_to_be_reset(server.addr());
    server.until("the refusal", |c| c.refused_for(Refusal::MemoryLimit) == 1);
    assert_eq!(server.counters().closed_for(Closed::MemoryLimit), 0);
    innocent.send(b"still here");
    innocent.expect(b"still here");
    greedy[4].send(b"h");
    server.until("the greediest", |c| c.closed_for(Closed::MemoryLimit) >= 1);
    server.until("room", |c| c.memory <= LIMIT as u64);
    innocent.send(b"and now");
    innocent.expect(b"and now");
    greedy.into_iter().for_each(Client::reset);
    server.until("all to be free", |c| c.memory == 0);
    let mut late = server.connect();
    late.send(b"late");
    late.expect(b"late");
    drop((late, innocent));
    server.stop();
}

fn short_memory_holds_back_the_largest_holders(v: Variant) {
    let server = server(v);
    let mut innocent = server.connect();
    let mut stuck: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.patience(Duration::ZERO);
    }
    // The clients send and do not read: what is echoed stays with the server.
    let piece = vec![b'.'; 64 << 10];
    server.until("one to be held back", |c| {
        for client in &mut stuck {
            let _ = std::io::Write::write(client, &piece);
        }
        c.memory_pauses > 0
    });
    innocent.send(b"served");
    innocent.expect(b"served");
    let counters = server.counters();
    assert_eq!(counters.closed_for(Closed::MemoryLimit), 0, "{counters}");
    // When most of them have gone, the last may go on.
    let mut last = stuck.pop().expect("four came");
    stuck.into_iter().for_each(Client::reset);
    last.patience(PATIENCE);
    let mut writer = last.second();
    let sender = world::spawn(move || {
        writer.send(b"END");
        writer.finish();
    });
    assert!(last.rest().ends_with(b"END"));
    sender.join().expect("the sender");
    drop((last, innocent));
    server.stop();
}

/// The connection that holds most goes, and no other, though another, perhaps on another loop, has
/// the part that is too much for all.
fn short_memory_closes_one_loops_greediest_only(v: Variant) {
    let server = server(v);
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"e");
        client.expect(b"e");
    }
    clients[0].send(b"M");
    server.until("most to be held", |c| c.memory >= MOST as u64);
    for client in &mut clients[1..4] {
        client.send(b"S");
    }
    server.until("some to be held", |c| c.memory >= (MOST + 3 * SOME) as u64);
    clients[4].send(b"S");
    clients[0].expect_reset();
    server.until("room", |c| c.memory <= LIMIT as u64);
    clients[5].send(b"still here");
    clients[5].expect(b"still here");
    let counters = server.counters();
    assert_eq!(counters.closed_for(Closed::MemoryLimit), 1, "{counters}");
    clients.into_iter().for_each(Client::reset);
    server.until("all to be free", |c| c.memory == 0);
    server.stop();
}

fn short_memory_refuses_dials(v: Variant) {
    let server = server(v);
    let listener = Listener::new();
    let to = listener.addr();
    let mut greedy: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut greedy {
        client.send(b"h");
    }
    server.until("it to be held", |c| c.memory >= 4 * MUCH as u64);
    server.dial(Dial::to(to).token(7));
    server
        .record
        .until("the refusal", |r| !r.dials_failed.is_empty());
    let (token, error) = server.record.lock().dials_failed[0].clone();
    assert_eq!(token, 7);
    assert!(error.contains("memory"), "{error}");
    assert_eq!(server.counters().dials_refused, 1);
    greedy.into_iter().for_each(Client::reset);
    server.until("all to be free", |c| c.memory == 0);
    server.dial(Dial::to(to).token(8));
    let mut peer = listener.accept();
    peer.send(b"room again");
    peer.expect(b"room again");
    drop(peer);
    server.stop();
}

/// Keeps all that comes, as chunks, until `!` comes with the rest.
#[derive(Default)]
struct Keeps(Vec<Chunk>);

impl Role for Keeps {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if input.bytes().ends_with(b"!") {
            self.0.clear();
            cx.link.write(b"dropped");
        } else {
            self.0.push(input.take(input.len()));
        }
        input.consume(input.len());
        Next::More
    }
}

fn chunks_that_protocols_keep_count(v: Variant) {
    let server = Setup::on(v).memory(LIMIT).start(Keeps::default);
    let mut first = server.connect();
    first.send(&vec![b'.'; 1 << 20]);
    server.until("it to be counted", |c| c.memory >= 1 << 20);
    first.send(b"!");
    first.expect(b"dropped");
    server.until("it to be free", |c| c.memory == 0);
    // What cannot be taken is not read.
    let mut stuck: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.patience(Duration::ZERO);
    }
    let piece = vec![b'.'; 64 << 10];
    server.until("one to be held back", |c| {
        for client in &mut stuck {
            let _ = std::io::Write::write(client, &piece);
        }
        c.memory_pauses > 0
    });
    let counters = server.counters();
    assert!(counters.memory <= LIMIT as u64, "{counters}");
    assert_eq!(counters.closed_for(Closed::MemoryLimit), 0, "{counters}");
    stuck.into_iter().for_each(Client::reset);
    server.until("all to be free", |c| c.memory == 0);
    first.send(b"!");
    first.expect(b"dropped");
    drop(first);
    server.stop();
}

/// Answers `w` with much that is copied, `s` with much that is shared, and echoes everything else.
struct Large;

impl Role for Large {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        match input.bytes()[0] {
            b'w' => cx.link.write(&vec![1; MUCH]),
            b's' => cx.link.write_shared(vec![1; MUCH].into()),
            _ => return echo(input, cx),
        }
        input.consume(input.len());
        Next::More
    }
}

/// Most of it has been taken by its reader; its memory is one piece, and all there until the rest has gone.
fn what_is_sent_of_a_large_piece_is_held(v: Variant) {
    /// More than fits the kernel's buffers, so that some of it stays with the server.
    const LEFT: usize = 700 << 10;
    let server = Setup::on(v)
        .memory(LIMIT)
        .limits(|l| (l.output_low, l.output_high) = (1 << 20, 4 << 20))
        .small_buffers()
        .start(|| Large);
    let mut readers: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for (reader, what) in readers.iter_mut().zip([b"w", b"s", b"w", b"s"]) {
        reader.small_buffer(32 << 10);
        reader.send(what);
        reader.take(MUCH - LEFT);
    }
    Client::connect_to_be_reset(server.addr());
    server.until("the refusal", |c| c.refused_for(Refusal::MemoryLimit) == 1);
    for reader in &mut readers {
        reader.take(LEFT);
    }
    server.until("all to be free", |c| c.memory == 0);
    let mut late = server.connect();
    late.send(b"late");
    late.expect(b"late");
    drop((late, readers));
    server.stop();
}

/// Waits for a frame of this many bytes, and says whether it came as it was sent.
struct Frame(usize);

impl Role for Frame {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if input.len() < self.0 {
            return Next::AtLeast(self.0);
        }
        let whole = input.bytes()[..self.0] == noise(1, self.0);
        cx.link.write(if whole { b"whole" } else { b"other" });
        input.consume(self.0);
        Next::More
    }
}

/// Room grows with what comes of a frame, so that no client is refused for what others have only
/// announced.
fn what_is_announced_takes_no_memory(v: Variant) {
    // Four of them are the whole limit.
    const FRAME: usize = LIMIT / 4;
    const QUARTER: usize = FRAME / 4;
    let server = Setup::on(v).memory(LIMIT).start(|| Frame(FRAME));
    let frame = noise(1, FRAME);
    let mut waiting: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    // The first makes the protocol say how much it wants, the second is carried for that.
    for sent in 1..=2 {
        for client in &mut waiting {
            client.send(&frame[sent - 1..sent]);
        }
        server.until("the bytes", |c| c.bytes_in == 4 * sent as u64);
    }
    let mut late = server.connect();
    late.send(&frame[..QUARTER]);
    server.until("a quarter to be carried", |c| {
        c.bytes_in == 8 + QUARTER as u64
    });
    server.until("it to be counted", |c| c.memory >= QUARTER as u64);
    let counters = server.counters();
    assert!(
        counters.memory <= (2 * QUARTER + (64 << 10)) as u64,
        "{counters}"
    );
    assert_eq!(counters.refused_for(Refusal::MemoryLimit), 0, "{counters}");
    late.send(&frame[QUARTER..]);
    late.expect(b"whole");
    server.until("it to be free", |c| c.memory < 1 << 10);
    drop((late, waiting));
    server.stop();
}
