//! Cases, and the trials made of them.

use std::sync::{PoisonError, RwLock};

use libtest_mimic::Trial;

use crate::child;
use crate::variant::Variant;

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
    // Those that run alone last, so that nobody waits for them.
    let (mut trials, mut alone) = (Vec::new(), Vec::new());
    for &(variant, works) in variants {
        for case in cases.iter().filter(|c| (c.on)(variant)) {
            let (run, weight) = (case.run, case.weight);
            let name = format!("{variant}/{}", case.name);
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
                Weight::Light => &mut trials,
                Weight::Alone => &mut alone,
            };
            list.push(trial.with_ignored_flag(!works));
        }
    }
    trials.append(&mut alone);
    trials
}
