//! The loop: enter the ring, deal with what completed, settle, again.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::accept::{self, Accepted};
use crate::driver::completion::ring::Completion;
use crate::driver::completion::sockets::Sockets;
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Operation, Queues};
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::accept::{Pause, Why, hand_over};
use crate::reactor::busy::BusyPoll;
use crate::reactor::core::Core;
use crate::reactor::setup::{LoopSetup, Spread};
use crate::vocabulary::endpoint::Endpoint;

/// Longest wait for operations that were taken back. The kernel ends them at once; but completions
/// of others may come first, as many as the queue has no room for.
pub(super) const QUIET_WAIT: Duration = Duration::from_secs(5);

/// The accept operation of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepting {
    No,
    Yes,
    /// Being taken back. It may still bring connections.
    Ending,
    /// Never again: somebody has shut down the listener.
    Broken,
}

type Fd<Q> = <<Q as Queues>::Sys as Sys>::Fd;

pub(super) struct Reactor<Q: Queues> {
    pub(super) core: Core,
    pub(super) io: Sockets<Q>,
    pub(super) setup: LoopSetup,
    pub(super) waker: Arc<Waker>,
    busy: BusyPoll,
    /// For each listener.
    pub(super) accepting: Vec<Accepting>,
    pub(super) accept_pause: Pause,
    next_loop: usize,
    /// Accepted, and waiting for a loop to have room for them.
    pub(super) waiting: VecDeque<Command>,
    /// Being worked on.
    batch: Vec<Completion>,
}

impl<Q: Queues> Reactor<Q> {
    pub(super) fn new(
        core: Core,
        io: Sockets<Q>,
        setup: LoopSetup,
        waker: Arc<Waker>,
    ) -> io::Result<Reactor<Q>> {
        let mut reactor = Reactor {
            core,
            io,
            busy: BusyPoll::new(setup.busy_poll),
            accepting: vec![Accepting::No; setup.listeners.len()],
            accept_pause: Pause::default(),
            next_loop: 0,
            waiting: VecDeque::new(),
            batch: Vec::new(),
            waker,
            setup,
        };
        reactor.watch_waker()?;
        reactor.accept_all();
        Ok(reactor)
    }

    /// Runs until stopped.
    pub(super) fn run(&mut self) {
        while !self.stopped() {
            self.turn();
        }
    }

    /// Takes everything back and waits until nothing is in flight.
    pub(super) fn finish(mut self) -> (Core, Sockets<Q>) {
        self.io.ring.cancel_all();
        let clock = self.core.env.clock.clone();
        let until = clock.monotonic() + QUIET_WAIT;
        while self.io.ring.in_flight() > 0 && clock.monotonic() < until {
            if let Err(e) = self.io.ring.enter(Some(QUIET_WAIT)) {
                tracing::error!(error = %e, "cannot wait for the last completions");
            }
            self.io.ring.collect();
        }
        (self.core, self.io)
    }

    fn turn(&mut self) {
        self.wait();
        self.core.env.counters.turns.add(1);
        self.core.take_backlog();
        self.work_off();
        self.obey();
        self.core.expire(&mut self.io);
        self.resume_accepting();
        self.core.settle_all(&mut self.io);
        self.sweep();
        // Last, because settling may drop what holds a buffer.
        while self.io.feed(&mut self.core) {
            self.core.settle_all(&mut self.io);
        }
    }

    /// Deals with everything that has completed.
    pub(super) fn work_off(&mut self) {
        self.io.ring.collect();
        let mut batch = std::mem::take(&mut self.batch);
        std::mem::swap(&mut batch, &mut self.io.ring.collected);
        if batch.len() > 1 && self.core.anybody_looks_ahead() {
            self.io.look_ahead(&mut self.core, &batch);
        }
        for done in batch.drain(..) {
            self.complete(done);
        }
        debug_assert!(self.io.early.is_empty());
        self.batch = batch;
    }

    #[inline]
    fn complete(&mut self, done: Completion) {
        match done.token.kind {
            Kind::Receive => self.io.received(&mut self.core, done),
            Kind::Send => self.io.sent(&mut self.core, done),
            Kind::Watch => self.io.watched(&mut self.core, done),
            Kind::Connect => self.io.connect_done(&mut self.core, done),
            Kind::Accept => self.accepted(done),
            Kind::Wake => self.woken(done),
            Kind::Cancel => {}
        }
    }

    fn wait(&mut self) {
        let mut timeout = self.sleep_for();
        if timeout != Some(Duration::ZERO) && self.busy.is_on() && self.busy_poll() {
            timeout = Some(Duration::ZERO);
        }
        let sleeping = timeout != Some(Duration::ZERO);
        if sleeping && !self.waker.may_sleep() {
            timeout = Some(Duration::ZERO);
        }
        let from = self.core.env.now;
        if let Err(e) = self.io.ring.enter(timeout) {
            tracing::error!(error = %e, "cannot wait for completions");
            self.io.ring.sys().pause(Duration::from_millis(10));
        }
        self.waker.awake();
        self.core.env.now = self.core.env.clock.monotonic();
        if sleeping && self.busy.is_on() {
            self.busy.slept(from, self.core.env.now);
        }
    }

    fn busy_poll(&mut self) -> bool {
        let (ring, waker) = (&mut self.io.ring, &self.waker);
        // Replies must not wait for the end of the poll.
        if ring.submit().is_err() {
            return false;
        }
        let clock = self.core.env.clock.clone();
        let hit = self
            .busy
            .poll(&clock, || ring.has_news() || waker.is_pending());
        if hit {
            self.core.env.counters.busy_poll_hits.add(1);
        }
        hit
    }

    fn sleep_for(&self) -> Option<Duration> {
        if !self.io.ring.collected.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut extra = self.accept_pause.until();
        let deadline = self.setup.clock.deadline();
        // Once it has passed, everything is cut, and completions say when that is done.
        if self.waker.stopping() != Stop::No && deadline > self.core.env.now {
            extra = Some(extra.map_or(deadline, |t| t.min(deadline)));
        }
        crate::reactor::core::sleep_for(&self.core, extra)
    }

    // ---- Reached from outside ----

    fn watch_waker(&mut self) -> io::Result<()> {
        let token = Token::of_loop(Kind::Wake, 0);
        let fd = self.waker.descriptor(self.io.ring.sys())?;
        let fd = Q::Sys::number(Q::Sys::look(&fd));
        let (events, multi) = (libc::POLLIN, true);
        self.io
            .ring
            .start(Operation::Poll { fd, events, multi }, token);
        Ok(())
    }

    fn woken(&mut self, done: Completion) {
        // The wait reports every write, read or not; only one that is armed anew looks at what is
        // there, and must not find what was reported before.
        if !done.more() && self.waker.stopping() != Stop::Now {
            self.waker.clear_descriptor();
            if let Err(e) = self.watch_waker() {
                tracing::error!(error = %e, "no wake-up descriptor; posts will be late");
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
                } => self.adopt(Q::Sys::own(socket), listener, service, peer),
                Command::Dial { service, dial } => self.core.dial(&mut self.io, service, dial),
            }
        }
    }

    // ---- Accepting ----

    fn accept_all(&mut self) {
        for (i, listener) in self.setup.listeners.iter().enumerate() {
            if self.accepting[i] == Accepting::No {
                self.accepting[i] = Accepting::Yes;
                let token = Token::of_loop(Kind::Accept, i as u32);
                let listener = Q::Sys::number(Q::Sys::look(&listener.socket));
                self.io.ring.start(Operation::Accept { listener }, token);
            }
        }
    }

    pub(super) fn end_accepting(&mut self) {
        for (i, accepting) in self.accepting.iter_mut().enumerate() {
            if *accepting == Accepting::Yes {
                *accepting = Accepting::Ending;
                let token = Token::of_loop(Kind::Accept, i as u32);
                self.io.ring.cancel(token);
            }
        }
    }

    fn accepted(&mut self, done: Completion) {
        let which = done.token.index as usize;
        if which >= self.setup.listeners.len() {
            // The listener has been closed without waiting any longer for this.
            if done.result >= 0 {
                // SAFETY: as below.
                drop(unsafe { self.io.ring.accepted(done) });
            }
            return;
        }
        if !done.more() {
            self.accepting[which] = Accepting::No;
        }
        if done.result >= 0 {
            // SAFETY: the accept has just made this descriptor, and reports it this once.
            let socket = unsafe { self.io.ring.accepted(done) };
            let peer = self.io.ring.sys().peer_name(&socket);
            self.accept_pause.succeeded();
            self.take_in(which, socket, peer);
        } else if !done.is(rustix::io::Errno::CANCELED) {
            match accept::classify::<()>(done.error()) {
                Accepted::Exhausted(e) => self.pause_accepting(Why::Kernel(e)),
                // Listeners are non-blocking, which the kernels that the probe lets through do not
                // mind. In case one does after all, it must not be asked for ever.
                Accepted::None => self.pause_accepting(Why::Kernel(done.error())),
                Accepted::Broken(e) => {
                    let number = self.setup.listeners[which].number;
                    tracing::error!(error = %e, number, "a listener is broken; it is left");
                    self.accepting[which] = Accepting::Broken;
                }
                Accepted::Gone(e) => {
                    if self.accept_pause.too_many_failed() {
                        self.pause_accepting(Why::Kernel(e));
                    }
                }
                Accepted::Connection(..) => {}
            }
        }
        if !self.accept_pause.is_on() && !self.core.draining() && self.waiting.is_empty() {
            self.accept_all();
        }
    }

    pub(super) fn take_in(&mut self, which: usize, socket: Fd<Q>, peer: Endpoint) {
        let (service, listener) = {
            let listener = &self.setup.listeners[which];
            (listener.service, listener.number)
        };
        match &self.setup.spread {
            Spread::Here => self.adopt(socket, listener, service, peer),
            Spread::Loops(_) => {
                self.waiting.push_back(Command::Adopt {
                    socket: Q::Sys::hand_over(socket),
                    listener,
                    service,
                    peer,
                });
                if !self.hand_over() {
                    self.pause_accepting(Why::Behind);
                }
            }
            Spread::Threads(_) => unreachable!("the threads engine accepts by readiness"),
        }
    }

    /// Hands what waits to the loops; false if they have no room for it.
    pub(super) fn hand_over(&mut self) -> bool {
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

    fn adopt(&mut self, socket: Fd<Q>, listener: u32, service: u16, peer: Endpoint) {
        let sys = self.io.ring.sys();
        let peer = accept::peer(sys, &socket, peer, listener);
        let Ok(index) = self.core.admit(service, peer) else {
            return sys.reset_on_close(&socket);
        };
        self.io.insert(&self.core, index, socket, false);
        self.core.open(index);
        self.core.settle(&mut self.io, index);
    }

    fn pause_accepting(&mut self, why: Why) {
        if self.accept_pause.begin(&self.core.env, &why) {
            self.end_accepting();
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
        self.accept_all();
    }
}
