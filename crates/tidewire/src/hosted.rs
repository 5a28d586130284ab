//! One service on one loop, with its types erased: the loop knows it as a [`Host`], and one
//! virtual call serves a whole batch of input.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use slab::Slab;

use crate::closed::{Closed, Refusal};
use crate::drive::Callee;
use crate::env::Env;
use crate::input::Input;
use crate::limits::Limits;
use crate::link::Link;
use crate::mailbox::{Close, LoopHandle, Mail};
use crate::protocol::{Cx, Next, Protocol, Service};
use crate::state::State;
use crate::waker::Waker;
use crate::woken::Conns;

/// A callback without input of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Opened,
    Writable,
    PeerFinished(usize),
    HungUp,
    Expired,
    Idle,
    Draining,
}

pub(crate) trait Host: Callee {
    fn limits(&self) -> &Arc<Limits>;
    /// Makes the protocol of the connection with this record, or refuses it.
    fn accept(&mut self, state: &mut State) -> Result<(), Refusal>;
    fn closed(&mut self, state: &State, why: Closed);
    fn dial_failed(&mut self, token: u64, error: &io::Error);
    /// Looks into the mailbox.
    fn wake(&mut self, states: &mut Slab<State>, env: &mut Env);
    /// Whether anybody off this loop can reach it.
    fn reachable(&self) -> bool;
    /// The service's state on this loop.
    fn local(&mut self) -> &mut dyn Any;
}

/// Makes a service's host on each loop, on the loop's own thread.
pub(crate) trait Factory: Send + Sync {
    fn host(&self, index: u16, waker: &Arc<Waker>) -> Box<dyn Host>;
}

/// A service as the builder keeps it.
pub(crate) struct Offered<S: Service> {
    pub(crate) service: Arc<S>,
    pub(crate) limits: Arc<Limits>,
    /// Open connections of this service on all loops.
    pub(crate) open: Arc<AtomicUsize>,
}

impl<S: Service> Factory for Offered<S> {
    fn host(&self, index: u16, waker: &Arc<Waker>) -> Box<dyn Host> {
        let mail = Arc::new(Mail::new(waker.clone(), index));
        let local = self.service.on_loop(LoopHandle::new(mail.clone()));
        Box::new(Hosted {
            service: self.service.clone(),
            limits: self.limits.clone(),
            open: self.open.clone(),
            slots: Slab::new(),
            local,
            mail,
        })
    }
}

struct Hosted<S: Service> {
    service: Arc<S>,
    limits: Arc<Limits>,
    open: Arc<AtomicUsize>,
    /// Each connection's index in the loop's table, and its protocol.
    slots: Slab<(u32, S::Conn)>,
    local: <S::Conn as Protocol>::Local,
    mail: Arc<Mail<<S::Conn as Protocol>::Message>>,
}

/// Runs a callback; a panic in it ends the connection and nothing else.
pub(crate) fn guarded<R>(
    state: &mut State,
    env: &mut Env,
    f: impl FnOnce(&mut State, &mut Env) -> R,
) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(|| f(&mut *state, &mut *env)));
    if result.is_err() {
        state.kill(Closed::Panicked);
        env.touch(state);
        tracing::error!(peer = %state.peer.endpoint, "a protocol panicked; its connection is aborted");
    }
    result.ok()
}

/// Runs the callback that `event` names.
pub(crate) fn dispatch<P: Protocol>(protocol: &mut P, event: Event, cx: &mut Cx<'_, P>) {
    match event {
        Event::Opened => protocol.opened(cx),
        Event::Writable => protocol.writable(cx),
        Event::PeerFinished(unread) => protocol.peer_finished(unread, cx),
        Event::HungUp => protocol.hung_up(cx),
        Event::Expired => protocol.expired(cx),
        Event::Idle => protocol.idle(cx),
        Event::Draining => protocol.draining(cx),
    }
}

impl<S: Service> Callee for Hosted<S> {
    fn call(&mut self, event: Event, state: &mut State, env: &mut Env) {
        let (_, protocol) = &mut self.slots[state.slot as usize];
        let (local, mail) = (&mut self.local, &self.mail);
        guarded(state, env, |state, env| {
            dispatch(
                protocol,
                event,
                &mut Cx {
                    link: Link { state, env },
                    local,
                    mail,
                },
            );
        });
    }

    fn received(&mut self, input: &mut Input<'_>, state: &mut State, env: &mut Env) -> Next {
        let (_, protocol) = &mut self.slots[state.slot as usize];
        let (local, mail) = (&mut self.local, &self.mail);
        guarded(state, env, |state, env| {
            protocol.received(
                input,
                &mut Cx {
                    link: Link { state, env },
                    local,
                    mail,
                },
            )
        })
        .unwrap_or(Next::More)
    }
}

impl<S: Service> Host for Hosted<S> {
    fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    fn accept(&mut self, state: &mut State) -> Result<(), Refusal> {
        if self.open.fetch_add(1, Relaxed) >= self.limits.connections {
            self.open.fetch_sub(1, Relaxed);
            return Err(Refusal::ConnectionLimit);
        }
        let made = catch_unwind(AssertUnwindSafe(|| {
            self.service.accept(&state.peer, &mut self.local)
        }))
        .unwrap_or(Err(Refusal::Panicked));
        match made {
            Ok(protocol) => {
                state.slot = self.slots.insert((state.id.index, protocol)) as u32;
                Ok(())
            }
            Err(why) => {
                self.open.fetch_sub(1, Relaxed);
                Err(why)
            }
        }
    }

    fn closed(&mut self, state: &State, why: Closed) {
        let (_, protocol) = self.slots.remove(state.slot as usize);
        self.open.fetch_sub(1, Relaxed);
        let local = &mut self.local;
        if catch_unwind(AssertUnwindSafe(|| protocol.closed(why, local))).is_err() {
            tracing::error!(peer = %state.peer.endpoint, "a protocol panicked in `closed`");
        }
        // A burst of connections should not hold its memory for ever.
        if self.slots.is_empty() && self.slots.capacity() > 64 {
            self.slots = Slab::new();
        }
    }

    fn dial_failed(&mut self, token: u64, error: &io::Error) {
        let (service, local) = (&self.service, &mut self.local);
        if catch_unwind(AssertUnwindSafe(|| {
            service.dial_failed(token, error, local)
        }))
        .is_err()
        {
            tracing::error!(token, "a service panicked in `dial_failed`");
        }
    }

    fn wake(&mut self, states: &mut Slab<State>, env: &mut Env) {
        let batch = self.mail.take();
        for (id, message) in batch.posts {
            let found = states.get_mut(id.index as usize);
            let Some(state) = found.filter(|s| s.id == id && s.is_open() && s.opened) else {
                env.counters.posts_undeliverable.add(1);
                continue;
            };
            let (_, protocol) = &mut self.slots[state.slot as usize];
            let (local, mail) = (&mut self.local, &self.mail);
            guarded(state, env, |state, env| {
                protocol.posted(
                    message,
                    &mut Cx {
                        link: Link { state, env },
                        local,
                        mail,
                    },
                );
            });
        }
        for (id, how) in batch.closes {
            let found = states.get_mut(id.index as usize);
            let Some(state) = found.filter(|s| s.id == id) else {
                continue;
            };
            match how {
                Close::Finish => state.finish(Closed::Finished),
                Close::Abort => state.kill(Closed::Aborted),
            }
            env.touch(state);
        }
        if batch.signalled {
            let (service, local) = (&self.service, &mut self.local);
            let mut all = Conns {
                slots: &mut self.slots,
                states,
                env,
                mail: &self.mail,
            };
            if catch_unwind(AssertUnwindSafe(|| service.woken(local, &mut all))).is_err() {
                tracing::error!("a service panicked in `woken`");
            }
        }
    }

    fn reachable(&self) -> bool {
        // One of the references is this host's own.
        Arc::strong_count(&self.mail) > 1
    }

    fn local(&mut self) -> &mut dyn Any {
        &mut self.local
    }
}
