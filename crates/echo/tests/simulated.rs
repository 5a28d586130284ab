//! Echo and discard on simulated networks of every shape, with accidents.

#[path = "../../tidewire/tests/shared/converse.rs"]
mod converse;
#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use converse::{converse, exactly};
use tidewire::Limits;
use tidewire::sim::for_each_seed;
use tidewire_echo::{Discard, Echo};

/// What each of a few says.
fn talks(seed: u64) -> Vec<Vec<u8>> {
    let len = |n: u64| ((seed * 7919 + n * 104_729) % 3000) as u32;
    let talk = |n| (0..1 + len(n)).map(|i| (i * 31 + n as u32) as u8).collect();
    (0..3).map(talk).collect()
}

#[test]
fn what_comes_back_is_what_was_sent() {
    for_each_seed(1500, |seed| {
        let talks = talks(seed);
        converse(
            seed,
            |_| (Echo, Limits::default()),
            &talks,
            &|n, got, whole| exactly(got, &talks[n], whole),
        )
    });
}

#[test]
fn discard_takes_it_all_and_says_nothing() {
    for_each_seed(500, |seed| {
        converse(
            seed,
            |_| (Discard, Limits::default()),
            &talks(seed),
            &|_, got, whole| exactly(got, b"", whole),
        )
    });
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "what_comes_back_is_what_was_sent",
        "discard_takes_it_all_and_says_nothing",
    ];
    for test in tests {
        (0..6).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}
