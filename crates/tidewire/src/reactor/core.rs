//! The part of a loop that all engines share, so that they cannot differ in meaning: the table of
//! connections, the calls into protocols, deadlines, mailboxes, stopping.
//!
//! An engine tells the core what happened (`received`, `sent`, `input_ended`, `failed`), then has
//! it *settle* the connections that changed. Settling makes the callbacks that are due and turns
//! the record that they left behind into calls of the engine's [`Transport`].

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::build::dial::Dial;
use crate::build::limits::Limits;
use crate::memory::budget::{LOOK, Memory, Meter, SMALL};
use crate::memory::buffer::{HEADROOM, Lease, Pool};
use crate::memory::output::{Barriers, Blocks};
use crate::memory::table::Table;
use crate::mistakes::{Mistake, mistaken};
use crate::protocol::input::Input;
use crate::reach::waker::Waker;
use crate::reactor::activity::Callback;
use crate::reactor::counters::LoopCounters;
use crate::reactor::drive;
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::facts::{Flag, Hint, Owed, PeerEnd, Phase, Writing};
use crate::reactor::host::{Event, Host, MakeHost};
use crate::reactor::random::Rng;
use crate::reactor::state::{Attempts, State};
use crate::reactor::throttle::Throttle;
use crate::reactor::wheel::Wheel;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::{Clock, Instant};

/// Times that settling goes round callbacks and flushing before others get their turn.
const ROUNDS: usize = 64;
/// Connections that are announced together at most: see
/// [`Protocol::look_ahead`](crate::Protocol::look_ahead).
pub const LOOK_AHEAD_MAX: usize = 16;
/// Deadlines dealt with before input gets its turn.
const EXPIRE_MAX: usize = 4096;

/// Looks into the inbox of a loop that is stopping and has nothing else left.
const LAST_LOOKS: u32 = 64;

/// What the builder decides for every loop.
pub(crate) struct Plan {
    /// Of the services, in the order of their numbers.
    pub(crate) hosts: Vec<MakeHost>,
    pub(crate) chunk: usize,
    pub(crate) buffers: usize,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) memory: Arc<Memory>,
}

/// What keeps a flood of refusals from flooding the log: one line for each reason a second, over
/// all loops.
pub(crate) struct Refusals([Throttle; Refusal::KINDS]);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals([const { Throttle::new(Duration::from_secs(1)) }; Refusal::KINDS])
    }
}

pub(crate) struct Core {
    pub(crate) states: Table<State>,
    pub(crate) env: Env,
    pub(crate) waker: Arc<Waker>,
    hosts: Vec<Box<dyn Host>>,
    /// Some of them look ahead.
    looks_ahead: bool,
    /// Of each host, without the virtual call.
    limits: Vec<Arc<Limits>>,
    /// Of each host, the connections on their way out.
    dialling: Vec<usize>,
    wheel: Wheel,
    /// No deadline before this one (nanoseconds; `u64::MAX` if there is none). May be early.
    next_deadline_ns: u64,
    generation: u32,
    due: Vec<u32>,
    draining: bool,
    /// Looks into the inbox when nothing was left but that.
    last_looks: u32,
    cuts: Throttle,
    refusals: Arc<Refusals>,
    meter: Meter,
}

impl Core {
    /// To be called on the loop's own thread.
    pub(crate) fn new(
        plan: &Plan,
        waker: Arc<Waker>,
        counters: Arc<LoopCounters>,
        clock: Clock,
        rng: Rng,
    ) -> Core {
        let mut core = Core {
            states: Table::new(),
            env: Env {
                now: clock.monotonic(),
                clock,
                rng,
                pool: Pool::new(plan.buffers, plan.chunk),
                blocks: Blocks::default(),
                barriers: Barriers::default(),
                dirty: Vec::new(),
                backlog: Vec::new(),
                counters,
                services: Vec::new(),
                self_signalled: false,
                told: false,
                dials: Vec::new(),
                timers_ns: u64::MAX,
            },
            waker,
            hosts: Vec::new(),
            looks_ahead: false,
            limits: Vec::new(),
            dialling: Vec::new(),
            wheel: Wheel::new(),
            next_deadline_ns: u64::MAX,
            generation: 0,
            due: Vec::new(),
            draining: false,
            last_looks: 0,
            cuts: Throttle::new(Duration::from_secs(1)),
            refusals: plan.refusals.clone(),
            meter: Meter::new(plan.memory.clone()),
        };
        for make in &plan.hosts {
            core.host(make);
        }
        core
    }

    /// Adds a service to a loop that runs already; its index.
    pub(crate) fn host(&mut self, make: &MakeHost) -> u16 {
        let index = u16::try_from(self.hosts.len()).expect("at most 65,536 services");
        let host = make(index, &self.waker);
        self.count_service();
        self.limits.push(host.limits().clone());
        self.dialling.push(0);
        self.looks_ahead |= host.looks_ahead();
        self.hosts.push(host);
        index
    }

    /// Has the counters of one more service.
    pub(crate) fn count_service(&mut self) {
        let counters = self.env.counters.service();
        self.env.services.push(counters);
    }

    /// The state on this loop of the service with this index.
    pub(crate) fn local(&mut self, service: u16) -> &mut dyn Any {
        self.hosts[service as usize].local()
    }

    // ---- Connections come and go ----

    /// Takes in an accepted connection; its index, or why it is refused.
    pub(crate) fn admit(&mut self, service: u16, peer: Peer) -> Result<u32, Refusal> {
        self.env.of_service(service).accepted.add(1);
        let index = self.insert(service, peer);
        if let Err(why) = self.establish(index) {
            let peer = self.states[index as usize].peer.endpoint.clone();
            self.refuse(service, why, &peer);
            self.free(index);
            return Err(why);
        }
        Ok(index)
    }

    /// Counts and logs a connection that was accepted and cannot be taken in.
    pub(crate) fn refuse_accepted(&mut self, service: u16, why: Refusal, peer: &Endpoint) {
        self.env.of_service(service).accepted.add(1);
        self.refuse(service, why, peer);
    }

    /// Counts and logs a refusal.
    fn refuse(&mut self, service: u16, why: Refusal, peer: &Endpoint) {
        self.env.of_service(service).refused[why.kind()].add(1);
        if let Some(held_back) = self.refusals.0[why.kind()].pass(self.env.now) {
            tracing::warn!(%peer, reason = %why, held_back, "connection refused");
        }
    }

    /// Calls `opened`. Apart from `admit` so that the engine can set up its side in between.
    pub(crate) fn open(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let limits = &self.limits[state.service as usize];
        state.flags.add(Flag::Opened);
        state.phase_ends = limits.lifetime.map(|time| self.env.now + time);
        if matches!(state.peer.origin, Origin::Accepted(_)) {
            state.await_first_byte(self.env.now, limits.first_byte);
        }
        self.env.of_service(state.service).open.add(1);
        self.call(index, Event::Opened);
        self.touch(index);
    }

    /// Starts an outgoing connection.
    pub(crate) fn dial(&mut self, io: &mut impl Transport, service: u16, dial: Dial) {
        let possible = if self.draining {
            Err(io::Error::other("the loops are stopping"))
        } else if self.dialling[service as usize] >= self.limits[service as usize].dials {
            self.env.counters.dials_refused.add(1);
            let many = "as many connections are on their way as may be";
            Err(io::Error::other(many))
        } else {
            dial.route().map_err(io::Error::from)
        };
        let to = match possible {
            Ok((to, _)) => to,
            Err(e) => {
                self.env.of_service(service).dial_failures.add(1);
                return self.dial_failed(service, dial.token, &e);
            }
        };
        self.dialling[service as usize] += 1;
        let peer = Peer::new(to, Origin::Dialled(dial.token));
        let index = self.insert(service, peer);
        let state = &mut self.states[index as usize];
        state.phase = Phase::Dialling;
        let after = dial.after;
        state.attempts = Some(Box::new(Attempts {
            dial,
            failed: 0,
            connecting: false,
        }));
        if after.is_zero() {
            return self.attempt(io, index);
        }
        state.phase_ends = Some(self.env.now + after);
        self.rearm(index);
    }

    /// The attempt under way has succeeded.
    pub(crate) fn connected(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        if state.phase != Phase::Dialling {
            return;
        }
        state.phase = Phase::Open;
        state.attempts = None;
        self.dialling[state.service as usize] -= 1;
        state.phase_ends = None;
        state.last_progress = self.env.now;
        let service = state.service;
        let Origin::Dialled(token) = state.peer.origin else {
            unreachable!("only what was dialled is connected")
        };
        match self.establish(index) {
            Ok(()) => {
                self.env.of_service(service).dialled.add(1);
                self.open(index);
            }
            Err(why) => {
                let peer = self.states[index as usize].peer.endpoint.clone();
                self.refuse(service, why, &peer);
                self.states[index as usize].kill(Closed::Aborted);
                self.touch(index);
                let refused = io::Error::other(format!("established, but refused: {why}"));
                self.dial_failed(service, token, &refused);
            }
        }
    }

    /// The attempt under way has failed; the engine has dropped its socket.
    pub(crate) fn connect_failed(&mut self, index: u32, error: &io::Error) {
        let draining = self.draining;
        let state = &mut self.states[index as usize];
        self.env.of_service(state.service).dial_failures.add(1);
        let Some(attempts) = &mut state.attempts else {
            return;
        };
        attempts.connecting = false;
        attempts.failed = attempts.failed.saturating_add(1);
        if !draining && attempts.failed < attempts.dial.attempts {
            let pause = attempts
                .dial
                .pause_after(attempts.failed, &mut self.env.rng);
            state.phase_ends = Some(self.env.now + pause);
            self.rearm(index);
            return;
        }
        let (token, service) = (attempts.dial.token, state.service);
        self.dial_failed(service, token, error);
        self.free(index);
    }

    pub(crate) fn dial_failed(&mut self, service: u16, token: u64, error: &io::Error) {
        self.env.enter(service, Callback::DialFailed);
        self.hosts[service as usize].dial_failed(token, error, &mut self.env);
    }

    /// Forgets a connection of which nothing is in use any more.
    pub(crate) fn free(&mut self, index: u32) {
        if !mistaken(Mistake::TimerSurvives) {
            self.wheel.forget(index);
        }
        let removed = self.states.remove(index as usize);
        let mut state = removed.expect("a connection is forgotten once");
        if state.out.holds().is_some_and(|h| h.listed) {
            self.env.barriers.forget(state.service, &self.states);
        }
        state.out.clear(&mut self.env.blocks);
        self.meter.change(state.counted as usize, 0);
        if state.attempts.is_some() {
            self.dialling[state.service as usize] -= 1;
        }
    }

    fn insert(&mut self, service: u16, peer: Peer) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let (generation, now) = (self.generation, self.env.now);
        let limits = &self.limits[service as usize];
        let index = self.states.insert_with(|index| {
            let index = u32::try_from(index).expect("fewer than 2^32 connections");
            let id = ConnId { index, generation };
            State::new(id, service, peer, limits, now)
        });
        index as u32
    }

    fn establish(&mut self, index: u32) -> Result<(), Refusal> {
        if self.meter.refuses() {
            return Err(Refusal::MemoryLimit);
        }
        let state = &mut self.states[index as usize];
        self.env.enter(state.service, Callback::Accept);
        self.hosts[state.service as usize].accept(state)
    }

    fn attempt(&mut self, io: &mut impl Transport, index: u32) {
        let state = &mut self.states[index as usize];
        let attempts = state.attempts.as_mut().expect("only called while dialling");
        attempts.connecting = true;
        if self.meter.refuses() {
            // An attempt that fails, so that who tries again does so after a pause.
            self.env.counters.dials_refused.add(1);
            let much = "connections hold as much memory as they may";
            return self.connect_failed(index, &io::Error::other(much));
        }
        let (to, from) = attempts.dial.route().expect("looked at when it began");
        state.phase_ends = Some(self.env.now + attempts.dial.timeout);
        self.rearm(index);
        io.connect(self, index, to, from);
    }

    // ---- What engines report ----

    /// The first `len` bytes of `lease` were received. Look whether it is shared afterwards.
    pub(crate) fn received(&mut self, index: u32, lease: &mut Lease, len: usize) {
        let state = &mut self.states[index as usize];
        self.env.of_service(state.service).bytes_in.add(len as u64);
        if !state.is_open() {
            // What is discarded is no progress: see `flushing_over`.
            return;
        }
        state.last_progress = self.env.now;
        if !state.hungry_for(len) {
            return state.keep(&lease.space()[..len]);
        }
        if state.carry.len() > HEADROOM {
            state.carry.extend_from_slice(&lease.space()[..len]);
            return self.offer_carried(index);
        }
        let service = state.service as usize;
        let carried_max = self.limits[service].carried;
        let carried = std::mem::take(&mut state.carry);
        let lent = lease.lend(&carried, len);
        drop(carried);
        let mut input = Input::lent(&lent).for_account(state.kept.as_ref());
        let next = self.hosts[service].received(&mut input, state, &mut self.env);
        if !input.is_empty() && state.is_open() {
            state.carry = match mistaken(Mistake::ChunkOfferedTwice) {
                true => lent.bytes().to_vec(),
                false => input.bytes().to_vec(),
            };
        }
        let consumed = input.consumed();
        if let Some(kept) = input.into_account() {
            state.kept = Some(kept);
        }
        drive::after_received(state, &mut self.env, next, consumed > 0, carried_max);
        // More of its input, or its end, may come before it is settled.
        if self.env.told {
            self.deliver_told();
        }
    }

    /// Whether anybody wants to know what is about to be received.
    #[inline]
    pub(crate) fn anybody_looks_ahead(&self) -> bool {
        self.looks_ahead
    }

    /// Whether this connection does, and will be offered what has come.
    pub(crate) fn looks_ahead(&self, index: u32) -> bool {
        let state = self.states.get(index as usize);
        state.is_some_and(|s| {
            s.was_opened()
                && s.wants_input()
                && s.is_open()
                && self.hosts[s.service as usize].looks_ahead()
        })
    }

    /// These bytes are about to be received.
    pub(crate) fn look_ahead(&mut self, index: u32, input: &[u8]) {
        let state = &mut self.states[index as usize];
        if state.is_open() {
            self.env.enter(state.service, Callback::LookAhead);
            self.hosts[state.service as usize].look_ahead(input, state, &mut self.env);
        }
    }

    /// The kernel took the first `n` queued bytes; how many are left that may be sent.
    pub(crate) fn sent(&mut self, index: u32, n: usize) -> usize {
        self.env.sent(&mut self.states[index as usize], n)
    }

    /// The peer has finished sending.
    pub(crate) fn input_ended(&mut self, index: u32) {
        self.states[index as usize].peer_end = PeerEnd::Reached;
        self.touch(index);
    }

    /// The peer finished sending or vanished; there may be input of it still to be read.
    pub(crate) fn end_announced(&mut self, index: u32) {
        self.env.end_announced(&mut self.states[index as usize]);
    }

    /// The connection failed.
    pub(crate) fn failed(&mut self, index: u32, kind: io::ErrorKind) {
        self.env.failed(&mut self.states[index as usize], kind);
    }

    // ---- Turns ----

    /// Puts the connection on the list of those to settle.
    pub(crate) fn touch(&mut self, index: u32) {
        self.env.touch(&mut self.states[index as usize]);
    }

    /// Settles every connection that changed, those that change meanwhile included, and does what
    /// their callbacks asked for beside.
    pub(crate) fn settle_all(&mut self, io: &mut impl Transport) {
        self.settle_touched(io);
        if !self.meter.is_calm() {
            self.mind_memory(io);
        }
    }

    fn mind_memory(&mut self, io: &mut impl Transport) {
        let too_much = self.balance();
        if self.meter.must_look() || !self.meter.waiting.is_empty() {
            self.look_at_memory(io, too_much);
        }
    }

    /// Deals with memory that is short: closes who holds most until `too_much` bytes are free, and has
    /// those go on that were not read from when it is over.
    #[cold]
    fn look_at_memory(&mut self, io: &mut impl Transport, too_much: usize) {
        if !self.meter.is_tight() {
            for index in std::mem::take(&mut self.meter.waiting) {
                if let Some(state) = self.states.get_mut(index as usize) {
                    state.flags.remove(Flag::AwaitsMemory);
                    self.env.touch(state);
                }
            }
        }
        if too_much > 0 {
            self.close_greediest(too_much);
        } else if self.meter.is_tight() && self.meter.is_stale(self.env.now) {
            self.count_all();
        }
        self.settle_touched(io);
        self.balance();
        if self.meter.must_look() {
            // Others may change the sum, and do not wake this loop.
            let look = (self.env.now + LOOK).as_nanos();
            self.next_deadline_ns = self.next_deadline_ns.min(look);
        }
    }

    #[inline]
    fn balance(&mut self) -> usize {
        if let Some(held) = self.meter.changed() {
            self.env.counters.memory.set(held as u64);
        }
        self.meter.balance(self.env.now)
    }

    /// Counts what all connections hold: chunks that were taken may be dropped anywhere on the loop.
    fn count_all(&mut self) {
        for (_, state) in self.states.iter_mut() {
            let held = state.held().min(u32::MAX as usize);
            self.meter.change(state.counted as usize, held);
            state.counted = held as u32;
            if state.flags.has(Flag::AwaitsMemory) && !self.meter.holds_back(held) {
                self.env.touch(state);
            }
        }
    }

    /// Closes those that hold most of all connections of all loops, as far as they are here.
    fn close_greediest(&mut self, too_much: usize) {
        self.count_all();
        let mut left = too_much;
        let mut greedy: Vec<(usize, u32)> = Vec::new();
        for (index, state) in self.states.iter() {
            let held = state.counted as usize;
            match state.phase {
                // It is free as soon as the kernel has let go of it.
                Phase::Dead { .. } | Phase::Buried(_) => left = left.saturating_sub(held),
                _ if held > SMALL => greedy.push((held, index as u32)),
                _ => {}
            }
        }
        greedy.sort_unstable_by(|a, b| b.cmp(a));
        let largest = greedy.first().map_or(0, |(held, _)| *held);
        let others = self.meter.compare(largest);
        if !self.meter.all_have_looked(self.env.now) {
            return;
        }
        for (held, index) in greedy {
            if left == 0 || self.meter.rank_of(held) < others {
                break;
            }
            left = left.saturating_sub(held);
            let state = &mut self.states[index as usize];
            state.kill(Closed::MemoryLimit);
            self.env.touch(state);
        }
    }

    /// Counts what a connection holds; whether it is to be read from, if it wants that.
    #[inline(always)]
    fn count(meter: &mut Meter, env: &Env, state: &mut State, wants: bool) -> bool {
        let held = state.held();
        if held == state.counted as usize && !meter.is_tight() {
            return wants;
        }
        Self::count_anew(meter, env, state, held, wants)
    }

    fn count_anew(
        meter: &mut Meter,
        env: &Env,
        state: &mut State,
        held: usize,
        wants: bool,
    ) -> bool {
        // More than 4 GiB of one connection is as much as that.
        let held = held.min(u32::MAX as usize);
        meter.change(state.counted as usize, held);
        state.counted = held as u32;
        if !meter.holds_back(held) {
            return wants;
        }
        if wants && !state.flags.has(Flag::AwaitsMemory) {
            state.flags.add(Flag::AwaitsMemory);
            env.counters.memory_pauses.add(1);
            meter.waiting.push(state.id.index);
        }
        false
    }

    fn settle_touched(&mut self, io: &mut impl Transport) {
        for _ in 0..ROUNDS {
            while let Some(index) = self.env.dirty.pop() {
                // It may have been settled since, or be gone.
                self.settle_if(io, index, |state| state.flags.has(Flag::Listed));
            }
            if !self.env.has_errands() {
                return;
            }
            self.run_errands(io);
        }
    }

    /// Delivers what connections told each other, and starts the dials that callbacks asked for.
    #[cold]
    fn run_errands(&mut self, io: &mut impl Transport) {
        self.deliver_told();
        for (service, dial) in std::mem::take(&mut self.env.dials) {
            self.dial(io, service, dial);
        }
    }

    #[cold]
    fn deliver_told(&mut self) {
        if std::mem::take(&mut self.env.told) {
            for host in &mut self.hosts {
                host.deliver(&mut self.states, &mut self.env);
            }
        }
    }

    /// Makes the callbacks that are due for one connection and has the engine do what its record
    /// calls for. Delivers what it told others, so that one which is held back by another hears of
    /// it before it is given more.
    pub(crate) fn settle(&mut self, io: &mut impl Transport, index: u32) {
        if self.env.dirty.last() == Some(&index) {
            // Just received from: there need not be another visit.
            self.env.dirty.pop();
        }
        self.settle_if(io, index, |_| true);
        if self.env.told {
            self.deliver_told();
        }
    }

    // Always in line, as are the three below: calls of each other are a tenth of what a request costs.
    #[inline(always)]
    fn settle_if(&mut self, io: &mut impl Transport, index: u32, due: impl FnOnce(&State) -> bool) {
        let Some(state) = self.states.get_mut(index as usize) else {
            return;
        };
        if !due(state) {
            return;
        }
        // What is touched from here on is seen by this very loop, not by another visit.
        state.flags.add(Flag::Listed);
        if !Self::settle_plainly(state, &mut self.env, &mut self.meter, io) {
            return self.settle_fully(io, index);
        }
        state.flags.remove(Flag::Listed);
        Self::rearm_state(state, &mut self.wheel, &mut self.next_deadline_ns);
    }

    /// Settles a connection that owes no callback: nearly every one, nearly always. False if it is
    /// not one, or not any more.
    #[inline(always)]
    fn settle_plainly(
        state: &mut State,
        env: &mut Env,
        meter: &mut Meter,
        io: &mut impl Transport,
    ) -> bool {
        if !state.is_plain() {
            return false;
        }
        if state.may_flush() {
            io.flush(state, env);
            if !state.is_plain() {
                return false;
            }
        }
        state.watch_output(env.now);
        let on = Self::count(meter, env, state, !state.is_paused());
        io.set_reading(state, env, on);
        // Looking away may have shown that it is broken.
        state.is_open()
    }

    #[inline(never)]
    fn settle_fully(&mut self, io: &mut impl Transport, index: u32) {
        let mut rounds = 0;
        loop {
            self.advance(index);
            let state = &mut self.states[index as usize];
            let sending = matches!(state.phase, Phase::Open | Phase::Finishing(_));
            if sending && state.may_flush() {
                io.flush(state, &mut self.env);
            }
            let state = &self.states[index as usize];
            if !state.may_owe_callbacks() || !state.callback_due() {
                break;
            }
            rounds += 1;
            if rounds == ROUNDS {
                self.env.backlog.push(index);
                break;
            }
        }
        self.conclude(io, index);
        if let Some(state) = self.states.get_mut(index as usize) {
            state.flags.remove(Flag::Listed);
            if matches!(state.phase, Phase::Dead { .. }) {
                // What the engine was asked to do has failed.
                return self.touch(index);
            }
            self.rearm(index);
        }
    }

    /// Whether the loop has work that needs no event from outside.
    pub(crate) fn has_work(&self) -> bool {
        !self.env.backlog.is_empty()
            || self.env.self_signalled
            || !self.env.dirty.is_empty()
            || self.env.has_errands()
    }

    /// Brings connections that had too much work in an earlier turn back onto the list.
    #[inline]
    pub(crate) fn take_backlog(&mut self) {
        if self.env.backlog.is_empty() {
            return;
        }
        let backlog = std::mem::take(&mut self.env.backlog);
        if mistaken(Mistake::BacklogForgotten) {
            return;
        }
        for index in backlog {
            if let Some(state) = self.states.get_mut(index as usize) {
                self.env.touch(state);
            }
        }
    }

    /// Looks into the mailboxes if anybody asked for it.
    pub(crate) fn take_mail(&mut self) {
        let from_outside = self.waker.take_pending();
        if from_outside {
            let clock = &self.env.clock;
            self.env.counters.wakeups.add(1);
            self.env.counters.activity.answer(|| clock.monotonic());
        }
        if from_outside || std::mem::take(&mut self.env.self_signalled) {
            for host in &mut self.hosts {
                host.wake(&mut self.states, &mut self.env);
            }
        }
    }

    /// Input that this connection may be given in one turn; bytes.
    pub(crate) fn turn_bytes(&self, index: u32) -> usize {
        self.limits[self.states[index as usize].service as usize].turn_bytes
    }

    /// Whether anybody off this loop can reach it.
    pub(crate) fn reachable(&self) -> bool {
        self.hosts.iter().any(|h| h.reachable())
    }

    /// When `expire` will have something to do.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let next = self.next_deadline_ns.min(self.env.timers_ns);
        (next != u64::MAX).then(|| Instant::from_nanos(next))
    }

    /// Deals with deadlines that have passed.
    #[inline]
    pub(crate) fn expire(&mut self, io: &mut impl Transport) {
        let now_ns = self.env.now.as_nanos();
        if self.next_deadline_ns <= now_ns {
            self.expire_due(io);
        }
        if self.env.timers_ns <= now_ns {
            self.expire_services();
        }
    }

    #[cold]
    fn expire_due(&mut self, io: &mut impl Transport) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel
            .expire(self.env.now.as_nanos(), EXPIRE_MAX, &mut due);
        for index in due.drain(..) {
            if let Some(state) = self.states.get_mut(index as usize) {
                state.wheel_ns = u64::MAX;
            }
            self.expire_one(io, index);
        }
        self.due = due;
        self.next_deadline_ns = self.wheel.next().unwrap_or(u64::MAX);
    }

    #[cold]
    fn expire_services(&mut self) {
        let now_ns = self.env.now.as_nanos();
        // What is set again meanwhile lowers it again.
        self.env.timers_ns = u64::MAX;
        for host in &mut self.hosts {
            let next = host.expire(now_ns, &mut self.states, &mut self.env);
            self.env.timers_ns = self.env.timers_ns.min(next);
        }
    }

    fn expire_one(&mut self, io: &mut impl Transport, index: u32) {
        let now = self.env.now;
        let Some(state) = self.states.get_mut(index as usize) else {
            return;
        };
        let phase_over = state.phase_ends.is_some_and(|t| t <= now);
        match state.phase {
            Phase::Dialling if phase_over => {
                if state.attempts.as_ref().is_some_and(|a| a.connecting) {
                    io.cancel_connect(self, index);
                    self.connect_failed(index, &io::ErrorKind::TimedOut.into());
                } else {
                    self.attempt(io, index);
                }
                return;
            }
            Phase::Finishing(_) if phase_over => self.flushing_over(index),
            Phase::Lingering(_) if phase_over => state.end(Closed::LingerExpired, false),
            Phase::Open => {
                let early = mistaken(Mistake::TimerEarly) && state.timer.is_some();
                let stale = mistaken(Mistake::TimerSurvives) && state.timer.is_none();
                if state.timer.is_some_and(|t| t <= now) || early || stale {
                    state.timer = None;
                    self.call(index, Event::Expired);
                }
                self.expire_peer(index);
                self.expire_idle(index);
            }
            _ => {}
        }
        if let Some(state) = self.states.get_mut(index as usize) {
            self.env.touch(state);
        }
    }

    /// Flushing has taken as long as it may without progress, unless bytes have left meanwhile: then
    /// it goes on for as long again from the last of them.
    fn flushing_over(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let ends = state.last_progress + self.limits[state.service as usize].linger;
        if ends > self.env.now {
            state.phase_ends = Some(ends);
        } else {
            state.kill(Closed::LingerExpired);
        }
    }

    /// What the peer owes, and the connection's lifetime.
    fn expire_peer(&mut self, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        if !state.is_open() {
            return;
        }
        if state.has_stalled(now) {
            return state.kill(Closed::Stalled);
        }
        if let Some(hint) = state.is_late(now) {
            state.hint = hint;
            self.call(index, Event::Overdue);
            self.states[index as usize].hint = Hint::Finished;
        }
        let state = &mut self.states[index as usize];
        let grace = self.limits[state.service as usize].linger;
        if state.outlive(now, grace) {
            state.owed.add(Owed::Draining);
        }
    }

    fn expire_idle(&mut self, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        let idle = Duration::from_nanos(state.deadlines.idle_ns());
        if !state.is_open() || idle.is_zero() || state.last_progress + idle > now {
            return;
        }
        if state.out.may_send() {
            state.kill(Closed::Stalled);
        } else if state.is_paused() || !state.out.is_empty() {
            // It waits because its protocol told it to, or for output that is held back.
            state.last_progress = now;
        } else {
            state.last_progress = now;
            state.hint = Hint::Idle;
            self.call(index, Event::Idle);
            self.states[index as usize].hint = Hint::Finished;
        }
    }

    // ---- Stopping ----

    /// Gives up dialling. The engine then reads from each connection what the kernel holds for it
    /// and calls `owe_drain`.
    pub(crate) fn begin_drain(&mut self, io: &mut impl Transport) {
        self.draining = true;
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            let state = &mut self.states[index as usize];
            if state.phase == Phase::Dialling {
                if state.attempts.as_ref().is_some_and(|a| a.connecting) {
                    io.cancel_connect(self, index);
                }
                self.connect_failed(index, &io::Error::other("the loops are stopping"));
            }
        }
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining
    }

    /// Whether a stop has come to its end: nothing is left, not even a command. A service that dials
    /// again whenever it is told that a dial has failed would go on for ever, so it is the end after
    /// some looks all the same.
    pub(crate) fn is_done(&mut self) -> bool {
        if !self.states.is_empty() {
            return false;
        }
        let errands = self.env.has_errands() || self.waker.is_pending();
        self.last_looks += u32::from(errands);
        !errands || self.last_looks > LAST_LOOKS
    }

    /// All that the kernel held for this connection has been received: `draining` is called once
    /// that has been offered.
    pub(crate) fn owe_drain(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        state.owed.add(Owed::Draining);
        self.env.touch(state);
    }

    /// Cuts what is left.
    pub(crate) fn cut_all(&mut self, io: &mut impl Transport) {
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            let state = &mut self.states[index as usize];
            state.kill(Closed::StopDeadline);
            self.env.touch(state);
        }
        self.settle_all(io);
    }

    /// Whether nothing is left for this loop to do once it has stopped.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty() && !self.env.has_errands()
    }

    // ---- Inside ----

    #[inline]
    fn call(&mut self, index: u32, event: Event) {
        let state = &mut self.states[index as usize];
        self.hosts[state.service as usize].call(event, state, &mut self.env);
    }

    fn offer_carried(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let service = state.service as usize;
        let (host, carried) = (&mut *self.hosts[service], self.limits[service].carried);
        drive::offer_carried(host, state, &mut self.env, carried);
    }

    /// Callbacks that the record calls for by itself.
    #[inline]
    fn advance(&mut self, index: u32) {
        if self.states[index as usize].may_owe_callbacks() {
            self.call_back(index);
        }
    }

    fn call_back(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let service = state.service as usize;
        let (host, carried) = (&mut *self.hosts[service], self.limits[service].carried);
        drive::call_back(host, state, &mut self.env, carried);
    }

    /// Acts on the phase that callbacks and the kernel have led to.
    fn conclude(&mut self, io: &mut impl Transport, index: u32) {
        let state = &mut self.states[index as usize];
        if state.is_open() {
            state.watch_output(self.env.now);
            let on = state.wants_input();
            if state.shut_due() {
                state.writing = Writing::Shut;
                io.shut_write(self, index);
            }
            let state = &mut self.states[index as usize];
            let on = Self::count(&mut self.meter, &self.env, state, on);
            return io.set_reading(state, &mut self.env, on);
        }
        Self::count(&mut self.meter, &self.env, state, false);
        let linger = self.limits[state.service as usize].linger;
        if let Phase::Finishing(why) = state.phase {
            if state.out.is_empty() || mistaken(Mistake::HalfCloseTooEarly) {
                state.phase = Phase::Lingering(why);
                state.phase_ends = Some(self.env.now + linger);
                if state.writing != Writing::Shut {
                    io.shut_write(self, index);
                }
            } else if !state.out.may_send() {
                // The peer cannot take what is held back.
                state.phase_ends = None;
            } else if state.phase_ends.is_none() {
                state.phase_ends = Some(self.env.now + linger);
            }
        }
        let state = &mut self.states[index as usize];
        if let Phase::Lingering(why) = state.phase
            && (state.input_ended() || mistaken(Mistake::ClosedWithoutLingering))
        {
            state.end(why, false);
        }
        match state.phase {
            Phase::Dead { why, reset } => {
                self.bury(index, why);
                io.close(self, index, reset);
            }
            Phase::Open | Phase::Finishing(_) | Phase::Lingering(_) => {
                let on = state.wants_input();
                io.set_reading(state, &mut self.env, on);
            }
            Phase::Dialling | Phase::Buried(_) => {}
        }
    }

    fn bury(&mut self, index: u32, why: Closed) {
        let state = &mut self.states[index as usize];
        state.phase = Phase::Buried(why);
        state.carry = Vec::new();
        if !state.was_opened() {
            return;
        }
        let counters = self.env.of_service(state.service);
        counters.open.sub(1);
        counters.closed[why.kind()].add(1);
        if let Closed::ByProtocol(reason) = why {
            counters.closed_because(reason);
        }
        let unsent = state.out.len();
        let cut = unsent > 0 && why.is_cut();
        if cut {
            counters.cut_unsent.add(1);
            counters.bytes_cut.add(unsent as u64);
        }
        match why {
            _ if cut => {
                if let Some(held_back) = self.cuts.pass(self.env.now) {
                    let peer = &state.peer.endpoint;
                    tracing::warn!(%peer, reason = %why, unsent, held_back, "connection cut, its output lost");
                }
            }
            Closed::Finished | Closed::Reset | Closed::Stopped => {
                tracing::trace!(peer = %state.peer.endpoint, reason = %why, "connection closed");
            }
            Closed::Idle
            | Closed::FirstByteLate
            | Closed::RequestLate
            | Closed::Lifetime
            | Closed::Aborted
            | Closed::LingerExpired
            | Closed::ByProtocol(_) => {
                tracing::debug!(peer = %state.peer.endpoint, reason = %why, "connection closed");
            }
            _ => tracing::warn!(peer = %state.peer.endpoint, reason = %why, "connection closed"),
        }
        if mistaken(Mistake::ClosedNotTold) && why != Closed::Finished {
            return;
        }
        self.env.enter(state.service, Callback::Closed);
        self.hosts[state.service as usize].closed(state, why, &mut self.env);
    }

    /// Makes sure that the wheel fires no later than the connection's next deadline. A later one
    /// leaves it as it is: it fires early, and is armed again then.
    #[inline]
    fn rearm(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        Self::rearm_state(state, &mut self.wheel, &mut self.next_deadline_ns);
    }

    #[inline(always)]
    fn rearm_state(state: &mut State, wheel: &mut Wheel, next_deadline_ns: &mut u64) {
        let next = state.next_deadline_ns();
        if next < state.wheel_ns {
            state.wheel_ns = next;
            wheel.arm(state.id.index, next);
            *next_deadline_ns = (*next_deadline_ns).min(next);
        }
    }
}

/// The loop ends: the services are told, on its thread.
impl Drop for Core {
    fn drop(&mut self) {
        self.env.counters.memory.set(0);
        for (service, host) in self.hosts.drain(..).enumerate() {
            self.env.enter(service as u16, Callback::LoopEnded);
            host.ended();
        }
    }
}

/// A deadline farther away than this may be slept towards from the time of this turn's start.
const NEAR_NS: u64 = 20_000_000;

/// How long a loop may sleep: until its next deadline, not at all if it has work.
#[inline]
pub(crate) fn sleep_for(core: &Core, extra: Option<Instant>) -> Option<Duration> {
    if core.has_work() {
        return Some(Duration::ZERO);
    }
    let next = match (core.next_deadline(), extra) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    let from_turn_ns = next.as_nanos().saturating_sub(core.env.now.as_nanos());
    if from_turn_ns > NEAR_NS {
        // The turn may have taken a while; wake a little early rather than ask the clock each time.
        return Some(Duration::from_nanos(from_turn_ns - NEAR_NS / 2));
    }
    Some(next.since(core.env.clock.monotonic()))
}
