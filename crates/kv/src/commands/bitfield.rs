//! BITFIELD and BITFIELD_RO: integers of any width at any bit of a string, the highest bit first.

use super::parse::{integer, is, parse_integer};
use super::strings::{LONGEST, make_room};
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, Spec, WRITE};
use crate::reply::Reply;
use crate::store::{Form, Value, events};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("bitfield", -2, WRITE | MEMORY, Keys::ONE, bitfield),
    Spec::new("bitfield_ro", -2, READ | FAST, Keys::ONE, bitfield),
];

/// The type of an integer: its width, and whether it is signed.
#[derive(Clone, Copy)]
struct Field {
    signed: bool,
    /// 1 to 64, or 63 without a sign.
    bits: u32,
    /// The place of the integer's first bit.
    at: usize,
}

/// How BITFIELD treats a number that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    /// The low bits of the number count.
    Wrap,
    /// The number becomes the nearest that fits.
    Saturate,
    /// The command writes nothing.
    Fail,
}

#[derive(Clone, Copy)]
enum Act {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    field: Field,
    act: Act,
    overflow: Overflow,
}

impl Field {
    fn parse(kind: &[u8], at: &[u8]) -> Result<Field, Error> {
        const KIND: Error = Error::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        const OFFSET: Error = Error::new("ERR bit offset is not an integer or out of range");
        let (signed, most) = match kind.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(KIND),
        };
        let bits = parse_integer(&kind[1..]).filter(|bits| (1..=most).contains(bits));
        let bits = bits.ok_or(KIND)? as u32;
        let (times, at) = match at.strip_prefix(b"#") {
            Some(at) => (i64::from(bits), at),
            None => (1, at),
        };
        let at = parse_integer(at).and_then(|at| at.checked_mul(times));
        let at = at.and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| at / 8 < LONGEST).ok_or(OFFSET)?;
        Ok(Field { signed, bits, at })
    }

    /// Bytes that a string must have to have all of it.
    fn end(self) -> usize {
        (self.at + self.bits as usize - 1) / 8 + 1
    }

    /// Reads the number at this place; bits behind the end of the string are zero.
    fn read(self, bytes: &[u8]) -> i64 {
        let mut raw = 0u128;
        let first = self.at / 8;
        // The bits are in nine bytes at most.
        for at in first..first + 9 {
            raw = raw << 8 | u128::from(bytes.get(at).copied().unwrap_or(0));
        }
        let raw = raw >> (72 - self.at % 8 - self.bits as usize);
        self.wrapped(raw as i128) as i64
    }

    /// Writes the low bits of a number into a string that is long enough.
    fn write(self, bytes: &mut [u8], value: i128) {
        for i in 0..self.bits {
            let at = self.at + i as usize;
            let bit = (value >> (self.bits - 1 - i) & 1) as u8;
            let shift = 7 - at % 8;
            bytes[at / 8] = bytes[at / 8] & !(1 << shift) | bit << shift;
        }
    }

    /// The least and the greatest number of the type.
    fn range(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The number with the same low bits that fits the type.
    fn wrapped(self, value: i128) -> i128 {
        let unused = 128 - self.bits;
        if self.signed {
            value << unused >> unused
        } else {
            ((value << unused) as u128 >> unused) as i128
        }
    }

    /// The number that will be stored; `None` if the command writes none.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (least, most) = self.range();
        match overflow {
            _ if (least..=most).contains(&value) => Some(value),
            Overflow::Wrap => Some(self.wrapped(value)),
            Overflow::Saturate => Some(value.clamp(least, most)),
            Overflow::Fail => None,
        }
    }
}

impl Operation {
    fn parse_all(args: &[&[u8]]) -> Result<Vec<Operation>, Error> {
        let (mut all, mut overflow, mut rest) = (Vec::new(), Overflow::Wrap, args);
        loop {
            let (field, act);
            (field, act, rest) = match *rest {
                [] => return Ok(all),
                [word, how, ref rest_ @ ..] if is(word, "overflow") => {
                    overflow = match () {
                        () if is(how, "wrap") => Overflow::Wrap,
                        () if is(how, "sat") => Overflow::Saturate,
                        () if is(how, "fail") => Overflow::Fail,
                        () => return Err(Error::new("ERR Invalid OVERFLOW type specified")),
                    };
                    rest = rest_;
                    continue;
                }
                [word, kind, at, ref rest @ ..] if is(word, "get") => {
                    (Field::parse(kind, at)?, Act::Get, rest)
                }
                [word, kind, at, value, ref rest @ ..] if is(word, "set") => {
                    let field = Field::parse(kind, at)?;
                    (field, Act::Set(integer(value)?), rest)
                }
                [word, kind, at, by, ref rest @ ..] if is(word, "incrby") => {
                    let field = Field::parse(kind, at)?;
                    (field, Act::Add(integer(by)?), rest)
                }
                _ => return Err(Error::SYNTAX),
            };
            all.push(Operation {
                field,
                act,
                overflow,
            });
        }
    }

    fn writes(&self) -> bool {
        !matches!(self.act, Act::Get)
    }

    /// The number to write in place of `old`: `Some(None)` if it does not fit, `None` for an operation that only
    /// reads.
    fn new_value(&self, old: i64) -> Option<Option<i128>> {
        let new = match self.act {
            Act::Get => return None,
            // Without a sign a number below zero is one far above.
            Act::Set(value) if self.field.signed => i128::from(value),
            Act::Set(value) => i128::from(value as u64),
            Act::Add(by) => i128::from(old) + i128::from(by),
        };
        Some(self.field.fit(new, self.overflow))
    }

    /// Whether the operation leaves `bytes` unchanged. INCRBY counts as a change, even by 0.
    fn keeps(&self, bytes: &[u8]) -> bool {
        let old = self.field.read(bytes);
        match self.new_value(old) {
            None | Some(None) => true,
            Some(Some(new)) => matches!(self.act, Act::Set(_)) && new == i128::from(old),
        }
    }

    /// Writes the reply of an operation that [keeps](Operation::keeps) the bytes.
    fn tell(&self, bytes: &[u8], reply: &mut Reply) {
        let old = self.field.read(bytes);
        match self.new_value(old) {
            Some(None) => reply.null(),
            _ => reply.integer(old),
        }
    }

    /// Runs the operation on a string that is long enough, and writes the reply. For a write, returns whether the
    /// bytes changed.
    fn run(&self, bytes: &mut [u8], reply: &mut Reply) -> Option<bool> {
        let old = self.field.read(bytes);
        let Some(new) = self.new_value(old) else {
            reply.integer(old);
            return None;
        };
        let Some(new) = new else {
            reply.null();
            return None;
        };
        self.field.write(bytes, new);
        match self.act {
            Act::Add(_) => reply.integer(new as i64),
            _ => reply.integer(old),
        }
        Some(new as i64 != old)
    }
}

fn bitfield(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let operations = Operation::parse_all(&args[2..])?;
    if ctx.name == "bitfield_ro" && operations.iter().any(Operation::writes) {
        return Err(Error::new(
            "ERR BITFIELD_RO only supports the GET subcommand",
        ));
    }
    let writers = operations.iter().filter(|operation| operation.writes());
    let end = writers.map(|operation| operation.field.end()).max();
    // Only a call that just reads counts a missing key as a miss.
    let bytes = match end {
        None => ctx.db.string(args[1])?,
        Some(_) => ctx.db.peek_string(args[1])?,
    };
    let grows = bytes.is_none_or(|bytes| bytes.len() < end.unwrap_or(0));
    // Storing the present value again is no change.
    let keeps = !grows
        && bytes.is_some_and(|bytes| operations.iter().all(|operation| operation.keeps(bytes)));
    let Some(end) = end.filter(|_| !keeps) else {
        let bytes = bytes.unwrap_or_default();
        ctx.reply.array(operations.len());
        for operation in &operations {
            operation.tell(bytes, ctx.reply);
        }
        return Ok(());
    };
    // As in Redis, a field begins below the longest string and may end behind it.
    if end > LONGEST + size_of::<u64>() {
        return Err(Error::TOO_LONG);
    }
    let reply = &mut *ctx.reply;
    let mut changes = false;
    let mut run = |bytes: &mut Vec<u8>| {
        // The string grows even where nothing will be written, as in Redis.
        make_room(bytes, end);
        bytes.resize(bytes.len().max(end), 0);
        reply.array(operations.len());
        for operation in &operations {
            let wrote = operation.run(bytes, reply);
            changes |= wrote.is_some_and(|differs| differs || grows);
        }
        Ok(())
    };
    if ctx.db.edit_string(args[1], &mut run)?.is_none() {
        // Zeros that are not written to take no memory yet.
        let mut fresh = vec![0; end];
        run(&mut fresh)?;
        ctx.db.set(args[1], Value::Str(fresh));
        ctx.db.set_form(args[1], Form::Edited);
    }
    if changes {
        ctx.db.event(events::STRING, "setbit", args[1]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else_changes(
            signed in any::<bool>(),
            bits in 1u32..65,
            at in 0usize..100,
            value in any::<i64>(),
            before in proptest::collection::vec(any::<u8>(), 24),
        ) {
            let bits = if signed { bits } else { bits.min(63) };
            let field = Field { signed, bits, at };
            let mut bytes = before.clone();
            let value = field.wrapped(value.into());
            field.write(&mut bytes, value);
            prop_assert_eq!(i128::from(field.read(&bytes)), value);
            let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
            for other in (0..24 * 8).filter(|i| !(at..at + bits as usize).contains(i)) {
                prop_assert_eq!(bit(&bytes, other), bit(&before, other));
            }
        }
    }
}
