//! Arguments to numbers, as Redis reads them.

use super::Error;
pub use crate::number::parse_integer;
use crate::types::score;

/// A 64-bit integer in its one canonical form: no plus sign, no leading zeros or spaces.
///
/// # Errors
/// [`Error::NOT_INTEGER`].
#[inline]
pub fn integer(arg: &[u8]) -> Result<i64, Error> {
    parse_integer(arg).ok_or(Error::NOT_INTEGER)
}

/// A number; not a NaN.
///
/// # Errors
/// [`Error::NOT_FLOAT`].
pub fn float(arg: &[u8]) -> Result<f64, Error> {
    score::parse(arg).ok_or(Error::NOT_FLOAT)
}

/// An integer that means something else below zero, as a count from the other end does.
///
/// # Errors
/// [`Error::NOT_INTEGER`], and an error of its own for the one number that cannot be negated.
pub fn either_way(arg: &[u8]) -> Result<i64, Error> {
    match integer(arg)? {
        i64::MIN => Err(Error::new(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        n => Ok(n),
    }
}

/// Whether so many members with what belongs to each can be counted, as Redis counts.
///
/// # Errors
/// The error for a number beyond half of the range of an integer, positive or negative.
pub fn check_pairs(wanted: i64) -> Result<(), Error> {
    match wanted.unsigned_abs() > i64::MAX as u64 / 2 {
        true => Err(Error::new("ERR value is out of range")),
        false => Ok(()),
    }
}

/// The most members that are chosen by chance when one may be chosen again: the reply to more would
/// take all memory there is.
pub const SAMPLES_MAX: i64 = 1 << 24;

/// Checks a number of members to choose at random; with a negative number a member may be chosen
/// again. A missing key has no members, so any number is accepted for it.
///
/// # Errors
/// An error for a number less than minus [`SAMPLES_MAX`].
pub fn check_samples(wanted: i64) -> Result<(), Error> {
    match wanted < -SAMPLES_MAX {
        true => Err(Error::new("ERR value is out of range")),
        false => Ok(()),
    }
}

/// The parts in which so many members are chosen, as what [`either_way`] reads. Members that may be
/// chosen again can be many times as many as there are: they are not all held at once.
pub fn sample_parts(wanted: i64) -> impl Iterator<Item = i64> {
    const PART: i64 = 1024;
    let (mut left, mut first) = (wanted, true);
    std::iter::from_fn(move || {
        let part = left.max(-PART);
        let more = first || left < 0;
        first = false;
        left = if left < 0 { left - part } else { 0 };
        more.then_some(part)
    })
}

/// The options of a command that counts: `[LIMIT n]`, where 0 is no limit.
///
/// # Errors
/// An error if the options are not a LIMIT, or if the limit is below zero.
pub fn limit(options: &[&[u8]]) -> Result<usize, Error> {
    let mut limit = 0;
    for option in options.chunks(2) {
        match *option {
            [name, n] if is(name, "limit") => {
                let n = integer(n).ok().and_then(|n| usize::try_from(n).ok());
                limit = n.ok_or(Error::new("ERR LIMIT can't be negative"))?;
            }
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok(if limit == 0 { usize::MAX } else { limit })
}

/// A count of at least 0.
///
/// # Errors
/// [`Error::NOT_INTEGER`], or [`Error::NOT_POSITIVE`] below zero.
pub fn count(arg: &[u8]) -> Result<usize, Error> {
    usize::try_from(integer(arg)?).map_err(|_| Error::NOT_POSITIVE)
}

/// Whether an argument is this word, which is given in lower case.
#[inline]
#[must_use]
pub fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The timeout of a blocking command in seconds; `None` for 0, which waits for ever.
///
/// # Errors
/// An error if the argument is not a number, negative, or beyond 64 bits of milliseconds.
pub fn timeout(arg: &[u8]) -> Result<Option<std::time::Duration>, Error> {
    const RANGE: Error = Error::new("ERR timeout is not a float or out of range");
    let seconds = score::parse(arg).ok_or(RANGE)?;
    if seconds < 0.0 {
        return Err(Error::new("ERR timeout is negative"));
    }
    if seconds * 1000.0 > i64::MAX as f64 / 2.0 {
        return Err(Error::new("ERR timeout is out of range"));
    }
    // Rounded up: a tiny timeout is not one that waits for ever.
    let ms = (seconds * 1000.0).ceil() as u64;
    Ok((ms > 0).then(|| std::time::Duration::from_millis(ms)))
}

/// First and last index of an inclusive range within `len`; a negative number counts from the end.
/// `None` if the range is empty.
#[must_use]
pub fn range(start: i64, end: i64, len: usize) -> Option<(usize, usize)> {
    let n = len as i64;
    let from_end = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    let (start, end) = (from_end(start).max(0), from_end(end).min(n - 1));
    (start <= end && start < n).then_some((start as usize, end as usize))
}
