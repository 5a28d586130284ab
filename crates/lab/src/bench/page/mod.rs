//! Results as pages.

pub(super) mod ab;
pub(super) mod compare;
pub(super) mod duet;
pub(super) mod search;
pub(super) mod single;

use std::path::Path;

use tidewire_load::page::Page;
use tidewire_load::report::quoted;

use tidewire_command::exit::Failure;

/// The command that was given, as a shell would take it.
pub(crate) fn command() -> String {
    let words = std::env::args_os().map(|word| quoted(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

/// Writes a page where the user wants it.
pub(crate) fn write(path: &Path, page: &Page) -> Result<(), Failure> {
    std::fs::write(path, page.to_string())
        .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
}

/// CPU of a request in microseconds as user and system. The kernel counts all of it exactly, and shares it out by
/// sampling: so `all` is split as the means of the samples are.
pub(crate) fn stacked(all_ns: f64, user_ns: f64, system_ns: f64) -> Vec<f64> {
    let sampled = user_ns + system_ns;
    let share = if sampled > 0.0 {
        user_ns / sampled
    } else {
        0.0
    };
    let all = all_ns / 1e3;
    vec![all * share, all * (1.0 - share)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_shares_split_what_was_counted() {
        assert_eq!(stacked(8_000.0, 1.0, 3.0), [2.0, 6.0]);
        assert_eq!(stacked(8_000.0, 0.0, 0.0), [0.0, 8.0]);
    }
}
