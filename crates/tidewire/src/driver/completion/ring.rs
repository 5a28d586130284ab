//! One ring: operations in, completions out, one system call for both.
//!
//! The ring counts what is in flight. Memory that an operation points at must outlive it, so a
//! ring ends by taking everything back and waiting until nothing is left.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, EnterFlags, IoUring, SubmissionQueue, Submitter};
use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::driver::completion::token::{Kind, Token};
use crate::reactor::counters::LoopCounters;

/// `IORING_RECVSEND_POLL_FIRST`: expect to wait, do not try at once.
const POLL_FIRST: u16 = 1;

/// How large the queues are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Operations queued before they must be handed over. A power of two.
    pub(super) submissions: u32,
    /// Completions that fit before the kernel has to keep them elsewhere. A power of two.
    pub(super) completions: u32,
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
pub(super) fn build(sizes: Sizes) -> io::Result<IoUring> {
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
    // All of them older than the flags above; a kernel that lacks one is not Linux as we know it.
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

/// What has become of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) token: Token,
    /// What the call would have returned; negative: an error number.
    pub(super) result: i32,
    flags: u32,
}

impl Completion {
    /// Whether the operation goes on and will complete again.
    pub(super) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that was used.
    pub(super) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }

    /// Whether the socket held more than was received.
    pub(super) fn socket_has_more(&self) -> bool {
        cqueue::sock_nonempty(self.flags)
    }

    /// The error that the result means.
    pub(super) fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(-self.result)
    }

    pub(super) fn is(&self, error: Errno) -> bool {
        self.result == -error.raw_os_error()
    }
}

pub(super) struct Ring<'r> {
    submitter: Submitter<'r>,
    queue: SubmissionQueue<'r>,
    completions: CompletionQueue<'r>,
    /// Taken out of the completion queue, to be worked on.
    pub(super) collected: Vec<Completion>,
    in_flight: usize,
    counters: Arc<LoopCounters>,
}

impl<'r> Ring<'r> {
    pub(super) fn new(ring: &'r mut IoUring, counters: Arc<LoopCounters>) -> Ring<'r> {
        let (mut submitter, queue, completions) = ring.split();
        // Spares a look-up with each call; works as well without.
        if let Err(e) = submitter.register_ring_fd() {
            tracing::debug!(error = %e, "cannot register the ring's own descriptor");
        }
        Ring {
            submitter,
            queue,
            completions,
            collected: Vec::new(),
            in_flight: 0,
            counters,
        }
    }

    pub(super) fn submitter(&self) -> &Submitter<'r> {
        &self.submitter
    }

    /// Operations that will still complete.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    // ---- Operations ----

    /// Accepts until cancelled. The sockets are left blocking: io_uring would report "try again"
    /// on others instead of waiting.
    pub(super) fn accept(&mut self, listener: BorrowedFd<'_>, token: Token) {
        let fd = Fd(listener.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC);
        self.push(entry.build(), token);
    }

    /// Receives into buffers of a group until cancelled, about `share` bytes before others get
    /// their turn; 0 leaves that to the kernel, and is all that some kernels take.
    pub(super) fn receive_many(
        &mut self,
        socket: BorrowedFd<'_>,
        group: u16,
        share: u32,
        token: Token,
    ) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), group).len(share);
        self.push(entry.build(), token);
    }

    /// Receives once into a buffer of a group.
    pub(super) fn receive_once(
        &mut self,
        socket: BorrowedFd<'_>,
        group: u16,
        how: Once,
        token: Token,
    ) {
        let fd = Fd(socket.as_raw_fd());
        // No address and no length: both are the buffer's that the kernel picks.
        let entry = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(group);
        let entry = match how {
            Once::Now => entry,
            Once::Later => entry.ioprio(POLL_FIRST),
            Once::OrNot => entry.flags(libc::MSG_DONTWAIT),
        };
        let entry = entry.build().flags(squeue::Flags::BUFFER_SELECT);
        self.push(entry, token);
    }

    /// Sends what `entry` says.
    ///
    /// # Safety
    /// The memory that it points at stays valid and is not written until the operation's last
    /// completion has been collected.
    pub(super) unsafe fn send(&mut self, entry: squeue::Entry, token: Token) {
        self.push(entry, token);
    }

    /// Waits for events of `poll(2)`: once, or each time until cancelled.
    pub(super) fn poll(&mut self, fd: BorrowedFd<'_>, events: i16, multi: bool, token: Token) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), events as u16 as u32).multi(multi);
        self.push(entry.build(), token);
    }

    /// Takes back the operation with this token, if it is still there.
    pub(super) fn cancel(&mut self, token: Token) {
        let which = CancelBuilder::user_data(token.pack());
        self.push_cancel(which);
    }

    /// Takes back every operation on this descriptor.
    pub(super) fn cancel_all_of(&mut self, fd: BorrowedFd<'_>) {
        self.push_cancel(CancelBuilder::fd(Fd(fd.as_raw_fd())).all());
    }

    /// Takes back every operation.
    pub(super) fn cancel_all(&mut self) {
        self.push_cancel(CancelBuilder::any());
    }

    fn push_cancel(&mut self, which: CancelBuilder) {
        let entry = opcode::AsyncCancel2::new(which).build();
        self.push(entry, Token::of_loop(Kind::Cancel, 0));
    }

    fn push(&mut self, entry: squeue::Entry, token: Token) {
        let entry = entry.user_data(token.pack());
        self.in_flight += 1;
        // SAFETY: an entry that points at memory comes from `send` alone, whose caller answers for
        // it. Descriptors may be wrong without harm to memory.
        while unsafe { self.queue.push(&entry) }.is_err() {
            // Full: hand over what is queued. If the kernel wants completions taken first, they
            // wait in `collected` for the next turn.
            if let Err(e) = self.submit() {
                tracing::debug!(error = %e, "the kernel takes no operations for now");
                std::thread::sleep(Duration::from_millis(1));
            }
            self.collect();
        }
    }

    // ---- Entering ----

    /// Hands over what is queued, without waiting.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enter(Some(Duration::ZERO))
    }

    /// Hands over what is queued and waits for a completion, at most for `timeout`.
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
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

    /// Whether the kernel has something for us, told without a system call.
    pub(super) fn has_news(&mut self) -> bool {
        self.completions.sync();
        !self.completions.is_empty() || self.queue.taskrun()
    }

    /// Takes all completions that are there.
    pub(super) fn collect(&mut self) {
        if self.queue.cq_overflow() {
            // Nothing is lost: the kernel keeps them and moves them over as it is entered.
            self.counters.completions_overflowed.add(1);
        }
        self.completions.sync();
        for entry in &mut self.completions {
            let flags = entry.flags();
            self.in_flight -= usize::from(!cqueue::more(flags));
            self.collected.push(Completion {
                token: Token::unpack(entry.user_data()),
                result: entry.result(),
                flags,
            });
        }
        self.completions.sync();
    }
}

/// How to receive once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Once {
    /// There is something: try at once.
    Now,
    /// There is probably nothing yet: wait first.
    Later,
    /// What is there, else nothing.
    OrNot,
}
