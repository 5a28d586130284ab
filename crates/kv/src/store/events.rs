//! Keyspace notifications: what became of which key, by the names that Redis has for it.
//!
//! A command says so where it changes the key, under its lock. Without a log it is told there and
//! then; with one it is kept with the unit and told when that is committed, with its ticket: no
//! client hears of what may still be lost. While no client has asked for that kind, this costs one
//! test.

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::Store;
use super::effect::Gone;
use super::guards::Guards;
use super::view::View;
use crate::apart::Apart;

/// Kinds of events, as bits.
pub type Classes = u16;

/// Told on the channel of the key.
pub const BY_KEY: Classes = 1;
/// Told on the channel of the event.
pub const BY_EVENT: Classes = 1 << 1;
/// Events of commands for any type: DEL, EXPIRE, RENAME ...
pub const GENERIC: Classes = 1 << 2;
/// Events of commands on strings.
pub const STRING: Classes = 1 << 3;
/// Events of commands on lists.
pub const LIST: Classes = 1 << 4;
/// Events of commands on sets.
pub const SET: Classes = 1 << 5;
/// Events of commands on hashes.
pub const HASH: Classes = 1 << 6;
/// Events of commands on sorted sets.
pub const ZSET: Classes = 1 << 7;
/// A key's time has come.
pub const EXPIRED: Classes = 1 << 8;
/// A key went because memory was short.
pub const EVICTED: Classes = 1 << 9;
/// Events of commands on streams.
pub const STREAM: Classes = 1 << 10;
/// Events of types of modules, of which there are none.
const MODULE: Classes = 1 << 11;
/// A key was read that there is not.
pub const MISSED: Classes = 1 << 12;
/// A key was made that was not there.
pub const NEW: Classes = 1 << 13;

/// What `A` stands for, in the order in which they are told.
const LETTERS: [(u8, Classes); 10] = [
    (b'g', GENERIC),
    (b'$', STRING),
    (b'l', LIST),
    (b's', SET),
    (b'h', HASH),
    (b'z', ZSET),
    (b'x', EXPIRED),
    (b'e', EVICTED),
    (b't', STREAM),
    (b'd', MODULE),
];

/// The others.
const MORE: [(u8, Classes); 4] = [
    (b'n', NEW),
    (b'K', BY_KEY),
    (b'E', BY_EVENT),
    (b'm', MISSED),
];

fn all_of_a() -> Classes {
    LETTERS.iter().fold(0, |all, (_, class)| all | class)
}

/// Reads letters as `notify-keyspace-events` has them; `None` if one is unknown.
#[must_use]
pub fn parse_classes(text: &[u8]) -> Option<Classes> {
    let mut classes = 0;
    for letter in text {
        let known = LETTERS.iter().chain(&MORE).find(|(of, _)| of == letter);
        classes |= match letter {
            b'A' => all_of_a(),
            _ => known?.1,
        };
    }
    Some(classes)
}

/// The letters of some classes.
#[must_use]
pub fn classes_text(classes: Classes) -> String {
    let is_all = classes & all_of_a() == all_of_a();
    let own = LETTERS.iter().filter(|_| !is_all).chain(&MORE);
    let letters = own.filter(|(_, class)| classes & class != 0);
    let letters = letters.map(|(letter, _)| char::from(*letter));
    is_all.then_some('A').into_iter().chain(letters).collect()
}

/// Something that became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The database.
    pub db: u16,
    /// What, as Redis calls it.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}

impl Event {
    /// Bytes of memory, about.
    fn bytes(&self) -> usize {
        self.key.len() + size_of::<Event>()
    }
}

/// Tells events to listeners.
pub trait Announce: Send + Sync {
    /// An event, on the channels that `by` has of [`BY_KEY`] and [`BY_EVENT`]; no client may hear
    /// it before `ticket` has [settled](super::Effects::settled). False if it had to be left out.
    /// Called under locks of the store: be quick, and do not call it.
    fn announce(&self, event: &Event, by: Classes, ticket: u64) -> bool;
}

/// Which events are told, and where.
#[derive(Default)]
pub(crate) struct Events {
    asked: AtomicU16,
    /// The classes that are told, or 0 if they are told on no channel.
    heard: AtomicU16,
    to: OnceLock<Arc<dyn Announce>>,
    lost: Apart<AtomicU64>,
}

impl Events {
    #[inline]
    pub(crate) fn heard(&self) -> Classes {
        self.heard.load(Relaxed)
    }

    fn tell(&self, event: &Event, ticket: u64) {
        if let Some(to) = self.to.get()
            && !to.announce(event, self.heard() & (BY_KEY | BY_EVENT), ticket)
        {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Events of commands that are not committed.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    events: Vec<Event>,
    bytes: usize,
    /// Events of units that are closed.
    closed: usize,
}

impl Kept {
    /// Bytes of events that one unit may have, about: what a script reads in vain has no other bound.
    const MOST: usize = 64 << 20;
    /// Events that are told although their locks are kept.
    const MANY: usize = 1024;

    pub(super) fn close(&mut self) {
        self.closed = self.events.len();
    }

    pub(super) fn are_many(&self) -> bool {
        self.closed > Kept::MANY
    }
}

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

    /// Changes which events are told, if [`BY_KEY`] or [`BY_EVENT`] is among them. Holds for what takes its
    /// locks from now on.
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

impl Kept {
    pub(super) fn has_closed(&self) -> bool {
        self.closed > 0
    }
}

/// Commands that write, and look up keys as reading commands do.
const READERS: &[&str] = &[
    "bitfield",
    "bitop",
    "copy",
    "georadius",
    "georadiusbymember",
    "geosearchstore",
    "getdel",
    "getex",
    "getset",
    "pfmerge",
    "sdiffstore",
    "set",
    "sinterstore",
    "sort",
    "sunionstore",
    "xack",
    "xautoclaim",
    "xclaim",
    "xreadgroup",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

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

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({})", classes_text(self.asked.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_told_as_redis_does() {
        for (given, told) in [
            ("KEA", "AKE"),
            ("KEAmn", "AnKEm"),
            ("Kg$lshzxetd", "AK"),
            ("$gKE", "g$KE"),
            ("x", "x"),
            ("Kgn", "gnK"),
            ("", ""),
        ] {
            let classes = parse_classes(given.as_bytes()).expect(given);
            assert_eq!(classes_text(classes), told, "{given}");
        }
        assert_eq!(parse_classes(b"Kq"), None);
    }
}
