//! The reasons why scripts stop, and the limits until then.

use std::time::Duration;

/// Stops a script that has done nothing, for it to be run again a little later.
pub(super) const LATER: &str = "later";
/// The error by which a script is run again on the thread for scripts.
pub(super) const ELSEWHERE: &str = "elsewhere";
/// The error of a script that could only go on elsewhere, where its transaction cannot go.
pub(super) const BOUND: &str = "ERR Error running script: one that may take long cannot be in a transaction with commands \
    that only its connection can run";
/// Ends a script whose thread was given up; no client hears it.
pub(super) const CUT: &str = "ended";

/// A library may take so long to load.
pub(super) const LOAD_MAX: Duration = Duration::from_millis(500);
/// A script may have run for so long when the server ends.
pub(super) const ENDING: Duration = Duration::from_secs(1);
