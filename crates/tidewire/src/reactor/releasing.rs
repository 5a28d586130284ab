//! Holding output back behind marks, and releasing it.

use crate::memory::table::Table;
use crate::reactor::env::Env;
use crate::reactor::facts::Flag;
use crate::reactor::state::State;

impl Env {
    /// Lists this connection as one that holds output.
    pub(crate) fn list_holding(&mut self, state: &mut State) {
        // A layer's inner connection is released by its layer.
        if !state.flags.has(Flag::Embedded) && !state.out.set_listed(true) {
            self.barriers.list(state.service, state.id);
        }
    }

    /// Releases marks of one connection.
    pub(crate) fn release(&mut self, state: &mut State, upto: u64) {
        if state.release(upto, self.now) {
            self.touch(state);
        }
    }

    /// Releases marks for all connections of a service, including later ones.
    pub(crate) fn release_all(&mut self, service: u16, states: &mut Table<State>, upto: u64) {
        let Some(mut holding) = self.barriers.release(service, upto) else {
            return;
        };
        holding.retain(|id| {
            let state = states.get_mut(id.index as usize);
            let Some(state) = state.filter(|s| s.id == *id) else {
                return false;
            };
            self.release(state, upto);
            let holds = state.out.is_holding();
            state.out.set_listed(holds);
            holds
        });
        self.barriers.keep(service, holding);
    }
}
