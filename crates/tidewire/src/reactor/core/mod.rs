//! The part of a loop that all engines share, so that they cannot differ in meaning: the table of
//! connections, the calls into protocols, deadlines, mailboxes, stopping.
//!
//! An engine tells the core what happened (`received`, `sent`, `input_ended`, `failed`), then has
//! it *settle* the connections that changed. Settling makes the callbacks that are due and turns
//! the record that they left behind into calls of the engine's [`Transport`](crate::reactor::driver::Transport).

pub(crate) mod deadlines;
pub(crate) mod dialling;
mod drain;
mod life;
mod lines;
mod memory;
mod racing;
mod reports;
mod settle;

use std::any::Any;
use std::sync::Arc;

use crate::build::limits::Limits;
use crate::kernel::clock::Clock;
use crate::memory::budget::{Memory, Meter};
use crate::memory::buffer::Pool;
use crate::memory::output::Blocks;
use crate::memory::table::Table;
use crate::reach::names::Names;
use crate::reach::stop::PassedOn;
use crate::reach::waker::Waker;
use crate::reactor::activity::Callback;
use crate::reactor::barriers::Barriers;
use crate::reactor::counters::LoopCounters;
use crate::reactor::drive::{self, Event};
use crate::reactor::env::Env;
use crate::reactor::host::{Host, Hosted};
use crate::reactor::making::{MakeShares, Making};
use crate::reactor::queueing::Queueing;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::{SendShares, Sending};
use crate::reactor::state::State;
use crate::reactor::throttles::Throttles;
use crate::reactor::tied::Tied;
use crate::reactor::wheel::Wheel;

/// Connections that are announced together at most: see
/// [`Protocol::look_ahead`](crate::Protocol::look_ahead).
pub const LOOK_AHEAD_MAX: usize = 16;

/// The builder's decisions for every loop.
pub(crate) struct Plan {
    /// Hosts of the services, in the order of their numbers.
    pub(crate) hosts: Vec<Hosted>,
    pub(crate) chunk: usize,
    pub(crate) buffers: usize,
    pub(crate) throttles: Arc<Throttles>,
    /// A line for each connection.
    pub(crate) log_connections: bool,
    /// Shares of the output that a turn makes.
    pub(crate) made: MakeShares,
    /// Shares of what a turn sends.
    pub(crate) shares: SendShares,
    /// Shares of what a turn receives.
    pub(crate) received: ReceiveShares,
    pub(crate) memory: Arc<Memory>,
}

impl Plan {
    /// The plan for a loop that hosts this service alone.
    pub(crate) fn only(&self, service: u16) -> Plan {
        let hosts = self.hosts.iter().enumerate();
        let host = |(i, hosted): (usize, &Hosted)| match i == usize::from(service) {
            true => hosted.clone(),
            false => hosted.absent(),
        };
        Plan {
            hosts: hosts.map(host).collect(),
            chunk: self.chunk,
            buffers: self.buffers,
            throttles: self.throttles.clone(),
            log_connections: self.log_connections,
            made: self.made,
            shares: self.shares,
            received: self.received,
            memory: self.memory.clone(),
        }
    }
}

pub(crate) struct Core {
    pub(crate) states: Table<State>,
    pub(crate) env: Env,
    pub(crate) waker: Arc<Waker>,
    hosts: Vec<Box<dyn Host>>,
    /// Whether some services look ahead.
    looks_ahead: bool,
    /// Limits of each host, without the virtual call.
    limits: Vec<Arc<Limits>>,
    /// For each host, the number of its dialled connections that are not connected yet.
    dialling: Vec<usize>,
    wheel: Wheel,
    /// No deadline is before this time (nanoseconds; `u64::MAX` if there is none). The time may be
    /// too early.
    next_deadline_ns: u64,
    generation: u32,
    due: Vec<u32>,
    draining: bool,
    /// Connections that go to a successor.
    pub(crate) passed_on: Vec<PassedOn>,
    /// Looks into the inbox when nothing was left but that.
    last_looks: u32,
    /// Waits of connections to make output, and to send it.
    makers: Queueing,
    senders: Queueing,
    log_connections: bool,
    pub(crate) received: ReceiveShares,
    meter: Meter,
    /// Looks up addresses of hosts.
    pub(crate) names: Arc<Names>,
    tied: Tied,
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
                making: Making::new(plan.made, counters.clone()),
                sending: Sending::new(plan.shares, counters.clone()),
                counters,
                services: Vec::new(),
                doors: Vec::new(),
                throttles: plan.throttles.clone(),
                self_signalled: false,
                told: false,
                deliveries: 0,
                delivers: false,
                errands: Vec::new(),
                unserved_given_up: 0,
                stopping: false,
                closes_idle: false,
                passes_on: false,
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
            passed_on: Vec::new(),
            last_looks: 0,
            makers: Queueing::default(),
            senders: Queueing::default(),
            log_connections: plan.log_connections,
            received: plan.received,
            meter: Meter::new(plan.memory.clone()),
            names: Arc::default(),
            tied: Tied::default(),
        };
        for hosted in &plan.hosts {
            core.host(hosted);
        }
        core
    }

    /// Adds a service to a loop that runs already; its index.
    pub(crate) fn host(&mut self, hosted: &Hosted) -> u16 {
        let index = u16::try_from(self.hosts.len()).expect("at most 65,536 services");
        let host = (hosted.make)(index, &self.waker);
        self.know_service(hosted);
        self.limits.push(host.limits().clone());
        self.dialling.push(0);
        self.looks_ahead |= host.looks_ahead();
        self.hosts.push(host);
        index
    }

    /// Has the counters and the door of one more service.
    pub(crate) fn know_service(&mut self, hosted: &Hosted) {
        let counters = self.env.counters.service();
        self.env.services.push(counters);
        self.env.doors.push(hosted.door.clone());
    }

    /// The state on this loop of the service with this index.
    pub(crate) fn local(&mut self, service: u16) -> &mut dyn Any {
        self.hosts[service as usize].local()
    }

    /// Looks into the mailboxes if that was asked for.
    #[inline(always)]
    pub(crate) fn take_mail(&mut self) {
        let from_outside = self.waker.take_pending();
        if from_outside || self.env.self_signalled {
            self.look_into_mail(from_outside);
        }
    }

    #[inline(never)]
    fn look_into_mail(&mut self, from_outside: bool) {
        self.env.self_signalled = false;
        if from_outside {
            let clock = &self.env.clock;
            self.env.counters.wakeups.add(1);
            self.env.counters.activity.answer(|| clock.monotonic());
        }
        for host in &mut self.hosts {
            host.wake(&mut self.states, &mut self.env);
        }
    }

    /// Whether other threads can reach the loop.
    pub(crate) fn reachable(&self) -> bool {
        self.hosts.iter().any(|h| h.reachable())
    }

    #[inline]
    pub(super) fn call(&mut self, index: u32, event: Event) {
        let state = &mut self.states[index as usize];
        self.hosts[state.service as usize].call(event, state, &mut self.env);
    }

    pub(super) fn offer_carried(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let service = state.service as usize;
        let (host, carried) = (&mut *self.hosts[service], self.limits[service].carried);
        drive::offer_carried(host, state, &mut self.env, carried);
    }
}

/// The loop ends: the services are told, on its thread.
impl Drop for Core {
    fn drop(&mut self) {
        self.env.counters.memory.set(0);
        // If the loop has failed, its connections must not count for ever.
        for (_, state) in self.states.iter().filter(|(_, state)| state.counts()) {
            let door = self.env.door(state.service);
            door.gone(&state.peer, state.counted_as());
        }
        self.forget_dials();
        for (service, host) in self.hosts.drain(..).enumerate() {
            self.env.enter(service as u16, Callback::LoopEnded);
            host.ended(&self.env.counters);
        }
    }
}
