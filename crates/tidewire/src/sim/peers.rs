//! Plain peers of a simulation, and what the test has them do.

use crate::sim::net::{Net, Owner, near};
use crate::sim::plain::{Plain, PlainState};
use crate::sim::world::{Actor, Sim};
use crate::vocabulary::endpoint::{Endpoint, EndpointError};

/// A plain peer of a simulation: no protocol, driven by the test.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{PlainId, Sim};
///
/// let mut sim = Sim::new(1);
/// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
/// let peer: PlainId = sim.plain(addr);
/// sim.send(peer, b"hello");
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.received(peer), b"hello");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainId(pub(super) usize);

/// # Panics
/// Panics if the text is no endpoint.
pub(super) fn endpoint<E>(of: E) -> Endpoint
where
    E: TryInto<Endpoint>,
    E::Error: Into<EndpointError>,
{
    let of = of.try_into().map_err(Into::into);
    of.unwrap_or_else(|e: EndpointError| panic!("{e}"))
}

impl Sim {
    /// Connects a plain peer to an endpoint. The peer reads everything.
    ///
    /// # Panics
    /// If text was given that is no endpoint.
    pub fn plain<E>(&mut self, to: E) -> PlainId
    where
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        let to = endpoint(to);
        let from = near(&to, self.actors.len(), 1024);
        self.plain_from(from, to)
    }

    /// A plain peer with an address of its own.
    ///
    /// # Panics
    /// If text was given that is no endpoint.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let deny = vec!["198.51.100.0/24".parse()?];
    /// sim.admission(Admission::new(Rules { deny, ..Rules::default() }));
    /// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// let peer = sim.plain_from("198.51.100.7:1024", &addr);
    /// sim.run_for(Duration::from_secs(1));
    /// assert!(matches!(sim.state(peer), PlainState::Failed(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plain_from<F, E>(&mut self, from: F, to: E) -> PlainId
    where
        F: TryInto<Endpoint>,
        F::Error: Into<EndpointError>,
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        let actor = self.actors.len();
        let owner = Owner {
            actor: actor + 1,
            conn: 0,
            generation: 0,
        };
        let (from, to) = (endpoint(from), endpoint(to));
        let end = self.kernel.borrow_mut().net.connect(owner, from, to);
        self.add(Actor::Plain(Plain::new(end)));
        PlainId(actor)
    }

    /// Has the peer send `bytes`, as soon as the network takes them. The queue of waiting bytes has
    /// no limit.
    pub fn send(&mut self, peer: PlainId, bytes: &[u8]) {
        self.on_plain(peer, |plain, net| plain.send(net, bytes));
    }

    /// Bytes that the peer was told to send and the network has not taken yet.
    pub fn unsent(&mut self, peer: PlainId) -> usize {
        self.on_plain(peer, |plain, _| plain.unsent())
    }

    /// Has the peer half-close when all its bytes are sent. The peer goes on reading.
    pub fn finish(&mut self, peer: PlainId) {
        self.on_plain(peer, Plain::finish);
    }

    /// Has the peer close, in order or with a reset. As in TCP, closing with unread input resets.
    pub fn close(&mut self, peer: PlainId, reset: bool) {
        self.on_plain(peer, |plain, net| plain.close(net, reset));
    }

    /// Whether the peer reads. If not, the network fills up behind it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions { receive_buffer: 1000, ..Conditions::calm() });
    /// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// let peer = sim.plain(addr);
    /// sim.reading(peer, false);
    /// sim.send(peer, &[7; 2_000_000]);
    /// sim.run_for(Duration::from_secs(5));
    /// assert!(sim.received(peer).is_empty());
    /// assert!(sim.unsent(peer) > 0, "an echo does not read from those who do not read");
    /// sim.close(peer, true);
    /// assert_eq!(sim.state(peer), PlainState::Closed);
    /// ```
    pub fn reading(&mut self, peer: PlainId, on: bool) {
        self.on_plain(peer, |plain, net| {
            plain.reading = on;
            plain.go_on(net);
        });
    }

    /// All that the peer has read so far.
    #[must_use]
    pub fn received(&self, peer: PlainId) -> &[u8] {
        &self.plain_peer(peer).received
    }

    /// How the peer's connection stands.
    #[must_use]
    pub fn state(&self, peer: PlainId) -> PlainState {
        self.plain_peer(peer).state
    }

    fn plain_peer(&self, peer: PlainId) -> &Plain {
        match &self.actors[peer.0] {
            Actor::Plain(plain) => plain,
            Actor::Loop(_) | Actor::Listener(_) => {
                unreachable!("a plain peer's id names a plain peer")
            }
        }
    }

    fn on_plain<R>(&mut self, peer: PlainId, f: impl FnOnce(&mut Plain, &mut Net) -> R) -> R {
        match &mut self.actors[peer.0] {
            Actor::Plain(plain) => f(plain, &mut self.kernel.borrow_mut().net),
            Actor::Loop(_) | Actor::Listener(_) => {
                unreachable!("a plain peer's id names a plain peer")
            }
        }
    }
}
