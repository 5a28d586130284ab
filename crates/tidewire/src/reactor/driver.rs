//! The interface between a loop and its driver.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::accept::Accepted;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::reach::waker::Waker;
use crate::reactor::core::Core;
use crate::reactor::env::Env;
use crate::reactor::state::State;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;

/// The operations that a driver carries out for a connection when the core asks.
pub(crate) trait Transport {
    /// Sends output, or starts to, until there is none, the kernel takes no more, or the
    /// connection's [share](Env::share_of) of the turn is sent; reports by [`Env::sent`] and by
    /// [`State::block_sending`], or by [`Env::failed`].
    ///
    /// `flush` and `set_reading` are called for nearly everything that is received, so they are
    /// given the record instead of looking it up.
    fn flush(&mut self, state: &mut State, env: &mut Env);
    /// Receives, or stops to. Called often with the same value.
    fn set_reading(&mut self, state: &mut State, env: &mut Env, on: bool);
    /// Bytes that the kernel holds for this connection and the peer has not taken; `None` if that
    /// is unknown.
    fn untaken(&mut self, index: u32) -> Option<usize>;
    /// Whether nothing that the peer has sent waits to be received, as far as the kernel has said.
    fn has_emptied(&self, index: u32) -> bool;
    /// The connection has failed: receives what the kernel still holds of it, without waiting for more, and calls
    /// [`Core::rest_is_read`] after that, or [`Core::receive_failed`].
    fn read_rest(&mut self, index: u32);
    /// Half-closes: the peer sees the end of our output.
    fn shut_write(&mut self, core: &mut Core, index: u32);
    /// Closes the socket, with a reset if asked, and calls [`Core::free`] as soon as nothing of
    /// the connection is in use.
    fn close(&mut self, core: &mut Core, index: u32, reset: bool);
    /// Starts to connect; reports by [`Core::connected`] or [`Core::connect_failed`].
    fn connect(&mut self, core: &mut Core, index: u32, to: Endpoint, from: Option<SocketAddr>);
    /// Gives up the attempt under way and drops its socket. The record stays.
    fn cancel_connect(&mut self, core: &mut Core, index: u32);
}

/// A descriptor of a driver's kernel.
pub(crate) type Fd<D> = <<D as Driver>::Sys as Sys>::Fd;

/// An event that the loop has to act on.
pub(crate) enum Outcome<F> {
    /// A client was accepted, or accepting failed, at the listener of this number.
    Accepted(usize, Accepted<F>),
    /// The wake-up descriptor is to be [watched again](Driver::watch_again).
    Woken,
    /// The alarm has gone off, or is not watched any more: whatever it is set to, it is to be set again.
    AlarmOver,
}

/// The driver with which a loop waits, receives and sends. The driver reports events of connections
/// to the core (`received`, `sent`, `input_ended`, `failed`, `connected`, ...), and all other
/// events to the loop.
pub(crate) trait Driver: Transport {
    /// The kernel of the driver.
    type Sys: Sys;
    /// The wake-up descriptor is watched from the start, and not only when it could be used.
    const ALWAYS_WAKEABLE: bool;

    fn sys(&self) -> &Self::Sys;

    // ---- Waiting ----

    fn watch(&mut self, waker: &Arc<Waker>) -> io::Result<()>;
    /// The wake-up descriptor has been seen to be readable.
    fn watch_again(&mut self, waker: &Arc<Waker>) -> io::Result<()>;
    /// Whether there is work that needs no event from outside.
    fn has_work(&self) -> bool;
    /// Hands over what is queued, to be called before looking for news again and again.
    fn submit(&mut self) -> io::Result<()>;
    /// Whether something has happened; does not wait.
    fn has_news(&mut self) -> bool;
    /// Has a wait end at this time, even if it may take longer. There is one such time: the last one
    /// that was set. False if the driver cannot.
    fn set_alarm(&mut self, at: Instant) -> bool;
    /// Waits until something happens, or for as long as `timeout` says.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    // ---- A turn ----

    /// Tells the core what the last wait has brought for connections, up to the next thing that is
    /// the loop's to deal with. To be called until there is none.
    fn next_outcome(&mut self, core: &mut Core) -> Option<Outcome<Fd<Self>>>;
    /// Gives their turn to connections of which the kernel may hold input.
    fn receive(&mut self, core: &mut Core);
    /// At the end of a turn, when buffers may have come back: lets connections go on that wait for
    /// one.
    fn resupply(&mut self, core: &mut Core);

    // ---- Accepting ----

    /// Takes over the listening sockets, and accepts on them; `batch` connections of each before
    /// others get their turn.
    fn listen(&mut self, listeners: Vec<Arc<Descriptor>>, batch: usize) -> io::Result<()>;
    /// Stops to accept. Some may still come, until [`accepting_over`](Driver::accepting_over).
    fn pause_accepting(&mut self);
    /// Accepts on all listeners again, or on none of them: then it is to be tried once more.
    fn resume_accepting(&mut self) -> io::Result<()>;
    /// Whether all connections accepted before the pause have been reported.
    fn accepting_over(&self) -> bool;
    /// Accepts at once, or finds that no client waits.
    fn accept_now(&mut self, listener: usize) -> Accepted<Fd<Self>>;
    /// Stops accepting on this listener. The other listeners keep their numbers.
    fn leave_listener(&mut self, listener: usize);
    fn close_listeners(&mut self);
    /// Whether a descriptor was closed since the last call.
    fn take_closed(&mut self) -> bool;
    /// Takes in the socket of an accepted connection.
    fn adopt(&mut self, core: &Core, index: u32, socket: Fd<Self>) -> io::Result<()>;

    // ---- Stopping ----

    /// Has everything received that the kernel holds now, and calls [`Core::owe_drain`] for each
    /// connection when that is done.
    fn sweep(&mut self, core: &mut Core);
    /// Ends: nothing of the core is in use by the kernel any more when it is dropped.
    fn finish(self, core: Core) -> io::Result<()>;
}
