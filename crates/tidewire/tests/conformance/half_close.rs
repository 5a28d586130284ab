//! Half-close: this side has said all, and reads on.

use std::time::Duration;

use tidewire::{Closed, Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::roles::noise;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(half_closed_side_reads_on),
        case!(half_close_comes_behind_paced_output),
        case!(half_close_after_the_peers_is_the_end),
        case!(half_close_long_after_the_peers_is_the_end),
        case!(half_close_in_both_directions_at_once),
        case!(half_closed_and_paused_connection_keeps_what_came),
        case!(half_closed_and_paused_connection_notices_a_reset),
        case!(half_closed_connection_notices_a_reset),
        case!(half_closed_connection_may_finish_or_abort),
        case!(half_closed_connection_is_idle),
        case!(half_closed_output_that_stalls_is_cut),
        case!(stop_of_half_closed_connections),
    ]
}

/// Says its farewell at the first byte, takes what follows.
struct SaysAll;

impl Role for SaysAll {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if !cx.link.has_finished_writing() {
            cx.link.write(b"bye");
            cx.link.finish_writing();
        }
        cx.link.write(b"in vain");
        cx.link.write_with(10, |_| 10);
        cx.link.write_shared(b"in vain"[..].into());
        assert!(cx.link.has_finished_writing() && !cx.link.is_closing());
        input.consume(input.len());
        Next::More
    }
}

fn said_all(client: &mut Client) {
    client.send(b"?");
    client.expect(b"bye");
    client.expect_end();
}

fn half_closed_side_reads_on(v: Variant) {
    let server = Setup::on(v).start(|| SaysAll);
    let mut client = server.connect();
    said_all(&mut client);
    let more = noise(1, 1 << 20);
    client.send(&more);
    let all = more.len() as u64 + 1;
    let record = &server.record;
    record.until("all that came", |_| record.consumed() == all);
    assert!(!record.lock().has(0, &Event::PeerFinished(0)));
    client.finish();
    assert_eq!(record.why_closed(0), Closed::Finished);
    let end = [
        Event::Opened,
        Event::PeerFinished(0),
        Event::Closed(Closed::Finished),
    ];
    assert_eq!(record.lock().of(0), end);
    assert_eq!(server.stop().bytes_out, 3);
}

const MUCH: usize = 8 << 20;

/// Writes as fast as the peer takes it, then half-closes.
struct Pours {
    left: usize,
}

impl Pours {
    fn pour(&mut self, cx: &mut Context<'_>) {
        while self.left > 0 && !cx.link.full() {
            cx.link.write(&[7; 16 << 10]);
            self.left -= 16 << 10;
        }
        if self.left == 0 {
            cx.link.finish_writing();
        }
    }
}

impl Role for Pours {
    fn opened(&mut self, cx: &mut Context<'_>) {
        self.pour(cx);
    }
    fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
        input.consume(input.len());
        Next::More
    }
    fn writable(&mut self, cx: &mut Context<'_>) {
        self.pour(cx);
    }
}

fn half_close_comes_behind_paced_output(v: Variant) {
    let server = Setup::on(v).small_buffers().start(|| Pours { left: MUCH });
    let mut client = server.connect();
    let got = client.rest();
    assert!(got.len() == MUCH && got.iter().all(|&b| b == 7));
    client.send(b"thanks");
    let record = &server.record;
    record.until("the thanks", |_| record.consumed() == 6);
    drop(client);
    assert_eq!(record.why_closed(0), Closed::Finished);
    server.stop();
}

/// Answers the peer's end with its own, at once or a little later.
struct Answers {
    after: Duration,
}

impl Role for Answers {
    fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
        input.consume(input.len());
        Next::More
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        if self.after.is_zero() {
            self.expired(cx);
        } else {
            cx.link.set_timer_after(self.after);
        }
    }
    fn expired(&mut self, cx: &mut Context<'_>) {
        cx.link.write(b"all of it");
        cx.link.finish_writing();
        assert!(cx.link.is_closing(), "both sides have said all");
    }
}

fn answered_end(v: Variant, after: Duration) {
    let server = Setup::on(v).start(move || Answers { after });
    let mut client = server.connect();
    client.send(b"?");
    client.finish();
    client.expect(b"all of it");
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn half_close_after_the_peers_is_the_end(v: Variant) {
    answered_end(v, Duration::ZERO);
}

fn half_close_long_after_the_peers_is_the_end(v: Variant) {
    answered_end(v, Duration::from_millis(30));
}

/// The ends cross each other; whichever is first, the connection ends once and in order.
fn half_close_in_both_directions_at_once(v: Variant) {
    const CONNS: u64 = 100;
    let server = Setup::on(v).start(|| SaysAll);
    for _ in 0..CONNS {
        let mut client = server.connect();
        client.send(b"?");
        client.finish();
        client.expect(b"bye");
        client.expect_end();
    }
    server.record.until("all ends", |r| r.closed() == CONNS);
    assert_eq!(server.stop().closed_for(Closed::Finished), CONNS);
}

/// Half-closes and stops reading; a while after its peer seems to be gone it reads on.
struct LooksAway;

impl Role for LooksAway {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        input.consume(input.len());
        if cx.link.has_finished_writing() {
            return Next::More;
        }
        cx.link.finish_writing();
        Next::Paused
    }
    fn hung_up(&mut self, cx: &mut Context<'_>) {
        cx.link.set_timer_after(Duration::from_millis(100));
    }
    fn expired(&mut self, cx: &mut Context<'_>) {
        cx.link.resume();
    }
}

/// With both directions over, the kernel reports that for ever to a loop that does not read.
fn half_closed_and_paused_connection_keeps_what_came(v: Variant) {
    let server = Setup::on(v).start(|| LooksAway);
    let mut client = server.connect();
    client.send(b"?");
    client.expect_end();
    client.send(b"the rest");
    client.finish();
    let record = &server.record;
    assert_eq!(record.why_closed(0), Closed::Finished);
    let told = [
        Event::Opened,
        Event::HungUp,
        Event::Expired,
        Event::PeerFinished(0),
        Event::Closed(Closed::Finished),
    ];
    assert_eq!(record.lock().of(0), told);
    assert_eq!(record.consumed(), 9, "what came before the end is there");
    let turns = server.stop().turns;
    assert!(turns < 1000, "{turns} turns: a loop that spins");
}

fn half_closed_and_paused_connection_notices_a_reset(v: Variant) {
    let server = Setup::on(v).start(|| LooksAway);
    let mut client = server.connect();
    client.send(b"?");
    client.expect_end();
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

fn half_closed_connection_notices_a_reset(v: Variant) {
    let server = Setup::on(v).start(|| SaysAll);
    let mut client = server.connect();
    said_all(&mut client);
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    server.stop();
}

fn half_closed_connection_may_finish_or_abort(v: Variant) {
    /// Ends as the byte after its half-close says.
    struct Ends;
    impl Role for Ends {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            match input.bytes()[0] {
                b'f' => cx.link.finish(),
                b'a' => cx.link.abort(),
                _ => cx.link.finish_writing(),
            }
            input.consume(input.len());
            Next::More
        }
    }
    let server = Setup::on(v).start(|| Ends);
    for (i, (how, why)) in [(b"f", Closed::Finished), (b"a", Closed::Aborted)]
        .into_iter()
        .enumerate()
    {
        let mut client = server.connect();
        client.send(b"?");
        client.expect_end();
        client.send(how);
        if why == Closed::Finished {
            drop(client);
        }
        assert_eq!(server.record.why_closed(i as u64), why);
    }
    server.stop();
}

fn half_closed_connection_is_idle(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(Duration::from_millis(40)))
        .start(|| SaysAll);
    let mut client = server.connect();
    said_all(&mut client);
    server
        .record
        .until("the idle limit", |r| r.has(0, &Event::Idle));
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Idle);
    server.stop();
}

fn half_closed_output_that_stalls_is_cut(v: Variant) {
    struct Floods;
    impl Role for Floods {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.write(&vec![1; 32 << 20]);
            cx.link.finish_writing();
        }
        fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            input.consume(input.len());
            Next::More
        }
    }
    let server = Setup::on(v)
        .limits(|l| l.idle = Some(Duration::from_millis(200)))
        .start(|| Floods);
    let client = server.connect();
    assert_eq!(server.record.why_closed(0), Closed::Stalled);
    drop(client);
    server.stop();
}

/// What peers have sent is still taken at a stop; then the connections end.
fn stop_of_half_closed_connections(v: Variant) {
    let server = Setup::on(v).start(|| SaysAll);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(said_all);
    clients.iter_mut().for_each(|c| c.send(b"still here"));
    let leaver = world::spawn(move || {
        for client in clients {
            client.finish();
        }
    });
    let record = server.record.clone();
    let counters = server.stop();
    leaver.join().expect("the leaver");
    assert_eq!(record.consumed(), 8 * 11);
    assert_eq!(counters.closed_total(), 8, "{counters}");
    assert_eq!(counters.closed_for(Closed::StopDeadline), 0);
}
