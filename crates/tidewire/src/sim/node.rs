//! A simulated loop: the production [`Core`] over the simulated network, turn by turn.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::memory::buffer::Lease;
use crate::reach::waker::{Command, Waker};
use crate::reactor::core::{Core, LOOK_AHEAD_MAX};
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::facts::Phase;
use crate::reactor::state::State;
use crate::sim::net::{End, Listener, Net, News, Notice, Owner, Read, Status, Written};
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// Slices given to one write.
const SLICES: usize = 16;

/// What the loop knows of a connection's end.
struct Entry {
    end: End,
    generation: u32,
    /// There may be something to read.
    readable: bool,
    reading: bool,
    /// In the queue of connections to read from.
    queued: bool,
    /// A stop wants everything read that has arrived.
    sweep: bool,
}

/// What was read before its connection's turn.
struct Early {
    index: u32,
    generation: u32,
    lease: Lease,
    len: usize,
}

/// The ends of a loop, by connection index.
#[derive(Default)]
struct Ends {
    entries: Vec<Option<Entry>>,
    ready: VecDeque<u32>,
    /// Connections that wait for a receive buffer.
    starved: Vec<u32>,
    /// Addresses that outgoing connections come from.
    next_port: u16,
}

/// Where in a stop a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Stopping { deadline: Instant },
    Stopped,
}

pub(super) struct Node {
    pub(super) core: Core,
    actor: usize,
    ends: Ends,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    stage: Stage,
}

/// A loop's ends together with the network: what the core sees of the world.
struct Io<'a> {
    net: &'a mut Net,
    ends: &'a mut Ends,
    actor: usize,
}

impl Ends {
    fn entry(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    fn insert(&mut self, core: &Core, index: u32, end: End) {
        if self.entries.len() <= index as usize {
            self.entries.resize_with(index as usize + 1, || None);
        }
        self.entries[index as usize] = Some(Entry {
            end,
            generation: core.states[index as usize].id.generation,
            readable: false,
            reading: true,
            queued: false,
            sweep: core.draining(),
        });
    }

    fn enqueue(&mut self, index: u32) {
        if let Some(entry) = self.entry(index)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push_back(index);
        }
    }
}

/// The address of an actor on the simulated network.
pub(super) fn address(actor: usize, port: u16) -> Endpoint {
    let [_, a, b, c] = (actor as u32 + 1).to_be_bytes();
    Endpoint::from(([10, a, b, c], port))
}

/// Where an actor connects to `to` from.
pub(super) fn near(to: &Endpoint, actor: usize, port: u16) -> Endpoint {
    match to {
        Endpoint::Tcp(_) => address(actor, port),
        _ => Endpoint::Unnamed,
    }
}

impl Io<'_> {
    /// Gives one connection its turn: up to its share of input.
    fn receive(&mut self, core: &mut Core, index: u32) {
        let Some(entry) = self.ends.entry(index) else {
            return;
        };
        entry.queued = false;
        let mut left = core.turn_bytes(index);
        loop {
            let Some(entry) = self.ends.entry(index) else {
                return;
            };
            if !entry.readable || !entry.reading {
                return self.sweep_done(core, index);
            }
            if left == 0 {
                return self.ends.enqueue(index);
            }
            let Some(mut lease) = core.env.pool.lease() else {
                core.env.counters.buffers_exhausted.add(1);
                self.ends.starved.push(index);
                return;
            };
            core.env.counters.receives.add(1);
            match self.net.read(entry.end, lease.space()) {
                Read::Got(n) => {
                    left = left.saturating_sub(n);
                    core.received(index, &mut lease, n);
                }
                Read::Nothing => entry.readable = false,
                Read::End => {
                    entry.readable = false;
                    core.input_ended(index);
                }
                Read::Broken(kind) => {
                    entry.readable = false;
                    core.failed(index, kind);
                }
            }
            core.settle(self, index);
        }
    }

    /// Reads from those that are ready and want to be announced, and announces what came.
    fn look_ahead(&mut self, core: &mut Core) -> VecDeque<Early> {
        let mut all = VecDeque::new();
        for at in 0..self.ends.ready.len().min(LOOK_AHEAD_MAX) {
            let index = self.ends.ready[at];
            let Some(entry) = self.ends.entry(index) else {
                continue;
            };
            if !entry.readable || !entry.reading || !core.looks_ahead(index) {
                continue;
            }
            let Some(mut lease) = core.env.pool.lease() else {
                break;
            };
            if let Read::Got(len) = self.net.read(entry.end, lease.space()) {
                let generation = entry.generation;
                core.look_ahead(index, &lease.space()[..len]);
                all.push_back(Early {
                    index,
                    generation,
                    lease,
                    len,
                });
            }
        }
        all
    }

    /// Hands over what was read early, if the connection is still there.
    fn hand_over(&mut self, core: &mut Core, mut early: Early) {
        let there = self.ends.entry(early.index).map(|entry| entry.generation);
        if there == Some(early.generation) {
            core.received(early.index, &mut early.lease, early.len);
            core.settle(self, early.index);
        }
    }

    /// Once a stop has begun and a connection has nothing more to read, it may be told.
    fn sweep_done(&mut self, core: &mut Core, index: u32) {
        let Some(entry) = self.ends.entry(index) else {
            return;
        };
        let held_back =
            !entry.reading && entry.readable && !core.states[index as usize].is_paused();
        if entry.sweep && !held_back {
            entry.sweep = false;
            core.owe_drain(index);
        }
    }

    /// A connection that does not read is told that its peer has gone.
    fn look_away(&mut self, state: &mut State, env: &mut Env) {
        let Some(entry) = self.ends.entry(state.id.index) else {
            return;
        };
        match self.net.status(entry.end) {
            Status::Fine => {}
            Status::Ended if state.knows_peer_end() => {}
            Status::Ended => env.end_announced(state),
            Status::Broken(kind) => env.failed(state, kind),
        }
    }

    fn news(&mut self, core: &mut Core, conn: u32, generation: u32, news: News) {
        let Some(entry) = self.ends.entry(conn) else {
            return;
        };
        if entry.generation != generation {
            return;
        }
        match news {
            News::Connected => {
                entry.readable = true;
                core.connected(conn);
                self.ends.enqueue(conn);
            }
            News::Refused => {
                self.drop_end(conn, false);
                core.connect_failed(conn, &io::ErrorKind::ConnectionRefused.into());
            }
            News::Readable if core.states[conn as usize].phase == Phase::Dialling => {
                // Lost before the answer has come.
                if let Status::Broken(kind) = self.net.status(entry.end) {
                    self.drop_end(conn, true);
                    core.connect_failed(conn, &kind.into());
                }
            }
            News::Readable => {
                entry.readable = true;
                if entry.reading {
                    self.ends.enqueue(conn);
                } else {
                    self.look_away(&mut core.states[conn as usize], &mut core.env);
                }
            }
            News::Writable => {
                core.states[conn as usize].unblock_sending();
                core.touch(conn);
            }
        }
    }

    fn take_in(&mut self, core: &mut Core, end: End, listener: Listener, from: Endpoint) {
        let Ok(index) = core.admit(
            listener.service,
            Peer::new(from, Origin::Accepted(listener.number)),
        ) else {
            return self.net.close(end, true);
        };
        self.ends.insert(core, index, end);
        let owner = self.owner(core, index);
        self.net.accept(end, owner);
        core.open(index);
        // Bytes may have come before the owner had.
        if let Some(entry) = self.ends.entry(index) {
            entry.readable = true;
        }
        self.ends.enqueue(index);
        core.settle(self, index);
    }

    fn owner(&self, core: &Core, index: u32) -> Owner {
        Owner {
            actor: self.actor,
            conn: index,
            generation: core.states[index as usize].id.generation,
        }
    }

    fn drop_end(&mut self, index: u32, reset: bool) {
        if let Some(entry) = self.ends.entries[index as usize].take() {
            self.net.close(entry.end, reset);
        }
    }
}

impl Transport for Io<'_> {
    fn flush(&mut self, state: &mut State, env: &mut Env) {
        let Some(entry) = self.ends.entry(state.id.index) else {
            return;
        };
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let n = state.out.slices(&mut slices);
            env.counters.sends.add(1);
            match self.net.write(entry.end, &slices[..n]) {
                Written::Took(n) => {
                    if env.sent(state, n) == 0 {
                        return;
                    }
                }
                Written::Blocked => {
                    state.block_sending();
                    return;
                }
                Written::Broken(kind) => return env.failed(state, kind),
            }
        }
    }

    fn set_reading(&mut self, state: &mut State, env: &mut Env, on: bool) {
        let index = state.id.index;
        let Some(entry) = self.ends.entry(index) else {
            return;
        };
        entry.reading = on;
        if on && entry.readable {
            self.ends.enqueue(index);
        } else if !on {
            self.look_away(state, env);
        }
    }

    fn shut_write(&mut self, _core: &mut Core, index: u32) {
        if let Some(entry) = self.ends.entry(index) {
            self.net.finish(entry.end);
        }
    }

    fn close(&mut self, core: &mut Core, index: u32, reset: bool) {
        self.drop_end(index, reset);
        core.free(index);
    }

    fn connect(&mut self, core: &mut Core, index: u32, to: Endpoint, from: Option<SocketAddr>) {
        self.ends.next_port = self.ends.next_port.wrapping_add(1).max(1024);
        let from = match from {
            Some(from) => from.into(),
            None => near(&to, self.actor, self.ends.next_port),
        };
        let owner = self.owner(core, index);
        let end = self.net.connect(owner, from, to);
        self.ends.insert(core, index, end);
    }

    fn cancel_connect(&mut self, _core: &mut Core, index: u32) {
        self.drop_end(index, true);
    }
}

impl Node {
    pub(super) fn new(
        core: Core,
        actor: usize,
        waker: Arc<Waker>,
        counters: Arc<LoopCounters>,
    ) -> Node {
        Node {
            core,
            actor,
            ends: Ends::default(),
            waker,
            counters,
            stage: Stage::Running,
        }
    }

    pub(super) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    pub(super) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        sum.add(&self.counters);
        sum
    }

    /// Whether a turn now would do anything.
    pub(super) fn runnable(&self, net: &Net) -> bool {
        !net.inboxes[self.actor].is_empty()
            || !self.ends.ready.is_empty()
            || self.core.has_work()
            || self.waker.is_pending()
            || self.next_deadline().is_some_and(|at| at <= self.now())
            || self.next_timer().is_some_and(|at| at <= self.now())
    }

    /// When the timer of a service expires.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let ns = self.core.env.timers_ns;
        (ns != u64::MAX && self.stage != Stage::Stopped).then(|| Instant::from_nanos(ns))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let stop = match self.stage {
            Stage::Stopping { deadline } => Some(deadline),
            _ => None,
        };
        // The core may wake once more for a deadline that has gone with its connection.
        let core = self.core.next_deadline();
        let core = core.filter(|_| !self.core.states.is_empty());
        [core, stop].into_iter().flatten().min()
    }

    pub(super) fn turn(&mut self, net: &mut Net) {
        self.core.env.now = self.now();
        let core = &mut self.core;
        core.env.counters.turns.add(1);
        let mut io = Io {
            net,
            ends: &mut self.ends,
            actor: self.actor,
        };
        core.take_backlog();
        for notice in std::mem::take(&mut io.net.inboxes[self.actor]) {
            match notice {
                Notice::Accept {
                    end,
                    listener,
                    from,
                } => io.take_in(core, end, listener, from),
                Notice::End {
                    conn,
                    generation,
                    news,
                } => io.news(core, conn, generation, news),
            }
        }
        core.take_mail();
        for command in self.waker.commands() {
            match command {
                Command::Dial { service, dial } => core.dial(&mut io, service, dial),
                Command::Adopt { .. } => unreachable!("there are no sockets here to adopt"),
            }
        }
        core.expire(&mut io);
        let mut early = if core.anybody_looks_ahead() {
            io.look_ahead(core)
        } else {
            VecDeque::new()
        };
        for _ in 0..io.ends.ready.len() {
            let Some(index) = io.ends.ready.pop_front() else {
                break;
            };
            if early.front().is_some_and(|early| early.index == index)
                && let Some(early) = early.pop_front()
            {
                io.hand_over(core, early);
            }
            io.receive(core, index);
        }
        core.settle_all(&mut io);
        if core.env.pool.free() > 0 {
            for index in std::mem::take(&mut io.ends.starved) {
                io.ends.enqueue(index);
            }
        }
        if let Stage::Stopping { deadline } = self.stage {
            if deadline <= core.env.now {
                core.cut_all(&mut io);
            }
            if core.is_done() {
                self.stage = Stage::Stopped;
            }
        }
    }

    /// Begins a graceful stop.
    pub(super) fn stop(&mut self, net: &mut Net, deadline: Instant) {
        self.core.env.now = self.now();
        // Whoever was told that it is connected is served.
        self.turn(net);
        net.stop_listening(self.actor);
        let mut io = Io {
            net,
            ends: &mut self.ends,
            actor: self.actor,
        };
        self.core.begin_drain(&mut io);
        for index in 0..io.ends.entries.len() as u32 {
            if let Some(entry) = io.ends.entry(index) {
                entry.sweep = true;
                entry.readable = true;
                io.ends.enqueue(index);
                self.core.touch(index);
            }
        }
        self.stage = Stage::Stopping { deadline };
    }

    pub(super) fn stopped(&self) -> bool {
        self.stage == Stage::Stopped
    }

    fn now(&self) -> Instant {
        self.core.env.clock.monotonic()
    }
}
