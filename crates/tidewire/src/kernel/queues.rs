//! A ring of operations and completions, as a seam: [`Uring`](super::uring::Uring) is the kernel's, and
//! the [simulated kernel](crate::sim) has one that is driven by a seed.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::kernel::calls::{Behind, Sys};

/// The socket or file that an operation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A descriptor, by its number.
    Number(RawFd),
    /// The socket at this place in the ring's table.
    Place(u32),
}

/// An operation. Descriptors are named by number: which one that is, the kernel looks up when the
/// operation is handed over, in [`Queues::enter`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Accepts until cancelled.
    Accept { listener: RawFd },
    /// Receives into buffers of a group until cancelled, about `share` bytes before others get their
    /// turn; 0 leaves that to the kernel.
    ReceiveMany {
        socket: Target,
        group: u16,
        share: u32,
    },
    /// Receives once into a buffer of a group.
    ReceiveOnce {
        socket: Target,
        group: u16,
        how: Once,
    },
    Send {
        socket: Target,
        from: *const u8,
        len: u32,
        behind: Behind,
    },
    SendSeveral {
        socket: Target,
        header: *const libc::msghdr,
        behind: Behind,
    },
    /// Waits for events of `poll(2)`: once, or each time until cancelled.
    Poll {
        fd: Target,
        events: i16,
        multi: bool,
    },
    /// Takes back the operation with this user data, if it is still there.
    Cancel { user_data: u64 },
    /// Takes back every operation on this.
    CancelAllOf { fd: Target },
    /// Makes a descriptor for what stands at this place in the table.
    Install { place: u32 },
    /// The peer sees the end of our sending.
    ShutWrite { socket: Target },
    /// Closing sends a reset.
    ResetOnClose { socket: Target },
    /// Takes back every operation.
    CancelAll,
}

/// How to receive once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Once {
    /// Bytes are there: try at once.
    Now,
    /// There is probably nothing yet: wait first.
    Later,
    /// Receives the bytes that are there, or none, without waiting.
    OrNot,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) user_data: u64,
    /// The result of the system call; negative: an error number.
    pub(crate) result: i32,
    /// Flags of io_uring's completions (`IORING_CQE_F_...`).
    pub(crate) flags: u32,
}

/// The two queues of one ring, and its registered resources.
pub(crate) trait Queues {
    type Sys: Sys;
    type Buffers: Buffers;

    /// The kernel whose descriptors this ring works on.
    fn sys(&self) -> &Self::Sys;

    /// Queues an operation; false if there is no room, until [`enter`](Queues::enter) is called.
    ///
    /// # Safety
    /// Memory that the operation points at must stay valid and unwritten until its last completion
    /// has been [popped](Queues::pop).
    unsafe fn push(&mut self, operation: Operation, user_data: u64) -> bool;

    /// Hands over what is queued, and waits for a completion: for ever, for a time, or not at all
    /// (zero). Interrupted, timed out, and told to take completions first are no errors.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Looks which operations have completed; returns whether the queue was too small for all of
    /// them. No completion is lost then: the kernel keeps the rest, and moves it over when the ring
    /// is entered.
    fn look(&mut self) -> bool;

    /// Takes one of the completions that the last [`look`](Queues::look) has found.
    fn pop(&mut self) -> Option<Done>;

    /// Gives back the room of the popped completions.
    fn popped(&mut self);

    /// Whether the kernel has something for us, told without a system call.
    fn has_news(&mut self) -> bool;

    /// Makes a table for sockets, with this many places. Once only.
    fn make_table(&mut self, places: u32) -> io::Result<()>;

    /// Puts a socket into the table, at a place that is free. The descriptor may be closed then.
    fn put(&mut self, place: u32, fd: &<Self::Sys as Sys>::Fd) -> io::Result<()>;

    /// Takes a socket out of the table, which closes it if it has no descriptor. No operation on it may
    /// be in flight.
    fn take_out(&mut self, place: u32);

    /// The descriptor that an accept, or the making of one, has completed with.
    ///
    /// # Safety
    /// The descriptor was made, and this is called once for it.
    unsafe fn accepted(&self, number: RawFd) -> <Self::Sys as Sys>::Fd;

    /// Registers a group of receive buffers, with room for `size` of them, a power of two.
    fn register(&self, id: u16, size: u16) -> io::Result<Self::Buffers>;

    /// Takes a group from the kernel. To be called when no operation is in flight.
    fn unregister(&self, buffers: Self::Buffers) -> io::Result<()>;
}

/// A group of receive buffers that the kernel picks from, in the order they were given. Dropped while
/// registered, it leaves its memory to the kernel.
pub(crate) trait Buffers {
    /// Gives the kernel a buffer, named `id` in completions. The kernel sees the buffer after the
    /// next [`publish`](Buffers::publish), may write to it at any time from then on, and is done with
    /// it when a completion names it.
    ///
    /// # Safety
    /// The memory stays valid until the group is unregistered, and no code looks at it until a
    /// completion has brought it back.
    unsafe fn give(&mut self, id: u16, start: *mut u8, len: u32);
    fn publish(&mut self);
}
