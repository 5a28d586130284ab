//! Units: the effects of one command, transaction or removal, as bytes. Either the whole unit
//! counts, or none of it.
//!
//! The one idea: units are put together in the form of the log's records, so they are written once
//! and copied once. [docs/formats/kv-log.md](../../../../docs/formats/kv-log.md) draws the bytes.

use std::borrow::Cow;

use super::effect::{Effect, Gone, Mistakes};
use crate::number::{put_number, put_text};

/// Most bytes of a record's payload; a larger unit is several records.
pub const RECORD_MAX: usize = 1 << 20;

/// The id and the size in front of each record.
const FRAME: usize = 12;
/// Bytes of memory that units take at first: a short pipeline grows it never or once.
const FIRST: usize = 2 << 10;
/// First byte of a record: the unit continues in the next record, or ends in this one.
const GOES_ON: u8 = 1;
const ENDS: u8 = 2;
/// A unit that was begun before is never completed: the owner that was writing it has lost the
/// store to another owner.
const BREAKS_OFF: u8 = 3;

const COMMAND: u8 = 1;
const EXPIRED: u8 = 2;
const EVICTED: u8 = 3;

/// Units that are committed together, in order, and perhaps one more that is not closed.
#[derive(Debug, Default)]
pub struct Units {
    /// Whole records, then the one that is open.
    bytes: Vec<u8>,
    /// The start of the open unit; `bytes.len()` if the unit is empty.
    open: usize,
    records: u32,
    closed: u32,
    stamp: u64,
}

/// Why stored units are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

impl Units {
    /// No units yet. `stamp` becomes the id of the records: milliseconds since 1970.
    #[must_use]
    pub fn new(stamp: u64) -> Units {
        Units {
            stamp,
            ..Units::default()
        }
    }

    /// The most that a unit can cost that has this many arguments, with `bytes` bytes in them and in
    /// keys that may expire before it.
    #[must_use]
    pub fn bound(arguments: usize, bytes: usize) -> usize {
        // Ten bytes are the longest number; a run in the log has a header.
        let bytes = bytes + 12 * arguments + 32;
        bytes + (bytes / RECORD_MAX + 1) * (FRAME + 1) + 64
    }

    /// The cost of these units, in the sense of [`bound`](Units::bound), including open ones.
    #[must_use]
    pub fn cost(&self) -> usize {
        if self.bytes.is_empty() {
            0
        } else {
            self.bytes.len() + self.bytes.len() / RECORD_MAX * (FRAME + 1) + 64
        }
    }

    /// The cost of the open unit.
    #[must_use]
    pub fn open_cost(&self) -> usize {
        match self.bytes.len() - self.open {
            0 => 0,
            bytes => bytes + bytes / RECORD_MAX * (FRAME + 1) + 64,
        }
    }

    /// The records of all closed units, as the log takes them.
    #[must_use]
    pub fn frames(&self) -> &[u8] {
        &self.bytes[..self.open]
    }

    /// How many records that is.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// How many units are closed.
    #[must_use]
    pub fn closed(&self) -> u32 {
        self.closed
    }

    /// The id of all records.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Whether no unit is closed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Whether a unit has a change and is not closed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.bytes.len() > self.open
    }

    fn begin(&mut self) -> &mut Vec<u8> {
        if !self.is_open() {
            if self.bytes.capacity() == 0 {
                self.bytes.reserve(FIRST);
            }
            self.bytes.extend_from_slice(&self.stamp.to_le_bytes());
            self.bytes.extend_from_slice(&[0; 4]);
            self.bytes.push(ENDS);
        }
        &mut self.bytes
    }

    /// Adds a command to the open unit.
    pub fn command(&mut self, db: u16, args: &[&[u8]]) {
        let bytes = self.begin();
        bytes.extend_from_slice(&[COMMAND, db as u8]);
        put_number(bytes, args.len());
        for arg in args {
            put_text(bytes, arg);
        }
    }

    /// Adds the removal of a key to the open unit.
    pub fn removed(&mut self, db: u16, key: &[u8], why: Gone) {
        let bytes = self.begin();
        let kind = match why {
            Gone::Expired => EXPIRED,
            Gone::Evicted => EVICTED,
        };
        bytes.extend_from_slice(&[kind, db as u8]);
        put_text(bytes, key);
    }

    /// Closes the open unit, if there is one.
    pub fn close(&mut self) {
        if !self.is_open() {
            return;
        }
        let size = self.bytes.len() - self.open - FRAME;
        if size > RECORD_MAX {
            self.split();
        } else {
            self.bytes[self.open + 8..self.open + FRAME]
                .copy_from_slice(&(size as u32).to_le_bytes());
            self.records += 1;
        }
        self.closed += 1;
        self.open = self.bytes.len();
    }

    /// Makes several records of the open unit.
    #[cold]
    fn split(&mut self) {
        let unit = self.bytes.split_off(self.open);
        let pieces = unit[FRAME + 1..].chunks(RECORD_MAX - 1);
        let last = pieces.len() - 1;
        for (at, piece) in pieces.enumerate() {
            self.bytes.extend_from_slice(&self.stamp.to_le_bytes());
            self.bytes
                .extend_from_slice(&(piece.len() as u32 + 1).to_le_bytes());
            self.bytes.push(if at == last { ENDS } else { GOES_ON });
            self.bytes.extend_from_slice(piece);
            self.records += 1;
        }
    }

    /// A record by which a log that goes on where another has ended says that a unit which is open there counts for nothing.
    #[must_use]
    pub fn break_off(stamp: u64) -> Units {
        let mut bytes = stamp.to_le_bytes().to_vec();
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.push(BREAKS_OFF);
        Units {
            open: bytes.len(),
            bytes,
            records: 1,
            closed: 0,
            stamp,
        }
    }

    /// Forgets the closed units, which were committed.
    pub fn clear(&mut self) {
        self.bytes.drain(..self.open);
        (self.open, self.records, self.closed) = (0, 0, 0);
    }

    /// Shows the effects of each closed unit.
    ///
    /// # Panics
    /// This cannot fail: bytes that were encoded here can be decoded.
    pub fn each(&self, mut unit: impl FnMut(&[(u16, Effect<'_>)])) {
        let (mut reader, mut rest) = (Reader::default(), self.frames());
        while let Some((_, payload, behind)) = split_frame(rest) {
            rest = behind;
            if let Some(whole) = reader.record(payload).expect("was put together here") {
                unit(&effects(&whole).expect("was put together here"));
            }
        }
    }
}

/// The id of the first of `frames`, its payload, and the frames behind it; `None` at their end.
pub(crate) fn split_frame(frames: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (head, rest) = frames.split_at_checked(FRAME)?;
    let id = u64::from_le_bytes(*head.first_chunk()?);
    let size = u32::from_le_bytes(head[8..].try_into().ok()?) as usize;
    let (payload, rest) = rest.split_at_checked(size)?;
    Some((id, payload, rest))
}

/// Puts units together again from the payloads of records.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes of the unit that is not closed yet.
    unit: Vec<u8>,
    mistakes: Mistakes,
}

impl Reader {
    /// Makes the planted mistakes.
    pub(crate) fn with_mistakes(mistakes: Mistakes) -> Reader {
        Reader {
            mistakes,
            ..Reader::default()
        }
    }

    /// Whether a unit was begun that is not closed.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        !self.unit.is_empty()
    }

    /// Takes the next record; if it closes a unit, the bytes of that, for [`effects`].
    ///
    /// # Errors
    /// The record is not part of a unit.
    pub fn record<'a>(&mut self, payload: &'a [u8]) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
        let (&kind, rest) = payload.split_first().ok_or(Malformed("an empty record"))?;
        match kind {
            ENDS if self.unit.is_empty() => Ok(Some(Cow::Borrowed(rest))),
            ENDS => {
                self.unit.extend_from_slice(rest);
                Ok(Some(Cow::Owned(std::mem::take(&mut self.unit))))
            }
            GOES_ON if self.mistakes.makes(|mistakes| mistakes.play_unclosed) => {
                Ok(Some(Cow::Borrowed(rest)))
            }
            GOES_ON => {
                self.unit.extend_from_slice(rest);
                Ok(None)
            }
            BREAKS_OFF if rest.is_empty() => {
                if !self.mistakes.makes(|mistakes| mistakes.join_units) {
                    self.unit.clear();
                }
                Ok(None)
            }
            _ => Err(Malformed("a record of an unknown kind")),
        }
    }
}

/// The effects of a unit, in order.
///
/// # Errors
/// The record's bytes are not those of a unit.
pub fn effects(unit: &[u8]) -> Result<Vec<(u16, Effect<'_>)>, Malformed> {
    EffectsOf(unit).collect()
}

/// The remaining effects of a unit, one after another; the iteration ends at a malformed effect.
pub(crate) struct EffectsOf<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for EffectsOf<'a> {
    type Item = Result<(u16, Effect<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        match rest {
            [] => None,
            [kind, db, behind @ ..] => {
                let effect = take_effect(*kind, behind);
                Some(effect.map(|(effect, behind)| {
                    self.0 = behind;
                    (u16::from(*db), effect)
                }))
            }
            [_] => Some(Err(Malformed("a unit with a byte too many"))),
        }
    }
}

fn take_effect(kind: u8, mut rest: &[u8]) -> Result<(Effect<'_>, &[u8]), Malformed> {
    let effect = match kind {
        COMMAND => {
            let count = take_number(&mut rest)?;
            // Each has a length of a byte at least.
            let mut args = Vec::with_capacity(count.min(rest.len()));
            for _ in 0..count {
                args.push(take(&mut rest)?);
            }
            Effect::Command(args)
        }
        EXPIRED => Effect::Removed(take(&mut rest)?, Gone::Expired),
        EVICTED => Effect::Removed(take(&mut rest)?, Gone::Evicted),
        _ => return Err(Malformed("an effect of an unknown kind")),
    };
    Ok((effect, rest))
}

/// A number as [`put_number`] writes it.
pub(super) fn take_number(bytes: &mut &[u8]) -> Result<usize, Malformed> {
    let mut n = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes
            .split_first()
            .ok_or(Malformed("a number without an end"))?;
        *bytes = rest;
        n |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(n);
        }
    }
    Err(Malformed("a number that is too large"))
}

/// A text with its length in front.
pub(super) fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = take_number(bytes)?;
    let (taken, rest) = bytes
        .split_at_checked(len)
        .ok_or(Malformed("a text longer than what it is in"))?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(units: &Units) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        units.each(|unit| all.push(unit.iter().map(|effect| format!("{effect:?}")).collect()));
        all
    }

    #[test]
    fn what_is_put_in_comes_out_unit_by_unit() {
        let mut units = Units::new(7);
        units.command(3, &[b"SET", b"k", b""]);
        units.removed(0, b"gone", Gone::Evicted);
        units.close();
        units.close();
        let large = vec![9; 3 * RECORD_MAX];
        units.command(255, &[b"SET", b"large", &large]);
        units.close();
        units.command(0, &[b"DEL", b"k"]);
        assert!(units.is_open());
        let all = shown(&units);
        assert_eq!(all.len(), 2, "what is not closed is not shown");
        assert_eq!(all[0].len(), 2);
        assert_eq!(units.records(), 1 + 4);
        let bound = Units::bound(3, 8 + large.len());
        let size = units.frames().len();
        assert!(size < bound + 200 && bound < size + 200, "{size} {bound}");
        units.clear();
        assert!(units.is_empty() && units.is_open());
        units.close();
        assert_eq!(shown(&units).len(), 1);
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let mut units = Units::new(1);
        units.command(0, &[b"SET", b"k", b"v"]);
        units.removed(2, b"x", Gone::Expired);
        units.close();
        let expected: &[u8] =
            b"\x01\0\0\0\0\0\0\0\x10\0\0\0\x02\x01\0\x03\x03SET\x01k\x01v\x02\x02\x01x";
        assert_eq!(units.frames(), expected);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [&b""[..], b"\x03\x01", b"\x04", b"\x00\x01"] {
            assert!(Reader::default().record(bad).is_err(), "{bad:?}");
        }
        for bad in [
            &b"\x02\x01"[..],
            b"\x02\x09\0\0",
            b"\x02\x01\0\x05",
            b"\x02\x02\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x02\x01\0\xff\xff\xff\xff\xff\xff\xff\x7f",
        ] {
            let mut reader = Reader::default();
            let unit = reader.record(bad).unwrap().expect("a whole unit");
            assert!(effects(&unit).is_err(), "{bad:?}");
        }
    }
}
