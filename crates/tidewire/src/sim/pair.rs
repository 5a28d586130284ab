//! A protocol and its client, face to face: the harness that most tests of a protocol want.

use std::fmt;
use std::time::Duration;

use crate::build::limits::Limits;
use crate::protocol::connection::Protocol;
use crate::protocol::service::Service;
use crate::reactor::counters::Counters;
use crate::sim::conditions::Conditions;
use crate::sim::loops::SimService;
use crate::sim::time::Outcome;
use crate::sim::world::Sim;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::endpoint::Endpoint;

/// A server's service on one simulated loop, a client's on another, and connections between them.
/// To look at the services themselves, keep an `Arc` of them.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Outcome, Pair};
/// # use tidewire::*;
/// # struct Echo;
/// # impl Service for Echo { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) {}
/// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) } }
/// # struct Conn;
/// # impl Protocol for Conn { type Local = (); type Message = ();
/// #   fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
/// #     let n = input.len(); cx.link.forward(input, n); Next::More } }
/// # #[derive(Clone)]
/// # struct Asks;
/// # impl Service for Asks { type Conn = Asks; fn on_loop(&self, _: LoopHandle<()>) -> u32 { 0 }
/// #   fn accept(&self, _: &Peer, _: &mut u32) -> Result<Asks, Refusal> { Ok(Asks) } }
/// # impl Protocol for Asks { type Local = u32; type Message = ();
/// #   fn opened(&mut self, cx: &mut Cx<'_, Self>) { cx.link.write(b"?"); }
/// #   fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
/// #     input.consume(1); *cx.local += 1; cx.link.finish(); Next::More } }
///
/// let mut pair = Pair::new(42, Echo, Asks);
/// assert_eq!(pair.run(Duration::from_secs(10)), Outcome::Idle);
/// assert_eq!(*pair.client_local(), 1); // `Asks` counts its replies in the loop's state
/// ```
pub struct Pair<S, C> {
    /// The network of both connections.
    pub sim: Sim,
    server: SimService<S>,
    client: SimService<C>,
    addr: Endpoint,
}

impl<S, C> fmt::Debug for Pair<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pair({:?})", self.sim)
    }
}

impl<S: Service, C: Service> Pair<S, C> {
    /// Default limits, conditions drawn from the seed, and one connection on its way.
    #[must_use]
    pub fn new(seed: u64, server: S, client: C) -> Pair<S, C> {
        let sim = Sim::new(seed);
        let mut pair = Pair::on(
            sim,
            (server, Limits::default()),
            (client, Limits::default()),
        );
        pair.dial(1);
        pair
    }

    /// Given conditions and limits, and one connection on its way.
    #[must_use]
    pub fn under(
        seed: u64,
        conditions: Conditions,
        server: (S, Limits),
        client: (C, Limits),
    ) -> Pair<S, C> {
        let mut pair = Pair::on(Sim::under(seed, conditions), server, client);
        pair.dial(1);
        pair
    }

    /// On a given network, and no connection yet.
    #[must_use]
    pub fn on(mut sim: Sim, server: (S, Limits), client: (C, Limits)) -> Pair<S, C> {
        let at = sim.add_loop();
        let server = sim.service(at, server.0, server.1);
        let addr = sim.listen(server);
        let at = sim.add_loop();
        let client = sim.service(at, client.0, client.1);
        Pair {
            sim,
            server,
            client,
            addr,
        }
    }

    /// Makes `n` more connections, with the tokens 0 to `n - 1`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Outcome, Pair, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, on_input, service_fn};
    ///
    /// /// Says hello, and is content with an answer.
    /// struct Hello;
    ///
    /// impl Protocol for Hello {
    ///     type Local = u32; // how many were answered
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(b"hello");
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         if input.len() < 5 {
    ///             return Next::AtLeast(5);
    ///         }
    ///         input.consume(5);
    ///         *cx.local += 1;
    ///         cx.link.finish();
    ///         Next::More
    ///     }
    /// }
    ///
    /// let echo = || (on_input(|input, link| link.forward_all(input)), Limits::default());
    /// let hello = || (service_fn(|_| Hello), Limits::default());
    /// let mut pair = Pair::on(Sim::new(42), echo(), hello());
    /// pair.dial(10);
    /// assert_eq!(pair.run(Duration::from_secs(30)), Outcome::Idle);
    /// assert_eq!((*pair.client_local(), *pair.server_local()), (10, ()));
    /// assert_eq!(pair.server_counters().accepted, pair.client_counters().closed_total());
    ///
    /// // A client that is no protocol, at the same server.
    /// let mut pair = Pair::under(42, Conditions::calm(), echo(), hello());
    /// let addr = pair.addr();
    /// let plain = pair.sim.plain(addr);
    /// pair.sim.send(plain, b"hello");
    /// pair.sim.run_for(Duration::from_secs(1));
    /// assert_eq!(pair.sim.received(plain), b"hello");
    /// assert_ne!(pair.server().at(), pair.client().at());
    /// ```
    pub fn dial(&mut self, n: u64) {
        for token in 0..n {
            let dial = Dial::to(&self.addr).token(token);
            self.sim.dial(self.client, dial);
        }
    }

    /// [`Sim::run_until_idle`].
    pub fn run(&mut self, most: Duration) -> Outcome {
        self.sim.run_until_idle(most)
    }

    /// The address at which the server accepts.
    #[must_use]
    pub fn addr(&self) -> Endpoint {
        self.addr.clone()
    }

    /// The server's service.
    #[must_use]
    pub fn server(&self) -> SimService<S> {
        self.server
    }

    /// The client's service.
    #[must_use]
    pub fn client(&self) -> SimService<C> {
        self.client
    }

    /// The server's state on its loop.
    pub fn server_local(&mut self) -> &mut <S::Conn as Protocol>::Local {
        self.sim.local(self.server)
    }

    /// The client's state on its loop.
    pub fn client_local(&mut self) -> &mut <C::Conn as Protocol>::Local {
        self.sim.local(self.client)
    }

    /// The counters of the server's loop.
    #[must_use]
    pub fn server_counters(&self) -> Counters {
        self.sim.counters(self.server.at())
    }

    /// The counters of the client's loop.
    #[must_use]
    pub fn client_counters(&self) -> Counters {
        self.sim.counters(self.client.at())
    }
}
