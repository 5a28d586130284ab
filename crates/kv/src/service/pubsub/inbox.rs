//! Messages on their way to the subscribers of one loop.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidewire::LoopHandle;

/// Bytes in an inbox from which on publishers wait. Messages under way when it fills go in all the
/// same: at most one for each connection that publishes, or one transaction's.
const BYTES_MAX: usize = 16 << 20;
/// What a queued message costs beside its bytes.
const MESSAGE_COST: usize = 64;

/// Something published.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
    /// For subscribers of sharded channels, not for the others.
    pub(crate) sharded: bool,
    /// What must have settled before anybody hears it.
    pub(crate) ticket: u64,
}

/// The messages for one loop.
pub(crate) struct Inbox<M> {
    queue: Mutex<Queue>,
    at: LoopHandle<M>,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<(u64, Arc<Published>)>,
    bytes: usize,
    /// How many were ever put in: a subscription starts with the next one.
    sequence: u64,
}

impl<M> Inbox<M> {
    pub(crate) fn new(at: LoopHandle<M>) -> Inbox<M> {
        Inbox {
            queue: Mutex::default(),
            at,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue().bytes >= BYTES_MAX
    }

    /// The number of the newest message.
    pub(crate) fn sequence(&self) -> u64 {
        self.queue().sequence
    }

    pub(crate) fn push(&self, message: Arc<Published>) {
        {
            let mut queue = self.queue();
            queue.sequence += 1;
            queue.bytes += cost(&message);
            let sequence = queue.sequence;
            queue.messages.push_back((sequence, message));
        }
        self.at.signal();
    }

    /// The oldest message, with its number.
    pub(crate) fn pop(&self) -> Option<(u64, Arc<Published>)> {
        let mut queue = self.queue();
        let (sequence, message) = queue.messages.pop_front()?;
        queue.bytes -= cost(&message);
        if queue.messages.is_empty() && queue.messages.capacity() > 1024 {
            queue.messages = VecDeque::new();
        }
        Some((sequence, message))
    }

    pub(crate) fn signal(&self) {
        self.at.signal();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost(message: &Published) -> usize {
    MESSAGE_COST + message.channel.len() + message.payload.len()
}
