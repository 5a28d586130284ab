//! A load in rounds: every connection sends one batch, then all replies are awaited before the next round begins.
//!
//! The idea: what a turn of the server's loop finds depends on what has arrived by then, and so on the clock. In rounds it
//! depends on the script alone: a round begins when the caller says so, and the caller can hold the server still until all of
//! the round has been handed to the kernel. Counts of instructions then repeat.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::stage::Stage;

/// Which round is open, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The number of the round that is open, from 1; 0 before the first.
    open: AtomicU64,
    /// Connections that have sent in this round.
    sent: AtomicUsize,
    /// Connections of which everything sent in this round is answered.
    answered: AtomicUsize,
    /// How often loops were asked whether what they sent has reached the kernel.
    asked: AtomicU64,
    /// Loops that have answered since they were last asked.
    flushed: AtomicUsize,
}

impl Rounds {
    /// Whether a connection may send now; `last` is the round in which it sent last, and becomes this one.
    pub(super) fn begin(&self, last: &mut u64) -> bool {
        let open = self.open.load(SeqCst);
        if *last == open {
            return false;
        }
        *last = open;
        self.sent.fetch_add(1, SeqCst);
        true
    }

    /// Everything that a connection sent is answered.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, SeqCst);
    }

    /// The round that is open.
    pub(super) fn number(&self) -> u64 {
        self.open.load(SeqCst)
    }

    /// How often loops were asked about their output.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(SeqCst)
    }

    /// A loop has gone around once since it was asked.
    pub(super) fn flushed(&self) {
        self.flushed.fetch_add(1, SeqCst);
    }
}

/// What plays a load round by round.
pub struct Play<'a> {
    stage: &'a Stage,
    connections: usize,
    within: Duration,
}

/// Decides about rounds; its end is that of the load.
pub type Script<'a> = &'a mut dyn FnMut(&mut Play<'_>) -> Result<(), Failure>;

impl<'a> Play<'a> {
    pub(super) fn new(stage: &'a Stage, connections: usize, within: Duration) -> Play<'a> {
        Play {
            stage,
            connections,
            within,
        }
    }

    /// Plays one round: calls `sent` when the kernel has all of it, and returns when all of it is answered: how many
    /// messages were so far.
    ///
    /// # Errors
    /// [`Failure`]: a reply is wrong, or does not come; the load is over.
    pub fn round(&mut self, sent: &mut dyn FnMut() -> Result<(), Failure>) -> Result<u64, Failure> {
        let stage = self.stage;
        let rounds = stage.rounds().expect("the stage was made for rounds");
        rounds.sent.store(0, SeqCst);
        rounds.answered.store(0, SeqCst);
        rounds.open.fetch_add(1, SeqCst);
        let loops = stage.signal();
        let connections = self.connections;
        self.wait(|| rounds.sent.load(SeqCst) >= connections)?;
        // What was sent in a turn is in the kernel when the next turn has begun.
        rounds.flushed.store(0, SeqCst);
        rounds.asked.fetch_add(1, SeqCst);
        stage.signal();
        self.wait(|| rounds.flushed.load(SeqCst) >= loops)?;
        sent()?;
        self.wait(|| rounds.answered.load(SeqCst) >= connections)?;
        Ok(stage.counts().requests)
    }

    fn wait(&self, over: impl Fn() -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + self.within;
        match self.stage.wait_until(deadline, |_| over()) {
            true => Ok(()),
            // If something failed, that is what the run reports.
            false => Err(Failure::Unfinished {
                after: self.within,
                done: 0,
                wanted: self.connections,
            }),
        }
    }
}
