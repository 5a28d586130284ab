//! How much a turn receives from many connections together, where the driver asks for it.

/// Shares of the bytes that may be received in one turn of a loop.
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

    /// The share of each of `due` connections with input, which is received in chunks of `chunk`
    /// bytes.
    #[inline]
    pub(crate) fn each(self, due: usize, chunk: usize) -> usize {
        if due <= self.few {
            return usize::MAX;
        }
        // The last chunk may be a whole one: shares of full chunks exceed nothing.
        (self.all / due).saturating_sub(chunk - 1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks are received until there is a share: what that takes of all, however long chunks are.
    #[test]
    fn whole_chunks_use_the_budget_and_no_more() {
        for chunk in [1 << 10, 16 << 10, 64 << 10, 1 << 20] {
            for due in 17..200 {
                let shares = ReceiveShares::of(4 << 20);
                let each = shares.each(due, chunk).div_ceil(chunk) * chunk;
                let all = each * due;
                assert!(all <= shares.all || each == chunk, "{due} of {chunk}");
                let more = all + due * chunk;
                assert!(more > shares.all, "{due} of {chunk}: {all} bytes");
            }
        }
        assert_eq!(ReceiveShares::of(4 << 20).each(16, 1 << 10), usize::MAX);
    }
}
