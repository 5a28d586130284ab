//! Streams: entries in the order of their ids, and groups of consumers that read them.
//!
//! The one idea: entries are only ever added at the end, so they are packed into [blocks](block). A full
//! block is closed, and found by its first id. The entries that a group has delivered are kept beside the
//! blocks, [in chunks](ordered).

mod block;
mod entries;
mod group;
mod id;
mod image;
mod number;
mod ordered;
mod part;
mod telling;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

pub use block::Item;
pub use entries::{Entries, Trim};
pub use group::{Consumer, Group, Pending};
pub use id::{IdText, StreamId};

use super::frozen::Piece;
use crate::allocator::block;
use group::{Groups, tree};
use telling::Telling;

/// Entries and groups.
#[derive(Debug, Default)]
pub struct Stream {
    /// The entries.
    pub entries: Entries,
    groups: Option<Arc<Groups>>,
    /// Bytes of memory of the groups, the map not included.
    groups_heap: usize,
    /// Set while a snapshot writes the stream down as it was.
    telling: Option<Box<Telling>>,
}

/// A copy is another stream, which no snapshot writes down.
impl Clone for Stream {
    fn clone(&self) -> Stream {
        // A copy does not share its groups either: what is counted for both is there twice.
        let mut groups_heap = 0;
        let groups = self.groups.as_ref().map(|groups| {
            let own = groups.iter().map(|(name, group)| {
                let group = Group::clone(group);
                groups_heap += block(name.len()) + group.heap();
                (name.clone(), Arc::new(group))
            });
            Arc::new(own.collect())
        });
        Stream {
            entries: self.entries.clone(),
            groups,
            groups_heap,
            telling: None,
        }
    }
}

impl Stream {
    /// Bytes of memory, as the allocator gives it; takes the same time whatever the length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let map = self.groups.as_ref().map_or(0, |groups| {
            block(size_of::<Groups>() + 16)
                + tree(groups.len(), size_of::<(Box<[u8]>, Arc<Group>)>())
        });
        block(size_of::<Stream>()) + self.entries.heap() + map + self.groups_heap
    }

    /// Allocations to be handed back when it is freed, about.
    pub(crate) fn allocations(&self) -> usize {
        let groups = self.groups.iter().flat_map(|groups| groups.values());
        // A few groups show whether freeing takes long.
        let groups = groups.take(64).map(|group| 4 + group.allocations());
        self.entries.blocks() + groups.sum::<usize>()
    }

    /// The groups by name, in that order.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        let all = self.groups.iter().flat_map(|groups| groups.iter());
        all.map(|(name, group)| (&**name, &**group))
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups_len(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.len())
    }

    /// A group.
    #[must_use]
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.as_ref()?.get(name).map(|group| &**group)
    }

    /// Makes a group that goes on behind `last`; false if there is one of that name.
    pub fn create_group(&mut self, name: &[u8], last: StreamId, read: Option<u64>) -> bool {
        if self.group(name).is_some() {
            return false;
        }
        let mut group = Group::default();
        group.set(last, read);
        self.groups_heap += block(name.len()) + group.heap();
        let groups = self.groups.get_or_insert_default();
        Arc::make_mut(groups).insert(name.into(), Arc::new(group));
        true
    }

    /// Changes a group, if there is one.
    pub fn change_group<R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&Entries, &mut Group) -> R,
    ) -> Option<R> {
        let group = Arc::make_mut(self.groups.as_mut()?).get_mut(name)?;
        // A copy of the groups, if this is one, takes less memory.
        let before = group.heap();
        let group = Arc::make_mut(group);
        let result = change(&self.entries, group);
        self.groups_heap = self.groups_heap + group.heap() - before;
        Some(result)
    }

    /// Removes a group; whether there was one.
    pub fn destroy_group(&mut self, name: &[u8]) -> bool {
        let Some(groups) = &mut self.groups else {
            return false;
        };
        let Some(group) = Arc::make_mut(groups).remove(name) else {
            return false;
        };
        self.groups_heap -= block(name.len()) + group.heap();
        if groups.is_empty() {
            self.groups = None;
        }
        true
    }

    /// Goes on with other numbers than its entries tell; `None` for what stays.
    pub fn set(&mut self, last: StreamId, added: Option<u64>, max_deleted: Option<StreamId>) {
        self.entries.last_id = last;
        self.entries.added = added.unwrap_or(self.entries.added);
        self.entries.max_deleted = max_deleted.unwrap_or(self.entries.max_deleted);
    }

    /// Has the stream snapshotted as it is now, whatever happens to it later. Takes a step for each
    /// block.
    pub(crate) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        self.telling = Some(Box::new(Telling::new(&self.entries, self.groups.as_ref())));
        self.entries.freeze(id, queued);
    }

    pub(crate) fn frozen_id(&self) -> Option<u64> {
        let numbered = self.entries.numbered.as_ref();
        numbered.map(|numbered| numbered.frozen.id)
    }

    /// Hands out the stream as it was when it was frozen, about `most` bytes of it; returns whether
    /// that is all.
    pub(crate) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        if let Some(telling) = &mut self.telling {
            if telling.thaw(most, to) {
                self.telling = None;
            }
            return false;
        }
        self.entries.thaw(most, to)
    }

    /// Frees up to about `most` elements of a stream that is not used any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        let freed = self.entries.free_some(most);
        let Some(groups) = self.groups.as_mut().filter(|_| freed < most) else {
            return freed;
        };
        // The snapshot that shares the groups frees them.
        let Some(groups) = Arc::get_mut(groups) else {
            return freed;
        };
        let mut freed = freed;
        while freed < most
            && let Some(mut first) = groups.first_entry()
        {
            let more = Arc::get_mut(first.get_mut()).map_or(0, |group| {
                let before = group.heap();
                let more = group.free_some(most - freed);
                self.groups_heap = self.groups_heap + group.heap() - before;
                more
            });
            freed += more;
            if more == 0 {
                let (name, group) = first.remove_entry();
                self.groups_heap -= block(name.len()) + group.heap();
                freed += 1;
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests;
