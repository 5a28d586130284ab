//! All connections of one service on one loop, for [`Service::woken`](crate::Service::woken) and
//! [`Service::expired`](crate::Service::expired).

use std::time::Duration;

use crate::memory::table::Table;
use crate::protocol::connection::{Cx, Protocol};
use crate::protocol::link::Link;
use crate::reach::home::Home;
use crate::reactor::env::Env;
use crate::reactor::guard::guarded;
use crate::reactor::state::State;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::time::Instant;

/// The open connections of one service on one loop.
///
/// ```
/// use tidewire::{Conns, Cx, Input, Next, Protocol};
///
/// struct Guest;
///
/// impl Protocol for Guest {
///     type Local = Vec<u8>;
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         cx.local.extend_from_slice(input.bytes());
///         input.consume(input.len());
///         cx.wake_service(); // others are reached when this callback has returned
///         Next::More
///     }
/// }
///
/// /// What a service's `woken` may do: hands to every guest what was said.
/// fn hand_out(said: &mut Vec<u8>, all: &mut Conns<'_, Guest>) {
///     let bytes = std::mem::take(said);
///     all.each(said, |_, cx| {
///         if !cx.link.full() {
///             cx.link.write(&bytes);
///         }
///     });
/// }
/// ```
pub struct Conns<'a, P: Protocol> {
    pub(crate) slots: Slots<'a, P>,
    pub(crate) states: &'a mut Table<State>,
    pub(crate) env: &'a mut Env,
    pub(crate) home: &'a Home<P::Message>,
}

/// Where a loop keeps the protocols of one service.
pub(crate) enum Slots<'a, P: Protocol> {
    /// With the index of each in the loop's table.
    Own(&'a mut Table<(u32, P)>),
    /// Connections inside another service's, which is a layer.
    Inside(&'a mut dyn Inside<P>),
}

/// Protocols that hold other protocols.
pub(crate) trait Inside<P: Protocol> {
    /// Calls `f` for each open inner protocol.
    fn visit_inside(
        &mut self,
        states: &mut Table<State>,
        env: &mut Env,
        f: &mut dyn FnMut(&mut P, Link<'_>),
    );
    /// Calls `f` for the inner protocol of the connection `id`.
    fn visit_inside_one(
        &mut self,
        id: ConnId,
        states: &mut Table<State>,
        env: &mut Env,
        f: &mut dyn FnMut(&mut P, Link<'_>),
    );
    /// Releases what inner protocols hold, that of one connection or of all.
    fn release_inside(
        &mut self,
        id: Option<ConnId>,
        upto: u64,
        states: &mut Table<State>,
        env: &mut Env,
    );
}

impl<P: Protocol> Slots<'_, P> {
    /// Calls `f` for each open connection. A panic in it ends that connection alone.
    pub(crate) fn visit(
        &mut self,
        states: &mut Table<State>,
        env: &mut Env,
        mut f: impl FnMut(&mut P, Link<'_>),
    ) {
        let slots = match self {
            Slots::Own(slots) => slots,
            Slots::Inside(inside) => return inside.visit_inside(states, env, &mut f),
        };
        for (_, (index, protocol)) in slots.iter_mut() {
            let state = &mut states[*index as usize];
            if state.is_open() && state.was_opened() {
                guarded(state, env, |state, env| f(protocol, Link { state, env }));
            }
        }
    }

    /// Calls `f` for the connection `id` if it is open.
    pub(crate) fn visit_one(
        &mut self,
        id: ConnId,
        states: &mut Table<State>,
        env: &mut Env,
        f: impl FnOnce(&mut P, Link<'_>),
    ) {
        let slots = match self {
            Slots::Own(slots) => slots,
            Slots::Inside(inside) => {
                let mut f = Some(f);
                let mut once = |protocol: &mut P, link: Link<'_>| {
                    if let Some(f) = f.take() {
                        f(protocol, link);
                    }
                };
                return inside.visit_inside_one(id, states, env, &mut once);
            }
        };
        let Some(state) = states.get_mut(id.index as usize) else {
            return;
        };
        if state.id != id || !state.is_open() || !state.was_opened() {
            return;
        }
        if let Some((index, protocol)) = slots.get_mut(state.slot as usize)
            && *index == id.index
        {
            guarded(state, env, |state, env| f(protocol, Link { state, env }));
        }
    }

    /// Releases output that is held inside layers.
    pub(crate) fn release(
        &mut self,
        id: Option<ConnId>,
        upto: u64,
        states: &mut Table<State>,
        env: &mut Env,
    ) {
        if let Slots::Inside(inside) = self {
            inside.release_inside(id, upto, states, env);
        }
    }
}

impl<P: Protocol> Conns<'_, P> {
    /// Calls `f` for each open connection. A panic in `f` ends only that connection, like a panic
    /// in a callback, and the other connections are still called.
    pub fn each(&mut self, local: &mut P::Local, mut f: impl FnMut(&mut P, &mut Cx<'_, P>)) {
        let home = self.home;
        self.slots.visit(self.states, self.env, |protocol, link| {
            let local = &mut *local;
            f(protocol, &mut Cx { link, local, home });
        });
    }

    /// Releases, for every connection of this service on this loop, output that waits for marks up to
    /// `upto`: a watermark, such as how far a log is durable. The watermark is kept: output that a
    /// connection holds later, for a mark up to it, is not held at all. A watermark below the
    /// previous one changes nothing.
    ///
    /// Connections that have finished are released too, and then go on to close. The cost is that of
    /// the connections that hold output; the others are not looked at.
    ///
    /// See [`Link::hold_until`].
    pub fn release_all(&mut self, upto: u64) {
        let service = self.home.mail.service();
        self.env.release_all(service, self.states, upto);
        self.slots.release(None, upto, self.states, self.env);
    }

    /// [`release_all`](Conns::release_all) for the connection `id` alone, open or finished; whether
    /// it is still there.
    ///
    /// ```
    /// use tidewire::{ConnId, Conns, Protocol};
    ///
    /// /// What `woken` does with what a log has said: all up to `durable` is safe, and one connection's
    /// /// write has failed. Its peer is owed nothing more.
    /// fn committed<P: Protocol>(
    ///     all: &mut Conns<'_, P>,
    ///     local: &mut P::Local,
    ///     durable: u64,
    ///     failed: Option<(ConnId, u64)>,
    /// ) {
    ///     all.release_all(durable);
    ///     if let Some((id, mark)) = failed {
    ///         all.with(id, local, |_, cx| cx.link.finish_because("the write failed"));
    ///         if !all.release(id, mark) {
    ///             println!("{id:?} had gone already, on loop {}", all.number());
    ///         }
    ///     }
    /// }
    /// ```
    pub fn release(&mut self, id: ConnId, upto: u64) -> bool {
        let state = self.states.get_mut(id.index as usize);
        let Some(state) = state.filter(|s| s.id == id) else {
            return false;
        };
        self.env.release(state, upto);
        self.slots.release(Some(id), upto, self.states, self.env);
        true
    }

    /// Calls `f` for the connection `id`; `None` if it is no longer open, or if `f` panics, which
    /// ends the connection.
    pub fn with<R>(
        &mut self,
        id: ConnId,
        local: &mut P::Local,
        f: impl FnOnce(&mut P, &mut Cx<'_, P>) -> R,
    ) -> Option<R> {
        let (home, mut result) = (self.home, None);
        self.slots
            .visit_one(id, self.states, self.env, |protocol, link| {
                result = Some(f(protocol, &mut Cx { link, local, home }));
            });
        result
    }

    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// Time since 1970-01-01T00:00:00Z by the wall clock, which may jump.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.env.clock.wall()
    }

    /// Has [`Service::expired`](crate::Service::expired) called once at `at` on this loop, or as soon
    /// as may be if that has passed; replaces the timer set before. There is one such timer for each
    /// service and loop. The timer may be a little late, never early.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Conns, Protocol};
    ///
    /// /// What `expired` does to be called on every full minute of the wall clock.
    /// fn next_minute<P: Protocol>(all: &mut Conns<'_, P>) {
    ///     let past = all.wall().as_nanos() % 60_000_000_000;
    ///     let left = Duration::from_nanos(60_000_000_000 - past as u64);
    ///     all.set_timer(all.now() + left);
    /// }
    /// ```
    pub fn set_timer(&mut self, at: Instant) {
        let ns = at.as_nanos();
        self.home.timer_ns.set(ns);
        self.env.timers_ns = self.env.timers_ns.min(ns);
    }

    /// [`set_timer`](Conns::set_timer) for `after` from now.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Conns, Dial, Protocol};
    ///
    /// /// What `expired` does to keep at least one connection to another server, and to look again in a
    /// /// second.
    /// fn keep_connected<P: Protocol>(local: &mut P::Local, all: &mut Conns<'_, P>) {
    ///     let mut connected = 0;
    ///     all.each(local, |_, _| connected += 1);
    ///     if connected == 0 {
    ///         println!("at {} s: alone", all.wall().as_secs());
    ///         all.dial(Dial::to("192.0.2.1:7400"));
    ///     }
    ///     all.set_timer_after(Duration::from_secs(1));
    ///     // The same: all.set_timer(all.now() + Duration::from_secs(1))
    ///     assert!(all.timer() > Some(all.now()));
    /// }
    ///
    /// /// And what `woken` does when the program no longer wants it.
    /// fn leave<P: Protocol>(local: &mut P::Local, all: &mut Conns<'_, P>) {
    ///     all.clear_timer();
    ///     all.each(local, |_, cx| cx.link.finish());
    /// }
    /// ```
    pub fn set_timer_after(&mut self, after: Duration) {
        self.set_timer(self.env.now + after);
    }

    /// Forgets the service's timer on this loop.
    pub fn clear_timer(&mut self) {
        self.home.timer_ns.set(u64::MAX);
    }

    /// When the service's timer on this loop is set to expire.
    #[must_use]
    pub fn timer(&self) -> Option<Instant> {
        let ns = self.home.timer_ns.get();
        (ns != u64::MAX).then(|| Instant::from_nanos(ns))
    }

    /// Makes an outgoing connection of this service on this loop, when the callback has returned. If
    /// it cannot be made, [`dial_failed`](crate::Service::dial_failed) is called.
    pub fn dial(&mut self, dial: Dial) {
        self.env.dial(self.home.mail.service(), dial, None);
    }

    /// The loop's number: see [`LoopHandle::number`](crate::LoopHandle::number).
    #[must_use]
    pub fn number(&self) -> u32 {
        self.home.mail.waker.number()
    }
}
