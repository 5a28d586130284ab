//! GEOSEARCH and its older forms: members within a circle or a box.

use super::super::parse::{integer, is};
use super::super::{Ctx, Done, Error};
use super::{coordinates, distance, peek, point, unit};
use crate::store::{Value, events};
use crate::types::geo::{Point, Shape, areas};
use crate::types::{ZSet, score};

/// The arguments of a search.
#[derive(Default)]
struct Query<'x> {
    centre: Option<Point>,
    /// The centre is a member of a set that is not there.
    centre_missing: bool,
    shape: Option<Shape>,
    /// Metres of the unit that the answer is in.
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    any: bool,
    /// The order of the results: none, nearest first, or farthest first.
    down: Option<bool>,
    count: Option<usize>,
    into: Option<&'x [u8]>,
    store_distance: bool,
}

struct Found {
    member: Vec<u8>,
    place: Point,
    score: f64,
    distance: f64,
}

/// Reads a length and its unit, and returns metres.
fn metres(
    lengths: &[&[u8]],
    name: &[u8],
    what: [&'static str; 2],
    below: &'static str,
) -> Result<([f64; 2], f64), Error> {
    let mut read = [0.0; 2];
    for (at, length) in lengths.iter().enumerate() {
        read[at] = score::parse(length).ok_or(Error::new(what[at]))?;
    }
    if read.iter().any(|length| *length < 0.0) {
        return Err(Error::new(below));
    }
    let unit = unit(name)?;
    Ok((read.map(|length| length * unit), unit))
}

impl<'x> Query<'x> {
    fn circle(&mut self, radius: &[u8], unit: &[u8]) -> Done {
        let what = ["ERR need numeric radius"; 2];
        let ([radius, _], unit) = metres(&[radius], unit, what, "ERR radius cannot be negative")?;
        (self.shape, self.unit) = (Some(Shape::Circle { radius }), unit);
        Ok(())
    }

    fn square(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> Done {
        let what = ["ERR need numeric width", "ERR need numeric height"];
        let below = "ERR height or width cannot be negative";
        let ([width, height], unit) = metres(&[width, height], unit, what, below)?;
        (self.shape, self.unit) = (Some(Shape::Box { width, height }), unit);
        Ok(())
    }

    /// Takes the place of a member as the centre.
    fn centre_of(&mut self, ctx: &Ctx<'_, '_>, key: &[u8], member: &[u8]) -> Done {
        self.centre_missing = true;
        if let Some(set) = peek(ctx, key) {
            let score = set.score(member);
            let score = score.ok_or(Error::new("ERR could not decode requested zset member"))?;
            self.centre = Some(Point::of_score(score));
            self.centre_missing = false;
        }
        Ok(())
    }

    fn has_centre(&self) -> bool {
        self.centre.is_some() || self.centre_missing
    }

    /// Reads the options behind the fixed arguments of a command.
    fn options(&mut self, ctx: &Ctx<'_, '_>, key: &[u8], args: &[&'x [u8]]) -> Done {
        let is_search = ctx.name.starts_with("geosearch");
        let may_store = matches!(ctx.name, "georadius" | "georadiusbymember");
        let (mut from_member, mut from_place) = (false, false);
        let (mut by_radius, mut by_box) = (false, false);
        let mut rest = args;
        loop {
            rest = match *rest {
                [] => break,
                [word, ref rest @ ..] if is(word, "withdist") => {
                    self.with_distance = true;
                    rest
                }
                [word, ref rest @ ..] if is(word, "withhash") => {
                    self.with_hash = true;
                    rest
                }
                [word, ref rest @ ..] if is(word, "withcoord") => {
                    self.with_place = true;
                    rest
                }
                [word, ref rest @ ..] if is(word, "any") => {
                    self.any = true;
                    rest
                }
                [word, ref rest @ ..] if is(word, "asc") || is(word, "desc") => {
                    self.down = Some(is(word, "desc"));
                    rest
                }
                [word, n, ref rest @ ..] if is(word, "count") => {
                    let n = usize::try_from(integer(n)?).ok().filter(|n| *n > 0);
                    self.count = Some(n.ok_or(Error::new("ERR COUNT must be > 0"))?);
                    rest
                }
                [word, into, ref rest @ ..]
                    if may_store && (is(word, "store") || is(word, "storedist")) =>
                {
                    self.into = Some(into);
                    self.store_distance = is(word, "storedist");
                    rest
                }
                [word, ref rest @ ..] if ctx.name == "geosearchstore" && is(word, "storedist") => {
                    self.store_distance = true;
                    rest
                }
                [word, member, ref rest @ ..]
                    if is_search && !from_place && is(word, "frommember") =>
                {
                    from_member = true;
                    self.centre_of(ctx, key, member)?;
                    rest
                }
                [word, longitude, latitude, ref rest @ ..]
                    if is_search && !from_member && is(word, "fromlonlat") =>
                {
                    from_place = true;
                    self.centre = Some(point(longitude, latitude)?);
                    rest
                }
                [word, radius, unit, ref rest @ ..]
                    if is_search && !by_box && is(word, "byradius") =>
                {
                    by_radius = true;
                    self.circle(radius, unit)?;
                    rest
                }
                [word, width, height, unit, ref rest @ ..]
                    if is_search && !by_radius && is(word, "bybox") =>
                {
                    by_box = true;
                    self.square(width, height, unit)?;
                    rest
                }
                _ => return Err(Error::SYNTAX),
            };
        }
        let shows = self.with_distance || self.with_hash || self.with_place;
        if self.into.is_some() && shows {
            let what = match ctx.name {
                "geosearchstore" => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Error::text(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        Ok(())
    }

    /// The members within the area, in the order of the cells or of the distances.
    fn find(&self, set: &ZSet) -> Vec<Found> {
        let (Some(centre), Some(shape)) = (self.centre, self.shape) else {
            return Vec::new();
        };
        let most = self.count.filter(|_| self.any).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for area in areas(centre, shape) {
            let scores = area.scores();
            let (low, high) = (scores.start as f64, scores.end as f64);
            let rank = set.count_scores(|score| score < low);
            for scored in set.iter_from(rank) {
                if scored.score >= high || found.len() >= most {
                    break;
                }
                let place = Point::of_score(scored.score);
                if let Some(distance) = shape.distance_within(centre, place) {
                    found.push(Found {
                        member: scored.member.to_vec(),
                        place,
                        score: scored.score,
                        distance,
                    });
                }
            }
        }
        // The first few are the nearest, unless any will do.
        let down = self
            .down
            .or(self.count.filter(|_| !self.any).map(|_| false));
        if let Some(down) = down {
            found.sort_by(|a, b| {
                let order = a.distance.total_cmp(&b.distance);
                if down { order.reverse() } else { order }
            });
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        found
            .iter_mut()
            .for_each(|found| found.distance /= self.unit);
        found
    }

    /// Runs the search, and writes the result to the reply or to a key.
    fn run(&self, ctx: &mut Ctx<'_, '_>, key: &[u8]) -> Done {
        if self.any && self.count.is_none() {
            return Err(Error::new("ERR the ANY argument requires COUNT argument"));
        }
        let found = peek(ctx, key).map_or(Vec::new(), |set| self.find(set));
        match self.into {
            Some(into) => self.store(ctx, into, &found),
            None => {
                self.answer(ctx, &found);
                Ok(())
            }
        }
    }

    fn answer(&self, ctx: &mut Ctx<'_, '_>, all: &[Found]) {
        let more = [self.with_distance, self.with_hash, self.with_place];
        let more = more.into_iter().filter(|wanted| *wanted).count();
        ctx.reply.array(all.len());
        for found in all {
            if ctx.reply.is_over() {
                return;
            }
            if more > 0 {
                ctx.reply.array(1 + more);
            }
            ctx.reply.bulk(&found.member);
            if self.with_distance {
                distance(ctx, found.distance);
            }
            if self.with_hash {
                ctx.reply.integer(found.score as i64);
            }
            if self.with_place {
                coordinates(ctx, found.place);
            }
        }
    }

    fn store(&self, ctx: &mut Ctx<'_, '_>, into: &[u8], all: &[Found]) -> Done {
        let score = |found: &Found| match self.store_distance {
            true => found.distance,
            false => found.score,
        };
        let scored: Vec<(f64, &[u8])> = all.iter().map(|x| (score(x), &x.member[..])).collect();
        // A score is written in 24 bytes at most.
        let bytes: usize = scored.iter().map(|(_, member)| member.len() + 24).sum();
        ctx.reserve(2 * scored.len() + 4, bytes + 2 * into.len() + 7)?;
        let fit = ctx.db.limits().zset();
        let mut set = ZSet::default();
        set.reserve(&scored, fit);
        for (score, member) in &scored {
            set.insert(member, *score, fit);
        }
        ctx.reply.integer(set.len() as i64);
        // Distances are made of sines: another machine's may be others.
        if ctx.has_effects() {
            ctx.rewrite(&[b"DEL", into]);
            if !scored.is_empty() {
                let texts: Vec<String> = scored.iter().map(|(s, _)| score::format(*s)).collect();
                let mut add: Vec<&[u8]> = vec![b"ZADD", into];
                for (text, (_, member)) in texts.iter().zip(&scored) {
                    add.extend([text.as_bytes(), member]);
                }
                ctx.rewrite(&add);
            }
        }
        let removed = set.is_empty() && ctx.db.exists(into);
        ctx.db.set(into, Value::ZSet(set));
        let name = match ctx.name {
            "geosearchstore" => "geosearchstore",
            _ => "georadiusstore",
        };
        ctx.db.event_stored(events::ZSET, name, into, removed);
        Ok(())
    }
}

/// GEOSEARCH and GEOSEARCHSTORE.
pub(super) fn geosearch(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (into, key, options) = match ctx.name {
        "geosearchstore" => (Some(args[1]), args[2], &args[3..]),
        _ => (None, args[1], &args[2..]),
    };
    ctx.db.get::<ZSet>(key)?;
    let mut query = Query {
        into,
        ..Query::default()
    };
    query.options(ctx, key, options)?;
    let one_of = |what: &str| {
        let before = format!("ERR exactly one of {what} for ");
        Error::quoting(&before, args[0], "")
    };
    if !query.has_centre() {
        return Err(one_of("FROMMEMBER or FROMLONLAT can be specified"));
    }
    if query.shape.is_none() {
        return Err(one_of("BYRADIUS and BYBOX can be specified"));
    }
    query.run(ctx, key)
}

/// GEORADIUS and GEORADIUSBYMEMBER, with _RO and without.
pub(super) fn georadius(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let key = args[1];
    let exists = ctx.db.get::<ZSet>(key)?.is_some();
    let mut query = Query::default();
    let options = if ctx.name.starts_with("georadiusbymember") {
        if exists {
            query.centre_of(ctx, key, args[2])?;
            query.circle(args[3], args[4])?;
        }
        &args[5..]
    } else {
        query.centre = Some(point(args[2], args[3])?);
        query.circle(args[4], args[5])?;
        &args[6..]
    };
    query.options(ctx, key, options)?;
    query.run(ctx, key)
}
