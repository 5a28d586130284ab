//! Drivers' reports about a connection.

use std::io;

use crate::memory::buffer::{HEADROOM, Lease};
use crate::mistakes::{Mistake, mistaken};
use crate::protocol::input::Input;
use crate::reactor::activity::Callback;
use crate::reactor::core::Core;
use crate::reactor::drive;
use crate::reactor::facts::{Awaits, Flag, Owed, PeerEnd, Phase, Rest};

impl Core {
    /// The first `len` bytes of `lease` were received. Look whether it is shared afterwards.
    pub(crate) fn received(&mut self, index: u32, lease: &mut Lease, len: usize) {
        let state = &mut self.states[index as usize];
        self.env.count_received(state, len);
        if !state.is_open() {
            // Discarded input is no progress: see `flushing_over`.
            if state.awaits == Awaits::Delivery {
                self.linger_on(index);
            }
            return;
        }
        if !state.flags.has(Flag::Around) {
            // Inside a layer, only bytes that the layer passes on to the inner protocol are
            // progress: a record may come a byte at a time.
            state.last_progress = self.env.now;
        }
        let is_plain = state.is_plainly_hungry_for(len) && self.env.making.is_open();
        if !is_plain && self.env.keeps(state, &lease.space()[..len]) {
            return;
        }
        self.env.making.feed(len);
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
        // More input, or the end, may come before the connection is settled.
        if self.env.told {
            self.deliver_told();
        }
    }

    /// The rest of a part that was received is on its way: carries the part, so that both are offered together; false if the
    /// part must be offered at once. At most `most` bytes are carried.
    #[cold]
    pub(crate) fn carry_for_more(&mut self, index: u32, part: &[u8], most: usize) -> bool {
        let state = &mut self.states[index as usize];
        let fits = state.carry.len() + part.len() <= most;
        if !fits || !state.wants_input() || !state.is_open() {
            return false;
        }
        self.env.count_received(state, part.len());
        state.keep(part);
        true
    }

    /// No more input comes: offers the carried bytes.
    #[cold]
    pub(crate) fn offer_what_is_carried(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        state.owed.add(Owed::Replay);
        self.env.touch(state);
    }

    /// Whether a protocol looks ahead at bytes that are about to be offered.
    #[inline]
    pub(crate) fn anybody_looks_ahead(&self) -> bool {
        self.looks_ahead
    }

    /// Whether this connection looks ahead, and will be offered its received bytes.
    pub(crate) fn looks_ahead(&self, index: u32) -> bool {
        let state = self.states.get(index as usize);
        state.is_some_and(|s| {
            s.was_opened()
                && s.wants_input()
                && !s.flags.has(Flag::AwaitsMaking)
                && s.is_open()
                && self.hosts[s.service as usize].looks_ahead()
        })
    }

    /// The bytes in `input` are about to be received.
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

    /// The connection failed. The kernel may hold input of it.
    pub(crate) fn failed(&mut self, index: u32, kind: io::ErrorKind) {
        self.env.failed(&mut self.states[index as usize], kind);
    }

    /// The connection failed, and all its bytes have been received.
    pub(crate) fn receive_failed(&mut self, index: u32, kind: io::ErrorKind) {
        let state = &mut self.states[index as usize];
        self.env.receive_failed(state, kind);
    }

    /// The kernel's data of a connection that [has failed](Core::failed) was received; false if the connection has
    /// not failed.
    pub(crate) fn rest_is_read(&mut self, index: u32) -> bool {
        let state = &mut self.states[index as usize];
        let Phase::Failing { why, .. } = state.phase else {
            return false;
        };
        let rest = Rest::Read;
        state.phase = Phase::Failing { why, rest };
        self.env.touch(state);
        true
    }

    /// Input that this connection may be given in one turn; bytes.
    pub(crate) fn turn_bytes(&self, index: u32) -> usize {
        self.limits[self.states[index as usize].service as usize].turn_bytes
    }
}
