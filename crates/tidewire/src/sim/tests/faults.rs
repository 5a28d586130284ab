//! Half-closes, resets and refusals, at random and on demand.

use std::io::{self, ErrorKind};
use std::time::Duration;

use proptest::prelude::*;

use super::services::{Echo, Sender, Sums};
use crate::reactor::lines_of_tests::logged;
use crate::sim::{Conditions, KernelFaults, Outcome, Pair, PlainState, Shape, Sim};
use crate::{Closed, Dial, Limits, Next, Placement, on_input};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_half_closed_peer_gets_its_outstanding_replies() {
    for seed in 0..50 {
        let mut sim = Sim::new(seed);
        let addr = sim.serve(Sums, Limits::default());
        let peer = sim.plain(addr);
        sim.send(peer, &[1, 0, 0, 0, 9, 2, 0, 0, 0, 1, 1, 7]);
        sim.finish(peer);
        assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
        let want = [9u64.to_le_bytes(), 2u64.to_le_bytes()].concat();
        assert_eq!(sim.received(peer), want, "seed {seed}");
        assert_eq!(sim.state(peer), PlainState::Ended);
    }
}

#[test]
fn a_stream_that_is_lost_ends_both_connections() {
    let mut losses = 0;
    for seed in 0..50 {
        let mut pair = Pair::new(seed, Echo, Sender { bytes: 100_000 });
        let begun = |sim: &mut Sim| sim.streams() == 1;
        assert!(pair.sim.run_until(LONG, begun));
        pair.sim.run_for(Duration::from_micros(seed * 997));
        pair.sim.lose(0);
        assert_eq!(pair.run(LONG), Outcome::Idle);
        let (server, client) = (pair.server_counters(), pair.client_counters());
        assert_eq!((server.open, client.open), (0, 0), "seed {seed}");
        // Before it was established, or after; or all was done when the reset came.
        let reset = client.dial_failures + client.closed_for(Closed::Reset);
        let finished = client.closed_for(Closed::Finished);
        assert_eq!(reset + finished, 1, "seed {seed}: {client}");
        losses += reset;
    }
    assert!(losses > 25, "only {losses} runs were cut short");
}

#[test]
fn a_peer_that_resets_is_noticed() {
    let mut sim = Sim::under(1, Conditions::calm());
    let at = sim.add_loop();
    let echo = sim.service(at, Echo, Limits::default());
    let addr = sim.listen(echo);
    let peer = sim.plain(addr);
    sim.send(peer, b"x");
    sim.run_for(Duration::from_millis(1));
    assert_eq!((sim.received(peer), sim.counters(at).open), (&b"x"[..], 1));
    sim.close(peer, true);
    sim.run_for(Duration::from_millis(1));
    assert_eq!(sim.counters(at).closed_for(Closed::Reset), 1);
}

#[test]
fn an_abort_reaches_the_peer_as_a_reset() {
    let mut sim = Sim::under(1, Conditions::calm());
    let addr = sim.serve(Sums, Limits::default());
    let peer = sim.plain(addr);
    sim.send(peer, &[0xff; 4]);
    assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    let reset = PlainState::Failed(io::ErrorKind::ConnectionReset);
    assert_eq!(sim.state(peer), reset);
}

#[test]
fn closing_with_unread_input_resets_but_a_lingering_finish_does_not() {
    // The service finishes in the middle of what its peer sends.
    for seed in 0..50 {
        let mut sim = Sim::new(seed);
        let limits = Limits {
            linger: LONG,
            ..Limits::default()
        };
        let addr = sim.serve(Sums, limits);
        let peer = sim.plain(addr);
        sim.send(peer, &[1, 0, 0, 0, 9, 0, 0, 0, 0]);
        sim.send(peer, &[7; 10_000]);
        sim.finish(peer);
        assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
        assert_eq!(sim.received(peer), 9u64.to_le_bytes(), "seed {seed}");
        assert_eq!(sim.state(peer), PlainState::Ended, "seed {seed}");
    }
}

/// A dial beyond the limit fails, is counted, and has a line.
#[test]
fn dials_beyond_the_limit_are_logged() {
    let mut sim = Sim::under(9, Conditions::calm());
    let at = sim.add_loop();
    let limits = Limits {
        dials: 1,
        ..Limits::default()
    };
    let client = sim.service(at, Sender { bytes: 10 }, limits);
    let later = Dial::to("10.9.9.9:1").after(Duration::from_secs(1));
    let lines = logged(|| {
        for token in 0..3 {
            sim.dial(client, later.clone().token(token));
        }
        assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    });
    assert_eq!(sim.counters(at).dials_refused, 2);
    let refused = lines.iter().filter(|line| line.contains("dial refused"));
    let refused: Vec<_> = refused.collect();
    assert!(
        refused[0].contains("on their way") && refused.len() == 1,
        "{lines:?}"
    );
}

#[test]
fn a_missing_listener_refuses_and_dials_are_tried_again() {
    let mut sim = Sim::under(9, Conditions::calm());
    let at = sim.add_loop();
    let client = sim.service(at, Sender { bytes: 10 }, Limits::default());
    let nobody = "10.9.9.9:1";
    let second = Duration::from_secs(1);
    let dial = Dial::to(nobody)
        .attempts(4)
        .backoff(second, second)
        .token(77);
    sim.dial(client, dial);
    assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    assert_eq!(sim.streams(), 4);
    assert_eq!(sim.counters(at).dial_failures, 4);
    assert_eq!(sim.local(client).dial_failures, [77]);
    // Three pauses of half a second to a second each.
    assert!(sim.now().as_nanos() >= 1_500_000_000, "{:?}", sim.now());
    let peer = sim.plain(nobody);
    assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    let refused = PlainState::Failed(io::ErrorKind::ConnectionRefused);
    assert_eq!(sim.state(peer), refused);
}

#[test]
fn an_answer_that_comes_too_late_is_given_up() {
    let slow = Duration::from_secs(3);
    let conditions = Conditions {
        latency: slow..=slow,
        ..Conditions::calm()
    };
    let mut pair = Pair::on(
        Sim::under(9, conditions),
        (Echo, Limits::default()),
        (Sender { bytes: 10 }, Limits::default()),
    );
    let dial = Dial::to(pair.addr()).timeout(Duration::from_secs(1));
    let client = pair.client();
    pair.sim.dial(client, dial);
    assert_eq!(pair.run(LONG), Outcome::Idle);
    assert_eq!(pair.client_counters().dial_failures, 1);
    assert_eq!(pair.client_counters().dialled, 0);
    // The request had not arrived when it was given up.
    assert_eq!(pair.server_counters().accepted, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is lost on the way: each connection that opened closes, once, and every byte that
    /// got through is the right one.
    #[test]
    fn faults_are_survived(seed: u64, one_in in 1u64..300, bytes in 1usize..20_000) {
        let conditions = Conditions {
            reset_one_in: one_in,
            refuse_one_in: 5,
            ..Conditions::from_seed(seed)
        };
        let sim = Sim::under(seed, conditions);
        let limits = Limits { idle: None, ..Limits::default() };
        let mut pair = Pair::on(sim, (Echo, limits.clone()), (Sender { bytes }, limits));
        pair.dial(6);
        prop_assert_eq!(pair.run(LONG), Outcome::Idle);
        let (server, client) = (pair.server_counters(), pair.client_counters());
        prop_assert_eq!(server.accepted, server.closed_total());
        prop_assert_eq!(client.dialled, client.closed_total());
        prop_assert_eq!(client.dialled + client.dial_failures, 6);
        prop_assert_eq!((server.open, client.open), (0, 0));
        prop_assert!(client.bytes_in <= server.bytes_out);
        prop_assert!(server.bytes_in <= client.bytes_out);
        let report = pair.client_local();
        prop_assert_eq!(report.closed.len() as u64, client.dialled);
    }
}

/// Seed 23,833 of the exploration: the first time that the kernel ended the watch over a connection
/// that is not read, it brought the end of what the peer sends; the second time it brought nothing
/// new, and there was no third, so what came after that was never noticed.
#[test]
fn a_reset_is_noticed_however_often_the_kernel_ends_the_watch() {
    for seed in 0..50 {
        let mut sim = Sim::under(seed, Conditions::calm());
        sim.shape(Shape::Completion).kernel_faults(KernelFaults {
            ends_one_in: 2,
            ..KernelFaults::none()
        });
        let at = sim.add_loop();
        let limits = Limits {
            idle: None,
            ..Limits::default()
        };
        let paused = sim.service(at, on_input(|_, _| Next::Paused), limits);
        let addr = sim.listen(paused);
        let peer = sim.plain(addr);
        sim.send(peer, b"x");
        sim.run_for(Duration::from_secs(1));
        sim.finish(peer);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(sim.counters(at).open, 1, "seed {seed}");
        sim.close(peer, true);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(sim.counters(at).open, 0, "seed {seed}");
    }
}

/// What the kernel may do to loops loses nothing, whatever they are made of; or only what the
/// kernel says, where it cuts a connection.
#[test]
fn an_unkind_kernel_loses_nothing() {
    for seed in 0..300 {
        let aborts = seed % 4 == 0;
        let one_in = if aborts { 4 } else { 0 };
        let faults = KernelFaults {
            accept_fails_one_in: [0, 2, 3, 8][(seed / 3 % 4) as usize],
            accept_aborts_one_in: one_in,
            watch_fails_one_in: one_in,
            odd_errors: true,
            ..KernelFaults::from_seed(seed)
        };
        let mut sim = Sim::new(seed);
        let shapes = [Shape::Readiness, Shape::Completion, Shape::Threads];
        sim.shape(shapes[seed as usize % 3]).kernel_faults(faults);
        let addr = sim.serve(Echo, Limits::default());
        let peers = [(); 4].map(|()| sim.plain(&addr));
        for peer in peers {
            sim.send(peer, b"all of this comes back");
            sim.finish(peer);
        }
        assert_eq!(sim.run_until_idle(LONG), Outcome::Idle, "seed {seed}");
        for peer in peers {
            let reset = matches!(sim.state(peer), PlainState::Failed(_));
            assert!(aborts || !reset, "seed {seed}");
            let got = sim.received(peer);
            // A connection that could not be watched is cut before it is heard.
            let cut = reset || aborts && got.is_empty();
            assert!(cut || got == b"all of this comes back", "seed {seed}");
        }
    }
}

/// A pause of accepting ends when the kernel lets it, however often that fails.
#[test]
fn a_listener_that_cannot_be_watched_is_tried_again() {
    let mut sim = Sim::under(1, Conditions::calm());
    sim.shape(Shape::Readiness);
    let at = sim.add_loop();
    let echo = sim.service(at, Echo, Limits::default());
    let addr = sim.listen(echo);
    sim.kernel_faults(KernelFaults {
        accept_fails_one_in: 1,
        watch_fails_one_in: 1,
        ..KernelFaults::none()
    });
    let peer = sim.plain(&addr);
    sim.send(peer, b"x");
    sim.run_for(Duration::from_secs(60));
    assert!(sim.counters(at).accept_pauses > 0);
    let turns = sim.counters(at).turns;
    assert!(turns < 200, "{turns} turns in a minute");
    sim.kernel_faults(KernelFaults::none());
    sim.run_for(Duration::from_secs(2));
    assert_eq!(sim.received(peer), b"x");
}

/// One comes in and cannot be watched; the others wait for the kernel to have memory again.
#[test]
fn accepting_pauses_while_connections_cannot_be_watched() {
    for placement in [Placement::Acceptor, Placement::Shared] {
        for loops in [1, 3] {
            let mut sim = Sim::under(1, Conditions::calm());
            sim.shape(Shape::Readiness);
            let at = sim.add_loops(loops, placement);
            let echo = sim.service(at, Echo, Limits::default());
            let addr = sim.listen(echo);
            sim.kernel_faults(KernelFaults {
                watch_fails_one_in: 1,
                ..KernelFaults::none()
            });
            let peers: Vec<_> = (0..20).map(|_| sim.plain(&addr)).collect();
            for peer in &peers {
                sim.send(*peer, b"x");
            }
            sim.run_for(Duration::from_millis(250));
            sim.kernel_faults(KernelFaults::none());
            sim.run_for(Duration::from_secs(2));
            let failed =
                sim.counters(at)
                    .closed_for(Closed::Failed(ErrorKind::OutOfMemory)) as usize;
            let what = format!("{placement:?}, {loops} loops: {failed} have failed");
            // Each loop finds out by one at a time, ten times a second.
            assert!((1..=3 * loops).contains(&failed), "{what}");
            let served = peers.iter().filter(|p| sim.received(**p) == b"x").count();
            assert_eq!(served, peers.len() - failed, "{what}");
            // The peers do not take it for an end in order.
            let reset = PlainState::Failed(ErrorKind::ConnectionReset);
            let hit = peers.iter().filter(|p| sim.state(**p) == reset).count();
            assert_eq!(hit, failed, "{what}");
        }
    }
}

/// Nothing answers, and entering the ring fails: what is given up was not handed over, and its
/// number is another's by then.
#[test]
fn attempts_given_up_stay_open_until_the_kernel_has_heard_of_them() {
    for seed in 0..40 {
        let mut sim = Sim::under(seed, Conditions::calm());
        sim.shape(Shape::Completion);
        sim.kernel_faults(KernelFaults {
            enter_fails_one_in: 2,
            ..KernelFaults::none()
        });
        let _full = sim.plain_listener("192.0.2.1:7", 0);
        let at = sim.add_loop();
        let echo = crate::on_input(|input, link| link.forward_all(input));
        let echo = sim.service(at, echo, Limits::default());
        for _ in 0..8 {
            let pause = Duration::from_micros(10);
            let dial = Dial::to("192.0.2.1:7").attempts(5);
            sim.dial(echo, dial.timeout(pause).backoff(pause, pause));
        }
        sim.run_for(Duration::from_secs(1));
        assert_eq!(sim.counters(at).dial_failures, 40, "seed {seed}");
    }
}
