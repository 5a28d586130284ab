//! Taking the lowest or highest members of sorted sets, waiting for some if asked.

use super::super::parse::{integer, is, timeout};
use super::super::{Ctx, Done, Error};
use crate::store::{Blocked, Kind, Nothing};
use crate::types::{Scored, ZSet};

/// Takes up to `most` members; `None` if there is no such set.
fn take(
    ctx: &mut Ctx<'_, '_>,
    key: &[u8],
    highest: bool,
    most: usize,
) -> Result<Option<Vec<Scored>>, Error> {
    ctx.db.update(key, |set: &mut ZSet| {
        let n = most.min(set.len());
        let taken: Vec<Scored> = if highest {
            let top = set.len().saturating_sub(1);
            set.iter_down(top).take(n).cloned().collect()
        } else {
            set.iter_from(0).take(n).cloned().collect()
        };
        for scored in &taken {
            set.remove(&scored.member);
        }
        (n > 0, taken)
    })
}

pub(super) fn zpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let most = match args[2..] {
        [] => None,
        [n] => Some(
            integer(n)
                .ok()
                .and_then(|n| usize::try_from(n).ok())
                .ok_or(Error::NOT_POSITIVE)?,
        ),
        _ => return Err(Error::SYNTAX),
    };
    let highest = ctx.name == "zpopmax";
    let taken = take(ctx, args[1], highest, most.unwrap_or(1))?.unwrap_or_default();
    match most {
        Some(_) => super::answer(ctx, &taken, true),
        // Without a count there is at most one, and never a pair.
        None => {
            ctx.reply.array(2 * taken.len());
            taken.iter().for_each(|scored| one(ctx, scored));
        }
    }
    Ok(())
}

fn one(ctx: &mut Ctx<'_, '_>, scored: &Scored) {
    ctx.reply.bulk(&scored.member);
    ctx.reply.double(scored.score);
}

/// The keys, the end and the count of ZMPOP and BZMPOP, whose number of keys is at `at`.
fn several<'x>(args: &[&'x [u8]], at: usize) -> Result<(Vec<&'x [u8]>, bool, usize), Error> {
    let keys = integer(args[at])
        .ok()
        .filter(|&n| n > 0)
        .ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    let place = keys.checked_add(at + 1);
    let highest = match place.and_then(|place| args.get(place)) {
        Some(arg) if is(arg, "min") => false,
        Some(arg) if is(arg, "max") => true,
        _ => return Err(Error::SYNTAX),
    };
    let most = match args[at + keys + 2..] {
        [] => 1,
        [name, n, ref more @ ..] if is(name, "count") => {
            let most = integer(n).ok().filter(|&n| n > 0);
            let most = most.ok_or(Error::new("ERR count should be greater than 0"))?;
            if !more.is_empty() {
                return Err(Error::SYNTAX);
            }
            most as usize
        }
        _ => return Err(Error::SYNTAX),
    };
    Ok((args[at + 1..=at + keys].to_vec(), highest, most))
}

/// Takes members of the first key that has some, and answers key and members.
fn first_of(
    ctx: &mut Ctx<'_, '_>,
    keys: &[&[u8]],
    highest: bool,
    most: usize,
) -> Result<bool, Error> {
    for &key in keys {
        let Some(taken) = take(ctx, key, highest, most)? else {
            continue;
        };
        effective(ctx, key, highest, taken.len());
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        ctx.reply.array(taken.len());
        for scored in &taken {
            ctx.reply.array(2);
            one(ctx, scored);
        }
        return Ok(true);
    }
    Ok(false)
}

/// What a command that looked at several keys or waited came to.
fn effective(ctx: &mut Ctx<'_, '_>, key: &[u8], highest: bool, n: usize) {
    if ctx.has_effects() {
        let name = if highest { "zpopmax" } else { "zpopmin" };
        ctx.rewrite(&[name.as_bytes(), key, n.to_string().as_bytes()]);
    }
}

pub(super) fn zmpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, highest, most) = several(args, 1)?;
    if !first_of(ctx, &keys, highest, most)? {
        ctx.reply.null_array();
    }
    Ok(())
}

fn wait(ctx: &mut Ctx<'_, '_>, keys: &[&[u8]], seconds: &[u8]) -> Done {
    let blocked = Blocked {
        keys: keys.iter().map(|key| key.to_vec()).collect(),
        kind: Kind::ZSet,
        timeout: timeout(seconds)?,
        nothing: Nothing::Array,
    };
    ctx.block(blocked);
    Ok(())
}

pub(super) fn bzpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (seconds, keys) = args[1..].split_last().expect("its arity says so");
    timeout(seconds)?;
    let highest = ctx.name == "bzpopmax";
    let ready = ctx.serving.map(<[u8]>::to_vec);
    let looked: Vec<&[u8]> = ready
        .as_deref()
        .map_or_else(|| keys.to_vec(), |key| vec![key]);
    for key in looked {
        let taken = take(ctx, key, highest, 1)?;
        if let Some(scored) = taken.unwrap_or_default().first() {
            effective(ctx, key, highest, 1);
            ctx.reply.array(3);
            ctx.reply.bulk(key);
            one(ctx, scored);
            return Ok(());
        }
    }
    wait(ctx, keys, seconds)
}

pub(super) fn bzmpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, highest, most) = several(args, 2)?;
    timeout(args[1])?;
    let ready = ctx.serving.map(<[u8]>::to_vec);
    let looked: Vec<&[u8]> = ready
        .as_deref()
        .map_or_else(|| keys.clone(), |key| vec![key]);
    if first_of(ctx, &looked, highest, most)? {
        return Ok(());
    }
    wait(ctx, &keys, args[1])
}
