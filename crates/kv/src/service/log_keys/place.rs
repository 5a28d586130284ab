//! The ids of entries: the record at position P of a stream is the entry `P-1`.
//!
//! The one idea: an id without its second number is a position. `XREAD ... P` begins with the record at position P, as
//! `P` is read as `P-0`, which is right before it; and position 0 has an id that Redis allows.

use crate::types::StreamId;

/// The second number of every id.
const SEQ: u64 = 1;

/// The id of the record at a position.
pub(super) fn id_of(position: u64) -> StreamId {
    StreamId {
        ms: position,
        seq: SEQ,
    }
}

/// The first position with this id or a later one; `None` if there can be none.
pub(super) fn from(id: StreamId) -> Option<u64> {
    match id.seq {
        0..=SEQ => Some(id.ms),
        _ => id.ms.checked_add(1),
    }
}

/// The first position whose id is later.
pub(super) fn behind(id: StreamId) -> Option<u64> {
    from(id.next()?)
}

/// The position after the last one whose id is this or an earlier one.
pub(super) fn end(id: StreamId) -> u64 {
    behind(id).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn an_id_is_found_from_both_sides() {
        for position in [0, 1, 41, u64::MAX - 1] {
            let own = id_of(position);
            assert_ne!(own, StreamId::MIN);
            assert_eq!(from(own), Some(position));
            assert_eq!(behind(own), position.checked_add(1));
            assert_eq!(end(own), position + 1);
            assert_eq!(behind(id(position, 0)), Some(position));
            assert_eq!(from(id(position, 2)), Some(position + 1));
            assert_eq!(end(id(position, 0)), position);
        }
        assert_eq!(from(StreamId::MIN), Some(0));
        assert_eq!(behind(StreamId::MIN), Some(0));
        assert_eq!(end(StreamId::MIN), 0);
        assert_eq!(from(StreamId::MAX), None);
        assert_eq!(behind(StreamId::MAX), None);
        assert_eq!(end(StreamId::MAX), u64::MAX);
    }
}
