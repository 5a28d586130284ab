//! DUMP and RESTORE: a value as Redis's dump files have it.

use super::parse::{integer, is};
use super::strings::LONGEST;
use super::{Ctx, Done, Error, Keys, MEMORY, READ, Spec, WRITE};
use crate::dumps::{from_dump, to_dump};
use crate::reply::decimal;
use crate::store::events;

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("dump", 2, READ, Keys::ONE, dump),
    Spec::new("restore", -4, WRITE | MEMORY, Keys::ONE, restore),
    // The command that MIGRATE of old servers sends.
    Spec::new("restore-asking", -4, WRITE | MEMORY, Keys::ONE, restore),
];

/// Bytes of memory that a restored value may take. A malicious payload can announce a thousand times
/// its own length.
const BYTES_MAX: usize = 2 * LONGEST;

fn dump(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    // As in Redis, DUMP does not count as a use of the key.
    let payload = ctx
        .db
        .look(args[1])
        .map(|value| tidewire_rdb::dump(&to_dump(value)));
    ctx.reply.bulk_or_null(payload.as_deref());
    Ok(())
}

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: &[&[u8]]) -> Result<Options, Error> {
        let mut o = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match () {
                () if is(arg, "replace") => o.replace = true,
                () if is(arg, "absttl") => o.absolute = true,
                () if is(arg, "idletime") && o.frequency.is_none() => {
                    let idle = integer(args.next().ok_or(Error::SYNTAX)?)?;
                    let idle = u64::try_from(idle).ok();
                    let wrong = Error::new("ERR Invalid IDLETIME value, must be >= 0");
                    o.idle_s = Some(idle.ok_or(wrong)?);
                }
                () if is(arg, "freq") && o.idle_s.is_none() => {
                    let frequency = integer(args.next().ok_or(Error::SYNTAX)?)?;
                    let frequency = u8::try_from(frequency).ok();
                    let wrong = Error::new("ERR Invalid FREQ value, must be >= 0 and <= 255");
                    o.frequency = Some(frequency.ok_or(wrong)?);
                }
                () => return Err(Error::SYNTAX),
            }
        }
        Ok(o)
    }
}

fn restore(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let (key, payload) = (args[1], args[3]);
    let options = Options::parse(&args[4..])?;
    if !options.replace && ctx.db.exists(key) {
        return Err(Error::new("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(integer(args[2])?);
    let ttl = ttl.map_err(|_| Error::new("ERR Invalid TTL value, must be >= 0"))?;
    let value = tidewire_rdb::restore(payload, BYTES_MAX).map_err(|wrong| {
        Error::new(match wrong {
            tidewire_rdb::Malformed::Footer => "ERR DUMP payload version or checksum are wrong",
            tidewire_rdb::Malformed::Value => "ERR Bad data format",
        })
    })?;
    let value = from_dump(value, ctx.db.limits());
    let value = value.ok_or(Error::new("ERR Bad data format"))?;
    let deadline_ms = match (ttl, options.absolute) {
        (0, _) => None,
        (at, true) => Some(at),
        (ttl, false) => Some(ctx.now_ms.saturating_add(ttl)),
    };
    ctx.reply.ok();
    if deadline_ms.is_some_and(|at| at <= ctx.now_ms) {
        if ctx.db.remove(key) {
            ctx.db.event(events::GENERIC, "del", key);
        }
        ctx.rewrite(&[b"DEL", key]);
        return Ok(());
    }
    super::keys::put(ctx, key, value, deadline_ms);
    ctx.db.event(events::GENERIC, "restore", key);
    if let Some(idle_s) = options.idle_s {
        ctx.db.set_idle_s(key, idle_s);
    }
    if let Some(frequency) = options.frequency {
        ctx.db.set_frequency(key, frequency);
    }
    if ctx.has_effects() {
        let at = deadline_ms.unwrap_or(0) as i64;
        let at = decimal(at, &mut [0; 20]).to_vec();
        ctx.rewrite(&[b"RESTORE", key, &at, payload, b"REPLACE", b"ABSTTL"]);
    }
    Ok(())
}
