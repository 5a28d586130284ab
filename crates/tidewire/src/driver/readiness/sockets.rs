//! The sockets of a loop: what is known of each, and what the core asks of them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::build::listen::TcpOptions;
use crate::driver::readiness::accept::Listeners;
use crate::driver::readiness::alarm::{ALARM, Alarm};
use crate::driver::readiness::{Poller, token};
use crate::kernel::accept::meet;
use crate::kernel::calls::Sys;
use crate::memory::buffer::Lease;
use crate::memory::table::Table;
use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::state::State;
use crate::vocabulary::endpoint::Endpoint;

/// Read at most from a connection that comes in, or is established, during a stop; bytes.
const SWEEP_NEW: usize = 1 << 20;

pub(super) struct Sock<S: Sys> {
    pub(super) fd: S::Fd,
    /// Generation of the socket's connection; tells events of an earlier connection with the same
    /// index.
    pub(super) generation: u32,
    /// The kernel may have input.
    pub(super) readable: bool,
    /// A short read is no sign that there is no more: the end of input, an error, or bytes after an
    /// urgent mark wait behind it.
    pub(super) ended: bool,
    /// The end is an error.
    pub(super) broken: bool,
    pub(super) reading: bool,
    /// In the queue of connections to receive from.
    pub(super) queued: bool,
    pub(super) connecting: bool,
    /// A stop wants everything read that the kernel held when it began: bytes left of that.
    pub(super) sweep: Option<usize>,
}

/// Data that was received before its connection's turn.
pub(super) struct Early {
    pub(super) index: u32,
    pub(super) generation: u32,
    pub(super) lease: Lease,
    pub(super) len: usize,
}

/// The sockets of a loop, by connection index.
pub(crate) struct Sockets<P: Poller> {
    pub(super) poller: P,
    pub(super) socks: Table<Sock<P::Sys>>,
    /// Connections to receive from, in turn.
    pub(super) ready: VecDeque<u32>,
    /// Input of each connection in this turn; bytes, and one chunk at the least.
    pub(super) receive_share: usize,
    /// The buffer for the next receive, unless a protocol keeps a part of the previous data.
    pub(super) lease: Option<Lease>,
    /// Data that was received early to be announced, in the order of `ready`.
    pub(super) early: VecDeque<Early>,
    /// Connections that wait for a receive buffer.
    pub(super) starved: Vec<u32>,
    pub(super) dial_options: Arc<TcpOptions>,
    /// A descriptor was closed, so accepting may go on.
    pub(super) closed_some: bool,
    pub(super) listeners: Listeners,
    pub(super) alarm: Alarm<P::Sys>,
}

impl<P: Poller> Sockets<P> {
    pub(crate) fn new(mut poller: P, dial_options: Arc<TcpOptions>) -> Sockets<P> {
        let alarm = Alarm::new(&mut poller, ALARM);
        Sockets {
            poller,
            socks: Table::new(),
            ready: VecDeque::new(),
            receive_share: usize::MAX,
            lease: None,
            early: VecDeque::new(),
            starved: Vec::new(),
            dial_options,
            closed_some: false,
            listeners: Listeners::default(),
            alarm,
        }
    }

    pub(super) fn insert(
        &mut self,
        core: &Core,
        index: u32,
        fd: <P::Sys as Sys>::Fd,
        connecting: bool,
    ) -> io::Result<()> {
        let id = core.states[index as usize].id;
        let watched = self.poller.add(&fd, token(index, id.generation));
        if watched.is_err() && !connecting {
            // The socket is closed here: its peer is not to take that for an end in order.
            self.poller.sys().reset_on_close(&fd);
        }
        watched?;
        // The poller need not announce bytes that the kernel already holds: a stop cannot wait for
        // them.
        let sweep = core.draining().then_some(SWEEP_NEW);
        let sock = Sock {
            fd,
            generation: id.generation,
            readable: sweep.is_some(),
            ended: false,
            broken: false,
            reading: true,
            queued: false,
            connecting,
            sweep,
        };
        self.socks.put(index as usize, sock);
        if sweep.is_some() && !connecting {
            self.enqueue(index);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn sock(&mut self, index: u32) -> Option<&mut Sock<P::Sys>> {
        self.socks.get_mut(index as usize)
    }

    fn remove(&mut self, index: u32) {
        if let Some(sock) = self.socks.remove(index as usize) {
            self.poller.forget(token(index, sock.generation));
            self.closed_some = true;
        }
    }

    /// The kernel's data of this connection has been received since the stop began. If there was none, the successor
    /// gets the connection; otherwise its protocol is told of the stop.
    pub(super) fn drain_or_pass_on(&mut self, core: &mut Core, index: u32) {
        if core.rest_is_read(index) {
            return;
        }
        if core.may_pass_on(index)
            && let Some(sock) = self.socks.remove(index as usize)
        {
            self.poller.leave(&sock.fd, token(index, sock.generation));
            self.closed_some = true;
            return core.pass_on(index, P::Sys::hand_over(sock.fd));
        }
        core.owe_drain(index);
    }

    pub(super) fn enqueue(&mut self, index: u32) {
        if let Some(sock) = self.sock(index)
            && !sock.queued
        {
            sock.queued = true;
            self.ready.push_back(index);
        }
    }

    /// The attempt to connect is over; whether it succeeded.
    pub(super) fn finish_connect(&mut self, core: &mut Core, index: u32) -> bool {
        let Some(sock) = self.socks.get_mut(index as usize) else {
            return false;
        };
        let sys = self.poller.sys();
        match sys.outcome(&sock.fd) {
            Ok(()) => {
                sock.connecting = false;
                meet(&mut core.states[index as usize].peer, sys, &sock.fd);
                core.connected(index);
                true
            }
            Err(e) => {
                self.remove(index);
                core.connect_failed(index, &e.into());
                false
            }
        }
    }
}

impl<P: Poller> Transport for Sockets<P> {
    #[inline]
    fn flush(&mut self, state: &mut State, env: &mut Env) {
        self.send(state, env);
    }

    #[inline]
    fn set_reading(&mut self, state: &mut State, _env: &mut Env, on: bool) {
        self.read(state, on);
    }

    fn untaken(&mut self, index: u32) -> Option<usize> {
        let sock = self.socks.get(index as usize)?;
        self.poller.sys().untaken(&sock.fd).ok()
    }

    fn has_emptied(&self, index: u32) -> bool {
        self.socks.get(index as usize).is_some_and(|s| !s.readable)
    }

    fn read_rest(&mut self, index: u32) {
        if let Some(sock) = self.sock(index) {
            sock.sweep = Some(usize::MAX);
            sock.readable = true;
            self.enqueue(index);
        }
    }

    fn shut_write(&mut self, _core: &mut Core, index: u32) {
        if let Some(sock) = self.socks.get(index as usize) {
            // Fails only if the connection is broken, which reading will report.
            let _ = self.poller.sys().shut_write(&sock.fd);
        }
    }

    fn close(&mut self, core: &mut Core, index: u32, reset: bool) {
        if reset && let Some(sock) = self.socks.get(index as usize) {
            self.poller.sys().reset_on_close(&sock.fd);
        }
        self.remove(index);
        core.free(index);
    }

    fn connect(&mut self, core: &mut Core, index: u32, to: Endpoint, from: Option<SocketAddr>) {
        let sys = self.poller.sys();
        let started = sys
            .connect(&to, from, &self.dial_options)
            .and_then(|fd| self.insert(core, index, fd, true));
        if let Err(e) = started {
            core.connect_failed(index, &e);
        }
    }

    fn cancel_connect(&mut self, _core: &mut Core, index: u32) {
        self.remove(index);
    }
}
