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
