//! One service on one loop, with its types erased: the loop sees a [`Host`], and one virtual call
//! serves a whole batch of input. [`HostOf`] is the implementation with the types.

use std::any::Any;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::door::{Door, Face, Gate};
use crate::build::limits::Limits;
use crate::contained::{Theirs, contained};
use crate::memory::table::Table;
use crate::protocol::connection::{Cx, Protocol, Turn};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::service::Service;
use crate::reach::home::{Home, Told};
use crate::reach::mailbox::{Close, LoopHandle, Mail};
use crate::reach::nudges::{Due, decline};
use crate::reach::waker::Waker;
use crate::reach::woken::{Conns, Slots};
use crate::reactor::activity::Callback;
use crate::reactor::counters::LoopCounters;
use crate::reactor::drive::{Callbacks, Event};
use crate::reactor::env::Env;
use crate::reactor::guard::{counted, discard, guarded};
use crate::reactor::state::State;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;

/// How soon a service is called again that panicked as its timer expired, and had not set it again.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) trait Host: Callbacks {
    fn limits(&self) -> &Arc<Limits>;
    /// Makes the protocol of the connection with this record, or refuses it.
    fn accept(&mut self, state: &mut State) -> Result<(), Refusal>;
    fn closed(&mut self, state: &State, why: Closed, env: &mut Env);
    fn dial_failed(&mut self, token: u64, error: &io::Error, env: &mut Env);
    /// Delivers what connections told each other before this call.
    fn deliver(&mut self, states: &mut Table<State>, env: &mut Env);
    /// Calls the service if its timer has expired; returns when the timer will expire, in
    /// nanoseconds.
    fn expire(&mut self, now_ns: u64, states: &mut Table<State>, env: &mut Env) -> u64;
    /// Whether the host's protocols look ahead at bytes that are about to be offered.
    fn looks_ahead(&self) -> bool;
    fn look_ahead(&mut self, input: &[u8], state: &mut State, env: &mut Env);
    /// The loop has ended, and counts here what panics about it.
    fn ended(self: Box<Self>, counters: &LoopCounters);
    /// Looks into the mailbox.
    fn wake(&mut self, states: &mut Table<State>, env: &mut Env);
    /// Whether other threads can reach the host.
    fn reachable(&self) -> bool;
    /// Something will come from another thread, such as a resolver's answer: from now on it can be reached.
    fn await_others(&mut self);
    /// The service's state on this loop.
    fn local(&mut self) -> &mut dyn Any;
}

/// Makes a service's host on a loop, on the loop's own thread. The number is the service's on that loop.
pub(crate) type MakeHost = Arc<dyn Fn(u16, &Arc<Waker>) -> Box<dyn Host> + Send + Sync>;

/// A service in the form in which loops get it.
#[derive(Clone)]
pub(crate) struct Hosted {
    pub(crate) make: MakeHost,
    pub(crate) door: Arc<Door>,
}

/// The factory of this service's hosts, one for each loop, and the service's door, which has no
/// rules yet.
pub(crate) fn host_of<S: Service>(service: S, limits: Limits) -> Hosted {
    let (service, limits) = (
        Arc::new(Theirs::new("a service", service)),
        Arc::new(limits),
    );
    let door = Door::new(name_of::<S>().into(), service.clone(), limits.connections);
    let make: MakeHost = Arc::new(move |index, waker| {
        let mail = Arc::new(Mail::new(waker.clone(), index));
        let local = service.on_loop(LoopHandle::new(mail.clone()));
        Box::new(HostOf {
            index,
            service: service.clone(),
            limits: limits.clone(),
            slots: Table::new(),
            awaited: None,
            local,
            home: Home::new(mail),
        })
    });
    Hosted {
        make,
        door: Arc::new(door),
    }
}

impl<S: Service> Face for Theirs<S> {
    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        Service::refusal_reply(&**self, why, from)
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        Service::speaks_for_others(&**self, from)
    }
}

impl Hosted {
    /// This host under another name, with rules, and a count of its own.
    pub(crate) fn behind(&self, name: Arc<str>, gates: Vec<Gate>) -> Hosted {
        Hosted {
            make: self.make.clone(),
            door: Arc::new(self.door.again(name, gates)),
        }
    }
}

/// The name of a type without its path: `Echo`.
pub(crate) fn name_of<S>() -> &'static str {
    let name = std::any::type_name::<S>();
    let whole = name.split('<').next().unwrap_or(name);
    whole.rsplit("::").next().unwrap_or(whole)
}

struct HostOf<S: Service> {
    /// The service's number on this loop.
    index: u16,
    service: Arc<Theirs<S>>,
    limits: Arc<Limits>,
    /// Each connection's index in the loop's table, and its protocol.
    slots: Table<(u32, S::Conn)>,
    local: <S::Conn as Protocol>::Local,
    /// Another hold of its mailbox, once something may come from outside: see [`Host::await_others`].
    awaited: Option<Arc<Mail<<S::Conn as Protocol>::Message>>>,
    home: Home<<S::Conn as Protocol>::Message>,
}

/// Runs the callback that `event` names.
pub(crate) fn dispatch<P: Protocol>(protocol: &mut P, event: Event, cx: &mut Cx<'_, P>) {
    match event {
        Event::Opened => protocol.opened(cx),
        Event::Writable => protocol.writable(cx),
        Event::PeerFinished(unread) => protocol.peer_finished(unread, cx),
        Event::HungUp => protocol.hung_up(cx),
        Event::Expired => protocol.expired(cx),
        Event::TimerExpired(key) => protocol.timer_expired(key, cx),
        Event::Notified(key) => protocol.notified(key, cx),
        Event::Idle => protocol.idle(cx),
        Event::Overdue => protocol.overdue(cx),
        Event::Draining => protocol.draining(cx),
    }
}

/// The record of a connection that may be called.
fn open_state(states: &mut Table<State>, id: ConnId) -> Option<&mut State> {
    let state = states.get_mut(id.index as usize)?;
    (state.id == id && state.is_open() && state.was_opened()).then_some(state)
}

impl<S: Service> HostOf<S> {
    /// Delivers the notices that other threads have sent to connections.
    #[cold]
    fn notify(&mut self, due: Due, states: &mut Table<State>, env: &mut Env) {
        if due.delayed > 0 {
            env.delay_sends(self.index, due.delayed);
        }
        for ((id, key), promised) in due.names {
            match open_state(states, ConnId::from_bits(id)) {
                Some(state) => self.call(Event::Notified(key), state, env),
                None => decline(promised),
            }
        }
    }
}

impl<S: Service> Callbacks for HostOf<S> {
    fn call(&mut self, event: Event, state: &mut State, env: &mut Env) {
        env.enter(state.service, event.callback());
        let (_, protocol) = &mut self.slots[state.slot as usize];
        let (local, home) = (&mut self.local, &self.home);
        guarded(state, env, |state, env| {
            dispatch(
                protocol,
                event,
                &mut Cx {
                    link: Link { state, env },
                    local,
                    home,
                },
            );
        });
    }

    fn received(&mut self, input: &mut Input<'_>, state: &mut State, env: &mut Env) -> Next {
        env.enter(state.service, Callback::Received);
        let (_, protocol) = &mut self.slots[state.slot as usize];
        let (local, home) = (&mut self.local, &self.home);
        guarded(state, env, |state, env| {
            protocol.received(
                input,
                &mut Cx {
                    link: Link { state, env },
                    local,
                    home,
                },
            )
        })
        .unwrap_or(Next::More)
    }
}

impl<S: Service> Host for HostOf<S> {
    fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    fn accept(&mut self, state: &mut State) -> Result<(), Refusal> {
        let made = contained(|| self.service.accept(&state.peer, &mut self.local));
        let protocol = made.unwrap_or(Err(Refusal::Panicked))?;
        state.slot = self.slots.insert((state.id.index, protocol)) as u32;
        Ok(())
    }

    fn closed(&mut self, state: &State, why: Closed, env: &mut Env) {
        let removed = self.slots.remove(state.slot as usize);
        let (_, protocol) = removed.expect("a connection is closed once");
        let mut turn = Turn {
            local: &mut self.local,
            env,
            home: &self.home,
            gone: Some((state.id, &state.peer)),
        };
        if contained(|| protocol.closed(why, &mut turn)).is_none() {
            env.counters.panics.add(1);
            tracing::error!(peer = %state.peer.endpoint, "a protocol panicked in `closed`");
        }
    }

    fn dial_failed(&mut self, token: u64, error: &io::Error, env: &mut Env) {
        let service = &self.service;
        let mut turn = Turn {
            local: &mut self.local,
            env,
            home: &self.home,
            gone: None,
        };
        if contained(|| service.dial_failed(token, error, &mut turn)).is_none() {
            env.counters.panics.add(1);
            tracing::error!(token, "a service panicked in `dial_failed`");
        }
    }

    fn wake(&mut self, states: &mut Table<State>, env: &mut Env) {
        let batch = self.home.mail.take();
        if !batch.refused.is_none() {
            let refused = [batch.refused.posts, batch.refused.places, 0];
            env.refuse_messages(self.index, refused);
        }
        for (id, message) in batch.posts {
            let Some(state) = open_state(states, ConnId::from_bits(id)) else {
                env.counters.posts_undeliverable.add(1);
                discard("a message", message, &env.counters);
                continue;
            };
            let (_, protocol) = &mut self.slots[state.slot as usize];
            let (local, home) = (&mut self.local, &self.home);
            env.enter(self.index, Callback::Posted);
            guarded(state, env, |state, env| {
                protocol.posted(
                    message,
                    &mut Cx {
                        link: Link { state, env },
                        local,
                        home,
                    },
                );
            });
        }
        if let Some(due) = self.home.mail.nudges.take() {
            self.notify(due, states, env);
        }
        for (id, how) in batch.closes {
            let id = ConnId::from_bits(id);
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
            env.enter(self.index, Callback::Woken);
            let (service, local) = (&self.service, &mut self.local);
            let mut all = Conns {
                slots: Slots::Own(&mut self.slots),
                states,
                env,
                home: &self.home,
            };
            if contained(|| service.woken(local, &mut all)).is_none() {
                env.counters.panics.add(1);
                tracing::error!("a service panicked in `woken`");
            }
        }
    }

    fn deliver(&mut self, states: &mut Table<State>, env: &mut Env) {
        let mut batch = self.home.take_told();
        for Told { to, from, message } in batch.drain(..) {
            let (slots, local, home) = (&mut self.slots, &mut self.local, &self.home);
            if let Some(state) = open_state(states, to) {
                let (_, protocol) = &mut slots[state.slot as usize];
                env.enter(self.index, Callback::Posted);
                guarded(state, env, |state, env| {
                    let link = Link { state, env };
                    protocol.posted(message, &mut Cx { link, local, home });
                });
                continue;
            }
            env.counters.tells_undeliverable.add(1);
            let Some(state) = from.and_then(|from| open_state(states, from)) else {
                discard("a message", message, &env.counters);
                continue;
            };
            let (_, protocol) = &mut slots[state.slot as usize];
            env.enter(self.index, Callback::Undelivered);
            guarded(state, env, |state, env| {
                let link = Link { state, env };
                protocol.undelivered(to, message, &mut Cx { link, local, home });
            });
        }
        self.home.keep(batch);
    }

    fn expire(&mut self, now_ns: u64, states: &mut Table<State>, env: &mut Env) -> u64 {
        let timer = &self.home.timer_ns;
        if timer.get() <= now_ns {
            timer.set(u64::MAX);
            env.enter(self.index, Callback::ServiceExpired);
            let (service, local) = (&self.service, &mut self.local);
            let mut all = Conns {
                slots: Slots::Own(&mut self.slots),
                states,
                env,
                home: &self.home,
            };
            if contained(|| service.expired(local, &mut all)).is_none() {
                env.counters.panics.add(1);
                tracing::error!("a service panicked in `expired`");
                // A service that works at intervals sets the timer at the end of its work; a timer that is
                // lost here would never be set again.
                let timer = &self.home.timer_ns;
                if timer.get() == u64::MAX {
                    timer.set((env.now + AGAIN).as_nanos());
                }
            }
        }
        self.home.timer_ns.get()
    }

    fn looks_ahead(&self) -> bool {
        S::Conn::LOOKS_AHEAD
    }

    fn look_ahead(&mut self, input: &[u8], state: &mut State, env: &mut Env) {
        let (_, protocol) = &self.slots[state.slot as usize];
        let local = &mut self.local;
        guarded(state, env, |_, _| protocol.look_ahead(input, local));
    }

    fn ended(self: Box<Self>, counters: &LoopCounters) {
        let HostOf {
            service,
            local,
            mut slots,
            awaited,
            home,
            ..
        } = *self;
        // The last hold of the mailbox is let go of below.
        drop(awaited);
        // Connections of a loop that has failed. Each by itself: two panics at once would end the
        // process.
        for at in 0..slots.end() {
            if let Some((_, protocol)) = slots.remove(at) {
                discard("a protocol", protocol, counters);
            }
        }
        let due = home.mail.nudges.close();
        due.names.into_values().for_each(decline);
        let posted = home.mail.take().posts.into_iter();
        let told = home.take_told().into_iter();
        for message in posted.map(|(_, m)| m).chain(told.map(|t| t.message)) {
            discard("a message", message, counters);
        }
        counted(counters, "a service's `loop_ended`", || {
            service.loop_ended(local)
        });
        // A message may have been posted since.
        discard("a message", home, counters);
    }

    fn reachable(&self) -> bool {
        // One of the references to each is this host's own.
        let mail = &self.home.mail;
        Arc::strong_count(mail) > 1 || Arc::strong_count(&mail.nudges) > 1
    }

    fn await_others(&mut self) {
        self.awaited = Some(self.home.mail.clone());
    }

    fn local(&mut self) -> &mut dyn Any {
        &mut self.local
    }
}
