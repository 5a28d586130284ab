//! Commands on sorted sets.

mod combine;
mod pop;
mod range;

use std::ops::Bound;

use super::parse::{check_pairs, check_samples, either_way, float, is, sample_parts};
use super::scan::Scan;
use super::{Ctx, Done, Error, FAST, Keys, MEMORY, READ, REMOVES, Spec, WRITE};
use crate::reply::{Proto, Reply};
use crate::store::events;
use crate::types::{Fit, Scored, ZSet, score};

const COUNTED: Keys = Keys::Counted {
    at: 1,
    first: false,
};
const COUNTED_SECOND: Keys = Keys::Counted {
    at: 2,
    first: false,
};
/// A destination, and a number of keys.
const INTO: Keys = Keys::Counted { at: 2, first: true };

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("zadd", -4, WRITE | MEMORY | FAST, Keys::ONE, zadd),
    Spec::new("zincrby", 4, WRITE | MEMORY | FAST, Keys::ONE, zincrby),
    Spec::new("zrem", -3, WRITE | REMOVES | FAST, Keys::ONE, zrem),
    Spec::new("zscore", 3, READ | FAST, Keys::ONE, zscore),
    Spec::new("zmscore", -3, READ | FAST, Keys::ONE, zmscore),
    Spec::new("zcard", 2, READ | FAST, Keys::ONE, zcard),
    Spec::new("zcount", 4, READ | FAST, Keys::ONE, range::zcount),
    Spec::new("zlexcount", 4, READ | FAST, Keys::ONE, range::zlexcount),
    Spec::new("zrank", -3, READ | FAST, Keys::ONE, zrank),
    Spec::new("zrevrank", -3, READ | FAST, Keys::ONE, zrank),
    Spec::new("zrange", -4, READ, Keys::ONE, range::zrange),
    Spec::new(
        "zrangestore",
        -5,
        WRITE | MEMORY,
        Keys::TWO,
        range::zrangestore,
    ),
    Spec::new("zrevrange", -4, READ, Keys::ONE, range::zrange),
    Spec::new("zrangebyscore", -4, READ, Keys::ONE, range::zrange),
    Spec::new("zrevrangebyscore", -4, READ, Keys::ONE, range::zrange),
    Spec::new("zrangebylex", -4, READ, Keys::ONE, range::zrange),
    Spec::new("zrevrangebylex", -4, READ, Keys::ONE, range::zrange),
    Spec::new(
        "zremrangebyrank",
        4,
        WRITE | REMOVES,
        Keys::ONE,
        range::zremrange,
    ),
    Spec::new(
        "zremrangebyscore",
        4,
        WRITE | REMOVES,
        Keys::ONE,
        range::zremrange,
    ),
    Spec::new(
        "zremrangebylex",
        4,
        WRITE | REMOVES,
        Keys::ONE,
        range::zremrange,
    ),
    Spec::new("zpopmin", -2, WRITE | REMOVES | FAST, Keys::ONE, pop::zpop),
    Spec::new("zpopmax", -2, WRITE | REMOVES | FAST, Keys::ONE, pop::zpop),
    Spec::new("zmpop", -4, WRITE | REMOVES, COUNTED, pop::zmpop),
    Spec::new(
        "bzpopmin",
        -3,
        WRITE | REMOVES | FAST,
        Keys::ALL_BUT_LAST,
        pop::bzpop,
    ),
    Spec::new(
        "bzpopmax",
        -3,
        WRITE | REMOVES | FAST,
        Keys::ALL_BUT_LAST,
        pop::bzpop,
    ),
    Spec::new("bzmpop", -5, WRITE | REMOVES, COUNTED_SECOND, pop::bzmpop),
    Spec::new("zrandmember", -2, READ, Keys::ONE, zrandmember),
    Spec::new("zunion", -3, READ, COUNTED, combine::combine),
    Spec::new("zinter", -3, READ, COUNTED, combine::combine),
    Spec::new("zdiff", -3, READ, COUNTED, combine::combine),
    Spec::new("zunionstore", -4, WRITE | MEMORY, INTO, combine::combine),
    Spec::new("zinterstore", -4, WRITE | MEMORY, INTO, combine::combine),
    Spec::new("zdiffstore", -4, WRITE | MEMORY, INTO, combine::combine),
    Spec::new("zintercard", -3, READ, COUNTED, combine::zintercard),
    Spec::new("zscan", -3, READ, Keys::ONE, zscan),
];

/// The options of ZADD.
#[derive(Default)]
pub(super) struct Options {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    incr: bool,
}

impl Options {
    /// Reads the options and returns how many arguments they take.
    fn parse(args: &[&[u8]]) -> (Options, usize) {
        Options::parse_some(args, &["nx", "xx", "gt", "lt", "ch", "incr"])
    }

    /// Parses only options that are among some.
    pub(super) fn parse_some(args: &[&[u8]], some: &[&str]) -> (Options, usize) {
        let mut o = Options::default();
        let mut n = 0;
        let is_known = |arg: &&&[u8]| some.iter().any(|word| is(arg, word));
        for arg in args.iter().take_while(is_known) {
            match () {
                () if is(arg, "nx") => o.absent = true,
                () if is(arg, "xx") => o.present = true,
                () if is(arg, "gt") => o.greater = true,
                () if is(arg, "lt") => o.less = true,
                () if is(arg, "ch") => o.changed = true,
                () if is(arg, "incr") => o.incr = true,
                () => break,
            }
            n += 1;
        }
        (o, n)
    }

    /// Checks that the options fit together.
    pub(super) fn check(&self) -> Done {
        if self.absent && self.present {
            return Err(Error::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        if self.greater && self.less || self.absent && (self.greater || self.less) {
            return Err(Error::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        Ok(())
    }

    /// The score that a member gets, if it gets one.
    fn outcome(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, Error> {
        let Some(old) = old else {
            return Ok((!self.present).then_some(given));
        };
        if self.absent {
            return Ok(None);
        }
        let new = if self.incr { old + given } else { given };
        if new.is_nan() {
            return Err(Error::new("ERR resulting score is not a number (NaN)"));
        }
        let fits = !(self.greater && new <= old || self.less && new >= old);
        Ok(fits.then_some(new))
    }
}

fn zadd(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (options, n) = Options::parse(&args[2..]);
    let pairs = &args[2 + n..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    options.check()?;
    if options.incr && pairs.len() > 2 {
        return Err(Error::new(
            "ERR INCR option supports a single increment-element pair",
        ));
    }
    let mut scored = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact(2) {
        scored.push((float(pair[0])?, pair[1]));
    }
    add_all(ctx, args[1], &options, &scored)
}

/// Adds members, and answers as ZADD does.
pub(super) fn add_all(
    ctx: &mut Ctx<'_, '_>,
    key: &[u8],
    options: &Options,
    scored: &[(f64, &[u8])],
) -> Done {
    let fit = ctx.db.limits().zset();
    let (added, changed, last) = ctx.db.upsert(key, |set: &mut ZSet| {
        if !options.present {
            set.reserve(scored, fit);
        }
        let done = add(set, options, scored, fit);
        set.trim();
        (
            done.as_ref()
                .is_ok_and(|(added, changed, _)| added + changed > 0),
            done,
        )
    })??;
    if added + changed > 0 {
        let name = if options.incr { "zincr" } else { "zadd" };
        ctx.db.event(events::ZSET, name, key);
    }
    match (options.incr, last) {
        (true, Some(score)) => ctx.reply.double(score),
        (true, None) => ctx.reply.null(),
        (false, _) if options.changed => ctx.reply.integer((added + changed) as i64),
        (false, _) => ctx.reply.integer(added as i64),
    }
    Ok(())
}

/// How many were added, how many got another score, and the last score given.
fn add(
    set: &mut ZSet,
    options: &Options,
    scored: &[(f64, &[u8])],
    fit: Fit,
) -> Result<(usize, usize, Option<f64>), Error> {
    let (mut added, mut changed, mut last) = (0, 0, None);
    for &(given, member) in scored {
        let old = set.score(member);
        last = options.outcome(old, given)?;
        if let Some(new) = last {
            set.insert(member, new, fit);
            match old {
                None => added += 1,
                Some(old) if old != new => changed += 1,
                Some(_) => {}
            }
        }
    }
    Ok((added, changed, last))
}

fn zincrby(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let by = float(args[2])?;
    let options = Options {
        incr: true,
        ..Options::default()
    };
    let fit = ctx.db.limits().zset();
    let (added, changed, last) = ctx.db.upsert(args[1], |set: &mut ZSet| {
        let done = add(set, &options, &[(by, args[3])], fit);
        (done.is_ok(), done)
    })??;
    if added + changed > 0 {
        ctx.db.event(events::ZSET, "zincr", args[1]);
    }
    ctx.reply.double(last.unwrap_or(by));
    Ok(())
}

fn zrem(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let removed = ctx.db.update(args[1], |set: &mut ZSet| {
        let members = args[2..].iter();
        let n = members
            .filter(|member| set.remove(member).is_some())
            .count();
        (n > 0, n)
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.db.event_left(events::ZSET, "zrem", args[1]);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn zscore(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let score = ctx
        .db
        .get::<ZSet>(args[1])?
        .and_then(|set| set.score(args[2]));
    match score {
        Some(score) => ctx.reply.double(score),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn zmscore(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let set = ctx.db.get::<ZSet>(args[1])?;
    ctx.reply.array(args.len() - 2);
    for member in &args[2..] {
        match set.and_then(|set| set.score(member)) {
            Some(score) => ctx.reply.double(score),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn zcard(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let len = ctx.db.get::<ZSet>(args[1])?.map_or(0, ZSet::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn zrank(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let with_score = match args[3..] {
        [] => false,
        [option] if is(option, "withscore") => true,
        [_] => return Err(Error::SYNTAX),
        _ => return Err(Error::arity(ctx.name)),
    };
    let set = ctx.db.get::<ZSet>(args[1])?;
    let found = set.and_then(|set| Some((set.rank(args[2])?, set.len(), set.score(args[2])?)));
    match found {
        None if with_score => ctx.reply.null_array(),
        None => ctx.reply.null(),
        Some((rank, len, score)) => {
            let rank = if ctx.name == "zrevrank" {
                len - 1 - rank
            } else {
                rank
            };
            if with_score {
                ctx.reply.array(2);
            }
            ctx.reply.integer(rank as i64);
            if with_score {
                ctx.reply.double(score);
            }
        }
    }
    Ok(())
}

fn zrandmember(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let wanted = args.get(2).map(|arg| either_way(arg)).transpose()?;
    let with_scores = match args[2..] {
        [] | [_] => false,
        [_, option] if is(option, "withscores") => true,
        _ => return Err(Error::SYNTAX),
    };
    let set = ctx.db.get::<ZSet>(args[1])?;
    let Some(wanted) = wanted else {
        let chosen = set.map_or_else(Vec::new, |set| set.sample(1, ctx.rng));
        ctx.reply
            .bulk_or_null(chosen.first().map(|scored| &*scored.member));
        return Ok(());
    };
    if with_scores {
        check_pairs(wanted)?;
    }
    let Some(set) = set else {
        ctx.reply.array(0);
        return Ok(());
    };
    check_samples(wanted)?;
    let n = usize::try_from(wanted).map_or(wanted.unsigned_abs() as usize, |n| n.min(set.len()));
    head(ctx.reply, n, with_scores);
    for part in sample_parts(wanted) {
        let chosen = set.sample(part, ctx.rng);
        chosen
            .into_iter()
            .for_each(|scored| one(ctx.reply, scored, with_scores));
        if ctx.reply.is_over() {
            break;
        }
    }
    Ok(())
}

/// `n` members in order, with their scores in pairs (RESP3) or in turn (RESP2).
fn answer<'a>(
    reply: &mut Reply,
    n: usize,
    members: impl Iterator<Item = Scored<'a>>,
    with_scores: bool,
) {
    head(reply, n, with_scores);
    members.for_each(|scored| one(reply, scored, with_scores));
}

/// Writes the head of a reply with this many members.
fn head(reply: &mut Reply, n: usize, with_scores: bool) {
    let flat = with_scores && reply.proto == Proto::Resp2;
    reply.array(if flat { 2 * n } else { n });
}

fn one(reply: &mut Reply, scored: Scored<'_>, with_scores: bool) {
    if with_scores && reply.proto == Proto::Resp3 {
        reply.array(2);
    }
    reply.bulk(&scored.member);
    if with_scores {
        reply.double(scored.score);
    }
}

fn zscan(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let cursor = Scan::cursor(args[2])?;
    let Some(set) = ctx.db.get::<ZSet>(args[1])? else {
        Scan::reply(ctx, 0, &[]);
        return Ok(());
    };
    let scan = Scan::parse(cursor, ctx.name, &args[3..])?;
    let mut found = Vec::new();
    let next = set.scan(scan.cursor, scan.count, |scored| {
        if scan.shows(&scored.member) {
            found.push(scored.member.to_vec());
            if !scan.bare {
                found.push(score::format(scored.score).into_bytes());
            }
        }
    });
    Scan::reply(ctx, next, &found);
    Ok(())
}

/// A bound of a range of scores: `5`, `(5`, `-inf`.
fn score_bound(arg: &[u8]) -> Result<Bound<f64>, Error> {
    let (text, open) = match arg {
        [b'(', rest @ ..] => (rest, true),
        _ => (arg, false),
    };
    let score = score::parse_bound(text).ok_or(Error::new("ERR min or max is not a float"))?;
    Ok(if open {
        Bound::Excluded(score)
    } else {
        Bound::Included(score)
    })
}
