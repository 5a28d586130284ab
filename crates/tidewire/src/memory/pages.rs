//! Memory straight from the kernel. The memory comes untouched, costs nothing until it is used, and
//! goes back to the kernel on drop. The allocator guarantees none of these: it may serve a later
//! request from its own heap, clear memory by writing all of it, and keep memory for ever.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;

/// Zeroed bytes, page-aligned.
pub(crate) struct Pages {
    start: NonNull<Cell<u8>>,
    len: usize,
}

impl Pages {
    /// # Panics
    /// If the kernel has no address space left, as with any other allocation.
    pub(crate) fn new(len: usize) -> Pages {
        assert!(len > 0);
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that
        // exists.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        assert!(
            at != libc::MAP_FAILED,
            "cannot map {len} bytes of receive buffers: {}",
            std::io::Error::last_os_error()
        );
        Pages {
            start: NonNull::new(at.cast()).expect("the kernel never maps address 0 unasked"),
            len,
        }
    }
}

impl Deref for Pages {
    type Target = [Cell<u8>];

    #[inline]
    fn deref(&self) -> &[Cell<u8>] {
        // SAFETY: the mapping is `len` bytes long, initialised (to zero) by the kernel, and lives as
        // long as `self`. `Cell<u8>` has the layout of `u8` and permits writing through the slice.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the very mapping that `new` made, and no code can look at it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_zeroed_and_are_writable() {
        // Each byte that Miri looks at takes microseconds.
        let large = if cfg!(miri) { 16 << 10 } else { 1 << 20 };
        for len in [1, 4096, large] {
            let pages = Pages::new(len);
            assert_eq!(pages.len(), len);
            assert!(pages.iter().all(|b| b.get() == 0));
            pages[len - 1].set(7);
            assert_eq!(pages[len - 1].get(), 7);
        }
    }
}
