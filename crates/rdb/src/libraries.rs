//! Libraries of functions: in a file they stand before the keys; FUNCTION DUMP gives them alone, with the version and
//! the checksum of a file behind.

use crate::crc;
use crate::cursor::Cursor;
use crate::write::{LIBRARY, string};

/// The version that is written.
const VERSION: u16 = 10;
/// Newest version that is read, of Redis and of Valkey.
const VERSION_MAX: u16 = 80;
/// Bytes of the version and the checksum.
const FOOT: usize = 10;
/// Bytes that the texts of a dump may take: a few packed ones can say gigabytes.
const TEXTS_MAX: usize = 256 << 20;

/// The texts of libraries, as FUNCTION DUMP gives them.
#[must_use]
pub fn dump_libraries<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut dump = Vec::new();
    for text in texts {
        dump.push(LIBRARY);
        string(&mut dump, text);
    }
    dump.extend_from_slice(&VERSION.to_le_bytes());
    let sum = crc::append(0, &dump);
    dump.extend_from_slice(&sum.to_le_bytes());
    dump
}

/// The texts of the libraries in a dump; `None` if the bytes are no such dump, are damaged, or are
/// of a later version.
#[must_use]
pub fn read_libraries(dump: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (body, foot) = dump.split_at_checked(dump.len().checked_sub(FOOT)?)?;
    let (version, sum) = foot.split_first_chunk::<2>()?;
    let sum = u64::from_le_bytes(sum.try_into().ok()?);
    if u16::from_le_bytes(*version) > VERSION_MAX {
        return None;
    }
    // A sum of zero means that the writer makes no checksum.
    if sum != 0 && sum != crc::append(0, &dump[..dump.len() - 8]) {
        return None;
    }
    let (mut cursor, mut texts) = (Cursor::of_all(body, TEXTS_MAX), Vec::new());
    while cursor.at() < body.len() {
        if cursor.byte().ok()? != LIBRARY {
            return None;
        }
        texts.push(cursor.string().ok()?);
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dumped_is_read_and_nothing_else() {
        let texts: [&[u8]; 3] = [b"#!lua name=a\nx", b"", &[7; 70_000]];
        let dump = dump_libraries(texts);
        assert_eq!(read_libraries(&dump).unwrap(), texts);
        assert_eq!(read_libraries(&dump_libraries([])).unwrap().len(), 0);
        for at in 0..40 {
            let mut bad = dump.clone();
            bad[at] ^= 1;
            assert!(read_libraries(&bad).is_none(), "{at}");
        }
        for len in 0..dump.len().min(200) {
            assert!(read_libraries(&dump[..len]).is_none(), "{len}");
        }
    }
}
