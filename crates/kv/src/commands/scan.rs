//! The options of HSCAN, SSCAN and ZSCAN, and their replies.

use super::parse::{integer, is};
use super::{Ctx, Error};
use crate::types::glob::Glob;

/// The given pattern; `None` for a single star, which matches everything.
///
/// # Errors
/// The pattern is too long.
pub(super) fn pattern(arg: &[u8]) -> Result<Option<Glob>, Error> {
    if arg == b"*" {
        return Ok(None);
    }
    let glob = Glob::new(arg).ok_or(Error::new("ERR pattern is longer than 65536 bytes"))?;
    Ok(Some(glob))
}

/// The arguments of a collection's scan.
pub(super) struct Scan {
    pub(super) cursor: u64,
    pub(super) count: usize,
    pattern: Option<Glob>,
    /// Only fields or members, without their values or scores.
    pub(super) bare: bool,
}

impl Scan {
    /// The cursor of a SCAN. A malformed cursor is an error even if the key is missing; malformed
    /// options are then not looked at.
    pub(super) fn cursor(arg: &[u8]) -> Result<u64, Error> {
        let cursor = std::str::from_utf8(arg).ok().and_then(|s| s.parse().ok());
        cursor.ok_or(Error::new("ERR invalid cursor"))
    }

    /// From a cursor and `[MATCH pattern] [COUNT n] [NOVALUES]`, or NOSCORES in its place. `command` is the one that scans.
    pub(super) fn parse(cursor: u64, command: &str, options: &[&[u8]]) -> Result<Scan, Error> {
        let mut scan = Scan {
            cursor,
            count: 10,
            pattern: None,
            bare: false,
        };
        let mut options = options.iter();
        while let Some(name) = options.next() {
            if Scan::is_bare(name, command)? {
                scan.bare = true;
                continue;
            }
            let Some(value) = options.next() else {
                return Err(Error::SYNTAX);
            };
            if is(name, "match") {
                scan.pattern = pattern(value)?;
            } else if is(name, "count") {
                let count = integer(value)?;
                if count < 1 {
                    return Err(Error::SYNTAX);
                }
                scan.count = count as usize;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(scan)
    }

    /// Whether it is the option by which a command leaves something out.
    ///
    /// # Errors
    /// It is that of another command.
    pub(super) fn is_bare(option: &[u8], command: &str) -> Result<bool, Error> {
        if is(option, "novalues") && command != "hscan" {
            return Err(Error::new("ERR NOVALUES option can only be used in HSCAN"));
        }
        if is(option, "noscores") && command != "zscan" {
            return Err(Error::new("ERR NOSCORES option can only be used in ZSCAN"));
        }
        Ok(is(option, "novalues") || is(option, "noscores"))
    }

    pub(super) fn shows(&self, element: &[u8]) -> bool {
        self.pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches(element))
    }

    /// Writes the reply: the next cursor and the found elements.
    pub(super) fn reply(ctx: &mut Ctx<'_, '_>, next: u64, found: &[Vec<u8>]) {
        ctx.reply.array(2);
        ctx.reply.bulk(next.to_string().as_bytes());
        ctx.reply.array(found.len());
        found.iter().for_each(|element| ctx.reply.bulk(element));
    }
}
