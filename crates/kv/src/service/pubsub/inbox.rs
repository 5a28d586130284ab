//! Messages on their way to the subscribers of one loop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidewire::LoopHandle;

/// Bytes in an inbox above which publishers wait. Messages that are under way when the inbox fills
/// are still added: at most one for each publishing connection, or those of one transaction.
const BYTES_MAX: usize = 16 << 20;
/// Bytes in an inbox beyond which events are not put in: what makes them cannot always be held up.
const EVENTS_MAX: usize = 64 << 20;
/// Bytes that a queued message takes beside its text.
const MESSAGE_COST: usize = 64;

/// A published message.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
    /// For subscribers of sharded channels; otherwise for subscribers of plain channels.
    pub(crate) sharded: bool,
    /// The ticket that must have settled before a subscriber hears it.
    pub(crate) ticket: u64,
}

/// The messages for one loop.
pub(crate) struct Inbox<M> {
    queue: Mutex<Queue>,
    at: LoopHandle<M>,
    /// How many of all inboxes are full.
    full: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<(u64, Arc<Published>)>,
    bytes: usize,
    /// The inbox counts as full.
    is_full: bool,
    /// An event was left out.
    is_lossy: bool,
    /// How many were ever put in: a subscription starts with the next one.
    sequence: u64,
}

impl<M> Inbox<M> {
    pub(super) fn new(at: LoopHandle<M>, full: Arc<AtomicUsize>) -> Inbox<M> {
        Inbox {
            queue: Mutex::default(),
            at,
            full,
        }
    }

    /// Bytes of the messages in the inbox.
    pub(super) fn bytes(&self) -> usize {
        self.queue().bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue().bytes >= BYTES_MAX
    }

    /// The number of the newest message.
    pub(crate) fn sequence(&self) -> u64 {
        self.queue().sequence
    }

    pub(crate) fn push(&self, message: Arc<Published>) {
        self.put(&mut self.queue(), message);
        self.at.signal();
    }

    /// Pushes an event; false if there is too much already, and then listeners to events are cut.
    pub(super) fn push_unless_over(&self, message: &Arc<Published>) -> bool {
        let mut queue = self.queue();
        let fits = queue.bytes < EVENTS_MAX;
        if fits {
            self.put(&mut queue, message.clone());
        } else {
            queue.is_lossy = true;
        }
        drop(queue);
        self.at.signal();
        fits
    }

    fn put(&self, queue: &mut Queue, message: Arc<Published>) {
        queue.sequence += 1;
        queue.bytes += cost(&message);
        let sequence = queue.sequence;
        queue.messages.push_back((sequence, message));
        self.note(queue);
    }

    /// Brings the number of full inboxes up to date.
    fn note(&self, queue: &mut Queue) {
        let is_full = queue.bytes >= BYTES_MAX;
        match (std::mem::replace(&mut queue.is_full, is_full), is_full) {
            (false, true) => drop(self.full.fetch_add(1, Relaxed)),
            (true, false) => drop(self.full.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// Whether an event was left out since this was asked last.
    pub(super) fn was_lossy(&self) -> bool {
        std::mem::take(&mut self.queue().is_lossy)
    }

    /// The oldest message, with its number.
    pub(crate) fn pop(&self) -> Option<(u64, Arc<Published>)> {
        let mut queue = self.queue();
        let (sequence, message) = queue.messages.pop_front()?;
        queue.bytes -= cost(&message);
        self.note(&mut queue);
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

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        if self.queue().is_full {
            self.full.fetch_sub(1, Relaxed);
        }
    }
}

fn cost(message: &Published) -> usize {
    MESSAGE_COST + message.channel.len() + message.payload.len()
}
