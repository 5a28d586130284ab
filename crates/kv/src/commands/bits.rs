//! Commands about the bits of strings, the first of a byte being its highest.

use super::parse::{integer, is, range};
use super::strings::LONGEST;
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, Spec, WRITE};
use crate::store::{Deadline, Form, Value, ValueRef, events};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("setbit", 4, WRITE | MEMORY, Keys::ONE, setbit),
    Spec::new("getbit", 3, READ | FAST, Keys::ONE, getbit),
    Spec::new("bitcount", -2, READ, Keys::ONE, bitcount),
    Spec::new("bitpos", -3, READ, Keys::ONE, bitpos),
    Spec::new("bitop", -4, WRITE | MEMORY, OPERANDS, bitop),
];

const OPERANDS: Keys = Keys::Range {
    first: 2,
    last: -1,
    step: 1,
};

fn offset(arg: &[u8]) -> Result<usize, Error> {
    const RANGE: Error = Error::new("ERR bit offset is not an integer or out of range");
    let at = integer(arg).map_err(|_| RANGE)?;
    let at = usize::try_from(at).map_err(|_| RANGE)?;
    if at / 8 < LONGEST { Ok(at) } else { Err(RANGE) }
}

fn bit(arg: &[u8]) -> Option<u8> {
    match arg {
        b"0" => Some(0),
        b"1" => Some(1),
        _ => None,
    }
}

fn bit_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1)
}

fn setbit(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (key, at) = (args[1], offset(args[2])?);
    let new = bit(args[3]).ok_or(Error::new("ERR bit is not an integer or out of range"))?;
    // What is so already is no change: nobody who watches the key need know, and nothing is logged.
    let now = ctx
        .db
        .peek_string(key)?
        .filter(|bytes| bytes.len() > at / 8);
    if now.is_some_and(|bytes| bit_at(bytes, at) == new) {
        ctx.reply.integer(new.into());
        return Ok(());
    }
    let write = |bytes: &mut Vec<u8>| {
        if bytes.len() <= at / 8 {
            bytes.resize(at / 8 + 1, 0);
        }
        let old = bit_at(bytes, at);
        bytes[at / 8] &= !(1 << (7 - at % 8));
        bytes[at / 8] |= new << (7 - at % 8);
        Ok(old)
    };
    let old = match ctx.db.edit_string(key, write)? {
        Some(old) => old,
        None => {
            // Zeros that nobody writes to take no memory yet.
            let mut fresh = vec![0; at / 8 + 1];
            let old = write(&mut fresh)?;
            ctx.db.set(key, Value::Str(fresh));
            ctx.db.set_form(key, Form::Edited);
            old
        }
    };
    ctx.db.event(events::STRING, "setbit", key);
    ctx.reply.integer(old.into());
    Ok(())
}

fn getbit(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let at = offset(args[2])?;
    let bytes = ctx.db.string(args[1])?.unwrap_or_default();
    ctx.reply.integer(bit_at(bytes, at).into());
    Ok(())
}

/// Bits from the first to the last, both included, of a range in bytes or bits; `None` if empty.
/// An end before the beginning still means the first byte or bit.
fn bits(start: i64, end: i64, in_bits: bool, len: usize) -> Option<(usize, usize)> {
    let n = if in_bits { len * 8 } else { len };
    let (from, to) = range(start, end.max(-(n as i64)), n)?;
    Some(if in_bits {
        (from, to)
    } else {
        (from * 8, to * 8 + 7)
    })
}

fn in_bits(unit: Option<&&[u8]>) -> Result<bool, Error> {
    match unit {
        None => Ok(false),
        Some(unit) if is(unit, "byte") => Ok(false),
        Some(unit) if is(unit, "bit") => Ok(true),
        Some(_) => Err(Error::SYNTAX),
    }
}

/// The bytes of a range of bits, those outside of it zero at both ends.
fn masked(bytes: &[u8], from: usize, to: usize) -> impl Iterator<Item = u8> {
    let (first, last) = (from / 8, to / 8);
    bytes[first..=last]
        .iter()
        .enumerate()
        .map(move |(i, &byte)| {
            let head = if i == 0 { 0xff >> (from % 8) } else { 0xff };
            let tail = if first + i == last {
                0xff << (7 - to % 8)
            } else {
                0xff
            };
            byte & head & tail
        })
}

fn bitcount(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if args.len() > 5 {
        return Err(Error::SYNTAX);
    }
    let start = args.get(2).map_or(Ok(0), |arg| integer(arg))?;
    let unit = in_bits(args.get(4))?;
    let end = args.get(3).map_or(Ok(-1), |arg| integer(arg))?;
    let bytes = ctx.db.string(args[1])?.unwrap_or_default();
    let both_from_end_reversed = start < 0 && end < 0 && start > end;
    let ones: u64 = match bits(start, end, unit, bytes.len()) {
        Some((from, to)) if !both_from_end_reversed => masked(bytes, from, to)
            .map(|byte| u64::from(byte.count_ones()))
            .sum(),
        _ => 0,
    };
    ctx.reply.integer(ones as i64);
    Ok(())
}

fn bitpos(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let wanted = integer(args[2])?;
    let wanted = match wanted {
        0 | 1 => wanted as u8,
        _ => return Err(Error::new("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(Error::SYNTAX);
    }
    let start = args.get(3).map_or(Ok(0), |arg| integer(arg))?;
    let unit = in_bits(args.get(5))?;
    let end = args.get(4).map(|arg| integer(arg)).transpose()?;
    let Some(bytes) = ctx.db.string(args[1])? else {
        ctx.reply.integer(if wanted == 1 { -1 } else { 0 });
        return Ok(());
    };
    let Some((from, to)) = bits(start, end.unwrap_or(-1), unit, bytes.len()) else {
        ctx.reply.integer(-1);
        return Ok(());
    };
    let found = first_bit(bytes, from, to, wanted).map_or_else(
        // Behind a string of ones, as far as it was said to go, the bits are zero.
        || {
            if wanted == 0 && end.is_none() {
                bytes.len() as i64 * 8
            } else {
                -1
            }
        },
        |at| at as i64,
    );
    ctx.reply.integer(found);
    Ok(())
}

fn first_bit(bytes: &[u8], from: usize, to: usize, wanted: u8) -> Option<usize> {
    let skipped = if wanted == 1 { 0x00 } else { 0xff };
    let mut at = from;
    while at <= to {
        if at.is_multiple_of(8) && bytes[at / 8] == skipped {
            let rest = &bytes[at / 8..=to / 8];
            let same = rest.iter().take_while(|byte| **byte == skipped).count();
            at += same * 8;
        } else if bit_at(bytes, at) == wanted {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

fn bitop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (name, to, from) = (args[1], args[2], &args[3..]);
    type Operation = fn(u8, u8) -> u8;
    let known: [(&str, Operation); 4] = [
        ("and", |a, b| a & b),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
        ("not", |_, b| !b),
    ];
    let operation = known.into_iter().find(|(known, _)| is(name, known));
    let (name, operation) = operation.ok_or(Error::SYNTAX)?;
    if name == "not" && from.len() != 1 {
        return Err(Error::new(
            "ERR BITOP NOT must be called with a single source key.",
        ));
    }
    for key in from {
        ctx.db.string(key)?;
    }
    let mut operands = Vec::with_capacity(from.len());
    for key in from {
        operands.push(match ctx.db.peek_value(key) {
            None => &[][..],
            Some(ValueRef::Str(s)) => s,
            Some(_) => return Err(Error::WRONG_TYPE),
        });
    }
    let len = operands.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut result = operands[0].to_vec();
    result.resize(len, 0);
    let others = if name == "not" {
        &operands[..]
    } else {
        &operands[1..]
    };
    for operand in others {
        let padded = operand.iter().copied().chain(std::iter::repeat(0));
        result
            .iter_mut()
            .zip(padded)
            .for_each(|(a, b)| *a = operation(*a, b));
    }
    if result.is_empty() {
        let removed = ctx.db.remove(to);
        ctx.db.event_stored(events::STRING, "set", to, removed);
    } else {
        ctx.db.set_string(to, &result, Deadline::Clear);
        ctx.db.set_form(to, Form::Edited);
        ctx.db.event(events::STRING, "set", to);
    }
    ctx.reply.integer(len as i64);
    Ok(())
}
