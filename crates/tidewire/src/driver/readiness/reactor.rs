//! The loop: wait for readiness, receive from those that are ready, settle, again.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::accept::{self, Accepted};
use crate::driver::readiness::sockets::Sockets;
use crate::driver::readiness::{Poller, Readiness, token};
use crate::kernel::calls::Sys;
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::accept::{BATCH, PAUSE, Pause, Why, hand_over};
use crate::reactor::busy::BusyPoll;
use crate::reactor::core::Core;
use crate::reactor::counters::LoopCounters;
use crate::reactor::setup::{Listener, LoopSetup, Spread};
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;

const WAKER: u64 = u64::MAX;
/// Listener `i` has the token `LISTENERS + i`; connections have smaller ones.
const LISTENERS: u64 = u64::MAX - (1 << 16);

/// Connections taken from one accept queue when a stop begins: more than any queue holds.
const SWEEP_ACCEPTS: usize = 1 << 16;
/// Connections taken from one accept queue before the first of their threads is started.
const CROWD: usize = 1 << 14;
type Fd<P> = <<P as Poller>::Sys as Sys>::Fd;

pub(crate) struct Reactor<P: Poller> {
    core: Core,
    io: Sockets<P>,
    setup: LoopSetup,
    waker: Arc<Waker>,
    /// The wake-up descriptor is registered.
    wakeable: bool,
    busy: BusyPoll,
    accept_pause: Pause,
    next_loop: usize,
    /// Accepted, and waiting for a loop to have room for them.
    waiting: VecDeque<Command>,
    spread_stopped: Stop,
}

impl<P: Poller> Reactor<P> {
    pub(crate) fn new(
        mut poller: P,
        mut setup: LoopSetup,
        waker: Arc<Waker>,
        counters: Arc<LoopCounters>,
    ) -> io::Result<Reactor<P>> {
        for (i, listener) in setup.listeners.iter().enumerate() {
            poller.add_listener(&listener.socket, LISTENERS + i as u64)?;
        }
        if P::EDGE_TRIGGERED {
            poller.add_waker(&waker, WAKER)?;
        }
        let core = setup.core(waker.clone(), counters);
        Ok(Reactor {
            core,
            io: Sockets::new(poller, setup.dial_options.clone()),
            waker,
            wakeable: P::EDGE_TRIGGERED,
            busy: BusyPoll::new(setup.busy_poll),
            accept_pause: Pause::default(),
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
                    self.adopt(P::Sys::own(socket), listener, service, peer);
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
            timeout = Some(timeout.map_or(PAUSE, |t| t.min(PAUSE)));
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
            self.io.poller.sys().pause(Duration::from_millis(10));
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
            return self.accept((event.token - LISTENERS) as usize, BATCH);
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
            if state.unblock_sending() {
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
            core.end_announced(index);
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
            let accepted =
                accept::accept(self.io.poller.sys(), &self.setup.listeners[which].socket);
            match accepted {
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
        self.io.poller.remove_listener(socket);
    }

    fn take_in(&mut self, socket: Fd<P>, listener: u32, service: u16, peer: Endpoint) {
        match &self.setup.spread {
            Spread::Here => self.adopt(socket, listener, service, peer),
            Spread::Loops(_) => {
                self.waiting.push_back(Command::Adopt {
                    socket: P::Sys::hand_over(socket),
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
                    socket: P::Sys::hand_over(socket),
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
        hand_over(
            &mut self.core,
            &mut self.waiting,
            loops,
            &mut self.next_loop,
        )
    }

    fn adopt(&mut self, socket: Fd<P>, listener: u32, service: u16, peer: Endpoint) {
        let sys = self.io.poller.sys();
        let peer = accept::peer(sys, &socket, peer, listener);
        let Ok(index) = self.core.admit(service, peer) else {
            return sys.reset_on_close(&socket);
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
                self.io.poller.remove_listener(&listener.socket);
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
                .add_listener(&listener.socket, LISTENERS + i as u64);
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
            self.io.poller.remove_listener(&socket);
        }
        if self.waiting.is_empty() {
            self.accept_pause.end();
        }
        // The acceptor has ended before, but what it sent may have come after the last look.
        self.obey();
        self.core.begin_drain(&mut self.io);
        for index in 0..self.io.socks.end() as u32 {
            let Some(sock) = self.io.socks.get_mut(index as usize) else {
                continue;
            };
            sock.sweep = Some(self.io.poller.sys().unread(&sock.fd).unwrap_or(0));
            sock.readable = true;
            self.io.enqueue(index);
            self.core.touch(index);
        }
    }
}
