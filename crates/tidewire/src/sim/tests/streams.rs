//! Bytes get through whole, in order and paced, whatever the conditions.

use std::time::Duration;

use proptest::prelude::*;

use super::services::{Echo, Sender, numbered};
use crate::sim::{Conditions, Outcome, Pair, PlainState, Sim};
use crate::{Closed, Limits};

const LONG: Duration = Duration::from_secs(3600);

fn no_idle() -> Limits {
    Limits {
        idle: None,
        ..Limits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn echo_returns_its_input(
        seed: u64,
        input in proptest::collection::vec(any::<u8>(), 0..20_000),
        low in 0usize..500,
        span in 1usize..5000,
    ) {
        let limits = Limits { output_low: low, output_high: low + span, ..no_idle() };
        let mut sim = Sim::new(seed);
        let addr = sim.serve(Echo, limits);
        let peer = sim.plain(&addr);
        sim.send(peer, &input);
        sim.finish(peer);
        prop_assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
        prop_assert_eq!(sim.received(peer), &input);
        prop_assert_eq!(sim.state(peer), PlainState::Ended);
    }

    #[test]
    fn a_pair_exchanges_all_and_both_ends_finish(seed: u64, bytes in 1usize..20_000) {
        let mut pair = Pair::new(seed, Echo, Sender { bytes });
        prop_assert_eq!(pair.run(LONG), Outcome::Idle);
        let report = pair.client_local();
        prop_assert_eq!(&report.closed, &[Closed::Finished]);
        prop_assert!(report.replies.iter().copied().eq((0..bytes).map(numbered)));
        for counters in [pair.server_counters(), pair.client_counters()] {
            prop_assert_eq!(counters.bytes_in, bytes as u64);
            prop_assert_eq!(counters.bytes_out, bytes as u64);
            prop_assert_eq!(counters.closed_for(Closed::Finished), 1);
            prop_assert_eq!(counters.open, 0);
        }
    }
}

#[test]
fn a_slow_reader_is_paced_and_loses_nothing() {
    let limits = Limits {
        output_low: 1000,
        output_high: 4000,
        ..no_idle()
    };
    let conditions = Conditions {
        send_buffer: 2000,
        receive_buffer: 3000,
        ..Conditions::calm()
    };
    let mut sim = Sim::under(1, conditions);
    let at = sim.add_loop();
    let echo = sim.service(at, Echo, limits);
    let addr = sim.listen(echo);
    let peer = sim.plain(&addr);
    let input: Vec<u8> = (0..1_000_000).map(numbered).collect();
    sim.reading(peer, false);
    sim.send(peer, &input);
    assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);

    // Everything on the way is full, and no more than that was taken in.
    let most = 2 * (2000 + 3000) + 4000 + sim.conditions().chunk;
    let taken = input.len() - sim.unsent(peer);
    assert!(taken <= most, "{taken} bytes were taken in");
    assert!(sim.counters(at).output_pauses > 0);
    assert!(sim.received(peer).is_empty());

    sim.reading(peer, true);
    sim.finish(peer);
    assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    assert_eq!(sim.received(peer), input);
}

#[test]
fn many_connections_on_few_buffers() {
    let conditions = Conditions {
        buffers: 2,
        ..Conditions::from_seed(3)
    };
    let sim = Sim::under(3, conditions);
    let mut pair = Pair::on(sim, (Echo, no_idle()), (Sender { bytes: 0 }, no_idle()));
    let addr = pair.addr();
    let input: Vec<u8> = (0..20_000).map(numbered).collect();
    let peers: Vec<_> = (0..40).map(|_| pair.sim.plain(&addr)).collect();
    for &peer in &peers {
        pair.sim.send(peer, &input);
        pair.sim.finish(peer);
    }
    assert_eq!(pair.run(LONG), Outcome::Idle);
    for &peer in &peers {
        assert_eq!(pair.sim.received(peer), input);
    }
}

#[test]
fn a_dial_closed_before_it_is_connected_stays_closed() {
    for seed in 0..300 {
        let mut sim = Sim::new(seed);
        let addr = sim.serve(Echo, no_idle());
        let peer = sim.plain(&addr);
        sim.send(peer, b"hello");
        for _ in 0..seed % 8 {
            sim.step();
        }
        sim.close(peer, seed % 3 == 0);
        assert_eq!(sim.run_until_idle(LONG), Outcome::Idle, "seed {seed}");
        assert_eq!(sim.state(peer), PlainState::Closed, "seed {seed}");
    }
}
