//! SORT and SORT_RO. The elements may be ordered by, and answered with, values of other keys, whose
//! names are made from the elements. Then the command uses any key, and holds all locks while it runs.

use std::cmp::Ordering;

use super::parse::{integer, is};
use super::{Ctx, Done, Error, Keys, MEMORY, READ, Spec, UNBOUNDED, WRITE};
use crate::store::{Value, ValueRef, events};
use crate::types::{End, List, score};

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("sort", -2, WRITE | MEMORY | UNBOUNDED, Keys::Sort, sort),
    Spec::new("sort_ro", -2, READ, Keys::Sort, sort),
];

#[derive(Default)]
struct Options<'x> {
    by: Option<&'x [u8]>,
    limit: Option<(i64, i64)>,
    get: Vec<&'x [u8]>,
    down: bool,
    alpha: bool,
    into: Option<&'x [u8]>,
}

impl<'x> Options<'x> {
    fn parse(name: &str, args: &[&'x [u8]]) -> Result<Options<'x>, Error> {
        let mut o = Options::default();
        let mut rest = args;
        loop {
            rest = match *rest {
                [] => return Ok(o),
                [option, ref rest @ ..] if is(option, "asc") => {
                    o.down = false;
                    rest
                }
                [option, ref rest @ ..] if is(option, "desc") => {
                    o.down = true;
                    rest
                }
                [option, ref rest @ ..] if is(option, "alpha") => {
                    o.alpha = true;
                    rest
                }
                [option, skip, most, ref rest @ ..] if is(option, "limit") => {
                    o.limit = Some((integer(skip)?, integer(most)?));
                    rest
                }
                [option, key, ref rest @ ..] if is(option, "store") && name == "sort" => {
                    o.into = Some(key);
                    rest
                }
                [option, pattern, ref rest @ ..] if is(option, "by") => {
                    o.by = Some(pattern);
                    rest
                }
                [option, pattern, ref rest @ ..] if is(option, "get") => {
                    o.get.push(pattern);
                    rest
                }
                _ => return Err(Error::SYNTAX),
            }
        }
    }

    /// The elements of the limit, of so many.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let (skip, most) = self.limit.unwrap_or((0, -1));
        let first = usize::try_from(skip.max(0)).map_or(len, |skip| skip.min(len));
        // A negative number is no limit.
        let most = usize::try_from(most).unwrap_or(len);
        first..first.saturating_add(most).min(len)
    }
}

/// The value that a pattern names for an element: the element itself, a string, or a field of a hash;
/// `None` if the pattern has no star, or there is no such value.
fn look_up(ctx: &mut Ctx<'_, '_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|&byte| byte == b'*')?;
    let behind = &pattern[star + 1..];
    let arrow = behind.windows(2).position(|two| two == b"->");
    let arrow = arrow.filter(|at| at + 2 < behind.len());
    let tail = &behind[..arrow.unwrap_or(behind.len())];
    let key = [&pattern[..star], element, tail].concat();
    match (ctx.db.value(&key)?, arrow) {
        (ValueRef::Str(text), None) => Some(text.to_vec()),
        (ValueRef::Hash(hash), Some(at)) => hash.get(&behind[at + 2..]).map(|value| value.to_vec()),
        _ => None,
    }
}

/// The value by which SORT compares elements.
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
}

impl Weight {
    fn new(options: &Options<'_>, mut text: Option<Vec<u8>>) -> Result<Weight, Error> {
        if options.alpha {
            // If the result is not stored, texts are compared as C does it, up to the first zero
            // byte.
            if let Some(text) = text.as_mut().filter(|_| options.into.is_none()) {
                text.truncate(
                    text.iter()
                        .position(|byte| *byte == 0)
                        .unwrap_or(text.len()),
                );
            }
            return Ok(Weight::Text(text));
        }
        // A missing value counts as 0.
        let number = text.map_or(Some(0.0), |text| score::parse(&text));
        number.map(Weight::Number).ok_or(Error::new(
            "ERR One or more scores can't be converted into double",
        ))
    }

    fn compare(&self, other: &Weight) -> Ordering {
        match (self, other) {
            (Weight::Number(a), Weight::Number(b)) => a.partial_cmp(b).expect("no NaN"),
            (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
            _ => unreachable!("all weights of a sort are of one kind"),
        }
    }
}

/// The elements to sort, in the order they are in.
fn elements(ctx: &mut Ctx<'_, '_>, key: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    match ctx.db.value(key) {
        None => Ok(Vec::new()),
        Some(ValueRef::List(list)) => Ok(list.iter_from(0).map(|x| x.to_vec()).collect()),
        Some(ValueRef::Set(set)) => Ok(set.members()),
        Some(ValueRef::ZSet(set)) => Ok(set.iter().map(|scored| scored.member.to_vec()).collect()),
        Some(ValueRef::Str(_) | ValueRef::Hash(_) | ValueRef::Stream(_)) => Err(Error::WRONG_TYPE),
    }
}

fn sort(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let mut options = Options::parse(ctx.name, &args[2..])?;
    let mut elements = elements(ctx, args[1])?;
    // A pattern without a star asks for the present order, forwards or backwards. A set has no order,
    // so a stored result of a set is sorted nevertheless.
    let mut as_is = options.by.is_some_and(|by| !by.contains(&b'*'));
    match ctx.db.peek_value(args[1]) {
        Some(ValueRef::Set(_)) if !as_is || options.into.is_none() => {}
        Some(ValueRef::Set(_)) => {
            (as_is, options.by, options.alpha) = (false, None, true);
        }
        _ if as_is && options.down => elements.reverse(),
        _ => {}
    }
    if !as_is {
        let mut weighed = Vec::with_capacity(elements.len());
        for element in elements {
            let by = options.by.unwrap_or(b"#");
            let weight = Weight::new(&options, look_up(ctx, by, &element))?;
            weighed.push((weight, element));
        }
        // Texts that compare equal so far keep their order.
        let as_found = options.alpha && options.into.is_none();
        weighed.sort_by(|(a, x), (b, y)| {
            let order = a.compare(b);
            let order = if as_found {
                order
            } else {
                order.then_with(|| x.cmp(y))
            };
            if options.down { order.reverse() } else { order }
        });
        elements = weighed.into_iter().map(|(_, element)| element).collect();
    }
    let chosen = &elements[options.range(elements.len())];
    let get = match &options.get[..] {
        [] => &[b"#".as_slice()],
        get => get,
    };
    let Some(into) = options.into else {
        ctx.reply.array(chosen.len() * get.len());
        for element in chosen {
            for pattern in get {
                if ctx.reply.is_over() {
                    return Ok(());
                }
                let found = look_up(ctx, pattern, element);
                ctx.reply.bulk_or_null(found.as_deref());
            }
        }
        return Ok(());
    };
    let mut stored = Vec::with_capacity(chosen.len() * get.len());
    for element in chosen {
        for pattern in get {
            stored.push(look_up(ctx, pattern, element).unwrap_or_default());
        }
    }
    let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
    let mut list = List::default();
    list.expect(&stored, ctx.db.limits().list());
    for element in &stored {
        list.push(End::Right, element);
    }
    let bytes: usize = stored.iter().map(|element| element.len()).sum();
    ctx.reserve(list.len() + 4, bytes + 2 * into.len())?;
    ctx.reply.integer(list.len() as i64);
    if ctx.has_effects() {
        ctx.rewrite(&[b"del", into]);
        if !list.is_empty() {
            let push = [b"rpush".as_slice(), into].into_iter();
            ctx.rewrite(&push.chain(stored).collect::<Vec<_>>());
        }
    }
    let removed = list.is_empty() && ctx.db.exists(into);
    ctx.db.set(into, Value::List(list));
    ctx.db
        .event_stored(events::LIST, "sortstore", into, removed);
    Ok(())
}
