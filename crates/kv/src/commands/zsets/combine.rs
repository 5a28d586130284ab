//! Unions, intersections and differences of sorted sets, and of plain sets with scores of 1.

use super::super::parse::{float, integer, is, limit};
use super::super::{Ctx, Done, Error};
use crate::store::{Value, ValueRef, events};
use crate::types::{Fit, ZSet};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Opposite infinities cancel out, as they do in Redis, where a NaN is never the lesser
            // nor the greater one.
            Aggregate::Sum if (a + b).is_nan() => 0.0,
            Aggregate::Sum => a + b,
            Aggregate::Min if b < a => b,
            Aggregate::Max if b > a => b,
            Aggregate::Min | Aggregate::Max => a,
        }
    }
}

/// The members of a key with their scores, none if there is no such key.
fn members(ctx: &mut Ctx<'_, '_>, key: &[u8]) -> Result<ZSet, Error> {
    let fit = ctx.db.limits().zset();
    match ctx.db.value(key) {
        None => Ok(ZSet::default()),
        Some(ValueRef::ZSet(set)) => Ok(set.clone()),
        Some(ValueRef::Set(plain)) => {
            let mut set = ZSet::default();
            plain.each(|member| {
                set.insert(member, 1.0, fit);
            });
            Ok(set)
        }
        Some(_) => Err(Error::WRONG_TYPE),
    }
}

/// Arguments of a command.
type Args<'x> = [&'x [u8]];

/// The keys that follow a number of keys at `at`, and what is behind them.
fn keys<'x, 'y>(
    name: &str,
    args: &'y Args<'x>,
    at: usize,
) -> Result<(&'y Args<'x>, &'y Args<'x>), Error> {
    let n = integer(args[at])?;
    if n < 1 {
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(Error::text(text));
    }
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    if n > args.len() - at - 1 {
        return Err(Error::SYNTAX);
    }
    Ok(args[at + 1..].split_at(n))
}

pub(super) fn combine(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let into = ctx.name.ends_with("store").then(|| args[1]);
    let at = if into.is_some() { 2 } else { 1 };
    let kind = ctx.name.trim_end_matches("store");
    let (keys, options) = keys(ctx.name, args, at)?;
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        sets.push((members(ctx, key)?, 1.0));
    }
    let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
    let mut rest = options;
    while let [option, behind @ ..] = rest {
        rest = behind;
        match () {
            () if kind != "zdiff" && is(option, "weights") && rest.len() >= keys.len() => {
                for ((_, weight), arg) in sets.iter_mut().zip(rest) {
                    *weight =
                        float(arg).map_err(|_| Error::new("ERR weight value is not a float"))?;
                }
                rest = &rest[keys.len()..];
            }
            () if kind != "zdiff" && is(option, "aggregate") && !rest.is_empty() => {
                aggregate = match () {
                    () if is(rest[0], "sum") => Aggregate::Sum,
                    () if is(rest[0], "min") => Aggregate::Min,
                    () if is(rest[0], "max") => Aggregate::Max,
                    () => return Err(Error::SYNTAX),
                };
                rest = &rest[1..];
            }
            () if into.is_none() && is(option, "withscores") => with_scores = true,
            () => return Err(Error::SYNTAX),
        }
    }
    if kind != "zdiff" {
        // The smallest set comes first: an intersection looks for its members in the other sets.
        // Redis adds scores in this order too; the order decides which digits are lost in rounding.
        sets.sort_by_key(|(set, _)| set.len());
    }
    let fit = ctx.db.limits().zset();
    let result = match kind {
        "zunion" => union(&sets, aggregate, fit),
        "zinter" => inter(&sets, aggregate, fit),
        _ => diff(&sets, fit),
    };
    if let Some(into) = into {
        ctx.reply.integer(result.len() as i64);
        let removed = result.is_empty() && ctx.db.exists(into);
        ctx.db.set(into, Value::ZSet(result));
        ctx.db.event_stored(events::ZSET, ctx.name, into, removed);
    } else {
        super::answer(ctx.reply, result.len(), result.iter(), with_scores);
    }
    Ok(())
}

/// A score times its weight; zero times infinity is zero.
fn weighted(score: f64, weight: f64) -> f64 {
    let product = score * weight;
    if product.is_nan() { 0.0 } else { product }
}

fn union(sets: &[(ZSet, f64)], aggregate: Aggregate, fit: Fit) -> ZSet {
    let mut result = ZSet::default();
    for (set, weight) in sets {
        for scored in set.iter() {
            let score = weighted(scored.score, *weight);
            let old = result.score(&scored.member);
            let score = old.map_or(score, |old| aggregate.of(old, score));
            result.insert(&scored.member, score, fit);
        }
    }
    result
}

fn inter(sets: &[(ZSet, f64)], aggregate: Aggregate, fit: Fit) -> ZSet {
    let mut result = ZSet::default();
    let (first, weight) = &sets[0];
    for scored in first.iter() {
        let mut score = weighted(scored.score, *weight);
        let in_all = sets[1..].iter().all(|(set, weight)| {
            let other = set.score(&scored.member);
            other
                .map(|other| score = aggregate.of(score, other * weight))
                .is_some()
        });
        if in_all {
            result.insert(&scored.member, score, fit);
        }
    }
    result
}

fn diff(sets: &[(ZSet, f64)], fit: Fit) -> ZSet {
    let mut result = ZSet::default();
    for scored in sets[0].0.iter() {
        if sets[1..]
            .iter()
            .all(|(set, _)| set.score(&scored.member).is_none())
        {
            result.insert(&scored.member, scored.score, fit);
        }
    }
    result
}

pub(super) fn zintercard(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (keys, options) = keys(ctx.name, args, 1)?;
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        sets.push((members(ctx, key)?, 1.0));
    }
    let limit = limit(options)?;
    sets.sort_by_key(|(set, _)| set.len());
    let n = inter(&sets, Aggregate::Sum, ctx.db.limits().zset()).len();
    ctx.reply.integer(n.min(limit) as i64);
    Ok(())
}
