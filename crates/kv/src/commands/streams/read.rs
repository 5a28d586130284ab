//! XREAD and XREADGROUP.

use std::time::Duration;

use super::super::parse::{integer, is};
use super::super::{Ctx, Done, Error};
use super::args::id;
use super::groups::CREATED;
use super::{no_group, write_entries, write_entry, write_id};
use crate::reply::{Proto, Reply};
use crate::store::{Blocked, Kind, Nothing, events};
use crate::types::{Entries, Group, Pending, Stream, StreamId};

/// The arguments of a read.
pub(crate) struct Asked<'a, 'x> {
    pub(crate) keys: &'a [&'x [u8]],
    pub(crate) ids: &'a [&'x [u8]],
    /// The place of the ids among the arguments.
    ids_at: usize,
    /// The place of BLOCK among the arguments, and its milliseconds; 0 waits for ever.
    pub(crate) block: Option<(usize, i64)>,
    /// 0 for all.
    pub(crate) count: usize,
    no_ack: bool,
    /// The group and the consumer.
    group: Option<(&'x [u8], &'x [u8])>,
}

fn only_of_groups(option: &str) -> Error {
    Error::text(format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    ))
}

impl<'a, 'x> Asked<'a, 'x> {
    pub(crate) fn parse(name: &str, args: &'a [&'x [u8]]) -> Result<Asked<'a, 'x>, Error> {
        let of_group = name == "xreadgroup";
        let (mut at, mut block, mut count) = (1, None, 0);
        let (mut no_ack, mut group, mut streams) = (false, None, None);
        while let [option, rest @ ..] = &args[at..] {
            match *rest {
                [ms, ..] if is(option, "block") => {
                    block = Some((at, milliseconds(ms)?));
                    at += 2;
                }
                [n, ..] if is(option, "count") => {
                    count = integer(n)?.max(0) as usize;
                    at += 2;
                }
                [_, ..] if is(option, "streams") => {
                    streams = Some(at + 1);
                    break;
                }
                [of, consumer, ..] if is(option, "group") => {
                    if !of_group {
                        return Err(only_of_groups("GROUP"));
                    }
                    group = Some((of, consumer));
                    at += 3;
                }
                _ if is(option, "noack") => {
                    if !of_group {
                        return Err(only_of_groups("NOACK"));
                    }
                    no_ack = true;
                    at += 1;
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        let streams = streams.ok_or(Error::SYNTAX)?;
        let n = args.len() - streams;
        if n % 2 == 1 {
            let symbol = if of_group { '>' } else { '$' };
            return Err(Error::text(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified."
            )));
        }
        if of_group && group.is_none() {
            return Err(Error::new("ERR Missing GROUP option for XREADGROUP"));
        }
        let ids_at = streams + n / 2;
        Ok(Asked {
            keys: &args[streams..ids_at],
            ids: &args[ids_at..],
            ids_at,
            block,
            count,
            no_ack,
            group,
        })
    }

    /// Has the command wait, if it was asked to; else there is nothing. `instead` are the ids from which the
    /// command goes on after the wait.
    fn wait(&self, ctx: &mut Ctx<'_, '_>, args: &[&[u8]], instead: &[StreamId]) {
        let Some((_, ms)) = self.block else {
            ctx.reply.null_array();
            return;
        };
        let instead = self.ids.contains(&&b"$"[..]).then(|| {
            let mut args: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
            for (at, id) in instead.iter().enumerate() {
                args[self.ids_at + at] = id.text().as_bytes().to_vec();
            }
            args
        });
        ctx.block(Blocked {
            keys: self.keys.iter().map(|key| key.to_vec()).collect(),
            kind: Kind::Stream,
            timeout: (ms > 0).then(|| Duration::from_millis(ms.unsigned_abs())),
            nothing: Nothing::Array,
            group: self.group.map(|(group, _)| group.to_vec()),
            instead,
        });
    }
}

/// How long to wait; 0 for ever.
fn milliseconds(arg: &[u8]) -> Result<i64, Error> {
    let ms =
        integer(arg).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
    if ms < 0 {
        return Err(Error::new("ERR timeout is negative"));
    }
    Ok(ms.min(i64::MAX / 2))
}

/// The error for an id that only XREADGROUP knows.
pub(crate) const ONLY_OF_GROUPS: Error = Error::new(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);

/// Writes the name of a stream in front of its entries.
pub(crate) fn write_key(reply: &mut Reply, key: &[u8]) {
    if reply.proto == Proto::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

/// Ends what was written behind `from`, of so many streams.
pub(crate) fn end(reply: &mut Reply, from: usize, streams: usize) {
    match reply.proto {
        Proto::Resp2 => reply.enclose(from, streams),
        Proto::Resp3 => reply.enclose_map(from, streams),
    }
}

pub(super) fn xread(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let asked = Asked::parse(ctx.name, args)?;
    let mut behind = Vec::with_capacity(asked.ids.len());
    for (&key, &arg) in asked.keys.iter().zip(asked.ids) {
        let stream = ctx.db.get::<Stream>(key)?;
        behind.push(match arg {
            b"$" => stream.map_or(StreamId::MIN, |stream| stream.entries.last_id()),
            b">" => return Err(ONLY_OF_GROUPS),
            arg => id(arg, 0)?,
        });
    }
    let (from, mut streams) = (ctx.reply.len(), 0);
    for (&key, &behind) in asked.keys.iter().zip(&behind) {
        let has_more = |stream: &Stream| stream.entries.top() > behind;
        let Some(next) = behind.next() else { continue };
        if !ctx.db.peek::<Stream>(key)?.is_some_and(has_more) {
            continue;
        }
        write_key(ctx.reply, key);
        if let Some(stream) = ctx.db.peek::<Stream>(key)? {
            let items = stream.entries.range(next, StreamId::MAX);
            write_entries(ctx.reply, items, asked.count);
        }
        streams += 1;
    }
    if streams == 0 {
        asked.wait(ctx, args, &behind);
    } else {
        end(ctx.reply, from, streams);
    }
    Ok(())
}

/// The entries that a group reads.
#[derive(Clone, Copy)]
enum Wanted {
    /// Entries that were not delivered yet.
    New,
    /// The entries after an id that this consumer was given and has not acknowledged.
    Own(StreamId),
}

pub(super) fn xreadgroup(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let asked = Asked::parse(ctx.name, args)?;
    let Some((group, consumer)) = asked.group else {
        return Err(Error::SYNTAX);
    };
    let mut wanted = Vec::with_capacity(asked.ids.len());
    for (&key, &arg) in asked.keys.iter().zip(asked.ids) {
        let stream = ctx.db.get::<Stream>(key)?;
        if stream.and_then(|stream| stream.group(group)).is_none() {
            return Err(no_group(key, group, " in XREADGROUP with GROUP option"));
        }
        wanted.push(match arg {
            b"$" => {
                return Err(Error::new(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                     history of this consumer by specifying a proper ID, or use the > ID to get new \
                     messages. The $ ID would just return an empty result set.",
                ));
            }
            b">" => Wanted::New,
            arg => match id(arg, 0)? {
                StreamId::MAX => Wanted::New,
                id => Wanted::Own(id),
            },
        });
    }
    let (from, mut streams) = (ctx.reply.len(), 0);
    let now_ms = ctx.at_ms;
    let mut changes = false;
    for (&key, &wanted) in asked.keys.iter().zip(&wanted) {
        let has_more = |stream: &Stream| {
            let of = stream.group(group);
            of.is_some_and(|of| stream.entries.top() > of.last())
        };
        let gives = match wanted {
            Wanted::Own(_) => true,
            Wanted::New => ctx.db.peek::<Stream>(key)?.is_some_and(has_more),
        };
        if gives {
            write_key(ctx.reply, key);
            streams += 1;
        }
        let (reply, mut entered) = (&mut *ctx.reply, false);
        let changed = ctx.db.update(key, |stream: &mut Stream| {
            let read = stream.change_group(group, |entries, of| {
                let (number, is_new) = of.enter(consumer, now_ms);
                entered = is_new;
                of.note(number, now_ms, false);
                let from = reply.len();
                let (given, shown) = match wanted {
                    Wanted::New if !gives => return is_new,
                    Wanted::New => {
                        let mut next = |item| write_entry(reply, item);
                        let ask = (asked.count, !asked.no_ack, number);
                        give(entries, of, ask, now_ms, &mut next)
                    }
                    Wanted::Own(behind) => {
                        let mut one = |id| show_own(entries, id, reply);
                        again(of, number, (behind, asked.count), now_ms, &mut one)
                    }
                };
                reply.enclose(from, shown);
                given || is_new
            });
            let changed = read.unwrap_or(false);
            (changed, changed)
        })?;
        if entered {
            ctx.db.event(events::STREAM, CREATED, key);
        }
        changes |= changed.unwrap_or(false);
    }
    if changes && let Some((at, _)) = asked.block {
        // The entries that were found then are still there.
        let without: Vec<&[u8]> = [&args[..at], &args[at + 2..]].concat();
        ctx.rewrite(&without);
    }
    if streams == 0 {
        asked.wait(ctx, args, &[]);
    } else {
        end(ctx.reply, from, streams);
    }
    Ok(())
}

/// Delivers entries that were not delivered yet: whether there were any, and how many.
fn give<'e>(
    entries: &'e Entries,
    of: &mut Group,
    (count, keeps, number): (usize, bool, u32),
    now_ms: u64,
    show: &mut dyn FnMut(crate::types::Item<'e>),
) -> (bool, usize) {
    let Some(from) = of.last().next() else {
        return (false, 0);
    };
    let most = if count == 0 { usize::MAX } else { count };
    let mut given = 0;
    for item in entries.range(from, StreamId::MAX).take(most) {
        of.advance(entries, item.id);
        show(item);
        if keeps {
            of.assign(Pending {
                id: item.id,
                delivered_ms: now_ms,
                count: 1,
                consumer: number,
            });
        }
        given += 1;
    }
    of.note(number, now_ms, keeps && given > 0);
    (given > 0, given)
}

/// Shows an entry that a consumer has; whether there still is one.
fn show_own(entries: &Entries, id: StreamId, reply: &mut Reply) -> bool {
    match entries.get(id) {
        Some(item) => {
            write_entry(reply, item);
            true
        }
        None => {
            reply.array(2);
            write_id(reply, id);
            reply.null_array();
            false
        }
    }
}

/// Delivers a consumer's pending entries again; returns whether anything has changed, and how many
/// entries there are.
fn again(
    of: &mut Group,
    number: u32,
    (behind, count): (StreamId, usize),
    now_ms: u64,
    show: &mut dyn FnMut(StreamId) -> bool,
) -> (bool, usize) {
    let most = if count == 0 { usize::MAX } else { count };
    let from = behind.next().unwrap_or(StreamId::MAX);
    let ids: Vec<StreamId> = of.consumer(number).map_or_else(Vec::new, |consumer| {
        consumer.pending_from(from).take(most).collect()
    });
    let mut changed = false;
    for &id in &ids {
        if show(id)
            && let Some(pending) = of.pending_of(id)
        {
            of.assign(Pending {
                delivered_ms: now_ms,
                count: pending.count.saturating_add(1),
                ..pending
            });
            changed = true;
        }
    }
    (changed, ids.len())
}
