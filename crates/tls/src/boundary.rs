//! Where records end: read from their headers, before anything is decrypted.

/// Bytes of a record's header: its type, a version, and the length of what follows.
const HEADER: usize = 5;

/// The place within the record that is being read.
#[derive(Debug, Default)]
pub(crate) struct Boundary {
    /// The record's header, as far as it was read.
    header: [u8; HEADER],
    /// Bytes of the record that were read, header included; zero between two records.
    read: usize,
}

impl Boundary {
    /// Whether the next byte begins a record.
    #[inline]
    pub(crate) fn is_between(&self) -> bool {
        self.read == 0
    }

    /// How many of the next bytes of the stream belong to the record that is being read.
    #[inline]
    pub(crate) fn next(&self, bytes: &[u8]) -> usize {
        let mut header = self.header;
        if self.read < HEADER {
            let more = bytes.len().min(HEADER - self.read);
            header[self.read..self.read + more].copy_from_slice(&bytes[..more]);
            if self.read + more < HEADER {
                return more;
            }
        }
        bytes.len().min(len_by(header) - self.read)
    }

    /// These bytes were read. They do not go beyond [`next`](Boundary::next).
    #[inline]
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        if self.read < HEADER {
            let more = bytes.len().min(HEADER - self.read);
            self.header[self.read..self.read + more].copy_from_slice(&bytes[..more]);
        }
        self.read += bytes.len();
        if self.read >= HEADER && self.read >= len_by(self.header) {
            self.read = 0;
        }
    }
}

/// Bytes of the record with this header, which they include. A length that no record may have is rustls's affair.
#[inline]
fn len_by(header: [u8; HEADER]) -> usize {
    HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three records, the second of them empty, in pieces of every length.
    #[test]
    fn records_end_where_their_headers_say() {
        let lens = [3, 0, 300];
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for len in lens {
            stream.extend_from_slice(&[23, 3, 3, (len >> 8) as u8, len as u8]);
            stream.resize(stream.len() + len, 7);
            ends.push(stream.len());
        }
        for piece in 1..=stream.len() {
            let mut boundary = Boundary::default();
            let (mut at, mut seen) = (0, Vec::new());
            while at < stream.len() {
                let bytes = &stream[at..stream.len().min(at + piece)];
                let n = boundary.next(bytes);
                assert!(n > 0 && n <= bytes.len());
                boundary.pass(&bytes[..n]);
                at += n;
                if boundary.is_between() {
                    seen.push(at);
                }
            }
            assert_eq!(seen, ends, "in pieces of {piece}");
        }
    }
}
