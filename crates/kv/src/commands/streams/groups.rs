//! XGROUP and XACK.

use super::super::parse::{integer, is};
use super::super::subcommands::{self, Subcommands};
use super::super::{Ctx, Done, Error};
use super::args::{id, id_or_end};
use super::ids;
use crate::store::{Collection, events};
use crate::types::{Stream, StreamId};

/// The subcommands of XGROUP.
pub(crate) const SUBCOMMANDS: Subcommands = &[
    ("create", -5),
    ("createconsumer", 5),
    ("delconsumer", 5),
    ("destroy", 4),
    ("help", 2),
    ("setid", -5),
];

/// The event of a new consumer.
pub(super) const CREATED: &str = "xgroup-createconsumer";

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Print this help.",
];

pub(super) fn write_help(ctx: &mut Ctx<'_, '_>, lines: &[&str]) {
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
}

#[cold]
pub(crate) fn no_such_group(key: &[u8], group: &[u8]) -> Error {
    let Error(text) = Error::quoting(
        "NOGROUP No such consumer group '",
        group,
        "' for key name '",
    );
    let Error(rest) = Error::quoting("", key, "'");
    Error([&*text, &*rest].concat().into())
}

#[derive(Default)]
struct Options {
    make: bool,
    /// How many entries were read before.
    read: Option<u64>,
}

impl Options {
    fn parse(sub: &str, args: &[&[u8]]) -> Result<Options, Error> {
        let (mut options, mut at) = (Options::default(), 5);
        while let Some(arg) = args.get(at) {
            match args.get(at + 1) {
                _ if sub == "create" && is(arg, "mkstream") => {
                    options.make = true;
                    at += 1;
                }
                Some(n) if is(arg, "entriesread") => {
                    let n = integer(n)?;
                    if n < -1 {
                        return Err(Error::new(
                            "ERR value for ENTRIESREAD must be positive or -1",
                        ));
                    }
                    options.read = u64::try_from(n).ok();
                    at += 2;
                }
                _ => return Err(wrong("xgroup", args)),
            }
        }
        Ok(options)
    }
}

/// The error for a subcommand with a wrong number of arguments.
#[cold]
pub(super) fn wrong(command: &str, args: &[&[u8]]) -> Error {
    subcommands::unknown(command, args[1], " or wrong number of arguments for")
}

pub(super) fn xgroup(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let sub = subcommands::check("xgroup", SUBCOMMANDS, args)?;
    if sub == "help" {
        write_help(ctx, HELP);
        return Ok(());
    }
    let options = Options::parse(sub, args)?;
    let (key, name) = (args[2], args[3]);
    let stream = ctx.db.get::<Stream>(key)?;
    if stream.is_none() && !options.make {
        return Err(Error::new(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want \
             to use the MKSTREAM option to create an empty stream automatically.",
        ));
    }
    let known = stream.is_some_and(|stream| stream.group(name).is_some());
    let last = stream.map_or(StreamId::MIN, |stream| stream.entries.last_id());
    if !known && matches!(sub, "setid" | "createconsumer" | "delconsumer") {
        return Err(no_such_group(key, name));
    }
    match sub {
        "create" => return create(ctx, args, last, &options),
        "setid" => {
            let last = match args[4] {
                b"$" => last,
                arg => id_or_end(arg, 0)?,
            };
            change(ctx, args, |stream| {
                stream.change_group(name, |_, group| group.set(last, options.read));
                (true, ())
            })?;
            ctx.db.event(events::STREAM, "xgroup-setid", key);
            ctx.reply.ok();
        }
        "destroy" => {
            let gone = change(ctx, args, |stream| {
                let gone = stream.destroy_group(name);
                (gone, gone)
            })?;
            if gone == Some(true) {
                ctx.db.event(events::STREAM, "xgroup-destroy", key);
            }
            ctx.reply.integer(gone.unwrap_or(false).into());
        }
        "createconsumer" => {
            let now_ms = ctx.at_ms;
            let made = change(ctx, args, |stream| {
                let made = stream.change_group(name, |_, group| group.enter(args[4], now_ms).1);
                let made = made.unwrap_or(false);
                (made, made)
            })?;
            if made == Some(true) {
                ctx.db.event(events::STREAM, CREATED, key);
            }
            ctx.reply.integer(made.unwrap_or(false).into());
        }
        _ => {
            let pending = change(ctx, args, |stream| {
                let pending = stream.change_group(name, |_, group| group.dismiss(args[4]));
                let pending = pending.flatten();
                (pending.is_some(), pending)
            })?;
            let pending = pending.flatten();
            if pending.is_some() {
                ctx.db.event(events::STREAM, "xgroup-delconsumer", key);
            }
            ctx.reply.integer(pending.unwrap_or(0) as i64);
        }
    }
    Ok(())
}

fn change<R>(
    ctx: &mut Ctx<'_, '_>,
    args: &[&[u8]],
    change: impl FnOnce(&mut Stream) -> (bool, R),
) -> Result<Option<R>, Error> {
    ctx.db.update(args[2], change)
}

fn create(ctx: &mut Ctx<'_, '_>, args: &[&[u8]], last: StreamId, options: &Options) -> Done {
    let last = match args[4] {
        b"$" => last,
        arg => id(arg, 0)?,
    };
    let create = |stream: &mut Stream| {
        let made = stream.create_group(args[3], last, options.read);
        (made, made)
    };
    let made = match change(ctx, args, create)? {
        Some(made) => made,
        None => {
            let mut stream = Stream::default();
            stream.create_group(args[3], last, options.read);
            ctx.db.set(args[2], stream.into_value());
            true
        }
    };
    if !made {
        return Err(Error::new("BUSYGROUP Consumer Group name already exists"));
    }
    ctx.db.event(events::STREAM, "xgroup-create", args[2]);
    ctx.reply.ok();
    Ok(())
}

pub(super) fn xack(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let stream = ctx.db.get::<Stream>(args[1])?;
    let known = stream.is_some_and(|stream| stream.group(args[2]).is_some());
    let mut done = None;
    if known {
        let ids = ids(&args[3..])?;
        done = ctx.db.update(args[1], |stream: &mut Stream| {
            let done = stream.change_group(args[2], |_, group| {
                ids.iter().filter(|id| group.acknowledge(**id)).count()
            });
            let done = done.unwrap_or(0);
            (done > 0, done)
        })?;
    }
    ctx.reply.integer(done.unwrap_or(0) as i64);
    Ok(())
}
