//! Readiness: the kernel says which descriptors are ready, and the driver receives and sends itself.
//!
//! * [`epoll`], [`poll`]: the [`Poller`]s.
//! * [`sockets`]: the sockets of a loop, and what the core asks of them.
//! * [`receive`], [`send`], [`ahead`], [`accept`], [`alarm`]: the system calls.
//! * [`driver`]: what the loop asks for.
//!
//! # The receive path
//!
//! 1. A turn of the loop waits in the [`Poller`] and notes which sockets are readable.
//! 2. [`receive`] leases a buffer, calls `recv` once for each chunk and hands it to
//!    [`Core::received`], which calls the protocol. A short read means that the kernel has no more;
//!    a connection that used up its turn goes to the back of the queue.
//! 3. [`Core::settle`] sends what the protocol wrote, through [`send`]: the same turn, one `send`
//!    (or `sendmsg` for several pieces) for all replies to the chunk.
//!
//! [`Core::received`]: crate::reactor::core::Core::received
//! [`Core::settle`]: crate::reactor::core::Core::settle

mod accept;
mod ahead;
mod alarm;
mod driver;
pub(crate) mod epoll;
pub(crate) mod poll;
mod receive;
mod send;
pub(crate) mod sockets;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::reach::waker::Waker;

/// Something happened to the descriptor registered with `token`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An urgent mark is there, at which receiving stops short. Told where only edges are.
    pub(crate) urgent: bool,
    /// The peer finished sending.
    pub(crate) ended: bool,
    /// Whether both directions have ended.
    pub(crate) over: bool,
    /// An error is pending.
    pub(crate) failed: bool,
}

/// An interface of the kernel that tells which descriptors are ready.
pub(crate) trait Poller {
    /// The kernel of the poller.
    type Sys: Sys;
    /// Connections are reported once for each change, not for as long as they are ready.
    const EDGE_TRIGGERED: bool;

    fn sys(&self) -> &Self::Sys;
    /// Adds a connection, for reading and writing.
    fn add(&mut self, fd: &<Self::Sys as Sys>::Fd, token: u64) -> io::Result<()>;
    fn add_waker(&mut self, waker: &Arc<Waker>, token: u64) -> io::Result<()>;
    fn add_listener(&mut self, fd: &Descriptor, token: u64) -> io::Result<()>;
    fn remove_listener(&mut self, fd: &Descriptor);
    /// Adds a timer that is reported once each time it goes off; false if the poller cannot add it.
    fn add_timer(&mut self, fd: &<Self::Sys as Sys>::Fd, token: u64) -> bool;
    /// A connection's descriptor is about to be closed.
    fn forget(&mut self, token: u64);
    /// A connection's descriptor leaves this process open.
    fn leave(&mut self, fd: &<Self::Sys as Sys>::Fd, token: u64);
    /// The events that a level-triggered poller should wait for.
    fn interest(&mut self, token: u64, read: bool, write: bool);
    /// Waits until something is ready, or for as long as `timeout` says. To be called when all
    /// events of the last wait were taken.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;
    /// Whether the last wait found something that was not yet taken.
    fn has_event(&self) -> bool;
    /// Takes one of what the last wait found.
    fn event(&mut self) -> Option<Readiness>;
}

/// The token with which a connection's descriptor is registered.
fn token(index: u32, generation: u32) -> u64 {
    // Generations are kept below the tokens of listeners.
    u64::from(generation & 0x7fff_ffff) << 32 | u64::from(index)
}
