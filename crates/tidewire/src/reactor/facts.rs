//! The parts of a connection's record: phases and stages as enums, other facts as sets.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use crate::vocabulary::closed::Closed;

/// The phase of a connection's life. The two [open](crate::reactor::state::State::is_open) phases come first, so that one
/// comparison recognises them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The connection has failed. Data that its peer had sent before is still offered, as long as
    /// its protocol takes it; then the connection is dead.
    Failing {
        why: Closed,
        rest: Rest,
    },
    /// Dialled; waiting for the next attempt, or for the attempt's outcome.
    Dialling,
    /// One of several addresses that the dial with this record tries.
    Racing(u32),
    /// This side wants no more; its output is still being sent, its input is discarded.
    Finishing(Closed),
    /// Output sent and our side shut; waiting for the peer to close. Input is discarded.
    Lingering(Closed),
    /// To be torn down, with a reset or in order.
    Dead {
        why: Closed,
        reset: bool,
    },
    /// Torn down and told why; an engine may still wait for operations in flight.
    Buried(Closed),
}

/// The bytes of the peer that the kernel holds when a connection has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Perhaps some.
    Unread,
    /// Input is being received.
    BeingRead,
    /// The kernel holds no bytes of the peer.
    Read,
}

/// The reason that led a protocol to finish. A hint takes one byte, a [`Closed`] many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Finished,
    Stopped,
    Idle,
    FirstByte,
    Request,
    Lifetime,
}

impl From<Hint> for Closed {
    fn from(hint: Hint) -> Closed {
        match hint {
            Hint::Finished => Closed::Finished,
            Hint::Stopped => Closed::Stopped,
            Hint::Idle => Closed::Idle,
            Hint::FirstByte => Closed::FirstByteLate,
            Hint::Request => Closed::RequestLate,
            Hint::Lifetime => Closed::Lifetime,
        }
    }
}

/// The event for which a finishing connection waits once its output has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// The peer's end, so that no reset destroys what is on its way.
    PeerEnd,
    /// The peer's side is to take all output and send nothing for a moment: a connection between
    /// two requests, at a stop without a successor.
    Delivery,
    /// The connection waits for no event, as long as no bytes have come from a peer that has
    /// finished sending.
    Nothing,
}

/// How far this side's half-close has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// The protocol may write more.
    Open,
    /// Asked for; output is still being sent.
    Ending,
    /// The peer has been told.
    Shut,
}

/// The loop's knowledge about the peer's end of sending. The value only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerEnd {
    /// The peer sends, as far as is known.
    Unknown,
    /// The engine saw the end, perhaps behind data that is still to be read.
    Announced,
    /// All bytes that the peer sent have been received.
    Reached,
}

/// Whether the protocol has been told of the peer's end of sending. Only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    Nothing,
    /// `hung_up` was called.
    HungUp,
    /// `peer_finished` was called.
    Finished,
}

/// A callback that is due to a protocol as soon as it may be made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owed {
    /// Carried bytes are to be offered again although nothing new came.
    Replay,
    /// `received`, if nothing is carried too: it has waited for its output to drain, and that is over.
    GoOn,
    /// `writable`: output reached the high mark and has not been at the low mark since.
    Writable,
    /// `draining`, when carried input has been offered: a graceful stop wants it.
    Draining,
    /// A protocol inside a layer is told of its peer's end when its replies were given to the
    /// kernel. This entry of the layer's connection says that the inner protocol must be told then.
    EndInside,
}

impl Fact for Owed {
    #[inline]
    fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// A fact about a connection beside its phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flag {
    /// In the list of connections to settle.
    Listed,
    /// Part of a layer: settled by it, not by the loop.
    Embedded,
    /// `opened` was called, so `closed` is owed.
    Opened,
    /// The protocol asked for quiet.
    Paused,
    /// Not read from until memory is no longer short.
    AwaitsMemory,
    /// The kernel takes no output until it says otherwise, or an engine's send is in flight.
    SendBlocked,
    /// The connection has lived for as long as it may, and was asked to end.
    Outlived,
    /// The protocol has set deadlines of its own.
    OwnLimits,
    /// In the queue of connections whose turn to send has not come.
    AwaitsTurn,
    /// In the queue of connections whose turn to make more output has not come.
    AwaitsMaking,
    /// The connection's share of what a turn makes is used up: its link is full.
    OverShare,
    /// The connection made much when it was last given something, or was not given anything yet.
    Heavy,
    /// The connection has a layer: its output was made inside, and was charged there.
    Around,
    /// A layer's: what is inside takes no input before its output has drained, or more may be made.
    HeldInside,
    /// A proxy's, whose own address the rules do not count: see [`Part::Nameless`](crate::admission::Part).
    Nameless,
    /// The connection was accepted, and its protocol has consumed no input and sent no output yet. A stop serves such a
    /// connection first: its client was told that it is connected.
    Unserved,
}

impl Fact for Flag {
    #[inline]
    fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The condition for the next call of `received`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appetite {
    /// New bytes, and at least this many together with carried ones.
    Bytes(NonZeroU32),
    /// The output must fall below the low mark first; then carried bytes are offered again.
    Drain,
}

impl Appetite {
    /// For any.
    pub(crate) const SOME: Appetite = Appetite::Bytes(NonZeroU32::MIN);

    /// Waits for `bytes` bytes; from 4 GiB on, for anything beyond that.
    #[inline]
    pub(crate) fn of(bytes: usize) -> Appetite {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Appetite::Bytes(NonZeroU32::new(bytes).unwrap_or(NonZeroU32::MIN))
    }
}

/// A fact that is a bit of a [`Set`].
pub(crate) trait Fact: Copy {
    /// The fact's bit; each fact has another one.
    fn bit(self) -> u16;
}

/// A few facts, a bit each: what would be many booleans in a record that each connection has.
pub(crate) struct Set<F> {
    bits: u16,
    of: PhantomData<F>,
}

impl<F: Fact> Set<F> {
    pub(crate) const fn empty() -> Set<F> {
        Set {
            bits: 0,
            of: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bits == 0
    }

    #[inline]
    pub(crate) fn has(&self, fact: F) -> bool {
        self.bits & fact.bit() != 0
    }

    #[inline]
    pub(crate) fn has_none(&self, facts: &[F]) -> bool {
        facts.iter().all(|&fact| !self.has(fact))
    }

    #[inline]
    pub(crate) fn add(&mut self, fact: F) {
        self.bits |= fact.bit();
    }

    #[inline]
    pub(crate) fn set(&mut self, fact: F, on: bool) {
        self.bits = self.bits & !fact.bit() | if on { fact.bit() } else { 0 };
    }

    /// Removes a fact; returns whether it was in the set.
    #[inline]
    pub(crate) fn remove(&mut self, fact: F) -> bool {
        let was = self.has(fact);
        self.bits &= !fact.bit();
        was
    }
}
