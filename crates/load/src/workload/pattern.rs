//! Bytes of which every position can be told: what an echo is checked against.
//!
//! The idea: connection `c` sends the infinite repetition of one prime-length pattern, begun at a
//! place of its own. A lost, repeated or swapped piece, or a piece from another connection, then
//! differs from the expected bytes, unless its length is a multiple of 8,191 bytes, which no
//! buffer's is. Comparing and sending are plain copies of slices.

/// Length of the repetition: a prime.
const PERIOD: usize = 8191;
/// Longest slice at any position.
const SLICE: usize = 8192;

/// The pattern, long enough for a slice at every position.
#[derive(Debug)]
pub(super) struct Pattern(Box<[u8]>);

impl Pattern {
    pub(super) fn new() -> Pattern {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes: Vec<u8> = (0..PERIOD)
            .map(|_| {
                // Marsaglia's xorshift; any generator without short cycles would do.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        for at in 0..SLICE {
            bytes.push(bytes[at]);
        }
        Pattern(bytes.into())
    }

    /// Where the stream of a connection begins.
    pub(super) fn start(connection: u64) -> u64 {
        connection.wrapping_mul(977) % PERIOD as u64
    }

    /// The stream from `at` on, `most` bytes or fewer, at least one if `most` is.
    #[inline]
    pub(super) fn slice(&self, at: u64, most: usize) -> &[u8] {
        let at = (at % PERIOD as u64) as usize;
        &self.0[at..at + most.min(SLICE)]
    }

    /// The position in `bytes` of the first one that is not the stream's from `at` on.
    #[inline]
    pub(super) fn difference(&self, at: u64, bytes: &[u8]) -> Option<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let want = self.slice(at + done as u64, bytes.len() - done);
            let have = &bytes[done..done + want.len()];
            if have != want {
                let place = have.iter().zip(want).position(|(have, want)| have != want);
                return place.map(|place| done + place);
            }
            done += want.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pattern: &Pattern, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend_from_slice(pattern.slice(at + bytes.len() as u64, len - bytes.len()));
        }
        bytes
    }

    #[test]
    fn what_is_sent_is_what_is_expected() {
        let pattern = Pattern::new();
        for at in [0, 1, 8190, 8191, 1 << 40] {
            assert_eq!(pattern.difference(at, &stream(&pattern, at, 30_000)), None);
        }
    }

    #[test]
    fn every_kind_of_damage_shows_at_its_place() {
        let pattern = Pattern::new();
        let good = stream(&pattern, 7, 30_000);
        let mut changed = good.clone();
        changed[20_001] ^= 1;
        assert_eq!(pattern.difference(7, &changed), Some(20_001));
        for piece in [1, 512, 4096, 16_384] {
            let lost = [&good[..100], &good[100 + piece..]].concat();
            let at = pattern.difference(7, &lost).unwrap();
            assert!((100..110).contains(&at), "{piece}: {at}");
        }
        assert!(
            pattern
                .difference(Pattern::start(3), &stream(&pattern, Pattern::start(4), 64))
                .is_some()
        );
    }
}
