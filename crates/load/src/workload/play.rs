//! Opens the rounds of a load, one after the other.

use std::time::{Duration, Instant};

use super::failure::Failure;
use super::stage::Stage;

/// Plays a load round by round.
pub struct Play<'a> {
    stage: &'a Stage,
    connections: usize,
    within: Duration,
}

/// Decides about rounds; the load ends with the script.
pub type Script<'a> = &'a mut dyn FnMut(&mut Play<'_>) -> Result<(), Failure>;

impl<'a> Play<'a> {
    pub(super) fn new(stage: &'a Stage, connections: usize, within: Duration) -> Play<'a> {
        Play {
            stage,
            connections,
            within,
        }
    }

    /// Plays one round: calls `sent`, if given, when the kernel has all messages, and returns when all are answered: the number
    /// of answered messages so far.
    ///
    /// # Errors
    /// [`Failure`]: a reply is wrong, or does not come; the load is over.
    pub fn round(&mut self, sent: Option<&mut dyn FnMut()>) -> Result<u64, Failure> {
        let stage = self.stage;
        let rounds = stage.rounds().expect("the stage was made for rounds");
        let connections = self.connections;
        rounds.open_next(sent.is_some());
        let loops = stage.signal();
        if let Some(sent) = sent {
            self.wait(|| rounds.have_sent(connections))?;
            // Bytes sent in a turn are in the kernel when the next turn has begun.
            rounds.ask();
            stage.signal();
            self.wait(|| rounds.have_flushed(loops))?;
            sent();
        }
        self.wait(|| rounds.are_answered(connections))?;
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
