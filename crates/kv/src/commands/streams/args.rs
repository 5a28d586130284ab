//! Arguments of stream commands: ids, ranges of them, and what is added and trimmed.

use super::super::Error;
use super::super::parse::{integer, is};
use crate::number;
use crate::types::{StreamId, Trim};

const INVALID: Error = Error::new("ERR Invalid stream ID specified as stream command argument");
/// Longest text of an id.
const ID_MAX: usize = 127;
/// Entries that an inexact trim removes at most, unless it is told how many: a hundred blocks.
const TRIMMED_MAX: u64 = 10_000;

/// A 64-bit number of an id, read like Redis does: a text that is not written as Redis writes numbers is
/// read by C's rules.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(n) = number::parse_integer(text) {
        return u64::try_from(n).ok();
    }
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(blank).count()..];
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let n = digits.iter().try_fold(0u64, |n, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { n.wrapping_neg() } else { n })
}

/// The two numbers of an id; the second is `None` if there is only one, and may be a star.
fn parts(arg: &[u8]) -> Result<(u64, Option<&[u8]>), Error> {
    if arg.len() > ID_MAX {
        return Err(INVALID);
    }
    let text = arg.split(|byte| *byte == 0).next().unwrap_or_default();
    let dash = text.iter().position(|byte| *byte == b'-');
    let (ms, seq) = match dash {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    Ok((unsigned(ms).ok_or(INVALID)?, seq))
}

/// An id; `missing_seq` is its second number if it has only one.
pub(crate) fn id(arg: &[u8], missing_seq: u64) -> Result<StreamId, Error> {
    let (ms, seq) = parts(arg)?;
    let seq = match seq {
        Some(seq) => unsigned(seq).ok_or(INVALID)?,
        None => missing_seq,
    };
    Ok(StreamId { ms, seq })
}

/// An id, or the first or last there can be.
pub(super) fn id_or_end(arg: &[u8], missing_seq: u64) -> Result<StreamId, Error> {
    match arg {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => id(arg, missing_seq),
    }
}

/// The first id of a range, which may be exclusive.
pub(super) fn start(arg: &[u8]) -> Result<StreamId, Error> {
    match arg {
        [b'(', rest @ ..] if !rest.is_empty() => id(rest, 0)?
            .next()
            .ok_or(Error::new("ERR invalid start ID for the interval")),
        _ => id_or_end(arg, 0),
    }
}

/// The last id of a range, which may be exclusive.
fn end(arg: &[u8]) -> Result<StreamId, Error> {
    match arg {
        [b'(', rest @ ..] if !rest.is_empty() => id(rest, u64::MAX)?
            .before()
            .ok_or(Error::new("ERR invalid end ID for the interval")),
        _ => id_or_end(arg, u64::MAX),
    }
}

/// A range of ids, both included.
pub(crate) fn interval(from: &[u8], to: &[u8]) -> Result<(StreamId, StreamId), Error> {
    Ok((start(from)?, end(to)?))
}

/// The id of an entry that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adding {
    /// The server chooses the id, by the clock.
    Any,
    /// Ids of this time.
    Within(u64),
    /// Exactly this id.
    Exactly(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trimming {
    pub(super) what: Trim,
    /// Whether only whole blocks are trimmed.
    pub(super) whole: bool,
    /// At most so many entries; 0 for any number.
    pub(super) limit: u64,
}

/// The arguments of XADD.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) id: Adding,
    pub(super) trim: Option<Trimming>,
    /// No stream is made.
    pub(super) only_existing: bool,
    /// The place of the first field among the arguments.
    pub(super) fields: usize,
}

/// The options of XADD and XTRIM as they are read.
#[derive(Default)]
struct Options {
    what: Option<Trim>,
    whole: bool,
    limit: Option<u64>,
    only_existing: bool,
}

impl Options {
    /// Reads the option at `at`, if it is one of trimming; where the next argument is.
    fn take(&mut self, args: &[&[u8]], at: usize) -> Result<Option<usize>, Error> {
        let (name, rest) = (args[at], &args[at + 1..]);
        let is_maxlen = is(name, "maxlen");
        if rest.is_empty() {
            return Ok(None);
        }
        if is_maxlen || is(name, "minid") {
            if self.what.is_some() {
                return Err(Error::new(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            let (value, next) = match *rest {
                [b"~" | b"=", value, ..] => (value, at + 3),
                _ => (rest[0], at + 2),
            };
            self.whole = next == at + 3 && rest[0] == b"~";
            self.what = Some(if is_maxlen {
                let n = u64::try_from(integer(value)?);
                Trim::MaxLen(n.map_err(|_| Error::new("ERR The MAXLEN argument must be >= 0."))?)
            } else {
                Trim::MinId(id(value, 0)?)
            });
            return Ok(Some(next));
        }
        if is(name, "limit") {
            let n = u64::try_from(integer(rest[0])?);
            self.limit = Some(n.map_err(|_| Error::new("ERR The LIMIT argument must be >= 0."))?);
            return Ok(Some(at + 2));
        }
        Ok(None)
    }

    fn trimming(&self) -> Result<Option<Trimming>, Error> {
        let Some(what) = self.what else {
            return match self.limit {
                Some(1..) => Err(Error::new(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                )),
                _ => Ok(None),
            };
        };
        let limit = match self.limit {
            Some(_) if !self.whole => {
                return Err(Error::new(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            Some(limit) => limit,
            None if self.whole => TRIMMED_MAX,
            None => 0,
        };
        Ok(Some(Trimming {
            what,
            whole: self.whole,
            limit,
        }))
    }
}

impl Added {
    pub(super) fn parse(args: &[&[u8]]) -> Result<Added, Error> {
        let (mut options, mut at) = (Options::default(), 2);
        let mut added = None;
        while let Some(&arg) = args.get(at) {
            if arg == b"*" {
                added = Some(Adding::Any);
                break;
            }
            if let Some(next) = options.take(args, at)? {
                at = next;
            } else if is(arg, "nomkstream") {
                options.only_existing = true;
                at += 1;
            } else {
                added = Some(match parts(arg)? {
                    (ms, Some(b"*")) => Adding::Within(ms),
                    _ => Adding::Exactly(id(arg, 0)?),
                });
                break;
            }
        }
        let trim = options.trimming()?;
        let id = added.ok_or_else(|| Error::arity("xadd"))?;
        Ok(Added {
            id,
            trim,
            only_existing: options.only_existing,
            fields: at + 1,
        })
    }
}

impl Trimming {
    pub(super) fn parse(args: &[&[u8]]) -> Result<Trimming, Error> {
        let (mut options, mut at) = (Options::default(), 2);
        while at < args.len() {
            at = options.take(args, at)?.ok_or(Error::SYNTAX)?;
        }
        let trim = options.trimming()?;
        trim.ok_or(Error::new(
            "ERR syntax error, XTRIM must be called with a trimming strategy",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_does() {
        let read = |text: &str| id(text.as_bytes(), 9).ok().map(|id| (id.ms, id.seq));
        for (text, ms, seq) in [
            ("5", 5, 9),
            ("5-7", 5, 7),
            ("0-0", 0, 0),
            ("007-+1", 7, 1),
            (" 7- 1", 7, 1),
            ("5--07", 5, 7u64.wrapping_neg()),
            ("18446744073709551615-1", u64::MAX, 1),
            ("5\0x", 5, 9),
        ] {
            assert_eq!(read(text), Some((ms, seq)), "{text}");
        }
        for bad in [
            "",
            "-",
            "+",
            "-5",
            "5-",
            "5--7",
            "5-1-1",
            "18446744073709551616",
            "1.5",
            "5-*",
            "*",
            "x",
            "5 ",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(id(&[b'1'; 128], 0).is_err());
    }
}
