//! The commands about keys, as plain functions on a locked view of the store.
//!
//! A command is a [`Spec`]: a name, the number of its arguments, what it is like, where its keys
//! are, and a function `fn(&mut Ctx<'_, '_>, &[&[u8]]) -> Done`. The function may use the keys that
//! its [`Keys`] name and no others (another panics), in any database. It reads and changes them
//! through [`Ctx::db`], writes exactly one reply to [`Ctx::reply`], or returns an [`Error`], which
//! takes back what it wrote. `ctx.db` and `ctx.reply` are two fields, so a closure given to
//! [`View::update`] may write the reply.
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
//! A command whose effect depends on chance or time says what it came to with [`Ctx::rewrite`].
//! One that would wait calls [`Ctx::block`] and returns; see there.

mod bitfield;
mod bits;
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
mod sort;
mod spec;
pub(crate) mod streams;
mod strings;
pub(crate) mod subcommands;
mod zsets;

use std::sync::LazyLock;

pub(crate) use error::OUT_OF_MEMORY;
pub use error::{Done, Error};
pub use spec::{
    BRIEF, CREATES, FAST, Flags, Keys, MEMORY, READ, REMOVES, Run, Spec, UNBOUNDED, WRITE,
};

use crate::reply::Reply;
use crate::store::{Blocked, NoRoom, Units, View};

/// What a running command is given.
pub struct Ctx<'a, 's> {
    /// The keys that the command named.
    pub db: View<'a, 's>,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// Milliseconds since 1970; one time for all commands of a batch.
    pub now_ms: u64,
    /// The time that is kept, for example when an entry was delivered to a consumer; milliseconds
    /// since 1970. What is replayed was run at another time than now.
    pub at_ms: u64,
    /// Chance.
    pub rng: &'a mut fastrand::Rng,
    /// The command's name in lower case, for error texts.
    pub name: &'static str,
    /// The key that has become ready, when a command that waited is run again. It looks at this key
    /// only, not at the others it waits for; the key has the type that it waits for.
    pub serving: Option<&'a [u8]>,
    pub(crate) may_block: bool,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) effective: Option<Vec<Vec<Vec<u8>>>>,
    pub(crate) no_room: Option<NoRoom>,
    /// The command asks about all of the server; the runner answers it when no locks are held.
    pub(crate) outside: bool,
}

impl Ctx<'_, '_> {
    /// Waits for a key. Called when none of the keys has what the command wants and after all its
    /// arguments were checked; nothing may have been changed, no reply written. Within a
    /// transaction nothing waits: then the reply is [`Blocked::nothing`], and it is written here.
    pub fn block(&mut self, blocked: Blocked) {
        if self.may_block {
            self.blocked = Some(blocked);
        } else {
            blocked.nothing.write(self.reply);
        }
    }

    /// Says what the command came to, for the log of effects: a command that does not depend on
    /// time and chance. May be called several times, for several commands in order. Not called when
    /// the command as it came will do.
    pub fn rewrite(&mut self, args: &[&[u8]]) {
        if !self.has_effects() {
            return;
        }
        let args = args.iter().map(|arg| arg.to_vec()).collect();
        self.effective.get_or_insert_default().push(args);
    }

    /// Reserves room for what the command will [`rewrite`](Ctx::rewrite) itself to, if it is
    /// [`UNBOUNDED`]. Called before anything is changed.
    ///
    /// # Errors
    /// There is none: the command returns it, and is answered so, or tried again later.
    pub fn reserve(&mut self, arguments: usize, bytes: usize) -> Done {
        if self.has_effects() {
            let bound = Units::bound(arguments, bytes);
            if let Err(why) = self.db.guards.reserve(bound, self.now_ms) {
                self.no_room = Some(why);
                return Err(Error::new(why.text()));
            }
        }
        Ok(())
    }

    /// Whether [`rewrite`](Ctx::rewrite) is of use.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        self.db.has_effects()
    }
}

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
