//! The trait [`Service`], which makes the connections of one kind.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use crate::protocol::connection::{Protocol, Turn};
use crate::reach::mailbox::LoopHandle;
use crate::reach::woken::Conns;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::peer::Peer;

/// Makes the connections of one kind. Settings and state shared by all loops live in `self`.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};
///
/// /// Tells each client the how-manieth it is. State that all loops share is in the service.
/// #[derive(Default)]
/// struct Door {
///     count: AtomicU64,
/// }
///
/// struct Visitor(u64);
///
/// impl Service for Door {
///     type Conn = Visitor;
///
///     fn on_loop(&self, _: LoopHandle<()>) {}
///
///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Visitor, Refusal> {
///         Ok(Visitor(self.count.fetch_add(1, Relaxed) + 1))
///     }
/// }
///
/// impl Protocol for Visitor {
///     type Local = ();
///     type Message = ();
///
///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
///         cx.link.write(format!("you are number {}\n", self.0).as_bytes());
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         input.consume(input.len());
///         Next::More
///     }
/// }
///
/// let got = tidewire::sim::chunking::collect(Door::default(), b"", &[], true);
/// assert_eq!(got.output, b"you are number 1\n");
/// ```
pub trait Service: Send + Sync + 'static {
    /// One connection.
    type Conn: Protocol;

    /// Makes the state for one loop. `at` reaches the loop from anywhere, for as long as a copy is
    /// kept. The threads engine has a loop for each connection. When the loop ends its state is
    /// handed to [`loop_ended`](Service::loop_ended).
    fn on_loop(
        &self,
        at: LoopHandle<<Self::Conn as Protocol>::Message>,
    ) -> <Self::Conn as Protocol>::Local;

    /// Makes the protocol for a new connection, accepted or dialled, or turns it away. There is no connection yet, so
    /// the protocol cannot act on it: a protocol that needs a second connection [dials](crate::Cx::dial) when it is
    /// [opened](Protocol::opened).
    ///
    /// # Errors
    /// A [`Refusal`] ends the connection ([`refusal_reply`](Service::refusal_reply)) and is counted.
    fn accept(
        &self,
        from: &Peer,
        local: &mut <Self::Conn as Protocol>::Local,
    ) -> Result<Self::Conn, Refusal>;

    /// The answer to an accepted client that is refused, by this service, by a limit or by
    /// [rules](crate::admission): the protocol's words for "try again later", in a few hundred bytes. The bytes are
    /// sent if the kernel takes them at once, and then our side is closed. `None`, the default, resets the
    /// connection, which costs least.
    ///
    /// Called off the loop's connections, mostly before anything is known of `from` but its address. If this panics
    /// nothing is said.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next { cx.link.forward_all(i) } }
    ///
    /// struct Polite;
    ///
    /// impl Service for Polite {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, _: LoopHandle<()>) {}
    ///
    ///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
    ///         Ok(Conn)
    ///     }
    ///
    ///     fn refusal_reply(&self, why: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
    ///         why.is_temporary().then_some(Cow::Borrowed(b"full, come back later\n"))
    ///     }
    /// }
    ///
    /// # use tidewire::sim::Sim;
    /// let mut sim = Sim::new(1);
    /// let addr = sim.serve(Polite, Limits { connections: 1, ..Limits::default() });
    /// let (_first, second) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.run_for(std::time::Duration::from_secs(1));
    /// assert_eq!(sim.received(second), b"full, come back later\n");
    /// ```
    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        let _ = (why, from);
        None
    }

    /// Whether this is a proxy, which will name its client: then its own address is not counted by
    /// [rules](crate::admission), but that of the client which it names. Default: no peer is; the
    /// [PROXY protocol](crate::proxy)'s layer knows its proxies. Asked when a connection has been accepted, once, and
    /// only where there are rules; what panics here is refused ([`Refusal::Panicked`]).
    ///
    /// ```
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next { cx.link.forward_all(i) } }
    /// /// Behind a balancer, which says in a header of its own whose requests they are.
    /// struct Behind {
    ///     balancer: std::net::IpAddr,
    /// }
    ///
    /// impl Service for Behind {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, _: LoopHandle<()>) {}
    ///
    ///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
    ///         Ok(Conn)
    ///     }
    ///
    ///     fn speaks_for_others(&self, from: &Peer) -> bool {
    ///         from.endpoint.ip() == Some(self.balancer)
    ///     }
    /// }
    ///
    /// let service = Behind { balancer: [192, 0, 2, 1].into() };
    /// assert!(service.speaks_for_others(&Peer::new(([192, 0, 2, 1], 4000), Origin::Accepted(0))));
    /// ```
    fn speaks_for_others(&self, from: &Peer) -> bool {
        let _ = from;
        false
    }

    /// This service was signalled on this loop, with [`LoopHandle::signal`] or
    /// [`Cx::wake_service`](crate::Cx::wake_service); one call may stand for many signals.
    fn woken(&self, local: &mut <Self::Conn as Protocol>::Local, all: &mut Conns<'_, Self::Conn>) {
        let _ = (local, all);
    }

    /// The service's timer on this loop has expired: see [`Conns::set_timer`]. If this panics and has not set the
    /// timer again, it is called again a second later, so that what is done at intervals goes on.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn received(&mut self, _: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next { Next::More } }
    ///
    /// /// Says something to every client once a minute.
    /// struct Announcer;
    ///
    /// impl Service for Announcer {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, at: LoopHandle<()>) {
    ///         at.signal(); // the first call of `woken` sets the timer
    ///     }
    ///
    ///     fn woken(&self, _: &mut (), all: &mut Conns<'_, Conn>) {
    ///         all.set_timer_after(Duration::from_secs(60));
    ///     }
    ///
    ///     fn expired(&self, local: &mut (), all: &mut Conns<'_, Conn>) {
    ///         all.each(local, |_, cx| cx.link.write(b"another minute\n"));
    ///         all.set_timer_after(Duration::from_secs(60));
    ///     }
    /// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) }
    /// }
    /// # use tidewire::sim::{Conditions, Sim};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let addr = sim.serve(Announcer, Limits { idle: None, ..Limits::default() });
    /// # let peer = sim.plain(addr);
    /// # sim.run_for(Duration::from_secs(200));
    /// # assert_eq!(sim.received(peer).len(), 3 * 15);
    /// ```
    fn expired(
        &self,
        local: &mut <Self::Conn as Protocol>::Local,
        all: &mut Conns<'_, Self::Conn>,
    ) {
        let _ = (local, all);
    }

    /// A dial did not become a connection: all its attempts failed, or the established connection
    /// was refused, by a limit or by [`accept`](Service::accept). Called once for each dial that
    /// was taken and did not become a connection, as long as its loop lives. Dials of a loop that
    /// has failed ([`Running::wait`](crate::Running::wait)) are only counted, as `dial_failures`,
    /// and logged. While the loops stop, every dial fails. A service that dials again in this
    /// callback has its dials dropped after a while; they are counted and logged like the others.
    ///
    /// ```
    /// use std::io;
    /// use std::time::Duration;
    /// use tidewire::sim::Sim;
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = Vec<u64>; type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next { cx.link.forward_all(i) } }
    ///
    /// /// Keeps a list of the servers that it could not reach.
    /// struct Caller;
    ///
    /// impl Service for Caller {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, _: LoopHandle<()>) -> Vec<u64> {
    ///         Vec::new()
    ///     }
    ///
    ///     fn accept(&self, _: &Peer, _: &mut Vec<u64>) -> Result<Conn, Refusal> {
    ///         Ok(Conn)
    ///     }
    ///
    ///     fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, Conn>) {
    ///         println!("number {token}: {error}");
    ///         turn.local.push(token);
    ///     }
    /// }
    ///
    /// let mut sim = Sim::new(1);
    /// let at = sim.add_loop();
    /// let caller = sim.service(at, Caller, Limits::default());
    /// sim.dial(caller, Dial::to("192.0.2.1:7").token(5)); // no server is there
    /// sim.run_for(Duration::from_secs(20));
    /// assert_eq!(*sim.local(caller), [5]);
    /// ```
    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, Self::Conn>) {
        let _ = (token, error, turn);
    }

    /// A loop has ended; `local` is its state of this service. The counterpart of
    /// [`on_loop`](Service::on_loop): called once for each call of `on_loop`, on the loop's own thread, when
    /// no connection of the loop is served any more, even if the loop has failed. (The name says when it is
    /// called, because "off the loop" means other threads here.)
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use std::time::Duration;
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = u64; type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next { cx.link.forward_all(i) } }
    ///
    /// /// Counts connections without a lock, and adds up at the end.
    /// #[derive(Default)]
    /// struct Counts {
    ///     loops: AtomicU64,
    ///     total: AtomicU64,
    /// }
    ///
    /// impl Service for Counts {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, _: LoopHandle<()>) -> u64 {
    ///         0
    ///     }
    ///
    ///     fn accept(&self, _: &Peer, count: &mut u64) -> Result<Conn, Refusal> {
    ///         *count += 1;
    ///         Ok(Conn)
    ///     }
    ///
    ///     fn loop_ended(&self, count: u64) {
    ///         self.loops.fetch_add(1, Relaxed);
    ///         self.total.fetch_add(count, Relaxed);
    ///     }
    /// }
    ///
    /// let counts = Arc::new(Counts::default());
    /// let mut builder = Builder::new();
    /// builder.engine(EngineChoice::Epoll).loops(2);
    /// let running = builder.serve("127.0.0.1:0", counts.clone()).start()?;
    /// running.stop(Duration::from_secs(1));
    /// assert_eq!((counts.loops.load(Relaxed), counts.total.load(Relaxed)), (2, 0));
    /// # Ok::<(), StartError>(())
    /// ```
    fn loop_ended(&self, local: <Self::Conn as Protocol>::Local) {
        drop(local);
    }
}

/// A service that its owner keeps a hold of, to share it or to look at its state.
impl<S: Service> Service for Arc<S> {
    type Conn = S::Conn;

    fn on_loop(
        &self,
        at: LoopHandle<<S::Conn as Protocol>::Message>,
    ) -> <S::Conn as Protocol>::Local {
        (**self).on_loop(at)
    }

    fn accept(
        &self,
        from: &Peer,
        local: &mut <S::Conn as Protocol>::Local,
    ) -> Result<S::Conn, Refusal> {
        (**self).accept(from, local)
    }

    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        (**self).refusal_reply(why, from)
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        (**self).speaks_for_others(from)
    }

    fn woken(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, S::Conn>) {
        (**self).woken(local, all);
    }

    fn expired(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, S::Conn>) {
        (**self).expired(local, all);
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, S::Conn>) {
        (**self).dial_failed(token, error, turn);
    }

    fn loop_ended(&self, local: <S::Conn as Protocol>::Local) {
        (**self).loop_ended(local);
    }
}
