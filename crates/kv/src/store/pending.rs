//! Changes that a runner has made and not committed yet, where the store has a hook.
//!
//! Units gather as long as the runner keeps its locks, so that a pipeline on one shard is committed
//! at once, and are committed before any of them is let go.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::dirty::SOME;
use super::effect::{Effects, Gone, NoRoom};
use super::events::Kept;
use super::guards::Guards;
use super::tracking::Untold;
use super::unit::Units;
use crate::commands::{Keys, Signature};

/// Bytes that are reserved at least, so that one promise serves many commands.
const AT_ONCE: usize = 16 << 10;
/// Bytes of units that are committed although their locks are kept.
const MANY: usize = 256 << 10;

/// Uncommitted changes, and the room that is promised for them.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    units: Units,
    /// Bytes that are promised, including the bytes of `units`.
    promised: usize,
    /// The shards and hashes of the keys that were changed.
    touched: Vec<(usize, u64)>,
    /// Clients may have to wait for them, so they are noted.
    notes_touched: bool,
    /// All keys were.
    touched_all: bool,
    /// The libraries of functions were.
    libraries: bool,
    /// Whether a command runs: its changes are not in `units` yet.
    runs: bool,
    /// The unit of the transaction or script that runs is not held up any more, as it could not be taken back.
    grows: bool,
    /// Keys that were changed, of which clients are told when that is committed.
    pub(super) untold: Untold,
    /// Events and notifications that are published with the units.
    pub(super) kept: Kept,
    /// The largest ticket that was committed.
    written: u64,
    /// The largest ticket that a client has to wait for which hears what was found.
    barrier: u64,
}

impl<'s> Guards<'s> {
    /// The hook that is given the changes.
    #[inline]
    pub(crate) fn effects(&self) -> Option<&'s dyn Effects> {
        match self.is_known {
            true => None,
            false => self.store.effects(),
        }
    }

    pub(crate) fn pending(&mut self, stamp: u64) -> &mut Pending {
        let effects = self.effects();
        self.pending.get_or_insert_with(|| {
            let settled = effects.map_or(u64::MAX, Effects::settled);
            Box::new(Pending {
                units: Units::new(stamp),
                notes_touched: settled < u64::MAX,
                ..Pending::default()
            })
        })
    }

    /// Reserves room for a unit of this cost.
    pub(crate) fn reserve(&mut self, bytes: usize, stamp: u64) -> Result<(), NoRoom> {
        let store = self.store();
        let Some(effects) = self.effects() else {
            return Ok(());
        };
        let removes = self.removes;
        let pending = self.pending(stamp);
        if pending.units.open_cost() + bytes > effects.unit_max() {
            return Err(NoRoom::TooLarge);
        }
        let needed = pending.units.cost() + bytes;
        let Some(more) = needed
            .checked_sub(pending.promised)
            .filter(|more| *more > 0)
        else {
            return Ok(());
        };
        let refuses_midway = effects.mistakes().makes(|mistakes| mistakes.refuse_midway);
        let grows = pending.grows && !refuses_midway;
        if !grows && store.epochs.is_full() {
            return Err(NoRoom::Busy);
        }
        let ask = |bytes| match grows {
            true => effects.grow(bytes),
            false => effects.reserve(bytes),
        };
        let generous = more.max(AT_ONCE);
        let got = if removes && !grows {
            effects.reserve_to_remove(generous, more)
        } else {
            match ask(generous) {
                Err(_) if more < generous => ask(more).map(|()| more),
                reserved => reserved.map(|()| generous),
            }
        };
        pending.promised += got?;
        Ok(())
    }

    /// Makes sure that the unit of a transaction or script, once begun, can go on until it is as large
    /// as units may be. From then on, further changes are refused only beyond that size, or if the log
    /// fails. `removes` says that the next change frees memory.
    pub(crate) fn begin_growing(&mut self, stamp: u64, removes: bool) -> Result<(), NoRoom> {
        let store = self.store();
        let Some(effects) = self.effects() else {
            return Ok(());
        };
        let pending = self.pending(stamp);
        if pending.grows {
            return Ok(());
        }
        if store.epochs.is_full() {
            return Err(NoRoom::Busy);
        }
        effects.begin_growing(pending.promised, removes)?;
        pending.grows = true;
        Ok(())
    }

    pub(crate) fn end_growing(&mut self) {
        let Some(effects) = self.effects() else {
            return;
        };
        if let Some(pending) = &mut self.pending
            && std::mem::take(&mut pending.grows)
        {
            effects.end_growing();
        }
    }

    /// Whether the unit has a change already.
    pub(crate) fn is_midway(&self) -> bool {
        self.pending
            .as_ref()
            .is_some_and(|pending| pending.units.is_open())
    }

    /// Notes that a key was changed.
    #[inline]
    pub(crate) fn touch(&mut self, hash: u64) {
        if let Some(pending) = &mut self.pending
            && pending.notes_touched
        {
            pending.touched.push((self.store.shard_of(hash), hash));
        }
    }

    /// Notes that all keys were.
    pub(crate) fn touch_all(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.touched_all = true;
        }
    }

    /// Notes that the libraries of functions were changed; false where that counts at once.
    pub(crate) fn libraries_changed(&mut self) -> bool {
        let pending = self.pending.as_mut();
        pending.map(|pending| pending.libraries = true).is_some()
    }

    /// Whether a unit of these locks has changed the libraries of functions, and is not committed.
    pub(crate) fn has_new_libraries(&self) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.libraries)
    }

    /// Ends the unit of the command or transaction that was run.
    pub(crate) fn close_unit(&mut self) {
        self.end_growing();
        if let Some(pending) = &mut self.pending {
            pending.units.close();
            pending.kept.close();
            if pending.units.frames().len() > MANY || pending.kept.are_many() {
                self.commit();
            }
        }
    }

    /// Commits the closed units, while the locks are held.
    pub(crate) fn commit(&mut self) {
        let Some(mut pending) = self.pending.take() else {
            return;
        };
        let store = self.store();
        // The open unit keeps its part of the promise.
        let open = pending.units.open_cost();
        if let Some(effects) = self.effects()
            && !pending.units.is_empty()
        {
            let bytes = pending.units.frames().len();
            debug_assert!(bytes <= pending.promised, "more than was promised");
            // The cost is an upper bound, and the bound for changes that are already encoded is a little
            // higher.
            let cost = (pending.units.cost() - open).min(pending.promised);
            let ticket = effects.commit(&pending.units, cost);
            pending.units.clear();
            pending.promised -= cost;
            pending.written = ticket;
            store.last_ticket.fetch_max(ticket, Relaxed);
            let settled = effects.settled();
            if ticket > settled {
                pending.barrier = pending.barrier.max(ticket);
                if std::mem::take(&mut pending.touched_all) {
                    for at in 0..store.shards.len() {
                        self.shard(at).dirty.add_all(ticket);
                    }
                }
                for (at, hash) in pending.touched.drain(..) {
                    let dirty = &mut self.shard(at).dirty;
                    dirty.purge(settled, SOME);
                    dirty.add(hash, ticket);
                }
            }
            pending.touched.clear();
            pending.touched_all = false;
        }
        // Libraries are committed even when the log has them already, as with a follower.
        if open == 0 && std::mem::take(&mut pending.libraries) {
            store.libraries.commit(pending.written);
        }
        if open == 0 && !pending.untold.is_empty() {
            store.tell_untold(std::mem::take(&mut pending.untold), pending.written);
        }
        if pending.kept.has_closed() {
            let ticket = pending.barrier;
            self.tell_kept(&mut pending.kept, ticket);
        }
        self.pending = Some(pending);
    }

    /// Gives back what was promised for a unit that is never to be committed.
    pub(super) fn forget_pending(&self, pending: Pending) {
        if let Some(effects) = self.effects()
            && pending.promised > 0
        {
            effects.give_back(pending.promised);
        }
    }

    /// Gives back promised bytes that were not used.
    pub(super) fn give_back(&mut self) {
        self.end_growing();
        let Some(pending) = self.pending.take() else {
            return;
        };
        if let Some(effects) = self.effects() {
            if pending.units.is_open() || pending.runs {
                // A command has panicked in the middle.
                effects.diverged();
            }
            if pending.promised > 0 {
                effects.give_back(pending.promised);
            }
        }
        if !pending.untold.is_empty() {
            // Publishes the changes of a command that has panicked.
            self.store().tell_untold(pending.untold, pending.written);
        }
    }

    /// A command that may change something begins or ends, with all that it has done in the unit.
    #[inline]
    pub(crate) fn set_running(&mut self, runs: bool) {
        if let Some(pending) = &mut self.pending {
            pending.runs = runs;
        }
    }

    /// Adds a command's changes to its unit.
    pub(crate) fn did(&mut self, db: u16, args: &[&[u8]], stamp: u64) {
        debug_assert!(self.pending.is_some(), "a command that writes has reserved");
        self.pending(stamp).units.command(db, args);
    }

    /// The largest ticket that was committed under these locks.
    pub(crate) fn written(&self) -> u64 {
        self.pending.as_ref().map_or(0, |pending| pending.written)
    }

    /// The largest ticket that a client has to wait for which hears what was found or done.
    pub(crate) fn barrier(&self) -> u64 {
        self.pending.as_ref().map_or(0, |pending| pending.barrier)
    }

    /// Has clients that hear of what is done next wait for this ticket.
    pub(crate) fn wait_for(&mut self, ticket: u64, stamp: u64) {
        let pending = self.pending(stamp);
        pending.barrier = pending.barrier.max(ticket);
    }

    /// Has clients that hear of this key wait until its last change has settled. The caller holds
    /// the shard of the key.
    #[inline]
    pub(crate) fn heed(&mut self, hash: u64, settled: u64, stamp: u64) {
        let at = self.store().shard_of(hash);
        let dirty = &mut self.shard(at).dirty;
        if dirty.is_empty() {
            return;
        }
        dirty.purge(settled, SOME);
        let ticket = dirty.ticket(hash);
        if ticket > settled {
            self.wait_for(ticket, stamp);
        }
    }

    /// Does so for all keys of a command that has just run.
    pub(crate) fn heed_keys(&mut self, spec: &Signature, args: &[&[u8]], stamp: u64) {
        let store = self.store();
        let Some(effects) = self.effects() else {
            return;
        };
        let settled = effects.settled();
        let last = store.last_ticket.load(Relaxed);
        if last <= settled || effects.mistakes().makes(|mistakes| mistakes.read_dirty) {
            return;
        }
        let named = spec.keys != Keys::Walk
            && spec.keys.each(args, |key| {
                let hash = self.hash(key);
                self.heed(hash, settled, stamp);
            });
        if !named {
            self.wait_for(last, stamp);
        }
    }

    /// Whether a single shard is held, and no key in this database of it has a time.
    #[inline]
    fn expires_nothing(&self, db: u16) -> bool {
        self.only_one()
            .is_some_and(|shard| shard.expiring[usize::from(db)] == 0)
    }

    /// Removes the keys of a command whose time has come, so that what it does depends on no clock.
    /// All databases for one that names another: the key there may be due.
    pub(crate) fn drop_due(&mut self, spec: &Signature, db: u16, args: &[&[u8]], now_ms: u64) {
        let store = self.store();
        let elsewhere = names_database(spec);
        if !elsewhere && self.expires_nothing(db) {
            return;
        }
        let databases = if elsewhere {
            0..store.databases
        } else {
            db..db + 1
        };
        spec.keys.each(args, |key| {
            let hash = self.hash(key);
            let at = store.shard_of(hash);
            let mut untold = Untold::default();
            for db in databases.clone() {
                let shard = self.shard(at);
                if shard.expiring[usize::from(db)] > 0 && shard.is_due(db, key, hash, now_ms) {
                    store.drop_key(shard, db, hash, key, Gone::Expired, &mut untold);
                    if let Some(pending) = &mut self.pending {
                        pending.units.removed(db, key, Gone::Expired);
                        if pending.notes_touched {
                            pending.touched.push((at, hash));
                        }
                    }
                    self.gone(db, key, Gone::Expired, now_ms);
                }
            }
            if !untold.is_empty() {
                self.tell_or_keep(untold);
            }
        });
    }
}

/// Whether a command may use its keys in another database too.
fn names_database(spec: &Signature) -> bool {
    matches!(spec.name, "move" | "copy")
}

/// Bytes that a generated id and the trimmed entries take, in place of the command's own words.
const CHOSEN: usize = 96;
/// Bytes that the result of a sum of numbers with fractions may have.
const SUM: usize = 6 << 10;

impl Store {
    /// The most that a command's unit can cost, with the keys that expire before it. A command
    /// whose effect is not bounded by its arguments reserves more when it knows how much.
    pub(crate) fn bound(&self, spec: &Signature, args: &[&[u8]]) -> usize {
        let mut bytes: usize = args.iter().map(|arg| arg.len()).sum();
        let mut count = args.len() + 2;
        let copies = if names_database(spec) {
            usize::from(self.databases)
        } else {
            1
        };
        spec.keys.each(args, |key| {
            bytes += copies * key.len();
            count += copies;
        });
        if spec.name.ends_with("byfloat") {
            bytes += SUM;
        } else if spec.name == "xadd" {
            bytes += CHOSEN;
        }
        Units::bound(count, bytes)
    }

    /// Removes keys of one shard, whose lock is held and nothing else, for another reason than a
    /// command. If the log has no room for the removals, no key is removed.
    pub(crate) fn drop_keys(
        &self,
        shard: &mut super::shard::Shard,
        keys: &[(u16, Vec<u8>)],
        why: Gone,
        now_ms: u64,
    ) -> Result<(), NoRoom> {
        let Some(effects) = self.effects() else {
            for (db, key) in keys {
                self.drop_at_once(shard, *db, self.hash(key), key, why);
            }
            return Ok(());
        };
        if keys.is_empty() {
            return Ok(());
        }
        let bytes = keys.iter().map(|(_, key)| key.len()).sum();
        let bound = Units::bound(keys.len(), bytes);
        if self.epochs.is_full() {
            return Err(NoRoom::Busy);
        }
        effects.reserve_to_remove(bound, bound)?;
        let mut units = Units::new(now_ms);
        let (mut hashes, mut gone) = (Vec::new(), Vec::new());
        let mut untold = Untold::default();
        for (db, key) in keys {
            let hash = self.hash(key);
            if self.drop_key(shard, *db, hash, key, why, &mut untold) {
                units.removed(*db, key, why);
                hashes.push(hash);
                gone.push((*db, key));
            }
        }
        units.close();
        if units.is_empty() {
            effects.give_back(bound);
            return Ok(());
        }
        let cost = units.cost().min(bound);
        let ticket = effects.commit(&units, cost);
        self.last_ticket.fetch_max(ticket, Relaxed);
        let settled = effects.settled();
        if ticket > settled {
            for hash in hashes {
                shard.dirty.purge(settled, SOME);
                shard.dirty.add(hash, ticket);
            }
        }
        self.tell_untold(untold, ticket);
        for (db, key) in gone {
            self.tell_gone(db, key, why, ticket);
        }
        if cost < bound {
            effects.give_back(bound - cost);
        }
        Ok(())
    }

    /// The ticket of the last committed unit; 0 if there is none.
    #[must_use]
    pub fn last_ticket(&self) -> u64 {
        self.last_ticket.load(Relaxed)
    }
}
