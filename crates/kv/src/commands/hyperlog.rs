//! Commands on HyperLogLogs, which are strings.

use super::parse::is;
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, Spec, WRITE};
use crate::store::{Form, Value, ValueRef, events};
use crate::types::hll::{self, Registers, Wrong};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("pfadd", -2, WRITE | MEMORY | FAST, Keys::ONE, pfadd),
    Spec::new("pfcount", -2, READ, Keys::REST, pfcount),
    Spec::new("pfmerge", -2, WRITE | MEMORY, Keys::REST, pfmerge),
    Spec::new("pfdebug", 3, WRITE, Keys::SECOND, pfdebug),
];

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Error {
        Error::new(match wrong {
            Wrong::Other => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Wrong::Corrupt => "INVALIDOBJ Corrupted HLL object detected",
        })
    }
}

fn pfadd(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (key, elements) = (args[1], &args[2..]);
    let sparse_max = ctx.db.limits().hll();
    let old = ctx.db.string(key)?;
    let mut changed = old.is_none();
    match old {
        Some(old) if hll::is_dense(old) => {
            hll::check(old)?;
            changed = elements.iter().any(|element| hll::is_new(old, element));
            if changed {
                // In place: nothing can be wrong with it any more.
                let add = |old: &mut Vec<u8>| {
                    for element in elements {
                        hll::add(old, element, sparse_max)?;
                    }
                    Ok(())
                };
                ctx.db.edit_string(key, add)?;
            }
        }
        _ => {
            let mut new = old.map_or_else(hll::empty, <[u8]>::to_vec);
            hll::check(&new)?;
            for element in elements {
                changed |= hll::add(&mut new, element, sparse_max)?;
            }
            if changed {
                hll::outdate(&mut new);
                store(ctx, key, new)?;
            }
        }
    }
    if changed {
        ctx.db.event(events::STRING, "pfadd", key);
    }
    ctx.reply.integer(changed.into());
    Ok(())
}

/// Puts one in the place of another; the deadline stays.
fn store(ctx: &mut Ctx<'_, '_>, key: &[u8], new: Vec<u8>) -> Done {
    let mut new = Some(new);
    let put = |old: &mut Vec<u8>| {
        *old = new.take().expect("it is put once");
        Ok(())
    };
    if ctx.db.edit_string(key, put)?.is_none() {
        ctx.db
            .set(key, Value::Str(new.take().expect("it was not put")));
        ctx.db.set_form(key, Form::Edited);
    }
    Ok(())
}

/// The count that is kept in a string is taken if it is still right, and never written: this changes nothing.
fn pfcount(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if let [_, key] = args {
        let count = ctx.db.string(key)?.map_or(Ok(0), hll::count)?;
        ctx.reply.integer(count as i64);
        return Ok(());
    }
    let mut all = Registers::default();
    for key in &args[1..] {
        if let Some(one) = ctx.db.string(key)? {
            all.join(one)?;
        }
    }
    ctx.reply.integer(all.count() as i64);
    Ok(())
}

fn pfmerge(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let sparse_max = ctx.db.limits().hll();
    let (mut all, mut dense) = (Registers::default(), false);
    for key in &args[1..] {
        if let Some(one) = ctx.db.string(key)? {
            all.join(one)?;
            dense |= hll::is_dense(one);
        }
    }
    // The key was looked up above.
    let mut merged = match ctx.db.peek_value(args[1]) {
        Some(ValueRef::Str(into)) => into.to_vec(),
        _ => hll::empty(),
    };
    hll::raise_all(&mut merged, &all, dense, sparse_max)?;
    store(ctx, args[1], merged)?;
    ctx.db.event(events::STRING, "pfadd", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn pfdebug(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (sub, key) = (args[1], args[2]);
    let Some(ValueRef::Str(one)) = ctx.db.peek_value(key) else {
        return Err(match ctx.db.exists(key) {
            true => Error::WRONG_TYPE,
            false => Error::new("ERR The specified key does not exist"),
        });
    };
    hll::check(one)?;
    match () {
        () if is(sub, "encoding") => {
            let name = if hll::is_dense(one) {
                "dense"
            } else {
                "sparse"
            };
            ctx.reply.simple(name);
        }
        () if is(sub, "decode") => {
            let text = hll::decode(one).map_err(|wrong| match wrong {
                Wrong::Other => Error::new("ERR HLL encoding is not sparse"),
                Wrong::Corrupt => wrong.into(),
            })?;
            ctx.reply.bulk(text.as_bytes());
        }
        () if is(sub, "todense") || is(sub, "getreg") => {
            let mut dense = one.to_vec();
            hll::make_dense(&mut dense)?;
            let mut registers = Registers::default();
            registers.join(&dense)?;
            let converted = !hll::is_dense(one);
            if converted {
                store(ctx, key, dense)?;
            }
            if is(sub, "todense") {
                ctx.reply.integer(converted.into());
            } else {
                ctx.reply.array(registers.values().len());
                for value in registers.values() {
                    ctx.reply.integer((*value).into());
                }
            }
        }
        () => {
            return Err(Error::quoting("ERR Unknown PFDEBUG subcommand '", sub, "'"));
        }
    }
    Ok(())
}
