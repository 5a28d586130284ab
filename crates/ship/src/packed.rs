//! What compressed files hold, read at offsets as if they were not compressed.
//!
//! Reading goes forward; what is before that is at hand as far as a window goes back, and its beginning always. What is
//! in between is had by unpacking from the start again.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::fingerprint::HEAD;

/// How many unpacked bytes are kept.
const WINDOW: usize = 64 << 10;
/// Unpacked at once.
const CHUNK: usize = 64 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

/// An open compressed file that is whole.
pub(crate) struct Packed {
    file: Arc<File>,
    packing: Packing,
    /// How many bytes it holds.
    pub(crate) len: u64,
    reading: Mutex<Reading>,
}

struct Reading {
    unpacker: Box<dyn Read + Send>,
    /// How much was unpacked.
    at: u64,
    /// The last unpacked bytes.
    window: Vec<u8>,
    /// How it begins.
    head: Vec<u8>,
}

/// Reads a file from its start, whatever else does.
struct FromStart {
    file: Arc<File>,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packed")
            .field("packing", &self.packing)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Packed {
    /// Unpacks it once, to see whether it is whole and how much it holds.
    pub(crate) fn new(file: File, packing: Packing) -> io::Result<Packed> {
        let file = Arc::new(file);
        let mut reading = Reading::new(&file, packing)?;
        while reading.more()? > 0 {}
        let len = reading.at;
        Ok(Packed {
            file,
            packing,
            len,
            reading: Mutex::new(reading),
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Reads at `offset` until `into` is full or there is no more.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < into.len() && offset + (done as u64) < self.len {
            let at = offset + done as u64;
            let n = match reading.at_hand(at) {
                Some(bytes) => {
                    let n = bytes.len().min(into.len() - done);
                    into[done..done + n].copy_from_slice(&bytes[..n]);
                    n
                }
                None => {
                    if at < reading.at {
                        let head = std::mem::take(&mut reading.head);
                        *reading = Reading::new(&self.file, self.packing)?;
                        reading.head = head;
                    }
                    if reading.more()? == 0 {
                        return Err(io::Error::other("it is shorter than it was"));
                    }
                    0
                }
            };
            done += n;
        }
        Ok(done)
    }
}

impl Reading {
    fn new(file: &Arc<File>, packing: Packing) -> io::Result<Reading> {
        let from = FromStart {
            file: file.clone(),
            at: 0,
        };
        let unpacker: Box<dyn Read + Send> = match packing {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(from))),
            Packing::Zstd => Box::new(zstd::Decoder::new(from)?),
        };
        Ok(Reading {
            unpacker,
            at: 0,
            window: Vec::new(),
            head: Vec::new(),
        })
    }

    /// The unpacked bytes from `at` on, without unpacking more.
    fn at_hand(&self, at: u64) -> Option<&[u8]> {
        let begin = self.at - self.window.len() as u64;
        if at >= begin {
            // What is far ahead is not unpacked yet.
            let ahead = self.window.get((at - begin) as usize..);
            return ahead.filter(|rest| !rest.is_empty());
        }
        self.head.get(at as usize..).filter(|rest| !rest.is_empty())
    }

    /// Unpacks more; how many bytes.
    fn more(&mut self) -> io::Result<usize> {
        let surplus = self.window.len().saturating_sub(WINDOW);
        self.window.drain(..surplus);
        let before = self.window.len();
        self.window.resize(before + CHUNK, 0);
        let read = loop {
            match self.unpacker.read(&mut self.window[before..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.window
            .truncate(before + read.as_ref().map_or(0, |&n| n));
        let n = read?;
        if self.head.len() < HEAD && self.at == self.head.len() as u64 {
            let new = &self.window[before..];
            let wanted = new.len().min(HEAD - self.head.len());
            self.head.extend_from_slice(&new[..wanted]);
        }
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn written(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn what_it_holds_is_read_at_any_offset() {
        let mut rng = fastrand::Rng::with_seed(1);
        let text: Vec<u8> = std::iter::repeat_with(|| rng.alphanumeric() as u8)
            .take(300_000)
            .collect();
        // Several members one behind the other, as when compressed files are joined.
        let both = [gzip(&text[..100_000]), gzip(&text[100_000..])].concat();
        let frames = [
            zstd::encode_all(&text[..1000], 1).unwrap(),
            zstd::encode_all(&text[1000..], 1).unwrap(),
        ]
        .concat();
        for (bytes, packing) in [(both, Packing::Gzip), (frames, Packing::Zstd)] {
            let packed = Packed::new(written(&bytes), packing).unwrap();
            assert_eq!(packed.len, text.len() as u64);
            for _ in 0..50 {
                let at = rng.usize(..text.len());
                let mut into = vec![0; rng.usize(..100_000)];
                let n = packed.read_at(at as u64, &mut into).unwrap();
                assert_eq!(n, into.len().min(text.len() - at));
                assert!(into[..n] == text[at..at + n], "{at} {n}");
            }
            assert_eq!(packed.read_at(300_000, &mut [0; 8]).unwrap(), 0);
            // A packed file that is still being written is not taken for whole.
            let part = written(&bytes[..bytes.len() - 5]);
            assert!(Packed::new(part, packing).is_err());
        }
    }
}
