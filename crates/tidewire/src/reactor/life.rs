//! What a loop leaves behind, in whatever way it ends: its counters are added to those of the loops
//! before it, its descriptor is closed, and what waited for it is not forgotten.

use std::sync::Arc;

use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::counters::{Counters, LoopCounters};
use crate::vocabulary::closed::{Closed, Refusal};

/// Held by a loop's thread for as long as the loop lives.
pub(crate) struct Life {
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) counters: Arc<LoopCounters>,
    pub(crate) waker: Arc<Waker>,
    /// Who takes the dials that come too late.
    pub(crate) heir: Option<Arc<Waker>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        let heir = self
            .heir
            .take()
            .filter(|_| self.waker.stopping() == Stop::No);
        for command in self.waker.end(heir.clone()) {
            match command {
                Command::Adopt { socket, peer, .. } => {
                    let why = match panicking {
                        true => Refusal::Panicked,
                        false => Refusal::Stopping,
                    };
                    self.counters.accepted.add(1);
                    self.counters.refused[why.kind()].add(1);
                    tracing::error!(%peer, reason = %why, "a connection's loop ended before it began");
                    // It is to see a reset, not an orderly end.
                    socket.reset_on_close();
                }
                Command::Dial { service, dial } => {
                    let token = dial.token;
                    let left = heir.as_ref().map(|heir| {
                        let dial = Command::Dial { service, dial };
                        heir.send(dial).is_ok()
                    });
                    if left != Some(true) {
                        tracing::warn!(token, "a dial is forgotten: its loop has ended");
                    }
                }
            }
        }
        if panicking {
            // Nobody has told them; they are gone with their loop all the same.
            let open = self.counters.open.value();
            self.counters.open.sub(open);
            self.counters.closed[Closed::Panicked.kind()].add(open);
        }
        lock(&self.registry).retire(&self.counters);
    }
}

/// The counters of all loops, those that have ended included.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    live: Vec<Arc<LoopCounters>>,
    ended: Counters,
}

impl Registry {
    pub(crate) fn add(&mut self, counters: Arc<LoopCounters>) {
        self.live.push(counters);
    }

    pub(crate) fn retire(&mut self, counters: &Arc<LoopCounters>) {
        if let Some(at) = self.live.iter().position(|c| Arc::ptr_eq(c, counters)) {
            self.live.swap_remove(at);
            self.ended.add(counters);
        }
    }

    /// Loops that have not ended.
    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn sum(&self) -> Counters {
        let mut sum = self.ended.clone();
        for counters in &self.live {
            sum.add(counters);
        }
        sum
    }
}
