//! The connections of one service on one loop that hold output, so that releasing a mark for all of
//! them costs what those cost that wait, however many others there are.

use super::holds::Holds;
use crate::memory::table::Table;
use crate::reactor::env::Env;
use crate::reactor::facts::Flag;
use crate::reactor::state::State;
use crate::vocabulary::conn_id::ConnId;

/// What a loop knows of the marks of its services, by their index.
#[derive(Default)]
pub(crate) struct Barriers(Vec<Barrier>);

#[derive(Default)]
struct Barrier {
    /// Marks up to this one are released for all.
    released: u64,
    /// Connections that held output when they came here.
    holding: Vec<ConnId>,
    /// How many of these have gone since.
    gone: usize,
}

impl Barriers {
    /// Up to which mark all connections of a service are released.
    pub(crate) fn released(&self, service: u16) -> u64 {
        let barrier = self.0.get(usize::from(service));
        barrier.map_or(0, |b| b.released)
    }

    /// Notes that this connection holds output.
    pub(crate) fn list(&mut self, state: &mut State) {
        // A layer's inner connection is released by its layer.
        if !state.flags.has(Flag::Embedded) && !state.out.set_listed(true) {
            self.of(state.service).holding.push(state.id);
        }
    }

    /// A connection that was listed has gone, and is no longer among `left`.
    pub(crate) fn forget(&mut self, service: u16, left: &Table<State>) {
        let barrier = self.of(service);
        barrier.gone += 1;
        // Now and then for all of them, so that no crowd pays for looking through the list.
        if barrier.gone * 2 > barrier.holding.len() {
            barrier.gone = 0;
            barrier.holding.retain(|id| find(left, *id));
            barrier.holding.shrink_to(64);
        }
    }

    fn of(&mut self, service: u16) -> &mut Barrier {
        let at = usize::from(service);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Barrier::default);
        }
        &mut self.0[at]
    }
}

fn find(states: &Table<State>, id: ConnId) -> bool {
    let state = states.get(id.index as usize);
    state.is_some_and(|s| s.id == id)
}

impl Env {
    /// Releases marks of one connection.
    pub(crate) fn release(&mut self, state: &mut State, upto: u64) {
        if state.release(upto, self.now) {
            self.touch(state);
        }
    }

    /// Releases marks for all connections of a service, those to come included.
    pub(crate) fn release_all(&mut self, service: u16, states: &mut Table<State>, upto: u64) {
        let barrier = self.barriers.of(service);
        if upto <= barrier.released {
            return;
        }
        barrier.released = upto;
        let mut holding = std::mem::take(&mut barrier.holding);
        holding.retain(|id| {
            let state = states.get_mut(id.index as usize);
            let Some(state) = state.filter(|s| s.id == *id) else {
                return false;
            };
            self.release(state, upto);
            let holds = state.out.holds().is_some_and(Holds::any);
            state.out.set_listed(holds);
            holds
        });
        let barrier = self.barriers.of(service);
        (barrier.holding, barrier.gone) = (holding, 0);
    }
}
