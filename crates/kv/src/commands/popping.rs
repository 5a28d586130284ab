//! Code that the pops of lists and of sorted sets share: looking at several keys, and waiting for
//! one of the keys.

use super::parse::{integer, is, timeout};
use super::{Ctx, Done, Error};
use crate::store::{Blocked, Kind, Nothing};

/// The keys, the end and the count of a command on several keys, whose number is at `at`; `end` reads
/// the end.
pub(super) fn several<'x, E>(
    args: &[&'x [u8]],
    at: usize,
    end: impl Fn(&[u8]) -> Result<E, Error>,
) -> Result<(Vec<&'x [u8]>, E, usize), Error> {
    let keys = integer(args[at])
        .ok()
        .filter(|&n| n > 0)
        .ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    let Some(&where_from) = keys.checked_add(at + 1).and_then(|place| args.get(place)) else {
        return Err(Error::SYNTAX);
    };
    let end = end(where_from)?;
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
    Ok((args[at + 1..=at + keys].to_vec(), end, most))
}

/// The keys to look at: all keys, or for a command that has waited, the key that became ready.
pub(super) fn candidates<'x>(serving: Option<&'x [u8]>, keys: &[&'x [u8]]) -> Vec<&'x [u8]> {
    serving.map_or_else(|| keys.to_vec(), |key| vec![key])
}

/// Makes the command wait until one of the keys has an element.
pub(super) fn wait(
    ctx: &mut Ctx<'_, '_>,
    kind: Kind,
    keys: &[&[u8]],
    seconds: &[u8],
    nothing: Nothing,
) -> Done {
    let blocked = Blocked {
        keys: keys.iter().map(|key| key.to_vec()).collect(),
        kind,
        timeout: timeout(seconds)?,
        nothing,
        group: None,
        instead: None,
    };
    ctx.block(blocked);
    Ok(())
}
