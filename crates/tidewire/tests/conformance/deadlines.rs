//! What a peer owes by when: the first byte, the rest of a request, the taking of output; how long a
//! connection may live. To the tick it is tried in the simulator.

use std::time::Duration;

use tidewire::{Closed, Dial, Input, Next};

use crate::case::{Case, case};
use crate::client::PATIENCE;
use crate::fixture::Setup;
use crate::listener::nobody;
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::roles::{Echo, Receives, echo};
use crate::variant::Variant;
use crate::world::{self, Moment};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_first_byte_that_does_not_come_is_a_reason),
        case!(a_request_that_drips_is_cut),
        case!(output_that_is_not_taken_ends_it_whatever_the_peer_says),
        case!(a_lifetime_ends_in_order),
        case!(a_connection_overrides_its_limits),
        case!(many_that_drip_are_cut_and_others_are_served),
        case!(times_beyond_all_time_are_waited_for),
    ]
}

const SHORT: Duration = Duration::from_millis(60);

/// Waits for a line that ends.
struct Line;

impl Role for Line {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        while let Some(n) = input.bytes().iter().position(|&b| b == b'\n') {
            if input.bytes().starts_with(b"patience") {
                cx.link.set_request_limit(None);
                cx.link.set_idle(None);
            }
            cx.link.write(b"line\n");
            input.consume(n + 1);
        }
        Next::More
    }
}

fn a_first_byte_that_does_not_come_is_a_reason(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.first_byte = Some(SHORT))
        .start(|| Echo);
    let client = server.connect();
    assert_eq!(server.record.why_closed(0), Closed::FirstByteLate);
    drop(client);
    let counters = server.stop();
    assert_eq!(counters.closed_for(Closed::FirstByteLate), 1);
}

fn a_request_that_drips_is_cut(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.request = Some(SHORT * 4))
        .start(|| Line);
    let mut client = server.connect();
    client.send(b"whole\n");
    client.expect(b"line\n");
    client.send(b"but then");
    let mut dripping = client.second();
    let dripper = world::spawn(move || {
        // Never silent for long, and never at an end: sending fails when the server has cut it.
        while dripping.try_send(b"x") {
            world::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(server.record.why_closed(0), Closed::RequestLate);
    dripper.join().unwrap();
    server.stop();
}

fn output_that_is_not_taken_ends_it_whatever_the_peer_says(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.write = Some(SHORT * 4))
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                if input.bytes().contains(&b'?') {
                    cx.link.write(&vec![1; 32 << 20]);
                }
                input.consume(input.len());
                Next::More
            })
        });
    let mut client = server.connect();
    client.send(b"?");
    let mut talking = client.second();
    let talker = world::spawn(move || {
        while talking.try_send(b"x") {
            world::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(server.record.why_closed(0), Closed::Stalled);
    talker.join().unwrap();
    server.stop();
}

fn a_lifetime_ends_in_order(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.lifetime = Some(SHORT))
        .start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Lifetime);
    assert!(server.record.lock().has(0, &Event::Draining));
    server.stop();
}

fn a_connection_overrides_its_limits(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| (l.request, l.idle) = (Some(SHORT), Some(SHORT * 20)))
        .start(|| Line);
    let mut patient = server.connect();
    patient.send(b"patience\nand a rest");
    patient.expect(b"line\n");
    let mut other = server.connect();
    other.send(b"rest");
    assert_eq!(server.record.why_closed(1), Closed::RequestLate);
    patient.send(b" of it\n");
    patient.expect(b"line\n");
    assert!(server.record.lock().of(0).len() < 3, "still open");
    drop((patient, other));
    server.stop();
}

/// A byte now and then of each of many: they are cut, and one that is whole is answered meanwhile.
fn many_that_drip_are_cut_and_others_are_served(v: Variant) {
    const MANY: usize = 200;
    let server = Setup::on(v)
        .limits(|l| l.request = Some(Duration::from_millis(500)))
        .start(|| Line);
    let mut dripping: Vec<_> = (0..MANY).map(|_| server.connect()).collect();
    let mut good = server.connect();
    let late = |counters: &tidewire::Counters| counters.closed_for(Closed::RequestLate);
    let began = Moment::now();
    while late(&server.counters()) < MANY as u64 {
        assert!(began.elapsed() < PATIENCE, "who drips is never cut");
        for client in &mut dripping {
            client.try_send(b"x");
        }
        good.send(b"hello\n");
        good.expect(b"line\n");
        // A hundred bytes a second earn a client no more time.
        world::sleep(Duration::from_millis(10));
    }
    drop((dripping, good));
    server.stop();
}

/// Echoes, with a timer that is set as far away as may be.
struct Distant;

impl Role for Distant {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        cx.link.set_timer_after(Duration::MAX);
        cx.link.set_lifetime(Some(Duration::MAX));
        echo(input, cx)
    }

    fn expired(&mut self, _: &mut Context<'_>) {
        panic!("the end of time has come");
    }
}

fn times_beyond_all_time_are_waited_for(v: Variant) {
    let ever = Some(Duration::MAX);
    let server = Setup::on(v)
        .limits(|l| {
            (l.idle, l.first_byte, l.request) = (ever, ever, ever);
            (l.write, l.lifetime, l.linger) = (ever, ever, Duration::MAX);
        })
        .start(|| Distant);
    server.dial(Dial::to(server.addr()).after(Duration::MAX));
    // 2^64 nanoseconds and a few are no few nanoseconds.
    let beyond = Duration::from_nanos(u64::MAX) + Duration::from_millis(1);
    let nobody = Dial::to(nobody()).timeout(Duration::MAX);
    server.dial(nobody.attempts(u32::MAX).backoff(beyond, Duration::MAX));
    server.until("the failure", |c| c.dial_failures > 0);
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(b"x");
        client.expect(b"x");
        world::sleep(Duration::from_millis(5));
    }
    let mut other = server.connect();
    other.finish();
    other.expect_end();
    drop(other);
    assert_eq!(server.counters().dial_failures, 1, "the pause is over");
    let before = server.counters().turns;
    world::sleep(Duration::from_millis(50));
    let turns = server.counters().turns - before;
    assert!(turns < 20, "{turns} turns in which there was nothing to do");
    client.finish();
    client.expect_end();
    drop(client);
    match v.is_simulated() {
        true => server.stop(),
        false => server.stop_within(Duration::MAX),
    };
}
