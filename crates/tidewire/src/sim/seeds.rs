//! Which seeds a test tries, and its report of a seed that fails.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::sim::trace::files;

/// The seeds that a test tries: `usual` of them, or as many as `TIDEWIRE_SEEDS` says in the environment (or from
/// where to where: `5000..7000`), or the one that `TIDEWIRE_SEED` names alone.
///
/// # Panics
/// If one of the variables says nothing of the kind.
///
/// ```
/// for seed in tidewire::sim::seeds(20) {
///     let sim = tidewire::sim::Sim::new(seed);
///     // ... and in messages of assertions: "seed {seed}"
/// }
/// ```
#[must_use]
pub fn seeds(usual: u64) -> Range<u64> {
    if let Some(seed) = said("TIDEWIRE_SEED", |text| text.parse::<u64>().ok()) {
        return seed..seed.saturating_add(1);
    }
    said("TIDEWIRE_SEEDS", range).unwrap_or(0..usual)
}

/// The seeds that `5000..7000` means, or `2000`.
fn range(text: &str) -> Option<Range<u64>> {
    match text.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => Some(0..text.parse().ok()?),
    }
}

fn said<T>(name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(parse(&text).unwrap_or_else(|| panic!("{name} says no seeds: {text:?}")))
}

/// Runs the [`seeds`] one after the other, on all processors.
///
/// # Panics
/// At the lowest seed that panics or is an error, after it has been run once more: the message names it, and the
/// [trace](super) of what happened.
///
/// ```
/// use tidewire::sim::{Sim, for_each_seed};
///
/// for_each_seed(20, |seed| {
///     let sim = Sim::new(seed);
///     // ...
///     if sim.streams() > 0 { Err("no client was to connect") } else { Ok(()) }
/// });
/// ```
pub fn for_each_seed<E: fmt::Display>(usual: u64, run: impl Fn(u64) -> Result<(), E> + Sync) {
    let Some((seed, what)) = lowest_failing(seeds(usual), &run) else {
        return;
    };
    let (again, traces) = files::recorded(seed, || try_seed(seed, &run));
    let again = match again {
        Err(_) => "",
        Ok(()) => "\nonce more, it did not fail: something counts besides the seed",
    };
    let traces: Vec<String> = traces.iter().map(|t| t.display().to_string()).collect();
    panic!(
        "seed {seed}: {what}{again}\nthis one alone: TIDEWIRE_SEED={seed}; what happened on its network, in \
         words, and beside it as pcap: {}",
        traces.join(", ")
    );
}

/// The lowest failing seed, and its fault. Seeds above one that has failed are not begun.
fn lowest_failing<E: fmt::Display>(
    seeds: Range<u64>,
    run: &(impl Fn(u64) -> Result<(), E> + Sync),
) -> Option<(u64, String)> {
    let count = usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(usize::MAX);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (rest, failing) = (Mutex::new(seeds), Mutex::new(None::<(u64, String)>));
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let search = || {
        while let Some(seed) = next() {
            let Err(what) = try_seed(seed, run) else {
                continue;
            };
            // Lower seeds are with other threads, or done.
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.end = rest.end.min(seed);
            drop(rest);
            let mut failing = failing.lock().unwrap_or_else(PoisonError::into_inner);
            if failing.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                *failing = Some((seed, what));
            }
        }
    };
    thread::scope(|scope| {
        // One alone stays on the thread that asks.
        for _ in 1..threads.min(count) {
            scope.spawn(search);
        }
        search();
    });
    failing.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one seed.
///
/// # Errors
/// The result of the run, or the message of its panic.
///
/// ```
/// use tidewire::sim::try_seed;
///
/// // A test that cannot fail proves nothing: with this mistake, some seed must.
/// let mistaken = |seed| if seed % 7 == 3 { Err(format!("{seed} is lost")) } else { Ok(()) };
/// let found = (0..100).find_map(|seed| try_seed(seed, mistaken).err());
/// assert_eq!(found.unwrap(), "3 is lost");
/// ```
pub fn try_seed<E: fmt::Display>(
    seed: u64,
    run: impl Fn(u64) -> Result<(), E>,
) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(what)) => Err(what.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or("without a word")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn seeds_are_said_in_two_ways() {
        assert_eq!(range("20"), Some(0..20));
        assert_eq!(range("5..20"), Some(5..20));
        assert_eq!(range("many"), None);
        assert_eq!(range("5..many"), None);
    }

    #[test]
    fn every_seed_is_run_once_and_the_lowest_that_fails_is_told() {
        for fails in [None, Some(0), Some(17), Some(299)] {
            let runs: Vec<AtomicUsize> = (0..300).map(|_| AtomicUsize::new(0)).collect();
            let found = lowest_failing(0..300, &|seed| {
                runs[seed as usize].fetch_add(1, Relaxed);
                match fails {
                    Some(lowest) if seed >= lowest && seed % 2 == lowest % 2 => Err(seed),
                    _ => Ok(()),
                }
            });
            assert_eq!(found, fails.map(|seed| (seed, seed.to_string())));
            let below = fails.map_or(300, |seed| seed as usize + 1);
            assert!(runs[..below].iter().all(|n| n.load(Relaxed) == 1));
            assert!(runs[below..].iter().all(|n| n.load(Relaxed) <= 1));
        }
        assert_eq!(lowest_failing(5..5, &|_| Err("is run")), None);
    }
}
