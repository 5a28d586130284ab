//! Equal seeds give equal runs.

#[path = "../../../../log/tests/simulated/twice.rs"]
mod twice;

use std::collections::BTreeSet;
use std::time::Duration;

use super::services::{Echo, Sender};
use crate::sim::{Conditions, Pair, What};
use crate::{Limits, sim::Outcome};

fn hash_of(seed: u64, conditions: Conditions) -> u64 {
    let limits = Limits::default();
    let mut pair = Pair::under(
        seed,
        conditions,
        (Echo, limits.clone()),
        (Sender { bytes: 5000 }, limits),
    );
    pair.dial(3);
    assert_ne!(pair.run(Duration::from_secs(600)), Outcome::StepLimit);
    pair.sim.trace_hash()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let runs: Vec<u64> = (0..20)
        .map(|seed| {
            let conditions = Conditions {
                reset_one_in: 200,
                ..Conditions::from_seed(seed)
            };
            let hash = hash_of(seed, conditions.clone());
            assert_eq!(hash, hash_of(seed, conditions), "seed {seed}");
            hash
        })
        .collect();
    assert_eq!(runs.iter().collect::<BTreeSet<_>>().len(), runs.len());
    // Not only the conditions differ: so does what is drawn under the same ones.
    let mild = Conditions::from_seed(1);
    assert_ne!(hash_of(1, mild.clone()), hash_of(2, mild));
}

#[test]
fn a_recorded_run_tells_its_story_in_order() {
    let mut pair = Pair::under(
        5,
        Conditions::calm(),
        (Echo, Limits::default()),
        (Sender { bytes: 100 }, Limits::default()),
    );
    pair.sim.record();
    assert_eq!(pair.run(Duration::from_secs(10)), Outcome::Idle);
    let story: Vec<(What, u8)> = pair.sim.trace().map(|e| (e.what, e.side)).collect();
    let place = |what, side| {
        let found = story.iter().position(|&e| e == (what, side));
        found.unwrap_or_else(|| panic!("no {what:?} at {side} in {story:?}"))
    };
    let milestones = [
        place(What::Dialled, 0),
        place(What::Accepted, 1),
        place(What::Connected, 0),
        place(What::Sent, 0),
        place(What::Received, 1),
        place(What::Sent, 1),
        place(What::Received, 0),
        place(What::Finished, 0),
        place(What::EndArrived, 1),
        place(What::Finished, 1),
        place(What::Closed, 0),
    ];
    assert!(milestones.is_sorted(), "{story:?}");
    assert!(pair.sim.trace().map(|e| e.at).is_sorted());
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "sim::tests::process::loops_of_every_shape_serve_and_stop",
        "trace::tests::a_seed_that_fails_is_told",
    ];
    for test in tests {
        (0..3).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
    // Every call of the kernel is told.
    let kernel = "sim::explore::seeds::whatever_the_kernel_does";
    (0..12).for_each(|seed| twice::says_the_same(kernel, seed, "  loop "));
}
