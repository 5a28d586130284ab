//! Listening sockets: an accept operation for each, which completes once for each connection.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::driver::completion::ring::{Completion, Ring};
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::accept::{self, Accepted};
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::kernel::queues::{Operation, Queues};
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::driver::Outcome;

type Fd<Q> = <<Q as Queues>::Sys as Sys>::Fd;

/// The accept operation of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    None,
    Accept,
    /// Being cancelled. The accept may still bring connections.
    Ending,
    /// Never again: the listener was shut down.
    Broken,
}

struct Listener {
    socket: Arc<Descriptor>,
    state: State,
}

/// The number by which the ring knows a listening socket.
fn number<Q: Queues>(_: &Ring<Q>, socket: &Descriptor) -> RawFd {
    Q::Sys::number(Q::Sys::look(socket))
}

/// The listening sockets of a loop.
#[derive(Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Connections are wanted.
    on: bool,
    /// An operation has ended, and may have to be armed again.
    ended: bool,
}

impl Listeners {
    pub(super) fn add(&mut self, ring: &mut Ring<impl Queues>, sockets: Vec<Arc<Descriptor>>) {
        let listener = |socket| Listener {
            socket,
            state: State::None,
        };
        self.all.extend(sockets.into_iter().map(listener));
        self.resume(ring);
    }

    pub(super) fn resume(&mut self, ring: &mut Ring<impl Queues>) {
        self.on = true;
        for (i, listener) in self.all.iter_mut().enumerate() {
            if listener.state == State::None {
                listener.state = State::Accept;
                let token = Token::of_loop(Kind::Accept, i as u32);
                let listener = number(ring, &listener.socket);
                ring.start(Operation::Accept { listener }, token);
            }
        }
    }

    pub(super) fn pause(&mut self, ring: &mut Ring<impl Queues>) {
        self.on = false;
        for (i, listener) in self.all.iter_mut().enumerate() {
            if listener.state == State::Accept {
                listener.state = State::Ending;
                ring.cancel(Token::of_loop(Kind::Accept, i as u32));
            }
        }
    }

    pub(super) fn are_quiet(&self) -> bool {
        let ending = |l: &Listener| l.state == State::Ending;
        !self.all.iter().any(ending)
    }

    /// An accept has completed, perhaps to go on.
    pub(super) fn accepted<Q: Queues>(
        &mut self,
        ring: &Ring<Q>,
        done: Completion,
    ) -> Option<Outcome<Fd<Q>>> {
        let which = done.token.index as usize;
        // SAFETY: the accept has just made this descriptor, and reports it this once.
        let socket = (done.result >= 0).then(|| unsafe { ring.accepted(done) });
        // The listener may have been closed without waiting any longer for this.
        let listener = self.all.get_mut(which)?;
        if !done.more() {
            if !mistaken(Mistake::AcceptNotRearmed) || done.result < 0 {
                listener.state = State::None;
            }
            self.ended = true;
        }
        let accepted = match socket {
            Some(_) if mistaken(Mistake::LateAcceptDropped) && !self.on => return None,
            Some(socket) => {
                let peer = ring.sys().peer_name(&socket);
                Accepted::Connection(socket, peer)
            }
            None if done.is(Errno::CANCELED) => return None,
            None => match accept::classify(done.error()) {
                // Listeners are non-blocking, which the kernels that the probe lets through do not
                // mind. In case one does after all, it must not be asked for ever.
                Accepted::None => Accepted::Exhausted(done.error()),
                accepted => accepted,
            },
        };
        Some(Outcome::Accepted(which, accepted))
    }

    /// Arms operations again that have ended by themselves.
    #[inline]
    pub(super) fn go_on(&mut self, ring: &mut Ring<impl Queues>) {
        if std::mem::take(&mut self.ended) && self.on {
            self.resume(ring);
        }
    }

    pub(super) fn accept_now<Q: Queues>(&self, ring: &Ring<Q>, which: usize) -> Accepted<Fd<Q>> {
        match accept::accept(ring.sys(), &self.all[which].socket) {
            // io_uring waits only on blocking ones.
            Accepted::Connection(socket, peer) => match ring.sys().set_blocking(&socket) {
                Ok(()) => Accepted::Connection(socket, peer),
                Err(e) => Accepted::Gone(io::Error::from(e)),
            },
            accepted => accepted,
        }
    }

    pub(super) fn leave(&mut self, which: usize) {
        self.all[which].state = State::Broken;
    }

    pub(super) fn close(&mut self) {
        self.on = false;
        self.all.clear();
    }
}
