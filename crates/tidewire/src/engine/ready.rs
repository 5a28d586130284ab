//! Loops that wait for readiness, then receive and send themselves.
//!
//! # The receive path
//!
//! 1. [`Reactor::turn`] waits in the [`Poller`] and notes which sockets are readable.
//! 2. [`Sockets::receive`] leases a buffer, calls `recv` once for each chunk and hands it to
//!    [`Core::received`], which calls the protocol. A short read means that the kernel has no more;
//!    a connection that used up its turn goes to the back of the queue.
//! 3. [`Core::settle`] sends what the protocol wrote, through [`Sockets::flush`]: the same turn,
//!    one `send` (or `sendmsg` for several pieces) for all replies to the chunk.

mod ahead;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::engine::accept::{self, Accepted, Why};
use crate::engine::busy::BusyPoll;
use crate::engine::{Listener, LoopSetup, Spread, connect};
use crate::memory::buffer::Lease;
use crate::memory::output::Output;
use crate::memory::table::Table;
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::core::{Core, Transport};
use crate::reactor::counters::LoopCounters;
use crate::reactor::env::Env;
use crate::reactor::state::{State, Writing};
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;

/// Something happened to the descriptor registered with `token`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// There is an urgent mark, at which receiving stops short. Told where only edges are.
    pub(crate) urgent: bool,
    /// The peer finished sending.
    pub(crate) ended: bool,
    /// Both directions are over.
    pub(crate) over: bool,
    /// An error is pending.
    pub(crate) failed: bool,
}

/// An interface of the kernel that tells which descriptors are ready.
pub(crate) trait Poller {
    /// How connections' descriptors are owned.
    type Fd: AsFd;
    /// Connections are reported once for each change, not for as long as they are ready.
    const EDGE_TRIGGERED: bool;

    fn own(fd: OwnedFd) -> Self::Fd;
    /// Adds a connection, for reading and writing.
    fn add(&mut self, fd: &Self::Fd, token: u64) -> io::Result<()>;
    fn add_waker(&mut self, waker: &Arc<Waker>, token: u64) -> io::Result<()>;
    fn add_listener(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()>;
    fn remove_listener(&mut self, fd: BorrowedFd<'_>);
    /// A connection's descriptor is about to be closed.
    fn forget(&mut self, token: u64);
    /// What a level-triggered poller should wait for.
    fn interest(&mut self, token: u64, read: bool, write: bool);
    /// Waits until something is ready, or for as long as `timeout` says. To be called when all
    /// events of the last wait were taken.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;
    /// Whether the last wait found something that was not yet taken.
    fn has_event(&self) -> bool;
    /// Takes one of what the last wait found.
    fn event(&mut self) -> Option<Readiness>;
}

const WAKER: u64 = u64::MAX;
/// Listener `i` has the token `LISTENERS + i`; connections have smaller ones.
const LISTENERS: u64 = u64::MAX - (1 << 16);

/// Read at most from a connection that comes in, or is established, during a stop; bytes.
const SWEEP_NEW: usize = 1 << 20;
/// Connections taken from one accept queue when a stop begins: more than any queue holds.
const SWEEP_ACCEPTS: usize = 1 << 16;
/// Connections taken from one accept queue before the first of their threads is started.
const CROWD: usize = 1 << 14;
/// Output of one connection that is sent at a time before others get their turn; bytes.
const FLUSH_TURN: usize = 1 << 20;
/// Slices given to one `sendmsg`.
const SLICES: usize = 64;

struct Sock<F> {
    fd: F,
    /// Of its connection; tells events of an earlier one with the same index.
    generation: u32,
    /// The kernel may have input.
    readable: bool,
    /// A short read is no sign that there is no more: the end of input, an error, or bytes after an
    /// urgent mark wait behind it.
    ended: bool,
    /// It is an error.
    broken: bool,
    reading: bool,
    /// In the queue of connections to receive from.
    queued: bool,
    connecting: bool,
    /// A stop wants everything read that the kernel held when it began: bytes left of that.
    sweep: Option<usize>,
}

/// The sockets of a loop, by connection index.
pub(crate) struct Sockets<P: Poller> {
    poller: P,
    socks: Table<Sock<P::Fd>>,
    /// Connections to receive from, in turn.
    ready: VecDeque<u32>,
    /// What is received into, unless a protocol keeps a part of what came last.
    lease: Option<Lease>,
    /// What was received to be announced, in the order of `ready`.
    early: VecDeque<ahead::Early>,
    /// Connections that wait for a receive buffer.
    starved: Vec<u32>,
    dial_options: Arc<crate::build::listen::TcpOptions>,
    /// A descriptor was closed, so accepting may go on.
    closed_some: bool,
}

pub(crate) struct Reactor<P: Poller> {
    core: Core,
    io: Sockets<P>,
    setup: LoopSetup,
    waker: Arc<Waker>,
    /// The wake-up descriptor is registered.
    wakeable: bool,
    busy: BusyPoll,
    accept_pause: accept::Pause,
    next_loop: usize,
    /// Accepted, and waiting for a loop to have room for them.
    waiting: VecDeque<Command>,
    spread_stopped: Stop,
}

impl<P: Poller> Sockets<P> {
    fn insert(&mut self, core: &Core, index: u32, fd: OwnedFd, connecting: bool) -> io::Result<()> {
        let id = core.states[index as usize].id;
        let fd = P::own(fd);
        self.poller.add(&fd, token(index, id.generation))?;
        // What the kernel holds already need not be announced: a stop cannot wait for it.
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
    fn sock(&mut self, index: u32) -> Option<&mut Sock<P::Fd>> {
        self.socks.get_mut(index as usize)
    }

    fn remove(&mut self, index: u32) {
        if let Some(sock) = self.socks.remove(index as usize) {
            self.poller.forget(token(index, sock.generation));
            self.closed_some = true;
        }
    }

    fn enqueue(&mut self, index: u32) {
        if let Some(sock) = self.sock(index)
            && !sock.queued
        {
            sock.queued = true;
            self.ready.push_back(index);
        }
    }

    /// Gives one connection its turn: up to its share of input, each chunk answered at once.
    fn receive(&mut self, core: &mut Core, index: u32) {
        let mut taken = 0;
        loop {
            let Some(sock) = self.socks.get_mut(index as usize) else {
                return;
            };
            // Its turn has come. What it is given may put it into the queue again.
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
            if taken > 0 && taken >= core.turn_bytes(index) {
                return self.enqueue(index);
            }
            if self.lease.is_none() {
                self.lease = core.env.pool.lease();
            }
            let Some(lease) = &mut self.lease else {
                core.env.counters.buffers_exhausted.add(1);
                self.starved.push(index);
                return;
            };
            let space = lease.space();
            let size = space.len();
            core.env.counters.receives.add(1);
            match rustix::net::recv(&sock.fd, space, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    sock.readable = false;
                    core.input_ended(index);
                }
                Ok((_, n)) => {
                    // What is short has emptied the kernel's buffer; more, or the end, is a new
                    // event, unless the end was announced already.
                    if n < size && !sock.ended && sock.sweep.is_none() {
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
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    sock.readable = false;
                    sock.ended = false;
                }
                Err(e) => {
                    sock.readable = false;
                    core.failed(index, io::Error::from(e).kind());
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

    /// Once a stop has begun and a connection has been given what the kernel held, it may be told.
    fn sweep_done(&mut self, core: &mut Core, index: u32) {
        let Some(sock) = self.sock(index) else { return };
        let Some(rest) = sock.sweep else { return };
        let state = &core.states[index as usize];
        // Held back by its own output only, so that the rest will be read when that has drained.
        let held_back = sock.readable && !state.wants_input() && state.waits_for_drain();
        if rest == 0 || !held_back {
            sock.sweep = None;
            core.owe_drain(index);
        }
    }

    /// Nobody reads, so the error will not be seen there.
    fn report_error(&mut self, core: &mut Core, index: u32) {
        let Some(sock) = self.sock(index) else { return };
        let error = rustix::net::sockopt::socket_error(&sock.fd);
        let error = error.unwrap_or_else(Err).err();
        if error.is_none() && core.states[index as usize].writing == Writing::Shut {
            // Both sides have finished in order; what the peer sent waits to be read.
            sock.broken = false;
            return;
        }
        let error = error.unwrap_or(Errno::CONNRESET);
        core.failed(index, io::Error::from(error).kind());
    }

    /// The attempt to connect is over; whether it succeeded.
    fn finish_connect(&mut self, core: &mut Core, index: u32) -> bool {
        let Some(sock) = self.sock(index) else {
            return false;
        };
        match connect::outcome(&sock.fd) {
            Ok(()) => {
                sock.connecting = false;
                core.states[index as usize].peer.ask_kernel(&sock.fd);
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

fn send_several(fd: BorrowedFd<'_>, out: &Output, flags: SendFlags) -> Result<usize, Errno> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let n = out.slices(&mut slices);
    let mut control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(fd, &slices[..n], &mut control, flags)
}

fn token(index: u32, generation: u32) -> u64 {
    // Generations are kept below the tokens of listeners.
    u64::from(generation & 0x7fff_ffff) << 32 | u64::from(index)
}

impl<P: Poller> Transport for Sockets<P> {
    fn flush(&mut self, state: &mut State, env: &mut Env) {
        let index = state.id.index;
        let Some(sock) = self.socks.get(index as usize) else {
            return;
        };
        let mut left = FLUSH_TURN;
        loop {
            env.counters.sends.add(1);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = match state.out.single() {
                Some(bytes) => rustix::net::send(&sock.fd, bytes, flags),
                None => send_several(sock.fd.as_fd(), &state.out, flags),
            };
            match sent {
                Ok(n) => {
                    left = left.saturating_sub(n);
                    if env.sent(state, n) == 0 {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    state.send_blocked = true;
                    return;
                }
                Err(e) => return env.failed(state, io::Error::from(e).kind()),
            }
            if left == 0 {
                // A peer that keeps up with a large reply must not keep the others waiting.
                return env.backlog.push(index);
            }
        }
    }

    fn set_reading(&mut self, state: &mut State, _env: &mut Env, on: bool) {
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
            self.poller.interest(token, read, state.send_blocked);
        }
        if due {
            self.enqueue(index);
        }
    }

    fn shut_write(&mut self, _core: &mut Core, index: u32) {
        if let Some(sock) = self.sock(index) {
            // Fails only if the connection is broken, which reading will report.
            let _ = rustix::net::shutdown(&sock.fd, Shutdown::Write);
        }
    }

    fn close(&mut self, core: &mut Core, index: u32, reset: bool) {
        if reset && let Some(sock) = self.sock(index) {
            let _ = rustix::net::sockopt::set_socket_linger(&sock.fd, Some(Duration::ZERO));
        }
        self.remove(index);
        core.free(index);
    }

    fn connect(&mut self, core: &mut Core, index: u32, to: Endpoint, from: Option<SocketAddr>) {
        let started = connect::start(&to, from, &self.dial_options)
            .and_then(|(fd, _)| self.insert(core, index, fd, true));
        if let Err(e) = started {
            core.connect_failed(index, &e);
        }
    }

    fn cancel_connect(&mut self, _core: &mut Core, index: u32) {
        self.remove(index);
    }
}

impl<P: Poller> Reactor<P> {
    pub(crate) fn new(
        mut poller: P,
        mut setup: LoopSetup,
        waker: Arc<Waker>,
        counters: Arc<LoopCounters>,
    ) -> io::Result<Reactor<P>> {
        for (i, listener) in setup.listeners.iter().enumerate() {
            poller.add_listener(listener.socket.as_fd(), LISTENERS + i as u64)?;
        }
        if P::EDGE_TRIGGERED {
            poller.add_waker(&waker, WAKER)?;
        }
        let core = setup.core(waker.clone(), counters);
        Ok(Reactor {
            core,
            io: Sockets {
                poller,
                socks: Table::new(),
                ready: VecDeque::new(),
                lease: None,
                early: VecDeque::new(),
                starved: Vec::new(),
                dial_options: setup.dial_options.clone(),
                closed_some: false,
            },
            waker,
            wakeable: P::EDGE_TRIGGERED,
            busy: BusyPoll::new(setup.busy_poll),
            accept_pause: accept::Pause::default(),
            next_loop: 0,
            waiting: VecDeque::new(),
            spread_stopped: Stop::No,
            setup: {
                setup.cpu = None;
                setup
            },
        })
    }

    /// Runs until stopped.
    pub(crate) fn run(&mut self) {
        while !self.stopped() {
            self.turn();
        }
    }

    /// Runs until the last connection is gone and no command waits. What comes later is left to the
    /// acceptor.
    pub(crate) fn run_until_empty(&mut self, acceptor: &Arc<Waker>) {
        loop {
            self.obey();
            while !self.core.is_empty() {
                self.turn();
                if self.stopped() {
                    return;
                }
            }
            // A callback may have dialled, the last one of a connection included.
            if self.stopped() || self.waker.end_if_idle(acceptor) {
                return;
            }
        }
    }

    fn turn(&mut self) {
        self.wait();
        self.core.env.counters.turns.add(1);
        self.core.take_backlog();
        while let Some(event) = self.io.poller.event() {
            self.note(event);
        }
        self.obey();
        self.core.expire(&mut self.io);
        self.resume_accepting();
        // Only those that are ready now: who needs another turn queues behind them.
        let due = self.io.ready.len();
        let ahead = due > 1 && self.core.anybody_looks_ahead();
        if ahead {
            self.io.look_ahead(&mut self.core);
        }
        for _ in 0..due {
            let Some(index) = self.io.ready.pop_front() else {
                break;
            };
            if ahead {
                self.io.hand_over(&mut self.core, index);
            }
            self.io.receive(&mut self.core, index);
        }
        debug_assert!(self.io.early.is_empty());
        self.core.settle_all(&mut self.io);
        if !self.io.starved.is_empty() && self.core.env.pool.free() > 0 {
            for index in std::mem::take(&mut self.io.starved) {
                self.io.enqueue(index);
            }
        }
    }

    /// Mail and commands.
    fn obey(&mut self) {
        self.core.take_mail();
        self.core
            .env
            .counters
            .dials_refused
            .add(self.waker.take_refused());
        if self.waker.has_commands() {
            self.obey_commands();
        }
    }

    #[cold]
    fn obey_commands(&mut self) {
        for command in self.waker.commands() {
            match command {
                Command::Adopt {
                    socket,
                    listener,
                    service,
                    peer,
                } => {
                    self.adopt(socket, listener, service, peer);
                }
                Command::Dial { service, dial } => match &self.setup.spread {
                    Spread::Threads(spawner) => {
                        let token = dial.token;
                        let dial = Command::Dial { service, dial };
                        if let Err(e) = spawner.spawn(dial, &self.waker) {
                            tracing::error!(error = %e, token, "cannot start a thread to dial");
                            self.core.dial_failed(service, token, &e);
                        }
                    }
                    _ => self.core.dial(&mut self.io, service, dial),
                },
            }
        }
    }

    fn wait(&mut self) {
        // A wait by level needs a descriptor only if anybody could use it: who holds a handle, or
        // whoever started a stop and may cut it short.
        let awaited = self.waker.stopping() != Stop::No || self.core.reachable();
        if !self.wakeable && awaited {
            match self.io.poller.add_waker(&self.waker, WAKER) {
                Ok(()) => self.wakeable = true,
                Err(e) => {
                    tracing::debug!(error = %e, "no wake-up descriptor; looking now and then")
                }
            }
        }
        let mut timeout = self.sleep_for();
        if awaited && !self.wakeable {
            // Descriptors have run out, and nobody can wake this loop.
            timeout = Some(timeout.map_or(accept::PAUSE, |t| t.min(accept::PAUSE)));
        }
        if timeout != Some(Duration::ZERO) && self.busy.is_on() && self.busy_poll() {
            timeout = Some(Duration::ZERO);
        }
        let sleeping = timeout != Some(Duration::ZERO);
        if sleeping && !self.waker.may_sleep() {
            timeout = Some(Duration::ZERO);
        }
        let from = self.core.env.now;
        if !self.io.poller.has_event()
            && let Err(e) = self.io.poller.wait(timeout)
        {
            tracing::error!(error = %e, "cannot wait for events");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.waker.awake();
        self.core.env.now = self.core.env.clock.monotonic();
        if sleeping && self.busy.is_on() {
            self.busy.slept(from, self.core.env.now);
        }
    }

    fn busy_poll(&mut self) -> bool {
        let (poller, waker) = (&mut self.io.poller, &self.waker);
        let clock = self.core.env.clock.clone();
        let hit = self.busy.poll(&clock, || {
            let _ = poller.wait(Some(Duration::ZERO));
            poller.has_event() || waker.is_pending()
        });
        if hit {
            self.core.env.counters.busy_poll_hits.add(1);
        }
        hit
    }

    fn sleep_for(&self) -> Option<Duration> {
        if !self.io.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut extra = self.accept_pause.until();
        if self.waker.stopping() != Stop::No {
            let deadline = self.setup.clock.deadline();
            // Once it has passed, everything is cut, and threads say when they have ended.
            if deadline > self.core.env.now {
                extra = Some(extra.map_or(deadline, |t| t.min(deadline)));
            }
        }
        crate::reactor::core::sleep_for(&self.core, extra)
    }

    fn note(&mut self, event: Readiness) {
        if event.token == WAKER {
            return self.waker.clear_descriptor();
        }
        if event.token >= LISTENERS {
            return self.accept((event.token - LISTENERS) as usize, accept::BATCH);
        }
        let index = event.token as u32;
        let core = &mut self.core;
        let Some(mut sock) = self.io.socks.get_mut(index as usize) else {
            return;
        };
        if token(index, sock.generation) != event.token {
            return;
        }
        // Once connected, go on: the peer may have sent something already, and it is announced
        // only once.
        if sock.connecting {
            if !(event.writable || event.over || event.failed)
                || !self.io.finish_connect(core, index)
            {
                return;
            }
            let Some(connected) = self.io.socks.get_mut(index as usize) else {
                return;
            };
            sock = connected;
        }
        if event.writable {
            let state = &mut core.states[index as usize];
            if state.send_blocked {
                state.send_blocked = false;
                core.env.touch(state);
            }
        }
        if !(event.readable || event.ended || event.over || event.failed) {
            return;
        }
        // A TCP connection whose both directions are over was reset. A Unix socket is so as soon as
        // its peer has closed, with all that the peer sent still to be read.
        let reset = event.over && core.states[index as usize].peer.endpoint.is_tcp();
        let broken = event.failed || reset;
        let ended = event.ended || event.over || event.failed;
        sock.readable = true;
        sock.ended |= ended || event.urgent;
        sock.broken |= broken;
        if ended {
            core.hung_up(index);
        }
        if !sock.reading {
            if broken {
                self.io.report_error(core, index);
            }
        } else if !std::mem::replace(&mut sock.queued, true) {
            self.io.ready.push_back(index);
        }
        // With a level-triggered poller, what is known already must not be reported again.
        if !P::EDGE_TRIGGERED {
            core.touch(index);
        }
    }

    fn accept(&mut self, which: usize, most: usize) {
        let Some(listener) = self.setup.listeners.get(which) else {
            return;
        };
        let (service, number) = (listener.service, listener.number);
        // Starting a thread takes many times as long as accepting. If a crowd comes, all of it is
        // taken from the kernel's queue first: who does not fit in there waits for seconds.
        let starts_threads = matches!(self.setup.spread, Spread::Threads(_));
        let most = if starts_threads {
            most.max(CROWD)
        } else {
            most
        };
        let mut crowd = Vec::new();
        for _ in 0..most {
            if !self.waiting.is_empty() && most < SWEEP_ACCEPTS {
                break;
            }
            match accept::accept(&self.setup.listeners[which].socket) {
                Accepted::Connection(socket, peer) => {
                    self.accept_pause.succeeded();
                    if starts_threads {
                        crowd.push((socket, peer));
                    } else {
                        self.take_in(socket, number, service, peer);
                    }
                }
                Accepted::Gone(e) => {
                    if self.accept_pause.too_many_failed() {
                        self.pause_accepting(Why::Kernel(e));
                        break;
                    }
                }
                Accepted::None => break,
                Accepted::Exhausted(e) => {
                    self.pause_accepting(Why::Kernel(e));
                    break;
                }
                Accepted::Broken(e) => {
                    self.leave_listener(which, &e);
                    break;
                }
            }
        }
        for (socket, peer) in crowd {
            self.take_in(socket, number, service, peer);
        }
    }

    /// Listens no longer to what would be reported for ever. Kept, so that the others' tokens stay.
    fn leave_listener(&mut self, which: usize, e: &io::Error) {
        let Listener { socket, number, .. } = &self.setup.listeners[which];
        tracing::error!(error = %e, listener = number, "a listener is broken; nothing is accepted on it");
        self.io.poller.remove_listener(socket.as_fd());
    }

    fn take_in(&mut self, socket: OwnedFd, listener: u32, service: u16, peer: Endpoint) {
        match &self.setup.spread {
            Spread::Here => self.adopt(socket, listener, service, peer),
            Spread::Loops(_) => {
                self.waiting.push_back(Command::Adopt {
                    socket,
                    listener,
                    service,
                    peer,
                });
                if !self.hand_over() {
                    self.pause_accepting(Why::Behind);
                }
            }
            Spread::Threads(spawner) => {
                let command = Command::Adopt {
                    socket,
                    listener,
                    service,
                    peer: peer.clone(),
                };
                if let Err(e) = spawner.spawn(command, &self.waker) {
                    self.core.refuse_accepted(Refusal::NoThread, &peer);
                    self.pause_accepting(Why::Kernel(e));
                }
            }
        }
    }

    /// Hands what waits to the loops; false if they have no room for it.
    fn hand_over(&mut self) -> bool {
        let Spread::Loops(loops) = &self.setup.spread else {
            return true;
        };
        accept::hand_over(
            &mut self.core,
            &mut self.waiting,
            loops,
            &mut self.next_loop,
        )
    }

    fn adopt(&mut self, socket: OwnedFd, listener: u32, service: u16, peer: Endpoint) {
        let Ok(index) = self
            .core
            .admit(service, accept::peer(&socket, peer, listener))
        else {
            let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
            return;
        };
        let inserted = self.io.insert(&self.core, index, socket, false);
        self.core.open(index);
        if let Err(e) = inserted {
            self.core.failed(index, e.kind());
        }
        self.core.settle(&mut self.io, index);
    }

    fn pause_accepting(&mut self, why: Why) {
        if self.accept_pause.begin(&self.core.env, &why) {
            for listener in &self.setup.listeners {
                self.io.poller.remove_listener(listener.socket.as_fd());
            }
        }
        self.io.closed_some = false;
    }

    fn resume_accepting(&mut self) {
        if !self.accept_pause.ended(&self.core.env, self.io.closed_some) {
            return;
        }
        if !self.hand_over() {
            return self.accept_pause.go_on(&self.core.env);
        }
        for (i, listener) in self.setup.listeners.iter().enumerate() {
            let added = self
                .io
                .poller
                .add_listener(listener.socket.as_fd(), LISTENERS + i as u64);
            if let Err(e) = added {
                tracing::error!(error = %e, "cannot accept on a listener any more");
            }
        }
    }

    // ---- Stopping ----

    /// Goes on with a stop, if there is one; true when the loop is to end.
    fn stopped(&mut self) -> bool {
        let stop = self.waker.stopping();
        if stop == Stop::No {
            return false;
        }
        if !self.core.draining() {
            self.begin_drain();
        }
        let over = self.core.env.now >= self.setup.clock.deadline();
        if stop == Stop::Now || over {
            self.stop_spread(Stop::Now);
            self.core.cut_all(&mut self.io);
        } else {
            self.stop_spread(Stop::Graceful);
        }
        let spread_live = match &self.setup.spread {
            Spread::Threads(spawner) => spawner.live() > 0,
            _ => false,
        };
        let handed_over = over || stop == Stop::Now || self.waiting.is_empty();
        // A connection handed over just before the stop waits among the commands.
        !spread_live && handed_over && self.core.is_done()
    }

    fn stop_spread(&mut self, how: Stop) {
        if let Spread::Threads(spawner) = &self.setup.spread
            && self.spread_stopped < how
        {
            self.spread_stopped = how;
            spawner.stop(how);
        }
    }

    fn begin_drain(&mut self) {
        // Whoever was told that it is connected is served.
        if !self.setup.clock.is_succeeded() {
            for i in 0..self.setup.listeners.len() {
                self.accept(i, SWEEP_ACCEPTS);
            }
        }
        for Listener { socket, .. } in self.setup.listeners.drain(..) {
            self.io.poller.remove_listener(socket.as_fd());
        }
        if self.waiting.is_empty() {
            self.accept_pause.end();
        }
        // The acceptor has ended before, but what it sent may have come after the last look.
        self.obey();
        self.core.begin_drain(&mut self.io);
        for index in 0..self.io.socks.end() as u32 {
            let Some(sock) = self.io.sock(index) else {
                continue;
            };
            let held = rustix::io::ioctl_fionread(&sock.fd).unwrap_or(0);
            sock.sweep = Some(usize::try_from(held).unwrap_or(usize::MAX));
            sock.readable = true;
            self.io.enqueue(index);
            self.core.touch(index);
        }
    }
}
