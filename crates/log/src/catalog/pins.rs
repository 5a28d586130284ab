//! Which streams keep old segments on the disk.
//!
//! Segments are removed in order, oldest first. So a stream that keeps the oldest segment also keeps all later ones, up to
//! the first segment that would stay without it.

use std::collections::BTreeSet;

/// The streams that the oldest segments are kept for, and these segments' bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    streams: BTreeSet<u32>,
    bytes: u64,
}

impl Pins {
    /// `firsts`: streams with records, each with the oldest segment that holds a kept record of it. `used`: all segments by
    /// number, oldest first, with their bytes; the last one is in use, and always stays.
    pub(crate) fn of_streams(
        firsts: impl IntoIterator<Item = (u32, u64)>,
        used: impl IntoIterator<Item = (u64, u64)>,
    ) -> Pins {
        let firsts: Vec<(u32, u64)> = firsts.into_iter().collect();
        let numbers = || firsts.iter().map(|(_, number)| *number);
        let Some(oldest) = numbers().min() else {
            return Pins::default();
        };
        let next = numbers().filter(|number| *number > oldest).min();
        let streams = firsts.iter().filter(|(_, number)| *number == oldest);
        let (mut bytes, mut last) = (0, 0);
        for (number, used) in used {
            // The one before is not the last.
            bytes += std::mem::take(&mut last);
            if number >= oldest && next.is_none_or(|next| number < next) {
                last = used;
            }
        }
        if next.is_some() {
            bytes += last;
        }
        Pins {
            streams: streams.map(|(id, _)| *id).collect(),
            bytes,
        }
    }

    /// Bytes of segments that are kept for this stream, or for it and others.
    pub(crate) fn of(&self, stream: u32) -> u64 {
        match self.streams.contains(&stream) {
            true => self.bytes,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_segments_are_kept_for_who_has_records_in_the_oldest() {
        let used = [(1, 10), (5, 20), (9, 30), (12, 40)];
        let pins = |firsts: &[(u32, u64)]| {
            let pins = Pins::of_streams(firsts.iter().copied(), used);
            [0, 1, 2].map(|stream| pins.of(stream))
        };
        assert_eq!(pins(&[]), [0, 0, 0]);
        // All but the one in use.
        assert_eq!(pins(&[(0, 1)]), [60, 0, 0]);
        assert_eq!(pins(&[(0, 1), (1, 9)]), [30, 0, 0]);
        assert_eq!(pins(&[(0, 1), (1, 1), (2, 5)]), [10, 10, 0]);
        // The first segments are about to be removed.
        assert_eq!(pins(&[(0, 5), (1, 12)]), [50, 0, 0]);
        assert_eq!(pins(&[(0, 12), (1, 12)]), [0, 0, 0]);
    }
}
