//! A service that a loop does not host, though it has its number and its counters: a thread has
//! connections of one service only.

use std::any::Any;
use std::io;
use std::sync::Arc;

use crate::build::limits::Limits;
use crate::memory::table::Table;
use crate::protocol::input::Input;
use crate::reactor::counters::LoopCounters;
use crate::reactor::drive::{Callbacks, Event};
use crate::reactor::env::Env;
use crate::reactor::host::{Host, Hosted};
use crate::reactor::state::State;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::next::Next;

struct Absent(Arc<Limits>);

impl Hosted {
    /// Stands where this service would.
    pub(crate) fn absent(&self) -> Hosted {
        Hosted {
            make: Arc::new(|_, _| Box::new(Absent(Arc::default()))),
            door: self.door.clone(),
        }
    }
}

impl Callbacks for Absent {
    fn call(&mut self, _: Event, _: &mut State, _: &mut Env) {}

    fn received(&mut self, _: &mut Input<'_>, _: &mut State, _: &mut Env) -> Next {
        Next::More
    }
}

/// No handle to an absent host exists, so no message comes for it.
impl Host for Absent {
    fn limits(&self) -> &Arc<Limits> {
        &self.0
    }

    fn accept(&mut self, _: &mut State) -> Result<(), Refusal> {
        Err(Refusal::NoLoop)
    }

    fn closed(&mut self, _: &State, _: Closed, _: &mut Env) {}

    fn dial_failed(&mut self, token: u64, error: &io::Error, _: &mut Env) {
        tracing::error!(token, error = %error, "a dial has failed of a service that is not here");
    }

    fn deliver(&mut self, _: &mut Table<State>, _: &mut Env) {}

    fn expire(&mut self, _: u64, _: &mut Table<State>, _: &mut Env) -> u64 {
        u64::MAX
    }

    fn looks_ahead(&self) -> bool {
        false
    }

    fn look_ahead(&mut self, _: &[u8], _: &mut State, _: &mut Env) {}

    fn ended(self: Box<Self>, _: &LoopCounters) {}

    fn wake(&mut self, _: &mut Table<State>, _: &mut Env) {}

    fn reachable(&self) -> bool {
        false
    }

    fn await_others(&mut self) {}

    fn local(&mut self) -> &mut dyn Any {
        &mut self.0
    }
}
