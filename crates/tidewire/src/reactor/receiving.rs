//! How much a turn receives from many connections together, where the driver asks for it.

use crate::build::limits::CHUNK;

/// Of the bytes that may be received in one turn of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveShares {
    /// From all connections together, unless a chunk from each is more.
    pub(crate) all: usize,
    /// Connections that need not share it: they have shares of their own ([`Limits::turn_bytes`](crate::Limits)).
    pub(crate) few: usize,
}

impl Default for ReceiveShares {
    fn default() -> ReceiveShares {
        ReceiveShares::of(ReceiveShares::ALL)
    }
}

impl ReceiveShares {
    /// Bytes for all, unless something else is set.
    pub(crate) const ALL: usize = 4 << 20;

    /// For so many bytes a turn: see [`Builder::turn_receive`](crate::Builder::turn_receive).
    pub(crate) fn of(all: usize) -> ReceiveShares {
        ReceiveShares { all, few: 16 }
    }

    /// That of each, where so many have something to say; bytes.
    #[inline]
    pub(crate) fn each(self, due: usize) -> usize {
        if due <= self.few {
            return usize::MAX;
        }
        // The last chunk may be a whole one: shares of full chunks exceed nothing.
        (self.all / due).saturating_sub(CHUNK - 1).max(1)
    }
}
