//! Commands on sets.

use super::parse::{check_samples, either_way, integer, limit};
use super::scan::Scan;
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, UNBOUNDED, WRITE};
use crate::store::{Value, events};
use crate::types::Set;

const COUNTED: Keys = Keys::Counted {
    at: 1,
    first: false,
};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("sadd", -3, WRITE | MEMORY | FAST, Keys::ONE, sadd),
    Spec::new("srem", -3, WRITE | REMOVES | FAST, Keys::ONE, srem),
    Spec::new("smembers", 2, READ, Keys::ONE, smembers),
    Spec::new("sismember", 3, READ | FAST, Keys::ONE, sismember),
    Spec::new("smismember", -3, READ | FAST, Keys::ONE, smismember),
    Spec::new("scard", 2, READ | FAST, Keys::ONE, scard),
    Spec::new(
        "spop",
        -2,
        WRITE | REMOVES | FAST | UNBOUNDED,
        Keys::ONE,
        spop,
    ),
    Spec::new("srandmember", -2, READ, Keys::ONE, srandmember),
    Spec::new("smove", 4, WRITE | FAST, Keys::TWO, smove),
    Spec::new("sinter", -2, READ, Keys::REST, sinter),
    Spec::new("sunion", -2, READ, Keys::REST, sunion),
    Spec::new("sdiff", -2, READ, Keys::REST, sdiff),
    Spec::new("sinterstore", -3, WRITE | MEMORY, Keys::REST, sinter),
    Spec::new("sunionstore", -3, WRITE | MEMORY, Keys::REST, sunion),
    Spec::new("sdiffstore", -3, WRITE | MEMORY, Keys::REST, sdiff),
    Spec::new("sintercard", -3, READ, COUNTED, sintercard),
    Spec::new("sscan", -3, READ, Keys::ONE, sscan),
];

fn sadd(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let fit = ctx.db.limits().set();
    let new = ctx.db.upsert(args[1], |set: &mut Set| {
        set.reserve(&args[2..], fit);
        let members = args[2..].iter();
        let n = members.filter(|member| set.insert(member, fit)).count();
        set.trim();
        (n > 0, n)
    })?;
    if new > 0 {
        ctx.db.event(events::SET, "sadd", args[1]);
    }
    ctx.reply.integer(new as i64);
    Ok(())
}

fn srem(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let removed = ctx.db.update(args[1], |set: &mut Set| {
        let n = args[2..].iter().filter(|member| set.remove(member)).count();
        (n > 0, n)
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.db.event_left(events::SET, "srem", args[1]);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn smembers(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let set = ctx.db.get::<Set>(args[1])?;
    ctx.reply.set(set.map_or(0, Set::len));
    if let Some(set) = set {
        set.each(|member| ctx.reply.bulk(member));
    }
    Ok(())
}

fn answer(ctx: &mut Ctx<'_, '_>, members: &[Vec<u8>]) {
    ctx.reply.set(members.len());
    members.iter().for_each(|member| ctx.reply.bulk(member));
}

fn sismember(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let set = ctx.db.get::<Set>(args[1])?;
    let is_one = set.is_some_and(|set| set.contains(args[2]));
    ctx.reply.integer(is_one.into());
    Ok(())
}

fn smismember(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let set = ctx.db.get::<Set>(args[1])?;
    ctx.reply.array(args.len() - 2);
    for member in &args[2..] {
        let is_one = set.is_some_and(|set| set.contains(member));
        ctx.reply.integer(is_one.into());
    }
    Ok(())
}

fn scard(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let len = ctx.db.get::<Set>(args[1])?.map_or(0, Set::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn spop(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if args.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let wanted = match args.get(2) {
        None => None,
        Some(arg) => Some(
            integer(arg)
                .ok()
                .and_then(|n| usize::try_from(n).ok())
                .ok_or(Error::NOT_POSITIVE)?,
        ),
    };
    let rng = &mut *ctx.rng;
    let count = i64::try_from(wanted.unwrap_or(1)).unwrap_or(i64::MAX);
    let set = ctx.db.peek::<Set>(args[1])?;
    let taken = set.map_or_else(Vec::new, |set| set.sample(count, rng));
    ctx.reserve(
        taken.len() + 2,
        taken.iter().map(Vec::len).sum::<usize>() + args[1].len(),
    )?;
    ctx.db.update(args[1], |set: &mut Set| {
        for member in &taken {
            set.remove(member);
        }
        (!taken.is_empty(), ())
    })?;
    if !taken.is_empty() {
        ctx.db.event_left(events::SET, "spop", args[1]);
    }
    if ctx.has_effects() && !taken.is_empty() {
        let mut effective: Vec<&[u8]> = vec![b"srem", args[1]];
        effective.extend(taken.iter().map(Vec::as_slice));
        ctx.rewrite(&effective);
    }
    match wanted {
        None => ctx.reply.bulk_or_null(taken.first().map(Vec::as_slice)),
        Some(_) => answer(ctx, &taken),
    }
    Ok(())
}

fn srandmember(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if args.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let wanted = args.get(2).map(|arg| either_way(arg)).transpose()?;
    let set = ctx.db.get::<Set>(args[1])?;
    if let (Some(set), Some(n @ ..0)) = (set, wanted) {
        check_samples(n)?;
        // One member at a time: all together may be many times as large as the set.
        ctx.reply.array(n.unsigned_abs() as usize);
        for _ in 0..n.unsigned_abs() {
            let chosen = set.sample(1, ctx.rng);
            chosen.iter().for_each(|member| ctx.reply.bulk(member));
            if ctx.reply.is_over() {
                break;
            }
        }
        return Ok(());
    }
    let chosen = set.map_or_else(Vec::new, |set| set.sample(wanted.unwrap_or(1), ctx.rng));
    if wanted.is_none() {
        ctx.reply.bulk_or_null(chosen.first().map(Vec::as_slice));
        return Ok(());
    }
    ctx.reply.array(chosen.len());
    chosen.iter().for_each(|member| ctx.reply.bulk(member));
    Ok(())
}

fn smove(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (from, to, member) = (args[1], args[2], args[3]);
    let Some(set) = ctx.db.get::<Set>(from)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let there = set.contains(member);
    ctx.db.peek::<Set>(to)?;
    if !there {
        ctx.reply.integer(0);
        return Ok(());
    }
    if from != to {
        let fit = ctx.db.limits().set();
        ctx.db
            .update(from, |set: &mut Set| (set.remove(member), ()))?;
        ctx.db.event_left(events::SET, "srem", from);
        let is_new = ctx.db.upsert(to, |set: &mut Set| {
            let is_new = set.insert(member, fit);
            (is_new, is_new)
        })?;
        if is_new {
            ctx.db.event(events::SET, "sadd", to);
        }
    }
    ctx.reply.integer(1);
    Ok(())
}

/// The keys to combine, and where the result goes.
fn operands<'x>(ctx: &Ctx<'_, '_>, args: &[&'x [u8]]) -> (Vec<&'x [u8]>, Option<&'x [u8]>) {
    if ctx.name.ends_with("store") {
        (args[2..].to_vec(), Some(args[1]))
    } else {
        (args[1..].to_vec(), None)
    }
}

/// Counts a use of each key.
fn count_uses(ctx: &mut Ctx<'_, '_>, keys: &[&[u8]]) -> Result<(), Error> {
    for key in keys {
        ctx.db.get::<Set>(key)?;
    }
    Ok(())
}

fn finish(ctx: &mut Ctx<'_, '_>, result: Vec<Vec<u8>>, into: Option<&[u8]>) -> Done {
    let Some(into) = into else {
        answer(ctx, &result);
        return Ok(());
    };
    let fit = ctx.db.limits().set();
    let mut set = Set::default();
    for member in &result {
        set.insert(member, fit);
    }
    ctx.reply.integer(set.len() as i64);
    let removed = set.is_empty() && ctx.db.exists(into);
    ctx.db.set(into, Value::Set(set));
    ctx.db.event_stored(events::SET, ctx.name, into, removed);
    Ok(())
}

/// Members of the first set that `all` (or none) of the others have, at most `most`.
fn sift(
    ctx: &Ctx<'_, '_>,
    keys: &[&[u8]],
    wanted: bool,
    most: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        sets.push(ctx.db.peek::<Set>(key)?);
    }
    if wanted {
        if sets.iter().any(Option::is_none) {
            return Ok(Vec::new());
        }
        // The smallest first: each of its members is looked for in the others.
        sets.sort_by_key(|set| set.map_or(0, Set::len));
    }
    let Some(Some(first)) = sets.first() else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    first.each(|member| {
        let mut others = sets[1..].iter().flatten();
        let fits = if wanted {
            others.all(|set| set.contains(member))
        } else {
            !others.any(|set| set.contains(member))
        };
        if fits && found.len() < most {
            found.push(member.to_vec());
        }
    });
    Ok(found)
}

fn sinter(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, into) = operands(ctx, args);
    count_uses(ctx, &keys)?;
    let result = sift(ctx, &keys, true, usize::MAX)?;
    finish(ctx, result, into)
}

fn sdiff(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, into) = operands(ctx, args);
    count_uses(ctx, &keys)?;
    let result = sift(ctx, &keys, false, usize::MAX)?;
    finish(ctx, result, into)
}

fn sunion(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, into) = operands(ctx, args);
    count_uses(ctx, &keys)?;
    let fit = ctx.db.limits().set();
    let mut union = Set::default();
    for key in &keys {
        if let Some(set) = ctx.db.peek::<Set>(key)? {
            set.each(|member| {
                union.insert(member, fit);
            });
        }
    }
    finish(ctx, union.members(), into)
}

fn sintercard(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let keys = integer(args[1])
        .ok()
        .filter(|&n| n > 0)
        .ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    if keys > args.len() - 2 {
        return Err(Error::new(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    let limit = limit(&args[2 + keys..])?;
    let keys = &args[2..2 + keys];
    count_uses(ctx, keys)?;
    let n = sift(ctx, keys, true, limit)?.len();
    ctx.reply.integer(n as i64);
    Ok(())
}

fn sscan(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let cursor = Scan::cursor(args[2])?;
    let Some(set) = ctx.db.get::<Set>(args[1])? else {
        Scan::reply(ctx, 0, &[]);
        return Ok(());
    };
    let scan = Scan::parse(cursor, ctx.name, &args[3..])?;
    let mut found = Vec::new();
    let next = set.scan(scan.cursor, scan.count, |member| {
        if scan.shows(member) {
            found.push(member.to_vec());
        }
    });
    Scan::reply(ctx, next, &found);
    Ok(())
}
