//! Commands on hashes.

use super::parse::{check_pairs, check_samples, either_way, integer, is, sample_parts};
use super::scan::Scan;
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, WRITE};
use crate::store::events;
use crate::types::Hash;
use crate::types::extended::{Extended, Read};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("hset", -4, WRITE | MEMORY | FAST, Keys::ONE, hset),
    Spec::new("hmset", -4, WRITE | MEMORY | FAST, Keys::ONE, hset),
    Spec::new("hsetnx", 4, WRITE | MEMORY | FAST, Keys::ONE, hsetnx),
    Spec::new("hget", 3, READ | FAST, Keys::ONE, hget),
    Spec::new("hmget", -3, READ | FAST, Keys::ONE, hmget),
    Spec::new("hgetall", 2, READ, Keys::ONE, hgetall),
    Spec::new("hkeys", 2, READ, Keys::ONE, hkeys),
    Spec::new("hvals", 2, READ, Keys::ONE, hvals),
    Spec::new("hdel", -3, WRITE | REMOVES | FAST, Keys::ONE, hdel),
    Spec::new("hexists", 3, READ | FAST, Keys::ONE, hexists),
    Spec::new("hlen", 2, READ | FAST, Keys::ONE, hlen),
    Spec::new("hstrlen", 3, READ | FAST, Keys::ONE, hstrlen),
    Spec::new("hincrby", 4, WRITE | MEMORY | FAST, Keys::ONE, hincrby),
    Spec::new(
        "hincrbyfloat",
        4,
        WRITE | MEMORY | FAST,
        Keys::ONE,
        hincrbyfloat,
    ),
    Spec::new("hrandfield", -2, READ, Keys::ONE, hrandfield),
    Spec::new("hscan", -3, READ, Keys::ONE, hscan),
];

fn hset(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Error::arity(ctx.name));
    }
    let fit = ctx.db.limits().hash();
    let new = ctx.db.upsert(args[1], |hash: &mut Hash| {
        hash.reserve(&args[2..], fit);
        let pairs = args[2..].chunks_exact(2);
        let new = pairs.filter(|pair| hash.set(pair[0], pair[1], fit)).count();
        hash.trim();
        (true, new)
    })?;
    ctx.db.event(events::HASH, "hset", args[1]);
    if ctx.name == "hmset" {
        ctx.reply.ok();
    } else {
        ctx.reply.integer(new as i64);
    }
    Ok(())
}

fn hsetnx(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let fit = ctx.db.limits().hash();
    let new = ctx.db.upsert(args[1], |hash: &mut Hash| {
        let new = hash.get(args[2]).is_none();
        if new {
            hash.set(args[2], args[3], fit);
        }
        (new, new)
    })?;
    if new {
        ctx.db.event(events::HASH, "hset", args[1]);
    }
    ctx.reply.integer(new.into());
    Ok(())
}

fn hget(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let hash = ctx.db.get::<Hash>(args[1])?;
    let value = hash.and_then(|hash| hash.get(args[2]));
    ctx.reply.bulk_or_null(value.as_deref());
    Ok(())
}

fn hmget(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let hash = ctx.db.get::<Hash>(args[1])?;
    ctx.reply.array(args.len() - 2);
    for field in &args[2..] {
        let value = hash.and_then(|hash| hash.get(field));
        ctx.reply.bulk_or_null(value.as_deref());
    }
    Ok(())
}

fn hgetall(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let Some(hash) = ctx.db.get::<Hash>(args[1])? else {
        ctx.reply.map(0);
        return Ok(());
    };
    ctx.reply.map(hash.len());
    hash.each(|field, value| {
        ctx.reply.bulk(field);
        ctx.reply.bulk(value);
    });
    Ok(())
}

fn hkeys(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let Some(hash) = ctx.db.get::<Hash>(args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    ctx.reply.array(hash.len());
    hash.each(|field, _| ctx.reply.bulk(field));
    Ok(())
}

fn hvals(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let Some(hash) = ctx.db.get::<Hash>(args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    ctx.reply.array(hash.len());
    hash.each(|_, value| ctx.reply.bulk(value));
    Ok(())
}

fn hdel(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let removed = ctx.db.update(args[1], |hash: &mut Hash| {
        let fields = args[2..].iter();
        let n = fields.filter(|field| hash.remove(field)).count();
        (n > 0, n)
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.db.event_left(events::HASH, "hdel", args[1]);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn hexists(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let hash = ctx.db.get::<Hash>(args[1])?;
    let exists = hash.is_some_and(|hash| hash.get(args[2]).is_some());
    ctx.reply.integer(exists.into());
    Ok(())
}

fn hlen(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let len = ctx.db.get::<Hash>(args[1])?.map_or(0, Hash::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn hstrlen(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let hash = ctx.db.get::<Hash>(args[1])?;
    let len = hash
        .and_then(|hash| hash.get(args[2]))
        .map_or(0, |value| value.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

fn hincrby(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let by = integer(args[3])?;
    let fit = ctx.db.limits().hash();
    let sum = ctx.db.upsert(args[1], |hash: &mut Hash| {
        let sum = hash
            .get(args[2])
            .map_or(Ok(0), |old| {
                integer(&old).map_err(|_| Error::new("ERR hash value is not an integer"))
            })
            .and_then(|old| old.checked_add(by).ok_or(Error::OVERFLOW));
        if let Ok(sum) = sum {
            hash.set(args[2], sum.to_string().as_bytes(), fit);
        }
        (sum.is_ok(), sum)
    })??;
    ctx.db.event(events::HASH, "hincrby", args[1]);
    ctx.reply.integer(sum);
    Ok(())
}

fn hincrbyfloat(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let by = Extended::parse(args[3]).ok_or(Error::NOT_FLOAT)?;
    if by == Read::Infinity {
        return Err(Error::new("ERR value is NaN or Infinity"));
    }
    let fit = ctx.db.limits().hash();
    let sum = ctx.db.upsert(args[1], |hash: &mut Hash| {
        let old = match hash.get(args[2]) {
            None => Ok(Read::Number(Extended::ZERO)),
            Some(old) => Extended::parse(&old).ok_or(Error::new("ERR hash value is not a float")),
        };
        let sum = old.and_then(|old| super::strings::sum(old, by));
        if let Ok(sum) = &sum {
            hash.set(args[2], sum.as_bytes(), fit);
        }
        (sum.is_ok(), sum)
    })??;
    if ctx.has_effects() {
        ctx.rewrite(&[b"hset", args[1], args[2], sum.as_bytes()]);
    }
    ctx.db.event(events::HASH, "hincrbyfloat", args[1]);
    ctx.reply.bulk(sum.as_bytes());
    Ok(())
}

fn hrandfield(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let wanted = args.get(2).map(|arg| either_way(arg)).transpose()?;
    let with_values = match args[2..] {
        [] | [_] => false,
        [_, option] if is(option, "withvalues") => true,
        _ => return Err(Error::SYNTAX),
    };
    let hash = ctx.db.get::<Hash>(args[1])?;
    let Some(wanted) = wanted else {
        let chosen = hash.map_or_else(Vec::new, |hash| hash.sample(1, ctx.rng));
        ctx.reply
            .bulk_or_null(chosen.first().map(|(field, _)| &**field));
        return Ok(());
    };
    if with_values {
        check_pairs(wanted)?;
    }
    let Some(hash) = hash else {
        ctx.reply.array(0);
        return Ok(());
    };
    check_samples(wanted)?;
    let n = usize::try_from(wanted).map_or(wanted.unsigned_abs() as usize, |n| n.min(hash.len()));
    let pairs = with_values && ctx.reply.proto == crate::reply::Proto::Resp3;
    let flat = if with_values && !pairs { 2 } else { 1 };
    ctx.reply.array(n * flat);
    for part in sample_parts(wanted) {
        for (field, value) in hash.sample(part, ctx.rng) {
            if pairs {
                ctx.reply.array(2);
            }
            ctx.reply.bulk(&field);
            if with_values {
                ctx.reply.bulk(&value);
            }
        }
        if ctx.reply.is_over() {
            break;
        }
    }
    Ok(())
}

fn hscan(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let cursor = Scan::cursor(args[2])?;
    let Some(hash) = ctx.db.get::<Hash>(args[1])? else {
        Scan::reply(ctx, 0, &[]);
        return Ok(());
    };
    let scan = Scan::parse(cursor, ctx.name, &args[3..])?;
    let mut found = Vec::new();
    let next = hash.scan(scan.cursor, scan.count, |field, value| {
        if scan.shows(field) {
            found.push(field.to_vec());
            if !scan.bare {
                found.push(value.to_vec());
            }
        }
    });
    Scan::reply(ctx, next, &found);
    Ok(())
}
