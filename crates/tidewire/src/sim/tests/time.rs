//! Virtual time: deadlines fire when they are due, and nothing else makes the clock move.

use std::time::Duration;

use super::services::{Echo, SLEEP, Sleepy};
use crate::sim::{Conditions, Outcome, Sim};
use crate::vocabulary::time::Instant;
use crate::{Closed, Limits};

const TICK: Duration = Duration::from_nanos(1 << 16);

#[test]
fn a_timer_fires_at_its_virtual_time() {
    let mut sim = Sim::under(1, Conditions::calm());
    let addr = sim.serve(Sleepy, Limits::default());
    let peer = sim.plain(addr);
    sim.send(peer, b"abc");
    let latency = Duration::from_micros(50);
    for answered in 1..=3 {
        let done = |sim: &mut Sim| sim.received(peer).len() == answered;
        assert!(sim.run_until(Duration::from_secs(1), done));
        let n = answered as u32;
        // The handshake takes two latencies, the request and its answer one each.
        let due = latency * 4 + SLEEP * n;
        let late = sim.now().since(Instant::from_nanos(0) + due);
        assert!(sim.now() >= Instant::from_nanos(0) + due);
        assert!(late <= TICK * n, "answer {answered} is late by {late:?}");
    }
}

#[test]
fn an_idle_connection_is_closed_by_its_limit_after_hours_that_take_no_time() {
    let idle = Duration::from_secs(24 * 3600);
    let limits = Limits {
        idle: Some(idle),
        ..Limits::default()
    };
    let mut sim = Sim::new(1);
    let at = sim.add_loop();
    let echo = sim.service(at, Echo, limits);
    let addr = sim.listen(echo);
    let peer = sim.plain(addr);
    sim.send(peer, b"x");
    assert_eq!(sim.run_until_quiet(idle), Outcome::Idle);
    assert!(sim.now() < Instant::from_nanos(0) + Duration::from_secs(60));
    assert_eq!(sim.run_until_idle(idle / 2), Outcome::TimeUp);
    assert_eq!(sim.counters(at).open, 1);
    assert_eq!(sim.run_until_idle(idle), Outcome::Idle);
    // The plain peer does not close: finishing for idleness ends with the linger limit.
    assert_eq!(sim.counters(at).closed_for(Closed::LingerExpired), 1);
    assert_eq!(sim.received(peer), b"x");
}

#[test]
fn time_passes_even_if_nothing_happens() {
    let mut sim = Sim::new(1);
    assert!(!sim.step());
    sim.run_for(Duration::from_secs(5));
    assert_eq!(sim.now().as_nanos(), 5_000_000_000);
    assert_eq!(sim.run_until_idle(Duration::from_secs(1)), Outcome::Idle);
    assert_eq!(sim.now().as_nanos(), 5_000_000_000);
}
