//! Taking the lowest or highest members of sorted sets, waiting for some if asked.

use super::super::parse::{integer, is, timeout};
use super::super::popping::{candidates, several, wait};
use super::super::{Ctx, Done, Error};
use crate::store::{Kind, Nothing, events};
use crate::types::{Scored, ZSet};

/// Members that were removed from their set, with their scores.
type Taken = Vec<(f64, Vec<u8>)>;

/// Takes up to `most` members; `None` if the set does not exist.
fn take(
    ctx: &mut Ctx<'_, '_>,
    key: &[u8],
    highest: bool,
    most: usize,
) -> Result<Option<Taken>, Error> {
    let taken = ctx.db.update(key, |set: &mut ZSet| {
        let n = most.min(set.len());
        let owned = |scored: Scored<'_>| (scored.score, scored.member.to_vec());
        let taken: Taken = if highest {
            let top = set.len().saturating_sub(1);
            set.iter_down(top).take(n).map(owned).collect()
        } else {
            set.iter_from(0).take(n).map(owned).collect()
        };
        for (_, member) in &taken {
            set.remove(member);
        }
        (n > 0, taken)
    })?;
    if taken.as_ref().is_some_and(|taken| !taken.is_empty()) {
        let name = if highest { "zpopmax" } else { "zpopmin" };
        ctx.db.event_left(events::ZSET, name, key);
    }
    Ok(taken)
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
        Some(_) => {
            let members = taken
                .iter()
                .map(|(score, member)| Scored::new(*score, member));
            super::answer(ctx.reply, taken.len(), members, true);
        }
        // Without a count there is at most one, and never a pair.
        None => {
            ctx.reply.array(2 * taken.len());
            taken.iter().for_each(|scored| one(ctx, scored));
        }
    }
    Ok(())
}

fn one(ctx: &mut Ctx<'_, '_>, (score, member): &(f64, Vec<u8>)) {
    ctx.reply.bulk(member);
    ctx.reply.double(*score);
}

/// Whether MAX is said rather than MIN.
fn is_max(arg: &[u8]) -> Result<bool, Error> {
    match () {
        () if is(arg, "min") => Ok(false),
        () if is(arg, "max") => Ok(true),
        () => Err(Error::SYNTAX),
    }
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

/// The actual effect of a command that looked at several keys or waited.
fn effective(ctx: &mut Ctx<'_, '_>, key: &[u8], highest: bool, n: usize) {
    let name = if highest { "zpopmax" } else { "zpopmin" };
    ctx.rewrite(&[name.as_bytes(), key, n.to_string().as_bytes()]);
}

pub(super) fn zmpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, highest, most) = several(args, 1, is_max)?;
    if !first_of(ctx, &keys, highest, most)? {
        ctx.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (seconds, keys) = args[1..].split_last().expect("its arity says so");
    timeout(seconds)?;
    let highest = ctx.name == "bzpopmax";
    for key in candidates(ctx.serving, keys) {
        let taken = take(ctx, key, highest, 1)?;
        if let Some(scored) = taken.unwrap_or_default().first() {
            effective(ctx, key, highest, 1);
            ctx.reply.array(3);
            ctx.reply.bulk(key);
            one(ctx, scored);
            return Ok(());
        }
    }
    wait(ctx, Kind::ZSet, keys, seconds, Nothing::Array)
}

pub(super) fn bzmpop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, highest, most) = several(args, 2, is_max)?;
    timeout(args[1])?;
    let looked = candidates(ctx.serving, &keys);
    if first_of(ctx, &looked, highest, most)? {
        return Ok(());
    }
    wait(ctx, Kind::ZSet, &keys, args[1], Nothing::Array)
}
