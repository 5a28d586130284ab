//! Counting the memory that connections hold, and acting when it is short.

use crate::memory::budget::{LOOK, Meter, SMALL};
use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::facts::{Flag, Phase};
use crate::reactor::state::State;
use crate::vocabulary::closed::Closed;

impl Core {
    #[inline(never)]
    pub(super) fn mind_memory(&mut self, io: &mut impl Transport) {
        let too_much = self.balance();
        if self.meter.must_look() || !self.meter.waiting.is_empty() {
            self.look_at_memory(io, too_much);
        }
    }

    /// Acts on a shortage of memory: closes the connections that hold most until `too_much` bytes
    /// are free, and resumes the paused connections when the shortage is over.
    #[cold]
    pub(super) fn look_at_memory(&mut self, io: &mut impl Transport, too_much: usize) {
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
            // Other loops may change the sum, and do not wake this one.
            let look = (self.env.now + LOOK).as_nanos();
            self.next_deadline_ns = self.next_deadline_ns.min(look);
        }
    }

    #[inline]
    pub(super) fn balance(&mut self) -> usize {
        if let Some(held) = self.meter.changed() {
            self.env.counters.memory.set(held as u64);
        }
        self.meter.balance(self.env.now)
    }

    /// Counts what all connections hold: chunks that were taken may be dropped anywhere on the loop.
    pub(super) fn count_all(&mut self) {
        for (_, state) in self.states.iter_mut() {
            let held = state.held().min(u32::MAX as usize);
            self.meter.change(state.counted as usize, held);
            state.counted = held as u32;
            if state.flags.has(Flag::AwaitsMemory) && !self.meter.holds_back(held) {
                self.env.touch(state);
            }
        }
    }

    /// Closes the connections that hold most, of all loops, as far as they are here.
    pub(super) fn close_greediest(&mut self, too_much: usize) {
        self.count_all();
        let mut left = too_much;
        let mut greedy: Vec<(usize, u32)> = Vec::new();
        for (index, state) in self.states.iter() {
            let held = state.counted as usize;
            match state.phase {
                // The memory is free as soon as the kernel has let go of it.
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

    /// Counts the memory that a connection holds; returns whether the connection may be read from,
    /// if it wants to be.
    #[inline(always)]
    pub(super) fn count(meter: &mut Meter, env: &Env, state: &mut State, wants: bool) -> bool {
        let held = state.held();
        if held == state.counted as usize && !meter.is_tight() {
            return wants;
        }
        Self::count_anew(meter, env, state, held, wants)
    }

    #[inline(never)]
    pub(super) fn count_anew(
        meter: &mut Meter,
        env: &Env,
        state: &mut State,
        held: usize,
        wants: bool,
    ) -> bool {
        // More than 4 GiB of one connection counts as 4 GiB.
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
}
