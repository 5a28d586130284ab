//! Commands about keys of any type, and about whole databases.

use super::parse::{integer, is, parse_integer};
use super::scan::{Scan, pattern};
use super::subcommands::{self, Subcommands};
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, WRITE};
use crate::store::{Deadline, Form, Kind, Value, ValueRef, events};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("del", -2, WRITE | REMOVES, Keys::REST, del),
    Spec::new("unlink", -2, WRITE | REMOVES | FAST, Keys::REST, del),
    Spec::new("exists", -2, READ | FAST, Keys::REST, exists),
    Spec::new("touch", -2, READ | FAST, Keys::REST, touch),
    Spec::new("type", 2, READ | FAST, Keys::ONE, kind),
    Spec::new("rename", 3, WRITE, Keys::TWO, rename),
    Spec::new("renamenx", 3, WRITE | FAST, Keys::TWO, rename),
    Spec::new("copy", -3, WRITE | MEMORY, Keys::TWO, copy),
    Spec::new("move", 3, WRITE | FAST, Keys::ONE, move_),
    Spec::new("randomkey", 1, READ, Keys::Walk, randomkey),
    Spec::new("keys", 2, READ, Keys::Walk, keys),
    Spec::new("scan", -2, READ, Keys::Walk, scan),
    Spec::new("dbsize", 1, READ | FAST, Keys::Walk, dbsize),
    Spec::new("flushdb", -1, WRITE | REMOVES, Keys::All, flush),
    Spec::new("flushall", -1, WRITE | REMOVES, Keys::All, flush),
    Spec::new("swapdb", 3, WRITE | FAST, Keys::All, swapdb),
    Spec::new("object", -2, READ, Keys::SECOND, object),
    Spec::new("memory", -2, READ, Keys::SECOND, memory),
];

/// The subcommands of OBJECT.
pub(crate) const OBJECT: Subcommands = &[
    ("encoding", 3),
    ("freq", 3),
    ("help", 2),
    ("idletime", 3),
    ("refcount", 3),
];

/// The subcommands of MEMORY.
pub(crate) const MEMORY_COMMANDS: Subcommands = &[
    ("doctor", 2),
    ("help", 2),
    ("malloc-stats", 2),
    ("purge", 2),
    ("stats", 2),
    ("usage", -3),
];

fn del(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let mut n = 0;
    for key in &args[1..] {
        if ctx.db.remove(key) {
            ctx.db.event(events::GENERIC, "del", key);
            n += 1;
        }
    }
    ctx.reply.integer(n);
    Ok(())
}

fn exists(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let n = args[1..]
        .iter()
        .filter(|key| ctx.db.look(key).is_some())
        .count();
    ctx.reply.integer(n as i64);
    Ok(())
}

fn touch(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let n = args[1..].iter().filter(|key| ctx.db.touch(key)).count();
    ctx.reply.integer(n as i64);
    Ok(())
}

fn kind(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let value = ctx.db.look(args[1]);
    let name = value.map_or("none", |value| value.kind().name());
    ctx.reply.simple(name);
    Ok(())
}

fn rename(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let only_new = ctx.name == "renamenx";
    let (from, to) = (args[1], args[2]);
    if !ctx.db.exists(from) {
        return Err(Error::NO_KEY);
    }
    let done = !(only_new && ctx.db.exists(to));
    if done && from != to {
        let form = ctx.db.peek_form(from);
        let (value, deadline_ms) = ctx.db.take(from).expect("it exists");
        put(ctx, to, value, deadline_ms);
        ctx.db.set_form(to, form);
        ctx.db.event(events::GENERIC, "rename_from", from);
        ctx.db.event(events::GENERIC, "rename_to", to);
    }
    if only_new {
        ctx.reply.integer(done.into());
    } else {
        ctx.reply.ok();
    }
    Ok(())
}

/// Puts a value with its deadline in the place of any value that a key holds.
pub(super) fn put(ctx: &mut Ctx<'_, '_>, key: &[u8], value: Value, deadline_ms: Option<u64>) {
    if ctx.db.exists(key) {
        // As in Redis, the old value of the key is removed first.
        ctx.db.event(events::NEW, "new", key);
    }
    match value {
        Value::Str(s) => {
            let deadline = deadline_ms.map_or(Deadline::Clear, Deadline::At);
            ctx.db.set_string(key, &s, deadline);
        }
        value => {
            ctx.db.set(key, value);
            if deadline_ms.is_some() {
                ctx.db.set_deadline_ms(key, deadline_ms);
            }
        }
    }
}

fn database(ctx: &Ctx<'_, '_>, arg: &[u8], wrong: Error) -> Result<u16, Error> {
    let db = parse_integer(arg).ok_or(wrong)?;
    let db = u16::try_from(db).ok().filter(|db| *db < ctx.db.databases());
    db.ok_or(Error::DB_INDEX)
}

fn copy(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (from, to) = (args[1], args[2]);
    let (mut db, mut replace) = (ctx.db.db(), false);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        if is(option, "replace") {
            replace = true;
        } else if is(option, "db") {
            let arg = options.next().ok_or(Error::SYNTAX)?;
            db = database(ctx, arg, Error::NOT_INTEGER)?;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    if db == ctx.db.db() && from == to {
        return Err(Error::new(
            "ERR source and destination objects are the same",
        ));
    }
    let form = ctx.db.peek_form(from);
    let source = ctx.db.value(from).map(|value| value.to_value());
    let done = match source {
        None => false,
        Some(value) => {
            let deadline_ms = ctx.db.deadline_ms(from).flatten();
            let here = ctx.db.swap_db(db);
            let free = replace || !ctx.db.exists(to);
            if free {
                put(ctx, to, value, deadline_ms);
                ctx.db.set_form(to, form);
                ctx.db.event(events::GENERIC, "copy_to", to);
            }
            ctx.db.swap_db(here);
            free
        }
    };
    ctx.reply.integer(done.into());
    Ok(())
}

fn move_(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let key = args[1];
    let db = database(ctx, args[2], Error::NOT_INTEGER)?;
    if db == ctx.db.db() {
        return Err(Error::new(
            "ERR source and destination objects are the same",
        ));
    }
    let here = ctx.db.swap_db(db);
    let taken = ctx.db.exists(key);
    ctx.db.swap_db(here);
    let form = ctx.db.peek_form(key);
    let value = if taken { None } else { ctx.db.take(key) };
    let done = value.is_some();
    if let Some((value, deadline_ms)) = value {
        ctx.db.swap_db(db);
        put(ctx, key, value, deadline_ms);
        ctx.db.set_form(key, form);
        ctx.db.swap_db(here);
        ctx.db.event(events::GENERIC, "move_from", key);
        ctx.db.swap_db(db);
        ctx.db.event(events::GENERIC, "move_to", key);
        ctx.db.swap_db(here);
    }
    ctx.reply.integer(done.into());
    Ok(())
}

fn randomkey(ctx: &mut Ctx<'_, '_>, _: &[&[u8]]) -> Done {
    let key = ctx.db.random_key(ctx.rng);
    ctx.reply.bulk_or_null(key.as_deref());
    Ok(())
}

/// Goes from shard to shard, holding one lock at a time, and that shortly.
fn keys(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    /// Keys that are looked at under one lock.
    const SLICE: usize = 1024;
    let pattern = pattern(args[1])?;
    let mut found = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = ctx.db.scan(cursor, SLICE, &mut |key, _| {
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(key)) {
                found.push(key.to_vec());
            }
        });
        if cursor == 0 {
            break;
        }
        ctx.db.leave();
    }
    ctx.reply.array(found.len());
    found.iter().for_each(|key| ctx.reply.bulk(key));
    Ok(())
}

fn scan(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let cursor = Scan::cursor(args[1])?;
    let (mut count, mut matching, mut kind) = (10, None, None);
    for option in args[2..].chunks(2) {
        Scan::is_bare(option[0], ctx.name)?;
        let &[name, value] = option else {
            return Err(Error::SYNTAX);
        };
        if is(name, "count") {
            count = integer(value)?;
            if count < 1 {
                return Err(Error::SYNTAX);
            }
        } else if is(name, "match") {
            matching = pattern(value)?;
        } else if is(name, "type") {
            let known = Kind::ALL.into_iter().find(|kind| is(value, kind.name()));
            let unknown = || Error::quoting("ERR unknown type name '", value, "'");
            kind = Some(known.ok_or_else(unknown)?);
        } else {
            return Err(Error::SYNTAX);
        }
    }
    let mut found = Vec::new();
    let next = ctx.db.scan(cursor, count as usize, &mut |key, value| {
        let is_kind = kind.is_none_or(|kind| kind == value.kind());
        if is_kind && matching.as_ref().is_none_or(|glob| glob.matches(key)) {
            found.push(key.to_vec());
        }
    });
    ctx.db.drop_expired();
    Scan::reply(ctx, next, &found);
    Ok(())
}

fn dbsize(ctx: &mut Ctx<'_, '_>, _: &[&[u8]]) -> Done {
    ctx.reply.integer(ctx.db.len() as i64);
    Ok(())
}

fn flush(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    match args {
        [_] => {}
        [_, how] if is(how, "sync") || is(how, "async") => {}
        _ => return Err(Error::SYNTAX),
    }
    if ctx.name == "flushdb" {
        ctx.db.flush();
    } else {
        let here = ctx.db.db();
        for db in 0..ctx.db.databases() {
            ctx.db.swap_db(db);
            ctx.db.flush();
        }
        ctx.db.swap_db(here);
    }
    ctx.reply.ok();
    Ok(())
}

fn swapdb(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let a = database(ctx, args[1], Error::new("ERR invalid first DB index"))?;
    let b = database(ctx, args[2], Error::new("ERR invalid second DB index"))?;
    if a != b {
        ctx.db.swap_databases(a, b);
    }
    ctx.reply.ok();
    Ok(())
}

fn object(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let sub = subcommands::check("object", OBJECT, args)?;
    if sub == "help" {
        let lines = [
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    Return the kind of internal representation used for the value of <key>.",
            "FREQ <key>",
            "    Return the access frequency index of <key>.",
            "IDLETIME <key>",
            "    Return the idle time of <key> in seconds.",
            "REFCOUNT <key>",
            "    Return the number of references to the value of <key>.",
            "HELP",
            "    Print this help.",
        ];
        ctx.reply.array(lines.len());
        lines.iter().for_each(|line| ctx.reply.simple(line));
        return Ok(());
    }
    let Some(value) = ctx.db.peek_value(args[2]) else {
        ctx.reply.null();
        return Ok(());
    };
    match sub {
        "encoding" => {
            let form = ctx.db.peek_form(args[2]);
            ctx.reply.bulk(encoding(value, form).as_bytes());
        }
        "refcount" => ctx.reply.integer(1),
        "freq" if ctx.db.counts_uses() => {
            let count = ctx.db.frequency(args[2]).unwrap_or(0);
            ctx.reply.integer(count.into());
        }
        "idletime" if ctx.db.counts_uses() => {
            return Err(Error::new(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
        "idletime" => ctx
            .reply
            .integer(ctx.db.idle_s(args[2]).unwrap_or(0) as i64),
        _ => {
            return Err(Error::new(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data \
                 will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

fn encoding(value: ValueRef<'_>, form: Form) -> &'static str {
    /// Longest string that Redis keeps beside its key.
    const EMBEDDED: usize = 44;
    match value {
        ValueRef::Str(_) if form == Form::Edited => "raw",
        ValueRef::Str(s) if form == Form::Given && parse_integer(s).is_some() => "int",
        ValueRef::Str(s) if s.len() <= EMBEDDED => "embstr",
        ValueRef::Str(_) => "raw",
        ValueRef::List(x) => x.encoding(),
        ValueRef::Hash(x) => x.encoding(),
        ValueRef::Set(x) => x.encoding(),
        ValueRef::ZSet(x) => x.encoding(),
        ValueRef::Stream(_) => "stream",
    }
}

fn memory(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let sub = subcommands::check("memory", MEMORY_COMMANDS, args)?;
    if sub == "help" {
        let lines = [
            "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DOCTOR",
            "    Say in words what is unusual about the memory.",
            "MALLOC-STATS",
            "    Say what is known of the allocator.",
            "PURGE",
            "    Free what was removed and waits to be freed.",
            "STATS",
            "    Return what takes memory.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value.",
            "HELP",
            "    Print this help.",
        ];
        ctx.reply.array(lines.len());
        lines.iter().for_each(|line| ctx.reply.simple(line));
        return Ok(());
    }
    if sub != "usage" {
        ctx.outside = true;
        return Ok(());
    }
    match args {
        [_, _, _] => {}
        [_, _, _, samples, n] if is(samples, "samples") => {
            if integer(n)? < 0 {
                return Err(Error::SYNTAX);
            }
        }
        _ => return Err(Error::SYNTAX),
    }
    match ctx.db.bytes(args[2]) {
        Some(bytes) => ctx.reply.integer(bytes as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}
