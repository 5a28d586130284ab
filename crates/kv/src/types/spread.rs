//! Collections that are a table once they are large, and are written down as they were at a moment while they change.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frozen::Piece;

/// A collection that is snapshotted in pieces. In its small form the collection is no table, and is
/// written at once.
pub(crate) trait Spread {
    /// The collection as a table, if it is one.
    fn table(&self) -> Option<&dyn Freeze>;
    fn table_mut(&mut self) -> Option<&mut dyn Freeze>;

    /// Whether the collection is in a form that can be [frozen](Freeze::freeze).
    fn is_spread(&self) -> bool {
        self.table().is_some()
    }

    /// Has the collection snapshotted as it is now, whatever happens to it later.
    fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        if let Some(table) = self.table_mut() {
            table.freeze(id, queued);
        }
    }

    fn frozen_id(&self) -> Option<u64> {
        self.table()?.frozen_id()
    }

    /// Hands out the collection as it was when it was frozen, about `most` bytes of it; returns
    /// whether that is all.
    fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        self.table_mut().is_none_or(|table| table.thaw(most, to))
    }
}

/// A table, whatever its elements are.
pub(crate) trait Freeze {
    /// Has the collection snapshotted as it is now, whatever happens to it later:
    /// [`thaw`](Freeze::thaw) hands out its pieces.
    fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>);
    fn frozen_id(&self) -> Option<u64>;
    /// Hands out the collection as it was when it was frozen, about `most` bytes of it; returns
    /// whether that is all.
    fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool;
}
