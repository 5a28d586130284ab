//! Idle limits, stalled output, half-closed connections.

use std::time::Duration;

use tidewire::{Closed, Input, Next};

use crate::case::{Case, case};
use crate::fixture::Setup;
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::roles::{Echo, Receives, Sink, echo, noise};
use crate::variant::Variant;
use crate::world;

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
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn traffic_keeps_idle_away(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(Duration::from_secs(1)))
        .start(|| Sink);
    let mut client = server.connect();
    // Longer than the limit altogether, though never for as long as it at a time.
    for _ in 0..13 {
        client.send(b"x");
        world::sleep(Duration::from_millis(100));
    }
    assert!(!server.record.lock().has(0, &Event::Idle));
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
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
