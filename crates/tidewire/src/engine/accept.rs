//! Accepting on readiness: in small batches, pausing when the process or the machine runs out of
//! descriptors or memory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{SocketFlags, acceptfrom_with};

use crate::endpoint::Endpoint;
use crate::env::Env;
use crate::peer::{Origin, Peer};
use crate::time::Instant;

/// Connections taken from one listener in one turn.
pub(crate) const BATCH: usize = 64;
/// How long accepting pauses for want of descriptors or memory. A connection that closes ends the
/// pause early.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Whether accepting is paused.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Option<Instant>,
}

impl Pause {
    /// Begins a pause, or prolongs it; true if accepting went on until now.
    pub(crate) fn begin(&mut self, env: &Env, why: &io::Error) -> bool {
        let begins = self.until.is_none();
        if begins {
            env.counters.accept_pauses.add(1);
            tracing::warn!(error = %why, "accepting pauses until something is freed");
        }
        self.until = Some(env.now + PAUSE);
        begins
    }

    /// Ends a pause that has lasted long enough, or if something was freed; true if it did.
    pub(crate) fn ended(&mut self, env: &Env, freed: bool) -> bool {
        let over = self.until.is_some_and(|until| freed || until <= env.now);
        if over {
            self.until = None;
        }
        over
    }

    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// When to look again.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }
}

/// What one attempt to accept came to.
pub(crate) enum Accepted {
    Connection(OwnedFd, Endpoint),
    /// This one had gone already; there may be more.
    Gone,
    /// Nobody is waiting.
    None,
    /// The process or the machine has nothing left to take one in with.
    Exhausted(io::Error),
    /// This listener will never accept again.
    Broken(io::Error),
}

pub(crate) fn accept(listener: impl AsFd) -> Accepted {
    match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok((socket, addr)) => match addr.and_then(Endpoint::from_kernel) {
            Some(addr) => Accepted::Connection(socket, addr),
            None => Accepted::Gone,
        },
        Err(e) => classify(e.into()),
    }
}

/// The peer of an accepted socket, with what the kernel knows of it.
pub(crate) fn peer(socket: impl AsFd, endpoint: Endpoint, listener: u32) -> Peer {
    let mut peer = Peer::new(endpoint, Origin::Accepted(listener));
    peer.ask_kernel(socket);
    peer
}

/// Tells errors of one connection from errors of accepting as such. Linux passes pending network
/// errors of the new socket through `accept`; they mean that this one has gone.
pub(crate) fn classify(e: io::Error) -> Accepted {
    use rustix::io::Errno;
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Accepted::None,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accepted::Exhausted(e),
        // Such as an inherited listener that somebody has shut down: it would be reported for ever.
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP) => Accepted::Broken(e),
        _ => Accepted::Gone,
    }
}
