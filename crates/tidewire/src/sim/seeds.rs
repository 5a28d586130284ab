//! Which seeds a test tries, and what it says of one that fails.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The seeds that a test tries: `usual` of them, or as many as `TIDEWIRE_SEEDS` says in the environment, or
/// the one that `TIDEWIRE_SEED` names alone.
///
/// # Panics
/// If one of the variables is no number.
///
/// ```
/// for seed in tidewire::sim::seeds(20) {
///     let sim = tidewire::sim::Sim::new(seed);
///     // ... and in messages of assertions: "seed {seed}"
/// }
/// ```
#[must_use]
pub fn seeds(usual: u64) -> Range<u64> {
    match number("TIDEWIRE_SEED") {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..number("TIDEWIRE_SEEDS").unwrap_or(usual),
    }
}

fn number(name: &str) -> Option<u64> {
    let set = std::env::var(name).ok()?;
    let number = set.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is no number: {set:?}")))
}

/// Runs one seed after the other: those of [`seeds`].
///
/// # Panics
/// At the first seed that panics or is an error; the message names it, and how to see it again.
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
            panic!(
                "seed {seed}: {what}\n(this one alone: TIDEWIRE_SEED={seed}; with a trace of what happened on \
                 its network, in words and as pcap: TIDEWIRE_TRACE=directory)"
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
