//! What an allocation really takes: the block that the process's allocator gives for it.
//!
//! The store counts memory itself, so that `maxmemory` holds without asking the allocator about each
//! pointer. Allocators serve sizes in classes; a value of 1,056 bytes may take 1,280. This library
//! does not choose the allocator, so the program that does says which one it is with [`set`].

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// An allocator whose size classes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Allocator {
    /// The GNU C library's, Rust's default on Linux: 16 bytes apart, with eight of its own in each.
    Glibc,
    /// mimalloc 2 or 3: 16 bytes apart up to 64, then four classes to each doubling.
    Mimalloc,
}

impl Allocator {
    /// Its name, as INFO shows it under `mem_allocator`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Glibc => "libc",
            Allocator::Mimalloc => "mimalloc",
        }
    }

    /// Bytes of memory of the block that is given for `size` bytes; none for none.
    #[inline]
    #[must_use]
    pub fn block(self, size: usize) -> usize {
        match self {
            _ if size == 0 => 0,
            Allocator::Glibc => ((size + 8 + 15) & !15).max(32),
            Allocator::Mimalloc => mimalloc_block(size),
        }
    }
}

/// The largest block of a class; longer ones are whole pages.
const MIMALLOC_CLASSED: usize = 64 << 10;
/// Bytes of a page of memory.
const PAGE: usize = 4096;

#[inline]
fn mimalloc_block(size: usize) -> usize {
    if size <= 8 {
        8
    } else if size <= 64 {
        (size + 15) & !15
    } else if size <= MIMALLOC_CLASSED {
        // A quarter of the power of two below.
        let step = 1 << ((size - 1).ilog2() - 2);
        (size + step - 1) & !(step - 1)
    } else {
        (size + PAGE - 1) & !(PAGE - 1)
    }
}

/// The allocator of the process.
static ALLOCATOR: AtomicU8 = AtomicU8::new(Allocator::Glibc as u8);

/// Says which allocator the process has. To be called before anything is stored: what was counted
/// for one and freed for the other would not come out even.
pub fn set(allocator: Allocator) {
    ALLOCATOR.store(allocator as u8, Relaxed);
}

/// The allocator of the process; [`Allocator::Glibc`] unless [`set`].
#[inline]
#[must_use]
pub fn current() -> Allocator {
    if ALLOCATOR.load(Relaxed) == Allocator::Mimalloc as u8 {
        Allocator::Mimalloc
    } else {
        Allocator::Glibc
    }
}

/// [`Allocator::block`] of the process's allocator.
#[inline]
pub(crate) fn block(size: usize) -> usize {
    current().block(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_both() {
        let sizes = [
            0, 1, 8, 9, 24, 25, 40, 64, 65, 96, 97, 1056, 4096, 4097, 65_537,
        ];
        let glibc = [
            0, 32, 32, 32, 32, 48, 48, 80, 80, 112, 112, 1072, 4112, 4112, 65_552,
        ];
        let mimalloc = [
            0, 8, 8, 16, 32, 32, 48, 64, 80, 96, 112, 1280, 4096, 5120, 69_632,
        ];
        assert_eq!(sizes.map(|n| Allocator::Glibc.block(n)), glibc);
        assert_eq!(sizes.map(|n| Allocator::Mimalloc.block(n)), mimalloc);
    }
}
