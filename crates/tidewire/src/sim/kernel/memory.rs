//! Memory that programs lend the kernel: the only place where the simulation follows a pointer.
//!
//! Lent memory is valid until the operation has completed, by the contract of
//! [`Queues::push`](crate::kernel::queues::Queues::push) and
//! [`Buffers::give`](crate::kernel::queues::Buffers::give). The simulation looks for programs that
//! break this contract, so it checks before it touches the memory: see
//! [`Kernel::wrong`](super::Kernel::wrong).

use std::slice;

/// The byte that fills a receive buffer while nothing was received into it.
const POISON: u8 = 0xdb;
static POISONED: [u8; 4096] = [POISON; 4096];

/// A receive buffer that was given to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    pub(super) id: u16,
    start: *mut u8,
    pub(super) len: usize,
}

impl Lent {
    /// # Safety
    /// As for [`Buffers::give`](crate::kernel::queues::Buffers::give).
    pub(super) unsafe fn new(id: u16, start: *mut u8, len: u32) -> Lent {
        let lent = Lent {
            id,
            start,
            len: len as usize,
        };
        // SAFETY: the caller's promise, which gave the memory.
        unsafe { start.write_bytes(POISON, lent.len) };
        lent
    }

    /// The buffer while the kernel writes into it.
    pub(super) fn space(&mut self) -> &mut [u8] {
        // SAFETY: from `new` on the memory belongs to the kernel, until a completion gives it back;
        // this is called before that.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Whether nothing was written into it since it was given.
    pub(super) fn is_untouched(&mut self) -> bool {
        let all = self.space().chunks(POISONED.len());
        all.fold(true, |same, part| same & (*part == POISONED[..part.len()]))
    }
}

/// Bytes that an operation sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    from: *const u8,
    len: usize,
}

impl Sent {
    /// # Safety
    /// The bytes stay valid until the operation has completed.
    pub(super) unsafe fn new(from: *const u8, len: usize) -> Sent {
        Sent { from, len }
    }

    /// The slices that a message header points at.
    ///
    /// # Safety
    /// The header and its slices must be valid now, and the memory that they point at until the
    /// operation has completed.
    pub(super) unsafe fn gathered(header: *const libc::msghdr) -> Vec<Sent> {
        // SAFETY: the caller's.
        let slices = unsafe {
            let header = &*header;
            slice::from_raw_parts(header.msg_iov, header.msg_iovlen as _)
        };
        let sent = |slice: &libc::iovec| Sent {
            from: slice.iov_base.cast(),
            len: slice.iov_len,
        };
        slices.iter().map(sent).collect()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: promised to `new` or `gathered`, and looked at only before completion.
        unsafe { slice::from_raw_parts(self.from, self.len) }
    }
}
