//! The parts of a stream beside its entries (groups, consumers, counters), while the stream is
//! being snapshotted.
//!
//! `docs/formats/kv-snapshot.md` draws the parts.

use std::ops::Bound;
use std::sync::Arc;

use super::entries::Entries;
use super::group::{Group, Groups, Pending};
use super::id::StreamId;
use super::number::{put, put_id, put_text};
use super::part::{ABOUT, CONSUMER, GROUP, part};
use crate::types::frozen::Piece;

/// Entries of a consumer in one part.
const AT_ONCE: usize = 512;

fn put_about(entries: &Entries, to: &mut Vec<u8>) {
    part(to, ABOUT, |to| {
        put_id(to, entries.last_id);
        put_id(to, entries.max_deleted);
        put(to, entries.added);
    });
}

/// Encodes an optional number as the number plus one, 0 for none; no time or count comes near the
/// maximum.
fn maybe(n: Option<u64>) -> u64 {
    n.map_or(0, |n| n.saturating_add(1))
}

fn put_group(name: &[u8], group: &Group, to: &mut Vec<u8>) {
    part(to, GROUP, |to| {
        put_text(to, name);
        put_id(to, group.last);
        put(to, maybe(group.read));
    });
}

/// Writes a consumer with some of its pending entries; returns where to go on.
fn put_consumer(
    name: &[u8],
    group: &Group,
    number: u32,
    from: StreamId,
    to: &mut Vec<u8>,
) -> Option<StreamId> {
    let consumer = group.consumer(number)?;
    let mut ids = consumer.pending_from(from);
    let these: Vec<Pending> = ids
        .by_ref()
        .take(AT_ONCE)
        .filter_map(|id| group.pending_of(id))
        .collect();
    part(to, CONSUMER, |to| {
        put_text(to, name);
        put_text(to, consumer.name());
        put(to, consumer.seen_ms);
        put(to, maybe(consumer.active_ms));
        put(to, these.len() as u64);
        for pending in &these {
            put_id(to, pending.id);
            put(to, pending.delivered_ms);
            put(to, pending.count);
        }
    });
    ids.next()
}

/// The parts of a stream beside its entries, as they were when the stream was frozen.
#[derive(Debug)]
pub(super) struct Telling {
    about: Vec<u8>,
    groups: Option<Arc<Groups>>,
    /// The group that comes next, the number of its consumer, and the first of that one's entries.
    group: Option<Box<[u8]>>,
    consumer: Option<(u32, StreamId)>,
}

impl Telling {
    pub(super) fn new(entries: &Entries, groups: Option<&Arc<Groups>>) -> Telling {
        let mut about = Vec::new();
        put_about(entries, &mut about);
        let first = groups.and_then(|all| all.keys().next());
        Telling {
            about,
            group: first.cloned(),
            groups: groups.cloned(),
            consumer: None,
        }
    }

    /// Hands out some of the parts, about `most` bytes; returns whether that is all.
    pub(super) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        let mut piece = Piece::new(0);
        if !self.about.is_empty() {
            piece.bytes = std::mem::take(&mut self.about);
            piece.count = 1;
        }
        while piece.bytes.len() < most && self.step(&mut piece) {}
        if piece.count > 0 {
            to.push(piece);
        }
        self.group.is_none()
    }

    /// Writes one part; false if there are no more.
    fn step(&mut self, piece: &mut Piece) -> bool {
        let (Some(groups), Some(name)) = (&self.groups, &self.group) else {
            return false;
        };
        let Some(group) = groups.get(name) else {
            self.group = None;
            return false;
        };
        let next = match self.consumer {
            None => {
                put_group(name, group, &mut piece.bytes);
                piece.count += 1;
                (0, StreamId::MIN)
            }
            Some((number, from)) if group.consumer(number).is_some() => {
                let rest = put_consumer(name, group, number, from, &mut piece.bytes);
                piece.count += 1;
                rest.map_or((number + 1, StreamId::MIN), |rest| (number, rest))
            }
            Some((number, _)) => (number + 1, StreamId::MIN),
        };
        self.consumer = Some(next);
        if next.0 >= group.numbers() {
            let behind = (Bound::Excluded(name.clone()), Bound::Unbounded);
            let next = groups.range(behind).next();
            (self.group, self.consumer) = (next.map(|(name, _)| name.clone()), None);
        }
        true
    }
}
