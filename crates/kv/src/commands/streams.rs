//! Commands on streams: adding, reading a range, deleting and trimming. Commands of groups stand
//! below.

mod args;
mod claim;
mod groups;
mod info;
mod pending;
mod read;

use super::parse::{integer, is};
use super::{CREATES, Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, WRITE};
use crate::reply::Reply;
use crate::store::{Collection, events};
use crate::types::{Item, Stream, StreamId, Trim};
use args::{Added, Adding, Trimming, interval};

pub(crate) use args::id;
pub(crate) use groups::{SUBCOMMANDS as XGROUP, no_such_group};
pub(crate) use info::{Numbers, SUBCOMMANDS as XINFO, named, number, shown};
pub(crate) use read::{Asked, ONLY_OF_GROUPS, end, write_key};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("xadd", -5, WRITE | MEMORY | FAST, Keys::ONE, xadd),
    Spec::new("xlen", 2, READ | FAST, Keys::ONE, xlen),
    Spec::new("xrange", -4, READ, Keys::ONE, xrange),
    Spec::new("xrevrange", -4, READ, Keys::ONE, xrange),
    Spec::new("xdel", -3, WRITE | REMOVES | FAST, Keys::ONE, xdel),
    Spec::new("xtrim", -4, WRITE | REMOVES, Keys::ONE, xtrim),
    Spec::new("xsetid", -3, WRITE | MEMORY | FAST, Keys::ONE, xsetid),
    Spec::new("xread", -4, READ, Keys::Streams, read::xread),
    Spec::new("xreadgroup", -7, WRITE, Keys::Streams, read::xreadgroup),
    Spec::new("xgroup", -2, WRITE | CREATES, Keys::SECOND, groups::xgroup),
    Spec::new("xack", -4, WRITE | REMOVES | FAST, Keys::ONE, groups::xack),
    Spec::new("xpending", -3, READ, Keys::ONE, pending::xpending),
    Spec::new("xclaim", -6, WRITE | FAST, Keys::ONE, claim::xclaim),
    Spec::new("xautoclaim", -6, WRITE | FAST, Keys::ONE, claim::xautoclaim),
    Spec::new("xinfo", -2, READ, Keys::SECOND, info::xinfo),
];

/// Most bytes of an entry.
const ENTRY_MAX: usize = 1 << 30;

pub(crate) fn write_id(reply: &mut Reply, id: StreamId) {
    reply.bulk(id.text().as_bytes());
}

fn write_entry(reply: &mut Reply, item: Item<'_>) {
    reply.array(2);
    write_id(reply, item.id);
    reply.array(2 * item.fields());
    for (field, value) in item.pairs() {
        reply.bulk(field);
        reply.bulk(value);
    }
}

/// Writes up to `most` entries as an array, 0 for all; stops where the reply's limit is.
fn write_entries<'a>(reply: &mut Reply, items: impl Iterator<Item = Item<'a>>, most: usize) {
    let from = reply.len();
    let most = if most == 0 { usize::MAX } else { most };
    let mut n = 0;
    for item in items.take(most) {
        if reply.is_over() {
            break;
        }
        write_entry(reply, item);
        n += 1;
    }
    reply.enclose(from, n);
}

/// The error reply for a missing key or group.
#[cold]
fn no_group(key: &[u8], group: &[u8], more: &str) -> Error {
    let Error(text) = Error::quoting("NOGROUP No such key '", key, "' or consumer group '");
    let Error(rest) = Error::quoting("", group, &format!("'{more}"));
    Error([&*text, &*rest].concat().into())
}

/// An entry was added: its id, and how many were trimmed and are left.
struct Grown {
    id: StreamId,
    trimmed: u64,
    left: u64,
}

/// Adds the entry and trims, or says why not; then nothing has changed.
fn add(stream: &mut Stream, now_ms: u64, added: &Added, pairs: &[&[u8]]) -> Result<Grown, Error> {
    const TOO_SMALL: Error = Error::new(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let entries = &mut stream.entries;
    if entries.last_id() == StreamId::MAX {
        return Err(Error::new(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = match added.id {
        Adding::Any => entries.next_id(now_ms).ok_or(TOO_SMALL)?,
        Adding::Within(ms) if ms == entries.last_id().ms => {
            let seq = entries.last_id().seq.checked_add(1).ok_or(TOO_SMALL)?;
            StreamId { ms, seq }
        }
        Adding::Within(ms) => StreamId { ms, seq: 0 },
        Adding::Exactly(id) => id,
    };
    if id <= entries.last_id() {
        return Err(TOO_SMALL);
    }
    if pairs.iter().map(|text| text.len()).sum::<usize>() > ENTRY_MAX {
        return Err(Error::new("ERR Elements are too large to be stored"));
    }
    entries.append(id, pairs);
    let trimmed = added.trim.map_or(0, |trim| trim.run(stream));
    Ok(Grown {
        id,
        trimmed,
        left: stream.entries.len(),
    })
}

fn xadd(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let added = Added::parse(args)?;
    let pairs = args.get(added.fields..).unwrap_or_default();
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(Error::arity(ctx.name));
    }
    if added.id == Adding::Exactly(StreamId::MIN) {
        return Err(Error::new(
            "ERR The ID specified in XADD must be greater than 0-0",
        ));
    }
    let now_ms = ctx.now_ms;
    let grown = ctx.db.update(args[1], |stream: &mut Stream| {
        let grown = add(stream, now_ms, &added, pairs);
        (grown.is_ok(), grown)
    })?;
    let grown = match grown {
        Some(grown) => grown?,
        None if added.only_existing => {
            ctx.reply.null();
            return Ok(());
        }
        None => {
            let mut stream = Stream::default();
            let grown = add(&mut stream, now_ms, &added, pairs)?;
            ctx.db.set(args[1], stream.into_value());
            grown
        }
    };
    ctx.db.event(events::STREAM, "xadd", args[1]);
    if grown.trimmed > 0 {
        ctx.db.event(events::STREAM, "xtrim", args[1]);
    }
    write_id(ctx.reply, grown.id);
    if ctx.has_effects() {
        let (id, left) = (grown.id.text(), grown.left.to_string());
        let mut effect: Vec<&[u8]> = vec![b"xadd", args[1]];
        if grown.trimmed > 0 {
            effect.extend([b"MAXLEN", &b"="[..], left.as_bytes()]);
        }
        effect.push(id.as_bytes());
        effect.extend(pairs);
        ctx.rewrite(&effect);
    }
    Ok(())
}

fn xlen(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let stream = ctx.db.get::<Stream>(args[1])?;
    let len = stream.map_or(0, |stream| stream.entries.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

/// The arguments of XRANGE and XREVRANGE.
pub(crate) struct Span {
    pub(crate) from: StreamId,
    /// The last id, which is included.
    pub(crate) to: StreamId,
    /// `None` for all.
    pub(crate) count: Option<usize>,
    /// Whether the last entry comes first.
    pub(crate) back: bool,
}

impl Span {
    pub(crate) fn parse(name: &str, args: &[&[u8]]) -> Result<Span, Error> {
        let back = name == "xrevrange";
        let (start, end) = if back { (3, 2) } else { (2, 3) };
        let (from, to) = interval(args[start], args[end])?;
        let mut count = None;
        for option in args[4..].chunks(2) {
            match *option {
                [name, n] if is(name, "count") => count = Some(integer(n)?.max(0) as usize),
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(Span {
            from,
            to,
            count,
            back,
        })
    }
}

/// XRANGE and XREVRANGE.
fn xrange(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let Span {
        from,
        to,
        count,
        back,
    } = Span::parse(ctx.name, args)?;
    let Some(stream) = ctx.db.get::<Stream>(args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    match count {
        Some(0) => ctx.reply.null_array(),
        count if back => {
            let items = stream.entries.range_back(from, to);
            write_entries(ctx.reply, items, count.unwrap_or(0));
        }
        count => {
            let items = stream.entries.range(from, to);
            write_entries(ctx.reply, items, count.unwrap_or(0));
        }
    }
    Ok(())
}

/// The ids among arguments.
fn ids(args: &[&[u8]]) -> Result<Vec<StreamId>, Error> {
    args.iter().map(|arg| id(arg, 0)).collect()
}

fn xdel(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let mut deleted = None;
    if ctx.db.get::<Stream>(args[1])?.is_some() {
        let ids = ids(&args[2..])?;
        deleted = ctx.db.update(args[1], |stream: &mut Stream| {
            let deleted = ids.iter().filter(|id| stream.entries.delete(**id)).count();
            (deleted > 0, deleted)
        })?;
    }
    let deleted = deleted.unwrap_or(0);
    if deleted > 0 {
        ctx.db.event(events::STREAM, "xdel", args[1]);
    }
    ctx.reply.integer(deleted as i64);
    Ok(())
}

fn xtrim(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let trim = Trimming::parse(args)?;
    let trimmed = ctx.db.update(args[1], |stream: &mut Stream| {
        let trimmed = trim.run(stream);
        (trimmed > 0, (trimmed, stream.entries.len()))
    })?;
    let (trimmed, left) = trimmed.unwrap_or_default();
    ctx.reply.integer(trimmed as i64);
    if trimmed > 0 {
        ctx.db.event(events::STREAM, "xtrim", args[1]);
    }
    if trimmed > 0 && !trim.is_exact() {
        ctx.rewrite(&[
            b"xtrim",
            args[1],
            b"MAXLEN",
            b"=",
            left.to_string().as_bytes(),
        ]);
    }
    Ok(())
}

impl Trimming {
    /// Trims; how many entries went.
    fn run(self, stream: &mut Stream) -> u64 {
        stream.entries.trim(self.what, self.whole, self.limit)
    }

    fn is_exact(self) -> bool {
        !self.whole && matches!(self.what, Trim::MaxLen(_))
    }
}

fn xsetid(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let last = id(args[2], 0)?;
    let (mut added, mut max_deleted) = (None, None);
    for option in args[3..].chunks(2) {
        match *option {
            [name, n] if is(name, "entriesadded") => {
                let n = integer(n)?;
                let n = u64::try_from(n);
                added = Some(n.map_err(|_| Error::new("ERR entries_added must be positive"))?);
            }
            [name, deleted] if is(name, "maxdeletedid") => {
                let deleted = id(deleted, 0)?;
                if last < deleted {
                    return Err(Error::new(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
                max_deleted = Some(deleted);
            }
            _ => return Err(Error::SYNTAX),
        }
    }
    let Some(stream) = ctx.db.get::<Stream>(args[1])? else {
        return Err(Error::NO_KEY);
    };
    let entries = &stream.entries;
    if last < entries.max_deleted() {
        return Err(Error::new(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if !entries.is_empty() {
        if last < entries.top() {
            return Err(Error::new(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| added < entries.len()) {
            return Err(Error::new(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    ctx.db.update(args[1], |stream: &mut Stream| {
        let max_deleted = max_deleted.filter(|id| *id != StreamId::MIN);
        stream.set(last, added, max_deleted);
        (true, ())
    })?;
    ctx.db.event(events::STREAM, "xsetid", args[1]);
    ctx.reply.ok();
    Ok(())
}
