//! Cuts a run at its messages, and identifies its last message.

use std::sync::Arc;

use tidewire_log::Frames;

use crate::home::Record;

/// Bytes of a message before its payload: its id, and the length of the payload.
const HEADER: usize = 12;

/// A piece of a run, and what is noted of its last message.
pub(crate) struct Piece {
    pub(crate) record: Record,
    pub(crate) last_id: u64,
    /// See [`Place::print`](crate::Place::print).
    pub(crate) print: u64,
}

/// Cuts a run into pieces of at most `most` bytes, or of one message; after `many` pieces the rest is left
/// out.
pub(crate) fn pieces(stream: &Arc<str>, run: Frames, most: usize, many: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut begin, mut at, mut count, mut first) = (0, 0, 0, run.first);
    let mut last = 0;
    let mut put = |range: std::ops::Range<usize>, last: usize, first: u64, count: u32| {
        if pieces.len() == many {
            return false;
        }
        let message = &run.bytes[last..range.end];
        pieces.push(Piece {
            last_id: u64::from_le_bytes(*message.first_chunk().expect("a message has an id")),
            print: print(message, run.timestamp_us),
            record: Record {
                stream: stream.clone(),
                producer: run.producer.clone(),
                first,
                count,
                timestamp_us: run.timestamp_us,
                frames: run.bytes[range].to_vec(),
            },
        });
        true
    };
    while let Some(header) = run.bytes[at..].first_chunk::<HEADER>() {
        let size = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let end = at + HEADER + size as usize;
        if count > 0 && end - begin > most {
            if !put(begin..at, last, first, count) {
                return pieces;
            }
            (begin, first, count) = (at, first + u64::from(count), 0);
        }
        (last, at, count) = (at, end, count + 1);
    }
    if count > 0 {
        put(begin..at, last, first, count);
    }
    pieces
}

/// The part of a run at this position or behind it.
pub(crate) fn from(run: Frames, position: u64) -> Option<Frames> {
    let before = position.saturating_sub(run.first);
    if before == 0 {
        return Some(run);
    }
    if before >= u64::from(run.count) {
        return None;
    }
    let mut at = 0;
    for _ in 0..before {
        let header = run.bytes.get(at..)?.first_chunk::<HEADER>()?;
        let size = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        at += HEADER + size as usize;
    }
    Some(Frames {
        first: run.first + before,
        // Below a number of 32 bits.
        count: run.count - before as u32,
        bytes: run.bytes.get(at..)?.to_vec(),
        ..run
    })
}

/// A hash (FNV-1a) of a message and its timestamp. The hash is compared with hashes in the home, so it never changes.
pub(crate) fn print(message: &[u8], timestamp_us: u64) -> u64 {
    let stamped = message.iter().copied().chain(timestamp_us.to_le_bytes());
    stamped.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sizes: &[usize]) -> Frames {
        let mut bytes = Vec::new();
        for (id, &size) in (7u64..).zip(sizes) {
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&(size as u32).to_le_bytes());
            bytes.resize(bytes.len() + size, id as u8);
        }
        Frames {
            first: 100,
            count: sizes.len() as u32,
            timestamp_us: 5,
            producer: "p".into(),
            bytes,
        }
    }

    #[test]
    fn runs_are_cut_at_messages_and_nothing_is_lost() {
        let whole = run(&[3, 0, 40, 1, 1]);
        for most in [1, 12, 30, 53, 1000] {
            let stream = "s".into();
            let pieces = pieces(&stream, whole.clone(), most, usize::MAX);
            for many in 0..pieces.len() {
                let some = super::pieces(&stream, whole.clone(), most, many);
                let records =
                    |of: &[Piece]| of.iter().map(|p| p.record.clone()).collect::<Vec<_>>();
                assert_eq!(records(&some), records(&pieces[..many]));
            }
            let joined: Vec<u8> = pieces
                .iter()
                .flat_map(|p| p.record.frames.clone())
                .collect();
            assert_eq!(joined, whole.bytes);
            let mut next = 100;
            for piece in &pieces {
                assert_eq!(piece.record.first, next);
                next += u64::from(piece.record.count);
                assert_eq!(piece.last_id, 7 + next - 101);
                let fits = piece.record.frames.len() <= most || piece.record.count == 1;
                assert!(fits, "{most}: {:?}", piece.record);
            }
            assert_eq!(next, 105);
        }
    }

    #[test]
    fn what_is_at_home_already_is_taken_off() {
        let whole = run(&[3, 0, 40]);
        assert_eq!(from(whole.clone(), 7), Some(whole.clone()));
        let rest = from(whole.clone(), 101).unwrap();
        assert_eq!((rest.first, rest.count), (101, 2));
        assert_eq!(rest.bytes, whole.bytes[15..]);
        assert_eq!(from(whole.clone(), 102).unwrap().bytes, whole.bytes[27..]);
        assert_eq!(from(whole.clone(), 103), None);
        assert_eq!(from(whole, 1000), None);
    }

    #[test]
    fn prints_tell_contents_and_times_apart() {
        assert_ne!(print(b"a", 1), print(b"b", 1));
        assert_ne!(print(b"a", 1), print(b"a", 2));
        // Hashes in the home were written by other versions.
        assert_eq!(print(b"", 0), 0xa8c7_f832_281a_39c5);
    }
}
