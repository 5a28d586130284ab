//! Events of keys that commands cause.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::effect::Gone;
use super::events::{
    Announce, BY_EVENT, BY_KEY, Classes, EVICTED, EXPIRED, Event, GENERIC, Kept, MISSED, READERS,
};
use super::guards::Guards;
use super::view::View;

impl Store {
    /// Has events told to `to` if they are [asked for](Store::set_events). The first call counts.
    pub fn announce_to(&self, to: Arc<dyn Announce>) {
        let _ = self.events.to.set(to);
    }

    /// Events that are asked for.
    #[must_use]
    pub fn events(&self) -> Classes {
        self.events.asked.load(Relaxed)
    }

    /// Changes which events are told, if [`BY_KEY`] or [`BY_EVENT`] is among them. The new classes hold for
    /// commands that take their locks from now on.
    pub fn set_events(&self, classes: Classes) {
        let is_heard = classes & (BY_KEY | BY_EVENT) != 0;
        self.events.asked.store(classes, Relaxed);
        let heard = if is_heard { classes } else { 0 };
        self.events.heard.store(heard, Relaxed);
    }

    /// Whether any events are told.
    #[inline]
    #[must_use]
    pub fn tells_events(&self) -> bool {
        self.events.heard() != 0
    }

    /// Events that had to be left out because they could not be kept.
    #[must_use]
    pub fn events_lost(&self) -> u64 {
        self.events.lost.load(Relaxed)
    }

    /// Tells at once that a key has gone without a command.
    pub(super) fn tell_gone(&self, db: u16, key: &[u8], why: Gone, ticket: u64) {
        let (class, name) = of_gone(why);
        if self.events.heard() & class != 0 {
            let key = key.into();
            self.events.tell(&Event { db, name, key }, ticket);
        }
    }
}

fn of_gone(why: Gone) -> (Classes, &'static str) {
    match why {
        Gone::Expired => (EXPIRED, "expired"),
        Gone::Evicted => (EVICTED, "evicted"),
    }
}

impl Guards<'_> {
    #[cold]
    fn happened(&mut self, db: u16, name: &'static str, key: &[u8], stamp: u64) {
        let store = self.store();
        let key = key.into();
        let event = Event { db, name, key };
        if self.effects().is_none() {
            return store.events.tell(&event, 0);
        }
        let kept = &mut self.pending(stamp).kept;
        if kept.bytes + event.bytes() > Kept::MOST {
            store.events.lost.fetch_add(1, Relaxed);
            return;
        }
        kept.bytes += event.bytes();
        kept.events.push(event);
    }

    /// Notes that a key has gone without a command.
    #[inline]
    pub(super) fn gone(&mut self, db: u16, key: &[u8], why: Gone, stamp: u64) {
        let (class, name) = of_gone(why);
        if self.told & class != 0 {
            self.happened(db, name, key, stamp);
        }
    }

    /// Tells what belongs to units that are closed, which this ticket stands for.
    #[cold]
    pub(super) fn tell_kept(&self, kept: &mut Kept, ticket: u64) {
        let store = self.store();
        let early = store
            .effects()
            .is_some_and(|effects| effects.mistakes().makes(|mistakes| mistakes.publish_early));
        let ticket = if early { 0 } else { ticket };
        for event in kept.events.drain(..kept.closed) {
            store.events.tell(&event, ticket);
        }
        kept.closed = 0;
        kept.bytes = kept.events.iter().map(Event::bytes).sum();
    }
}

impl View<'_, '_> {
    /// A key is looked for: tells if there is none.
    #[inline]
    pub(super) fn note_miss(&mut self, key: &[u8]) {
        if self.guards.told & MISSED != 0 {
            self.tell_miss(key);
        }
    }

    #[cold]
    fn tell_miss(&mut self, key: &[u8]) {
        let reads = !self.spec.is_write() || READERS.contains(&self.spec.name);
        if reads && !self.lives(key) {
            self.event(MISSED, "keymiss", key);
        }
    }

    /// Says what became of a key, which its command has locked.
    #[inline]
    pub fn event(&mut self, class: Classes, name: &'static str, key: &[u8]) {
        if self.guards.told & class != 0 {
            self.guards.happened(self.db, name, key, self.now_ms);
        }
    }

    /// Tells an event about something taken from a key, which may be gone with it.
    #[inline]
    pub fn event_left(&mut self, class: Classes, name: &'static str, key: &[u8]) {
        if self.guards.told & (class | GENERIC) != 0 {
            self.event(class, name, key);
            if !self.exists(key) {
                self.event(GENERIC, "del", key);
            }
        }
    }

    /// Says that a command has put something in the place of what a key held, or nothing, and so removed it.
    #[inline]
    pub fn event_stored(&mut self, class: Classes, name: &'static str, key: &[u8], removed: bool) {
        if removed {
            self.event(GENERIC, "del", key);
        } else if self.guards.told & class != 0 && self.exists(key) {
            self.event(class, name, key);
        }
    }
}
