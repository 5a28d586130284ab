//! The state that the connections of one loop share: time, chance, buffers, counters, and the list
//! of connections that a callback touched.

use std::io;
use std::sync::Arc;

use crate::admission::door::Door;
use crate::kernel::clock::Clock;
use crate::memory::buffer::Pool;
use crate::memory::output::{Blocks, OwnerPanicked};
use crate::reactor::activity::Callback;
use crate::reactor::barriers::Barriers;
use crate::reactor::counters::{LoopCounters, ServiceCounters};
use crate::reactor::errand::Errand;
use crate::reactor::facts::{Flag, Owed, Rest};
use crate::reactor::making::Making;
use crate::reactor::random::Rng;
use crate::reactor::sending::Sending;
use crate::reactor::state::State;
use crate::reactor::throttles::Throttles;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;

pub(crate) struct Env {
    /// The time of this turn; refreshed by the engine after every wait.
    pub(crate) now: Instant,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) pool: Pool,
    pub(crate) blocks: Blocks,
    /// Up to where output that waits for a mark may go.
    pub(crate) barriers: Barriers,
    /// Indices of connections whose record changed since they were last settled.
    pub(crate) dirty: Vec<u32>,
    /// Connections that have callbacks left for the next turn.
    pub(crate) backlog: Vec<u32>,
    /// How much output may still be made in this turn, and which connections wait for that.
    pub(crate) making: Making,
    /// How much may still be sent in this turn, and which connections wait for that.
    pub(crate) sending: Sending,
    pub(crate) counters: Arc<LoopCounters>,
    /// Counters of each service, a part of `counters`.
    pub(crate) services: Vec<Arc<ServiceCounters>>,
    /// The door of each service, which lets its connections in.
    pub(crate) doors: Vec<Arc<Door>>,
    pub(crate) throttles: Arc<Throttles>,
    /// `woken` was asked for by a callback of this loop.
    pub(crate) self_signalled: bool,
    /// Connections have told each other something that is not yet delivered.
    pub(crate) told: bool,
    /// How many times such messages were delivered.
    pub(crate) deliveries: u32,
    /// Whether messages are being delivered, one after the other.
    pub(crate) delivers: bool,
    /// What callbacks and the driver's reports leave to be done.
    pub(crate) errands: Vec<Errand>,
    /// The loop stops without a successor: a connection between two requests is closed without waiting for its peer's end.
    pub(crate) closes_idle: bool,
    /// The loop stops.
    pub(crate) stopping: bool,
    /// Whether the loop stops, and its successor takes connections of which no byte was read.
    pub(crate) passes_on: bool,
    /// Services whose unserved connections a stop no longer waits for: a bit for each, the last for all from the 64th on.
    pub(crate) unserved_given_up: u64,
    /// No service's timer expires before this; nanoseconds, `u64::MAX` if none is set. May be early.
    pub(crate) timers_ns: u64,
}

/// The bit of a service in [`Env::unserved_given_up`].
pub(crate) fn service_bit(service: u16) -> u64 {
    1 << service.min(63)
}

impl Env {
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.counters.begin_turn();
        self.sending.begin_turn();
    }

    /// Whether a stop serves connections of this service that were never served.
    pub(crate) fn waits_for_unserved(&self, service: u16) -> bool {
        self.unserved_given_up & service_bit(service) == 0
    }

    /// Whether a connection waits to make output, or to send it.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.making.is_awaited() | self.sending.is_awaited()
    }

    /// A chunk has come that may not simply be given to its connection: see
    /// [`State::is_plainly_hungry_for`]. Whether it is kept for later instead.
    #[cold]
    pub(crate) fn keeps(&mut self, state: &mut State, chunk: &[u8]) -> bool {
        if !state.hungry_for(chunk.len()) {
            state.keep(chunk);
            return true;
        }
        if self.making.lets_in(state) {
            return false;
        }
        state.keep(chunk);
        state.owed.add(Owed::Replay);
        self.touch(state);
        true
    }

    /// This connection has queued so many bytes, and has more than a little in its queue.
    #[cold]
    pub(crate) fn made_much(&mut self, state: &mut State, bytes: usize) {
        if state.out.footprint() >= state.high as usize {
            state.owed.add(Owed::Writable);
        }
        self.making.charge(state, bytes);
    }

    #[inline]
    pub(crate) fn of_service(&self, service: u16) -> &ServiceCounters {
        &self.services[usize::from(service)]
    }

    #[inline]
    pub(crate) fn door(&self, service: u16) -> &Arc<Door> {
        &self.doors[usize::from(service)]
    }

    /// Counts and logs that a client is refused.
    #[cold]
    pub(crate) fn refuse(&self, service: u16, why: Refusal, peer: &Peer) {
        self.of_service(service).refused[why.kind()].add(1);
        if let Some(held_back) = self.throttles.refused(why, self.now) {
            let service = self.door(service).service();
            let client = peer.original().map(tracing::field::display);
            tracing::warn!(service, peer = %peer.endpoint, client, reason = %why, held_back, "connection refused");
        }
    }

    /// A callback of a service is about to be called.
    #[inline]
    pub(crate) fn enter(&self, service: u16, callback: Callback) {
        self.counters.activity.enter(service, callback);
    }

    /// Counts and logs messages for a service on this loop that found no room: posts, places for posts, and what
    /// connections tell each other.
    #[cold]
    pub(crate) fn refuse_messages(&self, service: u16, [posts, places, tells]: [u64; 3]) {
        self.counters.posts_refused.add(posts);
        self.counters.places_refused.add(places);
        self.counters.tells_refused.add(tells);
        if let Some(held_back) = self.throttles.messages.pass(self.now) {
            let service = self.door(service).service();
            tracing::warn!(
                service,
                posts,
                places,
                tells,
                held_back,
                "messages refused: too many wait for the service on this loop"
            );
        }
    }

    /// Counts and logs sends of connections of a service on this loop that found no room in a channel.
    #[cold]
    pub(crate) fn delay_sends(&self, service: u16, sends: u64) {
        self.counters.channels_full.add(sends);
        if let Some(held_back) = self.throttles.channels.pass(self.now) {
            let service = self.door(service).service();
            tracing::info!(
                service,
                sends,
                held_back,
                "sends delayed: a channel between connections has no room"
            );
        }
    }

    /// Counts and logs dials that found no room in the loop's inbox.
    #[cold]
    pub(crate) fn refuse_dials(&self, refused: u64) {
        self.counters.dials_refused.add(refused);
        if let Some(held_back) = self.throttles.dials.pass(self.now) {
            tracing::warn!(
                refused,
                held_back,
                "dials refused: the inbox of the loop is full"
            );
        }
    }

    /// Counts and logs a dial of a service that is not tried, or not now, because of a limit.
    #[cold]
    pub(crate) fn refuse_dial(&self, service: u16, reason: &'static str) {
        self.counters.dials_refused.add(1);
        if let Some(held_back) = self.throttles.dials.pass(self.now) {
            let service = self.door(service).service();
            tracing::warn!(service, reason, held_back, "dial refused");
        }
    }

    /// Counts and logs that no receive buffer was free.
    #[cold]
    pub(crate) fn await_buffers(&self) {
        self.counters.buffers_exhausted.add(1);
        if let Some(held_back) = self.throttles.buffers.pass(self.now) {
            let buffers = self.pool.pieces();
            tracing::warn!(
                buffers,
                held_back,
                "receiving delayed: no receive buffer of the loop is free"
            );
        }
    }

    /// This connection tells another one something.
    pub(crate) fn tells(&mut self, state: &mut State) {
        self.told = true;
        state.tells = self.deliveries;
    }

    /// Whether this connection has told another one something that is not yet delivered, or may be about to hear something.
    #[inline]
    pub(crate) fn has_told(&self, state: &State) -> bool {
        self.delivers || self.told && state.tells == self.deliveries
    }

    /// Whether there is something to deliver, which is about to be.
    pub(crate) fn begin_delivery(&mut self) -> bool {
        self.deliveries = self.deliveries.wrapping_add(1);
        self.delivers = std::mem::take(&mut self.told);
        self.delivers
    }

    pub(crate) fn end_delivery(&mut self) {
        self.delivers = false;
    }

    /// A callback asks for an outgoing connection of this service.
    pub(crate) fn dial(&mut self, service: u16, dial: Dial, by: Option<ConnId>) {
        self.errands.push(Errand::Dial { service, dial, by });
    }

    /// An attempt of a dial to a host has ended.
    pub(crate) fn go_on_dialling(&mut self, dial: ConnId) {
        self.errands.push(Errand::GoOn(dial));
    }

    /// A dial to a host has become a connection.
    pub(crate) fn won_dialling(&mut self, dial: ConnId) {
        self.errands.push(Errand::Won(dial));
    }

    /// Whether callbacks asked for something that concerns others than their own connection.
    #[inline]
    pub(crate) fn has_errands(&self) -> bool {
        self.told || !self.errands.is_empty()
    }

    #[inline]
    pub(crate) fn touch(&mut self, state: &mut State) {
        if state.flags.has_none(&[Flag::Listed, Flag::Embedded]) {
            state.flags.add(Flag::Listed);
            self.dirty.push(state.id.index);
        }
    }

    /// Counts bytes that were received of this connection's peer.
    #[inline]
    pub(crate) fn count_received(&self, state: &mut State, len: usize) {
        self.of_service(state.service).bytes_in.add(len as u64);
        if let Some(tally) = &mut state.tally {
            tally.received += len as u64;
        }
    }

    /// The kernel took the first `n` bytes that this connection has queued; how many are left that
    /// may be sent.
    #[inline]
    pub(crate) fn sent(&mut self, state: &mut State, n: usize) -> usize {
        self.of_service(state.service).bytes_out.add(n as u64);
        if let Some(tally) = &mut state.tally {
            tally.sent += n as u64;
        }
        state.last_progress = self.now;
        state.flags.remove(Flag::Unserved);
        state.deadlines.took();
        if let Err(OwnerPanicked) = state.out.advance(n, &mut self.blocks) {
            return self.owner_panicked(state);
        }
        self.touch(state);
        state.out.sendable()
    }

    /// The owner of bytes that this connection has sent has panicked: the end of it. The connection
    /// sends no more bytes.
    #[cold]
    pub(crate) fn owner_panicked(&mut self, state: &mut State) -> usize {
        self.count_owner(state);
        state.kill(Closed::Panicked);
        self.touch(state);
        0
    }

    /// Counts a panic of a callback for a connection that is closed.
    #[cold]
    pub(crate) fn count_owner(&self, state: &State) {
        self.counters.panics.add(1);
        let peer = &state.peer.endpoint;
        tracing::error!(%peer, "the owner of bytes that a protocol shared panicked when it was dropped");
    }

    /// The connection failed. The kernel may hold input of it.
    pub(crate) fn failed(&mut self, state: &mut State, kind: io::ErrorKind) {
        state.fail(kind, Rest::Unread);
        self.touch(state);
    }

    /// The connection failed, and all its bytes have been received.
    pub(crate) fn receive_failed(&mut self, state: &mut State, kind: io::ErrorKind) {
        state.fail(kind, Rest::Read);
        self.touch(state);
    }

    /// The connection's peer finished sending or vanished; there may be input of it still to be
    /// read.
    pub(crate) fn end_announced(&mut self, state: &mut State) {
        state.announce_end();
        self.touch(state);
    }
}
