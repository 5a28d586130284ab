//! Clients with CLIENT TRACKING are noted, and told of what changes.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::guards::Guards;
use super::place::Place;
use super::shard::Shard;
use super::tracking::{
    EVICTIONS, EVICTIONS_A_VISIT, Key, Tracker, Trackers, Tracking, Untold, prices,
};
use super::{Runner, Store};
use crate::commands::{READ, Signature};

impl Store {
    /// Clients that are told of changes.
    #[must_use]
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// From now on tells a client of changes of the keys that it [reads](Runner::track).
    pub fn begin_tracking(&self, tracker: &Arc<Tracker>) {
        let trackers = self.tracking.trackers.write();
        let mut trackers = trackers.unwrap_or_else(PoisonError::into_inner);
        trackers.insert(tracker.client, tracker.clone());
    }

    /// Tells a client from now on of changes of all keys that begin so. Locks each shard in turn: no runner
    /// of the caller may hold locks.
    pub fn track_prefixes<'x>(
        &self,
        tracker: &Arc<Tracker>,
        prefixes: impl Iterator<Item = &'x Arc<[u8]>>,
    ) {
        let known = self.tracking.prefixes.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        prefixes.for_each(|prefix| known.add(prefix, tracker));
        drop(known);
        for at in 0..self.shards.len() {
            let mut shard = self.lock(at);
            shard.broadcasts = true;
            shard.observed = true;
        }
    }

    /// Ends the invalidations of a client. `alone` says that no runner of the caller holds locks:
    /// then notes without a client are forgotten at once.
    pub fn end_tracking(&self, tracker: &Arc<Tracker>, alone: bool) {
        tracker.over.store(true, Relaxed);
        let trackers = self.tracking.trackers.write();
        let mut trackers = trackers.unwrap_or_else(PoisonError::into_inner);
        trackers.remove(&tracker.client);
        let nobody = trackers.is_empty();
        drop(trackers);
        let known = self.tracking.prefixes.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.remove(tracker);
        drop(known);
        let noted = tracker.noted_bytes();
        self.tracking.ended.fetch_add(noted, Relaxed);
        if alone && (nobody || self.tracking.is_to_sweep()) {
            self.sweep_notes();
        }
    }

    /// Forgets the notes for clients that get no more notifications, if these have become as many as the notes for the
    /// other clients. No runner of the caller may hold locks.
    pub fn sweep_tracking(&self) {
        if self.tracking.is_to_sweep() {
            self.sweep_notes();
        }
    }

    /// Tells all clients that everything may have changed, though nothing was changed here. No runner of the caller may hold locks.
    pub fn distrust(&self) {
        for at in 0..self.shards.len() {
            self.lock(at).forget_tracked(&self.tracking);
        }
        self.tracking.tell_all(0);
    }

    fn sweep_notes(&self) {
        self.tracking.ended.store(0, Relaxed);
        for at in 0..self.shards.len() {
            let mut shard = self.lock(at);
            // Another client may have come in between.
            #[expect(clippy::disallowed_methods, reason = "sums do not show the order")]
            shard.tracked.retain(|(_, key), trackers| {
                self.tracking.drop_those_over(trackers, key.len());
                let stays = !trackers.is_empty();
                if !stays {
                    self.tracking.forget_note(trackers, key.len());
                }
                stays
            });
            shard.tracked.shrink_to_fit();
            shard.broadcasts &= self.tracking.prefixes() > 0;
            shard.note_observers();
        }
    }

    /// Finds the clients that have read a changed key, or track a prefix of it.
    #[cold]
    pub(super) fn find_trackers(
        &self,
        shard: &mut Shard,
        place: &Place,
        by: u64,
        untold: &mut Untold,
    ) {
        let trackers = shard.tracked.remove(place);
        if let Some(trackers) = &trackers {
            self.tracking.forget_note(trackers, place.1.len());
        }
        let broadcasts = shard.broadcasts;
        if trackers.is_some() || broadcasts {
            untold.add(Key {
                place: place.clone(),
                by,
                trackers: trackers.unwrap_or_default(),
                broadcasts,
            });
        }
        shard.note_observers();
    }

    /// Tells clients of the changes with this ticket.
    #[cold]
    pub(super) fn tell_untold(&self, untold: Untold, ticket: u64) {
        if untold.all {
            self.tracking.tell_all(ticket);
        }
        for key in untold.keys {
            for tracker in key.trackers {
                tracker.tell(Some(&key.place.1), key.by, ticket);
            }
            if key.broadcasts {
                self.tracking.tell_prefixes(&key.place.1, key.by, ticket);
            }
        }
    }
}

impl Guards<'_> {
    /// Tells clients of the changes, or keeps them for the commit.
    #[cold]
    pub(super) fn tell_or_keep(&mut self, untold: Untold) {
        match &mut self.pending {
            Some(pending) => pending.untold.append(untold),
            None => self.store().tell_untold(untold, 0),
        }
    }
}

impl Shard {
    /// Forgets which client has read what: all are about to be told that everything has changed.
    pub(crate) fn forget_tracked(&mut self, tracking: &Tracking) {
        let none = HashMap::with_hasher(*self.tracked.hasher());
        #[expect(clippy::iter_over_hash_type, reason = "sums do not show the order")]
        for ((_, key), trackers) in std::mem::replace(&mut self.tracked, none) {
            tracking.forget_note(&trackers, key.len());
        }
        self.note_observers();
    }

    /// Takes notes away while there are too many, at most so many, by telling of them.
    pub(super) fn evict_tracked(&mut self, tracking: &Tracking, most: usize) {
        for _ in 0..most {
            if !tracking.is_too_much() {
                break;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "any will do, and the store's key decides"
            )]
            let first = self.tracked.keys().next();
            let Some(place) = first.cloned() else {
                break;
            };
            let gone = self.tracked.remove(&place).unwrap_or_default();
            tracking.forget_note(&gone, place.1.len());
            for tracker in gone {
                // The tracker tells of no change.
                tracker.tell(Some(&place.1), 0, 0);
            }
        }
    }

    /// As [`evict_tracked`](Shard::evict_tracked), as much as a visit may.
    pub(super) fn evict_tracked_some(&mut self, tracking: &Tracking) {
        self.evict_tracked(tracking, EVICTIONS_A_VISIT);
        self.note_observers();
    }
}

impl Runner<'_> {
    /// Holds what a command needs, so that nothing can change between it and [`track`](Runner::track).
    pub fn hold_for(&mut self, spec: &Signature, args: &[&[u8]]) {
        if !self.in_transaction {
            let shards = self.guards.store().shards_for(spec, args);
            self.guards.hold(&shards);
        }
    }

    /// Notes that a client has read the keys of a command, which has just been run under the locks that are
    /// held. Commands that do more than read are not noted.
    pub fn track(&mut self, spec: &Signature, db: u16, args: &[&[u8]], tracker: &Arc<Tracker>) {
        if spec.flags & READ == 0 {
            return;
        }
        let store = self.guards.store();
        let tracking = &store.tracking;
        let mut keys = Vec::new();
        spec.keys.each(args, |key| keys.push(key));
        for key in keys {
            let shard = self.guards.shard(store.shard_of(store.hash(key)));
            let trackers = match shard.tracked.entry((db, key.into())) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    tracking.keys.fetch_add(1, Relaxed);
                    free.insert(Trackers::new())
                }
            };
            tracking.drop_those_over(trackers, key.len());
            if !trackers.iter().any(|other| Arc::ptr_eq(other, tracker)) {
                let price = prices(key.len()).nth(trackers.len()).unwrap_or_default();
                tracker.noted.fetch_add(price, Relaxed);
                tracking.bytes.fetch_add(price, Relaxed);
                trackers.push(tracker.clone());
                tracking.items.fetch_add(1, Relaxed);
            }
            shard.observed = true;
            shard.evict_tracked(tracking, EVICTIONS);
        }
    }

    /// Sets the client that runs the commands, so that it is not notified of its own changes; 0 is
    /// none.
    pub fn set_client(&mut self, client: u64) {
        self.guards.client = client;
    }
}
