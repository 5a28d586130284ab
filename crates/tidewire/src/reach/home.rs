//! The parts that a service's callbacks on one loop reach without a lock: the service's mailbox,
//! its own timer, and the messages that connections of the loop [send](crate::Cx::tell) each other.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::reach::mailbox::{Mail, NoRoom};
use crate::vocabulary::conn_id::ConnId;

/// Messages told on one loop by the connections of one service, and not yet delivered.
pub const TELLS_MAX: usize = 65_536;
/// Room for messages that is kept when there are none.
const KEPT: usize = 1024;

/// A message from one connection of a loop to another.
pub(crate) struct Told<M> {
    pub(crate) to: ConnId,
    /// The sender, which gets the message back if it cannot be delivered.
    pub(crate) from: Option<ConnId>,
    pub(crate) message: M,
}

pub(crate) struct Home<M> {
    pub(crate) mail: Arc<Mail<M>>,
    told: RefCell<Vec<Told<M>>>,
    /// When the service's timer expires; nanoseconds, `u64::MAX` if it is not set.
    pub(crate) timer_ns: Cell<u64>,
}

impl<M> Home<M> {
    pub(crate) fn new(mail: Arc<Mail<M>>) -> Home<M> {
        Home {
            mail,
            told: RefCell::default(),
            timer_ns: Cell::new(u64::MAX),
        }
    }

    pub(crate) fn tell(
        &self,
        to: ConnId,
        from: Option<ConnId>,
        message: M,
    ) -> Result<(), NoRoom<M>> {
        let mut told = self.told.borrow_mut();
        if told.len() >= TELLS_MAX {
            return Err(NoRoom(message));
        }
        told.push(Told { to, from, message });
        Ok(())
    }

    /// Takes the messages that connections have sent each other so far, for delivery now.
    pub(crate) fn take_told(&self) -> Vec<Told<M>> {
        self.told.take()
    }

    /// Takes back the emptied vector, for its memory.
    pub(crate) fn keep(&self, emptied: Vec<Told<M>>) {
        debug_assert!(emptied.is_empty());
        let mut told = self.told.borrow_mut();
        if told.capacity() == 0 && emptied.capacity() <= KEPT {
            *told = emptied;
        }
    }
}
