//! Groups of consumers: how far they have read, and what each has been given and not acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entries::Entries;
use super::id::StreamId;
use super::ordered::{Keyed, Ordered};
use crate::allocator::{block, block_of};

/// The groups of a stream by their names. Each is shared with a snapshot that writes it down, and
/// copied when it changes meanwhile.
pub(super) type Groups = BTreeMap<Box<[u8]>, Arc<Group>>;

/// An entry that a consumer was given and has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Id of the entry.
    pub id: StreamId,
    /// The time at which the entry was last delivered: milliseconds since 1970.
    pub delivered_ms: u64,
    /// How many times the entry was delivered.
    pub count: u64,
    /// The number of the consumer.
    pub consumer: u32,
}

impl Keyed for Pending {
    fn id(&self) -> StreamId {
        self.id
    }
}

/// A consumer that reads.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    /// The times of the consumer's last request and of its last entry: milliseconds since 1970.
    pub(super) seen_ms: u64,
    pub(super) active_ms: Option<u64>,
    pending: Ordered<StreamId>,
}

impl Consumer {
    /// Name of the consumer.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The time of the consumer's last request: milliseconds since 1970.
    #[must_use]
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms
    }

    /// The time at which the consumer was last given an entry, if ever: milliseconds since 1970.
    #[must_use]
    pub fn active_ms(&self) -> Option<u64> {
        self.active_ms
    }

    /// How many entries the consumer has not acknowledged.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Ids of pending entries, from this one on.
    pub fn pending_from(&self, id: StreamId) -> impl Iterator<Item = StreamId> {
        self.pending.from(id).copied()
    }
}

/// A group of consumers.
#[derive(Debug, Default)]
pub struct Group {
    /// The last entry that was delivered to a consumer.
    pub(super) last: StreamId,
    /// How many entries had been added then, if it is known.
    pub(super) read: Option<u64>,
    pending: Ordered<Pending>,
    names: BTreeMap<Box<[u8]>, u32>,
    /// The consumers by their numbers.
    consumers: Vec<Option<Consumer>>,
    free: Vec<u32>,
    /// Bytes of memory of the consumers, the vector not included.
    heap: usize,
}

/// A copy has no room to spare, so it takes less.
impl Clone for Group {
    fn clone(&self) -> Group {
        let consumers = self.consumers.clone();
        Group {
            last: self.last,
            read: self.read,
            pending: self.pending.clone(),
            names: self.names.clone(),
            heap: consumers.iter().flatten().map(heap_of).sum(),
            consumers,
            free: self.free.clone(),
        }
    }
}

/// Bytes of memory of a tree of so many pairs of this size, about.
pub(super) fn tree(pairs: usize, size: usize) -> usize {
    // Eleven fit a node; one that grew at its end is half full.
    let nodes = match pairs {
        0 => 0,
        1..=11 => 1,
        _ => pairs.div_ceil(7),
    };
    nodes * block(11 * size + 16)
}

fn heap_of(consumer: &Consumer) -> usize {
    2 * block(consumer.name.len()) + consumer.pending.heap()
}

impl Group {
    /// Bytes of memory, as far as they do not come with the map that it is in.
    pub(super) fn heap(&self) -> usize {
        block(size_of::<Group>() + 16)
            + self.pending.heap()
            + tree(self.names.len(), size_of::<(Box<[u8]>, u32)>())
            + block_of::<Option<Consumer>>(self.consumers.capacity())
            + block_of::<u32>(self.free.capacity())
            + self.heap
    }

    /// Allocations, about.
    pub(super) fn allocations(&self) -> usize {
        self.pending.chunks() + 4 * self.names.len()
    }

    /// The last entry that was delivered to a consumer.
    #[must_use]
    pub fn last(&self) -> StreamId {
        self.last
    }

    /// How many entries had been added to the stream when the last delivered one was, if it is
    /// known.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        self.read
    }

    /// Moves the group to behind this id.
    pub fn set(&mut self, last: StreamId, read: Option<u64>) {
        (self.last, self.read) = (last, read);
    }

    /// Moves the group on behind this id, if the group is not further on already.
    pub fn skip_to(&mut self, last: StreamId) {
        self.last = self.last.max(last);
    }

    /// How many entries were read, if that goes on by one with each.
    fn counted(&self, entries: &Entries) -> Option<u64> {
        self.read.filter(|_| !entries.has_gaps_from(self.last))
    }

    /// Notes that the entry of this id was delivered.
    pub fn advance(&mut self, entries: &Entries, id: StreamId) {
        if id <= self.last {
            return;
        }
        // The counter of a group that stands before all entries may be wrong.
        let counted = self.counted(entries);
        if let Some(read) = counted.filter(|_| self.last >= entries.first_id()) {
            self.read = Some(read.saturating_add(1));
        } else if entries.added() > 0 {
            self.read = entries.added_up_to(id);
        }
        self.last = id;
    }

    /// How many entries are still to be given, if it can be told.
    #[must_use]
    pub fn lag(&self, entries: &Entries) -> Option<i64> {
        if entries.added() == 0 {
            return Some(0);
        }
        let read = match self.counted(entries) {
            Some(read) => read,
            None => entries.added_up_to(self.last)?,
        };
        Some((entries.added() as i64).wrapping_sub(read as i64))
    }

    /// How many consumers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        let numbers = self.names.values();
        numbers.filter_map(|number| self.consumers[*number as usize].as_ref())
    }

    /// The number of the consumer of this name.
    #[must_use]
    pub fn number(&self, name: &[u8]) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// The consumer of a number.
    #[must_use]
    pub fn consumer(&self, number: u32) -> Option<&Consumer> {
        self.consumers.get(number as usize)?.as_ref()
    }

    /// How many numbers there are: all are below.
    pub(super) fn numbers(&self) -> u32 {
        self.consumers.len() as u32
    }

    /// The number of the consumer of this name, which is made if there is none; and whether it was.
    pub fn enter(&mut self, name: &[u8], now_ms: u64) -> (u32, bool) {
        if let Some(number) = self.number(name) {
            return (number, false);
        }
        let consumer = Consumer {
            name: name.into(),
            seen_ms: now_ms,
            active_ms: None,
            pending: Ordered::default(),
        };
        self.heap += heap_of(&consumer);
        let number = self.free.pop().unwrap_or(self.consumers.len() as u32);
        match self.consumers.get_mut(number as usize) {
            Some(place) => *place = Some(consumer),
            None => self.consumers.push(Some(consumer)),
        }
        self.names.insert(name.into(), number);
        (number, true)
    }

    /// Notes a consumer's request, and whether it was given an entry.
    pub fn note(&mut self, number: u32, now_ms: u64, given: bool) {
        if let Some(consumer) = &mut self.consumers[number as usize] {
            consumer.seen_ms = now_ms;
            if given {
                consumer.active_ms = Some(now_ms);
            }
        }
    }

    /// When a consumer was last given something, as a dump says it.
    pub fn set_active(&mut self, number: u32, active_ms: Option<u64>) {
        if let Some(consumer) = &mut self.consumers[number as usize] {
            consumer.active_ms = active_ms;
        }
    }

    /// Removes a consumer with its pending entries; returns their number.
    pub fn dismiss(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.names.remove(name)?;
        let consumer = self.consumers[number as usize].take()?;
        self.heap -= heap_of(&consumer);
        self.free.push(number);
        for id in consumer.pending.from(StreamId::MIN) {
            self.pending.remove(*id);
        }
        Some(consumer.pending.len())
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut Ordered<StreamId>)) {
        if let Some(consumer) = &mut self.consumers[number as usize] {
            self.heap -= consumer.pending.heap();
            change(&mut consumer.pending);
            self.heap += consumer.pending.heap();
        }
    }

    /// How many entries are not acknowledged.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The first and the last pending entry.
    #[must_use]
    pub fn pending_ends(&self) -> Option<(StreamId, StreamId)> {
        Some((self.pending.first()?.id, self.pending.last()?.id))
    }

    /// Pending entries from this id on.
    pub fn pending_from(&self, id: StreamId) -> impl Iterator<Item = &Pending> {
        self.pending.from(id)
    }

    /// The delivery state of an entry that is not acknowledged.
    #[must_use]
    pub fn pending_of(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(id).copied()
    }

    /// Gives an entry to a consumer, whichever had it before.
    pub fn assign(&mut self, pending: Pending) {
        let Some(known) = self.pending.get_mut(pending.id) else {
            self.pending.insert(pending);
            self.change(pending.consumer, |ids| {
                ids.insert(pending.id);
            });
            return;
        };
        let before = std::mem::replace(known, pending).consumer;
        if before != pending.consumer {
            self.change(before, |ids| {
                ids.remove(pending.id);
            });
            self.change(pending.consumer, |ids| {
                ids.insert(pending.id);
            });
        }
    }

    /// Acknowledges an entry; returns whether the entry was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(id) else {
            return false;
        };
        self.change(pending.consumer, |ids| {
            ids.remove(id);
        });
        true
    }

    /// Frees up to about `most` elements of what is not used any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = self.pending.free_some(most);
        while freed < most
            && let Some(last) = self.consumers.last_mut()
        {
            let Some(consumer) = last else {
                self.consumers.pop();
                continue;
            };
            let more = consumer.pending.free_some(most - freed);
            freed += more;
            if more == 0 {
                self.names.remove(&consumer.name);
                self.consumers.pop();
                freed += 1;
            }
        }
        freed
    }
}
