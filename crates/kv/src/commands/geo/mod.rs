//! Commands about places, which are scores of sorted sets.

mod search;

use super::parse::{float, is};
use super::zsets::{self, Options};
use super::{Ctx, Done, Error, Keys, MEMORY, READ, Spec, UNBOUNDED, WRITE};
use crate::reply::Proto;
use crate::store::ValueRef;
use crate::types::ZSet;
use crate::types::geo::{Point, letters};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("geoadd", -5, WRITE | MEMORY, Keys::ONE, geoadd),
    Spec::new("geopos", -2, READ, Keys::ONE, geopos),
    Spec::new("geohash", -2, READ, Keys::ONE, geohash),
    Spec::new("geodist", -4, READ, Keys::ONE, geodist),
    Spec::new("geosearch", -7, READ, Keys::ONE, search::geosearch),
    Spec::new(
        "geosearchstore",
        -8,
        WRITE | MEMORY | UNBOUNDED,
        Keys::TWO,
        search::geosearch,
    ),
    Spec::new(
        "georadius",
        -6,
        WRITE | MEMORY | UNBOUNDED,
        Keys::GeoStore(6),
        search::georadius,
    ),
    Spec::new("georadius_ro", -6, READ, Keys::ONE, search::georadius),
    Spec::new(
        "georadiusbymember",
        -5,
        WRITE | MEMORY | UNBOUNDED,
        Keys::GeoStore(5),
        search::georadius,
    ),
    Spec::new(
        "georadiusbymember_ro",
        -5,
        READ,
        Keys::ONE,
        search::georadius,
    ),
];

/// Reads a place.
fn point(longitude: &[u8], latitude: &[u8]) -> Result<Point, Error> {
    let (longitude, latitude) = (float(longitude)?, float(latitude)?);
    Point::new(longitude, latitude).ok_or_else(|| {
        Error::text(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        ))
    })
}

/// Metres of a unit.
fn unit(name: &[u8]) -> Result<f64, Error> {
    match () {
        () if is(name, "m") => Ok(1.0),
        () if is(name, "km") => Ok(1000.0),
        () if is(name, "ft") => Ok(0.3048),
        () if is(name, "mi") => Ok(1609.34),
        () => Err(Error::new(
            "ERR unsupported unit provided. please use M, KM, FT, MI",
        )),
    }
}

fn geoadd(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (options, n) = Options::parse_some(&args[2..], &["nx", "xx", "ch"]);
    let places = &args[2 + n..];
    if places.is_empty() || !places.len().is_multiple_of(3) || options.check().is_err() {
        return Err(Error::SYNTAX);
    }
    let mut scored = Vec::with_capacity(places.len() / 3);
    for place in places.chunks_exact(3) {
        scored.push((point(place[0], place[1])?.score(), place[2]));
    }
    zsets::add_all(ctx, args[1], &options, &scored)
}

/// A coordinate, with 17 digits at most behind the point.
fn coordinate(ctx: &mut Ctx<'_, '_>, degrees: f64) {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    if ctx.reply.proto == Proto::Resp3 {
        ctx.reply.raw(format!(",{text}\r\n").as_bytes());
    } else {
        ctx.reply.bulk(text.as_bytes());
    }
}

fn coordinates(ctx: &mut Ctx<'_, '_>, place: Point) {
    ctx.reply.array(2);
    coordinate(ctx, place.longitude);
    coordinate(ctx, place.latitude);
}

/// A distance, with four digits behind the point.
fn distance(ctx: &mut Ctx<'_, '_>, distance: f64) {
    ctx.reply.bulk(format!("{distance:.4}").as_bytes());
}

/// The places of some members.
fn places(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Result<Vec<Option<Point>>, Error> {
    let set = ctx.db.get::<ZSet>(args[1])?;
    let place = |member: &&[u8]| Some(Point::of_score(set?.score(member)?));
    Ok(args[2..].iter().map(place).collect())
}

fn geopos(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let places = places(ctx, args)?;
    ctx.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => coordinates(ctx, place),
            None => ctx.reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let places = places(ctx, args)?;
    ctx.reply.array(places.len());
    for place in places {
        let letters = place.map(letters);
        ctx.reply
            .bulk_or_null(letters.as_ref().map(|letters| &letters[..]));
    }
    Ok(())
}

fn geodist(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let unit = match args[4..] {
        [] => 1.0,
        [name] => unit(name)?,
        _ => return Err(Error::SYNTAX),
    };
    match places(ctx, &args[..4])?[..] {
        [Some(from), Some(to)] => distance(ctx, from.distance(to) / unit),
        _ => ctx.reply.null(),
    }
    Ok(())
}

/// The sorted set of a key, without counting.
fn peek<'v>(ctx: &'v Ctx<'_, '_>, key: &[u8]) -> Option<&'v ZSet> {
    match ctx.db.peek_value(key) {
        Some(ValueRef::ZSet(set)) => Some(set),
        _ => None,
    }
}
