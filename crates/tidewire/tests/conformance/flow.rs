//! Pausing, resuming, waiting for more, waiting for output to drain, and the limits on all that.

use std::io::ErrorKind;
use std::io::Write;
use std::time::Duration;

use tidewire::{Closed, Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::record::Event;
use crate::roles::{Amplify, Echo, Publishes, Receives, echo};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(bytes_behind_an_urgent_mark_arrive),
        case!(bytes_after_pause_are_kept_and_shown_by_resume),
        case!(resume_shows_carried_bytes_without_new_ones),
        case!(paused_connection_notices_a_reset),
        case!(paused_connection_notices_a_reset_behind_data),
        case!(paused_connection_is_told_of_the_end),
        case!(paused_connection_is_told_of_an_end_behind_data),
        case!(paused_from_the_start),
        case!(paused_connection_is_not_idle),
        case!(finish_of_a_paused_connection),
        case!(at_least_is_honoured),
        case!(at_least_of_a_large_frame),
        case!(after_drain_replays_without_new_bytes),
        case!(after_drain_waits_below_the_high_mark_too),
        case!(marks_of_one_make_lock_step),
        case!(unread_bytes_are_told_at_the_end),
        case!(hard_output_limit_closes),
        case!(carried_limit_closes),
        case!(asking_for_more_than_may_be_carried_closes),
        case!(requests_are_paced_not_closed),
        case!(one_byte_writes),
    ]
}

/// Pauses after each call, shows what it was shown, and consumes nothing while told to look only.
struct Shows {
    consume: bool,
}

impl Role for Shows {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        cx.link
            .write(format!("[{}]", String::from_utf8_lossy(input.bytes())).as_bytes());
        if self.consume {
            input.consume(input.len());
        }
        Next::Paused
    }
}

fn resume(server: &Server, conn: u64) {
    let sent = server
        .record
        .handle(conn)
        .try_post(Message::run(|cx| cx.link.resume()));
    assert!(sent.is_ok());
}

fn bytes_after_pause_are_kept_and_shown_by_resume(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Shows { consume: true });
    let mut client = server.connect();
    client.send(b"one");
    client.expect(b"[one]");
    client.send(b"two");
    client.send(b"three");
    world::sleep(Duration::from_millis(20));
    assert_eq!(server.record.calls(), 1, "paused means quiet");
    resume(&server, 0);
    client.expect(b"[twothree]");
    drop(client);
    server
        .record
        .until("the hang-up", |r| r.has(0, &Event::HungUp));
    server.cut();
}

fn resume_shows_carried_bytes_without_new_ones(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Shows { consume: false });
    let mut client = server.connect();
    client.send(b"abc");
    client.expect(b"[abc]");
    resume(&server, 0);
    client.expect(b"[abc]");
    server.cut();
}

fn paused_connection_notices_a_reset(v: Variant) {
    let server = Setup::on(v).start(|| Shows { consume: true });
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"[x]");
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

/// The reset is there before the protocol pauses, behind data that it has not seen yet.
fn paused_connection_notices_a_reset_behind_data(v: Variant) {
    let server = Setup::on(v).start(|| SlowToPause);
    let mut client = server.connect();
    client.send(b"x");
    server
        .record
        .until("the first call", |_| server.record.calls() == 1);
    client.send(b"more");
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

/// Stays in its callback while its peer goes on, then pauses.
struct SlowToPause;

impl Role for SlowToPause {
    fn opened(&mut self, _: &mut Context<'_>) {
        // What the peer does next is there when the loop looks for the first time.
        world::sleep(Duration::from_millis(20));
    }
    fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
        input.consume(input.len());
        world::sleep(Duration::from_millis(20));
        Next::Paused
    }
}

fn paused_connection_is_told_of_the_end(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Shows { consume: true });
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"[x]");
    client.send(b"rest");
    client.finish();
    server
        .record
        .until("the hang-up", |r| r.has(0, &Event::HungUp));
    resume(&server, 0);
    client.expect(b"[rest]");
    // The role paused again, so the end itself still waits.
    resume(&server, 0);
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    let record = server.record.lock();
    assert_eq!(record.count(&Event::HungUp), 1, "told at most once");
    assert_eq!(record.count(&Event::PeerFinished(0)), 1);
    drop(record);
    server.stop();
}

/// Data and the end of it come together, and the protocol pauses on the data.
fn paused_connection_is_told_of_an_end_behind_data(v: Variant) {
    let server = Setup::on(v).start(|| SlowToPause);
    let mut client = server.connect();
    client.send(b"x");
    client.finish();
    server
        .record
        .until("the hang-up", |r| r.has(0, &Event::HungUp));
    server.cut();
}

/// Nothing is shown before the protocol asks for it, and then all that came meanwhile.
fn paused_from_the_start(v: Variant) {
    struct Late;
    impl Role for Late {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.pause();
            assert!(cx.link.paused());
            cx.link.set_timer_after(Duration::from_millis(40));
        }
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            echo(input, cx)
        }
        fn expired(&mut self, cx: &mut Context<'_>) {
            cx.link.write(b"now:");
            cx.link.resume();
        }
    }
    let server = Setup::on(v).start(|| Late);
    let (mut early, mut quiet) = (server.connect(), server.connect());
    early.send(b"early");
    early.finish();
    early.expect(b"now:early");
    early.expect_end();
    quiet.expect(b"now:");
    quiet.send(b"x");
    quiet.expect(b"x");
    drop((early, quiet));
    server.record.until("2 ends", |r| r.closed() == 2);
    server.stop();
}

fn paused_connection_is_not_idle(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(Duration::from_millis(20)))
        .reachable()
        .start(|| Shows { consume: true });
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"[x]");
    world::sleep(Duration::from_millis(100));
    assert!(!server.record.lock().has(0, &Event::Idle));
    resume(&server, 0);
    client.expect_end();
    assert!(server.record.lock().has(0, &Event::Idle));
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Idle);
    server.stop();
}

fn finish_of_a_paused_connection(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Shows { consume: true });
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"[x]");
    client.send(b"never seen");
    server.record.handle(0).finish();
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

/// Answers with the length of what it sees, and asks for `n` each time.
struct AsksFor(usize);

impl Role for AsksFor {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if input.len() < self.0 {
            return Next::AtLeast(self.0);
        }
        cx.link.write(format!("{};", input.len()).as_bytes());
        input.consume(self.0);
        Next::AtLeast(self.0)
    }
}

fn at_least_is_honoured(v: Variant) {
    let server = Setup::on(v).start(|| AsksFor(10));
    let mut client = server.connect();
    client.send(b"1");
    server
        .record
        .until("the first call", |_| server.record.calls() == 1);
    for byte in b"23456789" {
        client.send(&[*byte]);
        world::sleep(Duration::from_millis(2));
    }
    assert_eq!(server.record.calls(), 1, "nine bytes are not ten");
    client.send(b"0");
    client.expect(b"10;");
    // The frame is complete and so is the next: it must not be waited for.
    client.send(b"aaaaaaaaaabbbbbbbbbbcc");
    client.expect(b"22;12;");
    client.finish();
    server
        .record
        .until("the end", |r| r.has(0, &Event::PeerFinished(2)));
    drop(client);
    server.stop();
}

fn at_least_of_a_large_frame(v: Variant) {
    const FRAME: usize = 16 << 20;
    let server = Setup::on(v).start(|| AsksFor(FRAME));
    let mut client = server.connect();
    client.send(&vec![1; FRAME]);
    client.expect(format!("{FRAME};").as_bytes());
    assert!(
        server.record.calls() <= 2,
        "{} calls",
        server.record.calls()
    );
    drop(client);
    server.stop();
}

fn after_drain_replays_without_new_bytes(v: Variant) {
    let server = Setup::on(v).start(|| Amplify(64 << 10));
    let mut client = server.connect();
    // 64 requests whose replies come to 4 MiB, many times the high mark.
    let requests: Vec<u8> = (0..64).collect();
    client.send(&requests);
    for byte in requests {
        assert_eq!(client.take(64 << 10), vec![byte; 64 << 10]);
    }
    client.finish();
    client.expect_end();
    drop(client);
    let counters = server.stop();
    assert!(counters.output_pauses > 0);
}

/// A protocol that sends one reply and wants it gone before it looks at the next request.
fn after_drain_waits_below_the_high_mark_too(v: Variant) {
    let server = Setup::on(v).start(|| {
        Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
            if cx.link.queued_len() > 0 {
                return Next::AfterDrain;
            }
            if let Some(&byte) = input.bytes().first() {
                cx.link.write(&[byte]);
                input.consume(1);
            }
            if input.is_empty() {
                Next::More
            } else {
                Next::AfterDrain
            }
        })
    });
    let mut client = server.connect();
    client.send(b"lock-step");
    client.expect(b"lock-step");
    client.finish();
    client.expect_end();
    drop(client);
    server.stop();
}

fn marks_of_one_make_lock_step(v: Variant) {
    struct LockStep;
    impl Role for LockStep {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.set_marks(0, 1);
        }
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            while let Some(&byte) = input.bytes().first() {
                if cx.link.full() {
                    return Next::AfterDrain;
                }
                assert_eq!(cx.link.queued_len(), 0);
                cx.link.write(&[byte]);
                input.consume(1);
            }
            Next::More
        }
    }
    let server = Setup::on(v).start(|| LockStep);
    let mut client = server.connect();
    let requests: Vec<u8> = (0..1000).map(|i| i as u8).collect();
    client.send(&requests);
    client.expect(&requests);
    drop(client);
    server.record.why_closed(0);
    assert!(server.record.lock().count(&Event::Writable) >= 999);
    server.stop();
}

fn unread_bytes_are_told_at_the_end(v: Variant) {
    let server = Setup::on(v).start(|| {
        Receives(|input: &mut Input<'_>, _: &mut Context<'_>| {
            // Whole triples only.
            input.consume(input.len() / 3 * 3);
            Next::More
        })
    });
    for (i, n) in [0usize, 3, 4, 70_001].into_iter().enumerate() {
        let mut client = server.connect();
        client.send(&vec![1; n]);
        client.finish();
        client.expect_end();
        drop(client);
        assert_eq!(server.record.why_closed(i as u64), Closed::Finished);
        let want = [
            Event::Opened,
            Event::PeerFinished(n % 3),
            Event::Closed(Closed::Finished),
        ];
        assert_eq!(server.record.lock().of(i as u64), want);
    }
    server.stop();
}

fn hard_output_limit_closes(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.output_hard = 1 << 20)
        .start(|| Publishes);
    let mut client = server.connect();
    client.send(b"?");
    client.expect_reset();
    assert_eq!(server.record.why_closed(0), Closed::OutputLimit);
    assert_eq!(server.stop().closed_for(Closed::OutputLimit), 1);
}

fn carried_limit_closes(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.carried = 100_000)
        .start(|| Receives(|_: &mut Input<'_>, _: &mut Context<'_>| Next::More));
    let mut within = server.connect();
    within.send(&[1; 100_000]);
    within.finish();
    within.expect_end();
    drop(within);
    let seen = Event::PeerFinished(100_000);
    server.record.until("the end", |r| r.has(0, &seen));
    let mut beyond = server.connect();
    // The reset may come while it still sends.
    let _ = beyond.write_all(&[1; 100_001]);
    expect_reset_or_broken(beyond);
    assert_eq!(server.record.why_closed(1), Closed::CarriedLimit);
    server.stop();
}

fn expect_reset_or_broken(client: Client) {
    let mut client = client;
    loop {
        match client.write_all(&[0; 10]) {
            Ok(()) => world::sleep(Duration::from_millis(1)),
            Err(e) => {
                let kind = e.kind();
                let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                return assert!(gone.contains(&kind), "{e} instead of a reset");
            }
        }
    }
}

fn asking_for_more_than_may_be_carried_closes(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.carried = 1000)
        .start(|| AsksFor(1001));
    let mut client = server.connect();
    client.send(b"x");
    client.expect_reset();
    assert_eq!(server.record.why_closed(0), Closed::CarriedLimit);
    server.stop();
}

/// A pipeline whose replies exceed even the hard limit is slowed down, not cut.
fn requests_are_paced_not_closed(v: Variant) {
    const REQUESTS: usize = 20_000;
    let server = Setup::on(v)
        .limits(|l| {
            (l.output_low, l.output_high, l.output_hard) = (4 << 10, 16 << 10, 64 << 10);
        })
        .start(|| Amplify(1000));
    let mut client = server.connect();
    let mut writer = client.second();
    let sender = world::spawn(move || {
        writer.send(&[9; REQUESTS]);
        writer.finish();
    });
    let mut got = 0;
    while got < REQUESTS * 1000 {
        let piece = client.take(100_000);
        assert!(piece.iter().all(|&b| b == 9));
        got += piece.len();
    }
    client.expect_end();
    sender.join().expect("the sender");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    assert!(server.stop().output_pauses > 0);
}

fn one_byte_writes(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    let mut writer = client.second();
    let sender = world::spawn(move || {
        for i in 0..5000u32 {
            writer.send(&[i as u8]);
        }
    });
    for i in 0..5000u32 {
        assert_eq!(client.take(1), [i as u8]);
    }
    sender.join().expect("the sender");
    drop(client);
    server.stop();
}

/// A receive stops at the mark, although there is more.
fn bytes_behind_an_urgent_mark_arrive(v: Variant) {
    let (busy, go_on) = std::sync::mpsc::channel::<()>();
    let go_on = std::sync::Mutex::new(go_on);
    let go_on = std::sync::Arc::new(go_on);
    let server = Setup::on(v).start(move || {
        let go_on = go_on.clone();
        Receives(move |input: &mut Input<'_>, cx: &mut Context<'_>| {
            if input.bytes() == b"wait" {
                input.consume(4);
                // What comes meanwhile is there all at once.
                let _ = go_on.lock().expect("no panic").recv();
                return Next::More;
            }
            echo(input, cx)
        })
    });
    let mut client = server.connect();
    client.send(b"wait");
    server
        .record
        .until("a busy loop", |_| server.record.calls() == 1);
    client.send(b"ab");
    let socket = socket2::SockRef::from(client.socket());
    assert_eq!(socket.send_out_of_band(b"c").expect("urgent"), 1);
    client.send(b"de");
    busy.send(()).expect("it waits");
    client.expect(b"abcde");
    server.cut();
}
