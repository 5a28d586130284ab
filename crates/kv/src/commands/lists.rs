//! Commands on lists, including blocking ones.

use super::parse::{either_way, integer, is, range, timeout};
use super::popping::{candidates, several, wait};
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, WRITE};
use crate::store::{Kind, Nothing, events};
use crate::types::{End, List, Text};

const COUNTED: Keys = Keys::Counted {
    at: 1,
    first: false,
};
const COUNTED_SECOND: Keys = Keys::Counted {
    at: 2,
    first: false,
};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("lpush", -3, WRITE | MEMORY | FAST, Keys::ONE, push),
    Spec::new("rpush", -3, WRITE | MEMORY | FAST, Keys::ONE, push),
    Spec::new("lpushx", -3, WRITE | MEMORY | FAST, Keys::ONE, pushx),
    Spec::new("rpushx", -3, WRITE | MEMORY | FAST, Keys::ONE, pushx),
    Spec::new("lpop", -2, WRITE | REMOVES | FAST, Keys::ONE, pop),
    Spec::new("rpop", -2, WRITE | REMOVES | FAST, Keys::ONE, pop),
    Spec::new("llen", 2, READ | FAST, Keys::ONE, llen),
    Spec::new("lrange", 4, READ, Keys::ONE, lrange),
    Spec::new("lindex", 3, READ, Keys::ONE, lindex),
    Spec::new("lset", 4, WRITE | MEMORY, Keys::ONE, lset),
    Spec::new("linsert", 5, WRITE | MEMORY, Keys::ONE, linsert),
    Spec::new("lrem", 4, WRITE | REMOVES, Keys::ONE, lrem),
    Spec::new("ltrim", 4, WRITE | REMOVES, Keys::ONE, ltrim),
    Spec::new("lpos", -3, READ, Keys::ONE, lpos),
    Spec::new("lmove", 5, WRITE | MEMORY, Keys::TWO, lmove),
    Spec::new("rpoplpush", 3, WRITE | MEMORY, Keys::TWO, rpoplpush),
    Spec::new("lmpop", -4, WRITE | REMOVES, COUNTED, lmpop),
    Spec::new("blpop", -3, WRITE | REMOVES, Keys::ALL_BUT_LAST, bpop),
    Spec::new("brpop", -3, WRITE | REMOVES, Keys::ALL_BUT_LAST, bpop),
    Spec::new("blmove", 6, WRITE | MEMORY, Keys::TWO, blmove),
    Spec::new("brpoplpush", 4, WRITE | MEMORY, Keys::TWO, brpoplpush),
    Spec::new("blmpop", -5, WRITE | REMOVES, COUNTED_SECOND, blmpop),
];

/// The end that the command's name begins with, behind a `b` for blocking.
fn end_of(name: &str) -> End {
    match name.trim_start_matches('b').as_bytes()[0] {
        b'l' => End::Left,
        _ => End::Right,
    }
}

/// The event of pushing at an end.
fn pushed(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

/// The event of popping from an end.
fn popped(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
}

fn end(arg: &[u8]) -> Result<End, Error> {
    match () {
        () if is(arg, "left") => Ok(End::Left),
        () if is(arg, "right") => Ok(End::Right),
        () => Err(Error::SYNTAX),
    }
}

fn push(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (end, fit) = (end_of(ctx.name), ctx.db.limits().list());
    let len = ctx.db.upsert(args[1], |list: &mut List| {
        list.expect(&args[2..], fit);
        args[2..].iter().for_each(|x| list.push(end, x));
        (true, list.len())
    })?;
    ctx.db.event(events::LIST, pushed(end), args[1]);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn pushx(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (end, fit) = (end_of(ctx.name), ctx.db.limits().list());
    let len = ctx.db.update(args[1], |list: &mut List| {
        list.expect(&args[2..], fit);
        args[2..].iter().for_each(|x| list.push(end, x));
        (true, list.len())
    })?;
    if len.is_some() {
        ctx.db.event(events::LIST, pushed(end), args[1]);
    }
    ctx.reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

fn pop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let end = end_of(ctx.name);
    if args.len() > 3 {
        return Err(Error::arity(ctx.name));
    }
    let Some(&wanted) = args.get(2) else {
        let element = take_one_told(ctx, args[1], end)?;
        ctx.reply.bulk_or_null(element.as_deref());
        return Ok(());
    };
    let wanted = integer(wanted)
        .ok()
        .and_then(|n| usize::try_from(n).ok())
        .ok_or(Error::NOT_POSITIVE)?;
    match take_told(ctx, args[1], end, wanted)? {
        None => ctx.reply.null_array(),
        Some(elements) => array(ctx, &elements),
    }
    Ok(())
}

/// Takes the element at an end of a list, if the key holds a list.
fn take_one(ctx: &mut Ctx<'_, '_>, key: &[u8], end: End) -> Result<Option<Vec<u8>>, Error> {
    let fit = ctx.db.limits().list();
    let element = ctx.db.update(key, |list: &mut List| {
        let element = list.pop(end);
        list.settle(fit);
        (true, element)
    })?;
    Ok(element.flatten())
}

/// Takes one element, and reports the event to subscribers.
fn take_one_told(ctx: &mut Ctx<'_, '_>, key: &[u8], end: End) -> Result<Option<Vec<u8>>, Error> {
    let element = take_one(ctx, key, end)?;
    if element.is_some() {
        ctx.db.event_left(events::LIST, popped(end), key);
    }
    Ok(element)
}

/// Takes up to `most` elements; `None` if the list does not exist.
fn take(
    ctx: &mut Ctx<'_, '_>,
    key: &[u8],
    end: End,
    most: usize,
) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let fit = ctx.db.limits().list();
    ctx.db.update(key, |list: &mut List| {
        let n = most.min(list.len());
        let taken: Vec<Vec<u8>> = match end {
            End::Left => list.iter_from(0).take(n).map(|x| x.to_vec()).collect(),
            End::Right => list.iter_back().take(n).map(|x| x.to_vec()).collect(),
        };
        list.shorten(end, n);
        list.settle(fit);
        (n > 0, taken)
    })
}

/// Takes elements, and reports the event to subscribers.
fn take_told(
    ctx: &mut Ctx<'_, '_>,
    key: &[u8],
    end: End,
    most: usize,
) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let taken = take(ctx, key, end, most)?;
    if taken.as_ref().is_some_and(|taken| !taken.is_empty()) {
        ctx.db.event_left(events::LIST, popped(end), key);
    }
    Ok(taken)
}

fn array(ctx: &mut Ctx<'_, '_>, elements: &[Vec<u8>]) {
    ctx.reply.array(elements.len());
    for element in elements {
        ctx.reply.bulk(element);
    }
}

fn llen(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let len = ctx.db.get::<List>(args[1])?.map_or(0, List::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn lrange(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let list = ctx.db.get::<List>(args[1])?;
    let span = list.and_then(|list| Some((list, range(start, stop, list.len())?)));
    match span {
        None => ctx.reply.array(0),
        Some((list, (first, last))) => {
            let n = last - first + 1;
            ctx.reply.array(n);
            list.each_from(first, n, |element| ctx.reply.bulk(element));
        }
    }
    Ok(())
}

/// An index that may count from the end.
fn place(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok().filter(|&index| index < len)
}

fn lindex(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let Some(list) = ctx.db.get::<List>(args[1])? else {
        ctx.reply.null();
        return Ok(());
    };
    let index = integer(args[2])?;
    let element = place(index, list.len()).and_then(|at| list.get(at));
    ctx.reply.bulk_or_null(element.as_deref());
    Ok(())
}

fn lset(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if ctx.db.get::<List>(args[1])?.is_none() {
        return Err(Error::NO_KEY);
    }
    let index = integer(args[2])?;
    let fit = ctx.db.limits().list();
    let set = ctx.db.update(args[1], |list: &mut List| {
        let at = place(index, list.len());
        list.expect(&args[3..4], fit);
        let set = at.is_some_and(|at| list.set(at, args[3]));
        list.settle(fit);
        (set, set)
    })?;
    if set != Some(true) {
        return Err(Error::INDEX);
    }
    ctx.db.event(events::LIST, "lset", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn linsert(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let behind = match () {
        () if is(args[2], "before") => 0,
        () if is(args[2], "after") => 1,
        () => return Err(Error::SYNTAX),
    };
    let fit = ctx.db.limits().list();
    let len = ctx.db.update(args[1], |list: &mut List| {
        // Redis makes room for the element too, before it has looked where to put the element.
        list.expect(&args[4..5], fit);
        let found = list.iter_from(0).position(|element| element == *args[3]);
        let Some(at) = found else { return (false, -1) };
        list.insert(at + behind, args[4]);
        (true, list.len() as i64)
    })?;
    if len.is_some_and(|len| len > 0) {
        ctx.db.event(events::LIST, "linsert", args[1]);
    }
    ctx.reply.integer(len.unwrap_or(0));
    Ok(())
}

fn lrem(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let wanted = either_way(args[2])?;
    let most = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
    let most = if most == 0 { usize::MAX } else { most };
    let fit = ctx.db.limits().list();
    let removed = ctx.db.update(args[1], |list: &mut List| {
        let last = list.len().saturating_sub(1);
        let mut found: Vec<usize> = if wanted < 0 {
            let all = list.iter_back().enumerate();
            let these = all.filter(|(_, element)| *element == *args[3]);
            these.take(most).map(|(at, _)| last - at).collect()
        } else {
            let all = list.iter_from(0).enumerate();
            let these = all.filter(|(_, element)| *element == *args[3]);
            these.take(most).map(|(at, _)| at).collect()
        };
        // From the back, so that the indices of the remaining elements stay valid.
        found.sort_unstable_by(|a, b| b.cmp(a));
        for &at in &found {
            list.remove(at);
        }
        list.settle(fit);
        (!found.is_empty(), found.len())
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.db.event_left(events::LIST, "lrem", args[1]);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn ltrim(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let fit = ctx.db.limits().list();
    let trimmed = ctx.db.update(args[1], |list: &mut List| {
        match range(start, stop, list.len()) {
            Some((first, last)) => list.keep(first, last),
            None => list.shorten(End::Right, list.len()),
        }
        list.settle(fit);
        (true, ())
    })?;
    if trimmed.is_some() {
        ctx.db.event_left(events::LIST, "ltrim", args[1]);
    }
    ctx.reply.ok();
    Ok(())
}

fn lpos(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (mut rank, mut wanted, mut most) = (1i64, None, 0usize);
    for option in args[3..].chunks(2) {
        let [name, value] = *option else {
            return Err(Error::SYNTAX);
        };
        let value_of = |what: &str| {
            let n = integer(value).ok().and_then(|n| usize::try_from(n).ok());
            n.ok_or_else(|| Error::text(format!("ERR {what} can't be negative")))
        };
        match () {
            () if is(name, "rank") => {
                rank = either_way(value)?;
                if rank == 0 {
                    return Err(Error::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                         or use negative to start from the end of the list",
                    ));
                }
            }
            () if is(name, "count") => wanted = Some(value_of("COUNT")?),
            () if is(name, "maxlen") => most = value_of("MAXLEN")?,
            () => return Err(Error::SYNTAX),
        }
    }
    let skip = rank.unsigned_abs() as usize - 1;
    let take = match wanted {
        None => 1,
        Some(0) => usize::MAX,
        Some(n) => n,
    };
    let most = if most == 0 { usize::MAX } else { most };
    let list = ctx.db.get::<List>(args[1])?;
    let found: Vec<usize> = list.map_or_else(Vec::new, |list| {
        let is_it = |(_, element): &(usize, Text<'_>)| *element == *args[2];
        if rank > 0 {
            let all = list.iter_from(0).enumerate().take(most).filter(is_it);
            all.skip(skip).take(take).map(|(at, _)| at).collect()
        } else {
            let last = list.len() - 1;
            let all = list.iter_back().enumerate().take(most).filter(is_it);
            all.skip(skip).take(take).map(|(at, _)| last - at).collect()
        }
    });
    match (wanted, found.first()) {
        (Some(_), _) => {
            ctx.reply.array(found.len());
            found.iter().for_each(|&at| ctx.reply.integer(at as i64));
        }
        (None, Some(&at)) => ctx.reply.integer(at as i64),
        (None, None) => ctx.reply.null(),
    }
    Ok(())
}

/// Moves one element and replies with it; false if the list has no element.
fn shift(
    ctx: &mut Ctx<'_, '_>,
    from: &[u8],
    to: &[u8],
    out: End,
    into: End,
) -> Result<bool, Error> {
    if ctx.db.get::<List>(from)?.is_none() {
        return Ok(false);
    }
    let fit = ctx.db.limits().list();
    if from == to {
        // In one step: a list of one is not gone in between, nor is its deadline.
        let turned = ctx.db.update(from, |list: &mut List| {
            let element = list.pop(out);
            if let Some(element) = &element {
                list.expect(&[element], fit);
                list.push(into, element);
            }
            list.settle(fit);
            (true, element)
        })?;
        ctx.db.event(events::LIST, pushed(into), to);
        ctx.db.event(events::LIST, popped(out), from);
        ctx.reply.bulk(&turned.flatten().unwrap_or_default());
        return Ok(true);
    }
    // Checked before an element is taken: both keys have to be lists.
    ctx.db.peek::<List>(to)?;
    let Some(element) = take_one(ctx, from, out)? else {
        return Ok(false);
    };
    ctx.db.upsert(to, |list: &mut List| {
        list.expect(&[&element], fit);
        list.push(into, &element);
        (true, ())
    })?;
    ctx.db.event(events::LIST, pushed(into), to);
    ctx.db.event_left(events::LIST, popped(out), from);
    ctx.reply.bulk(&element);
    Ok(true)
}

fn lmove(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (out, into) = (end(args[3])?, end(args[4])?);
    if !shift(ctx, args[1], args[2], out, into)? {
        ctx.reply.null();
    }
    Ok(())
}

fn rpoplpush(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if !shift(ctx, args[1], args[2], End::Right, End::Left)? {
        ctx.reply.null();
    }
    Ok(())
}

/// Takes elements of the first key that has some, and answers key and elements.
fn first_of(ctx: &mut Ctx<'_, '_>, keys: &[&[u8]], end: End, most: usize) -> Result<bool, Error> {
    for &key in keys {
        if let Some(elements) = take_told(ctx, key, end, most)? {
            ctx.reply.array(2);
            ctx.reply.bulk(key);
            array(ctx, &elements);
            let name = if end == End::Left { "lpop" } else { "rpop" };
            let n = elements.len().to_string();
            ctx.rewrite(&[name.as_bytes(), key, n.as_bytes()]);
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, end, most) = several(args, 1, end)?;
    if !first_of(ctx, &keys, end, most)? {
        ctx.reply.null_array();
    }
    Ok(())
}

fn bpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (seconds, keys) = args[1..].split_last().expect("its arity says so");
    timeout(seconds)?;
    let end = end_of(ctx.name);
    for key in candidates(ctx.serving, keys) {
        if let Some(element) = take_one_told(ctx, key, end)? {
            ctx.reply.array(2);
            ctx.reply.bulk(key);
            ctx.reply.bulk(&element);
            let name = if end == End::Left { "lpop" } else { "rpop" };
            ctx.rewrite(&[name.as_bytes(), key]);
            return Ok(());
        }
    }
    wait(ctx, Kind::List, keys, seconds, Nothing::Array)
}

fn blmove(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (out, into) = (end(args[3])?, end(args[4])?);
    timeout(args[5])?;
    if shift(ctx, args[1], args[2], out, into)? {
        ctx.rewrite(&[b"lmove", args[1], args[2], args[3], args[4]]);
        return Ok(());
    }
    wait(ctx, Kind::List, &args[1..2], args[5], Nothing::Bulk)
}

fn brpoplpush(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    timeout(args[3])?;
    if shift(ctx, args[1], args[2], End::Right, End::Left)? {
        ctx.rewrite(&[b"rpoplpush", args[1], args[2]]);
        return Ok(());
    }
    wait(ctx, Kind::List, &args[1..2], args[3], Nothing::Bulk)
}

fn blmpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, end, most) = several(args, 2, end)?;
    timeout(args[1])?;
    let looked = candidates(ctx.serving, &keys);
    if first_of(ctx, &looked, end, most)? {
        return Ok(());
    }
    wait(ctx, Kind::List, &keys, args[1], Nothing::Array)
}
