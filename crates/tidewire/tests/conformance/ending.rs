//! Idle limits, stalled output, half-closed connections.

use std::time::Duration;

use tidewire::{Closed, Input, Next};

use crate::case::{Case, case};
use crate::fixture::Setup;
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::roles::{Echo, Receives, Sink, echo, noise};
use crate::variant::Variant;
use crate::world::{self, Moment};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(idle_connection_is_finished),
        case!(idle_callback_may_keep_the_connection),
        case!(traffic_keeps_idle_away),
        case!(stalled_output_is_cut),
        case!(half_close_with_replies_outstanding),
        case!(half_close_with_a_reply_that_comes_later),
        case!(reset_after_half_close_is_noticed),
        case!(reset_in_the_middle_of_a_frame),
        case!(a_peer_that_has_said_all_is_not_waited_for),
        case!(a_peer_that_said_more_than_all_is_waited_for),
    ]
}

const SHORT: Duration = Duration::from_millis(40);

fn idle_connection_is_finished(v: Variant) {
    let server = Setup::on(v).limits(|l| l.idle = Some(SHORT)).start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Idle);
    let want = [Event::Opened, Event::Idle, Event::Closed(Closed::Idle)];
    assert_eq!(server.record.lock().of(0), want);
    server.stop();
}

fn idle_callback_may_keep_the_connection(v: Variant) {
    /// Sends a ping at each idle limit.
    struct Pings;
    impl Role for Pings {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            echo(input, cx)
        }
        fn idle(&mut self, cx: &mut Context<'_>) {
            cx.link.write(b"ping");
        }
    }
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(SHORT))
        .start(|| Pings);
    let mut client = server.connect();
    for _ in 0..4 {
        client.expect(b"ping");
    }
    client.finish();
    // A busy machine may let some more pass before the end arrives.
    let rest = client.rest();
    assert!(rest.chunks(4).all(|ping| ping == b"ping"), "{rest:?}");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn traffic_keeps_idle_away(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(Duration::from_secs(1)))
        .start(|| Sink);
    // Longer than the limit altogether, though never for as long as it at a time; on a machine that was away
    // for so long itself, once more.
    let tries = 0..20;
    let kept = tries.into_iter().find(|&at| {
        let mut client = server.connect();
        let mut longest = Duration::ZERO;
        for _ in 0..13 {
            let before = Moment::now();
            client.try_send(b"x");
            world::sleep(Duration::from_millis(100));
            longest = longest.max(before.elapsed());
        }
        let was_even = longest < Duration::from_millis(300);
        assert!(!was_even || !server.record.lock().has(at, &Event::Idle));
        drop(client);
        let why = server.record.why_closed(at);
        assert!(!was_even || why == Closed::Finished, "{why:?}");
        was_even
    });
    assert!(
        kept.is_some(),
        "this machine never sleeps for as long as it is asked to"
    );
    server.stop();
}

fn stalled_output_is_cut(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(Duration::from_millis(200)))
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                input.consume(input.len());
                cx.link.write(&vec![1; 32 << 20]);
                Next::More
            })
        });
    let mut client = server.connect();
    client.send(b"?");
    assert_eq!(server.record.why_closed(0), Closed::Stalled);
    client.expect_reset();
    assert_eq!(server.record.lock().count(&Event::Idle), 0);
    server.stop();
}

/// The peer ends its side with most replies still in the server.
fn half_close_with_replies_outstanding(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    let sent = noise(5, 8 << 20);
    let (mut writer, bytes) = (client.second(), sent.clone());
    let sender = world::spawn(move || {
        writer.send(&bytes);
        writer.finish();
    });
    // Not reading until the server has to hold replies back.
    world::sleep(Duration::from_millis(50));
    assert!(client.rest() == sent);
    sender.join().expect("the sender");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    assert!(server.record.lock().has(0, &Event::PeerFinished(0)));
    server.stop();
}

/// The protocol still owes something when the peer has finished, and pays it later.
fn half_close_with_a_reply_that_comes_later(v: Variant) {
    struct Late;
    impl Role for Late {
        fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            input.consume(input.len());
            Next::More
        }
        fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
            cx.link.set_timer_after(Duration::from_millis(30));
        }
        fn expired(&mut self, cx: &mut Context<'_>) {
            cx.link.write(b"at last");
            cx.link.finish();
        }
    }
    let server = Setup::on(v).start(|| Late);
    let mut client = server.connect();
    client.send(b"?");
    client.finish();
    client.expect(b"at last");
    client.expect_end();
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    drop(client);
    server.stop();
}

fn reset_after_half_close_is_noticed(v: Variant) {
    /// Waits for its peer to go altogether.
    struct Waits;
    impl Role for Waits {
        fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            input.consume(input.len());
            Next::More
        }
        fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
            cx.link.write(b"go on");
        }
    }
    let server = Setup::on(v).start(|| Waits);
    let mut client = server.connect();
    client.send(b"x");
    client.finish();
    client.expect(b"go on");
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

fn reset_in_the_middle_of_a_frame(v: Variant) {
    let server = Setup::on(v).start(|| {
        Receives(|input: &mut Input<'_>, _: &mut Context<'_>| {
            input.consume(input.len() / 1000 * 1000);
            Next::AtLeast(1000)
        })
    });
    for i in 0..20 {
        let mut client = server.connect();
        client.send(&[1; 1500]);
        if i % 2 == 0 {
            server.record.until("the bytes", |_| {
                server.counters().bytes_in >= (i + 1) * 1500
            });
        }
        client.reset();
        assert_eq!(server.record.why_closed(i), Closed::Reset);
    }
    server.stop();
}

/// Answers a question, and waits for nothing more.
struct Answers;

impl Role for Answers {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let Some(asked) = input.bytes().iter().position(|&b| b == b'?') else {
            return Next::More;
        };
        input.consume(asked + 1);
        cx.link.write(&noise(7, ANSWER));
        cx.link.finish_without_waiting();
        Next::More
    }
}

/// More than fits the kernel's buffers, so that the end waits for the client to read.
const ANSWER: usize = 12 << 20;

fn a_peer_that_has_said_all_is_not_waited_for(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.output_hard = 2 * ANSWER)
        .start(|| Answers);
    let mut client = server.connect();
    client.send(b"what?");
    assert!(client.rest() == noise(7, ANSWER));
    // The peer has not closed, and the server does not wait until it does.
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    drop(client);
    server.stop();
}

/// What it says beyond that is discarded, and the answer comes whole.
fn a_peer_that_said_more_than_all_is_waited_for(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.output_hard = 2 * ANSWER)
        .start(|| Answers);
    let mut client = server.connect();
    client.send(b"what?");
    let mut answer = client.take(1);
    // The server has begun to answer, and cannot end before the rest is read.
    client.send(&noise(8, 1000));
    answer.extend(client.rest());
    assert!(answer == noise(7, ANSWER));
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}
