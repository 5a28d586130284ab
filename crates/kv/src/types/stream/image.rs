//! A stream as parts, of which each says all that has to be known of it: what a snapshot has.
//!
//! `docs/formats/kv-snapshot.md` draws them.

use std::ops::Bound;
use std::sync::Arc;

use super::super::frozen::Piece;
use super::block::Block;
use super::group::{Group, Groups};
use super::number::{put, put_id, put_text, take, take_id, take_text};
use super::{Entries, Pending, Stream, StreamId};

const ABOUT: u8 = 1;
const BLOCK: u8 = 2;
const GROUP: u8 = 3;
const CONSUMER: u8 = 4;

/// Entries of a consumer in one part.
const AT_ONCE: usize = 512;

/// A part, as it stands in an item.
fn part(to: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = vec![kind];
    write(&mut bytes);
    put_text(to, &bytes);
}

fn put_about(entries: &Entries, to: &mut Vec<u8>) {
    part(to, ABOUT, |to| {
        put_id(to, entries.last_id);
        put_id(to, entries.max_deleted);
        put(to, entries.added);
    });
}

/// One more than a number that may be missing; no time or count comes near the end.
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

/// Writes a consumer with some of what it has not acknowledged; where to go on.
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

pub(super) fn block_piece(block: &Block) -> Piece {
    let mut piece = Piece::new(0);
    part(&mut piece.bytes, BLOCK, |to| block.write(to));
    piece.count = 1;
    piece
}

/// What a stream was beside its entries, while it is being written down.
#[derive(Debug)]
pub(super) struct Telling {
    about: Vec<u8>,
    groups: Option<Arc<Groups>>,
    /// The group that comes next, the number of its consumer, and the first of that one's entries.
    group: Option<Box<[u8]>>,
    consumer: Option<(u32, StreamId)>,
}

impl Telling {
    pub(super) fn new(stream: &Stream) -> Telling {
        let mut about = Vec::new();
        put_about(&stream.entries, &mut about);
        let first = stream.groups.as_ref().and_then(|all| all.keys().next());
        Telling {
            about,
            group: first.cloned(),
            groups: stream.groups.clone(),
            consumer: None,
        }
    }

    /// Hands out some of it, about `most` bytes; whether that is all.
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

impl Stream {
    /// Writes all parts, each with its length; how many.
    pub(crate) fn put_parts(&self, to: &mut Vec<u8>) -> usize {
        let mut pieces = Vec::new();
        Telling::new(self).thaw(usize::MAX, &mut pieces);
        self.entries
            .each_block(|block| pieces.push(block_piece(block)));
        for piece in &pieces {
            to.extend_from_slice(&piece.bytes);
        }
        pieces.iter().map(|piece| piece.count).sum()
    }

    /// Puts in a part of a snapshot, in any order; false if it is none, or one that is there already.
    pub(crate) fn put_part(&mut self, mut bytes: &[u8]) -> bool {
        let done = match bytes.split_first() {
            Some((&kind, rest)) => {
                bytes = rest;
                self.take_part(kind, &mut bytes)
            }
            None => None,
        };
        done.is_some() && bytes.is_empty()
    }

    fn take_part(&mut self, kind: u8, bytes: &mut &[u8]) -> Option<()> {
        match kind {
            ABOUT => {
                let (last, max_deleted) = (take_id(bytes)?, take_id(bytes)?);
                self.entries.last_id = self.entries.last_id.max(last);
                (self.entries.max_deleted, self.entries.added) = (max_deleted, take(bytes)?);
            }
            BLOCK => {
                let block = Block::read(bytes)?;
                self.entries.put_block(block).then_some(())?;
            }
            GROUP => {
                let name = take_text(bytes)?;
                let (last, read) = (take_id(bytes)?, take(bytes)?.checked_sub(1));
                self.create_group(name, StreamId::MIN, None);
                self.change_group(name, |_, group| group.set(last, read))?;
            }
            CONSUMER => {
                let (group, name) = (take_text(bytes)?, take_text(bytes)?);
                let (seen_ms, active_ms) = (take(bytes)?, take(bytes)?.checked_sub(1));
                // It may come in front of its group.
                self.create_group(group, StreamId::MIN, None);
                self.change_group(group, |_, group| {
                    let (number, _) = group.enter(name, seen_ms);
                    group.note(number, seen_ms, false);
                    if let Some(active_ms) = active_ms {
                        group.note(number, active_ms, true);
                        group.note(number, seen_ms, false);
                    }
                    for _ in 0..take(bytes)? {
                        let pending = Pending {
                            id: take_id(bytes)?,
                            delivered_ms: take(bytes)?,
                            count: take(bytes)?,
                            consumer: number,
                        };
                        if group.pending_of(pending.id).is_some() {
                            return None;
                        }
                        group.assign(pending);
                    }
                    Some(())
                })??;
            }
            _ => return None,
        }
        Some(())
    }
}
