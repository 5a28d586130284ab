//! Plain listeners of a simulation: others connect to them, and the test accepts.

use crate::sim::net::{Listener, Notice, Owner};
use crate::sim::peers::{PlainId, endpoint};
use crate::sim::plain::Plain;
use crate::sim::world::{Actor, Sim};
use crate::vocabulary::endpoint::{Endpoint, EndpointError};

/// A listener without a service, for what loops under test dial.
///
/// ```
/// use std::time::Duration;
/// use tidewire::Dial;
/// use tidewire::sim::{Conditions, PlainListener, Sim};
///
/// let mut sim = Sim::under(1, Conditions::calm());
/// let listener: PlainListener = sim.plain_listener("192.0.2.1:7", 16);
/// let at = sim.add_loop();
/// let echo = tidewire::on_input(|input, link| link.forward_all(input));
/// let echo = sim.service(at, echo, Default::default());
/// sim.dial(echo, Dial::to("192.0.2.1:7"));
/// sim.run_for(Duration::from_secs(1));
/// let (peer, from) = sim.accept(listener).expect("dialled");
/// assert!(from.is_tcp());
/// sim.send(peer, b"hello");
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.received(peer), b"hello");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainListener(usize);

impl Sim {
    /// Listens here; the test accepts the connections. When `backlog` of them wait, no other is
    /// answered: over TCP a client asks again each second, a Unix socket says so at once. A former
    /// listener there is gone.
    ///
    /// # Panics
    /// If text was given that is no endpoint.
    pub fn plain_listener<E>(&mut self, at: E, backlog: usize) -> PlainListener
    where
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        let (at, actor) = (endpoint(at), self.actors.len());
        let mut kernel = self.kernel.borrow_mut();
        kernel.nobody_listens(&at);
        let listener = Listener {
            actor: actor + 1,
            number: 0,
            backlog,
        };
        kernel.net.listen(at.clone(), listener);
        drop(kernel);
        self.add(Actor::Listener(at));
        PlainListener(actor)
    }

    /// Accepts a connection there, if one waits: a peer, and where it has come from.
    pub fn accept(&mut self, at: PlainListener) -> Option<(PlainId, Endpoint)> {
        let mut kernel = self.kernel.borrow_mut();
        let waits = kernel.net.inboxes[at.0 + 1].pop_front();
        let Some(Notice::Accept { end, from, .. }) = waits else {
            return None;
        };
        let actor = self.actors.len();
        let owner = Owner {
            actor: actor + 1,
            conn: 0,
            generation: 0,
        };
        kernel.net.accept(end, owner);
        drop(kernel);
        self.add(Actor::Plain(Plain::accepted(end)));
        self.reading(PlainId(actor), true);
        Some((PlainId(actor), from))
    }

    /// Closes the listener. Clients that wait to be accepted are reset.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{PlainState, Sim};
    ///
    /// let mut sim = Sim::new(7);
    /// let listener = sim.plain_listener("192.0.2.1:7", 1);
    /// sim.close_listener(listener);
    /// let late = sim.plain("192.0.2.1:7");
    /// sim.run_for(Duration::from_secs(1));
    /// assert!(matches!(sim.state(late), PlainState::Failed(_)));
    /// ```
    pub fn close_listener(&mut self, at: PlainListener) {
        let net = &mut self.kernel.borrow_mut().net;
        if let Actor::Listener(place) = &self.actors[at.0] {
            net.stop_listening(place, at.0 + 1);
        }
        for notice in std::mem::take(&mut net.inboxes[at.0 + 1]) {
            if let Notice::Accept { end, .. } = notice {
                net.close(end, true);
            }
        }
    }
}
