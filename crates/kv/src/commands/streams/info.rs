//! XINFO.

use super::super::parse::{integer, is};
use super::super::subcommands::{self, Subcommands};
use super::super::{Ctx, Done, Error};
use super::groups::{no_such_group, write_help, wrong};
use super::{write_entries, write_entry, write_id};
use crate::reply::Reply;
use crate::types::{Consumer, Entries, Group, Stream, StreamId};

/// The subcommands of XINFO.
pub(crate) const SUBCOMMANDS: Subcommands =
    &[("consumers", 4), ("groups", 3), ("help", 2), ("stream", -3)];

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Print this help.",
];

/// Entries that FULL shows of everything, unless it is told how many.
const SHOWN: usize = 10;

pub(super) fn xinfo(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let sub = subcommands::check("xinfo", SUBCOMMANDS, args)?;
    if sub == "help" {
        write_help(ctx, HELP);
        return Ok(());
    }
    let Some(stream) = ctx.db.get::<Stream>(args[2])? else {
        return Err(Error::NO_KEY);
    };
    let reply = &mut *ctx.reply;
    match sub {
        "consumers" => {
            let group = stream.group(args[3]);
            let group = group.ok_or_else(|| no_such_group(args[2], args[3]))?;
            reply.array(group.len());
            for consumer in group.consumers() {
                if reply.is_over() {
                    break;
                }
                write_consumer(reply, consumer, ctx.now_ms);
            }
        }
        "groups" => {
            reply.array(stream.groups_len());
            for (name, group) in stream.groups() {
                reply.map(6);
                named(reply, "name", |reply| reply.bulk(name));
                number(reply, "consumers", group.len() as i64);
                number(reply, "pending", group.pending() as i64);
                named(reply, "last-delivered-id", |r| write_id(r, group.last()));
                write_progress(reply, &stream.entries, group);
            }
        }
        _ => match shown(args)? {
            None => write_stream(reply, stream),
            Some(count) => write_all(reply, stream, count),
        },
    }
    Ok(())
}

pub(crate) fn named(reply: &mut Reply, name: &str, write: impl FnOnce(&mut Reply)) {
    reply.bulk(name.as_bytes());
    write(reply);
}

pub(crate) fn number(reply: &mut Reply, name: &str, n: i64) {
    named(reply, name, |reply| reply.integer(n));
}

fn write_consumer(reply: &mut Reply, consumer: &Consumer, now_ms: u64) {
    let since = |ms: u64| now_ms.saturating_sub(ms) as i64;
    reply.map(4);
    named(reply, "name", |reply| reply.bulk(consumer.name()));
    number(reply, "pending", consumer.pending() as i64);
    number(reply, "idle", since(consumer.seen_ms()));
    number(reply, "inactive", consumer.active_ms().map_or(-1, since));
}

/// How far a group has read, and how many entries are left, if the number can be known.
fn write_progress(reply: &mut Reply, entries: &Entries, group: &Group) {
    let or_null = |reply: &mut Reply, n: Option<i64>| match n {
        Some(n) => reply.integer(n),
        None => reply.null(),
    };
    let read = group.read().map(|read| read as i64);
    named(reply, "entries-read", |reply| or_null(reply, read));
    named(reply, "lag", |reply| or_null(reply, group.lag(entries)));
}

/// How much of everything XINFO STREAM is to show, 0 for all; `None` for the short form.
pub(crate) fn shown(args: &[&[u8]]) -> Result<Option<usize>, Error> {
    match args[3..] {
        [] => Ok(None),
        [full] if is(full, "full") => Ok(Some(SHOWN)),
        [full, count, n] if is(full, "full") && is(count, "count") => {
            let n = integer(n)?;
            Ok(Some(usize::try_from(n).unwrap_or(SHOWN)))
        }
        _ => Err(wrong("xinfo", args)),
    }
}

/// The numbers with which both forms of XINFO STREAM begin.
pub(crate) struct Numbers {
    pub(crate) length: u64,
    pub(crate) blocks: u64,
    pub(crate) last: StreamId,
    pub(crate) max_deleted: StreamId,
    pub(crate) added: u64,
    pub(crate) first: StreamId,
}

impl Numbers {
    fn of(entries: &Entries) -> Numbers {
        Numbers {
            length: entries.len(),
            blocks: entries.blocks() as u64,
            last: entries.last_id(),
            max_deleted: entries.max_deleted(),
            added: entries.added(),
            first: entries.first_id(),
        }
    }

    /// Writes seven pairs.
    pub(crate) fn write(&self, reply: &mut Reply) {
        number(reply, "length", self.length as i64);
        // Redis has a stream's blocks in a tree, which has at least one node more than blocks.
        number(reply, "radix-tree-keys", self.blocks as i64);
        number(reply, "radix-tree-nodes", self.blocks as i64 + 1);
        named(reply, "last-generated-id", |r| write_id(r, self.last));
        named(reply, "max-deleted-entry-id", |r| {
            write_id(r, self.max_deleted);
        });
        number(reply, "entries-added", self.added as i64);
        named(reply, "recorded-first-entry-id", |r| {
            write_id(r, self.first);
        });
    }
}

fn write_stream(reply: &mut Reply, stream: &Stream) {
    let entries = &stream.entries;
    reply.map(10);
    Numbers::of(entries).write(reply);
    number(reply, "groups", stream.groups_len() as i64);
    let first = entries.range(StreamId::MIN, StreamId::MAX).next();
    let last = entries.range_back(StreamId::MIN, StreamId::MAX).next();
    for (name, item) in [("first-entry", first), ("last-entry", last)] {
        named(reply, name, |reply| match item {
            Some(item) => write_entry(reply, item),
            None => reply.null(),
        });
    }
}

/// The full form; `count` of everything at most, 0 for all.
fn write_all(reply: &mut Reply, stream: &Stream, count: usize) {
    let entries = &stream.entries;
    let most = if count == 0 { usize::MAX } else { count };
    reply.map(9);
    Numbers::of(entries).write(reply);
    named(reply, "entries", |reply| {
        write_entries(reply, entries.range(StreamId::MIN, StreamId::MAX), count);
    });
    named(reply, "groups", |reply| reply.array(stream.groups_len()));
    for (name, group) in stream.groups() {
        if reply.is_over() {
            return;
        }
        reply.map(7);
        named(reply, "name", |reply| reply.bulk(name));
        named(reply, "last-delivered-id", |r| write_id(r, group.last()));
        write_progress(reply, entries, group);
        number(reply, "pel-count", group.pending() as i64);
        named(reply, "pending", |reply| {
            reply.array(group.pending().min(most));
        });
        for pending in group.pending_from(StreamId::MIN).take(most) {
            if reply.is_over() {
                return;
            }
            reply.array(4);
            write_id(reply, pending.id);
            let consumer = group.consumer(pending.consumer);
            reply.bulk(consumer.map_or(b"", |consumer| consumer.name()));
            reply.integer(pending.delivered_ms as i64);
            reply.integer(pending.count as i64);
        }
        named(reply, "consumers", |reply| reply.array(group.len()));
        for consumer in group.consumers() {
            if reply.is_over() {
                return;
            }
            write_full_consumer(reply, group, consumer, most);
        }
    }
}

fn write_full_consumer(reply: &mut Reply, group: &Group, consumer: &Consumer, most: usize) {
    reply.map(5);
    named(reply, "name", |reply| reply.bulk(consumer.name()));
    number(reply, "seen-time", consumer.seen_ms() as i64);
    let active = consumer.active_ms().map_or(-1, |ms| ms as i64);
    number(reply, "active-time", active);
    number(reply, "pel-count", consumer.pending() as i64);
    named(reply, "pending", |reply| {
        reply.array(consumer.pending().min(most));
    });
    let ids = consumer.pending_from(StreamId::MIN).take(most);
    for pending in ids.filter_map(|id| group.pending_of(id)) {
        if reply.is_over() {
            return;
        }
        reply.array(3);
        write_id(reply, pending.id);
        reply.integer(pending.delivered_ms as i64);
        reply.integer(pending.count as i64);
    }
}
