//! Numbers of variable length, as in the log and in snapshots, up to 64 bits.

use super::id::StreamId;

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
#[inline]
pub(super) fn put(bytes: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

/// A text with its length in front.
#[inline]
pub(super) fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    put(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

pub(super) fn put_id(bytes: &mut Vec<u8>, id: StreamId) {
    put(bytes, id.ms);
    put(bytes, id.seq);
}

/// Takes a number from the front; `None` if there is none.
#[inline(always)]
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    take_long(bytes, u64::from(first & 0x7f))
}

fn take_long(bytes: &mut &[u8], mut n: u64) -> Option<u64> {
    for at in 1..10 {
        let (&next, rest) = bytes.split_first()?;
        *bytes = rest;
        if at == 9 && next > 1 {
            return None;
        }
        n |= u64::from(next & 0x7f) << (7 * at);
        if next < 0x80 {
            return Some(n);
        }
    }
    None
}

#[inline]
pub(super) fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(text)
}

pub(super) fn take_id(bytes: &mut &[u8]) -> Option<StreamId> {
    Some(StreamId {
        ms: take(bytes)?,
        seq: take(bytes)?,
    })
}

/// Bytes that a number takes.
#[inline]
pub(super) fn size(n: u64) -> usize {
    (70 - (n | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken_and_nothing_else() {
        for n in [0, 1, 127, 128, 16_383, 16_384, u64::MAX / 2, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, n);
            assert_eq!(bytes.len(), size(n), "{n}");
            assert_eq!(take(&mut &bytes[..]), Some(n));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take(&mut &[0xff; 12][..]), None);
        assert_eq!(take_text(&mut &b"\x05abcd"[..]), None);
    }
}
