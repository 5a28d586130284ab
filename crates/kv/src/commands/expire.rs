//! Commands about when keys expire.

use super::parse::{integer, is};
use super::{Ctx, Done, Error, FAST, Keys, READ, REMOVES, Spec, WRITE};
use crate::reply::decimal;
use crate::store::events;

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("expire", -3, WRITE | REMOVES | FAST, Keys::ONE, expire),
    Spec::new("pexpire", -3, WRITE | REMOVES | FAST, Keys::ONE, expire),
    Spec::new("expireat", -3, WRITE | REMOVES | FAST, Keys::ONE, expire),
    Spec::new("pexpireat", -3, WRITE | REMOVES | FAST, Keys::ONE, expire),
    Spec::new("persist", 2, WRITE | FAST, Keys::ONE, persist),
    Spec::new("ttl", 2, READ | FAST, Keys::ONE, ttl),
    Spec::new("pttl", 2, READ | FAST, Keys::ONE, ttl),
    Spec::new("expiretime", 2, READ | FAST, Keys::ONE, ttl),
    Spec::new("pexpiretime", 2, READ | FAST, Keys::ONE, ttl),
];

/// On which conditions a deadline is set.
#[derive(Default)]
struct Conditions {
    none: bool,
    some: bool,
    later: bool,
    sooner: bool,
}

impl Conditions {
    fn parse(args: &[&[u8]]) -> Result<Conditions, Error> {
        let mut c = Conditions::default();
        for arg in args {
            match () {
                () if is(arg, "nx") => c.none = true,
                () if is(arg, "xx") => c.some = true,
                () if is(arg, "gt") => c.later = true,
                () if is(arg, "lt") => c.sooner = true,
                () => return Err(Error::quoting("ERR Unsupported option ", arg, "")),
            }
        }
        if c.none && (c.some || c.later || c.sooner) {
            return Err(Error::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if c.later && c.sooner {
            return Err(Error::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(c)
    }

    /// A key that lives for ever has the latest deadline of all.
    fn hold(&self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| old as i64);
        !(self.none && old.is_some()
            || self.some && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.sooner && old.is_some_and(|old| new >= old))
    }
}

/// How a time is said.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) seconds: bool,
    pub(super) absolute: bool,
}

impl Unit {
    pub(super) fn of(option: &[u8]) -> Option<Unit> {
        let unit = |seconds, absolute| Some(Unit { seconds, absolute });
        match () {
            () if is(option, "ex") => unit(true, false),
            () if is(option, "px") => unit(false, false),
            () if is(option, "exat") => unit(true, true),
            () if is(option, "pxat") => unit(false, true),
            () => None,
        }
    }

    /// Milliseconds since 1970 of a time to come, which is above zero.
    pub(super) fn deadline_ms(self, value: &[u8], ctx: &Ctx<'_, '_>) -> Result<u64, Error> {
        let value = integer(value)?;
        let at = if value <= 0 {
            None
        } else {
            self.at_ms(value, ctx.now_ms)
        };
        let at = at.and_then(|at| u64::try_from(at).ok());
        at.ok_or_else(|| Error::expire_time(ctx.name))
    }

    /// The time in milliseconds since 1970; `None` if the number does not fit.
    pub(super) fn at_ms(self, value: i64, now_ms: u64) -> Option<i64> {
        let ms = if self.seconds {
            value.checked_mul(1000)?
        } else {
            value
        };
        if self.absolute {
            Some(ms)
        } else {
            ms.checked_add(now_ms as i64)
        }
    }
}

fn expire(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let unit = Unit {
        seconds: !ctx.name.starts_with('p'),
        absolute: ctx.name.ends_with("at"),
    };
    let conditions = Conditions::parse(&args[3..])?;
    let value = integer(args[2])?;
    let at = unit.at_ms(value, ctx.now_ms);
    let at = at.ok_or_else(|| Error::expire_time(ctx.name))?;
    let done = match ctx.db.deadline_ms(args[1]) {
        Some(old) if conditions.hold(old, at) => {
            set_deadline(ctx, args[1], at);
            true
        }
        _ => false,
    };
    ctx.reply.integer(done.into());
    Ok(())
}

/// Sets when an existing key expires, which may be at once; milliseconds since 1970.
pub(super) fn set_deadline(ctx: &mut Ctx<'_, '_>, key: &[u8], at: i64) {
    let now_ms = ctx.now_ms;
    let at = at.max(0) as u64;
    ctx.db.set_deadline_ms(key, Some(at));
    let name = if at <= now_ms { "del" } else { "expire" };
    ctx.db.event(events::GENERIC, name, key);
    if ctx.has_effects() {
        if at <= now_ms {
            ctx.rewrite(&[b"DEL", key]);
        } else {
            ctx.rewrite(&[b"PEXPIREAT", key, decimal(at as i64, &mut [0; 20])]);
        }
    }
}

fn persist(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let expires = matches!(ctx.db.deadline_ms(args[1]), Some(Some(_)));
    if expires {
        ctx.db.set_deadline_ms(args[1], None);
        ctx.db.event(events::GENERIC, "persist", args[1]);
    }
    ctx.reply.integer(expires.into());
    Ok(())
}

fn ttl(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    // The command counts as a miss if the key is missing, but not as a use of the key.
    ctx.db.look(args[1]);
    let answer = match (ctx.db.deadline_ms(args[1]), ctx.name) {
        (None, _) => -2,
        (Some(None), _) => -1,
        (Some(Some(at)), "ttl") => (at.saturating_sub(ctx.now_ms) as i64 + 500) / 1000,
        (Some(Some(at)), "pttl") => at.saturating_sub(ctx.now_ms) as i64,
        (Some(Some(at)), "expiretime") => (at as i64 + 500) / 1000,
        (Some(Some(at)), _) => at as i64,
    };
    ctx.reply.integer(answer);
    Ok(())
}
