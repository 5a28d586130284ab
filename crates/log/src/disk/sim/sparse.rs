//! Bytes of a file of which most may never have been written: only bytes up to the last written one
//! take memory, so that reserving room for a segment costs a test nothing.

#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    /// The stored bytes; behind them are zeros, up to `len`.
    stored: Vec<u8>,
    len: usize,
}

impl Sparse {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.stored.clone();
        bytes.resize(self.len, 0);
        bytes
    }

    pub(super) fn resize(&mut self, len: usize) {
        self.stored.truncate(len);
        self.len = len;
    }

    /// Reads what there is from an offset on; how many bytes that is.
    pub(super) fn read(&self, into: &mut [u8], offset: usize) -> usize {
        let count = into.len().min(self.len.saturating_sub(offset));
        let stored = self.stored.get(offset..).unwrap_or_default();
        let stored = &stored[..stored.len().min(count)];
        into[..stored.len()].copy_from_slice(stored);
        into[stored.len()..count].fill(0);
        count
    }

    /// Writes what the length has room for.
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let bytes = &bytes[..bytes.len().min(self.len.saturating_sub(offset))];
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return;
        }
        if end > self.stored.len() {
            self.stored.resize(end, 0);
        }
        self.stored[offset..end].copy_from_slice(bytes);
    }

    /// Turns bits of a byte over, if it is there.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) {
        let mut byte = [0];
        if self.read(&mut byte, offset) == 1 {
            self.write(&[byte[0] ^ mask], offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal operations on plain bytes give equal results.
    #[test]
    fn what_was_never_written_is_zeros() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut sparse, mut plain) = (Sparse::default(), Vec::new());
        for _ in 0..5000 {
            let at = rng.usize(..300);
            match rng.u8(..4) {
                0 => {
                    sparse.resize(at);
                    plain.resize(at, 0);
                }
                1 => {
                    sparse.flip(at, 4);
                    plain
                        .iter_mut()
                        .skip(at)
                        .take(1)
                        .for_each(|byte| *byte ^= 4);
                }
                _ => {
                    let bytes: Vec<u8> = (0..rng.usize(..50)).map(|_| rng.u8(..)).collect();
                    sparse.write(&bytes, at);
                    let room = plain.iter_mut().skip(at);
                    room.zip(bytes).for_each(|(byte, new)| *byte = new);
                }
            }
            assert_eq!(
                (sparse.to_vec(), sparse.len()),
                (plain.clone(), plain.len())
            );
            let mut read = [7; 40];
            let count = sparse.read(&mut read, at);
            assert_eq!(read[..count], plain[at.min(plain.len())..][..count]);
            assert_eq!(count, 40.min(plain.len().saturating_sub(at)));
        }
    }
}
