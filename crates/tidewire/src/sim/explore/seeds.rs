//! Seeds: as many as a test can take, and more by command.

use crate::sim::explore::run::run;
use crate::sim::machine::Shape;

const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];

/// Seeds that `cargo test` runs; `TIDEWIRE_SEEDS` says another number, `TIDEWIRE_SEED` one alone.
const SEEDS: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let set = std::env::var(name).ok()?;
    Some(
        set.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {set:?}")),
    )
}

/// The shape that a seed is for, unless a test wants another.
fn shape(seed: u64) -> Shape {
    SHAPES[(seed % 3) as usize]
}

#[test]
fn whatever_the_kernel_does() {
    let one = number("TIDEWIRE_SEED");
    let first = one.unwrap_or(0);
    let count = if one.is_some() {
        1
    } else {
        number("TIDEWIRE_SEEDS").unwrap_or(SEEDS)
    };
    let began = std::time::Instant::now();
    let mut calls = 0;
    for seed in first..first + count {
        let outcome = run(seed, shape(seed), one.is_some());
        calls += outcome.calls;
        if !outcome.wrongs.is_empty() {
            let words = &outcome.words;
            panic!(
                "{words}TIDEWIRE_SEED={seed}, {:?}: {:#?}",
                shape(seed),
                outcome.wrongs
            );
        }
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("{count} seeds, {calls} calls of the kernel, {rate:.0} seeds a second");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..60 {
        let (one, other) = (run(seed, shape(seed), false), run(seed, shape(seed), false));
        assert_eq!(
            (one.hash, one.calls),
            (other.hash, other.calls),
            "seed {seed}"
        );
        assert_ne!(one.hash, run(seed + 3000, shape(seed), false).hash);
    }
}
