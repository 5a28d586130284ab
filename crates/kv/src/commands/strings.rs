//! Commands about strings.

use super::{Ctx, Done, FAST, Keys, MEMORY, READ, Spec, WRITE};
use crate::store::Deadline;

pub(crate) const SPECS: &[Spec] = &[
    Spec::new("get", 2, READ | FAST, Keys::ONE, get),
    Spec::new("set", -3, WRITE | MEMORY, Keys::ONE, set),
    Spec::new("del", -2, WRITE, Keys::REST, del),
];

fn get(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.reply.bulk_or_null(ctx.db.string(args[1])?);
    Ok(())
}

fn set(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.db.set_string(args[1], args[2], Deadline::Clear);
    ctx.reply.ok();
    Ok(())
}

fn del(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    let n = args[1..].iter().filter(|key| ctx.db.remove(key)).count();
    ctx.reply.integer(n as i64);
    Ok(())
}
