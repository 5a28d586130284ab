//! A command's view of the store: the keys that the command names, in its database, under their
//! locks.

use std::mem;

use super::effect::Gone;
use super::events;
use super::guards::Guards;
use super::limits::Limits;
use super::memory::{Entry, Form};
use super::ready::Ready;
use super::shard::Shard;
use super::tracking::Untold;
use super::value::{Collection, Kind, Value, ValueRef};
use crate::commands::{Error, Signature};

/// Whether a key keeps its deadline when its value is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The key lives for ever.
    Clear,
    /// The deadline stays as it is.
    Keep,
    /// Milliseconds since 1970.
    At(u64),
}

/// The keys of one database, as far as the running command named them.
///
/// Expired keys are not seen. Every change notifies watchers and waiters, counts memory, and marks
/// the command as one that had an effect; collections that end up empty are removed. So a command
/// has nothing to do beside reading and changing values.
pub struct View<'a, 's> {
    pub(crate) guards: &'a mut Guards<'s>,
    pub(crate) db: u16,
    pub(crate) now_ms: u64,
    /// Time of the coarse clock by which least recently used keys are found.
    pub(crate) clock: u32,
    /// Number of changes.
    pub(crate) changes: u64,
    /// Keys that became ready for a waiting client.
    pub(crate) ready: &'a mut Ready,
    /// The client asked not to be counted as a user of the keys it reads.
    pub(crate) no_touch: bool,
    /// Whether the locks of all the transaction's keys are held, and are kept.
    pub(crate) in_transaction: bool,
    /// The command that runs.
    pub(crate) spec: &'static Signature,
}

impl<'s> View<'_, 's> {
    /// The sizes up to which collections keep their small forms.
    #[must_use]
    pub fn limits(&self) -> &'s Limits {
        self.guards.store().limits()
    }

    /// The database.
    #[must_use]
    pub fn db(&self) -> u16 {
        self.db
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> u16 {
        self.guards.store().databases()
    }

    /// Milliseconds since 1970; one time for all of a command.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) fn has_effects(&self) -> bool {
        self.guards.effects().is_some()
    }

    /// This view of another database. [`swap_db`](View::swap_db) back when done.
    pub fn swap_db(&mut self, db: u16) -> u16 {
        mem::replace(&mut self.db, db)
    }

    /// The value of a key. Counts a hit or a miss, and a use.
    #[inline]
    pub fn value(&mut self, key: &[u8]) -> Option<ValueRef<'_>> {
        self.note_miss(key);
        let (db, no_touch) = (self.db, self.no_touch);
        let used = self.usage();
        let (hash, hidden, shard) = self.live_or_hidden(key);
        let entry = shard.tables[usize::from(db)].find_mut(hash, key);
        let Some(entry) = entry.filter(|_| !hidden) else {
            shard.counts.misses += 1;
            return None;
        };
        shard.counts.hits += 1;
        if !no_touch {
            used.note(entry);
        }
        Some(entry.value())
    }

    /// The value of a key. Counts a hit or a miss, but not a use: for commands that ask about keys.
    pub fn look(&mut self, key: &[u8]) -> Option<ValueRef<'_>> {
        let no_touch = mem::replace(&mut self.no_touch, true);
        let exists = self.value(key).is_some();
        self.no_touch = no_touch;
        exists.then(|| self.peek_value(key)).flatten()
    }

    /// The string of a key. Counts a hit or a miss.
    ///
    /// # Errors
    /// The key holds another type.
    #[inline]
    pub fn string(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(ValueRef::Str(s)) => Ok(Some(s)),
            Some(_) => Err(Error::WRONG_TYPE),
        }
    }

    /// The collection of a key. Counts a hit or a miss.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn get<T: Collection>(&mut self, key: &[u8]) -> Result<Option<&T>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => T::of(value).map(Some).ok_or(Error::WRONG_TYPE),
        }
    }

    /// The value of a key, without counting. Several can be held at once: for commands that look
    /// at several keys, after a [`value`](View::value) of each that counts.
    #[must_use]
    pub fn peek_value(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        self.entry(key).map(Entry::value)
    }

    /// How the string of a key came to be, as [`peek_value`](View::peek_value).
    pub(crate) fn peek_form(&self, key: &[u8]) -> Form {
        self.entry(key).map_or(Form::Given, Entry::form)
    }

    /// Says how the string of a key came to be that has just been put there.
    pub(crate) fn set_form(&mut self, key: &[u8], form: Form) {
        if form == Form::Given {
            return;
        }
        let (db, (hash, shard)) = (self.db, self.live(key));
        if let Some(entry) = shard.table_mut(db).find_mut(hash, key) {
            entry.set_form(form);
        }
    }

    /// The string of a key, as [`peek_value`](View::peek_value).
    ///
    /// # Errors
    /// The key holds another type.
    pub(crate) fn peek_string(&self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        match self.peek_value(key) {
            None => Ok(None),
            Some(ValueRef::Str(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Error::WRONG_TYPE),
        }
    }

    /// The collection of a key, as [`peek_value`](View::peek_value).
    ///
    /// # Errors
    /// The key holds another type.
    pub fn peek<T: Collection>(&self, key: &[u8]) -> Result<Option<&T>, Error> {
        match self.peek_value(key) {
            None => Ok(None),
            Some(value) => T::of(value).map(Some).ok_or(Error::WRONG_TYPE),
        }
    }

    /// Whether a key exists, without counting.
    #[must_use]
    pub fn exists(&self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// The type of a key's value, without counting.
    #[must_use]
    pub fn kind(&self, key: &[u8]) -> Option<Kind> {
        self.peek_value(key).map(|value| value.kind())
    }

    /// Changes the collection of a key if the key exists. `change` answers whether it changed
    /// anything, and what the caller is to have. A collection that is empty afterwards is removed.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn update<T: Collection, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> (bool, R),
    ) -> Result<Option<R>, Error> {
        let (db, used) = (self.db, self.usage());
        let (hash, shard) = self.live(key);
        let altered = shard.alter(db, hash, key, |entry| {
            used.note(entry);
            let value = entry.value_mut()?;
            let (changed, result) = change(T::of_mut(value)?);
            Some((changed, value.is_void(), result))
        });
        let Some(altered) = altered else {
            return Ok(None);
        };
        let (changed, void, result) = altered.ok_or(Error::WRONG_TYPE)?;
        if void {
            shard.discard(db, hash, key);
        }
        if changed || void {
            self.changed(key);
        }
        Ok(Some(result))
    }

    /// Like [`update`](View::update), but begins with an empty collection if the key does not
    /// exist. If the collection is still empty afterwards, the key is unchanged.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn upsert<T: Collection, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> (bool, R),
    ) -> Result<R, Error> {
        if self.entry(key).is_some() {
            let result = self.update(key, change)?;
            return Ok(result.expect("the key exists, and the view holds its shard"));
        }
        let mut value = T::default().into_value();
        let fresh = T::of_mut(&mut value).expect("it was made of this type");
        let (_, result) = change(fresh);
        if !value.is_void() {
            self.event(events::NEW, "new", key);
            self.put(key, value);
        }
        Ok(result)
    }

    /// Puts a string in the place of whatever the key holds.
    #[inline]
    pub fn set_string(&mut self, key: &[u8], value: &[u8], deadline: Deadline) {
        let (db, used) = (self.db, self.usage());
        // Clients that asked for events are told that the old value had expired.
        let as_is = deadline == Deadline::Keep || self.guards.told != 0;
        let (hash, shard) = if as_is {
            self.live(key)
        } else {
            self.locate(key)
        };
        let mut large = None;
        let altered = shard.alter(db, hash, key, |entry| {
            large = entry.take_large();
            entry.set_string(value);
            used.note(entry);
            match deadline {
                Deadline::Clear => entry.set_deadline_ms(None),
                Deadline::Keep => {}
                Deadline::At(at) => entry.set_deadline_ms(Some(at)),
            }
        });
        let is_new = altered.is_none();
        if is_new {
            let mut entry = Entry::string(key, value);
            used.begin(&mut entry);
            if let Deadline::At(at) = deadline {
                entry.set_deadline_ms(Some(at));
            }
            shard.insert(db, hash, entry);
        }
        shard.bury(large);
        self.changed(key);
        if is_new {
            self.event(events::NEW, "new", key);
        }
    }

    /// Changes the bytes of a key's string in place, if the key exists. The key's deadline stays.
    ///
    /// # Errors
    /// The key holds another type, or what `change` says; then nothing has changed.
    pub fn edit_string<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        let (db, used) = (self.db, self.usage());
        let (hash, shard) = self.live(key);
        let altered = shard.alter(db, hash, key, |entry| {
            used.note(entry);
            entry.edit_string(change)
        });
        let Some(altered) = altered else {
            return Ok(None);
        };
        let result = altered.ok_or(Error::WRONG_TYPE)??;
        self.changed(key);
        Ok(Some(result))
    }

    /// Puts a value in the place of whatever the key holds; it lives for ever. An empty collection
    /// removes the key.
    pub fn set(&mut self, key: &[u8], value: Value) {
        if value.is_void() {
            self.remove(key);
        } else {
            let (db, (hash, shard)) = (self.db, self.live(key));
            if !shard.discard(db, hash, key) {
                self.event(events::NEW, "new", key);
            }
            self.put(key, value);
        }
    }

    /// Adds a key that does not exist.
    fn put(&mut self, key: &[u8], value: Value) {
        if let Some(id) = value.frozen_id() {
            let epochs = &self.guards.store().epochs;
            epochs.moved(id, (self.db, Box::from(key)));
        }
        let mut entry = match value {
            Value::Str(s) => Entry::string_of(key, s),
            value => Entry::new(key, value),
        };
        self.usage().begin(&mut entry);
        // A key that is past its time may still be there.
        let (db, (hash, shard)) = (self.db, self.live(key));
        shard.insert(db, hash, entry);
        self.changed(key);
    }

    /// Removes a key; returns whether the key existed. A large value is freed later.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let db = self.db;
        let (hash, shard) = self.live(key);
        let removed = shard.discard(db, hash, key);
        if removed {
            self.changed(key);
        }
        removed
    }

    /// Takes a key out: its value, and its deadline in milliseconds since 1970.
    pub fn take(&mut self, key: &[u8]) -> Option<(Value, Option<u64>)> {
        let db = self.db;
        let (hash, shard) = self.live(key);
        let entry = shard.remove(db, hash, key)?;
        self.changed(key);
        let deadline_ms = entry.deadline_ms();
        Some((entry.into_value(), deadline_ms))
    }

    /// A key's expiry time, in milliseconds since 1970; `None` if the key does not exist.
    #[must_use]
    pub fn deadline_ms(&self, key: &[u8]) -> Option<Option<u64>> {
        self.entry(key).map(Entry::deadline_ms)
    }

    /// Says when a key expires, or that it lives for ever; whether it exists. A time that has
    /// passed removes the key.
    pub fn set_deadline_ms(&mut self, key: &[u8], at: Option<u64>) -> bool {
        if at.is_some_and(|at| at <= self.now_ms) {
            return self.remove(key);
        }
        let db = self.db;
        let (hash, shard) = self.live(key);
        let set = |entry: &mut Entry| entry.set_deadline_ms(at);
        if shard.alter(db, hash, key, set).is_none() {
            return false;
        }
        self.changed(key);
        true
    }

    /// Notes a use of a key; returns whether the key exists.
    pub fn touch(&mut self, key: &[u8]) -> bool {
        let (db, used) = (self.db, self.usage());
        let (hash, hidden, shard) = self.live_or_hidden(key);
        let entry = shard.table_mut(db).find_mut(hash, key);
        let entry = entry.filter(|_| !hidden);
        let exists = entry.map(|entry| used.note(entry)).is_some();
        self.note_miss(key);
        exists
    }

    /// Seconds since a key was last used; `None` if the key does not exist.
    #[must_use]
    pub fn idle_s(&self, key: &[u8]) -> Option<u64> {
        let entry = self.entry(key)?;
        Some(super::clock::idle_ms(entry.clock(), self.clock) / 1000)
    }

    /// Sets for how many seconds a key was not used, under policies that store the time of use.
    pub fn set_idle_s(&mut self, key: &[u8], idle_s: u64) {
        if !self.counts_uses() {
            self.set_stored_clock(key, super::clock::before(self.clock, idle_s));
        }
    }

    /// The stored usage of a key.
    pub(super) fn stored_clock(&self, key: &[u8]) -> Option<u32> {
        self.entry(key).map(Entry::clock)
    }

    pub(super) fn set_stored_clock(&mut self, key: &[u8], clock: u32) {
        let db = self.db;
        let (hash, shard) = self.live(key);
        if let Some(entry) = shard.table_mut(db).find_mut(hash, key) {
            entry.set_clock(clock);
        }
    }

    /// Bytes of memory of a key with its value; `None` if the key does not exist.
    #[must_use]
    pub fn bytes(&self, key: &[u8]) -> Option<usize> {
        let entry = self.entry(key)?;
        Some(entry.bytes() + entry.owned_bytes())
    }

    /// The hash of a key and its shard.
    #[inline]
    fn locate(&mut self, key: &[u8]) -> (u64, &mut Shard) {
        let store = self.guards.store();
        let hash = self.guards.hash(key);
        (hash, self.guards.shard(store.shard_of(hash)))
    }

    /// Like `locate`, but removes an expired key first. In the unit of a writing command, an expired
    /// key does not exist any more.
    #[inline]
    fn live(&mut self, key: &[u8]) -> (u64, &mut Shard) {
        let (hash, _, shard) = self.live_or_hidden(key);
        (hash, shard)
    }

    /// Whether a key exists; one past its time is removed first, where reads may.
    pub(super) fn lives(&mut self, key: &[u8]) -> bool {
        self.live(key);
        self.exists(key)
    }

    /// Like `live`. If the store has a hook, reads change nothing: an expired key is still in the
    /// table, and the result says that it must not be seen.
    #[inline]
    fn live_or_hidden(&mut self, key: &[u8]) -> (u64, bool, &mut Shard) {
        let store = self.guards.store();
        let hash = self.guards.hash(key);
        let at = store.shard_of(hash);
        let (db, now_ms) = (self.db, self.now_ms);
        let mut hidden = false;
        let shard = self.guards.shard(at);
        if shard.expiring[usize::from(db)] > 0 {
            let due = |entry: &Entry| entry.deadline_ms().is_some_and(|at| at <= now_ms);
            if shard.table(db).find(hash, key).is_some_and(due) {
                if store.effects().is_none() {
                    store.drop_at_once(shard, db, hash, key, Gone::Expired);
                } else {
                    hidden = true;
                }
            }
        }
        (hash, hidden, shard)
    }

    /// The entry of a key that is not past its time.
    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        let store = self.guards.store();
        let hash = self.guards.hash(key);
        let shard = self.guards.peek(store.shard_of(hash));
        let entry = shard.table(self.db).find(hash, key)?;
        let due = entry.deadline_ms().is_some_and(|at| at <= self.now_ms);
        (!due).then_some(entry)
    }

    /// A key was changed.
    #[inline]
    fn changed(&mut self, key: &[u8]) {
        self.changes += 1;
        let db = self.db;
        if self.guards.pending.is_some() {
            let hash = self.guards.hash(key);
            self.guards.touch(hash);
        }
        let (_, shard) = self.locate(key);
        if shard.observed {
            self.tell_observers(db, key);
        }
    }

    /// Tells clients that watch a key, have read it, or wait for it.
    #[cold]
    fn tell_observers(&mut self, db: u16, key: &[u8]) {
        let (store, client) = (self.guards.store(), self.guards.client);
        let place = (db, Box::from(key));
        let (_, shard) = self.locate(key);
        shard.note_change(&place);
        let mut untold = Untold::default();
        store.find_trackers(shard, &place, client, &mut untold);
        if shard.waiters.contains_key(&place) {
            self.ready.add(place);
        }
        if !untold.is_empty() {
            self.guards.tell_or_keep(untold);
        }
    }
}

impl super::Store {
    /// Removes a key for another reason than a command where there is no hook, and tells of it.
    pub(crate) fn drop_at_once(
        &self,
        shard: &mut Shard,
        db: u16,
        hash: u64,
        key: &[u8],
        why: Gone,
    ) {
        let mut untold = Untold::default();
        if self.drop_key(shard, db, hash, key, why, &mut untold) {
            self.tell_untold(untold, 0);
            self.tell_gone(db, key, why, 0);
        }
    }

    /// Removes a key for another reason than a command; whether it was there. The caller tells the
    /// hook, and the clients that are to hear of it.
    pub(super) fn drop_key(
        &self,
        shard: &mut Shard,
        db: u16,
        hash: u64,
        key: &[u8],
        why: Gone,
        untold: &mut Untold,
    ) -> bool {
        if !shard.discard(db, hash, key) {
            return false;
        }
        match why {
            Gone::Expired => shard.counts.expired += 1,
            Gone::Evicted => shard.counts.evicted += 1,
        }
        if shard.observed {
            let place = (db, Box::from(key));
            shard.note_change(&place);
            self.find_trackers(shard, &place, 0, untold);
        }
        true
    }
}
