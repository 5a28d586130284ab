//! What the connections of one loop share: time, chance, buffers, counters, and the list of
//! connections that a callback touched.

use std::sync::Arc;

use crate::buffer::Pool;
use crate::counters::LoopCounters;
use crate::output::{Barriers, Blocks};
use crate::random::Rng;
use crate::state::State;
use crate::time::{Clock, Instant};

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
    pub(crate) counters: Arc<LoopCounters>,
    /// `woken` was asked for by a callback of this loop.
    pub(crate) self_signalled: bool,
}

impl Env {
    #[inline]
    pub(crate) fn touch(&mut self, state: &mut State) {
        if !state.dirty && !state.embedded {
            state.dirty = true;
            self.dirty.push(state.id.index);
        }
    }
}
