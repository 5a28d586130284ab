//! Receiving: one `recv` for each chunk, until the kernel has no more or the connection's turn is over.

use std::io;

use rustix::io::Errno;

use crate::driver::readiness::sockets::Sockets;
use crate::driver::readiness::{Poller, token};
use crate::kernel::calls::Sys;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::facts::Writing;
use crate::reactor::state::State;

impl<P: Poller> Sockets<P> {
    /// Has the socket receive, or stop to.
    #[inline]
    pub(super) fn read(&mut self, state: &State, on: bool) {
        let index = state.id.index;
        let Some(sock) = self.sock(index) else { return };
        if P::EDGE_TRIGGERED && sock.reading == on {
            return;
        }
        sock.reading = on;
        let due = on && sock.readable;
        if !P::EDGE_TRIGGERED {
            let token = token(index, sock.generation);
            let read = on && !sock.readable;
            let write = state.is_send_blocked() && !mistaken(Mistake::RoomNotAwaited);
            self.poller.interest(token, read, write);
        }
        if due {
            self.enqueue(index);
        }
    }

    /// Gives one connection its turn: up to its share of input, each chunk answered at once.
    pub(super) fn receive_from(&mut self, core: &mut Core, index: u32) {
        let mut taken = 0;
        loop {
            let Some(sock) = self.socks.get_mut(index as usize) else {
                return;
            };
            // The connection's turn has come. A callback may put the connection into the queue
            // again.
            sock.queued &= taken > 0;
            if !sock.readable || !sock.reading {
                if sock.broken | sock.sweep.is_some() {
                    self.cannot_receive(core, index);
                }
                return;
            }
            if sock.sweep == Some(0) {
                self.sweep_done(core, index);
                continue;
            }
            if taken > 0 && taken >= core.turn_bytes(index).min(self.receive_share) {
                let of_all = taken >= self.receive_share;
                if mistaken(Mistake::TurnNotQueued)
                    || of_all && mistaken(Mistake::ReceiveShareForgotten)
                {
                    return;
                }
                core.env.counters.receive_pauses.add(of_all.into());
                return self.enqueue(index);
            }
            if self.lease.is_none() {
                self.lease = core.env.pool.lease();
            }
            let Some(lease) = &mut self.lease else {
                core.env.await_buffers();
                self.starved.push(index);
                return;
            };
            let space = lease.space();
            let size = space.len();
            core.env.counters.receives.add(1);
            match self.poller.sys().recv(&sock.fd, space) {
                Ok(0) => {
                    sock.readable = false;
                    core.input_ended(index);
                }
                Ok(n) => {
                    // A short receive has emptied the kernel's buffer. More data, or the end, is a
                    // new event, unless the end was announced already.
                    let ended = sock.ended && !mistaken(Mistake::EndBehindShortReceive);
                    if n < size && !ended && sock.sweep.is_none() {
                        sock.readable = false;
                    }
                    sock.sweep = sock.sweep.map(|rest| rest.saturating_sub(n));
                    taken += n;
                    let emptied = !(sock.readable | sock.broken) && sock.sweep.is_none();
                    core.received(index, lease, n);
                    if lease.is_shared() {
                        self.lease = None;
                    }
                    if emptied {
                        return core.settle(self, index);
                    }
                }
                Err(Errno::INTR) if !mistaken(Mistake::InterruptFails) => continue,
                Err(Errno::AGAIN) => {
                    sock.readable = false;
                    sock.ended = false;
                }
                Err(_) if mistaken(Mistake::FailedReceiveIgnored) => sock.readable = false,
                Err(e) => {
                    sock.readable = false;
                    core.receive_failed(index, io::Error::from(e).kind());
                }
            }
            core.settle(self, index);
        }
    }

    /// Nothing is there to be received, or it is not wanted.
    #[cold]
    fn cannot_receive(&mut self, core: &mut Core, index: u32) {
        if self.sock(index).is_some_and(|s| s.broken && s.readable) {
            self.report_error(core, index);
        }
        self.sweep_done(core, index);
    }

    /// When a stop has begun and a connection was offered the kernel's data, the connection may be
    /// told of the stop.
    fn sweep_done(&mut self, core: &mut Core, index: u32) {
        let Some(sock) = self.sock(index) else { return };
        let Some(rest) = sock.sweep else { return };
        let state = &core.states[index as usize];
        // The connection is held back by its own output only, so that the rest of the input will be
        // read when the output has drained.
        let held_back = sock.readable && !state.wants_input() && state.waits_for_drain();
        if rest == 0 || !held_back {
            sock.sweep = None;
            self.drain_or_pass_on(core, index);
        }
    }

    /// Reports an error of a connection that is not read, as reading would not show it.
    pub(super) fn report_error(&mut self, core: &mut Core, index: u32) {
        let Some(sock) = self.socks.get_mut(index as usize) else {
            return;
        };
        let error = self.poller.sys().error(&sock.fd);
        if error.is_none() && core.states[index as usize].writing == Writing::Shut {
            // Both sides have closed in order; the data that the peer sent still waits to be read.
            sock.broken = false;
            return;
        }
        let error = error.unwrap_or(Errno::CONNRESET);
        core.failed(index, io::Error::from(error).kind());
    }
}
