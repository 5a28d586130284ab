//! The receiving side of one socket: the operations in flight, and how the peer sends (small
//! messages or a stream).

use crate::memory::buffer::Lease;

/// Full pieces in a row that make a stream, where the kernel does not say that there is more.
const FULL_RUN: u8 = 2;
/// Small receives in a row that end one.
const SMALL_RUN: u8 = 16;
/// The receive operation of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    None,
    /// The receive found no buffer, and waits for one.
    Starved,
    Many,
    /// Being cancelled. The receive may still bring bytes.
    ManyEnding,
    Once,
    /// Being cancelled. The receive may still bring bytes.
    OnceEnding,
    /// Takes the bytes that are there for a stop, and does not wait.
    Sweep,
}

impl Operation {
    /// Receives into a large piece, and one only.
    pub(super) fn is_once(self) -> bool {
        matches!(
            self,
            Operation::Once | Operation::OnceEnding | Operation::Sweep
        )
    }
}

/// The receiving side of one socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    pub(super) operation: Operation,
    /// The connection wants the bytes.
    pub(super) wanted: bool,
    pub(super) stream: bool,
    /// Full pieces in a row or, of a stream, small ones.
    run: u8,
    /// Bytes that arrived while the connection did not want any.
    pub(super) unwanted: u32,
    /// The socket held more than the last receive took.
    pub(super) more: bool,
    /// Some received data waits for the rest: see [`parts`](super::parts).
    pub(super) has_parts: bool,
    /// A stop wants everything received that the kernel held when it began: this many bytes, or
    /// until there are no more.
    pub(super) sweep: Option<u32>,
}

/// Bytes to look for at a stop where their number is unknown, as in a connection that comes while
/// its loop is stopping.
pub(super) const SWEEP_NEW: u32 = 1 << 20;

/// Received data of one connection that waits for the rest: see [`parts`](super::parts).
pub(super) struct Parts {
    pub(super) index: u32,
    pub(super) whole: Lease,
    /// Bytes.
    pub(super) len: usize,
}

/// The wait for the end of a connection that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    Off,
    On,
    /// Being taken back.
    Ending,
}

impl Receiver {
    /// Whether what comes next comes in a large piece.
    pub(super) fn takes_large(&self) -> bool {
        self.operation.is_once()
    }

    /// Whether the kernel has said that it holds more than it gave.
    pub(super) fn holds_more(&self) -> bool {
        self.more || self.sweep.is_some()
    }

    pub(super) fn new(draining: bool) -> Receiver {
        Receiver {
            operation: Operation::None,
            wanted: false,
            stream: false,
            run: 0,
            unwanted: 0,
            more: false,
            has_parts: false,
            sweep: draining.then_some(SWEEP_NEW),
        }
    }

    /// Whether a receive of `n` bytes into a small piece was cut, and the rest comes soon.
    #[inline]
    pub(super) fn is_cut(&self, n: usize, small: usize) -> bool {
        n == small && self.more && !self.operation.is_once() && self.wanted && self.sweep.is_none()
    }

    /// Learns from a receive of `n` bytes into a small or large piece; true when what is armed is
    /// no longer right.
    pub(super) fn learn(&mut self, n: usize, small: usize) -> bool {
        if !self.wanted {
            self.unwanted = self.unwanted.saturating_add(n as u32);
            if self.unwanted as usize >= small {
                return true;
            }
        }
        let hit = if self.stream {
            n <= small / 2
        } else {
            n == small
        };
        self.run = if hit { self.run + 1 } else { 0 };
        let enough = match (self.stream, self.more) {
            (true, _) => SMALL_RUN,
            // The receive was cut.
            (false, true) => 1,
            (false, false) => FULL_RUN,
        };
        if self.run == enough {
            self.stream = !self.stream;
            self.run = 0;
            return true;
        }
        false
    }
}
