//! Commands about strings.

use super::expire::Unit;
use super::parse::{integer, is, range};
use super::{BRIEF, Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, WRITE};
use crate::reply::decimal;
use crate::store::{Deadline, Form, Value, events};
use crate::types::extended::{Extended, Read};

const PAIRS: Keys = Keys::Range {
    first: 1,
    last: -1,
    step: 2,
};

/// Longest string; bytes.
pub(super) const LONGEST: usize = 512 << 20;

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("get", 2, READ | FAST, Keys::ONE, get),
    Spec::new("set", -3, WRITE | MEMORY | BRIEF, Keys::ONE, set),
    Spec::new("setnx", 3, WRITE | MEMORY | FAST, Keys::ONE, setnx),
    Spec::new("setex", 4, WRITE | MEMORY | BRIEF, Keys::ONE, setex),
    Spec::new("psetex", 4, WRITE | MEMORY | BRIEF, Keys::ONE, setex),
    Spec::new("getset", 3, WRITE | MEMORY | FAST, Keys::ONE, getset),
    Spec::new("getex", -2, WRITE | FAST, Keys::ONE, getex),
    Spec::new("getdel", 2, WRITE | REMOVES | FAST, Keys::ONE, getdel),
    Spec::new("mget", -2, READ | FAST, Keys::REST, mget),
    Spec::new("mset", -3, WRITE | MEMORY | BRIEF, PAIRS, mset),
    Spec::new("msetnx", -3, WRITE | MEMORY | BRIEF, PAIRS, msetnx),
    Spec::new("append", 3, WRITE | MEMORY | FAST, Keys::ONE, append),
    Spec::new("strlen", 2, READ | FAST, Keys::ONE, strlen),
    Spec::new("setrange", 4, WRITE | MEMORY, Keys::ONE, setrange),
    Spec::new("getrange", 4, READ, Keys::ONE, getrange),
    Spec::new("substr", 4, READ, Keys::ONE, getrange),
    Spec::new("incr", 2, WRITE | MEMORY | FAST, Keys::ONE, incr),
    Spec::new("decr", 2, WRITE | MEMORY | FAST, Keys::ONE, decr),
    Spec::new("incrby", 3, WRITE | MEMORY | FAST, Keys::ONE, incrby),
    Spec::new("decrby", 3, WRITE | MEMORY | FAST, Keys::ONE, decrby),
    Spec::new(
        "incrbyfloat",
        3,
        WRITE | MEMORY | FAST,
        Keys::ONE,
        incrbyfloat,
    ),
];

fn get(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.reply.bulk_or_null(ctx.db.string(args[1])?);
    Ok(())
}

/// The options of SET and GETEX.
#[derive(Default)]
struct Options {
    deadline_ms: Option<u64>,
    keep: bool,
    persist: bool,
    absent: bool,
    present: bool,
    get: bool,
}

impl Options {
    fn parse(ctx: &Ctx<'_, '_>, args: &[&[u8]], for_set: bool) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut timed = None;
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let fresh = timed.is_none() && !options.keep && !options.persist;
            if for_set && is(arg, "nx") && !options.present {
                options.absent = true;
            } else if for_set && is(arg, "xx") && !options.absent {
                options.present = true;
            } else if for_set && is(arg, "get") {
                options.get = true;
            } else if for_set && is(arg, "keepttl") && fresh {
                options.keep = true;
            } else if !for_set && is(arg, "persist") && fresh {
                options.persist = true;
            } else {
                let unit = Unit::of(arg).filter(|_| fresh).ok_or(Error::SYNTAX)?;
                timed = Some((unit, args.next().ok_or(Error::SYNTAX)?));
            }
        }
        if let Some((unit, value)) = timed {
            options.deadline_ms = Some(unit.deadline_ms(value, ctx)?);
        }
        Ok(options)
    }
}

fn set(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 {
        ctx.db.set_string(key, value, Deadline::Clear);
        ctx.db.event(events::STRING, "set", key);
        ctx.reply.ok();
        return Ok(());
    }
    let options = Options::parse(ctx, &args[3..], true)?;
    if options.get {
        ctx.reply.bulk_or_null(ctx.db.string(key)?);
    }
    let wanted = (!options.absent && !options.present) || ctx.db.exists(key) == options.present;
    if !wanted {
        if !options.get {
            ctx.reply.null();
        }
        return Ok(());
    }
    let deadline = match options.deadline_ms {
        Some(at) => Deadline::At(at),
        None if options.keep => Deadline::Keep,
        None => Deadline::Clear,
    };
    put(ctx, key, value, deadline);
    tell_put(ctx, key, options.deadline_ms.is_some());
    if !options.get {
        ctx.reply.ok();
    }
    Ok(())
}

/// Publishes the event of a set string, and the event of its expiry time if it has one. If that time has passed,
/// the key does not exist, and `put` has published the event.
fn tell_put(ctx: &mut Ctx<'_, '_>, key: &[u8], timed: bool) {
    if timed && !ctx.db.exists(key) {
        return;
    }
    ctx.db.event(events::STRING, "set", key);
    if timed {
        ctx.db.event(events::GENERIC, "expire", key);
    }
}

/// Sets a string, and says so in a form that no clock has a part in. A time that has passed removes
/// the key.
fn put(ctx: &mut Ctx<'_, '_>, key: &[u8], value: &[u8], deadline: Deadline) {
    match deadline {
        Deadline::At(at) if at <= ctx.now_ms => {
            if ctx.db.remove(key) {
                ctx.db.event(events::GENERIC, "del", key);
            }
            if ctx.has_effects() {
                ctx.rewrite(&[b"DEL", key]);
            }
        }
        Deadline::At(at) => {
            ctx.db.set_string(key, value, deadline);
            if ctx.has_effects() {
                ctx.rewrite(&[
                    b"SET",
                    key,
                    value,
                    b"PXAT",
                    decimal(at as i64, &mut [0; 20]),
                ]);
            }
        }
        Deadline::Clear | Deadline::Keep => {
            ctx.db.set_string(key, value, deadline);
            if ctx.has_effects() {
                let keep: &[&[u8]] = &[b"SET", key, value, b"KEEPTTL"];
                let len = if deadline == Deadline::Keep { 4 } else { 3 };
                ctx.rewrite(&keep[..len]);
            }
        }
    }
}

fn setnx(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let absent = !ctx.db.exists(args[1]);
    if absent {
        ctx.db.set_string(args[1], args[2], Deadline::Clear);
        ctx.db.event(events::STRING, "set", args[1]);
    }
    ctx.reply.integer(absent.into());
    Ok(())
}

fn setex(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let unit = Unit {
        seconds: ctx.name == "setex",
        absolute: false,
    };
    let at = unit.deadline_ms(args[2], ctx)?;
    put(ctx, args[1], args[3], Deadline::At(at));
    tell_put(ctx, args[1], true);
    ctx.reply.ok();
    Ok(())
}

fn getset(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.reply.bulk_or_null(ctx.db.string(args[1])?);
    ctx.db.set_string(args[1], args[2], Deadline::Clear);
    ctx.db.event(events::STRING, "set", args[1]);
    Ok(())
}

fn getex(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let options = Options::parse(ctx, &args[2..], false)?;
    let key = args[1];
    let Some(value) = ctx.db.string(key)? else {
        ctx.reply.null();
        return Ok(());
    };
    ctx.reply.bulk(value);
    if let Some(at) = options.deadline_ms {
        super::expire::set_deadline(ctx, key, at as i64);
    } else if options.persist && ctx.db.deadline_ms(key) != Some(None) {
        ctx.db.set_deadline_ms(key, None);
        ctx.db.event(events::GENERIC, "persist", key);
        if ctx.has_effects() {
            ctx.rewrite(&[b"PERSIST", key]);
        }
    }
    Ok(())
}

fn getdel(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.reply.bulk_or_null(ctx.db.string(args[1])?);
    if ctx.db.remove(args[1]) {
        ctx.db.event(events::GENERIC, "del", args[1]);
    }
    Ok(())
}

fn mget(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.reply.array(args.len() - 1);
    for key in &args[1..] {
        // A key of another type is as good as none.
        ctx.reply.bulk_or_null(ctx.db.string(key).unwrap_or(None));
    }
    Ok(())
}

fn set_pairs(ctx: &mut Ctx<'_, '_>, pairs: &[&[u8]]) {
    for pair in pairs.chunks_exact(2) {
        ctx.db.set_string(pair[0], pair[1], Deadline::Clear);
        ctx.db.event(events::STRING, "set", pair[0]);
    }
}

fn mset(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(Error::arity("mset"));
    }
    set_pairs(ctx, &args[1..]);
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(Error::arity("msetnx"));
    }
    let absent = !args[1..].iter().step_by(2).any(|key| ctx.db.exists(key));
    if absent {
        set_pairs(ctx, &args[1..]);
    }
    ctx.reply.integer(absent.into());
    Ok(())
}

/// Makes room for a string of `len` bytes in all. A long one grows by an eighth: twice as much memory would be half unused.
pub(super) fn make_room(s: &mut Vec<u8>, len: usize) {
    /// Bytes up to which a string grows to twice its length.
    const MUCH: usize = 1 << 20;
    if len > s.capacity() && len > MUCH {
        s.reserve_exact(len + len / 8 - s.len());
    }
}

fn append(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (key, tail) = (args[1], args[2]);
    let len = ctx.db.edit_string(key, |s| {
        if s.len() + tail.len() > LONGEST {
            return Err(Error::TOO_LONG);
        }
        make_room(s, s.len() + tail.len());
        s.extend_from_slice(tail);
        Ok(s.len())
    })?;
    let len = len.unwrap_or_else(|| {
        ctx.db.set_string(key, tail, Deadline::Clear);
        tail.len()
    });
    ctx.db.event(events::STRING, "append", key);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn strlen(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let len = ctx.db.string(args[1])?.map_or(0, <[u8]>::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn setrange(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (key, patch) = (args[1], args[3]);
    let offset = integer(args[2])?;
    let offset = usize::try_from(offset).map_err(|_| Error::new("ERR offset is out of range"))?;
    if patch.is_empty() {
        return strlen(ctx, args);
    }
    // The type matters more than the length.
    ctx.db.string(key)?;
    let end = offset.saturating_add(patch.len());
    if end > LONGEST {
        return Err(Error::TOO_LONG);
    }
    let write = |s: &mut Vec<u8>| {
        make_room(s, end);
        s.resize(s.len().max(end), 0);
        s[offset..end].copy_from_slice(patch);
        Ok(s.len())
    };
    let len = match ctx.db.edit_string(key, write)? {
        Some(len) => len,
        None => {
            let mut fresh = vec![0; end];
            fresh[offset..].copy_from_slice(patch);
            ctx.db.set(key, Value::Str(fresh));
            ctx.db.set_form(key, Form::Edited);
            end
        }
    };
    ctx.db.event(events::STRING, "setrange", key);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn getrange(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (start, end) = (integer(args[2])?, integer(args[3])?);
    let value = ctx.db.string(args[1])?.unwrap_or_default();
    let part = if start < 0 && end < 0 && start > end {
        None
    } else {
        // An end before the beginning still means the first byte.
        let end = if end < 0 {
            end.saturating_add(value.len() as i64).max(0)
        } else {
            end
        };
        range(start, end, value.len())
    };
    ctx.reply
        .bulk(part.map_or(&[], |(from, to)| &value[from..=to]));
    Ok(())
}

fn incr(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    add(ctx, args[1], 1)
}

fn decr(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    add(ctx, args[1], -1)
}

fn incrby(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let by = integer(args[2])?;
    add(ctx, args[1], by)
}

fn decrby(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let by = integer(args[2])?.checked_neg();
    add(
        ctx,
        args[1],
        by.ok_or(Error::new("ERR decrement would overflow"))?,
    )
}

fn add(ctx: &mut Ctx<'_, '_>, key: &[u8], by: i64) -> Done {
    let old = ctx.db.string(key)?.map_or(Ok(0), integer)?;
    let new = old.checked_add(by).ok_or(Error::OVERFLOW)?;
    ctx.db
        .set_string(key, decimal(new, &mut [0; 20]), Deadline::Keep);
    ctx.db.event(events::STRING, "incrby", key);
    ctx.reply.integer(new);
    Ok(())
}

fn incrbyfloat(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let key = args[1];
    let old = match ctx.db.string(key)? {
        None => Read::Number(Extended::ZERO),
        Some(old) => Extended::parse(old).ok_or(Error::NOT_FLOAT)?,
    };
    let by = Extended::parse(args[2]).ok_or(Error::NOT_FLOAT)?;
    let text = sum(old, by)?;
    put(ctx, key, text.as_bytes(), Deadline::Keep);
    ctx.db.set_form(key, Form::Text);
    ctx.db.event(events::STRING, "incrbyfloat", key);
    ctx.reply.bulk(text.as_bytes());
    Ok(())
}

/// The text of a sum in 80 bits.
pub(super) fn sum(old: Read, by: Read) -> Result<String, Error> {
    let sum = match (old, by) {
        (Read::Number(old), Read::Number(by)) => old.plus(by),
        _ => None,
    };
    sum.map(Extended::to_text)
        .ok_or(Error::new("ERR increment would produce NaN or Infinity"))
}

#[cfg(test)]
mod tests {
    use crate::commands::find;
    use crate::reply::{Proto, Reply};
    use crate::store::{Settings, Store};

    /// If twice the memory were counted, a snapshot would reserve twice the disk space.
    #[test]
    fn a_long_string_that_grows_takes_an_eighth_more_at_most() {
        const MIB: usize = 1 << 20;
        let piece = vec![b'x'; MIB];
        for commands in [
            &[&b"append"[..], b"k", &piece],
            &[&b"setrange"[..], b"k", b"0", &piece][..],
        ] {
            let store = Store::new(Settings::default());
            for n in 1..40 {
                let offset = ((n - 1) * MIB).to_string();
                let mut args = commands.to_vec();
                if args.len() == 4 {
                    args[2] = offset.as_bytes();
                }
                let (spec, mut reply) = (find(args[0]).unwrap(), Reply::new(Proto::Resp2));
                let _ = store.runner(1, 1).run(spec, 0, &args, &mut reply);
                let (len, used) = (n * MIB, store.used_memory() as usize);
                assert!(used < len + len / 8 + MIB / 2, "{used} bytes for {len}");
            }
        }
    }
}
