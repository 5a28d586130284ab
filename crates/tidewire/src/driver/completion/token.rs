//! Names the operation of a completion in the 64 bits that the kernel hands back: the kind of
//! operation, a generation, and an index (of a connection or a listener).
//!
//! An index is reused as soon as its connection is gone; the generation tells a late completion of
//! the old one from completions of its successor. Generations wrap after 2^24 connections, long
//! after the last operation of the first of them has completed: a connection's index is given free
//! only then.

/// Generations that a token can tell apart.
const GENERATIONS: u32 = 1 << 24;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Bytes into a provided buffer; many completions or one.
    Receive,
    /// Output.
    Send,
    /// Waiting for the end of a connection that is not being read.
    Watch,
    /// Waiting for the outcome of a connect.
    Connect,
    /// New connections of a listener.
    Accept,
    /// The wake-up descriptor.
    Wake,
    /// Taking back another operation.
    Cancel,
    /// The timer that ends a wait.
    Alarm,
    /// A descriptor for a socket of the table.
    Install,
    /// The end of output.
    ShutWrite,
    /// Having a close send a reset.
    ResetOnClose,
}

const KINDS: [Kind; 11] = [
    Kind::Receive,
    Kind::Send,
    Kind::Watch,
    Kind::Connect,
    Kind::Accept,
    Kind::Wake,
    Kind::Cancel,
    Kind::Alarm,
    Kind::Install,
    Kind::ShutWrite,
    Kind::ResetOnClose,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) generation: u32,
    pub(super) index: u32,
}

impl Token {
    pub(super) fn new(kind: Kind, generation: u32, index: u32) -> Token {
        debug_assert!(generation < GENERATIONS);
        Token {
            kind,
            generation,
            index,
        }
    }

    /// For operations that are not a connection's.
    pub(super) fn of_loop(kind: Kind, index: u32) -> Token {
        Token::new(kind, 0, index)
    }

    pub(super) fn pack(self) -> u64 {
        (self.kind as u64) << 56 | u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The kernel hands back only the values that it was given.
    pub(super) fn unpack(user_data: u64) -> Token {
        Token {
            kind: KINDS[(user_data >> 56) as usize],
            generation: (user_data >> 32) as u32 & (GENERATIONS - 1),
            index: user_data as u32,
        }
    }
}

/// The generation after this one.
pub(super) fn next_generation(generation: u32) -> u32 {
    (generation + 1) % GENERATIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        for kind in KINDS {
            for (generation, index) in [(0, 0), (GENERATIONS - 1, u32::MAX), (77, 3)] {
                let token = Token::new(kind, generation, index);
                assert_eq!(Token::unpack(token.pack()), token);
            }
        }
        assert_eq!(next_generation(GENERATIONS - 1), 0);
    }
}
