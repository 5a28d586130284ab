//! The context of a running command.

use super::error::{Done, Error};
use crate::reply::Reply;
use crate::store::{Blocked, NoRoom, Units, View};

/// The context of a running command.
pub struct Ctx<'a, 's> {
    /// The keys that the command named.
    pub db: View<'a, 's>,
    /// The reply that the command writes.
    pub reply: &'a mut Reply,
    /// Milliseconds since 1970; one time for all commands of a batch.
    pub now_ms: u64,
    /// The time that commands store, for example when an entry was delivered to a consumer;
    /// milliseconds since 1970. During a replay, this is the time at which the command ran first.
    pub at_ms: u64,
    /// Chance.
    pub rng: &'a mut fastrand::Rng,
    /// The command's name in lower case, for error texts.
    pub name: &'static str,
    /// The key that has become ready, when a command that waited is run again. The command then
    /// looks only at this key, not at the other keys that it waits for; the key has the type that
    /// the command waits for.
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

    /// Gives the log of effects a command that does not depend on time and chance, and has the
    /// effect of the present one. May be called several times, for several commands in order. A
    /// command whose own text will do does not call this.
    pub fn rewrite(&mut self, args: &[&[u8]]) {
        if !self.has_effects() {
            return;
        }
        let args = args.iter().map(|arg| arg.to_vec()).collect();
        self.effective.get_or_insert_default().push(args);
    }

    /// Reserves room for what the command will [`rewrite`](Ctx::rewrite) itself to, if it is
    /// [`UNBOUNDED`](super::UNBOUNDED). Called before anything is changed.
    ///
    /// # Errors
    /// There is no room: the command returns this error, and its client gets the error or the
    /// command runs again later.
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
