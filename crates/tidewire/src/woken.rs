//! All connections of one service on one loop, for [`Service::woken`](crate::Service::woken).

use std::sync::Arc;

use slab::Slab;

use crate::env::Env;
use crate::link::Link;
use crate::mailbox::Mail;
use crate::protocol::{Cx, Protocol};
use crate::state::{ConnId, State};

/// The open connections of one service on one loop.
pub struct Conns<'a, P: Protocol> {
    pub(crate) slots: &'a mut Slab<(u32, P)>,
    pub(crate) states: &'a mut Slab<State>,
    pub(crate) env: &'a mut Env,
    pub(crate) mail: &'a Arc<Mail<P::Message>>,
}

impl<P: Protocol> Conns<'_, P> {
    /// Calls `f` for each open connection.
    pub fn each(&mut self, local: &mut P::Local, mut f: impl FnMut(&mut P, &mut Cx<'_, P>)) {
        for (_, (index, protocol)) in self.slots.iter_mut() {
            let state = &mut self.states[*index as usize];
            if state.is_open() && state.opened {
                let link = Link {
                    state,
                    env: &mut *self.env,
                };
                f(
                    protocol,
                    &mut Cx {
                        link,
                        local: &mut *local,
                        mail: self.mail,
                    },
                );
            }
        }
    }

    /// Releases, for every connection of this service on this loop, output that waits for marks up to
    /// `upto`: a watermark, such as how far a log is durable. It is kept: what a connection later
    /// holds for such a mark is not held at all. A lower one than before does nothing.
    ///
    /// Connections that have finished are released too, and then go on to close. The cost is that of
    /// the connections that hold output; the others are not looked at.
    ///
    /// See [`Link::hold_until`].
    pub fn release_all(&mut self, upto: u64) {
        self.env.release_all(self.mail.service, self.states, upto);
    }

    /// [`release_all`](Conns::release_all) for the connection `id` alone, open or finished; whether
    /// it is still there.
    pub fn release(&mut self, id: ConnId, upto: u64) -> bool {
        let state = self.states.get_mut(id.index as usize);
        let Some(state) = state.filter(|s| s.id == id) else {
            return false;
        };
        self.env.release(state, upto);
        true
    }

    /// Calls `f` for the connection `id`; `None` if it is no longer open.
    pub fn with<R>(
        &mut self,
        id: ConnId,
        local: &mut P::Local,
        f: impl FnOnce(&mut P, &mut Cx<'_, P>) -> R,
    ) -> Option<R> {
        let state = self.states.get_mut(id.index as usize)?;
        if state.id != id || !state.is_open() || !state.opened {
            return None;
        }
        let (index, protocol) = self.slots.get_mut(state.slot as usize)?;
        if *index != id.index {
            return None;
        }
        let link = Link {
            state,
            env: &mut *self.env,
        };
        Some(f(
            protocol,
            &mut Cx {
                link,
                local,
                mail: self.mail,
            },
        ))
    }
}
