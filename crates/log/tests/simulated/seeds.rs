//! Running many seeds, and saying how to run the one that failed again.
//!
//! `TIDEWIRE_SEEDS=n` runs n seeds instead of the test's own number, `TIDEWIRE_SEED=s` only s
//! and tells what happens in it; both run n from s on, quietly.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the log did that it must not do.
#[derive(Debug)]
pub(crate) struct Violation(pub(crate) String);

/// A run's verdict.
pub(crate) type Verdict<T = ()> = Result<T, Violation>;

/// `Err` with this text unless `holds`.
pub(crate) fn ensure(holds: bool, text: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Violation(text()))
    }
}

/// Runs every seed; the first violation or panic fails the test and names the seed.
pub(crate) fn all(test: &str, count: u64, run: impl Fn(u64) -> Verdict) {
    for seed in chosen(count) {
        if let Some(violation) = violation(&run, seed) {
            panic!(
                "seed {seed}: {violation}\n\
                 again: TIDEWIRE_SEED={seed} cargo test -p tidewire-log --test simulated -- \
                 --exact {test}"
            );
        }
    }
}

/// Runs seeds until one shows a violation, which must happen within `count` of them: the log runs
/// with a planted mistake, and a checker that cannot see it proves nothing.
pub(crate) fn some(count: u64, run: impl Fn(u64) -> Verdict) {
    let found = chosen(count).find_map(|seed| Some((seed, violation(&run, seed)?)));
    let (seed, violation) = found.unwrap_or_else(|| panic!("none of {count} seeds found it"));
    println!("seed {seed}: {violation}");
}

/// Says what happens, when only one seed runs.
pub(crate) fn trace(text: impl FnOnce() -> String) {
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("TIDEWIRE_SEED") && !is_set("TIDEWIRE_SEEDS") {
        println!("{}", text());
    }
}

fn chosen(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| {
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
        })
    };
    let count_or = |count| number("TIDEWIRE_SEEDS").unwrap_or(count);
    match number("TIDEWIRE_SEED") {
        Some(seed) => seed..seed + count_or(1),
        None => 0..count_or(count),
    }
}

fn violation(run: &impl Fn(u64) -> Verdict, seed: u64) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(Ok(())) => None,
        Ok(Err(Violation(text))) => Some(text),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("panicked: {}", text.unwrap_or("no text")))
        }
    }
}
