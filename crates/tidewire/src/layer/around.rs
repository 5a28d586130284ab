//! The traits of a layer, [`Wrap`] and [`Layer`]; what a layer may do, [`Around`]; and the connection that a layer
//! stands in, [`LayeredConn`].

use std::fmt;
use std::sync::Arc;

use crate::build::limits::Limits;
use crate::layer::inner::Inner;
use crate::protocol::connection::{Cx, Protocol};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::service::Service;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// Makes the layer of each connection of a [`Layered`](crate::Layered)(crate::Layered) service: the settings of TLS,
/// say, where [`Layer`] is one connection's records and keys.
///
/// ```
/// use tidewire::proxy::{Header, Proxy};
/// use tidewire::{Origin, Peer, Refusal, Wrap};
///
/// /// The PROXY protocol at the first listener, nothing at the others.
/// struct AtTheFirst(Proxy);
///
/// impl Wrap for AtTheFirst {
///     type Layer = Header;
///
///     fn wrap(&self, from: &Peer) -> Result<Option<Header>, Refusal> {
///         match from.origin {
///             Origin::Accepted(0) => self.0.wrap(from),
///             _ => Ok(None),
///         }
///     }
/// }
/// ```
pub trait Wrap: Send + Sync + 'static {
    /// One connection's layer.
    type Layer: Layer;

    /// Makes the layer for a new connection, accepted or dialled, or turns it away. `None` goes
    /// without: the inner service accepts the connection as it is.
    ///
    /// # Errors
    /// A [`Refusal`] resets the connection and is counted.
    fn wrap(&self, from: &Peer) -> Result<Option<Self::Layer>, Refusal>;

    /// Whether this peer hears what the inner service says as it is, also before the layer has read
    /// anything: so that a refused client can be told in the service's words
    /// ([`Service::refusal_reply`](crate::Service::refusal_reply)). Default: no, so that he is
    /// reset.
    ///
    /// ```
    /// use tidewire::proxy::{Header, Proxy};
    /// use tidewire::{Peer, Refusal, Wrap};
    ///
    /// /// The PROXY protocol, of those who are known.
    /// struct Known(Proxy);
    ///
    /// impl Wrap for Known {
    ///     type Layer = Header;
    ///
    ///     fn wrap(&self, from: &Peer) -> Result<Option<Header>, Refusal> {
    ///         self.0.wrap(from)
    ///     }
    ///
    ///     fn is_transparent(&self, from: &Peer) -> bool {
    ///         self.0.is_transparent(from) // it changes nothing of what is sent
    ///     }
    ///
    ///     fn speaks_for_others(&self, from: &Peer) -> bool {
    ///         self.0.speaks_for_others(from)
    ///     }
    /// }
    /// ```
    fn is_transparent(&self, from: &Peer) -> bool {
        let _ = from;
        false
    }

    /// Whether this peer is a proxy that will name its client: see
    /// [`Service::speaks_for_others`](crate::Service::speaks_for_others). Default: it is not.
    fn speaks_for_others(&self, from: &Peer) -> bool {
        let _ = from;
        false
    }
}

/// A layer around a protocol, for one connection: it reads the first bytes, says the peer's
/// identity by
/// [`accept`](Around::accept) or [`hand_over`](Around::hand_over), and from `accept` on stands
/// between the connection and the inner protocol. The inner protocol cannot tell: its link keeps the
/// same contracts.
///
/// All other events of the connection are passed on by the toolkit. Before the inner protocol is
/// accepted it knows of none of them: an idle or stopping connection is finished then.
///
/// ```
/// use tidewire::sim::{Conditions, Sim};
/// use tidewire::{Around, Input, Layer, Layered, Limits, Next, Peer, Refusal, Service, Wrap, on_input};
///
/// /// Lets those pass who begin with a word.
/// struct Password(&'static [u8]);
///
/// struct Asked(&'static [u8]);
///
/// impl Wrap for Password {
///     type Layer = Asked;
///
///     fn wrap(&self, _: &Peer) -> Result<Option<Asked>, Refusal> {
///         Ok(Some(Asked(self.0)))
///     }
/// }
///
/// impl Layer for Asked {
///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
///         if input.len() < self.0.len() {
///             return Next::AtLeast(self.0.len());
///         }
///         if !input.bytes().starts_with(self.0) {
///             at.link().abort_because("a wrong word");
///             return Next::More;
///         }
///         input.consume(self.0.len());
///         let peer = at.peer().clone();
///         let _ = at.hand_over(peer); // from here on the layer is gone
///         Next::More
///     }
/// }
///
/// let echo = on_input(|input, link| link.forward_all(input));
/// let mut sim = Sim::under(1, Conditions::calm());
/// let addr = sim.serve(Layered::new(Password(b"sesame "), echo), Limits::default());
/// let (knows, guesses) = (sim.plain(addr.clone()), sim.plain(addr));
/// sim.send(knows, b"sesame hello");
/// sim.send(guesses, b"barley hello");
/// sim.run_for(std::time::Duration::from_secs(1));
/// assert_eq!((sim.received(knows), sim.received(guesses)), (&b"hello"[..], &b""[..]));
/// ```
pub trait Layer: Sized + 'static {
    /// The connection is established: the place to set a deadline for the first bytes, and to write
    /// one's own.
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let _ = at;
    }

    /// Bytes have come, as in [`Protocol::received`](crate::Protocol::received). The returned
    /// [`Next`] counts unless the inner protocol waits for its output to drain.
    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next;

    /// Moves what can move, after every event: output of the inner protocol outwards, above all.
    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let _ = at;
    }

    /// The peer has finished sending, and `unread` bytes of it were left unconsumed. Default: the
    /// inner protocol is told; if there is none yet, the connection is aborted.
    fn peer_finished<S: Service>(&mut self, unread: usize, at: &mut Around<'_, '_, S, Self>) {
        let _ = unread;
        if at.is_accepted() {
            at.peer_finished();
        } else {
            at.link()
                .abort_because("the peer finished before it had sent its identity");
        }
    }

    /// The peer has finished sending, and the outer layer cannot tell whether the stream was complete: see
    /// [`Protocol::cut_short`](crate::Protocol::cut_short). Default: the inner protocol is told; if there is none yet,
    /// the connection is aborted with this reason.
    fn cut_short<S: Service>(
        &mut self,
        unread: usize,
        why: &'static str,
        at: &mut Around<'_, '_, S, Self>,
    ) {
        let _ = unread;
        match at.is_accepted() {
            true => at.cut_short(why),
            false => at.link().abort_because(why),
        }
    }

    /// When [`expired`](Layer::expired) is to be called once the inner protocol was accepted, whose the connection's
    /// own timer is then. Asked after every event. Default: never.
    fn timer(&self) -> Option<Instant> {
        None
    }

    /// The timer has expired that was set before the inner protocol was accepted, or [`timer`](Layer::timer)
    /// afterwards. Default: abort.
    fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.link()
            .abort_because("the peer took too long to send its identity");
    }

    /// The connection is gone; `now` is the time. Not called once the layer has handed over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Around, Closed, Input, Instant, Layer, Layered, Limits, Next, Peer, Refusal, Service, Wrap, on_input};
    ///
    /// /// Sends a dot in front of everything after each silent second, and passes the rest on.
    /// #[derive(Default)]
    /// struct Alive {
    ///     next: Option<Instant>,
    /// }
    ///
    /// impl Wrap for Alive {
    ///     type Layer = Alive;
    ///
    ///     fn wrap(&self, _: &Peer) -> Result<Option<Alive>, Refusal> {
    ///         Ok(Some(Alive::default()))
    ///     }
    /// }
    ///
    /// impl Layer for Alive {
    ///     fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         let peer = at.peer().clone();
    ///         let _ = at.accept(peer);
    ///         self.next = Some(at.link().now() + Duration::from_secs(1));
    ///     }
    ///
    ///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
    ///         if at.wants_input() {
    ///             at.received(input.bytes());
    ///             input.consume(input.len());
    ///         }
    ///         Next::More
    ///     }
    ///
    ///     fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         at.take_output(|link, bytes| {
    ///             link.write(bytes);
    ///             bytes.len()
    ///         });
    ///     }
    ///
    ///     fn timer(&self) -> Option<Instant> {
    ///         self.next
    ///     }
    ///
    ///     fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         at.link().write(b".");
    ///         self.next = Some(at.link().now() + Duration::from_secs(1));
    ///     }
    ///
    ///     fn peer_finished<S: Service>(&mut self, _unread: usize, at: &mut Around<'_, '_, S, Self>) {
    ///         at.peer_finished();
    ///     }
    ///
    ///     fn cut_short<S: Service>(&mut self, _: usize, why: &'static str, at: &mut Around<'_, '_, S, Self>) {
    ///         at.cut_short(why); // said by the layer around this one
    ///     }
    ///
    ///     fn closed(self, why: Closed, now: Instant) {
    ///         println!("{why} at {now:?}");
    ///     }
    /// }
    ///
    /// let echo = on_input(|input, link| link.forward_all(input));
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(Layered::new(Alive::default(), echo), Limits::default());
    /// let peer = sim.plain(addr);
    /// sim.run_for(Duration::from_millis(2500));
    /// sim.send(peer, b"hello");
    /// sim.finish(peer);
    /// sim.run_for(Duration::from_millis(100));
    /// assert_eq!(sim.received(peer), b"..hello");
    /// ```
    fn closed(self, why: Closed, now: Instant) {
        let _ = (why, now);
    }
}

/// A connection of a [`Layered`](crate::Layered) service.
///
/// ```
/// use tidewire::proxy::{Header, Proxy};
/// use tidewire::{Layered, LayeredConn, Service, on_input};
///
/// /// The connections of a service behind the PROXY protocol.
/// fn connections<S: Service>(_: &Layered<Proxy, S>)
/// where
///     Layered<Proxy, S>: Service<Conn = LayeredConn<S, Header>>,
/// {
/// }
///
/// connections(&Layered::new(Proxy::from([]), on_input(|input, link| link.forward_all(input))));
/// ```
pub struct LayeredConn<S: Service, L: Layer> {
    /// The layer, until it has handed the connection over.
    pub(super) layer: Option<L>,
    pub(super) within: Within<S::Conn>,
    pub(super) shared: Arc<Shared<S>>,
    pub(super) origin: Origin,
    pub(super) heard: Heard,
}

/// The callback that the inner protocol has received, for a stop to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Neither input nor a stop was reported to the inner protocol.
    Nothing,
    /// [Alone](Within::Alone): input, some of which the layer has consumed. So the loop does not
    /// wait for more input.
    Input,
    /// [In a layer](Within::Layer): that the loops stop, or it will as soon as it was served.
    Stop,
}

/// The inner protocol.
pub(super) enum Within<P: Protocol> {
    /// The connection is not accepted yet.
    Nothing,
    Layer(Inner<P>),
    /// The layer has handed over: the connection's own link is the protocol's.
    Alone(P),
}

impl<S: Service, L: Layer> fmt::Debug for LayeredConn<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.within {
            Within::Nothing => "LayeredConn(waiting)",
            Within::Layer(_) => "LayeredConn(inside)",
            Within::Alone(_) => "LayeredConn(handed over)",
        })
    }
}

/// The state that all connections of a layered service share.
pub(super) struct Shared<S> {
    pub(super) service: S,
    pub(super) limits: Arc<Limits>,
}

/// A connection for its [`Layer`]: the link on one side, the inner protocol on the other.
///
/// ```
/// use tidewire::{Around, Input, Layer, Next, Service};
///
/// /// Passes everything on as it is, and stays between.
/// struct Glass;
///
/// impl Layer for Glass {
///     fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
///         let peer = at.peer().clone();
///         let _ = at.accept(peer);
///     }
///
///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
///         if at.wants_input() {
///             at.received(input.bytes());
///             input.consume(input.len());
///         }
///         Next::More
///     }
/// }
/// ```
pub struct Around<'a, 'b, S: Service, L: Layer> {
    pub(super) within: &'a mut Within<S::Conn>,
    pub(super) shared: &'a Arc<Shared<S>>,
    pub(super) cx: &'a mut Cx<'b, LayeredConn<S, L>>,
}

impl<'b, S: Service, L: Layer> Around<'_, 'b, S, L> {
    /// The connection's way out.
    pub fn link(&mut self) -> &mut Link<'b> {
        &mut self.cx.link
    }

    /// The peer, as far as the layer knows it.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.cx.link.peer()
    }

    /// Whether the inner protocol has been accepted.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        !matches!(self.within, Within::Nothing)
    }

    /// Has the inner service accept the connection, now that the peer's identity is known, and
    /// opens its protocol inside this layer.
    ///
    /// # Errors
    /// Returns the inner service's [`Refusal`], if it refuses the connection. A refusal is counted,
    /// and resets the connection with the refusal as its reason.
    ///
    /// # Panics
    /// Panics if the connection was accepted already.
    pub fn accept(&mut self, peer: Peer) -> Result<(), Refusal> {
        let protocol = match self.made_for(&peer) {
            Ok(protocol) => protocol,
            Err(why) => {
                self.cx.link.refuse(why, &peer, None);
                return Err(why);
            }
        };
        *self.within = Within::Layer(Inner::new(protocol, self.shared.limits.clone()));
        if let Within::Layer(inner) = self.within {
            inner.open(self.cx);
        }
        Ok(())
    }

    /// [`accept`](Around::accept) for a layer whose part is done: from now on the connection is the
    /// inner protocol's alone, as if there had never been a layer, and costs what it would cost then.
    /// Input that the layer leaves unconsumed is offered to it.
    ///
    /// # Errors
    /// Like [`accept`](Around::accept), but a refused peer gets the inner service's reply, if there
    /// is one ([`Service::refusal_reply`](crate::Service::refusal_reply)).
    ///
    /// # Panics
    /// As [`accept`](Around::accept).
    ///
    /// ```
    /// use tidewire::{Around, Input, Layer, Layered, Next, Peer, Refusal, Service, Wrap};
    /// use tidewire::{on_input, sim::chunking::collect};
    ///
    /// /// Swallows the first byte, whatever it is.
    /// struct First;
    ///
    /// impl Layer for First {
    ///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
    ///         input.consume(1);
    ///         let peer = at.peer().clone();
    ///         let _ = at.hand_over(peer); // a refusal closes by itself
    ///         Next::More
    ///     }
    /// }
    ///
    /// impl Wrap for First {
    ///     type Layer = First;
    ///
    ///     fn wrap(&self, _: &Peer) -> Result<Option<First>, Refusal> {
    ///         Ok(Some(First))
    ///     }
    /// }
    ///
    /// let echo = on_input(|input, link| link.forward_all(input));
    /// assert_eq!(collect(Layered::new(First, echo), b"!hello", &[], true).output, b"hello");
    /// ```
    pub fn hand_over(&mut self, peer: Peer) -> Result<(), Refusal> {
        match self.made_for(&peer) {
            Ok(protocol) => *self.within = Within::Alone(protocol),
            Err(why) => {
                let words = self.shared.service.refusal_reply(why, &peer);
                self.cx.link.refuse(why, &peer, words.as_deref());
                return Err(why);
            }
        }
        self.cx.link.clear_timer();
        Ok(())
    }

    /// Whether the inner protocol waits for bytes, or has finished and so discards them.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.inner().is_some_and(Inner::wants_input)
    }

    /// Hands bytes to the inner protocol. If it does not [want](Around::wants_input) any now, they
    /// are kept.
    pub fn received(&mut self, bytes: &[u8]) {
        if let Within::Layer(inner) = self.within {
            inner.received(bytes, self.cx);
        }
    }

    /// The peer has finished sending, and all of it was handed to `received`.
    pub fn peer_finished(&mut self) {
        if let Within::Layer(inner) = self.within {
            inner.peer_finished(self.cx);
        }
    }

    /// [`peer_finished`](Around::peer_finished), where the layer cannot tell whether the peer had more to say: the inner
    /// protocol's [`cut_short`](crate::Protocol::cut_short) is called in its place, with this reason.
    ///
    /// ```
    /// use tidewire::{Around, Input, Layer, Layered, Next, Peer, Refusal, Service, Wrap};
    /// use tidewire::{on_input, sim::chunking::collect};
    ///
    /// /// A stream whose last byte is a dot, unless it was cut.
    /// #[derive(Default)]
    /// struct Dotted {
    ///     is_whole: bool,
    /// }
    ///
    /// impl Wrap for Dotted {
    ///     type Layer = Dotted;
    ///
    ///     fn wrap(&self, _: &Peer) -> Result<Option<Dotted>, Refusal> {
    ///         Ok(Some(Dotted::default()))
    ///     }
    /// }
    ///
    /// impl Layer for Dotted {
    ///     fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         let peer = at.peer().clone();
    ///         let _ = at.accept(peer);
    ///     }
    ///
    ///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
    ///         if at.wants_input() {
    ///             self.is_whole = input.bytes().ends_with(b".");
    ///             at.received(input.bytes());
    ///             input.consume(input.len());
    ///         }
    ///         Next::More
    ///     }
    ///
    ///     fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         at.take_output(|link, bytes| {
    ///             link.write(bytes);
    ///             bytes.len()
    ///         });
    ///     }
    ///
    ///     fn peer_finished<S: Service>(&mut self, _unread: usize, at: &mut Around<'_, '_, S, Self>) {
    ///         match self.is_whole {
    ///             true => at.peer_finished(),
    ///             false => at.cut_short("no dot at the end"),
    ///         }
    ///     }
    ///
    ///     // The layer around this one, if there is any, knows less than the dot says.
    ///     fn cut_short<S: Service>(&mut self, unread: usize, _: &'static str, at: &mut Around<'_, '_, S, Self>) {
    ///         self.peer_finished(unread, at);
    ///     }
    /// }
    ///
    /// let echo = || on_input(|input, link| link.forward_all(input));
    /// let why = |input| collect(Layered::new(Dotted::default(), echo()), input, &[], true).closed.unwrap();
    /// assert_eq!(why(b"whole.").to_string(), "finished");
    /// assert_eq!(why(b"wh").to_string(), "no dot at the end");
    /// ```
    pub fn cut_short(&mut self, why: &'static str) {
        if let Within::Layer(inner) = self.within {
            inner.cut_short(why, self.cx);
        }
    }

    /// Hands output of the inner protocol to `take`, piece by piece, until there is none that may be
    /// sent, the link is full, or `take` takes less than it was given. `take` returns how many bytes
    /// it took; the result is the sum.
    ///
    /// ```
    /// use tidewire::{Around, Closed, Input, Instant, Layer, Layered, Next, Peer, Refusal, Service, Wrap};
    /// use tidewire::{on_input, sim::chunking::collect};
    ///
    /// /// Turns letters into capitals on their way out.
    /// struct Loud;
    ///
    /// impl Layer for Loud {
    ///     fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         let peer = at.peer().clone();
    ///         let _ = at.accept(peer);
    ///     }
    ///
    ///     fn received<S: Service>(&mut self, input: &mut Input<'_>, at: &mut Around<'_, '_, S, Self>) -> Next {
    ///         if at.wants_input() {
    ///             at.received(input.bytes());
    ///             input.consume(input.len());
    ///         }
    ///         Next::More
    ///     }
    ///
    ///     fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         at.take_output(|link, bytes| {
    ///             link.write(&bytes.to_ascii_uppercase());
    ///             bytes.len()
    ///         });
    ///         if at.is_done() && at.output_len() == 0 {
    ///             // Here TLS, say, would say goodbye.
    ///         }
    ///     }
    ///
    ///     fn peer_finished<S: Service>(&mut self, _unread: usize, at: &mut Around<'_, '_, S, Self>) {
    ///         match at.is_accepted() {
    ///             true => at.peer_finished(),
    ///             false => at.link().abort(),
    ///         }
    ///     }
    ///
    ///     // No time limit of its own.
    ///     fn timer(&self) -> Option<Instant> {
    ///         None
    ///     }
    ///
    ///     fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
    ///         at.link().abort_because("never: it asks for no timer");
    ///     }
    ///
    ///     fn closed(self, why: Closed, now: Instant) {
    ///         println!("{why} at {now:?}");
    ///     }
    /// }
    ///
    /// impl Wrap for Loud {
    ///     type Layer = Loud;
    ///
    ///     fn wrap(&self, _: &Peer) -> Result<Option<Loud>, Refusal> {
    ///         Ok(Some(Loud))
    ///     }
    /// }
    ///
    /// let echo = on_input(|input, link| link.forward_all(input));
    /// assert_eq!(collect(Layered::new(Loud, echo), b"hello", &[2], true).output, b"HELLO");
    /// ```
    pub fn take_output(&mut self, mut take: impl FnMut(&mut Link<'_>, &[u8]) -> usize) -> usize {
        match self.within {
            Within::Layer(inner) => {
                inner.take_output(self.cx, |cx, bytes| take(&mut cx.link, bytes))
            }
            _ => 0,
        }
    }

    /// Bytes of the inner protocol's output that may be sent and were not [taken](Around::take_output) yet, as the link
    /// is full.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.inner().map_or(0, Inner::output_len)
    }

    /// Whether the inner protocol has finished, or finished writing, and all of its output was taken:
    /// time for the layer's own farewell.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.inner()
            .is_some_and(|i| i.is_done() || i.is_done_writing())
    }

    fn inner(&self) -> Option<&Inner<S::Conn>> {
        match &*self.within {
            Within::Layer(inner) => Some(inner),
            _ => None,
        }
    }

    fn made_for(&mut self, peer: &Peer) -> Result<S::Conn, Refusal> {
        assert!(!self.is_accepted(), "a connection is accepted once");
        self.cx.link.meet(peer)?;
        self.shared.service.accept(peer, self.cx.local)
    }
}
