//! Where the script that runs stands: it may be ended until it writes, and it writes only if it was not ended.
//!
//! Both are decided in one place, so a SCRIPT KILL that was answered with OK takes effect, whenever it comes.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const RUNS: u8 = 1;
const WROTE: u8 = 2;
const KILLED: u8 = 4;

/// The phase of the script that runs, and of the last one when none does.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU8);

/// The result of a request to end a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Killed {
    Yes,
    /// No script runs.
    NoneRuns,
    /// The script has written.
    Wrote,
}

impl Phase {
    pub(super) fn begin(&self) {
        self.0.store(RUNS, Relaxed);
    }

    /// Ends the script; returns whether it was killed.
    pub(super) fn end(&self) -> bool {
        self.0.fetch_and(!RUNS, Relaxed) & KILLED != 0
    }

    /// Before each change that a script makes; false if it was killed.
    pub(super) fn may_write(&self) -> bool {
        let now = self.0.load(Relaxed);
        if now & WROTE != 0 {
            return true;
        }
        let wrote = self
            .0
            .compare_exchange(RUNS, RUNS | WROTE, Relaxed, Relaxed);
        wrote.is_ok()
    }

    pub(super) fn kill(&self) -> Killed {
        let killed = self.0.fetch_update(Relaxed, Relaxed, |now| {
            (now & RUNS != 0 && now & WROTE == 0).then_some(now | KILLED)
        });
        match killed {
            Ok(_) => Killed::Yes,
            Err(now) if now & RUNS == 0 => Killed::NoneRuns,
            Err(_) => Killed::Wrote,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.0.load(Relaxed) & RUNS != 0
    }

    pub(super) fn wrote(&self) -> bool {
        self.0.load(Relaxed) & WROTE != 0
    }

    pub(super) fn is_killed(&self) -> bool {
        self.0.load(Relaxed) & KILLED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_writes_or_is_killed() {
        let phase = Phase::default();
        assert_eq!(phase.kill(), Killed::NoneRuns);
        phase.begin();
        assert!(!phase.end(), "nothing was asked for");
        phase.begin();
        assert_eq!(phase.kill(), Killed::Yes);
        assert_eq!(phase.kill(), Killed::Yes);
        assert!(!phase.may_write());
        assert!(!phase.wrote());
        assert!(phase.end());
        assert_eq!(phase.kill(), Killed::NoneRuns);
        phase.begin();
        assert!(phase.may_write() && phase.may_write());
        assert_eq!(phase.kill(), Killed::Wrote);
        assert!(phase.may_write(), "what has written goes on");
        assert!(!phase.end());
        assert!(phase.wrote(), "it is known of the last one");
        phase.begin();
        assert!(!phase.wrote());
    }
}
