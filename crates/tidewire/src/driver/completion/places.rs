//! Sockets without descriptors: they stand in the table of the ring, at the place of their connection's
//! index, and count against no limit of the process (*direct descriptors*).
//!
//! Connections come in with descriptors, by accepting, by connecting, or from another loop, and
//! give them up as they are put into the table. So whatever is asked of a socket at its beginning
//! is asked as ever. A call that the ring cannot make without waiting (a half-close, reading the
//! pending error) uses a descriptor that is made for the call and closed again. If no descriptor
//! can be made, the ring makes the half-close all the same, because the peer waits for it. The ring
//! always makes the setting for a reset. Connections that the table has no place for keep their
//! descriptors.

use std::io;

use rustix::io::Errno;

use crate::driver::completion::ring::{LOOKS, Ring};
use crate::driver::completion::sockets::Sock;
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Operation, Queues, Target};

type Fd<Q> = <<Q as Queues>::Sys as Sys>::Fd;

impl<S: Sys> Sock<S> {
    /// The number by which the ring knows the socket.
    #[inline]
    pub(super) fn target(&self, index: u32) -> Target {
        match &self.fd {
            Some(fd) => Target::Number(S::number(fd)),
            None => Target::Place(index),
        }
    }

    /// Puts a socket into the table, if the table has a place for it.
    pub(super) fn place<Q: Queues<Sys = S>>(
        &mut self,
        ring: &mut Ring<Q>,
        places: u32,
        index: u32,
    ) {
        if index >= places {
            return;
        }
        let Some(fd) = self.fd.take() else { return };
        if let Err(e) = ring.queues_mut().put(index, &fd) {
            tracing::debug!(error = %e, "a connection keeps its descriptor");
            self.fd = Some(fd);
        }
    }

    /// Makes calls with the connection's descriptor, or with a temporary one if the connection has
    /// none.
    pub(super) fn with<Q: Queues<Sys = S>, R>(
        &self,
        ring: &mut Ring<Q>,
        index: u32,
        call: impl FnOnce(&S, &S::Fd) -> R,
    ) -> io::Result<R> {
        match &self.fd {
            Some(fd) => Ok(call(ring.sys(), fd)),
            None => ring.install(index).map(|fd| call(ring.sys(), &fd)),
        }
    }
}

impl<Q: Queues> Ring<Q> {
    /// Makes a descriptor for what stands in the table.
    fn install(&mut self, place: u32) -> io::Result<Fd<Q>> {
        let token = Token::of_loop(Kind::Install, place);
        self.start(Operation::Install { place }, token);
        for _ in 0..LOOKS {
            self.submit()?;
            self.collect();
            let mut found = self.collected.iter();
            if let Some(at) = found.position(|done| done.token == token) {
                let done = self.collected.remove(at);
                if done.result < 0 {
                    return Err(done.error());
                }
                // SAFETY: the completion has just made this descriptor, and `accepted` takes it out
                // of the completion.
                return Ok(unsafe { self.accepted(done) });
            }
        }
        Err(Errno::BUSY.into())
    }
}
