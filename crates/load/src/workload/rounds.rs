//! A load in rounds: every connection sends one batch, then all replies are awaited before the next round begins.
//!
//! The idea: the events of a turn of the server's loop depend on what has arrived by then, and so on the clock. With rounds
//! they depend on the script alone: the caller begins a round, and can hold the server still until the kernel has all
//! messages of the round. So counts of instructions repeat exactly.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The open round, and its progress.
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
    /// Loops that have answered the last question.
    flushed: AtomicUsize,
    /// Set while the run waits until all of this round is sent.
    awaited: AtomicBool,
}

impl Rounds {
    /// Whether a connection may send now; `last` is the round of its last message, and becomes the present
    /// round.
    pub(super) fn begin(&self, last: &mut u64) -> bool {
        let open = self.open.load(SeqCst);
        if *last == open {
            return false;
        }
        *last = open;
        self.sent.fetch_add(1, SeqCst);
        true
    }

    /// Whether the load waits until the whole round is sent.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(SeqCst)
    }

    /// Everything that a connection sent is answered.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, SeqCst);
    }

    /// The round that is open.
    pub(super) fn number(&self) -> u64 {
        self.open.load(SeqCst)
    }

    /// How many times loops were asked about their output.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(SeqCst)
    }

    /// A loop has gone around once since it was asked.
    pub(super) fn flushed(&self) {
        self.flushed.fetch_add(1, SeqCst);
    }

    // ---- For the script ----

    /// Opens the next round; `awaited` says that a caller will wait until all of the round is sent.
    pub(super) fn open_next(&self, awaited: bool) {
        self.sent.store(0, SeqCst);
        self.answered.store(0, SeqCst);
        self.flushed.store(0, SeqCst);
        self.awaited.store(awaited, SeqCst);
        self.open.fetch_add(1, SeqCst);
    }

    /// Asks the loops whether their sent bytes have reached the kernel.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, SeqCst);
    }

    /// Whether so many connections have sent in this round.
    pub(super) fn have_sent(&self, connections: usize) -> bool {
        self.sent.load(SeqCst) >= connections
    }

    /// Whether so many loops have answered since they were asked.
    pub(super) fn have_flushed(&self, loops: usize) -> bool {
        self.flushed.load(SeqCst) >= loops
    }

    /// Whether everything that so many connections sent is answered.
    pub(super) fn are_answered(&self, connections: usize) -> bool {
        self.answered.load(SeqCst) >= connections
    }
}
