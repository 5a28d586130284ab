//! XCLAIM and XAUTOCLAIM: entries change their consumer.

use super::super::parse::{integer, is};
use super::super::{Ctx, Done, Error};
use super::args::{id, start};
use super::groups::CREATED;
use super::pending::idle_ms;
use super::{no_group, write_entry, write_id};
use crate::store::events;
use crate::types::{Entries, Group, Pending, Stream, StreamId};

/// How entries are claimed.
struct Claim {
    now_ms: u64,
    /// Entries are claimed that were last delivered at least so many milliseconds ago.
    idle_ms: i64,
    /// The time of delivery that claimed entries get.
    delivered_ms: u64,
    /// The number of deliveries that claimed entries get, if given.
    count: Option<u64>,
    /// Entries without an owner are claimed too.
    force: bool,
    only_ids: bool,
}

/// The result of claiming one entry.
#[derive(PartialEq, Eq)]
enum Claimed {
    Yes,
    /// The entry stays with its owner.
    No,
    /// The entry does not exist any more, and now it has no owner.
    Gone,
}

impl Claim {
    fn run(&self, entries: &Entries, of: &mut Group, consumer: u32, id: StreamId) -> Claimed {
        let known = of.pending_of(id);
        if entries.get(id).is_none() {
            return match of.acknowledge(id) {
                true => Claimed::Gone,
                false => Claimed::No,
            };
        }
        let before = match known {
            Some(known) if self.idle_ms > 0 && idle_ms(self.now_ms, &known) < self.idle_ms => {
                return Claimed::No;
            }
            Some(known) => known.count,
            None if self.force => 1,
            None => return Claimed::No,
        };
        let more = u64::from(!self.only_ids);
        of.assign(Pending {
            id,
            delivered_ms: self.delivered_ms,
            count: self.count.unwrap_or(before.saturating_add(more)),
            consumer,
        });
        of.note(consumer, self.now_ms, true);
        Claimed::Yes
    }
}

fn min_idle(arg: &[u8], name: &str) -> Result<i64, Error> {
    let wrong = || {
        let name = name.to_ascii_uppercase();
        Error::text(format!("ERR Invalid min-idle-time argument for {name}"))
    };
    Ok(integer(arg).map_err(|_| wrong())?.max(0))
}

/// Whether the group is there; else what to answer.
fn check_group(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let stream = ctx.db.get::<Stream>(args[1])?;
    match stream.and_then(|stream| stream.group(args[2])) {
        Some(_) => Ok(()),
        None => Err(no_group(args[1], args[2], "")),
    }
}

/// Writes the entries of ids, or the ids alone.
fn write_claimed(ctx: &mut Ctx<'_, '_>, key: &[u8], ids: &[StreamId], only_ids: bool) -> Done {
    ctx.reply.array(ids.len());
    let stream = ctx.db.peek::<Stream>(key)?;
    for &id in ids {
        match stream.and_then(|stream| stream.entries.get(id)) {
            Some(item) if !only_ids => write_entry(ctx.reply, item),
            _ => write_id(ctx.reply, id),
        }
        if ctx.reply.is_over() {
            break;
        }
    }
    Ok(())
}

/// The options of XCLAIM behind the ids, and a last id of the group.
fn options(args: &[&[u8]], now_ms: u64, idle_ms: i64) -> Result<(Claim, StreamId), Error> {
    let mut claim = Claim {
        now_ms,
        idle_ms,
        delivered_ms: now_ms,
        count: None,
        force: false,
        only_ids: false,
    };
    let (mut last, mut at) = (StreamId::MIN, 0);
    let number = |arg: &[u8], option: &str| {
        let wrong = || Error::text(format!("ERR Invalid {option} option argument for XCLAIM"));
        integer(arg).map_err(|_| wrong())
    };
    // A time in the future, or an impossible one, becomes now.
    let sane = |ms: i64| {
        u64::try_from(ms)
            .ok()
            .filter(|ms| *ms <= now_ms)
            .unwrap_or(now_ms)
    };
    while let Some(&option) = args.get(at) {
        at += 1;
        let value = args.get(at).copied();
        match value {
            _ if is(option, "force") => {
                claim.force = true;
                continue;
            }
            _ if is(option, "justid") => {
                claim.only_ids = true;
                continue;
            }
            Some(ms) if is(option, "idle") => {
                let ms = number(ms, "IDLE")?;
                claim.delivered_ms = sane((now_ms as i64).wrapping_sub(ms));
            }
            Some(ms) if is(option, "time") => claim.delivered_ms = sane(number(ms, "TIME")?),
            Some(n) if is(option, "retrycount") => {
                claim.count = u64::try_from(number(n, "RETRYCOUNT")?).ok();
            }
            Some(arg) if is(option, "lastid") => last = id(arg, 0)?,
            _ => {
                return Err(Error::quoting(
                    "ERR Unrecognized XCLAIM option '",
                    option,
                    "'",
                ));
            }
        }
        at += 1;
    }
    Ok((claim, last))
}

pub(super) fn xclaim(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    check_group(ctx, args)?;
    let idle_ms = min_idle(args[4], ctx.name)?;
    let ids: Vec<StreamId> = args[5..].iter().map_while(|arg| id(arg, 0).ok()).collect();
    let (claim, last) = options(&args[5 + ids.len()..], ctx.at_ms, idle_ms)?;
    let (mut claimed, mut entered) = (Vec::new(), false);
    ctx.db.update(args[1], |stream: &mut Stream| {
        let changed = stream.change_group(args[2], |entries, of| {
            let mut changed = last > of.last();
            of.skip_to(last);
            let (consumer, is_new) = of.enter(args[3], claim.now_ms);
            entered = is_new;
            of.note(consumer, claim.now_ms, false);
            for &id in &ids {
                let done = claim.run(entries, of, consumer, id);
                changed |= done != Claimed::No;
                if done == Claimed::Yes {
                    claimed.push(id);
                }
            }
            changed || is_new
        });
        (changed.unwrap_or(false), ())
    })?;
    if entered {
        ctx.db.event(events::STREAM, CREATED, args[1]);
    }
    write_claimed(ctx, args[1], &claimed, claim.only_ids)
}

/// COUNT and JUSTID of XAUTOCLAIM.
fn automatic(args: &[&[u8]]) -> Result<(i64, bool), Error> {
    /// Largest count; ten times this count is still no number without bounds.
    const COUNT_MAX: i64 = i64::MAX / 16;
    let (mut count, mut only_ids, mut at) = (100, false, 0);
    while let Some(&option) = args.get(at) {
        match args.get(at + 1) {
            Some(n) if is(option, "count") => {
                let n = integer(n).ok().filter(|n| (1..=COUNT_MAX).contains(n));
                count = n.ok_or(Error::new("ERR COUNT must be > 0"))?;
                at += 2;
            }
            _ if is(option, "justid") => {
                only_ids = true;
                at += 1;
            }
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok((count, only_ids))
}

pub(super) fn xautoclaim(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    /// Entries that are looked at for each that may be claimed.
    const TRIES: i64 = 10;
    let idle_ms = min_idle(args[4], ctx.name)?;
    let from = start(args[5])?;
    let (mut count, only_ids) = automatic(&args[6..])?;
    check_group(ctx, args)?;
    let claim = Claim {
        now_ms: ctx.at_ms,
        idle_ms,
        delivered_ms: ctx.at_ms,
        count: None,
        force: false,
        only_ids,
    };
    let (mut claimed, mut gone, mut rest) = (Vec::new(), Vec::new(), None);
    let mut entered = false;
    ctx.db.update(args[1], |stream: &mut Stream| {
        let changed = stream.change_group(args[2], |entries, of| {
            let (consumer, is_new) = of.enter(args[3], claim.now_ms);
            entered = is_new;
            of.note(consumer, claim.now_ms, false);
            let (mut next, mut tries) = (Some(from), count * TRIES);
            let first_from = |of: &Group, from: Option<StreamId>| {
                of.pending_from(from?).next().map(|pending| pending.id)
            };
            while tries > 0
                && count > 0
                && let Some(id) = first_from(of, next)
            {
                tries -= 1;
                next = id.next();
                match claim.run(entries, of, consumer, id) {
                    Claimed::No => continue,
                    Claimed::Yes => claimed.push(id),
                    Claimed::Gone => gone.push(id),
                }
                count -= 1;
            }
            rest = first_from(of, next);
            is_new || !claimed.is_empty() || !gone.is_empty()
        });
        (changed.unwrap_or(false), ())
    })?;
    if entered {
        ctx.db.event(events::STREAM, CREATED, args[1]);
    }
    ctx.reply.array(3);
    write_id(ctx.reply, rest.unwrap_or(StreamId::MIN));
    write_claimed(ctx, args[1], &claimed, only_ids)?;
    ctx.reply.array(gone.len());
    gone.iter().for_each(|id| write_id(ctx.reply, *id));
    Ok(())
}
