//! Known truth: loads on the simulated clock, against servers whose delays are known, so that arithmetic
//! says what has to be found.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::{Conditions, Shape, Sim, SimService};
use tidewire::{
    Cx, Dial, Input, Instant, Limits, LoopHandle, Next, Peer, Protocol, Refusal, Service,
};

use super::arrivals::{Arrivals, Rate, Spacing};
use super::client::{Clients, Driver, Route};
use super::connect::{Connect, ConnectLoad};
use super::echo::{Echo, EchoLoad};
use super::flight::Flight;
use super::pace::Pace;
use super::stage::{Phase, Stage};
use super::turns::Slot;
use crate::histogram::LatencySummary;

const SIZE: usize = 32;
/// Round trip on a calm network.
const NETWORK: f64 = 100_000.0;
const MS: f64 = 1e6;

/// When the reply to message `n` of a connection, come at `now`, is sent.
type When = dyn Fn(Duration, u64) -> Duration + Send + Sync;

/// A server that echoes each message at a given time.
#[derive(Clone)]
struct Delayed(Arc<When>);

impl Service for Delayed {
    type Conn = Delaying;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Delaying, Refusal> {
        Ok(Delaying {
            when: self.0.clone(),
            came: 0,
            replies: VecDeque::new(),
        })
    }
}

struct Delaying {
    when: Arc<When>,
    came: u64,
    replies: VecDeque<(Instant, Vec<u8>)>,
}

impl Delaying {
    fn reply(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some((due, bytes)) = self.replies.front() {
            if *due > cx.link.clock() {
                return cx.link.set_timer(*due);
            }
            cx.link.write(bytes);
            self.replies.pop_front();
        }
    }
}

impl Protocol for Delaying {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let now = cx.link.clock().since(Instant::from_nanos(0));
        let bytes = input.bytes();
        let whole = bytes.len() / SIZE * SIZE;
        for message in bytes[..whole].chunks(SIZE) {
            let at = Instant::from_nanos(0) + (self.when)(now, self.came);
            self.came += 1;
            self.replies.push_back((at, message.to_vec()));
        }
        input.consume(whole);
        self.reply(cx);
        Next::More
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        self.reply(cx);
    }
}

/// The measured results.
pub(super) struct Found {
    sent: Option<LatencySummary>,
    pub(super) intended: Option<LatencySummary>,
    slip: Option<LatencySummary>,
    unsent: u64,
    pub(super) answered: u64,
    gap: Duration,
}

/// Loads such a server for some virtual time.
pub(super) fn found(
    connections: u64,
    pipeline: u32,
    arrivals: Arrivals,
    measured: Duration,
    when: impl Fn(Duration, u64) -> Duration + Send + Sync + 'static,
) -> Found {
    let load = EchoLoad {
        size: SIZE,
        pipeline,
        batch: 0,
    };
    let stage = Stage::new(arrivals);
    let make = move |connection| {
        let pace = arrivals.rate();
        let pace = pace.map(|rate| Pace::new(rate, connection, connections as usize));
        Echo::new(load, u64::MAX, connection, Flight::new(pace))
    };
    found_with(&stage, connections, measured, when, make)
}

/// The results with connections that `make` makes.
fn found_with<D: Driver>(
    stage: &Arc<Stage>,
    connections: u64,
    measured: Duration,
    when: impl Fn(Duration, u64) -> Duration + Send + Sync + 'static,
    make: impl Fn(u64) -> D + Send + Sync + 'static,
) -> Found {
    let limits = || Limits {
        idle: None,
        output_hard: usize::MAX,
        ..Limits::default()
    };
    let mut sim = Sim::under(1, Conditions::calm());
    sim.shape(Shape::Readiness).steps_max(u64::MAX);
    let addr = sim.serve(Delayed(Arc::new(when)), limits());
    let route = Route {
        reconnect: false,
        to: addr.tcp().expect("served at an address"),
        sources: 1,
        stall: Duration::from_secs(3600),
    };
    let clients = Clients::new(stage, route, false, make);
    let at = sim.add_loop();
    let client: SimService<Clients<D>> = sim.service(at, clients, limits());
    for token in 0..connections {
        sim.dial(client, Dial::to(&addr).token(token));
    }
    let all = |_: &mut Sim| stage.opened_count() == connections as usize;
    assert!(sim.run_until(Duration::from_secs(10), all));
    stage.measure_from(sim.now());
    stage.enter(Phase::Sending);
    sim.run_for(measured);
    stage.measure_until(sim.now());
    let answered = stage.counts().requests;
    stage.enter(Phase::Ending);
    // At this point a run stops, and a later report is lost.
    let settled = |_: &mut Sim| stage.settled_count() == connections as usize;
    assert!(sim.run_until(Duration::from_secs(600), settled));
    assert!(stage.take_failure().is_none());
    let taken = sim.local(client).taken();
    let scheduled = taken.scheduled.as_ref();
    Found {
        sent: taken.latencies.summary(),
        intended: scheduled.and_then(|by| by.latencies.summary()),
        slip: scheduled.and_then(|by| by.slip.summary()),
        unsent: scheduled.map_or(0, |by| by.unsent),
        answered,
        gap: taken.findings.gap,
    }
}

fn open(per_second: f64) -> Arrivals {
    Arrivals::Open(Rate::constant(per_second))
}

/// How late a loop's timer may be: it has ticks of 2^16 ns. The generator sends by such a timer, and a
/// slow server replies by one.
const TICK: u64 = 1 << 16;

/// Whether a figure is what it has to be, to three digits of the histogram, or so many ticks more.
#[track_caller]
fn is(found: u64, wanted: f64, ticks: u64) {
    let off = found as f64 - wanted;
    let most = (ticks * TICK) as f64;
    let digits = wanted * 0.001;
    assert!(
        -digits <= off && off <= most + digits,
        "{found}, not {wanted}"
    );
}

#[test]
fn the_rate_is_that_which_was_asked_for_and_a_fixed_delay_is_found() {
    for connections in [1, 3, 50] {
        let second = Duration::from_secs(10);
        let found = found(connections, 100, open(7_919.0), second, |now, _| {
            now + Duration::from_millis(1)
        });
        let all = found.intended.unwrap();
        assert!((all.count as f64 / 79_190.0 - 1.0).abs() < 0.001, "{all:?}");
        // Messages of the last 1.1 ms are answered after the end.
        assert!(found.answered.abs_diff(79_181) <= 3, "{}", found.answered);
        assert_eq!(found.unsent, 0);
        for (of, ticks) in [(all, 2), (found.sent.unwrap(), 1)] {
            for ns in [of.min_ns, of.p50_ns, of.p99_9_ns, of.max_ns] {
                is(ns, MS + NETWORK, ticks);
            }
        }
        assert!(found.slip.unwrap().max_ns <= TICK, "{:?}", found.slip);
    }
}

#[test]
fn independent_arrivals_find_a_fixed_delay_too() {
    let rate = Rate {
        spacing: Spacing::Poisson,
        ..Rate::constant(5_000.0)
    };
    let found = found(
        4,
        1_000,
        Arrivals::Open(rate),
        Duration::from_secs(10),
        |now, _| now + Duration::from_millis(1),
    );
    let all = found.intended.unwrap();
    // 50,000 with a standard deviation of 224.
    assert!(all.count.abs_diff(50_000) < 5 * 224, "{all:?}");
    is(all.p50_ns, MS + NETWORK, 2);
    is(all.max_ns, MS + NETWORK, 2);
}

#[test]
fn two_kinds_of_replies_are_found_with_their_shares() {
    // One message in ten takes 5 ms; at intervals of 10 ms, none meets another.
    let found = found(2, 10, open(200.0), Duration::from_secs(100), |now, n| {
        now + Duration::from_millis(if n % 10 == 9 { 5 } else { 1 })
    });
    let all = found.intended.unwrap();
    assert_eq!(all.count, 20_000);
    is(all.p50_ns, MS + NETWORK, 2);
    is(all.p99_ns, 5.0 * MS + NETWORK, 2);
    is(all.mean_ns as u64, 1.4 * MS + NETWORK, 2);
    // p90 is the last of the fast ones.
    is(all.p90_ns, MS + NETWORK, 2);
}

/// Stands still for the first 200 ms of each second.
fn stalls(now: Duration, _: u64) -> Duration {
    let ms = now.as_millis() as u64 % 1000;
    if ms < 200 {
        Duration::from_secs(now.as_secs()) + Duration::from_millis(200)
    } else {
        now
    }
}

#[test]
fn periodic_stalls_show_as_arithmetic_says() {
    let found = found(1, 10_000, open(2_000.0), Duration::from_secs(100), stalls);
    let all = found.intended.unwrap();
    assert_eq!((all.count, found.unsent), (200_000, 0));
    // A fifth waits, evenly from 0 to 200 ms: a share of (200 ms - L) / 1 s waits longer than L.
    is(all.p50_ns, NETWORK, 1);
    let near = |ns: u64, wanted: f64| {
        let off = (ns as f64 - wanted).abs();
        assert!(off < MS, "{ns}, not {wanted}");
    };
    near(all.p90_ns, 100.0 * MS);
    near(all.p99_ns, 190.0 * MS);
    near(all.p99_9_ns, 199.0 * MS);
    // The window had room for all of them: they were sent when they were to be.
    is(all.p99_ns, found.sent.unwrap().p99_ns as f64, 1);
}

#[test]
fn stalls_that_fill_the_window_hide_from_the_send_only() {
    let found = found(1, 1, open(2_000.0), Duration::from_secs(100), stalls);
    let (sent, all) = (found.sent.unwrap(), found.intended.unwrap());
    assert_eq!(sent.count, 200_000);
    assert_eq!(all.count, 200_000);
    // One message a stall is sent and waits: 100 of 200,000. From the send the others are fast.
    is(sent.p99_ns, NETWORK, 0);
    // A backlog of 400 goes at 10,000 a second while 2,000 come: 50 ms more behind each stall.
    assert!(
        all.p90_ns > 100_000_000 && all.p99_ns > 185_000_000,
        "{all:?}"
    );
    assert!(
        found.slip.unwrap().max_ns <= TICK,
        "none of it is the generator's"
    );
}

#[test]
fn without_a_schedule_a_stall_is_one_slow_reply() {
    let found = found(1, 1, Arrivals::Closed, Duration::from_secs(100), stalls);
    let sent = found.sent.unwrap();
    // 8,000 in the 800 ms of each second, and one that waits.
    assert!(sent.count.abs_diff(800_000) < 1_000, "{sent:?}");
    is(sent.p99_9_ns, NETWORK, 0);
    assert!(sent.max_ns > 199_000_000);
    assert!(found.intended.is_none());
}

#[test]
fn a_server_that_is_dead_for_two_of_five_seconds_is_found_without_a_rate() {
    let second = Duration::from_secs(1);
    // The server is dead in the middle of the measured time, or at its end: replies after the end are in
    // no latency.
    for (dead_from, dead_to) in [(2, 4), (3, 6)] {
        let dead = (second * dead_from, second * dead_to);
        let found = found(
            10,
            1,
            Arrivals::Closed,
            second * 5,
            move |now, _| match (dead.0..dead.1).contains(&now) {
                true => dead.1,
                false => now + Duration::from_millis(1),
            },
        );
        let low = 1.9 * second.as_secs_f64();
        assert!(
            (low..2.1).contains(&found.gap.as_secs_f64()),
            "{:?}",
            found.gap
        );
        assert!(found.sent.unwrap().p99_ns < 2 * MS as u64, "hidden there");
    }
    let steady = found(10, 1, Arrivals::Closed, second * 5, |now, _| {
        now + Duration::from_millis(1)
    });
    assert!(steady.gap < Duration::from_millis(3), "{:?}", steady.gap);
}

#[test]
fn a_latency_of_more_than_a_minute_is_not_called_a_minute() {
    let slow = Duration::from_secs(90);
    let found = found(
        1,
        1,
        Arrivals::Closed,
        Duration::from_secs(1_000),
        move |now, _| now + slow,
    );
    let all = found.sent.unwrap();
    assert_eq!(all.saturated, 0);
    is(all.p50_ns, 90e9, 20_000);
    is(all.max_ns, 90e9, 20_000);
}

#[test]
fn what_is_due_at_the_end_and_was_never_sent_counts() {
    // Nothing is answered from 9.5 s on until long after the end.
    let found = found(1, 1, open(100.0), Duration::from_secs(10), |now, _| {
        if now < Duration::from_millis(9_500) {
            now
        } else {
            Duration::from_secs(20)
        }
    });
    let all = found.intended.unwrap();
    assert_eq!((all.count, found.unsent), (1_000, 49));
    // The message that was sent waits for 10.5 s, later ones for less and less.
    assert!(all.max_ns > 10_400_000_000, "{all:?}");
    assert!(all.p99_ns > 350_000_000, "{all:?}");
    assert_eq!(found.sent.unwrap().count, 951);
}

#[test]
fn a_server_slower_than_the_rate_leaves_the_rest_unsent() {
    // A millisecond each, one after the other: 909 a second with the network, fewer by a tick each.
    let found = found(1, 1, open(2_000.0), Duration::from_secs(10), |now, _| {
        now + Duration::from_millis(1)
    });
    let all = found.intended.unwrap();
    assert_eq!(all.count, 20_000, "every one that was due counts");
    assert!(
        (8_570..=9_091).contains(&found.answered),
        "{}",
        found.answered
    );
    let answered = found.sent.unwrap().count;
    assert_eq!(found.unsent + answered, all.count);
}

#[test]
fn what_is_due_between_two_connections_is_not_forgotten() {
    const PLACES: u64 = 1;
    // A connection for each message, answered after 3 ms: about 300 a second of 2,000.
    let arrivals = open(2_000.0);
    let rate = *arrivals.rate().unwrap();
    // Ends that fall everywhere in the life of a connection.
    for end_us in (200_000..203_500).step_by(25) {
        let stage = Stage::new(arrivals);
        let slot = move |n| Slot::new(u64::MAX, Some(Pace::new(&rate, n, PLACES as usize)));
        let slots: Arc<[Slot]> = (0..PLACES).map(slot).collect();
        let make = move |n| Connect::new(ConnectLoad { size: SIZE }, &slots, n);
        let when = |now, _| now + Duration::from_millis(3);
        let found = found_with(&stage, PLACES, Duration::from_micros(end_us), when, make);
        let all = found.intended.unwrap();
        assert_eq!(all.count, end_us.div_ceil(500), "ended after {end_us} us");
        assert!(found.unsent > 50, "{}", found.unsent);
        assert_eq!(found.unsent + found.sent.unwrap().count, all.count);
    }
}
