//! Keyspace notifications: what became of which key, by the names that Redis has for it.
//!
//! A command reports an event where it changes the key, under the key's lock. Without a log the
//! event is published at once. With a log it is kept with the unit and published when the unit is
//! committed, with the unit's ticket: no client learns of a change that may still be lost. While no
//! client has asked for this kind of event, reporting costs one test.

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

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
pub(super) const MODULE: Classes = 1 << 11;
/// A key was read that there is not.
pub const MISSED: Classes = 1 << 12;
/// A key was made that was not there.
pub const NEW: Classes = 1 << 13;

/// The classes that `A` stands for, in the order in which they are shown.
pub(super) const LETTERS: [(u8, Classes); 10] = [
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

/// The remaining kinds of events.
pub(super) const MORE: [(u8, Classes); 4] = [
    (b'n', NEW),
    (b'K', BY_KEY),
    (b'E', BY_EVENT),
    (b'm', MISSED),
];

pub(super) fn all_of_a() -> Classes {
    LETTERS.iter().fold(0, |all, (_, class)| all | class)
}

/// Parses letters of `notify-keyspace-events`; `None` if one is unknown.
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

/// An event of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The database.
    pub db: u16,
    /// The event, by Redis's name.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}

impl Event {
    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + size_of::<Event>()
    }
}

/// Tells events to listeners.
pub trait Announce: Send + Sync {
    /// An event, on the channels that `by` has of [`BY_KEY`] and [`BY_EVENT`]; no client may hear
    /// it before `ticket` has [settled](super::Effects::settled). False if the event had to be left
    /// out. Called under locks of the store: be quick, and do not call it.
    fn announce(&self, event: &Event, by: Classes, ticket: u64) -> bool;
}

/// Which events are published, and where.
#[derive(Default)]
pub(crate) struct Events {
    pub(super) asked: AtomicU16,
    /// The classes that are told, or 0 if they are told on no channel.
    pub(super) heard: AtomicU16,
    pub(super) to: OnceLock<Arc<dyn Announce>>,
    pub(super) lost: Apart<AtomicU64>,
}

impl Events {
    #[inline]
    pub(crate) fn heard(&self) -> Classes {
        self.heard.load(Relaxed)
    }

    pub(super) fn tell(&self, event: &Event, ticket: u64) {
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
    pub(super) events: Vec<Event>,
    pub(super) bytes: usize,
    /// Events of units that are closed.
    pub(super) closed: usize,
}

impl Kept {
    /// Bytes of events that one unit may have, about: misses of a script's reads have no other bound.
    pub(super) const MOST: usize = 64 << 20;
    /// Number of events from which on they are told although their locks are kept.
    const MANY: usize = 1024;

    pub(super) fn close(&mut self) {
        self.closed = self.events.len();
    }

    pub(super) fn are_many(&self) -> bool {
        self.closed > Kept::MANY
    }
}

impl Kept {
    pub(super) fn has_closed(&self) -> bool {
        self.closed > 0
    }
}

/// Commands that write, and look up keys as reading commands do.
pub(super) const READERS: &[&str] = &[
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
