//! Receiving from several connections before the first of their protocols is called, for protocols
//! that
//! [look ahead](crate::Protocol::look_ahead).

use rustix::io::Errno;

use crate::driver::readiness::Poller;
use crate::driver::readiness::sockets::{Early, Sockets};
use crate::kernel::calls::Sys;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::{Core, LOOK_AHEAD_MAX};

impl<P: Poller> Sockets<P> {
    /// Receives once from each connection that is ready and wants to be announced, and announces it.
    pub(super) fn look_ahead(&mut self, core: &mut Core) {
        for at in 0..self.ready.len().min(LOOK_AHEAD_MAX) {
            let index = self.ready[at];
            // Half of the buffers are for protocols that keep a part of what comes.
            let few = core.env.pool.free() <= core.env.pool.pieces() / 2;
            let Some(sock) = self.socks.get_mut(index as usize) else {
                continue;
            };
            if few || !sock.readable || !sock.reading || sock.sweep.is_some() {
                continue;
            }
            if sock.connecting || !core.looks_ahead(index) {
                continue;
            }
            let Some(mut lease) = core.env.pool.lease() else {
                return;
            };
            core.env.counters.receives.add(1);
            let space = lease.space();
            let size = space.len();
            match self.poller.sys().recv(&sock.fd, space) {
                // The end, and that there is nothing, can be found out again.
                Ok(0) | Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(len) => {
                    // As in `receive`: a receive that returns less than was asked for has emptied
                    // the kernel's buffer.
                    sock.readable = len == size || sock.ended;
                    let generation = sock.generation;
                    core.look_ahead(index, &lease.space()[..len]);
                    self.early.push_back(Early {
                        index,
                        generation,
                        lease,
                        len,
                    });
                }
                Err(e) => {
                    sock.readable = false;
                    core.receive_failed(index, std::io::Error::from(e).kind());
                }
            }
        }
    }

    /// Hands over what was received early from this connection, whose turn it is now.
    pub(super) fn offer_early(&mut self, core: &mut Core, index: u32) {
        if self.early.front().is_none_or(|early| early.index != index) {
            return;
        }
        let there = self.sock(index).map(|sock| sock.generation);
        // Another connection may have ended this one meanwhile.
        if let Some(mut early) = self.early.pop_front()
            && there == Some(early.generation)
            && !mistaken(Mistake::EarlyForgotten)
        {
            core.received(index, &mut early.lease, early.len);
            drop(early);
            core.settle(self, index);
        }
    }
}
