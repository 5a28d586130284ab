//! A service around a service: [`Layered`] puts a layer around each connection, and passes on
//! everything else.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::build::limits::Limits;
use crate::layer::around::{Around, Heard, Layer, LayeredConn, Shared, Within, Wrap};
use crate::memory::table::Table;
use crate::protocol::connection::{Cx, Protocol, Turn};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::service::Service;
use crate::reach::mailbox::LoopHandle;
use crate::reach::woken::{Conns, Inside, Slots};
use crate::reactor::env::Env;
use crate::reactor::state::State;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};

/// A service with a layer around each of its connections.
///
/// The inner service's [`accept`](Service::accept) is called when the layer knows the peer's
/// identity: after a TLS handshake, after the header of the PROXY protocol. The inner service sees
/// the identity that the layer found out, and a refusal closes the connection with the refusal as
/// its reason. The inner service's state on each loop, its messages, handles and wake-ups work as
/// without the layer: [`Service::woken`] finds the inner protocols. A dialled connection that ends
/// before the inner service has accepted it has failed: [`Service::dial_failed`] is called, with
/// the reason.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Around, Input, Layer, Layered, Next, Peer, Refusal, Service, Wrap};
///
/// /// Asks for a word before anything else, within five seconds.
/// struct Password(&'static [u8]);
/// struct Asking(&'static [u8]);
///
/// impl Wrap for Password {
///     type Layer = Asking;
///     fn wrap(&self, _: &Peer) -> Result<Option<Asking>, Refusal> {
///         Ok(Some(Asking(self.0)))
///     }
/// }
///
/// impl Layer for Asking {
///     fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
///         at.link().set_timer_after(Duration::from_secs(5));
///     }
///
///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
///         if input.len() < self.0.len() {
///             return Next::AtLeast(self.0.len());
///         }
///         if !input.bytes().starts_with(self.0) {
///             at.link().abort_because("not the password");
///             return Next::More;
///         }
///         input.consume(self.0.len());
///         let peer = at.peer().clone();
///         let _ = at.hand_over(peer); // a refusal closes by itself
///         Next::More
///     }
/// }
/// # use tidewire::*;
/// # use tidewire::sim::{PlainState, Sim};
/// # struct Echo;
/// # struct Conn;
/// # impl Protocol for Conn { type Local = (); type Message = ();
/// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
/// #     let n = i.len(); cx.link.forward(i, n); Next::More } }
/// # impl Service for Echo { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) {}
/// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) } }
///
/// let mut sim = Sim::new(1);
/// let addr = sim.serve(Layered::new(Password(b"friend"), Echo), Limits::default());
/// let (friend, foe) = (sim.plain(&addr), sim.plain(&addr));
/// sim.send(friend, b"friendhello");
/// sim.send(foe, b"fiend!hello");
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.received(friend), b"hello");
/// assert!(matches!(sim.state(foe), PlainState::Failed(_)));
/// ```
pub struct Layered<W, S> {
    wrap: W,
    shared: Arc<Shared<S>>,
}

impl<W: Wrap, S: Service> Layered<W, S> {
    /// A layered service with default limits inside.
    #[must_use]
    pub fn new(wrap: W, service: S) -> Layered<W, S> {
        Layered::with_limits(wrap, service, Limits::default())
    }

    /// The output marks, the hard limit and `carried` of `limits` apply to what is inside the
    /// layer, besides the limits of the connection itself.
    #[must_use]
    pub fn with_limits(wrap: W, service: S, limits: impl Into<Arc<Limits>>) -> Layered<W, S> {
        let limits = limits.into();
        Layered {
            wrap,
            shared: Arc::new(Shared { service, limits }),
        }
    }

    /// The service inside.
    ///
    /// ```
    /// use tidewire::proxy::Proxy;
    /// use tidewire::{Layered, Limits, on_input};
    ///
    /// // 4 KiB of output for each connection inside, whatever the layer makes of them.
    /// let limits = Limits { output_low: 1 << 10, output_high: 4 << 10, ..Limits::default() };
    /// let echo = on_input(|input, link| link.forward_all(input));
    /// let service = Layered::with_limits(Proxy::from(["192.0.2.1".parse()?]), echo, limits);
    /// println!("{:?} behind {:?}", service.inner(), service.wrap());
    /// # Ok::<(), tidewire::NetworkError>(())
    /// ```
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.shared.service
    }

    /// The factory of the layers.
    #[must_use]
    pub fn wrap(&self) -> &W {
        &self.wrap
    }
}

impl<W: fmt::Debug, S> fmt::Debug for Layered<W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layered({:?})", self.wrap)
    }
}

/// An event for whatever there is.
macro_rules! pass_on {
    ($self:ident, $cx:ident, |$protocol:ident| $alone:expr, |$inner:ident| $inside:expr, $nothing:expr) => {{
        match &mut $self.within {
            Within::Alone($protocol) => $alone,
            Within::Layer($inner) => {
                $inside;
                $self.pump($cx);
            }
            Within::Nothing => $nothing,
        }
    }};
}

impl<S: Service, L: Layer> LayeredConn<S, L> {
    /// Calls the layer; then moves the bytes that can move.
    fn tell_layer<R>(
        &mut self,
        cx: &mut Cx<'_, Self>,
        f: impl FnOnce(&mut L, &mut Around<'_, '_, S, L>) -> R,
    ) -> Option<R> {
        let LayeredConn {
            layer,
            within,
            shared,
            ..
        } = self;
        let layer = layer.as_mut()?;
        let result = f(layer, &mut Around { within, shared, cx });
        Some(result)
    }

    fn pump(&mut self, cx: &mut Cx<'_, Self>) {
        self.tell_layer(cx, |layer, at| layer.pump(at));
        if let Within::Layer(inner) = &mut self.within {
            inner.yield_to(cx);
            let timer = self.layer.as_ref().and_then(Layer::timer);
            if let Some(at) = timer
                && cx.link.timer().is_none_or(|set| at < set)
            {
                cx.link.set_timer(at);
            }
        }
        self.let_go(cx);
    }

    /// Opens the protocol of a layer that has handed over; returns whether it was opened now.
    fn let_go(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        match &mut self.within {
            Within::Alone(protocol) if self.layer.take().is_some() => {
                protocol.opened(&mut cx.within());
                true
            }
            _ => false,
        }
    }
}

impl<S: Service, L: Layer> Protocol for LayeredConn<S, L> {
    type Local = <S::Conn as Protocol>::Local;
    type Message = <S::Conn as Protocol>::Message;

    const LOOKS_AHEAD: bool = S::Conn::LOOKS_AHEAD;

    /// Inside a layer the bytes are not the protocol's yet.
    fn look_ahead(&self, input: &[u8], local: &mut Self::Local) {
        if let Within::Alone(protocol) = &self.within {
            protocol.look_ahead(input, local);
        }
    }

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        if let Within::Alone(protocol) = &mut self.within {
            return protocol.opened(&mut cx.within());
        }
        self.tell_layer(cx, |layer, at| layer.opened(at));
        self.pump(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if let Within::Alone(protocol) = &mut self.within {
            let before = input.consumed();
            let next = protocol.received(input, &mut cx.within());
            if input.consumed() > before {
                self.heard = Heard::Input;
            }
            return next;
        }
        let next = self.tell_layer(cx, |layer, at| layer.received(input, at));
        if self.let_go(cx) {
            return match &mut self.within {
                Within::Alone(protocol) if !input.is_empty() && !cx.link.is_closing() => {
                    if cx.link.paused() {
                        return Next::Paused;
                    }
                    let before = input.consumed();
                    let next = protocol.received(input, &mut cx.within());
                    if input.consumed() > before {
                        self.heard = Heard::Input;
                    }
                    next
                }
                _ => Next::More,
            };
        }
        self.pump(cx);
        match &self.within {
            Within::Layer(inner) if inner.next() == Next::AfterDrain => Next::AfterDrain,
            _ => next.unwrap_or(Next::More),
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.writable(&mut cx.within()),
            |inner| inner.call_due(cx),
            self.pump(cx)
        );
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        if let Within::Alone(protocol) = &mut self.within {
            return protocol.peer_finished(unread, &mut cx.within());
        }
        self.tell_layer(cx, |layer, at| layer.peer_finished(unread, at));
        self.pump(cx);
    }

    fn cut_short(&mut self, unread: usize, why: &'static str, cx: &mut Cx<'_, Self>) {
        if let Within::Alone(protocol) = &mut self.within {
            return protocol.cut_short(unread, why, &mut cx.within());
        }
        self.tell_layer(cx, |layer, at| layer.cut_short(unread, why, at));
        self.pump(cx);
    }

    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.hung_up(&mut cx.within()),
            |inner| inner.hung_up(cx),
            ()
        );
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        let due = |layer: &L| layer.timer().is_some_and(|at| at <= cx.link.now());
        if matches!(self.within, Within::Layer(_)) && self.layer.as_ref().is_some_and(due) {
            self.tell_layer(cx, |layer, at| layer.expired(at));
        }
        pass_on!(
            self,
            cx,
            |p| p.expired(&mut cx.within()),
            |inner| inner.expired(cx),
            {
                self.tell_layer(cx, |layer, at| layer.expired(at));
                self.pump(cx);
            }
        );
    }

    fn notified(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.notified(key, &mut cx.within()),
            |inner| inner.notified(key, cx),
            ()
        );
    }

    /// Timers of an inner protocol share the layer's one timer, so this timer belongs to a protocol that its layer has
    /// released.
    fn timer_expired(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
        if let Within::Alone(protocol) = &mut self.within {
            protocol.timer_expired(key, &mut cx.within());
        }
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.idle(&mut cx.within()),
            |inner| inner.idle(cx),
            cx.link.finish()
        );
    }

    fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.overdue(&mut cx.within()),
            |inner| inner.overdue(cx),
            cx.link.cut()
        );
    }

    fn posted(&mut self, message: Self::Message, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.posted(message, &mut cx.within()),
            |inner| inner.posted(message, cx),
            cx.link.env.counters.posts_undeliverable.add(1)
        );
    }

    /// A stop. A client whose handshake is under way, or that was not served yet, is served first:
    /// the loop calls this again when the layer has read or sent something.
    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        let may_wait = cx.link.waits_for_unserved();
        let waits = match &mut self.within {
            Within::Alone(protocol) => {
                let waits = may_wait && self.heard != Heard::Input;
                if !waits {
                    protocol.draining(&mut cx.within());
                }
                waits
            }
            Within::Layer(inner) => {
                match std::mem::replace(&mut self.heard, Heard::Stop) {
                    Heard::Stop if may_wait || !inner.is_unserved() => {}
                    _ => inner.draining(cx),
                }
                let waits = inner.is_unserved();
                self.pump(cx);
                waits
            }
            Within::Nothing if may_wait => true,
            Within::Nothing => {
                cx.link.finish();
                false
            }
        };
        if waits {
            cx.link.drain_once_served();
        }
    }

    fn undelivered(&mut self, to: ConnId, message: Self::Message, cx: &mut Cx<'_, Self>) {
        pass_on!(
            self,
            cx,
            |p| p.undelivered(to, message, &mut cx.within()),
            |inner| inner.undelivered(to, message, cx),
            ()
        );
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        if let Some(layer) = self.layer {
            layer.closed(why, turn.now());
        }
        match self.within {
            Within::Alone(protocol) => protocol.closed(why, &mut turn.of()),
            Within::Layer(inner) => inner.closed(why, turn),
            // The inner protocol was never told of the connection.
            Within::Nothing => {
                if let (Origin::Dialled(token), None) = (self.origin, refusal(why)) {
                    let error = io::Error::new(io::ErrorKind::ConnectionAborted, why.to_string());
                    let service = &self.shared.service;
                    service.dial_failed(token, &error, &mut turn.of());
                }
            }
        }
    }
}

/// A refusal by the inner service itself, which so knows of it.
fn refusal(why: Closed) -> Option<Refusal> {
    match why {
        Closed::Refused(why) => Some(why),
        _ => None,
    }
}

impl<W: Wrap, S: Service> Service for Layered<W, S> {
    type Conn = LayeredConn<S, W::Layer>;

    fn on_loop(
        &self,
        at: LoopHandle<<S::Conn as Protocol>::Message>,
    ) -> <S::Conn as Protocol>::Local {
        self.shared.service.on_loop(at)
    }

    fn accept(
        &self,
        from: &Peer,
        local: &mut <S::Conn as Protocol>::Local,
    ) -> Result<Self::Conn, Refusal> {
        let layer = self.wrap.wrap(from)?;
        let within = match layer {
            Some(_) => Within::Nothing,
            None => Within::Alone(self.shared.service.accept(from, local)?),
        };
        Ok(LayeredConn {
            layer,
            within,
            shared: self.shared.clone(),
            origin: from.origin,
            heard: Heard::Nothing,
        })
    }

    /// In the words of the service inside, where the layer lets them pass.
    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        let passes = self.wrap.is_transparent(from);
        passes.then(|| self.shared.service.refusal_reply(why, from))?
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        self.wrap.speaks_for_others(from) || self.shared.service.speaks_for_others(from)
    }

    fn woken(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, Self::Conn>) {
        self.shared.service.woken(local, &mut all.inside());
    }

    fn expired(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, Self::Conn>) {
        self.shared.service.expired(local, &mut all.inside());
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, Self::Conn>) {
        self.shared
            .service
            .dial_failed(token, error, &mut turn.of());
    }

    fn loop_ended(&self, local: <S::Conn as Protocol>::Local) {
        self.shared.service.loop_ended(local);
    }
}

impl<S: Service, L: Layer> LayeredConn<S, L> {
    /// Calls `f` for the inner protocol, if there is one.
    fn reach(&mut self, link: Link<'_>, f: &mut dyn FnMut(&mut S::Conn, Link<'_>)) {
        match &mut self.within {
            Within::Alone(protocol) => f(protocol, link),
            Within::Layer(inner) => inner.reach(link, f),
            Within::Nothing => {}
        }
    }

    fn release(&mut self, mut link: Link<'_>, upto: u64) {
        if let Within::Layer(inner) = &mut self.within {
            inner.release_later(upto, &mut link);
        }
    }
}

impl<S: Service, L: Layer> Conns<'_, LayeredConn<S, L>> {
    /// The inner protocols of a layered service.
    fn inside(&mut self) -> Conns<'_, S::Conn> {
        Conns {
            slots: Slots::Inside(&mut self.slots),
            states: &mut *self.states,
            env: &mut *self.env,
            home: self.home,
        }
    }
}

impl<S: Service, L: Layer> Inside<S::Conn> for Slots<'_, LayeredConn<S, L>> {
    fn visit_inside(
        &mut self,
        states: &mut Table<State>,
        env: &mut Env,
        f: &mut dyn FnMut(&mut S::Conn, Link<'_>),
    ) {
        self.visit(states, env, |conn, link| conn.reach(link, f));
    }

    fn visit_inside_one(
        &mut self,
        id: ConnId,
        states: &mut Table<State>,
        env: &mut Env,
        f: &mut dyn FnMut(&mut S::Conn, Link<'_>),
    ) {
        self.visit_one(id, states, env, |conn, link| conn.reach(link, f));
    }

    fn release_inside(
        &mut self,
        id: Option<ConnId>,
        upto: u64,
        states: &mut Table<State>,
        env: &mut Env,
    ) {
        // Layers around this one first.
        self.release(id, upto, states, env);
        let release = |conn: &mut LayeredConn<S, L>, link: Link<'_>| conn.release(link, upto);
        match id {
            Some(id) => self.visit_one(id, states, env, release),
            None => self.visit(states, env, release),
        }
    }
}
