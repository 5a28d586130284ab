//! The order of a stop: acceptors hand connections to loops and end before them, and their end is
//! the loops' cue.

use std::sync::Arc;

use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Stop, Waker};
use crate::reactor::setup::Spread;

/// The acceptors of loops that have not ended; how many they are.
#[derive(Clone, Default)]
pub(crate) struct Acceptors(Arc<Mutex<usize>>);

impl Acceptors {
    /// To be dropped when this loop has ended, if it hands connections to others.
    pub(crate) fn relay(&self, acceptor: &Arc<Waker>, spread: &Spread) -> Option<Relay> {
        let Spread::Loops(fleet) = spread else {
            return None;
        };
        *lock(&self.0) += 1;
        Some(Relay {
            acceptors: self.clone(),
            acceptor: acceptor.clone(),
            heirs: fleet.loops.clone(),
        })
    }

    /// Begins to stop in order. Acceptors first: what they take in still needs loops to run on. The end of the acceptors
    /// stops the loops.
    pub(crate) fn stop<'a>(
        &self,
        acceptors: impl Iterator<Item = &'a Arc<Waker>>,
        loops: impl Iterator<Item = &'a Arc<Waker>>,
    ) {
        acceptors.for_each(|waker| waker.stop(Stop::Graceful));
        let nobody_relays = *lock(&self.0) == 0;
        if nobody_relays {
            loops.for_each(|waker| waker.stop(Stop::Graceful));
        }
    }
}

/// Stops the loops that an acceptor has handed connections to, when it has ended.
pub(crate) struct Relay {
    acceptors: Acceptors,
    acceptor: Arc<Waker>,
    heirs: Vec<Arc<Waker>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        // A later stop finds under the lock that no acceptor would pass it on.
        let mut acceptors = lock(&self.acceptors.0);
        *acceptors -= 1;
        for heir in &self.heirs {
            heir.stop(self.acceptor.stopping());
        }
    }
}
