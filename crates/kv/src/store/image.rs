//! The bytes of keys with their values, of which snapshots are made. `docs/formats/kv-snapshot.md` draws
//! them.
//!
//! The one idea: an item belongs to one key and says everything about it, so items can be put into a
//! store in any order, and by several threads. A large value is several items.

use super::unit::{Malformed, take, take_number};
use super::value::{Kind, ValueRef};
use crate::number::{put_number, put_text};
use crate::types::Piece;

const STRING: u8 = 1;
const STRING_PIECE: u8 = 2;
const LIST: u8 = 3;
const LIST_BLOCK: u8 = 4;
const SET: u8 = 5;
const HASH: u8 = 6;
const ZSET: u8 = 7;
const STREAM: u8 = 8;
const LIBRARY: u8 = 9;

/// The key that a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Head<'k> {
    pub(crate) db: u16,
    /// The key's deadline: milliseconds since 1970.
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) key: &'k [u8],
}

impl Head<'_> {
    fn put(self, kind: u8, to: &mut Vec<u8>) {
        to.extend_from_slice(&[kind, self.db as u8]);
        // Far above what a time in milliseconds can be, so that 0 is free to say that there is none.
        let deadline = self
            .deadline_ms
            .map_or(0, |at| at.min(1 << 62) as usize + 1);
        put_number(to, deadline);
        put_text(to, self.key);
    }
}

/// Writes a whole value.
pub(crate) fn put_value(head: Head<'_>, value: ValueRef<'_>, to: &mut Vec<u8>) {
    match value {
        ValueRef::Str(s) => {
            head.put(STRING, to);
            put_text(to, s);
        }
        ValueRef::List(list) => {
            head.put(LIST, to);
            put_number(to, list.len());
            list.iter_from(0).for_each(|element| put_text(to, &element));
        }
        ValueRef::Set(set) => {
            head.put(SET, to);
            put_number(to, set.len());
            set.each(|member| put_text(to, member));
        }
        ValueRef::Hash(hash) => {
            head.put(HASH, to);
            put_number(to, hash.len());
            hash.each(|field, value| {
                put_text(to, field);
                put_text(to, value);
            });
        }
        ValueRef::ZSet(zset) => {
            head.put(ZSET, to);
            put_number(to, zset.len());
            for scored in zset.iter() {
                to.extend_from_slice(&scored.score.to_le_bytes());
                put_text(to, &scored.member);
            }
        }
        ValueRef::Stream(stream) => {
            let mut parts = Vec::new();
            let count = stream.put_parts(&mut parts);
            head.put(STREAM, to);
            put_number(to, count);
            to.extend_from_slice(&parts);
        }
    }
}

/// Writes bytes of a string that has `len` of them.
pub(crate) fn put_string_piece(
    head: Head<'_>,
    len: usize,
    offset: usize,
    bytes: &[u8],
    to: &mut Vec<u8>,
) {
    head.put(STRING_PIECE, to);
    put_number(to, len);
    put_number(to, offset);
    put_text(to, bytes);
}

/// Writes elements of a collection; `blocks` is how many blocks a list has.
pub(crate) fn put_piece(
    head: Head<'_>,
    kind: Kind,
    blocks: usize,
    piece: &Piece,
    to: &mut Vec<u8>,
) {
    let item = match kind {
        Kind::List => LIST_BLOCK,
        Kind::Set => SET,
        Kind::Hash => HASH,
        Kind::ZSet => ZSET,
        Kind::Stream => STREAM,
        Kind::Str => unreachable!("a string has no elements"),
    };
    head.put(item, to);
    if kind == Kind::List {
        put_number(to, blocks);
        put_number(to, piece.number as usize);
    }
    put_number(to, piece.count);
    to.extend_from_slice(&piece.bytes);
}

/// Writes a library of functions.
pub(crate) fn put_library(name: &[u8], code: &[u8], to: &mut Vec<u8>) {
    let head = Head {
        db: 0,
        deadline_ms: None,
        key: name,
    };
    head.put(LIBRARY, to);
    put_text(to, code);
}

/// The part of a value that an item holds.
#[derive(Debug, PartialEq)]
pub(crate) enum Part<'a> {
    /// All of a string.
    String(&'a [u8]),
    /// Some bytes of a string whose length is `len`.
    StringPiece {
        len: usize,
        offset: usize,
        bytes: &'a [u8],
    },
    /// All of a list.
    List(Vec<&'a [u8]>),
    /// One of the blocks of a list.
    ListBlock {
        blocks: usize,
        number: usize,
        elements: Vec<&'a [u8]>,
    },
    /// Members of a set, perhaps not all.
    Set(Vec<&'a [u8]>),
    /// Fields and values in turn, perhaps not all.
    Hash(Vec<&'a [u8]>),
    /// Members with their scores; the part may hold only some of the members.
    ZSet(Vec<(f64, &'a [u8])>),
    /// Parts of a stream, perhaps not all.
    Stream(Vec<&'a [u8]>),
    /// The text of a library of functions, whose name stands for the key.
    Library(&'a [u8]),
}

/// Shows the items that `bytes` are.
///
/// # Errors
/// The bytes are no items, or `show` says why not.
pub(crate) fn each<'a>(
    mut bytes: &'a [u8],
    mut show: impl FnMut(Head<'a>, Part<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while let [kind, db, rest @ ..] = bytes {
        bytes = rest;
        let deadline = take_number(&mut bytes)?;
        let head = Head {
            db: u16::from(*db),
            deadline_ms: deadline.checked_sub(1).map(|at| at as u64),
            key: take(&mut bytes)?,
        };
        show(head, part(*kind, &mut bytes)?)?;
    }
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Malformed("an item with a byte too many"))
    }
}

fn part<'a>(kind: u8, bytes: &mut &'a [u8]) -> Result<Part<'a>, Malformed> {
    Ok(match kind {
        STRING => Part::String(take(bytes)?),
        STRING_PIECE => {
            let (len, offset) = (take_number(bytes)?, take_number(bytes)?);
            let bytes = take(bytes)?;
            let end = offset.checked_add(bytes.len());
            if end.is_none_or(|end| end > len) {
                return Err(Malformed("a piece beyond the end of its string"));
            }
            Part::StringPiece { len, offset, bytes }
        }
        LIST => Part::List(texts(bytes, 1)?),
        LIST_BLOCK => {
            let (blocks, number) = (take_number(bytes)?, take_number(bytes)?);
            if number >= blocks {
                return Err(Malformed("a block that its list does not have"));
            }
            let elements = texts(bytes, 1)?;
            Part::ListBlock {
                blocks,
                number,
                elements,
            }
        }
        SET => Part::Set(texts(bytes, 1)?),
        HASH => Part::Hash(texts(bytes, 2)?),
        ZSET => {
            let count = take_number(bytes)?;
            let mut members = Vec::with_capacity(count.min(bytes.len() / 9));
            for _ in 0..count {
                let (score, rest) = bytes
                    .split_first_chunk()
                    .ok_or(Malformed("a score without an end"))?;
                *bytes = rest;
                let score = f64::from_le_bytes(*score);
                if score.is_nan() {
                    return Err(Malformed("a score that is no number"));
                }
                members.push((score, take(bytes)?));
            }
            Part::ZSet(members)
        }
        STREAM => Part::Stream(texts(bytes, 1)?),
        LIBRARY => Part::Library(take(bytes)?),
        _ => return Err(Malformed("an item of an unknown kind")),
    })
}

/// As many texts as a number in front says, times `each`.
fn texts<'a>(bytes: &mut &'a [u8], each: usize) -> Result<Vec<&'a [u8]>, Malformed> {
    let count = take_number(bytes)?.saturating_mul(each);
    // Each has a length of a byte at least.
    let mut texts = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        texts.push(take(bytes)?);
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head<'static> = Head {
        db: 3,
        deadline_ms: Some(1),
        key: b"k",
    };

    #[test]
    fn the_bytes_are_as_documented() {
        let mut bytes = Vec::new();
        put_value(HEAD, ValueRef::Str(b"v"), &mut bytes);
        assert_eq!(bytes, b"\x01\x03\x02\x01k\x01v");
        bytes.clear();
        let mut zset = crate::types::ZSet::default();
        zset.insert(b"m", 1.5, crate::types::Fit::ZSET);
        let head = Head {
            deadline_ms: None,
            ..HEAD
        };
        put_value(head, ValueRef::ZSet(&zset), &mut bytes);
        assert_eq!(bytes, b"\x07\x03\0\x01k\x01\0\0\0\0\0\0\xf8\x3f\x01m");
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        put_string_piece(HEAD, 10, 4, b"six...", &mut bytes);
        let piece = Piece {
            number: 2,
            count: 2,
            bytes: b"\x01a\x02bc".to_vec(),
        };
        put_piece(HEAD, Kind::List, 3, &piece, &mut bytes);
        put_piece(HEAD, Kind::Set, 0, &piece, &mut bytes);
        let mut parts = Vec::new();
        each(&bytes, |head, part| {
            assert_eq!(head, HEAD);
            parts.push(part);
            Ok(())
        })
        .unwrap();
        let expected = [
            Part::StringPiece {
                len: 10,
                offset: 4,
                bytes: b"six...",
            },
            Part::ListBlock {
                blocks: 3,
                number: 2,
                elements: vec![b"a", b"bc"],
            },
            Part::Set(vec![b"a", b"bc"]),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            &b"\x01"[..],
            b"\x09\0\0\x01k",
            b"\x01\0\0\x01k\x05v",
            b"\x02\0\0\x01k\x02\x01\x02vv",
            b"\x04\0\0\x01k\x02\x02\x01\x01v",
            b"\x05\0\0\x01k\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x07\0\0\x01k\x01\0\0\0\0\0\0\xf8\x7f\x01m",
            b"\x07\0\0\x01k\x01\0\0\0\0",
        ] {
            assert!(each(bad, |_, _| Ok(())).is_err(), "{bad:?}");
        }
    }
}
