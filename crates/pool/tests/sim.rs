//! Work in the simulator: at once, or when the test says so, and then in any order.

mod common;
#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{MUTE, PANIC, Worker};
use tidewire::Limits;
use tidewire::sim::{Conditions, PlainId, PlainState, Sim, seeds};
use tidewire_pool::Pool;

const MOMENT: Duration = Duration::from_secs(1);

fn served(worker: &Worker) -> (Sim, PlainId) {
    let mut sim = Sim::under(7, Conditions::calm());
    let addr = sim.serve(worker.clone(), Limits::default());
    let peer = sim.plain(addr);
    (sim, peer)
}

#[test]
fn inline_work_is_answered_whatever_the_network_does() {
    for seed in seeds(50) {
        let mut sim = Sim::new(seed);
        let addr = sim.serve(Worker::new(&Pool::inline()), Limits::default());
        let peer = sim.plain(addr);
        sim.send(peer, b"to be or not");
        sim.run_for(Duration::from_secs(30));
        assert_eq!(sim.received(peer), b"to be or not", "seed {seed}");
    }
}

#[test]
fn results_are_given_out_in_the_order_of_the_requests() {
    let pool = Pool::by_hand(100);
    let (mut sim, peer) = served(&Worker::new(&pool));
    sim.send(peer, b"abc");
    sim.run_for(MOMENT);
    assert_eq!(pool.counters().places, 3);
    assert!(pool.step(2) && pool.step(0));
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"a");
    assert!(pool.step(0) && !pool.step(0));
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"abc");
    assert_eq!((pool.counters().places, pool.counters().done), (0, 3));
}

#[test]
fn without_a_lane_results_come_as_they_are_done() {
    let pool = Pool::by_hand(100);
    let (mut sim, peer) = served(&Worker {
        in_order: false,
        ..Worker::new(&pool)
    });
    sim.send(peer, b"abc");
    sim.run_for(MOMENT);
    for nth in [2, 0, 0] {
        assert!(pool.step(nth));
        sim.run_for(MOMENT);
    }
    assert_eq!(sim.received(peer), b"cab");
}

#[test]
fn a_full_pool_and_a_full_lane_refuse_and_take_more_later() {
    let pool = Pool::by_hand(3);
    let (mut sim, peer) = served(&Worker {
        lane: 2,
        ..Worker::new(&pool)
    });
    sim.send(peer, b"abc");
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"R", "of the lane");
    assert_eq!(pool.counters().refused_lane, 1);
    while pool.step(0) {}
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"Rab");

    let pool = Pool::by_hand(1);
    let (mut sim, peer) = served(&Worker::new(&pool));
    sim.send(peer, b"abc");
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"RR");
    assert_eq!(pool.counters().refused_pool, 2);
    assert!(pool.step(0));
    sim.send(peer, b"d");
    sim.run_for(MOMENT);
    assert!(pool.step(0));
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"RRad");
}

#[test]
fn a_panic_is_an_answer_and_what_cannot_be_answered_ends_the_connection() {
    let pool = Pool::inline();
    let (mut sim, peer) = served(&Worker::new(&pool));
    sim.send(peer, &[b'a', PANIC, b'b']);
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"aPb");
    assert_eq!((pool.counters().done, pool.counters().panicked), (3, 1));
    sim.send(peer, &[MUTE]);
    sim.run_for(MOMENT);
    assert!(matches!(sim.state(peer), PlainState::Failed(_)));
    assert_eq!(pool.counters().places, 0);
}

#[test]
fn nothing_is_done_for_a_closed_connection() {
    let done = Arc::new(AtomicUsize::new(0));
    let pool = Pool::by_hand(100);
    let mut worker = Worker::new(&pool);
    let count = done.clone();
    worker.work = Arc::new(move |byte| {
        count.fetch_add(1, SeqCst);
        byte
    });
    let (mut sim, peer) = served(&worker);
    sim.send(peer, b"abc");
    sim.run_for(MOMENT);
    assert!(pool.step(0));
    sim.close(peer, true);
    sim.run_for(MOMENT);
    while pool.step(0) {}
    assert_eq!(done.load(SeqCst), 1);
    let counters = pool.counters();
    assert_eq!((counters.dropped, counters.places), (2, 0));
}

#[test]
fn what_waits_when_the_pool_goes_is_answered() {
    let pool = Pool::by_hand(100);
    let mut sim = Sim::under(7, Conditions::calm());
    let worker = Worker::new(&pool);
    let addr = sim.serve(worker, Limits::default());
    let peer = sim.plain(addr);
    sim.send(peer, b"abc");
    sim.run_for(MOMENT);
    assert_eq!(pool.counters().places, 3);
    // The service keeps a pool for as long as it lives: what a stopping owner does is asked for here.
    pool.stop();
    sim.run_for(MOMENT);
    assert_eq!(sim.received(peer), b"SSS");
    assert_eq!((pool.counters().places, pool.counters().dropped), (0, 3));
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "inline_work_is_answered_whatever_the_network_does",
        "without_a_lane_results_come_as_they_are_done",
    ];
    for test in tests {
        (0..4).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}
