//! The real size of an allocation: the block that the process's allocator gives for the request.
//!
//! The store counts memory itself, so that `maxmemory` holds without asking the allocator about each
//! pointer. Allocators serve sizes in classes; a value of 1,056 bytes may take 1,280. This library
//! does not choose the allocator, so the program tells it with [`set`] which allocator it uses.

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
    /// Name of the allocator, as INFO shows it under `mem_allocator`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Glibc => "libc",
            Allocator::Mimalloc => "mimalloc",
        }
    }

    /// Bytes of memory that the allocator takes for a block of `size` bytes aligned to `align`; 0 for
    /// a size of 0.
    #[inline]
    #[must_use]
    pub fn block(self, size: usize, align: usize) -> usize {
        match self {
            _ if size == 0 => 0,
            Allocator::Glibc => ((size + 8 + 15) & !15).max(32),
            Allocator::Mimalloc => mimalloc_block(size, align),
        }
    }
}

/// Has the allocator return memory to the system that was freed some time ago. The allocator looks for such memory only
/// when it is asked for a large block; an idle server never asks for one.
pub(crate) fn give_back() {
    // More than the largest block of a class.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(
        4 * MIMALLOC_CLASSED,
    )));
}

/// The longest size that is small: its class is aligned as it is.
const MIMALLOC_SMALL: usize = 1024;
/// The longest class of a power of two that is aligned as it is.
const MIMALLOC_ALIGNED: usize = 4096;
/// The largest block of a class; longer ones are whole slices, and one more for their header.
const MIMALLOC_CLASSED: usize = 512 << 10;
const MIMALLOC_SLICE: usize = 64 << 10;

#[inline]
fn mimalloc_block(size: usize, align: usize) -> usize {
    if size <= 8 {
        8
    } else if size <= 64 {
        (size + 15) & !15
    } else if size <= MIMALLOC_CLASSED {
        let class = mimalloc_class(size);
        let aligned = align == 1
            || size <= MIMALLOC_SMALL
            || (class <= MIMALLOC_ALIGNED && class.is_power_of_two());
        if aligned {
            class
        } else {
            // The block has room to align the value, even where the value would have been aligned
            // anyway.
            mimalloc_class(size + align - 1)
        }
    } else {
        (size.div_ceil(MIMALLOC_SLICE) + 1) * MIMALLOC_SLICE
    }
}

/// The class of a size above 64: four to a doubling.
#[inline]
fn mimalloc_class(size: usize) -> usize {
    let step = 1 << ((size - 1).ilog2() - 2);
    (size + step - 1) & !(step - 1)
}

/// The allocator of the process.
static ALLOCATOR: AtomicU8 = AtomicU8::new(Allocator::Glibc as u8);

/// Sets which allocator the process has. Call this before anything is stored: a value that is
/// counted for one allocator and freed for the other would make the sum wrong.
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

/// Bytes of memory of a block of bytes from the process's allocator.
#[inline]
pub(crate) fn block(size: usize) -> usize {
    current().block(size, 1)
}

/// The most bytes that take no more memory than `size` do.
#[inline]
pub(crate) fn fitting(size: usize) -> usize {
    match current() {
        _ if size == 0 => 0,
        // Eight bytes of a block are the library's.
        Allocator::Glibc => block(size) - 8,
        // Longer blocks are whole pages, together with the allocator's own data.
        Allocator::Mimalloc if size > MIMALLOC_CLASSED => size,
        Allocator::Mimalloc => block(size),
    }
}

/// Like [`fitting`], for a block that may grow again. The block gets a few more bytes where sizes are
/// so close together that growing a byte at a time would copy the block nearly each time.
#[inline]
pub(crate) fn growing(size: usize) -> usize {
    match current() {
        Allocator::Glibc => fitting(size + size / 16),
        Allocator::Mimalloc => fitting(size),
    }
}

/// Bytes of memory of a block of `n` elements from the process's allocator.
#[inline]
pub(crate) fn block_of<T>(n: usize) -> usize {
    current().block(n * size_of::<T>(), align_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_both() {
        let sizes = [
            0, 1, 8, 9, 24, 25, 40, 64, 65, 96, 97, 1056, 4096, 4097, 65_537, 600_000,
        ];
        let glibc = [
            0, 32, 32, 32, 32, 48, 48, 80, 80, 112, 112, 1072, 4112, 4112, 65_552, 600_016,
        ];
        let mimalloc = [
            0, 8, 8, 16, 32, 32, 48, 64, 80, 96, 112, 1280, 4096, 5120, 81_920, 720_896,
        ];
        assert_eq!(sizes.map(|n| Allocator::Glibc.block(n, 1)), glibc);
        assert_eq!(sizes.map(|n| Allocator::Mimalloc.block(n, 1)), mimalloc);
    }

    #[test]
    fn what_fits_takes_no_more() {
        for size in (0..5000).chain([1 << 19, 1 << 20, 12_345_678]) {
            let most = fitting(size);
            assert!(most >= size && block(most) == block(size), "{size}");
        }
    }

    #[test]
    fn mimalloc_makes_room_to_align_what_is_not_small() {
        let sizes = [96, 1024, 2048, 3072, 4080, 4096, 6144, 16_384];
        let blocks = [96, 1024, 2048, 3584, 4096, 4096, 7168, 20_480];
        assert_eq!(sizes.map(|n| Allocator::Mimalloc.block(n, 8)), blocks);
    }
}
