//! One protocol inside another: [`Inner`].

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use crate::build::limits::Limits;
use crate::protocol::connection::{Cx, Protocol, Turn};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::reach::home::Home;
use crate::reactor::drive::{self, Callbacks, Event};
use crate::reactor::env::Env;
use crate::reactor::facts::{Flag, Hint, Owed, PeerEnd, Phase, Told, Writing};
use crate::reactor::host::dispatch;
use crate::reactor::state::State;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Origin;

/// Rounds of callbacks after which other connections get their turn.
const ROUNDS: usize = 64;

/// A protocol that runs inside another one, its *layer*.
///
/// The layer is an ordinary [`Protocol`]. The layer turns its own input into input of the inner
/// protocol, and the inner protocol's output into its own output. The inner protocol cannot see the
/// layer: it has a link of its own with the same contracts, driven by the same code as the link of
/// a connection. Handles reach the inner protocol through the layer, which has the same `Local` and
/// `Message`.
///
/// The layer's part:
///
/// 1. Each callback passes its event on, to the method here of the same name;
/// 2. then *pumps*: [`received`](Inner::received) while the inner protocol
///    [wants input](Inner::wants_input), [`take_output`](Inner::take_output) while there is some;
/// 3. and at last [yields](Inner::yield_to): timer, pauses and the end are passed outwards.
/// 4. `received` returns [`next`](Inner::next).
///
/// A [`Handle`](crate::Handle) that closes ends the layer's connection, without a farewell from
/// the layer.
///
/// ```
/// use tidewire::{Closed, ConnId, Cx, Inner, Input, Limits, Next, Protocol, Turn};
///
/// /// What is on the wire is the inner protocol's with all bits turned over.
/// struct Inverted<P: Protocol>(Inner<P>);
///
/// fn inverted<P: Protocol>(protocol: P) -> Inverted<P> {
///     Inverted(Inner::new(protocol, Limits::default()))
/// }
///
/// fn invert(bytes: &[u8]) -> Vec<u8> {
///     bytes.iter().map(|b| !b).collect()
/// }
///
/// impl<P: Protocol> Inverted<P> {
///     fn pump(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.take_output(cx, |cx, bytes| {
///             cx.link.write(&invert(bytes));
///             bytes.len()
///         });
///         self.0.yield_to(cx);
///     }
/// }
///
/// impl<P: Protocol> Protocol for Inverted<P> {
///     type Local = P::Local;
///     type Message = P::Message;
///
///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.open(cx);
///         self.pump(cx);
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         if self.0.wants_input() {
///             self.0.received(&invert(input.bytes()), cx);
///             input.consume(input.len());
///         }
///         self.pump(cx);
///         self.0.next()
///     }
///
///     fn writable(&mut self, cx: &mut Cx<'_, Self>) {
///         self.pump(cx);
///     }
///
///     fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
///         self.0.peer_finished(cx);
///         self.pump(cx);
///     }
///
///     fn cut_short(&mut self, _: usize, why: &'static str, cx: &mut Cx<'_, Self>) {
///         self.0.cut_short(why, cx);
///         self.pump(cx);
///     }
///
///     fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.hung_up(cx);
///         self.pump(cx);
///     }
///
///     fn expired(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.expired(cx);
///         self.pump(cx);
///     }
///
///     fn idle(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.idle(cx);
///         self.pump(cx);
///     }
///
///     fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.overdue(cx);
///         self.pump(cx);
///     }
///
///     fn posted(&mut self, message: P::Message, cx: &mut Cx<'_, Self>) {
///         self.0.posted(message, cx);
///         self.pump(cx);
///     }
///
///     fn draining(&mut self, cx: &mut Cx<'_, Self>) {
///         self.0.draining(cx);
///         self.pump(cx);
///     }
///
///     fn undelivered(&mut self, to: ConnId, message: P::Message, cx: &mut Cx<'_, Self>) {
///         self.0.undelivered(to, message, cx);
///         self.pump(cx);
///     }
///
///     fn notified(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
///         self.0.notified(key, cx);
///         self.pump(cx);
///     }
///
///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
///         self.0.closed(why, turn);
///     }
/// }
/// ```
pub struct Inner<P: Protocol> {
    protocol: P,
    /// Made when the protocol is opened.
    state: Option<Box<State>>,
    limits: Arc<Limits>,
    /// Why the end of the peer's bytes is not the peer's own end.
    cut_short: Option<&'static str>,
}

impl<P: Protocol> fmt::Debug for Inner<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inner({:?})", self.state.as_ref().map(|s| s.phase))
    }
}

impl<P: Protocol> Inner<P> {
    /// Makes a protocol that is not open yet. The output marks, the hard limit, `carried`, `first_byte` and `request` of
    /// `limits` apply to it; the outer connection has the other limits. Output that waits in the layer adds to the protocol's
    /// own.
    #[must_use]
    pub fn new(protocol: P, limits: impl Into<Arc<Limits>>) -> Inner<P> {
        Inner {
            protocol,
            state: None,
            limits: limits.into(),
            cut_short: None,
        }
    }

    // ---- Events ----

    /// Opens the inner protocol: when the layer's connection has opened, or its handshake is done.
    /// Events before that are not passed on.
    ///
    /// # Panics
    /// Panics if the inner connection was opened already.
    pub fn open<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        assert!(self.state.is_none(), "a protocol is opened once");
        cx.link.state.flags.add(Flag::Around);
        let (outer, now) = (&*cx.link.state, cx.link.env.now);
        let mut state = State::new(
            outer.id,
            outer.service,
            outer.peer.clone(),
            &self.limits,
            now,
        );
        state.mark = cx.link.env.making.mark(state.high);
        state.flags.add(Flag::Embedded);
        state.flags.add(Flag::Opened);
        state.phase_ends = outer.phase_ends;
        if matches!(outer.peer.origin, Origin::Accepted(_)) {
            state.await_first_byte(now, self.limits.first_byte);
        }
        self.state = Some(Box::new(state));
        self.event(Event::Opened, cx);
    }

    /// Hands bytes to the inner protocol. If the inner protocol does not want bytes now, they are
    /// kept; a layer that asks [`wants_input`](Inner::wants_input) first bounds the kept bytes.
    pub fn received<L>(&mut self, bytes: &[u8], cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let carried_max = self.limits.carried;
        self.enter(cx, |inside, state, env| {
            if state.is_open() && !bytes.is_empty() {
                if !state.flags.has(Flag::Around) {
                    state.last_progress = env.now;
                }
                drive::receive(inside, state, env, carried_max, bytes);
            }
        });
    }

    /// The peer has finished sending, and all of it was handed to `received`.
    pub fn peer_finished<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |_, state, _| state.peer_end = PeerEnd::Reached);
    }

    /// [`peer_finished`](Inner::peer_finished), where the layer cannot tell whether the peer had more to say: the
    /// inner protocol's [`cut_short`](Protocol::cut_short) is called in its place, with this reason.
    ///
    /// ```
    /// use tidewire::{Cx, Inner, Protocol};
    ///
    /// /// What a layer's `peer_finished` does, which looks for a farewell.
    /// fn ended<P, L>(inner: &mut Inner<P>, is_whole: bool, cx: &mut Cx<'_, L>)
    /// where
    ///     P: Protocol,
    ///     L: Protocol<Local = P::Local, Message = P::Message>,
    /// {
    ///     match is_whole {
    ///         true => inner.peer_finished(cx),
    ///         false => inner.cut_short("the stream ended without a farewell", cx),
    ///     }
    /// }
    /// ```
    pub fn cut_short<L>(&mut self, why: &'static str, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.cut_short = Some(why);
        self.peer_finished(cx);
    }

    /// The peer seems to have gone while reading is paused.
    pub fn hung_up<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |_, state, _| state.announce_end());
    }

    /// The outer timer has expired. The inner protocol hears of it if its own timer was due.
    pub fn expired<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let now = cx.link.now();
        let due = self.state.as_ref().map_or(0, |state| state.timers_due(now));
        if due == 0 {
            self.enter(cx, |_, _, _| ());
            return;
        }
        for _ in 0..due {
            let state = self.state.as_mut();
            let Some(due) = state.and_then(|state| state.take_due_timer(now)) else {
                return;
            };
            self.event(due, cx);
        }
    }

    /// The connection was idle for as long as it may be. Passed on unless output is held back, for which it waits.
    pub fn idle<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |inside, state, env| {
            if state.is_open() && state.out.is_empty() {
                state.hint = Hint::Idle;
                inside.call(Event::Idle, state, env);
                state.hint = Hint::Finished;
            }
        });
    }

    /// The peer is late with its first byte, or with the rest of a request. Passed on if it is so to
    /// the inner protocol.
    pub fn overdue<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let inner = self.enter(cx, |inside, state, env| {
            let late = state.is_open().then(|| state.is_late(env.now)).flatten();
            if let Some(hint) = late {
                state.hint = hint;
                inside.call(Event::Overdue, state, env);
                state.hint = Hint::Finished;
            }
            late
        });
        if inner.flatten().is_none() {
            // The layer's own bytes are late: a record that drips, for example.
            cx.link.cut();
        }
    }

    /// The loops are stopping, or the connection has lived for as long as it may.
    pub fn draining<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let outlived = cx.link.state.flags.has(Flag::Outlived);
        self.enter(cx, |_, state, env| {
            if outlived {
                state.flags.add(Flag::Outlived);
            }
            if outlived || !env.waits_for_unserved(state.service) {
                state.flags.remove(Flag::Unserved);
            }
            state.owed.add(Owed::Draining);
        });
    }

    /// Whether the inner protocol was opened for an accepted connection, and has consumed no input and sent no output yet.
    pub(crate) fn is_unserved(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|s| s.is_open() && s.flags.has(Flag::Unserved))
    }

    /// A message was posted to the connection.
    pub fn posted<L>(&mut self, message: P::Message, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.with(cx, |protocol, cx| protocol.posted(message, cx));
    }

    /// Something that the connection waits for has moved on.
    pub fn notified<L>(&mut self, key: u64, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.event(Event::Notified(key), cx);
    }

    /// A message that the inner protocol sent to another connection could not be delivered, and
    /// comes back.
    pub fn undelivered<L>(&mut self, to: ConnId, message: P::Message, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.with(cx, |protocol, cx| protocol.undelivered(to, message, cx));
    }

    /// The connection is gone. Passed on if the inner protocol was opened.
    pub fn closed<L>(self, why: Closed, turn: &mut Turn<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        if let Some(mut state) = self.state {
            let mut inside = turn.of();
            inside.gone = Some((state.id, &state.peer));
            self.protocol.closed(why, &mut inside);
            if state.out.clear(&mut turn.env.blocks).is_err() {
                turn.env.count_owner(&state);
            }
        }
    }

    /// Releases output of the inner protocol that waits for marks up to `upto`: to be called where the
    /// layer's own service would release it, such as in [`Conns::each`](crate::Conns::each). Then
    /// pump.
    pub fn release<L>(&mut self, upto: u64, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |_, state, env| env.release(state, upto));
    }

    /// Calls `f` with the inner protocol and its context, as
    /// [`Conns::each`](crate::Conns::each) does; `None` if it is not open.
    ///
    /// ```
    /// use tidewire::{Cx, Inner, Instant, Protocol};
    ///
    /// /// What a layer of one's own may ask of the protocol inside, between two events.
    /// fn look<P, L>(inner: &mut Inner<P>, cx: &mut Cx<'_, L>) -> Option<Instant>
    /// where
    ///     P: Protocol,
    ///     L: Protocol<Local = P::Local, Message = P::Message>,
    /// {
    ///     if !inner.is_opened() {
    ///         return None;
    ///     }
    ///     inner.release(7, cx); // what waited for the seventh commit
    ///     let queued = inner.with(cx, |_, cx| cx.link.queued_len());
    ///     if inner.output_len() == 0 && (inner.is_done() || inner.is_done_writing()) {
    ///         println!("the last {queued:?} bytes: time to say goodbye");
    ///     }
    ///     inner.timer()
    /// }
    /// ```
    pub fn with<L, R>(
        &mut self,
        cx: &mut Cx<'_, L>,
        f: impl FnOnce(&mut P, &mut Cx<'_, P>) -> R,
    ) -> Option<R>
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |inside, state, env| {
            let Inside {
                protocol,
                local,
                home,
                ..
            } = inside;
            let link = Link { state, env };
            link.state
                .is_open()
                .then(|| f(protocol, &mut Cx { link, local, home }))
        })?
    }

    // ---- Pumping ----

    /// Whether the inner protocol waits for bytes, or has finished and so discards them.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.state.as_ref().is_some_and(|s| s.wants_input())
    }

    /// Hands output of the inner protocol to `take`, piece by piece, until there is none that may be sent,
    /// the layer's own link is full, or `take` takes less than it was given. `take` returns how many bytes
    /// it took; the result is the sum.
    pub fn take_output<L>(
        &mut self,
        cx: &mut Cx<'_, L>,
        mut take: impl FnMut(&mut Cx<'_, L>, &[u8]) -> usize,
    ) -> usize
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let mut sum = 0;
        if self.may_go_on(cx.link.state) || self.has_left(cx.link.state) {
            self.call_due(cx);
        }
        while let Some(state) = &mut self.state {
            let sends = matches!(state.phase, Phase::Open | Phase::Finishing(_));
            if !sends || !state.out.may_send() || cx.link.full() || cx.link.is_closing() {
                break;
            }
            let mut slices = [IoSlice::new(&[])];
            state.out.slices(&mut slices, usize::MAX);
            let offered = slices[0].len();
            let took = take(cx, &slices[0]);
            assert!(took <= offered, "took more than there was");
            if took > 0 {
                state.flags.remove(Flag::Unserved);
            }
            let taken = state.out.advance(took, &mut cx.link.env.blocks);
            if taken.is_err() {
                cx.link.env.owner_panicked(cx.link.state);
            }
            sum += took;
            // The protocol may have waited for room.
            self.enter(cx, |_, _, _| ());
            if took < offered {
                break;
            }
        }
        sum
    }

    /// Bytes of the inner protocol's output that may be sent and were not [taken](Inner::take_output) yet.
    #[must_use]
    pub fn output_len(&self) -> usize {
        match &self.state {
            Some(s) if matches!(s.phase, Phase::Open | Phase::Finishing(_)) => s.out.sendable(),
            _ => 0,
        }
    }

    /// Whether the inner protocol has finished and all of its output was taken: time for the
    /// layer's own farewell, before it [yields](Inner::yield_to).
    #[must_use]
    pub fn is_done(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|s| matches!(s.phase, Phase::Finishing(_)) && s.out.is_empty())
    }

    /// Whether the inner protocol has [finished writing](Link::finish_writing) and all of its output
    /// was taken: time for the layer's own farewell, before it [yields](Inner::yield_to). The input
    /// of the connection goes on.
    #[must_use]
    pub fn is_done_writing(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|s| s.is_open() && s.shut_due())
    }

    /// Whether the inner protocol was opened.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.state.is_some()
    }

    /// The inner protocol's timer.
    #[must_use]
    pub fn timer(&self) -> Option<crate::Instant> {
        self.state.as_ref()?.timer
    }

    /// Passes on to the layer's link what the inner protocol asked of its own: the timer (which
    /// replaces the layer's), pausing and resuming, aborting, and finishing, or finishing to write,
    /// once it [is done](Inner::is_done) with that. Nothing before the inner protocol was opened.
    pub fn yield_to<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let done = self.is_done();
        let Some(state) = &mut self.state else { return };
        let link = &mut cx.link;
        match state.phase {
            Phase::Open => {
                if state.shut_due() {
                    state.writing = Writing::Shut;
                    link.finish_writing();
                }
                // Work that was put off, so that others get their turn, comes back as a timer.
                let timer = if state.callback_due() {
                    Some(link.now())
                } else {
                    state.timer
                };
                if timer != link.timer() {
                    match timer {
                        Some(at) => link.set_timer(at),
                        None => link.clear_timer(),
                    }
                }
                if state.is_paused() {
                    link.pause();
                } else {
                    link.resume();
                }
                link.state.follow_deadlines(state);
            }
            Phase::Finishing(why) if done => {
                link.state.finish(why);
                link.env.touch(link.state);
            }
            // The rest of the inner protocol's output still has to be taken.
            Phase::Finishing(_) => link.resume(),
            Phase::Dead { why, .. } => {
                link.state.kill(why);
                link.env.touch(link.state);
            }
            Phase::Dialling
            | Phase::Racing(_)
            | Phase::Failing { .. }
            | Phase::Lingering(_)
            | Phase::Buried(_) => {
                unreachable!("only engines lead a connection there")
            }
        }
    }

    /// The value that the layer's `received` returns: the inner protocol waits for output to drain,
    /// or for more input.
    #[must_use]
    pub fn next(&self) -> Next {
        match &self.state {
            Some(s) if s.is_open() && s.holds_input_back() => Next::AfterDrain,
            _ => Next::More,
        }
    }

    // ---- Inside ----

    /// Calls `f` if the protocol is open. The requests that `f` makes through its link are passed on
    /// when the layer is next asked to write.
    pub(crate) fn reach(&mut self, mut outer: Link<'_>, f: impl FnOnce(&mut P, Link<'_>)) {
        if let Some(state) = &mut self.state
            && state.is_open()
        {
            state.last_progress = outer.state.last_progress;
            let env = &mut *outer.env;
            f(&mut self.protocol, Link { state, env });
            outer.ask_to_write();
        }
    }

    /// Releases marks; the layer takes the released output when it is next asked to write.
    pub(crate) fn release_later(&mut self, upto: u64, outer: &mut Link<'_>) {
        if let Some(state) = &mut self.state
            && state.release(upto, outer.now())
        {
            outer.ask_to_write();
        }
    }

    /// Makes the callbacks that are due.
    pub(crate) fn call_due<L>(&mut self, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |_, _, _| ());
    }

    /// Whether the inner protocol waited for the turn of its layer's connection to make output, and waits
    /// no more.
    fn may_go_on(&self, outer: &State) -> bool {
        let waits = |state: &State| state.flags.has(Flag::AwaitsMaking);
        self.state.as_deref().is_some_and(waits) && !waits(outer)
    }

    /// Whether the end of what the inner protocol's peer sends has waited for the answers to what came before, and these were
    /// given to the kernel.
    fn has_left(&self, outer: &State) -> bool {
        let waits = |state: &State| state.owed.has(Owed::EndInside);
        self.state.as_deref().is_some_and(waits) && !waits(outer)
    }

    fn event<L>(&mut self, event: Event, cx: &mut Cx<'_, L>)
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        self.enter(cx, |inside, state, env| {
            if state.is_open() {
                inside.call(event, state, env);
            }
        });
    }

    /// Runs `f`, then the callbacks that are due after it.
    fn enter<L, R>(
        &mut self,
        cx: &mut Cx<'_, L>,
        f: impl FnOnce(&mut Inside<'_, P>, &mut State, &mut Env) -> R,
    ) -> Option<R>
    where
        L: Protocol<Local = P::Local, Message = P::Message>,
    {
        let goes_on = self.may_go_on(cx.link.state);
        let has_left = self.has_left(cx.link.state);
        let state = &mut **self.state.as_mut()?;
        let outer = &*cx.link.state;
        state.last_progress = outer.last_progress;
        state.flags.set(Flag::Heavy, outer.flags.has(Flag::Heavy));
        if goes_on {
            state.flags.remove(Flag::AwaitsMaking);
        }
        if has_left {
            state.owed.remove(Owed::EndInside);
        }
        // A connection that has been told of its own end has given all it had to the kernel.
        let outer_sends = outer.out.may_send();
        let may_wait = outer.is_open() && outer.told != Told::Finished;
        let env = &mut *cx.link.env;
        let mut inside = Inside {
            protocol: &mut self.protocol,
            local: &mut *cx.local,
            home: cx.home,
            cut_short: self.cut_short,
        };
        let queued = state.out.len();
        let result = f(&mut inside, state, env);
        if has_left && state.flags.has(Flag::Around) && state.is_open() {
            // The inner protocol is a layer itself, and a protocol inside it waits.
            inside.call(Event::Writable, state, env);
        }
        for _ in 0..ROUNDS {
            if !state.may_owe_callbacks() || !state.callback_due() {
                break;
            }
            let is_new = !has_left || state.out.len() > queued;
            let unsent = outer_sends || state.out.may_send();
            if state.end_of_input_due() && may_wait && is_new && unsent {
                // The replies leave before the protocol is told of the end, as in
                // `Core::settle_fully`.
                state.owed.add(Owed::EndInside);
                continue;
            }
            drive::call_back(&mut inside, state, env, self.limits.carried);
            if env.has_told(state) {
                // The message is delivered when the layer's callback has returned. The remaining
                // callbacks come in the next turn.
                break;
            }
        }
        let outer = &mut *cx.link.state;
        outer.last_progress = outer.last_progress.max(state.last_progress);
        outer.flags.set(Flag::Heavy, state.flags.has(Flag::Heavy));
        if outer.hold_inside(state.is_open() && state.holds_input_back()) {
            env.touch(outer);
        }
        if state.owed.has(Owed::EndInside) && state.is_open() {
            outer.owed.add(Owed::EndInside);
            env.touch(outer);
        }
        outer.made_until = outer.made_until.max(state.made_until);
        outer.inside = u32::try_from(state.held()).unwrap_or(u32::MAX);
        if state.flags.has(Flag::AwaitsMaking) {
            cx.link.await_making();
        }
        Some(result)
    }
}

/// The inner protocol with what its context needs of the layer's.
struct Inside<'a, P: Protocol> {
    protocol: &'a mut P,
    local: &'a mut P::Local,
    home: &'a Home<P::Message>,
    cut_short: Option<&'static str>,
}

impl<P: Protocol> Callbacks for Inside<'_, P> {
    fn call(&mut self, event: Event, state: &mut State, env: &mut Env) {
        let link = Link { state, env };
        let (local, home) = (&mut *self.local, self.home);
        let mut cx = Cx { link, local, home };
        match (event, self.cut_short) {
            (Event::PeerFinished(unread), Some(why)) => {
                self.protocol.cut_short(unread, why, &mut cx);
            }
            _ => dispatch(self.protocol, event, &mut cx),
        }
    }

    fn received(&mut self, input: &mut Input<'_>, state: &mut State, env: &mut Env) -> Next {
        let link = Link { state, env };
        let (local, home) = (&mut *self.local, self.home);
        self.protocol.received(input, &mut Cx { link, local, home })
    }
}
