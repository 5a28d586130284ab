//! A ring: operations in, completions out, one system call for both.
//!
//! The ring counts the operations in flight. Memory that an operation points at must outlive it, so
//! a ring ends by taking everything back and waiting until nothing is left.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_uring::cqueue;
use rustix::io::Errno;

use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Operation, Queues, Target};
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::counters::LoopCounters;

/// Looks for a completion that is there at once, unless others have to be moved over first.
pub(super) const LOOKS: usize = 64;

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) token: Token,
    /// The result of the system call; negative: an error number.
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

pub(super) struct Ring<Q> {
    queues: Q,
    /// Taken out of the completion queue, to be worked on.
    pub(super) collected: Vec<Completion>,
    in_flight: usize,
    counters: Arc<LoopCounters>,
}

impl<Q: Queues> Ring<Q> {
    pub(super) fn new(queues: Q, counters: Arc<LoopCounters>) -> Ring<Q> {
        Ring {
            queues,
            collected: Vec::new(),
            in_flight: 0,
            counters,
        }
    }

    pub(super) fn queues(&self) -> &Q {
        &self.queues
    }

    pub(super) fn sys(&self) -> &Q::Sys {
        self.queues.sys()
    }

    /// The descriptor that an accept brought.
    ///
    /// # Safety
    /// As for [`Queues::accepted`].
    pub(super) unsafe fn accepted(&self, done: Completion) -> <Q::Sys as Sys>::Fd {
        // SAFETY: the caller's.
        unsafe { self.queues.accepted(done.result) }
    }

    /// The queues, of which a part is for the table only.
    pub(super) fn queues_mut(&mut self) -> &mut Q {
        &mut self.queues
    }

    /// Operations that will still complete.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    // ---- Operations ----

    /// Queues an operation that points at no memory of ours.
    #[inline]
    pub(super) fn start(&mut self, operation: Operation, token: Token) {
        let points = matches!(
            operation,
            Operation::Send { .. } | Operation::SendSeveral { .. }
        );
        assert!(!points, "sends are for `send`");
        // SAFETY: looked at.
        unsafe { self.push(operation, token) };
    }

    /// Queues a send.
    ///
    /// # Safety
    /// The memory that the operation points at must stay valid and unwritten until the operation's
    /// last completion has been collected.
    #[inline]
    pub(super) unsafe fn send(&mut self, operation: Operation, token: Token) {
        // SAFETY: the caller's.
        unsafe { self.push(operation, token) };
    }

    /// Takes back the operation with this token, if it is still there.
    pub(super) fn cancel(&mut self, token: Token) {
        self.push_cancel(Operation::Cancel {
            user_data: token.pack(),
        });
    }

    /// Takes back every operation on this.
    pub(super) fn cancel_all_of(&mut self, fd: Target) {
        self.push_cancel(Operation::CancelAllOf { fd });
    }

    /// Takes back every operation.
    pub(super) fn cancel_all(&mut self) {
        self.push_cancel(Operation::CancelAll);
    }

    fn push_cancel(&mut self, which: Operation) {
        self.start(which, Token::of_loop(Kind::Cancel, 0));
    }

    /// # Safety
    /// As for [`Queues::push`].
    // The function is always inlined where the kind of operation is known.
    #[inline(always)]
    unsafe fn push(&mut self, operation: Operation, token: Token) {
        let user_data = token.pack();
        self.in_flight += 1;
        // SAFETY: the caller's.
        while !unsafe { self.queues.push(operation, user_data) } {
            if !self.make_room() && mistaken(Mistake::OperationDropped) {
                return;
            }
        }
    }

    /// The queue is full: hands the queued operations over. If the kernel wants completions taken
    /// first, they wait in `collected` for the next turn. Whether it took them.
    #[cold]
    fn make_room(&mut self) -> bool {
        let submitted = self.submit();
        if let Err(e) = &submitted {
            tracing::debug!(error = %e, "the kernel takes no operations for now");
            self.sys().pause(Duration::from_millis(1));
        }
        self.collect();
        submitted.is_ok()
    }

    // ---- Entering ----

    /// Hands the queued operations over, without waiting.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enter(Some(Duration::ZERO))
    }

    /// Hands over what is queued and waits for a completion, at most for `timeout`.
    #[inline]
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.queues.enter(timeout)
    }

    /// Whether the kernel has something for us, told without a system call.
    pub(super) fn has_news(&mut self) -> bool {
        self.queues.has_news()
    }

    /// Takes also completions that the queue has had no room for.
    pub(super) fn collect_held_back(&mut self) {
        for _ in 0..LOOKS {
            self.collect();
            if !self.queues.look() || self.submit().is_err() {
                break;
            }
        }
        self.collect();
    }

    /// Takes all completions that are there.
    pub(super) fn collect(&mut self) {
        if self.queues.look() {
            // No completion is lost: the kernel keeps those that do not fit, and moves them over
            // when the ring is entered.
            self.counters.completions_overflowed.add(1);
        }
        while let Some(done) = self.queues.pop() {
            self.in_flight -=
                usize::from(!cqueue::more(done.flags) || mistaken(Mistake::MoreIgnored));
            self.collected.push(Completion {
                token: Token::unpack(done.user_data),
                result: done.result,
                flags: done.flags,
            });
        }
        self.queues.popped();
    }
}
