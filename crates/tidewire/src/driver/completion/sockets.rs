//! The sockets of a loop: what is in flight for each, and what the core asks of them.
//!
//! A socket is closed, and its connection forgotten, when the last of its operations has
//! completed. Until then the kernel may use the connection's output, and the descriptor's number
//! must not be given to another.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::build::listen::TcpOptions;
use crate::driver::completion::accept::Listeners;
use crate::driver::completion::alarm::Alarm;
use crate::driver::completion::gather::{Gather, Gathers};
use crate::driver::completion::probe::Abilities;
use crate::driver::completion::provided::Group;
use crate::driver::completion::receiver::{Parts, Receiver, Watch};
use crate::driver::completion::ring::{Completion, Ring};
use crate::driver::completion::token::{Kind, Token, next_generation};
use crate::kernel::accept::meet;
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Operation, Queues};
use crate::memory::buffer::Lease;
use crate::memory::table::Table;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::state::State;
use crate::vocabulary::endpoint::Endpoint;

type Fd<Q> = <<Q as Queues>::Sys as Sys>::Fd;

pub(super) struct Sock<S: Sys> {
    /// No descriptor for a socket in the ring's table: see [`places`](super::places).
    pub(super) fd: Option<S::Fd>,
    pub(super) generation: u32,
    /// Operations that will still complete. The socket stays open until there are none.
    pub(super) in_flight: u8,
    pub(super) connecting: bool,
    pub(super) receiver: Receiver,
    pub(super) watch: Watch,
    /// The slices of the send in flight, if there are several.
    pub(super) gather: Option<Box<Gather>>,
    /// To be closed, and whether with a reset.
    closing: Option<Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    InOrder,
    Reset,
}

impl<S: Sys> Sock<S> {
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Has the ring do something that brings nothing back.
    fn ask<Q: Queues<Sys = S>>(
        &mut self,
        ring: &mut Ring<Q>,
        index: u32,
        kind: Kind,
        operation: Operation,
    ) {
        self.in_flight += 1;
        ring.start(operation, Token::new(kind, self.generation, index));
    }
}

/// A piece that was taken from its completion before the completion is handled.
pub(super) struct Early {
    pub(super) large: bool,
    pub(super) piece: u16,
    pub(super) lease: Lease,
}

pub(crate) struct Sockets<Q: Queues> {
    pub(super) ring: Ring<Q>,
    /// Small pieces, for connections that send small messages.
    pub(super) small: Group<Q::Buffers>,
    /// Pieces of a whole chunk, for streams.
    pub(super) large: Group<Q::Buffers>,
    socks: Table<Sock<Q::Sys>>,
    /// Generation of the socket made last.
    generation: u32,
    /// Pieces taken from their completions to be announced, in the order of the completions.
    pub(super) early: VecDeque<Early>,
    /// Parts of connections for which the rest is on its way.
    pub(super) parts: Vec<Parts>,
    /// Connections whose receive found no buffer, and the group it looked in.
    pub(super) starved: VecDeque<Token>,
    /// Connections that may have to be told of a stop when they are settled.
    pub(super) swept: Vec<u32>,
    pub(super) gathers: Gathers,
    dial_options: Arc<TcpOptions>,
    pub(super) abilities: Abilities,
    /// A descriptor was closed, so accepting may go on.
    pub(super) closed_some: bool,
    /// Descriptors of attempts that were given up, which operations name that the kernel has not taken yet.
    pub(super) unheard: Vec<Fd<Q>>,
    pub(super) listeners: Listeners,
    pub(super) alarm: Alarm<Q::Sys>,
    /// Completions being dealt with.
    pub(super) batch: Vec<Completion>,
    /// How many of the pieces were handed out.
    pub(super) dealt: usize,
}

impl<Q: Queues> Sockets<Q> {
    pub(super) fn new(
        ring: Ring<Q>,
        small: Group<Q::Buffers>,
        large: Group<Q::Buffers>,
        dial_options: Arc<TcpOptions>,
        abilities: Abilities,
    ) -> Sockets<Q> {
        let alarm = Alarm::new(ring.sys());
        Sockets {
            ring,
            small,
            large,
            socks: Table::new(),
            generation: 0,
            early: VecDeque::new(),
            parts: Vec::new(),
            starved: VecDeque::new(),
            swept: Vec::new(),
            gathers: Gathers::default(),
            dial_options,
            abilities,
            closed_some: false,
            unheard: Vec::new(),
            listeners: Listeners::default(),
            alarm,
            batch: Vec::new(),
            dealt: 0,
        }
    }

    /// Takes the buffers from the kernel. To be called when nothing is in flight.
    pub(super) fn end(self) -> io::Result<()> {
        debug_assert!(self.small.is_whole(), "a receive buffer is lost");
        for group in [self.small, self.large] {
            group.unregister(self.ring.queues())?;
        }
        Ok(())
    }

    /// Takes in a connection's socket. The socket must be a blocking one: io_uring waits only on
    /// blocking sockets.
    pub(super) fn insert(&mut self, core: &Core, index: u32, fd: Fd<Q>, connecting: bool) {
        self.generation = next_generation(self.generation);
        let mut sock = Sock {
            fd: Some(fd),
            generation: self.generation,
            in_flight: 0,
            connecting,
            receiver: Receiver::new(core.draining()),
            watch: Watch::Off,
            gather: None,
            closing: None,
        };
        if !connecting {
            sock.place(&mut self.ring, self.abilities.places, index);
        }
        self.socks.put(index as usize, sock);
    }

    #[inline]
    pub(super) fn sock(&mut self, index: u32) -> Option<&mut Sock<Q::Sys>> {
        self.socks.get_mut(index as usize)
    }

    #[inline]
    pub(super) fn sock_and_ring(
        &mut self,
        index: u32,
    ) -> Option<(&mut Sock<Q::Sys>, &mut Ring<Q>)> {
        let sock = self.socks.get_mut(index as usize)?;
        Some((sock, &mut self.ring))
    }

    /// The socket that a completion belongs to, unless it has gone.
    #[inline]
    pub(super) fn sock_of(&mut self, token: Token) -> Option<&mut Sock<Q::Sys>> {
        self.sock(token.index)
            .filter(|s| s.generation == token.generation)
    }

    /// The socket, with the ring.
    pub(super) fn sock_and_ring_of(
        &mut self,
        token: Token,
    ) -> Option<(&mut Sock<Q::Sys>, &mut Ring<Q>)> {
        let found = self.sock_and_ring(token.index);
        found.filter(|(sock, _)| {
            sock.generation == token.generation || mistaken(Mistake::GenerationIgnored)
        })
    }

    pub(super) fn count(&self) -> u32 {
        self.socks.end() as u32
    }

    fn remove(&mut self, index: u32) -> Option<Sock<Q::Sys>> {
        let sock = self.socks.remove(index as usize)?;
        self.closed_some = true;
        if sock.fd.is_none() {
            self.ring.queues_mut().take_out(index);
        }
        Some(sock)
    }

    /// The kernel's data of this connection has been received since the stop began. If there was no data and no operation is
    /// in flight, the successor gets the connection; otherwise its protocol is told of the stop. A connection in the ring's
    /// table cannot leave the ring.
    pub(super) fn drain_or_pass_on(&mut self, core: &mut Core, index: u32) {
        if core.rest_is_read(index) {
            return;
        }
        let is_quiet = |sock: &mut Sock<Q::Sys>| sock.in_flight == 0 && sock.fd.is_some();
        if core.may_pass_on(index)
            && self.sock(index).is_some_and(is_quiet)
            && let Some(fd) = self.remove(index).and_then(|sock| sock.fd)
        {
            return core.pass_on(index, Q::Sys::hand_over(fd));
        }
        core.owe_drain(index);
    }

    /// Closes a socket that is to be closed and of which nothing is in flight.
    pub(super) fn close_if_quiet(&mut self, core: &mut Core, index: u32) {
        let Some((sock, ring)) = self.sock_and_ring(index) else {
            return;
        };
        let in_flight = match mistaken(Mistake::FreedInFlight) {
            true => 0,
            false => sock.in_flight,
        };
        let (Some(ending), 0) = (sock.closing, in_flight) else {
            return;
        };
        if ending == Ending::Reset {
            match &sock.fd {
                Some(fd) => ring.sys().reset_on_close(fd),
                None if mistaken(Mistake::PlacedNotReset) => {}
                None => {
                    // The socket is closed when that has been done.
                    sock.closing = Some(Ending::InOrder);
                    let socket = sock.target(index);
                    let operation = Operation::ResetOnClose { socket };
                    return sock.ask(ring, index, Kind::ResetOnClose, operation);
                }
            }
        }
        self.remove(index);
        core.free(index);
    }

    /// An operation that was [asked](Sock::ask) of the ring has completed. Such an operation fails only
    /// if the connection is broken, which reading will report.
    pub(super) fn asked(&mut self, core: &mut Core, token: Token) {
        if let Some(sock) = self.sock_of(token) {
            sock.in_flight -= 1;
            self.close_if_quiet(core, token.index);
        }
    }

    /// A connect has come to an end.
    pub(super) fn connect_done(&mut self, core: &mut Core, done: Completion) {
        let index = done.token.index;
        let Some((sock, ring)) = self.sock_and_ring_of(done.token) else {
            return;
        };
        sock.in_flight -= 1;
        if sock.is_closing() {
            return self.close_if_quiet(core, index);
        }
        let sys = ring.sys();
        let fd = sock.fd.as_ref().expect("it is placed once it is connected");
        let outcome = sys.outcome(fd);
        match outcome.and_then(|()| sys.set_blocking(fd)) {
            Ok(()) => {
                sock.connecting = false;
                meet(&mut core.states[index as usize].peer, sys, fd);
                let places = self.abilities.places;
                if let Some((sock, ring)) = self.sock_and_ring(index) {
                    sock.place(ring, places, index);
                }
                core.connected(index);
            }
            Err(e) => {
                self.remove(index);
                core.connect_failed(index, &e.into());
            }
        }
    }
}

impl<Q: Queues> Transport for Sockets<Q> {
    fn flush(&mut self, state: &mut State, env: &mut Env) {
        self.send(state, env);
    }

    fn set_reading(&mut self, state: &mut State, _env: &mut Env, on: bool) {
        self.read(state, on);
    }

    fn untaken(&mut self, index: u32) -> Option<usize> {
        let (sock, ring) = self.sock_and_ring(index)?;
        let untaken = sock.with(ring, index, |sys, fd| sys.untaken(fd));
        untaken.ok()?.ok()
    }

    fn has_emptied(&self, index: u32) -> bool {
        let sock = self.socks.get(index as usize);
        sock.is_some_and(|sock| !sock.receiver.holds_more())
    }

    fn read_rest(&mut self, index: u32) {
        if let Some(sock) = self.sock(index) {
            sock.receiver.sweep = Some(u32::MAX);
        }
    }

    fn shut_write(&mut self, _core: &mut Core, index: u32) {
        let Some((sock, ring)) = self.sock_and_ring(index) else {
            return;
        };
        // The call fails only if the connection is broken, which reading will report.
        let called = sock.with(ring, index, |sys, fd| sys.shut_write(fd));
        if called.is_err() && !mistaken(Mistake::HalfCloseDropped) {
            // No descriptor is to be had. The ring needs none, but a thread of the kernel's, which takes longer.
            let socket = sock.target(index);
            sock.ask(
                ring,
                index,
                Kind::ShutWrite,
                Operation::ShutWrite { socket },
            );
        }
    }

    fn close(&mut self, core: &mut Core, index: u32, reset: bool) {
        // The remaining work may take as long as it takes: there is no deadline any more.
        core.states[index as usize].phase_ends = None;
        let Some(sock) = self.socks.get_mut(index as usize) else {
            return core.free(index);
        };
        if sock.closing.is_some() {
            return;
        }
        sock.closing = Some(if reset {
            Ending::Reset
        } else {
            Ending::InOrder
        });
        if std::mem::take(&mut sock.receiver.has_parts) {
            // The parts are not offered any more.
            self.parts.retain(|parts| parts.index != index);
        }
        if sock.in_flight > 0 && !mistaken(Mistake::FreedInFlight) {
            self.ring.cancel_all_of(sock.target(index));
        } else {
            self.close_if_quiet(core, index);
        }
    }

    /// Connects without the ring's help and waits through it: the address need not outlive this
    /// call, and an attempt that is given up leaves nothing behind.
    fn connect(&mut self, core: &mut Core, index: u32, to: Endpoint, from: Option<SocketAddr>) {
        match self.ring.sys().connect(&to, from, &self.dial_options) {
            Ok(fd) => {
                self.insert(core, index, fd, true);
                let sock = &mut self.socks[index as usize];
                sock.in_flight += 1;
                let token = Token::new(Kind::Connect, sock.generation, index);
                let (fd, events) = (sock.target(index), libc::POLLOUT);
                let multi = false;
                self.ring
                    .start(Operation::Poll { fd, events, multi }, token);
            }
            Err(e) => core.connect_failed(index, &e),
        }
    }

    fn cancel_connect(&mut self, _core: &mut Core, index: u32) {
        let Some(sock) = self.remove(index) else {
            return;
        };
        if mistaken(Mistake::ConnectNotTakenBack) {
            return;
        }
        self.ring
            .cancel(Token::new(Kind::Connect, sock.generation, index));
        if mistaken(Mistake::CancelNotSubmitted) {
            return;
        }
        // The kernel must have looked up the descriptor before its number may be reused.
        if let Err(e) = self.ring.submit() {
            tracing::debug!(error = %e, "the kernel takes no operations for now");
            self.unheard.extend(sock.fd);
        }
    }
}
