//! Output that waits for a mark: it counts, keeps its place, and leaves when the mark is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidewire::{Closed, Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::record::Event;
use crate::roles::{Publishes, noise};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(held_output_leaves_in_order_when_released),
        case!(one_watermark_releases_all_connections),
        case!(what_is_released_already_is_not_held),
        case!(finish_waits_for_held_output),
        case!(half_close_waits_for_held_output),
        case!(finished_connections_are_released_by_the_watermark),
        case!(held_output_is_not_the_peers_fault),
        case!(held_output_paces),
        case!(held_output_runs_into_the_hard_limit),
        case!(large_held_output_arrives_whole),
        case!(reset_of_a_peer_that_is_owed_is_noticed),
        case!(reset_of_a_half_closed_peer_that_is_owed_is_noticed),
        case!(a_stop_waits_for_held_output),
        case!(a_stop_does_not_wait_for_ever),
    ]
}

/// Each byte is a reply that waits for the mark of its value; `.` finishes, `,` finishes writing,
/// `/` is not held.
struct Commits;

impl Role for Commits {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        for &byte in input.bytes() {
            match byte {
                b'.' => cx.link.finish(),
                b',' => cx.link.finish_writing(),
                mark => {
                    cx.link.hold_until(u64::from(mark));
                    cx.link.write(&[mark]);
                }
            }
        }
        input.consume(input.len());
        Next::More
    }
}

fn commits(v: Variant) -> Setup {
    Setup::on(v).reachable()
}

fn release(server: &Server, conn: u64, upto: u8) {
    let posted = Message::run(move |cx| cx.link.release(u64::from(upto)));
    assert!(server.record.handle(conn).try_post(posted).is_ok());
}

/// Waits until the server has seen `n` bytes in all.
fn seen(server: &Server, n: u64) {
    server
        .record
        .until("the bytes", |_| server.record.consumed() >= n);
}

/// Fails if anything comes within a moment.
fn expect_nothing(client: &mut Client) {
    let (patience, moment) = (crate::client::PATIENCE, Duration::from_millis(30));
    client.patience(moment);
    let came = std::io::Read::read(client, &mut [0; 16]);
    assert!(came.is_err(), "{came:?} although it is held");
    client.patience(patience);
}

fn held_output_leaves_in_order_when_released(v: Variant) {
    let server = commits(v).start(|| Commits);
    let mut client = server.connect();
    // Equal marks are one; a lower one behind a higher cannot leave before it.
    client.send(b"aabcAc");
    seen(&server, 6);
    expect_nothing(&mut client);
    release(&server, 0, b'a');
    client.expect(b"aa");
    release(&server, 0, b'A');
    expect_nothing(&mut client);
    release(&server, 0, b'b');
    client.expect(b"b");
    release(&server, 0, b'z');
    client.expect(b"cAc");
    // Released beforehand.
    client.send(b"dz");
    client.expect(b"dz");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

/// A server whose watermark is set from outside.
struct Marked {
    server: Server,
    mark: Arc<AtomicU64>,
}

impl Marked {
    fn start<R: Role>(setup: Setup, make: impl Fn() -> R + Send + Sync + 'static) -> Marked {
        let mark = Arc::new(AtomicU64::new(0));
        let seen = mark.clone();
        let server = setup
            .woken(move |_, all| all.release_all(seen.load(SeqCst)))
            .start(make);
        Marked { server, mark }
    }

    fn release(&self, upto: u8) {
        self.mark.store(u64::from(upto), SeqCst);
        for at in &self.server.record.lock().loops {
            at.signal();
        }
    }
}

fn one_watermark_releases_all_connections(v: Variant) {
    const CONNECTIONS: usize = 40;
    let marked = Marked::start(commits(v), || Commits);
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| marked.server.connect()).collect();
    for client in &mut clients {
        client.send(b"ab");
    }
    seen(&marked.server, 2 * CONNECTIONS as u64);
    // Some go before they are answered.
    for _ in 0..CONNECTIONS / 2 {
        clients.pop().expect("so many came").reset();
    }
    marked.release(b'a');
    for client in &mut clients {
        client.expect(b"a");
        expect_nothing(client);
    }
    marked.release(b'b');
    for client in &mut clients {
        client.expect(b"b");
    }
    for client in &mut clients {
        client.send(b"c");
    }
    seen(
        &marked.server,
        2 * CONNECTIONS as u64 + clients.len() as u64,
    );
    marked.release(b'c');
    for client in &mut clients {
        client.expect(b"c");
    }
    drop(clients);
    marked.server.stop();
}

fn what_is_released_already_is_not_held(v: Variant) {
    let marked = Marked::start(commits(v), || Commits);
    let mut client = marked.server.connect();
    client.send(b"a");
    seen(&marked.server, 1);
    marked.release(b'm');
    client.expect(b"a");
    client.send(b"bm");
    client.expect(b"bm");
    drop(client);
    marked.server.stop();
}

fn finish_waits_for_held_output(v: Variant) {
    let server = commits(v)
        .limits(|l| l.linger = Duration::from_millis(30))
        .start(|| Commits);
    let mut client = server.connect();
    client.send(b"ab.");
    seen(&server, 3);
    // The linger limit is for what the peer could take: `a` once it is released.
    world::sleep(Duration::from_millis(120));
    expect_nothing(&mut client);
    assert_eq!(server.record.lock().closed(), 0);
    // Posts do not reach what has finished; the mark does.
    drop(server.record.handle(0));
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

/// This side has said all, some of it is held, and it reads on meanwhile: the end comes behind the last
/// of what is released.
fn half_close_waits_for_held_output(v: Variant) {
    let server = commits(v).start(|| Commits);
    let mut client = server.connect();
    client.send(b"ABC,");
    let record = &server.record;
    record.until("all to be held", |_| record.consumed() == 4);
    release(&server, 0, b'A');
    client.expect(b"A");
    // Reading goes on; what is written then is in vain.
    client.send(b"D");
    record.until("what came later", |_| record.consumed() == 5);
    release(&server, 0, b'B');
    client.expect(b"B");
    release(&server, 0, b'D');
    client.expect(b"C");
    client.expect_end();
    client.send(b"E");
    record.until("what came after the end", |_| record.consumed() == 6);
    assert!(!record.lock().has(0, &Event::PeerFinished(0)));
    client.finish();
    assert_eq!(record.why_closed(0), Closed::Finished);
    assert_eq!(server.stop().bytes_out, 3);
}

fn finished_connections_are_released_by_the_watermark(v: Variant) {
    let setup = commits(v).limits(|l| l.linger = Duration::from_millis(200));
    let marked = Marked::start(setup, || Commits);
    let mut client = marked.server.connect();
    client.send(b"ab.");
    seen(&marked.server, 3);
    world::sleep(Duration::from_millis(400));
    marked.release(b'a');
    client.expect(b"a");
    world::sleep(Duration::from_millis(400));
    expect_nothing(&mut client);
    marked.release(b'b');
    client.expect(b"b");
    client.expect_end();
    drop(client);
    assert_eq!(marked.server.record.why_closed(0), Closed::Finished);
    marked.server.stop();
}

fn held_output_is_not_the_peers_fault(v: Variant) {
    let server = commits(v)
        .limits(|l| l.idle = Some(Duration::from_millis(60)))
        .start(|| Commits);
    let mut client = server.connect();
    client.send(b"a");
    seen(&server, 1);
    world::sleep(Duration::from_millis(250));
    let events = server.record.lock().of(0);
    assert_eq!(events, [Event::Opened], "neither stalled nor idle");
    release(&server, 0, b'a');
    client.expect(b"a");
    // From here on it is the peer's turn.
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Idle);
    server.stop();
}

fn held_output_paces(v: Variant) {
    struct Paced;
    impl Role for Paced {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.set_marks(2, 5);
            cx.link.hold_until(1);
        }
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            while let Some(&byte) = input.bytes().first() {
                if cx.link.full() {
                    return Next::AfterDrain;
                }
                cx.link.write(&[byte]);
                input.consume(1);
                assert!(cx.link.held_len() == 0 || cx.link.held_len() == cx.link.queued_len());
            }
            Next::More
        }
    }
    let server = commits(v).start(|| Paced);
    let mut client = server.connect();
    client.send(b"0123456789");
    seen(&server, 5);
    expect_nothing(&mut client);
    assert_eq!(server.record.consumed(), 5, "as much as the high mark");
    release(&server, 0, 1);
    client.expect(b"0123456789");
    assert!(server.counters().output_pauses > 0);
    drop(client);
    server.stop();
}

fn held_output_runs_into_the_hard_limit(v: Variant) {
    struct Held;
    impl Role for Held {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.hold_until(1);
        }
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            Publishes.received(input, cx)
        }
    }
    let server = commits(v)
        .limits(|l| l.output_hard = 1 << 20)
        .start(|| Held);
    let mut client = server.connect();
    client.send(b"?");
    client.expect_reset();
    assert_eq!(server.record.why_closed(0), Closed::OutputLimit);
    server.stop();
}

fn large_held_output_arrives_whole(v: Variant) {
    const PIECES: usize = 40;
    struct Large;
    impl Role for Large {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            input.consume(input.len());
            for i in 0..PIECES {
                cx.link.hold_until(1 + i as u64);
                cx.link.write(&noise(i as u64, 9000 + i));
                cx.link.write_shared(noise(i as u64, 5000).into());
            }
            Next::More
        }
    }
    let marked = Marked::start(commits(v).small_buffers(), || Large);
    let mut client = marked.server.connect();
    client.send(b"?");
    seen(&marked.server, 1);
    // Everything at once, and one after the other while the one before is being sent.
    marked.release(PIECES as u8 / 2);
    for i in 0..PIECES {
        if i >= PIECES / 2 {
            marked.release(1 + i as u8);
        }
        client.expect(&noise(i as u64, 9000 + i));
        client.expect(&noise(i as u64, 5000));
    }
    drop(client);
    marked.server.stop();
}

fn reset_of_a_peer_that_is_owed_is_noticed(v: Variant) {
    let server = commits(v).start(|| Commits);
    let mut client = server.connect();
    client.send(b"a");
    seen(&server, 1);
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

/// The peer has finished and so has the server: nothing is to be read, and nothing may be sent.
fn reset_of_a_half_closed_peer_that_is_owed_is_noticed(v: Variant) {
    let server = commits(v).start(|| Commits);
    let mut client = server.connect();
    client.send(b"a");
    client.finish();
    server
        .record
        .until("the end", |r| r.has(0, &Event::PeerFinished(0)));
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

fn a_stop_waits_for_held_output(v: Variant) {
    let marked = Marked::start(commits(v), || Commits);
    let mut client = marked.server.connect();
    client.send(b"ab");
    seen(&marked.server, 2);
    let (mark, server) = (marked.mark, marked.server);
    let loops = server.record.lock().loops.clone();
    let record = server.record.clone();
    let stopping = world::spawn(move || server.stop_within(Duration::from_secs(20)));
    record.until("it to be told", |r| r.has(0, &Event::Draining));
    assert_eq!(record.lock().closed(), 0);
    mark.store(u64::from(b'b'), SeqCst);
    loops.iter().for_each(tidewire::LoopHandle::signal);
    client.expect(b"ab");
    client.expect_end();
    drop(client);
    let counters = stopping.join().expect("the stop");
    assert_eq!(counters.closed_for(Closed::Stopped), 1, "{counters}");
}

fn a_stop_does_not_wait_for_ever(v: Variant) {
    let server = commits(v).start(|| Commits);
    let mut client = server.connect();
    client.send(b"a");
    seen(&server, 1);
    let counters = server.stop_within(Duration::from_millis(100));
    assert_eq!(counters.closed_for(Closed::StopDeadline), 1, "{counters}");
    client.expect_reset();
}
