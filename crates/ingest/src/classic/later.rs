//! Acknowledgements that wait for a log: the batches that a connection has handed over and that are
//! not committed yet.
//!
//! The acknowledgement policy sees a batch when the batch is committed, as if it had been received
//! then. So each policy keeps its meaning, only later.

use std::collections::VecDeque;

use tidewire::{Bell, ConnId};
use tidewire_log::Ticket;

use crate::classic::ack::AckForm;

/// Batches that one connection may have uncommitted. Reading pauses there.
const BATCHES_MAX: usize = 4096;
/// Bytes of messages that one connection may have uncommitted. Reading pauses there.
const BYTES_MAX: usize = 16 << 20;
/// Replies to single messages that may wait for a commit or for being sent; bytes. Reading pauses
/// at this limit.
const REPLIES_MAX: usize = 1 << 20;

/// A batch that is to be acknowledged when it is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) ticket: Ticket,
    pub(super) to: ConnId,
    pub(super) messages: u32,
    pub(super) bytes: usize,
    pub(super) last_id: [u8; 8],
}

/// The batches for which connections of one loop wait.
pub(super) struct Waiting {
    pub(super) bell: Bell<()>,
    /// In the order of tickets, which is that of appending.
    pub(super) owed: VecDeque<Owed>,
    /// Connections that wait for room, in the order in which they came.
    pub(super) crowded: Vec<ConnId>,
}

impl Waiting {
    pub(super) fn new(bell: Bell<()>) -> Waiting {
        Waiting {
            bell,
            owed: VecDeque::new(),
            crowded: Vec::new(),
        }
    }
}

/// The messages and replies of one connection that wait for a commit. Made at the first wait.
#[derive(Debug, Default)]
pub(super) struct Later {
    batches: usize,
    bytes: usize,
    /// Replies to single messages, in order: sent ones, then replies that may be sent, then replies
    /// that must still wait.
    replies: Vec<u8>,
    /// Where replies begin that were not sent.
    sent: usize,
    /// The end of the replies that may be sent.
    ready: usize,
    /// Whether batches were committed of which the policy has not been told yet.
    pub(super) fresh: bool,
    pub(super) pause: Pause,
    pub(super) ending: Option<Ending>,
}

/// Why the connection does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pause {
    #[default]
    No,
    /// The log has no room.
    Crowded,
    /// Too much is uncommitted, or cannot be sent.
    Limit,
}

/// How the connection ends once everything is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The connection was asked to finish.
    Finish,
    /// The connection must close, for this reason.
    Because(&'static str),
}

impl Later {
    /// A batch was handed over; `replies` are the replies to its messages, if each gets one.
    pub(super) fn add(&mut self, bytes: usize, replies: &[u8]) {
        self.batches += 1;
        self.bytes += bytes;
        self.replies.extend_from_slice(replies);
    }

    /// A batch is committed.
    pub(super) fn committed(&mut self, messages: usize, bytes: usize, form: AckForm) {
        self.batches -= 1;
        self.bytes -= bytes;
        self.ready = (self.ready + messages * form.len()).min(self.replies.len());
        self.fresh = true;
    }

    /// Whether batches are uncommitted.
    pub(super) fn owes(&self) -> bool {
        self.batches > 0
    }

    /// Whether reading has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.batches >= BATCHES_MAX
            || self.bytes >= BYTES_MAX
            || self.replies.len() - self.sent >= REPLIES_MAX
    }

    /// The replies that may be sent, whole ones, at most `most` of them.
    pub(super) fn sendable(&self, form: AckForm, most: usize) -> &[u8] {
        let ready = &self.replies[self.sent..self.ready];
        &ready[..ready.len().min(most * form.len())]
    }

    /// Notes that `bytes` of the replies were sent.
    pub(super) fn has_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.replies.len() {
            self.replies = Vec::new();
            (self.sent, self.ready) = (0, 0);
        } else if self.sent >= COMPACT {
            self.replies.drain(..self.sent);
            self.ready -= self.sent;
            self.sent = 0;
        }
    }
}

/// Bytes of sent replies after which the rest is moved up.
const COMPACT: usize = REPLIES_MAX / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_wait_for_their_batches() {
        let form = AckForm::IdOnly;
        let mut later = Later::default();
        let replies: Vec<u8> = (0..(50_003 * 8)).map(|n| n as u8).collect();
        later.add(36, &replies[..24]);
        later.add(600_000, &replies[24..]);
        assert!(later.sendable(form, 100).is_empty());
        later.committed(3, 36, form);
        assert_eq!(later.sendable(form, 2), &replies[..16]);
        assert_eq!(later.sendable(form, 100), &replies[..24]);
        later.has_sent(16);
        later.committed(50_000, 600_000, form);
        assert!(!later.owes());
        let mut at = 16;
        while !later.sendable(form, 1000).is_empty() {
            let piece = later.sendable(form, 1000);
            assert_eq!(piece, &replies[at..at + piece.len()]);
            let len = piece.len();
            at += len;
            later.has_sent(len);
        }
        assert_eq!(at, replies.len());
    }
}
