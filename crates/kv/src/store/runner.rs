//! Runs the commands of a connection, one or a batch, with the locks they need.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::effect::NoRoom;
use super::guards::Guards;
use super::libraries::Seen;
use super::place::Place;
use super::ready::Ready;
use super::set::ShardSet;
use super::table::Table;
use super::value::Kind;
use super::view::View;
use super::waiter::{Blocked, Waiter};
use super::watch::Watch;
use crate::commands::{Ctx, Error, Keys, Spec};
use crate::reply::Reply;

/// Commands whose keys [`Runner::prefetch`] asks memory for together.
pub const AHEAD: usize = 32;

/// How a command ended.
#[derive(Debug)]
pub enum Ran {
    /// The command's reply is written.
    Done,
    /// The command has to wait and wrote no reply. Call [`Runner::wait`] before any other function.
    Blocked(Blocked),
    /// There is no room for the command's effect at the moment: the command has done nothing, wrote no
    /// reply, and must be tried again later. This happens only if the runner is
    /// [`patient`](Runner::patient).
    Later,
    /// A script that runs beside the loops keeps its keys: it has done nothing, wrote no reply, and is to be tried again
    /// when the script has ended. Once that takes long the reply is [`Error::BUSY`] instead.
    Kept,
    /// The command asks about all of the server, and wrote no reply: to be answered when no locks
    /// are held.
    Outside,
}

/// Runs commands on a store; made for a batch and dropped at its end.
///
/// A runner keeps the locks of the last command until another needs different ones, so that a
/// pipeline on few shards locks little. [`release`](Runner::release) lets go early: **before
/// anything that may take a lock of the store on another way**, such as [`Store::cancel`], and
/// before waiting.
///
/// A pipeline: [`prefetch`](Runner::prefetch) some tens of commands, then [`run`](Runner::run) each
/// in order. A transaction: [`begin`](Runner::begin) with all queued commands, `run` each, then
/// [`end`](Runner::end).
pub struct Runner<'s> {
    pub(super) guards: Guards<'s>,
    now_ms: u64,
    clock: u32,
    rng: fastrand::Rng,
    pub(super) in_transaction: bool,
    is_shut_out: bool,
    shut_out_watches: Vec<Watch>,
    /// The client wants its reads not to count as uses (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// A command that finds the hook of mutations busy is not refused but comes back as
    /// [`Ran::Later`].
    pub patient: bool,
    /// When what is run was run first, if it is run again: milliseconds since 1970.
    pub(crate) first_ms: Option<u64>,
    ready: Ready,
    /// Bytes that are to be freed for what its commands have brought, see `free_for`.
    owed: i64,
    /// Hashes of the commands asked for ahead, in the order of their places in memory.
    ahead: Vec<Hashed>,
    /// The index of the first announced command that has not run.
    ahead_next: usize,
}

/// How the function of a command came back.
enum Called {
    Done,
    Blocked(Blocked),
    /// The command has found out its changes, and there is no room for them; nothing has changed.
    NoRoom(NoRoom),
    /// The command has come to where a script is at work, and has changed nothing.
    Kept,
    Outside,
}

/// How a waiting command ended whose key has become ready.
enum Served {
    /// The waiter goes on waiting.
    Waits,
    /// The waiter's reply waits for this ticket.
    Answered(u64),
    /// The log has no room for the command's effect just now.
    Later,
}

/// A key by its place in memory, and its hash.
struct Hashed {
    at: *const u8,
    len: usize,
    hash: u64,
}

impl<'s> Runner<'s> {
    pub(super) fn new(store: &'s Store, now_ms: u64, seed: u64) -> Runner<'s> {
        let mut guards = Guards::new(store);
        guards.luck.seed(!seed);
        Runner {
            guards,
            now_ms,
            clock: store.clock_at(now_ms),
            rng: fastrand::Rng::with_seed(seed),
            in_transaction: false,
            is_shut_out: false,
            shut_out_watches: Vec::new(),
            no_touch: false,
            patient: false,
            first_ms: None,
            ready: Ready::default(),
            owed: 0,
            ahead: Vec::new(),
            ahead_next: 0,
        }
    }

    /// A number by chance.
    pub(crate) fn chance(&mut self) -> u32 {
        self.rng.u32(..)
    }

    /// A runner whose keys count as used at `now_ms`, and that tells no client what becomes of
    /// them.
    pub(super) fn replaying(mut self, now_ms: u64) -> Runner<'s> {
        (self.guards.replays, self.guards.is_known) = (true, true);
        self.clock = self.guards.store().clock_at(now_ms);
        self
    }

    /// Like `replaying`, but clients that track keys are notified, because clients use the store
    /// meanwhile.
    pub(super) fn following(mut self, now_ms: u64) -> Runner<'s> {
        self.guards.is_known = true;
        self.clock = self.guards.store().clock_at(now_ms);
        self
    }

    /// Runs a command in database `db`; `args` begin with its name, and their number was checked
    /// with [`Signature::takes`](crate::commands::Signature::takes).
    #[inline]
    pub fn run(&mut self, spec: &'static Spec, db: u16, args: &[&[u8]], reply: &mut Reply) -> Ran {
        let store = self.guards.store();
        if spec.needs_memory(args) && store.maxmemory.load(Relaxed) != 0 && !self.has_room() {
            if !self.in_transaction && store.is_kept.load(Relaxed) {
                // Keys that a script holds cannot be evicted now.
                return self.shut_out(reply);
            }
            reply.error(&Error::OUT_OF_MEMORY.0);
            return Ran::Done;
        }
        if self.guards.effects().is_some() {
            return self.run_shown(spec, db, args, reply);
        }
        if !self.take_locks(spec, args) {
            return self.shut_out(reply);
        }
        let backlog = spec.needs_memory(args) && store.has_backlog();
        let before = if backlog { self.guards.brought() } else { 0 };
        let called = self.call(spec, db, args, reply, None);
        self.guards.forget();
        self.ran(called, backlog.then_some(before), reply)
    }

    /// The steps after a command. `before` is the used memory before the command, if the command has to make
    /// up for what it adds.
    #[inline(always)]
    fn ran(&mut self, called: Called, before: Option<i64>, reply: &mut Reply) -> Ran {
        // A command that waits needs the locks of its keys.
        if let Some(before) = before
            && !matches!(called, Called::Blocked(_))
        {
            self.free_for(self.guards.brought() - before);
        }
        if !self.ready.is_empty() && !self.in_transaction {
            self.serve();
        }
        match called {
            Called::Done => Ran::Done,
            Called::Blocked(blocked) => Ran::Blocked(blocked),
            Called::Outside => Ran::Outside,
            Called::Kept => self.shut_out(reply),
            Called::NoRoom(why) => self.refuse(why, reply),
        }
    }

    /// A script keeps the keys.
    #[cold]
    fn shut_out(&mut self, reply: &mut Reply) -> Ran {
        self.guards.forget();
        self.guards.release();
        if !self.guards.store().tells_busy() {
            return Ran::Kept;
        }
        reply.error(&Error::BUSY.0);
        Ran::Done
    }

    /// Lets go of the locks of a script that runs beside the loops, until its next command. The keys of the script are
    /// kept until the [end](Runner::end).
    pub fn leave(&mut self) {
        self.guards.leave();
    }

    /// The [left](Runner::leave) locks belong to another thread from now on.
    pub(crate) fn disown(&mut self) {
        self.guards.disown();
        self.in_transaction = false;
    }

    /// Has a command that has done nothing tried again, or answers why not.
    #[cold]
    fn refuse(&self, why: NoRoom, reply: &mut Reply) -> Ran {
        if why == NoRoom::Busy && self.patient && !self.in_transaction {
            return Ran::Later;
        }
        reply.error(self.refusal(why));
        Ran::Done
    }

    /// The error reply to a command that there is no room for.
    #[must_use]
    pub fn refusal(&self, why: NoRoom) -> &'static str {
        if self.guards.is_midway() {
            why.text_midway()
        } else {
            why.text()
        }
    }

    /// [`run`](Runner::run) where mutations are shown: reserve, run, commit.
    fn run_shown(
        &mut self,
        spec: &'static Spec,
        db: u16,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Ran {
        let store = self.guards.store();
        // A transaction has reserved its room before it began.
        if spec.is_write() && !self.in_transaction {
            self.guards.removes = spec.removes(args);
            if let Err(why) = self.guards.reserve(store.bound(spec, args), self.now_ms) {
                return self.refuse(why, reply);
            }
        }
        if !self.take_locks(spec, args) {
            return self.shut_out(reply);
        }
        let backlog = spec.needs_memory(args) && store.has_backlog();
        let before = if backlog { self.guards.brought() } else { 0 };
        if spec.is_write() {
            self.guards.drop_due(spec, db, args, self.now_ms);
        }
        let called = self.call(spec, db, args, reply, None);
        self.guards.heed_keys(spec, args, self.now_ms);
        self.guards.forget();
        if !self.in_transaction {
            self.guards.close_unit();
        } else if self
            .guards
            .effects()
            .is_some_and(|effects| effects.mistakes().makes(|mistakes| mistakes.split_units))
        {
            self.guards.close_unit();
            self.guards.commit();
        }
        self.ran(called, backlog.then_some(before), reply)
    }

    /// Reserves room in the log for the changes of these commands, which run as one unit. To be
    /// called before [`begin`](Runner::begin), or to be [given up](Runner::give_up); lets go of no
    /// lock.
    ///
    /// # Errors
    /// The error that the log has no room for the commands; none has run.
    pub fn reserve<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
    ) -> Result<(), NoRoom> {
        let store = self.guards.store();
        if self.guards.effects().is_none() {
            return Ok(());
        }
        let (mut bound, mut grows, mut removes) = (0, false, true);
        for (spec, args) in commands.filter(|(spec, _)| spec.is_write()) {
            bound += store.bound(spec, args);
            grows |= spec.is_unbounded();
            removes &= spec.removes(args);
        }
        if bound == 0 {
            return Ok(());
        }
        self.guards.removes = removes;
        self.guards.reserve(bound, self.now_ms)?;
        if grows {
            match self.guards.begin_growing(self.now_ms, removes) {
                // A command that removes finds room for its own removals.
                Err(NoRoom::DiskFull) if removes => {}
                begun => begun?,
            }
        }
        Ok(())
    }

    /// Reserves what the next command of a transaction may change of which it was not known that it
    /// comes: that of a script. Before the first that changes something this says whether there is
    /// room for all there may be of them. On a full disk there is room for commands that make room,
    /// and for no other.
    ///
    /// # Errors
    /// The error that the log has no room. Behind the first only because the unit would be too large, the log has failed, or
    /// the disk is full.
    pub fn reserve_next(&mut self, spec: &Spec, args: &[&[u8]]) -> Result<(), NoRoom> {
        let bound = self.guards.store().bound(spec, args);
        let removes = spec.removes(args);
        self.guards.removes = false;
        match self.guards.begin_growing(self.now_ms, removes) {
            Err(NoRoom::DiskFull) if removes => self.guards.removes = true,
            begun => begun?,
        }
        self.guards.reserve(bound, self.now_ms)
    }

    /// Reserves a little, as any command that writes does: whether it makes sense to take locks for one.
    ///
    /// # Errors
    /// The error that the log does not take the change.
    pub fn reserve_some(&mut self) -> Result<(), NoRoom> {
        // The unit may be one that makes room.
        self.guards.removes = true;
        self.guards.reserve(1, self.now_ms)
    }

    /// The commands that were reserved for do not run.
    pub fn give_up(&mut self) {
        self.guards.end_growing();
    }

    /// Commits the changes; returns the largest ticket that must settle before a client receives a
    /// reply of this runner, 0 if none. Keeps the locks.
    pub fn barrier(&mut self) -> u64 {
        self.guards.commit();
        self.guards.barrier()
    }

    /// The ticket of the last unit that this runner has committed, 0 for none.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.guards.written()
    }

    /// Which libraries of functions are there for its next command.
    pub(crate) fn libraries_seen(&self) -> Seen {
        if self.guards.has_new_libraries() {
            Seen::Newest
        } else {
            Seen::Committed
        }
    }

    /// Takes the locks that a command needs, except in a transaction, which has them already; false if a script
    /// holds its keys. Remembers the hash of a single key until the command's end.
    #[inline]
    fn take_locks(&mut self, spec: &Spec, args: &[&[u8]]) -> bool {
        let store = self.guards.store();
        if self.in_transaction && self.guards.has_left() {
            let shards = match spec.keys {
                Keys::Walk => store.all_shards(),
                _ => store.shards_for(spec, args),
            };
            self.guards.come_back_to(&shards);
        }
        if let Keys::Range { first, last, .. } = spec.keys
            && i32::from(first) == i32::from(last)
            // A call such as `OBJECT HELP` has no key.
            && let Some(key) = args.get(usize::from(first))
        {
            let hash = self.known(key).unwrap_or_else(|| store.hash(key));
            self.guards.know(key, hash);
            if !self.in_transaction {
                self.guards.hold_one(store.shard_of(hash));
            }
        } else if !self.in_transaction {
            self.take_several(spec, args);
        }
        self.in_transaction || !self.guards.is_kept()
    }

    #[inline(never)]
    fn take_several(&mut self, spec: &Spec, args: &[&[u8]]) {
        if spec.keys == Keys::Walk {
            // The command takes one lock at a time, in any order.
            self.guards.release();
            self.guards.met_kept = false;
            if self.guards.store().is_kept.load(Relaxed) {
                // The command would need keys that a script keeps.
                self.guards.shut();
                return;
            }
        }
        let shards = self.guards.store().shards_for(spec, args);
        self.guards.hold(&shards);
    }

    /// The hash of a key, if it was asked for ahead. The keys of a command are asked for in their
    /// order.
    #[inline]
    fn known(&mut self, key: &[u8]) -> Option<u64> {
        while let Some(next) = self.ahead.get(self.ahead_next)
            && next.at <= key.as_ptr()
        {
            self.ahead_next += 1;
            if (next.at, next.len) == (key.as_ptr(), key.len()) {
                debug_assert_eq!(next.hash, self.guards.store().hash(key));
                return Some(next.hash);
            }
        }
        None
    }

    /// Calls a command's function under the locks that are held.
    #[inline]
    fn call(
        &mut self,
        spec: &'static Spec,
        db: u16,
        args: &[&[u8]],
        reply: &mut Reply,
        serving: Option<&[u8]>,
    ) -> Called {
        let start = reply.len();
        self.guards.set_running(spec.is_write());
        let mut ctx = Ctx {
            db: View {
                guards: &mut self.guards,
                db,
                now_ms: self.now_ms,
                clock: self.clock,
                changes: 0,
                ready: &mut self.ready,
                no_touch: self.no_touch,
                in_transaction: self.in_transaction,
                spec,
            },
            reply,
            now_ms: self.now_ms,
            at_ms: self.first_ms.unwrap_or(self.now_ms),
            rng: &mut self.rng,
            name: spec.name,
            serving,
            may_block: !self.in_transaction,
            blocked: None,
            effective: None,
            no_room: None,
            outside: false,
        };
        let done = (spec.run)(&mut ctx, args);
        if ctx.outside {
            self.guards.set_running(false);
            return Called::Outside;
        }
        let (changes, effective, blocked) = (ctx.db.changes, ctx.effective, ctx.blocked);
        if let Some(why) = ctx.no_room {
            debug_assert_eq!(
                changes, 0,
                "{} reserves before it changes anything",
                spec.name
            );
            reply.truncate(start);
            self.guards.set_running(false);
            return Called::NoRoom(why);
        }
        if let Err(error) = done {
            reply.truncate(start);
            reply.error(&error.0);
        }
        if spec.keys == Keys::Walk && std::mem::take(&mut self.guards.met_kept) {
            // The command has come to where a script is at work.
            reply.truncate(start);
            self.guards.set_running(false);
            return Called::Kept;
        }
        if changes > 0 && self.guards.effects().is_some() {
            match effective {
                None => self.guards.did(db, args, self.now_ms),
                Some(commands) => {
                    for command in &commands {
                        let args: Vec<&[u8]> = command.iter().map(|arg| &arg[..]).collect();
                        self.guards.did(db, &args, self.now_ms);
                    }
                }
            }
        }
        self.guards.set_running(false);
        blocked.map_or(Called::Done, Called::Blocked)
    }

    /// Takes the locks of these shards at once, which no other thread needs, so that the following
    /// commands find them held.
    pub(crate) fn hold(&mut self, shards: &ShardSet) {
        self.guards.hold(shards);
    }

    /// Lets go of all locks.
    #[inline]
    pub fn release(&mut self) {
        debug_assert!(
            !self.in_transaction,
            "the locks of a transaction are let go by its end"
        );
        self.guards.release();
    }

    /// Loads what the first keys of the next [`AHEAD`] commands need into the cache: first the
    /// buckets, then, while buckets of later keys are still on their way, the entries. Each time
    /// the lock of the key's shard is taken for a moment; if another thread holds the lock, the key
    /// is left out.
    ///
    /// The keys' hashes are kept for [`run`](Runner::run): the bytes of these arguments have to stay
    /// as they are and where they are as long as the runner.
    pub fn prefetch<'x>(
        &mut self,
        db: u16,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
    ) {
        let store = self.guards.store();
        self.ahead.clear();
        self.ahead.reserve(AHEAD);
        self.ahead_next = 0;
        for (spec, args) in commands.take(AHEAD) {
            if let Keys::Range { first, .. } = spec.keys
                && let Some(key) = args.get(usize::from(first))
            {
                self.ahead.push(Hashed {
                    at: key.as_ptr(),
                    len: key.len(),
                    hash: store.hash(key),
                });
            }
        }
        // One alone would only be looked up twice.
        if self.ahead.len() < 2 {
            return;
        }
        if store.shards.len() == 1 {
            self.guards.hold_one(0);
        } else {
            self.guards.release_one();
        }
        self.each_ahead(db, Table::prefetch_bucket);
        self.each_ahead(db, Table::prefetch_entry);
    }

    /// Shows the tables of the keys that were asked for ahead, without waiting for any.
    #[inline(always)]
    fn each_ahead(&self, db: u16, show: impl Fn(&Table, u64)) {
        let store = self.guards.store();
        for &Hashed { hash, .. } in &self.ahead {
            let at = store.shard_of(hash);
            if let Some(shard) = self.guards.held(at) {
                show(shard.table(db), hash);
            } else if let Some(shard) = store.try_lock(at) {
                show(shard.table(db), hash);
            }
        }
    }

    /// Locks what all commands of a transaction need; whether nothing that was watched has changed.
    /// If a watched key has changed, the transaction is over. Ends the watches either way.
    #[must_use]
    pub fn begin<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
        watches: Vec<Watch>,
    ) -> bool {
        debug_assert!(!self.in_transaction);
        let store = self.guards.store();
        let mut shards = ShardSet::NONE;
        for (spec, args) in commands {
            let is_named = spec.keys != Keys::Walk
                && spec
                    .keys
                    .each(args, |key| shards.insert(store.shard_of_key(key)));
            if !is_named {
                shards = store.all_shards();
                break;
            }
        }
        for watch in &watches {
            shards.insert(store.shard_of_key(&watch.place.1));
        }
        self.guards.hold(&shards);
        self.is_shut_out = self.guards.is_kept();
        if self.is_shut_out {
            self.shut_out_watches = watches;
            self.guards.end_growing();
            self.guards.release();
            return false;
        }
        let mut unchanged = true;
        let settled = match self.guards.effects() {
            None => u64::MAX,
            Some(effects) => {
                // Changes are noted from now on.
                self.guards.pending(self.now_ms);
                effects.settled()
            }
        };
        for watch in watches {
            let hash = store.hash(&watch.place.1);
            if store.last_ticket() > settled {
                // Whether the transaction runs shows whether the key was changed.
                self.guards.heed(hash, settled, self.now_ms);
            }
            let shard = self.guards.shard(store.shard_of(hash));
            unchanged &= shard.is_as_watched(&watch, hash, self.now_ms);
            shard.unwatch(&watch);
        }
        self.in_transaction = unchanged;
        if !unchanged {
            self.guards.end_growing();
        }
        unchanged
    }

    /// The keys that were watched by the transaction that was [shut out](Runner::is_shut_out); it may
    /// begin again.
    pub(crate) fn take_watches(&mut self) -> Vec<Watch> {
        std::mem::take(&mut self.shut_out_watches)
    }

    /// Whether the last transaction did not [begin](Runner::begin) because of a script that keeps its keys: then it is
    /// not known whether anything that was watched has changed.
    #[must_use]
    pub fn is_shut_out(&self) -> bool {
        self.is_shut_out
    }

    /// Ends a transaction: serves waiters of its keys, and lets go of the locks.
    pub fn end(&mut self) {
        if self.guards.has_left() {
            // A lock that was taken for one command is released with the others.
            self.guards.leave();
            self.guards.come_back();
        }
        self.in_transaction = false;
        self.guards.close_unit();
        let store = self.guards.store();
        if store.has_unserved.load(Relaxed) {
            let mut unserved = store.unserved();
            store.has_unserved.store(false, Relaxed);
            while let Some(place) = unserved.take() {
                self.ready.add(place);
            }
        }
        self.serve();
        self.guards.release();
    }

    /// Lets the command that has just come back blocked wait.
    pub fn wait(&mut self, waiter: &Arc<Waiter>) {
        let store = self.guards.store();
        // The locks of the waiter's keys are held: a later waiter has a greater number on each of
        // them.
        waiter
            .number
            .store(store.waits.fetch_add(1, Relaxed), Relaxed);
        for key in &waiter.blocked.keys {
            let shard = self.guards.shard(store.shard_of(store.hash(key)));
            let place = (waiter.db, Box::from(&key[..]));
            shard.observed = true;
            shard.waiters.entry(place).or_default().add(waiter);
        }
    }

    /// Runs the commands that wait for the keys that have become ready.
    #[cold]
    fn serve(&mut self) {
        while let Some((db, key)) = self.ready.take() {
            while let Some(waiter) = self.next_waiter(db, &key) {
                if !self.serve_one(&waiter, &key) {
                    break;
                }
            }
            self.serve_readers(db, &key);
        }
    }

    /// Leaves a ready key to the script that holds the shards: the script serves the waiters when
    /// it ends.
    #[cold]
    fn put_off(&mut self, place: Place) {
        let store = self.guards.store();
        store.unserved().add(place);
        store.has_unserved.store(true, Relaxed);
    }

    /// Takes the lock of a ready key; false if a script holds the key.
    fn hold_to_serve(&mut self, db: u16, key: &[u8], hash: u64) -> bool {
        self.guards.hold_one(self.guards.store().shard_of(hash));
        if self.guards.is_kept() {
            self.put_off((db, key.into()));
            return false;
        }
        true
    }

    /// Runs each waiting command that reads a stream. A reader that finds nothing says nothing
    /// about the other readers, except readers of its own group. Commands of groups also run if the
    /// key is no stream any more.
    fn serve_readers(&mut self, db: u16, key: &[u8]) {
        let store = self.guards.store();
        let hash = store.hash(key);
        if !self.hold_to_serve(db, key, hash) {
            return;
        }
        let shard = self.guards.shard(store.shard_of(hash));
        let entry = shard.table(db).find(hash, key);
        let is_stream = entry.is_some_and(|entry| entry.value().kind() == Kind::Stream);
        let Some(queue) = shard.waiters.get(&(db, Box::from(key))) else {
            return;
        };
        let readers = queue.of_kind(Kind::Stream);
        let concerned = |reader: &&Arc<Waiter>| is_stream || reader.blocked.group.is_some();
        let readers: Vec<Arc<Waiter>> = readers.filter(concerned).cloned().collect();
        let mut idle: HashSet<&[u8]> = HashSet::new();
        for reader in &readers {
            let group = reader.blocked.group.as_deref();
            if !reader.is_over()
                && group.is_none_or(|group| !idle.contains(group))
                && !self.serve_one(reader, key)
            {
                idle.extend(group);
            }
        }
    }

    /// The longest waiting for this key, if the key has become what it waits for.
    fn next_waiter(&mut self, db: u16, key: &[u8]) -> Option<Arc<Waiter>> {
        let store = self.guards.store();
        let hash = store.hash(key);
        if !self.hold_to_serve(db, key, hash) {
            return None;
        }
        let shard = self.guards.shard(store.shard_of(hash));
        let kind = shard.table(db).find(hash, key)?.value().kind();
        if kind == Kind::Stream {
            return None;
        }
        let queue = shard.waiters.get(&(db, Box::from(key)))?;
        queue.of_kind(kind).next().cloned()
    }

    /// Runs a waiting command; returns whether its wait has ended.
    fn serve_one(&mut self, waiter: &Arc<Waiter>, key: &[u8]) -> bool {
        let args: Vec<&[u8]> = waiter.args.iter().map(|arg| &arg[..]).collect();
        let store = self.guards.store();
        let mut shards = store.shards_for(waiter.signature, &args);
        shards.insert(store.shard_of_key(key));
        if !self.guards.try_add(&shards) {
            self.guards.hold(&shards);
            if self.guards.is_kept() {
                self.put_off((waiter.db, key.into()));
                return false;
            }
            // The waiter may have been served or cancelled in between.
            if waiter.is_over() {
                return true;
            }
        }
        if waiter.to.refuses(waiter.signature, &args) {
            self.end_wait(waiter);
            return true;
        }
        let mut reply = Reply::new(waiter.proto);
        reply.set_limit(waiter.reply_max);
        // The waiter's change is not a change by the client that made the key ready.
        let by = std::mem::replace(&mut self.guards.client, waiter.client);
        let served = self.serve_shown(waiter, &args, key, &mut reply);
        self.guards.client = by;
        if matches!(served, Served::Waits) {
            return false;
        }
        self.end_wait(waiter);
        if reply.is_over() {
            reply.clear();
        }
        match served {
            Served::Answered(ticket) => waiter.to.deliver(reply.take(), ticket),
            Served::Waits | Served::Later => waiter.to.try_again(),
        }
        true
    }

    /// A wait is over; the locks of its keys are held.
    fn end_wait(&mut self, waiter: &Arc<Waiter>) {
        let store = self.guards.store();
        waiter.over.store(true, Relaxed);
        for key in &waiter.blocked.keys {
            let shard = self.guards.shard(store.shard_of(store.hash(key)));
            shard.forget_waiter(waiter, key);
        }
    }

    /// Runs a waiting command as a unit of its own.
    fn serve_shown(
        &mut self,
        waiter: &Waiter,
        args: &[&[u8]],
        key: &[u8],
        reply: &mut Reply,
    ) -> Served {
        let store = self.guards.store();
        let shown = self.guards.effects().is_some();
        if shown {
            let bound = store.bound(waiter.signature, args);
            self.guards.removes = waiter.signature.removes(args);
            match self.guards.reserve(bound, self.now_ms) {
                Ok(()) => {}
                Err(NoRoom::Busy) => return Served::Later,
                Err(why) => {
                    reply.error(why.text());
                    return Served::Answered(0);
                }
            }
            self.guards
                .drop_due(waiter.signature, waiter.db, args, self.now_ms);
        }
        let called = self.call(waiter.spec(), waiter.db, args, reply, Some(key));
        if let Called::Blocked(_) = called {
            self.guards.close_unit();
            return Served::Waits;
        }
        if !shown {
            return Served::Answered(0);
        }
        self.guards.heed_keys(waiter.signature, args, self.now_ms);
        self.guards.close_unit();
        if let Called::NoRoom(_) = called {
            return Served::Later;
        }
        Served::Answered(self.barrier())
    }

    /// Whether there is room for a command, once keys have been evicted for it. A transaction has
    /// made room for all its commands before it began.
    fn has_room(&mut self) -> bool {
        if self.first_ms.is_some() {
            // The keys that were evicted for the lack of memory are in the log too, and the replay
            // evicts no other keys.
            return true;
        }
        self.guards.tell();
        self.in_transaction || self.guards.store().excess(0, true) == 0 || self.make_room_for(0)
    }

    /// Makes room for commands that will run as one, before their locks are taken; false if they
    /// must not run, for lack of memory. The memory that the commands add is estimated from their
    /// arguments. Releases all locks.
    #[must_use]
    pub fn make_room<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
    ) -> bool {
        if self.guards.store().maxmemory() == 0 {
            return true;
        }
        /// Bytes that an argument takes beside its text, about.
        const EACH: usize = 32;
        let mut needed = None;
        for (_, args) in commands.filter(|(spec, args)| spec.needs_memory(args)) {
            let bytes: usize = args[1..].iter().map(|arg| arg.len() + EACH).sum();
            *needed.get_or_insert(0) += bytes as u64;
        }
        // Keys that a script holds cannot be evicted now: the commands are shut out, and this is called
        // again later.
        needed.is_none_or(|bytes| {
            self.make_room_for(bytes) || self.guards.store().is_kept.load(Relaxed)
        })
    }

    #[cold]
    fn make_room_for(&mut self, bytes: u64) -> bool {
        debug_assert!(!self.in_transaction, "room is made before locks are taken");
        let store = self.guards.store();
        self.guards.release();
        store.excess(bytes, true) == 0 || store.make_room(bytes, self.clock, &mut self.rng)
    }
}

impl Runner<'_> {
    /// Frees twice what a command has added, as long as too much waits to be freed. So the waiting
    /// memory shrinks however fast clients add to it, and no client pays for others.
    #[cold]
    fn free_for(&mut self, brought: i64) {
        /// Bytes that are not worth a step.
        const LITTLE: i64 = 16 << 10;
        self.owed += 2 * brought.max(0);
        let store = self.guards.store();
        while self.owed >= LITTLE && store.has_backlog() {
            if !self.in_transaction && self.ready.is_empty() {
                self.guards.release();
            }
            match store.graveyard.step() {
                Some(freed) => self.owed -= freed.max(LITTLE),
                None => return,
            }
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let store = self.guards.store();
        if store.has_backlog() {
            self.guards.release();
            store.free_some();
        }
    }
}

impl Store {
    /// Runs commands. `now_ms` is milliseconds since 1970, `seed` fresh chance; a runner serves one
    /// batch.
    #[must_use]
    pub fn runner(&self, now_ms: u64, seed: u64) -> Runner<'_> {
        Runner::new(self, now_ms, seed)
    }

    /// Runs what was logged: at 0, the beginning of time, nothing expires; but keys count as used at
    /// `now_ms`.
    pub(crate) fn replayer(&self, at_ms: u64, now_ms: u64) -> Runner<'_> {
        Runner::new(self, at_ms, 0).replaying(now_ms)
    }

    /// Runs what another server's store has logged, as [`replayer`](Store::replayer), while clients read.
    pub(crate) fn follower(&self, now_ms: u64) -> Runner<'_> {
        Runner::new(self, 0, 0).following(now_ms)
    }

    /// Whether the command waits still: if not, its reply was delivered. No runner of the caller may
    /// hold locks.
    #[must_use]
    pub fn is_waiting(&self, waiter: &Arc<Waiter>) -> bool {
        let mut guards = Guards::new(self);
        guards.hold(&self.shards_of_wait(waiter));
        !waiter.is_over()
    }

    /// Ends a wait early; returns whether the command was still waiting. If not, the command's
    /// reply was delivered. No runner of the caller may hold locks.
    #[must_use]
    pub fn cancel(&self, waiter: &Arc<Waiter>) -> bool {
        let mut guards = Guards::new(self);
        guards.hold(&self.shards_of_wait(waiter));
        let was_waiting = !waiter.over.swap(true, Relaxed);
        for key in &waiter.blocked.keys {
            guards
                .shard(self.shard_of_key(key))
                .forget_waiter(waiter, key);
        }
        was_waiting
    }
}

impl Waiter {
    /// The command that waits.
    pub(crate) fn spec(&self) -> &'static Spec {
        self.command.downcast_ref().expect("a command")
    }
}
