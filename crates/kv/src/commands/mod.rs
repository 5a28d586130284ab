//! The commands about keys, as plain functions on a locked view of the store.
//!
//! A command is a [`Spec`]: a name, the number of its arguments, what it is like, where its keys
//! are, and a function `fn(&mut Ctx<'_, '_>, &[&[u8]]) -> Done`. The function may use the keys that
//! its [`Keys`] name and no others (another panics), in any database. The function reads and
//! changes the keys through [`Ctx::db`]. The function writes exactly one reply to [`Ctx::reply`],
//! or returns an [`Error`], which takes back what the function wrote. `ctx.db` and `ctx.reply` are
//! two fields, so a closure given to [`View::update`](crate::store::View::update) may write the
//! reply.
//!
//! ```ignore
//! pub(crate) const SPECS: &[Spec] = &[
//!     Spec::new("llen", 2, READ | FAST, Keys::ONE, llen),
//!     Spec::new("rpush", -3, WRITE | MEMORY | FAST, Keys::ONE, rpush),
//! ];
//!
//! fn llen(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
//!     let len = ctx.db.get::<List>(args[1])?.map_or(0, List::len);
//!     ctx.reply.integer(len as i64);
//!     Ok(())
//! }
//!
//! fn rpush(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
//!     let len = ctx.db.upsert(args[1], |list: &mut List| {
//!         args[2..].iter().for_each(|x| list.push_back(x));
//!         (true, list.len())
//!     })?;
//!     ctx.reply.integer(len as i64);
//!     Ok(())
//! }
//! ```
//!
//! A command whose effect depends on chance or time gives its actual effect to [`Ctx::rewrite`]. A
//! command that would wait calls [`Ctx::block`] and returns.

mod bitfield;
mod bits;
mod ctx;
mod dump;
mod error;
mod expire;
pub(crate) mod functions;
mod geo;
mod hashes;
mod hyperlog;
pub(crate) mod keys;
mod lcs;
mod lists;
pub mod parse;
mod popping;
mod scan;
mod sets;
mod signature;
mod sort;
mod spec;
pub(crate) mod streams;
mod strings;
pub(crate) mod subcommands;
mod zsets;

use std::sync::LazyLock;

pub use ctx::Ctx;
pub(crate) use error::OUT_OF_MEMORY;
pub use error::{Done, Error};
pub use signature::{
    BRIEF, CREATES, FAST, Flags, Keys, MEMORY, READ, REMOVES, Signature, UNBOUNDED, WRITE,
};
pub use spec::{Run, Spec};

const GROUPS: [&[Spec]; 15] = [
    strings::SPECS,
    bits::SPECS,
    bitfield::SPECS,
    hyperlog::SPECS,
    geo::SPECS,
    lcs::SPECS,
    keys::SPECS,
    dump::SPECS,
    expire::SPECS,
    hashes::SPECS,
    lists::SPECS,
    sets::SPECS,
    sort::SPECS,
    streams::SPECS,
    zsets::SPECS,
];

static SPECS: LazyLock<Vec<&'static Spec>> =
    LazyLock::new(|| GROUPS.into_iter().flatten().collect());

/// All commands about keys.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    SPECS.iter().copied()
}

/// The commands that the log may have: also commands that no client calls by themselves.
pub(crate) fn logged() -> impl Iterator<Item = &'static Spec> {
    all().chain([&functions::FUNCTION])
}

/// The command of this name that the [log](crate::durable) may have, as `function put NAME CODE`.
#[must_use]
pub fn find_logged(name: &[u8]) -> Option<&'static Spec> {
    logged().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The command of this name, in any case. Slow: a service makes a table of [`all`].
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    all().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}
