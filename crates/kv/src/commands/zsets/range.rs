//! Ranges of sorted sets: by rank, by score, by the bytes of members; counted, read, stored, removed.

use std::ops::Bound;

use super::super::parse::{integer, is, range};
use super::super::{Ctx, Done, Error};
use super::{answer, head, one, score_bound};
use crate::store::{Value, events};
use crate::types::{Scored, ZSet, above, below};

/// A bound of a range of members' bytes.
#[derive(Clone, Copy)]
enum Lex<'a> {
    Lowest,
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> Lex<'a> {
    fn parse(arg: &'a [u8]) -> Result<Lex<'a>, Error> {
        match arg {
            b"-" => Ok(Lex::Lowest),
            b"+" => Ok(Lex::Highest),
            [b'[', rest @ ..] => Ok(Lex::Included(rest)),
            [b'(', rest @ ..] => Ok(Lex::Excluded(rest)),
            _ => Err(Error::new("ERR min or max not valid string range item")),
        }
    }

    fn above(self, member: &[u8]) -> bool {
        match self {
            Lex::Lowest => true,
            Lex::Highest => false,
            Lex::Included(low) => member >= low,
            Lex::Excluded(low) => member > low,
        }
    }

    fn below(self, member: &[u8]) -> bool {
        match self {
            Lex::Lowest => false,
            Lex::Highest => true,
            Lex::Included(high) => member <= high,
            Lex::Excluded(high) => member < high,
        }
    }
}

/// The range of members that a command names.
enum Span<'a> {
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    Lex(Lex<'a>, Lex<'a>),
}

impl Span<'_> {
    /// The first rank, and how many members; ranks count from the top if `down`.
    fn ranks(&self, set: &ZSet, down: bool) -> (usize, usize) {
        let (first, end) = match *self {
            Span::Ranks(start, stop) => {
                let Some((first, last)) = range(start, stop, set.len()) else {
                    return (0, 0);
                };
                if down {
                    (set.len() - 1 - last, set.len() - first)
                } else {
                    (first, last + 1)
                }
            }
            Span::Scores(low, high) => (
                set.count_scores(|score| !above(score, low)),
                set.count_scores(|score| below(score, high)),
            ),
            Span::Lex(low, high) => (
                set.count_members(|member| !low.above(member)),
                set.count_members(|member| high.below(member)),
            ),
        };
        (first, end.saturating_sub(first))
    }
}

fn scores<'a>(low: &[u8], high: &[u8]) -> Result<Span<'a>, Error> {
    Ok(Span::Scores(score_bound(low)?, score_bound(high)?))
}

fn lex<'a>(low: &'a [u8], high: &'a [u8]) -> Result<Span<'a>, Error> {
    Ok(Span::Lex(Lex::parse(low)?, Lex::parse(high)?))
}

/// The arguments of a range command.
struct Asked<'a> {
    span: Span<'a>,
    down: bool,
    skip: usize,
    most: usize,
    with_scores: bool,
}

/// The part of the range that the name of the command fixes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

impl<'a> Asked<'a> {
    /// From two bounds and the options of a command of this name.
    fn parse(name: &str, bounds: [&'a [u8]; 2], options: &[&[u8]]) -> Result<Asked<'a>, Error> {
        let general = matches!(name, "zrange" | "zrangestore");
        let mut by = match () {
            () if name.ends_with("byscore") => By::Score,
            () if name.ends_with("bylex") => By::Lex,
            () => By::Rank,
        };
        // An option about a choice that the name or an earlier option has made is a syntax error.
        let (mut open_by, mut open_down) = (general, general);
        let mut down = name.starts_with("zrev");
        let (mut limit, mut with_scores) = (None, false);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match () {
                () if is(option, "withscores") && name != "zrangestore" => with_scores = true,
                () if is(option, "limit") => {
                    let (Some(skip), Some(most)) = (options.next(), options.next()) else {
                        return Err(Error::SYNTAX);
                    };
                    limit = Some((integer(skip)?, integer(most)?));
                }
                () if open_by && is(option, "byscore") => (by, open_by) = (By::Score, false),
                () if open_by && is(option, "bylex") => (by, open_by) = (By::Lex, false),
                () if open_down && is(option, "rev") => (down, open_down) = (true, false),
                () => return Err(Error::SYNTAX),
            }
        }
        let (skip, most) = limit.unwrap_or((0, -1));
        if most != -1 && by == By::Rank {
            return Err(Error::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        // A limit without a count is allowed then, and is none.
        let skip = if by == By::Rank { 0 } else { skip };
        if with_scores && by == By::Lex {
            return Err(Error::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // Downwards the higher bound is named first.
        let [low, high] = if down && by != By::Rank {
            [bounds[1], bounds[0]]
        } else {
            bounds
        };
        let span = match by {
            By::Rank => Span::Ranks(integer(low)?, integer(high)?),
            By::Score => scores(low, high)?,
            By::Lex => lex(low, high)?,
        };
        Ok(Asked {
            span,
            down,
            // A negative offset skips everything, a negative count takes everything.
            skip: usize::try_from(skip).unwrap_or(usize::MAX),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            with_scores,
        })
    }

    /// The members, and how many there are.
    fn members<'s>(&self, set: &'s ZSet) -> (usize, impl Iterator<Item = Scored<'s>>) {
        let (first, n) = self.span.ranks(set, self.down);
        let take = n.saturating_sub(self.skip).min(self.most);
        let (down, up) = match take {
            0 => (None, None),
            _ if self.down => (Some(set.iter_down(first + n - 1 - self.skip)), None),
            _ => (None, Some(set.iter_from(first + self.skip))),
        };
        let down = down.into_iter().flatten();
        let up = up.into_iter().flatten();
        (take, down.chain(up).take(take))
    }
}

pub(super) fn zrange(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let asked = Asked::parse(ctx.name, [args[2], args[3]], &args[4..])?;
    match ctx.db.get::<ZSet>(args[1])? {
        None => ctx.reply.array(0),
        Some(set) if !asked.down => {
            let (first, n) = asked.span.ranks(set, false);
            let take = n.saturating_sub(asked.skip).min(asked.most);
            head(ctx.reply, take, asked.with_scores);
            if take > 0 {
                let show = |scored: Scored<'_>| one(ctx.reply, scored, asked.with_scores);
                set.each_from(first + asked.skip, take, show);
            }
        }
        Some(set) => {
            let (n, members) = asked.members(set);
            answer(ctx.reply, n, members, asked.with_scores);
        }
    }
    Ok(())
}

pub(super) fn zrangestore(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let asked = Asked::parse(ctx.name, [args[3], args[4]], &args[5..])?;
    let fit = ctx.db.limits().zset();
    let mut set = ZSet::default();
    if let Some(from) = ctx.db.get::<ZSet>(args[2])? {
        for scored in asked.members(from).1 {
            set.insert(&scored.member, scored.score, fit);
        }
    }
    ctx.reply.integer(set.len() as i64);
    let removed = set.is_empty() && ctx.db.exists(args[1]);
    ctx.db.set(args[1], Value::ZSet(set));
    ctx.db
        .event_stored(events::ZSET, ctx.name, args[1], removed);
    Ok(())
}

pub(super) fn zremrange(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let span = match ctx.name {
        "zremrangebyrank" => Span::Ranks(integer(args[2])?, integer(args[3])?),
        "zremrangebyscore" => scores(args[2], args[3])?,
        _ => lex(args[2], args[3])?,
    };
    let removed = ctx.db.update(args[1], |set: &mut ZSet| {
        let (first, n) = span.ranks(set, false);
        let members = set.iter_from(first).take(n);
        let members: Vec<Vec<u8>> = members.map(|scored| scored.member.to_vec()).collect();
        for member in &members {
            set.remove(member);
        }
        (!members.is_empty(), members.len())
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.db.event_left(events::ZSET, ctx.name, args[1]);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn count(ctx: &mut Ctx<'_, '_>, key: &[u8], span: &Span<'_>) -> Done {
    let set = ctx.db.get::<ZSet>(key)?;
    let n = set.map_or(0, |set| span.ranks(set, false).1);
    ctx.reply.integer(n as i64);
    Ok(())
}

pub(super) fn zcount(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    count(ctx, args[1], &scores(args[2], args[3])?)
}

pub(super) fn zlexcount(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    count(ctx, args[1], &lex(args[2], args[3])?)
}
