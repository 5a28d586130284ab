//! Numbers that loops add to and any thread may sum up: each loop has a page of its own, so
//! counting needs no synchronisation, and a page that is given back is added to the total.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `N` sums over all pages, including pages given back. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<const N: usize>(Arc<Mutex<Books<N>>>);

#[derive(Debug)]
struct Books<const N: usize> {
    /// The counters of pages that have been given back. The threads engine has a page for each
    /// connection, so they cannot be kept.
    settled: [u64; N],
    open: Vec<Arc<Cells<N>>>,
}

/// Aligned so that no two loops write to one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Cells<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Ledger<N> {
    fn default() -> Ledger<N> {
        Ledger(Arc::new(Mutex::new(Books {
            settled: [0; N],
            open: Vec::new(),
        })))
    }
}

impl<const N: usize> Ledger<N> {
    /// A page for one loop.
    pub(crate) fn page(&self) -> Page<N> {
        let cells = Arc::new(Cells(std::array::from_fn(|_| AtomicU64::new(0))));
        self.books().open.push(cells.clone());
        Page {
            cells,
            of: self.clone(),
        }
    }

    /// The sums now.
    pub(crate) fn sums(&self) -> [u64; N] {
        let books = self.books();
        let mut sums = books.settled;
        for cells in &books.open {
            cells.add_to(&mut sums);
        }
        sums
    }

    fn books(&self) -> MutexGuard<'_, Books<N>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize> Cells<N> {
    fn add_to(&self, sums: &mut [u64; N]) {
        for (sum, cell) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(cell.load(Relaxed));
        }
    }
}

/// The page of one loop, its only writer.
#[derive(Debug)]
pub(crate) struct Page<const N: usize> {
    cells: Arc<Cells<N>>,
    of: Ledger<N>,
}

impl<const N: usize> Page<N> {
    /// Adds to sum number `at`.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, n: u64) {
        // Not a read-modify-write: `&mut self` makes this the only writer.
        let cell = &self.cells.0[at];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

impl<const N: usize> Drop for Page<N> {
    fn drop(&mut self) {
        let mut books = self.of.books();
        self.cells.add_to(&mut books.settled);
        books.open.retain(|c| !Arc::ptr_eq(c, &self.cells));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_while_open_and_after() {
        let ledger = Ledger::<2>::default();
        let (mut a, mut b) = (ledger.page(), ledger.page());
        a.add(0, 3);
        b.add(0, 4);
        b.add(1, 5);
        assert_eq!(ledger.sums(), [7, 5]);
        drop(b);
        a.add(1, 1);
        assert_eq!(ledger.sums(), [7, 6]);
        drop(a);
        assert_eq!(ledger.sums(), [7, 6]);
        assert_eq!(ledger.books().open.len(), 0);
    }
}
