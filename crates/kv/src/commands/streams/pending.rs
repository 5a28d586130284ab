//! XPENDING.

use super::super::parse::{integer, is};
use super::super::{Ctx, Done, Error};
use super::args::interval;
use super::{no_group, write_id};
use crate::reply::Reply;
use crate::types::{Group, Pending, Stream, StreamId};

/// Which pending entries are shown.
struct Shown<'x> {
    from: StreamId,
    to: StreamId,
    count: usize,
    /// Entries are listed that were last delivered at least so many milliseconds ago.
    idle_ms: i64,
    consumer: Option<&'x [u8]>,
}

impl<'x> Shown<'x> {
    fn parse(args: &[&'x [u8]]) -> Result<Option<Shown<'x>>, Error> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(Error::SYNTAX);
        }
        let (mut idle_ms, mut at) = (0, 3);
        if is(args[3], "idle") {
            idle_ms = integer(args[4])?;
            if args.len() < 8 {
                return Err(Error::SYNTAX);
            }
            at = 5;
        }
        let count = integer(args[at + 2])?.max(0) as usize;
        let (from, to) = interval(args[at], args[at + 1])?;
        Ok(Some(Shown {
            from,
            to,
            count,
            idle_ms,
            consumer: args.get(at + 3).copied(),
        }))
    }
}

/// Milliseconds since an entry was given.
pub(super) fn idle_ms(now_ms: u64, pending: &Pending) -> i64 {
    (now_ms as i64).saturating_sub(pending.delivered_ms as i64)
}

pub(super) fn xpending(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let shown = Shown::parse(args)?;
    let stream = ctx.db.get::<Stream>(args[1])?;
    let group = stream.and_then(|stream| stream.group(args[2]));
    let group = group.ok_or_else(|| no_group(args[1], args[2], ""))?;
    match shown {
        None => summary(ctx.reply, group),
        Some(shown) => list(ctx.reply, group, &shown, ctx.now_ms),
    }
    Ok(())
}

fn summary(reply: &mut Reply, group: &Group) {
    reply.array(4);
    reply.integer(group.pending() as i64);
    let Some((first, last)) = group.pending_ends() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    write_id(reply, first);
    write_id(reply, last);
    let (from, mut n) = (reply.len(), 0);
    for consumer in group.consumers().filter(|consumer| consumer.pending() > 0) {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending() as i64);
        n += 1;
    }
    reply.enclose(from, n);
}

fn list(reply: &mut Reply, group: &Group, shown: &Shown<'_>, now_ms: u64) {
    let (from, mut n) = (reply.len(), 0);
    let mut show = |pending: &Pending| {
        let idle_ms = idle_ms(now_ms, pending);
        if shown.idle_ms > 0 && idle_ms < shown.idle_ms {
            return true;
        }
        if n >= shown.count || reply.is_over() {
            return false;
        }
        reply.array(4);
        write_id(reply, pending.id);
        let consumer = group.consumer(pending.consumer);
        reply.bulk(consumer.map_or(b"", |consumer| consumer.name()));
        reply.integer(idle_ms.max(0));
        reply.integer(pending.count as i64);
        n += 1;
        true
    };
    if let Some(name) = shown.consumer {
        let consumer = group.number(name).and_then(|number| group.consumer(number));
        let ids = consumer.map(|consumer| consumer.pending_from(shown.from));
        let mut ids = ids.into_iter().flatten().take_while(|id| *id <= shown.to);
        while let Some(pending) = ids.next().and_then(|id| group.pending_of(id))
            && show(&pending)
        {}
    } else {
        let mut all = group.pending_from(shown.from);
        while let Some(pending) = all.next().filter(|pending| pending.id <= shown.to)
            && show(pending)
        {}
    }
    reply.enclose(from, n);
}
