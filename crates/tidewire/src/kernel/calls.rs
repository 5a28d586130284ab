//! The system calls that drivers make, as a seam: [`Linux`](super::linux::Linux) passes them on, and
//! the [simulated kernel](crate::sim) answers them from a seed.
//!
//! Drivers are generic over [`Sys`], so that a call is a static call: nothing is looked up or
//! boxed. A socket that passes from one loop to another is a
//! [`Descriptor`](super::descriptor::Descriptor), which knows the kernel that it belongs to.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::build::listen::TcpOptions;
use crate::kernel::descriptor::Descriptor;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::Process;
use crate::vocabulary::time::Instant;

/// The kind of data that follows the bytes of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    Nothing,
    /// Another send, as soon as it may be: the kernel keeps what fills no segment for it (`MSG_MORE`), so that the peer does not
    /// see where one ends.
    More,
}

impl Behind {
    #[inline]
    pub(crate) fn these(more: bool) -> Behind {
        match more {
            true => Behind::More,
            false => Behind::Nothing,
        }
    }
}

/// A kernel, as readiness drivers call it and completion drivers call it beside their ring.
///
/// Sockets are given back by dropping them. No call waits, but for [`epoll_wait`](Sys::epoll_wait),
/// [`poll`](Sys::poll) and [`pause`](Sys::pause).
pub(crate) trait Sys: Clone + 'static {
    /// An open descriptor, closed when dropped.
    type Fd: fmt::Debug;

    // ---- Descriptors ----

    /// The number by which rings and pollers know the descriptor.
    fn number(fd: &Self::Fd) -> RawFd;
    /// Takes a descriptor that comes from another loop, or goes to one.
    ///
    /// # Panics
    /// If the descriptor is of another kernel.
    fn own(descriptor: Descriptor) -> Self::Fd;
    fn look(descriptor: &Descriptor) -> &Self::Fd;
    fn hand_over(fd: Self::Fd) -> Descriptor;
    /// A descriptor that wakes a loop: readable once [notified](Descriptor::notify).
    fn event(&self) -> io::Result<Descriptor>;

    /// Becomes readable at the time that it is [set](Sys::set_timer) to.
    fn timer(&self) -> io::Result<Self::Fd>;
    /// Sets the timer to this time; its descriptor is not readable before.
    fn set_timer(&self, timer: &Self::Fd, at: Instant) -> Result<(), Errno>;

    // ---- Streams ----

    /// 0 is the end of input, if there was room for a byte.
    fn recv(&self, fd: &Self::Fd, into: &mut [u8]) -> Result<usize, Errno>;
    fn send(&self, fd: &Self::Fd, bytes: &[u8], behind: Behind) -> Result<usize, Errno>;
    fn send_several(
        &self,
        fd: &Self::Fd,
        slices: &[IoSlice<'_>],
        behind: Behind,
    ) -> Result<usize, Errno>;
    /// The peer sees the end of our sending.
    fn shut_write(&self, fd: &Self::Fd) -> Result<(), Errno>;
    /// Closing sends a reset (`SO_LINGER` of zero).
    fn reset_on_close(&self, fd: &Self::Fd);
    /// Takes the error that is pending.
    fn error(&self, fd: &Self::Fd) -> Option<Errno>;
    /// Bytes that wait to be received.
    fn unread(&self, fd: &Self::Fd) -> Result<usize, Errno>;
    /// Bytes sent that the peer's side has not taken (`SIOCOUTQ`).
    fn untaken(&self, fd: &Self::Fd) -> Result<usize, Errno>;
    /// Has calls wait, which is what io_uring needs in order to wait itself.
    fn set_blocking(&self, fd: &Self::Fd) -> Result<(), Errno>;

    // ---- Connections come ----

    /// A connection that waits, left non-blocking, and where it is from, if that is an address.
    fn accept(&self, listener: &Self::Fd) -> Result<(Self::Fd, Option<Endpoint>), Errno>;
    /// Handshakes begin no more at this TCP listener, for as long as it is open. Whether some may be
    /// under way, which come to their end.
    fn begin_no_more(&self, listener: &Self::Fd) -> io::Result<bool>;
    /// Starts to connect; the descriptor becomes writable when the outcome is there.
    fn connect(
        &self,
        to: &Endpoint,
        from: Option<SocketAddr>,
        options: &TcpOptions,
    ) -> io::Result<Self::Fd>;
    /// The result of an attempt to connect.
    fn outcome(&self, fd: &Self::Fd) -> Result<(), Errno>;
    /// Where a connection is from, also if it is over by now.
    fn peer_name(&self, fd: &Self::Fd) -> Endpoint;
    /// The process at the other end of a Unix socket.
    fn peer_process(&self, fd: &Self::Fd) -> Option<Process>;

    // ---- Waiting ----

    fn epoll(&self) -> io::Result<Self::Fd>;
    /// Reports `flags` of epoll(7) with this token.
    fn epoll_add(
        &self,
        epoll: &Self::Fd,
        fd: &Self::Fd,
        token: u64,
        flags: i32,
    ) -> Result<(), Errno>;
    fn epoll_delete(&self, epoll: &Self::Fd, fd: &Self::Fd);
    /// Waits for events, as many as `events` has room for.
    fn epoll_wait(
        &self,
        epoll: &Self::Fd,
        events: &mut Vec<libc::epoll_event>,
        timeout: Option<Duration>,
    ) -> io::Result<()>;
    /// Waits for one of these, as poll(2) does.
    fn poll(&self, fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()>;
    /// Waits for nothing, after an error that would come again at once.
    fn pause(&self, time: Duration);
}
