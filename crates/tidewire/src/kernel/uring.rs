//! io_uring: the ring of this machine's kernel, and groups of receive buffers passed through a ring
//! in shared memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, EnterFlags, IoUring, Probe, SubmissionQueue, Submitter};
use io_uring::{opcode, squeue};

use crate::kernel::calls::Behind;
use crate::kernel::linux::Linux;
use crate::kernel::queues::{Buffers, Done, Once, Operation, Queues, Target};

/// `IORING_RECVSEND_POLL_FIRST`: expect to wait, do not try at once.
const POLL_FIRST: u16 = 1;
const PAGE: usize = 4096;
/// Makes a close send a reset. The kernel may read it at any time.
static RESET: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};

/// How large the queues are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Operations queued before they must be handed over. A power of two.
    pub(crate) submissions: u32,
    /// Completions that fit before the kernel has to keep them elsewhere. A power of two.
    pub(crate) completions: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            submissions: 1024,
            // One turn may complete several operations of each connection.
            completions: 8192,
        }
    }
}

/// Makes a ring. To be called on the thread that will use it.
pub(crate) fn build(sizes: Sizes) -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        // Completions are worked on when the loop asks for them, not whenever an interrupt comes.
        .setup_defer_taskrun()
        // A flag in shared memory tells that there are some: busy-polling needs no system call.
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(sizes.completions)
        .build(sizes.submissions)?;
    let have = ring.params();
    // All these features are older than the flags above; a kernel that lacks one of them is not a
    // Linux that we know.
    for (there, name) in [
        (have.is_feature_nodrop(), "NODROP"),
        (have.is_feature_submit_stable(), "SUBMIT_STABLE"),
        (have.is_feature_ext_arg(), "EXT_ARG"),
        (have.is_feature_fast_poll(), "FAST_POLL"),
    ] {
        if !there {
            let what = format!("the kernel's io_uring lacks {name}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
    }
    Ok(ring)
}

pub(crate) struct Uring<'r> {
    submitter: Submitter<'r>,
    queue: SubmissionQueue<'r>,
    completions: CompletionQueue<'r>,
}

impl<'r> Uring<'r> {
    pub(crate) fn new(ring: &'r mut IoUring) -> Uring<'r> {
        let (mut submitter, queue, completions) = ring.split();
        // Spares a look-up with each call; works as well without.
        if let Err(e) = submitter.register_ring_fd() {
            tracing::debug!(error = %e, "cannot register the ring's own descriptor");
        }
        Uring {
            submitter,
            queue,
            completions,
        }
    }
}

/// Builds an entry on a descriptor, or on a place in the table.
macro_rules! on {
    ($target:expr, $of:ident => $entry:expr) => {
        match $target {
            Target::Number(number) => {
                let $of = Fd(number);
                $entry
            }
            Target::Place(place) => {
                let $of = Fixed(place);
                $entry
            }
        }
    };
}

#[inline]
fn send_flags(behind: Behind) -> i32 {
    match behind {
        Behind::Nothing => libc::MSG_NOSIGNAL,
        Behind::More => libc::MSG_NOSIGNAL | libc::MSG_MORE,
    }
}

#[inline(always)]
fn entry(operation: Operation) -> squeue::Entry {
    match operation {
        // The sockets are left blocking: io_uring would report "try again" on others instead of
        // waiting.
        Operation::Accept { listener } => opcode::AcceptMulti::new(Fd(listener))
            .flags(libc::SOCK_CLOEXEC)
            .build(),
        Operation::ReceiveMany {
            socket,
            group,
            share,
        } => on!(socket, of => opcode::RecvMulti::new(of, group).len(share).build()),
        Operation::ReceiveOnce { socket, group, how } => {
            // No address and no length: both are the buffer's that the kernel picks.
            let none = std::ptr::null_mut();
            let entry = on!(socket, of => opcode::Recv::new(of, none, 0)).buf_group(group);
            let entry = match how {
                Once::Now => entry,
                Once::Later => entry.ioprio(POLL_FIRST),
                Once::OrNot => entry.flags(libc::MSG_DONTWAIT),
            };
            entry.build().flags(squeue::Flags::BUFFER_SELECT)
        }
        Operation::Send {
            socket,
            from,
            len,
            behind,
        } => on!(socket, of => opcode::Send::new(of, from, len))
            .flags(send_flags(behind))
            .build(),
        Operation::SendSeveral {
            socket,
            header,
            behind,
        } => on!(socket, of => opcode::SendMsg::new(of, header))
            .flags(send_flags(behind) as u32)
            .build(),
        Operation::Poll { fd, events, multi } => {
            on!(fd, of => opcode::PollAdd::new(of, events as u16 as u32))
                .multi(multi)
                .build()
        }
        Operation::Cancel { user_data } => {
            opcode::AsyncCancel2::new(CancelBuilder::user_data(user_data)).build()
        }
        Operation::CancelAllOf { fd } => {
            opcode::AsyncCancel2::new(on!(fd, of => CancelBuilder::fd(of)).all()).build()
        }
        Operation::Install { place } => {
            // The descriptor is closed on exec, as descriptors of the ring are by default.
            opcode::FixedFdInstall::new(Fixed(place), 0).build()
        }
        Operation::ShutWrite { socket } => {
            on!(socket, of => opcode::Shutdown::new(of, libc::SHUT_WR)).build()
        }
        Operation::ResetOnClose { socket } => {
            let (level, name) = (libc::SOL_SOCKET as u32, libc::SO_LINGER as u32);
            let (value, len) = ((&raw const RESET).cast(), size_of_val(&RESET) as u32);
            on!(socket, of => opcode::SetSockOpt::new(of, level, name, value, len)).build()
        }
        Operation::CancelAll => opcode::AsyncCancel2::new(CancelBuilder::any()).build(),
    }
}

impl Queues for Uring<'_> {
    type Sys = Linux;
    type Buffers = SharedBuffers;

    #[inline]
    fn sys(&self) -> &Linux {
        &Linux
    }

    #[inline(always)]
    unsafe fn push(&mut self, operation: Operation, user_data: u64) -> bool {
        let entry = entry(operation).user_data(user_data);
        // SAFETY: the caller answers for the memory that the entry points at. Descriptors may be
        // wrong without harm to memory.
        unsafe { self.queue.push(&entry) }.is_ok()
    }

    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.queue.sync();
        let queued = self.queue.len() as u32;
        let mut flags = EnterFlags::GETEVENTS;
        let timespec;
        let mut args = SubmitArgs::new();
        let want = match timeout {
            Some(Duration::ZERO) => 0,
            None => 1,
            Some(t) => {
                timespec = Timespec::new()
                    .sec(t.as_secs().min(1 << 30))
                    .nsec(t.subsec_nanos());
                args = args.timespec(&timespec);
                flags |= EnterFlags::EXT_ARG;
                1
            }
        };
        let args = flags.contains(EnterFlags::EXT_ARG).then_some(&args);
        // SAFETY: the flags fit the argument, which lives until the call returns; with EXT_ARG its
        // size is that of `SubmitArgs`, else there is none.
        let entered = unsafe { self.submitter.enter(queued, want, flags.bits(), args) };
        self.queue.sync();
        match entered.map_err(|e| (e.raw_os_error(), e)) {
            Ok(_) => Ok(()),
            // Interrupted, timed out, or completions have to be taken first.
            Err((Some(libc::EINTR | libc::ETIME | libc::EBUSY), _)) => Ok(()),
            Err((_, e)) => Err(e),
        }
    }

    #[inline]
    fn look(&mut self) -> bool {
        let overflowed = self.queue.cq_overflow();
        self.completions.sync();
        overflowed
    }

    #[inline]
    fn pop(&mut self) -> Option<Done> {
        let entry = self.completions.next()?;
        Some(Done {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        })
    }

    #[inline]
    fn popped(&mut self) {
        self.completions.sync();
    }

    fn has_news(&mut self) -> bool {
        self.completions.sync();
        !self.completions.is_empty() || self.queue.taskrun()
    }

    fn make_table(&mut self, places: u32) -> io::Result<()> {
        let mut probe = Probe::new();
        self.submitter.register_probe(&mut probe)?;
        if !probe.is_supported(opcode::FixedFdInstall::CODE) {
            let what = "direct descriptors need Linux 6.8 or newer";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        self.submitter.register_files_sparse(places)
    }

    fn put(&mut self, place: u32, fd: &OwnedFd) -> io::Result<()> {
        let put = [fd.as_raw_fd()];
        self.submitter.register_files_update(place, &put).map(drop)
    }

    fn take_out(&mut self, place: u32) {
        if let Err(e) = self.submitter.register_files_update(place, &[-1]) {
            tracing::error!(place, error = %e, "a socket stays open in the table of its ring");
        }
    }

    unsafe fn accepted(&self, number: RawFd) -> OwnedFd {
        // SAFETY: the accept has just made this descriptor, and the caller takes it this once.
        unsafe { OwnedFd::from_raw_fd(number) }
    }

    fn register(&self, id: u16, size: u16) -> io::Result<SharedBuffers> {
        let pages = (usize::from(size) * size_of::<BufRingEntry>()).div_ceil(PAGE);
        let mut entries = vec![Page([0; PAGE]); pages].into_boxed_slice();
        // SAFETY: the entries are page-aligned, have room for `size` of them, and live until
        // `unregister`, or for ever if that is not called (`Drop`).
        unsafe {
            let at = entries.as_mut_ptr() as u64;
            self.submitter
                .register_buf_ring_with_flags(at, size, id, 0)?;
        }
        Ok(SharedBuffers {
            id,
            entries,
            size,
            tail: 0,
        })
    }

    fn unregister(&self, mut buffers: SharedBuffers) -> io::Result<()> {
        self.submitter.unregister_buf_ring(buffers.id)?;
        buffers.entries = Box::default();
        Ok(())
    }
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// A group's ring in shared memory.
pub(crate) struct SharedBuffers {
    id: u16,
    /// Entries of the ring. The kernel reads them until the group is unregistered.
    entries: Box<[Page]>,
    /// Entries there are room for, a power of two.
    size: u16,
    tail: u16,
}

impl Buffers for SharedBuffers {
    #[inline]
    unsafe fn give(&mut self, id: u16, start: *mut u8, len: u32) {
        let at = usize::from(self.tail & (self.size - 1));
        let entries: *mut BufRingEntry = self.entries.as_mut_ptr().cast();
        // SAFETY: `at` is inside the ring. The kernel reads no entry at or after the published
        // tail, and writes none; the tail is a field that this write does not touch.
        let entry = unsafe { &mut *entries.add(at) };
        entry.set_addr(start as u64);
        entry.set_len(len);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    fn publish(&mut self) {
        let entries: *mut BufRingEntry = self.entries.as_mut_ptr().cast();
        // SAFETY: the tail is two aligned bytes in the first entry, alive as long as the ring; the
        // kernel only reads them, so an atomic store is all the synchronisation there is.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// A group that is still registered leaves its memory to the kernel.
impl Drop for SharedBuffers {
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.entries));
    }
}
