//! Which seeds a test tries, and what it says of one that fails.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// What `5000..7000` says, or `2000`.
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

/// Runs one seed after the other: those of [`seeds`].
///
/// # Panics
/// At the first seed that panics or is an error, after it has been run once more: the message names it, and the
/// [trace](super) of what happened.
///
/// ```
/// use tidewire::sim::{Sim, for_each_seed};
///
/// for_each_seed(20, |seed| {
///     let sim = Sim::new(seed);
///     // ...
///     if sim.streams() > 0 { Err("nobody was to connect") } else { Ok(()) }
/// });
/// ```
pub fn for_each_seed<E: fmt::Display>(usual: u64, run: impl Fn(u64) -> Result<(), E>) {
    for seed in seeds(usual) {
        if let Err(what) = try_seed(seed, &run) {
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
    }
}

/// Runs one seed.
///
/// # Errors
/// What the run says, or what it panicked with.
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
    use super::*;

    #[test]
    fn seeds_are_said_in_two_ways() {
        assert_eq!(range("20"), Some(0..20));
        assert_eq!(range("5..20"), Some(5..20));
        assert_eq!(range("many"), None);
        assert_eq!(range("5..many"), None);
    }
}
