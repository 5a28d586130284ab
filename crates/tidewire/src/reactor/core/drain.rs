//! A stop, as connections see it.

use std::io;

use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::facts::{Owed, Phase};
use crate::vocabulary::closed::Closed;

/// Looks into the inbox of a loop that is stopping and has nothing else left.
const LAST_LOOKS: u32 = 64;

impl Core {
    /// Gives up dialling. The engine then reads from each connection what the kernel holds for it
    /// and calls `owe_drain`.
    pub(crate) fn begin_drain(&mut self, io: &mut impl Transport) {
        self.draining = true;
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            let state = &mut self.states[index as usize];
            if state.phase == Phase::Dialling {
                if state.attempts.as_ref().is_some_and(|a| a.connecting) {
                    io.cancel_connect(self, index);
                }
                self.connect_failed(index, &io::Error::other("the loops are stopping"));
            }
        }
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining
    }

    /// Whether a stop has come to its end: nothing is left, not even a command. A service that dials
    /// again whenever it is told that a dial has failed would go on for ever, so it is the end after
    /// some looks all the same.
    pub(crate) fn is_done(&mut self) -> bool {
        if !self.states.is_empty() {
            return false;
        }
        let errands = self.env.has_errands() || self.waker.is_pending();
        self.last_looks += u32::from(errands);
        !errands || self.last_looks > LAST_LOOKS
    }

    /// All that the kernel held for this connection has been received: `draining` is called once
    /// that has been offered.
    pub(crate) fn owe_drain(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        state.owed.add(Owed::Draining);
        self.env.touch(state);
    }

    /// Cuts what is left.
    pub(crate) fn cut_all(&mut self, io: &mut impl Transport) {
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            let state = &mut self.states[index as usize];
            state.kill(Closed::StopDeadline);
            self.env.touch(state);
        }
        self.settle_all(io);
    }

    /// Whether nothing is left for this loop to do once it has stopped.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty() && !self.env.has_errands()
    }
}
