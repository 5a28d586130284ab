//! Cases, and the trials made of them.

use std::sync::{PoisonError, RwLock};

use libtest_mimic::Trial;

use crate::child;
use crate::real;
use crate::twice;
use crate::variant::Variant;
use crate::world;

/// How much of the machine a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Runs beside others.
    Light,
    /// Changes or measures its process, or fills the machine: in a process of its own, with no
    /// other case beside it.
    Alone,
}

/// One thing to hold on every variant.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Variant),
    pub(crate) weight: Weight,
    /// On which variants it makes sense.
    pub(crate) on: fn(Variant) -> bool,
}

/// A light case on every variant, named like its function.
macro_rules! case {
    ($run:ident) => {
        $crate::case::Case {
            name: stringify!($run),
            run: $run,
            weight: $crate::case::Weight::Light,
            on: |_| true,
        }
    };
    ($run:ident, on = $on:expr) => {
        $crate::case::Case {
            on: $on,
            ..$crate::case::case!($run)
        }
    };
    ($run:ident, alone) => {
        $crate::case::Case {
            weight: $crate::case::Weight::Alone,
            ..$crate::case::case!($run)
        }
    };
    ($run:ident, alone, on = $on:expr) => {
        $crate::case::Case {
            on: $on,
            ..$crate::case::case!($run, alone)
        }
    };
}
pub(crate) use case;

static MACHINE: RwLock<()> = RwLock::new(());

pub(crate) fn trials(cases: &[Case], variants: &[(Variant, bool)]) -> Vec<Trial> {
    // Cases that run alone come last, so that no other waits for them.
    let (mut waiting, mut computing, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for &(variant, works) in variants {
        for case in cases.iter().filter(|c| (c.on)(variant)) {
            let (run, weight) = (case.run, case.weight);
            let name = format!("{variant}/{}", case.name);
            if variant.is_simulated() {
                computing.push(on_simulated_kernel(name, case, variant));
                continue;
            }
            let trial = Trial::test(name.clone(), move || match weight {
                Weight::Light => {
                    let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
                    run(variant);
                    Ok(())
                }
                Weight::Alone => {
                    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
                    child::run(&name).map_err(Into::into)
                }
            });
            let list = match weight {
                Weight::Light => &mut waiting,
                Weight::Alone => &mut alone,
            };
            list.push(trial.with_ignored_flag(!works));
        }
    }
    for &(variant, _) in variants.iter().filter(|(v, _)| v.is_simulated()) {
        computing.push(sameness(cases, variant));
        computing.push(sameness_elsewhere(variant));
    }
    let mut trials = among(waiting, computing);
    trials.push(real::no_case_is_left_out(cases));
    trials.append(&mut alone);
    trials
}

/// Spreads cases on simulated kernels, which only compute, evenly among the others, which mostly
/// wait.
fn among(waiting: Vec<Trial>, computing: Vec<Trial>) -> Vec<Trial> {
    let (waits, computes) = (waiting.len().max(1), computing.len());
    let mut all = Vec::with_capacity(waiting.len() + computes);
    let mut computing = computing.into_iter();
    for (at, trial) in waiting.into_iter().enumerate() {
        all.push(trial);
        let due = (at + 1) * computes / waits - at * computes / waits;
        all.extend(computing.by_ref().take(due));
    }
    all.extend(computing);
    all
}

/// Seeds that each case is tried with on a simulated kernel.
const SEEDS: u64 = 2;

/// Cases of several threads that are run twice.
const TWICE: [&str; 3] = [
    "stop_finishes_idle_connections",
    "replies_in_order_under_random_fragmentation",
    "stop_of_half_closed_connections",
];

/// Whatever the threads of a case do, the same seed is the same run.
fn sameness(cases: &[Case], variant: Variant) -> Trial {
    let twice = cases.iter().filter(|case| TWICE.contains(&case.name));
    let twice: Vec<fn(Variant)> = twice.map(|case| case.run).collect();
    Trial::test(
        format!("{variant}/the_same_seed_is_the_same_run"),
        move || {
            assert_eq!(twice.len(), TWICE.len());
            for run in &twice {
                let hash = |seed| {
                    let sim = variant.sim(seed).expect("a simulated variant");
                    world::simulated(sim, || run(variant))
                };
                assert_eq!(hash(7), hash(7));
                assert_ne!(hash(7), hash(8));
            }
            Ok(())
        },
    )
}

/// Compares the traces of a seed in other processes.
fn sameness_elsewhere(variant: Variant) -> Trial {
    Trial::test(
        format!("{variant}/a_seed_is_the_same_run_in_another_process"),
        move || {
            let test = format!("{variant}/the_same_seed_is_the_same_run");
            twice::says_the_same(&test, 7, "network: ");
            Ok(())
        },
    )
}

/// Listed as ignored, with the reason, if it needs a real one.
fn on_simulated_kernel(name: String, case: &Case, variant: Variant) -> Trial {
    let run = case.run;
    let trial = Trial::test(name, move || {
        for seed in 0..SEEDS {
            let sim = variant.sim(seed).expect("a simulated variant");
            world::simulated(sim, || run(variant));
        }
        Ok(())
    });
    match real::why(case.name) {
        Some(why) => trial
            .with_kind(format!("real kernels only: {why}"))
            .with_ignored_flag(true),
        None => trial,
    }
}
