//! Commands about the bits of strings, the first of a byte being its highest.

use super::parse::{integer, is, range};
use super::strings::{LONGEST, make_room};
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, Spec, WRITE};
use crate::store::{Form, Value, ValueRef, events};

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
    // Setting an equal bit is no change: no watcher of the key need know, and nothing is logged.
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
            make_room(bytes, at / 8 + 1);
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
            // Zeros that are not written to take no memory yet.
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

/// How many bits of a range are one.
fn count_range(bytes: &[u8], from: usize, to: usize) -> u64 {
    let (first, last) = (from / 8, to / 8);
    let (head, tail) = (0xff_u8 >> (from % 8), 0xff_u8 << (7 - to % 8));
    if first == last {
        return (bytes[first] & head & tail).count_ones().into();
    }
    let ends = (bytes[first] & head).count_ones() + (bytes[last] & tail).count_ones();
    u64::from(ends) + count_ones(&bytes[first + 1..last])
}

/// How many bits are one: word by word, which the compiler does for several words at once.
fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let ones: u64 = words.map(|word| u64::from(word.count_ones())).sum();
    let rest = rest.iter().map(|byte| byte.count_ones());
    ones + u64::from(rest.sum::<u32>())
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
        Some((from, to)) if !both_from_end_reversed => count_range(bytes, from, to),
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
            // Many at once, as far as all are.
            let many = rest.chunks_exact(64);
            let same = many.take_while(|many| **many == [skipped; 64]).count() * 64;
            let more = rest[same..].iter().take_while(|byte| **byte == skipped);
            at += (same + more.count()) * 8;
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
    type Operation = fn(&mut [u8], &[u8]);
    // Each in a loop of its own, which does many bytes at once.
    fn each(to: &mut [u8], from: &[u8], operation: impl Fn(u8, u8) -> u8) {
        to.iter_mut()
            .zip(from)
            .for_each(|(a, b)| *a = operation(*a, *b));
    }
    let known: [(&str, Operation); 4] = [
        ("and", |to, from| {
            each(to, from, |a, b| a & b);
            // Bytes behind the end of an operand are zero.
            to[from.len()..].fill(0);
        }),
        ("or", |to, from| each(to, from, |a, b| a | b)),
        ("xor", |to, from| each(to, from, |a, b| a ^ b)),
        ("not", |to, from| each(to, from, |_, b| !b)),
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
    let mut result = Vec::with_capacity(len);
    result.extend_from_slice(operands[0]);
    result.resize(len, 0);
    let others = if name == "not" {
        &operands[..]
    } else {
        &operands[1..]
    };
    for operand in others {
        operation(&mut result, operand);
    }
    if result.is_empty() {
        let removed = ctx.db.remove(to);
        ctx.db.event_stored(events::STRING, "set", to, removed);
    } else {
        ctx.db.set(to, Value::Str(result));
        ctx.db.set_form(to, Form::Edited);
        ctx.db.event(events::STRING, "set", to);
    }
    ctx.reply.integer(len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_by_one(bytes: &[u8], from: usize, to: usize) -> u64 {
        (from..=to).map(|at| u64::from(bit_at(bytes, at))).sum()
    }

    #[test]
    fn bits_are_counted_as_one_by_one() {
        let seed = fastrand::u64(..);
        let mut chance = fastrand::Rng::with_seed(seed);
        for len in (1..80).chain([511, 512, 513, 2637]) {
            let density = chance.u8(..4);
            let byte = |chance: &mut fastrand::Rng| match density {
                0 => 0xff,
                1 => chance.u8(..) & chance.u8(..),
                _ => chance.u8(..),
            };
            let bytes: Vec<u8> = (0..len).map(|_| byte(&mut chance)).collect();
            let whole = (0, len * 8 - 1);
            let part = (chance.usize(..len * 8), chance.usize(..len * 8));
            for (a, b) in [whole, part] {
                let (from, to) = (a.min(b), a.max(b));
                let counted = count_range(&bytes, from, to);
                assert_eq!(
                    counted,
                    one_by_one(&bytes, from, to),
                    "seed {seed}: {len}, {from} to {to}"
                );
                for wanted in [0, 1] {
                    let first = (from..=to).find(|at| bit_at(&bytes, *at) == wanted);
                    assert_eq!(first_bit(&bytes, from, to, wanted), first, "seed {seed}");
                }
            }
        }
        let mut long = vec![0; 1000];
        long[777] = 4;
        assert_eq!(first_bit(&long, 3, 7999, 1), Some(777 * 8 + 5));
        assert_eq!(first_bit(&vec![0xff; 999], 0, 7991, 0), None);
    }
}
