//! The ways in which explored connections echo what peers send, and what they tell each other.

use crate::vocabulary::endpoint::Endpoint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Forwards the bytes that it reads.
    Forward,
    /// Writes the bytes that it reads, and waits when output is full.
    Write,
    /// Keeps the chunks for a while, then writes them.
    Keep,
    /// Consumes whole frames of this size only.
    Frames(usize),
    /// Has another thread answer, and pauses meanwhile.
    Ask,
    /// Asks another thread, with a reserved place for the answer.
    AskReserved,
    /// Pauses after each piece, for a while.
    Nap,
    /// Writes behind a mark, which is released after a while.
    Hold,
    /// The connection tells itself a message.
    Tell,
    /// Says no more after so many bytes.
    FallSilent(usize),
    /// Cuts the connection after so many bytes.
    Abort(usize),
    /// Finishes after so many bytes.
    Finish(usize),
    /// Panics after so many bytes.
    Panic(usize),
    /// Pauses for ever, until it is told that its peer has gone.
    Wait,
    /// Consumes its input, and pauses now and then.
    Doze,
    /// Pauses for ever, and does not listen.
    Deaf,
    /// Forwards a byte at a time, each when the previous one has left; late bytes are forwarded at
    /// once.
    LockStep,
    /// Finishes at once.
    Goodbye,
}

impl Role {
    /// Whether all that is sent comes back.
    pub(super) fn echoes_all(self) -> bool {
        !matches!(
            self,
            Role::FallSilent(_)
                | Role::Abort(_)
                | Role::Finish(_)
                | Role::Panic(_)
                | Role::Doze
                | Role::Wait
                | Role::Deaf
                | Role::Goodbye
        )
    }

    /// How many of the `sent` bytes come back, unless the network fails; `None` if that depends on
    /// timing.
    pub(super) fn comes_back(self, sent: usize, unread: usize) -> Option<usize> {
        match self {
            Role::Abort(_) | Role::Panic(_) | Role::Deaf => None,
            Role::FallSilent(most) | Role::Finish(most) => Some(sent.min(most)),
            Role::Doze | Role::Wait | Role::Goodbye => Some(0),
            Role::Frames(size) => Some(sent - unread.min(size - 1)),
            _ => Some(sent),
        }
    }

    pub(super) fn drawn(n: u64, size: usize) -> Role {
        match n % 45 {
            0..4 => Role::Forward,
            4..9 => Role::Write,
            9..12 => Role::Keep,
            12..14 => Role::Frames(1 + size),
            14..17 => Role::Ask,
            17..19 => Role::AskReserved,
            19..22 => Role::Nap,
            22..24 => Role::Hold,
            24..26 => Role::Tell,
            26..28 => Role::FallSilent(size),
            28 => Role::Abort(size),
            29 | 30 => Role::Finish(1 + size),
            31 => Role::Panic(size),
            32 | 33 => Role::Wait,
            34..36 => Role::Deaf,
            36..39 => Role::LockStep,
            39..43 => Role::Doze,
            _ => Role::Goodbye,
        }
    }
}

/// A message to a connection: bytes to write, and their sender.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) of: Endpoint,
    pub(super) bytes: Vec<u8>,
}
