//! Room for new connections: where all places are taken, a connection that has long been quiet is
//! closed.
//!
//! Most services prefer present connections to new ones. Here that would let any client that
//! reaches the listener shut out the operator and checks of `/health`, with a few idle connections.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;
use std::time::Duration;

use tidewire::{
    ConnId, Conns, Endpoint, Instant, LoopHandle, Peer, Protocol, Refusal, Service, Throttle, Turn,
};

/// The reason in the log for a connection that was closed to make room.
const REASON: &str = "others needed the place";

type Message<S> = <<S as Service>::Conn as Protocol>::Message;
type Local<S> = <<S as Service>::Conn as Protocol>::Local;

/// A service with a limited number of connections, on one loop. One connection more closes another
/// one: of the address with the most connections, the one that has been quiet for longest.
pub(crate) struct Room<S: Service> {
    service: S,
    places: usize,
    at: OnceLock<LoopHandle<Message<S>>>,
    lines: Throttle,
}

impl<S: Service> Room<S> {
    pub(crate) fn new(service: S, places: usize) -> Room<S> {
        Room {
            service,
            places,
            at: OnceLock::new(),
            lines: Throttle::new(Duration::from_secs(10)),
        }
    }

    fn make_room(&self, local: &mut Local<S>, all: &mut Conns<'_, S::Conn>) {
        let mut holders = Holders::default();
        all.each(local, |_, cx| {
            holders.add(
                &cx.link.peer().endpoint,
                cx.link.last_progress(),
                cx.link.id(),
            );
        });
        while holders.open > self.places {
            let Some(leaves) = holders.take() else { return };
            all.with(leaves, local, |_, cx| cx.link.abort_because(REASON));
            if let Some(held_back) = self.lines.pass(all.now()) {
                tracing::warn!(
                    places = self.places,
                    held_back,
                    "admin: all places are taken; the connection that was quiet for longest is closed"
                );
            }
        }
    }
}

/// Connections by the address that holds them.
#[derive(Default)]
struct Holders {
    open: usize,
    of: BTreeMap<Option<IpAddr>, Vec<(Instant, ConnId)>>,
}

impl Holders {
    fn add(&mut self, who: &Endpoint, quiet_since: Instant, id: ConnId) {
        self.open += 1;
        let held = self.of.entry(holder(who)).or_default();
        held.push((quiet_since, id));
    }

    /// Takes out the quietest connection of the address that holds most.
    fn take(&mut self) -> Option<ConnId> {
        let most = |held: &&mut Vec<_>| (held.len(), Reverse(held.iter().min().copied()));
        let held = self.of.values_mut().max_by_key(most)?;
        let quietest = (0..held.len()).min_by_key(|&i| held[i])?;
        self.open -= 1;
        Some(held.swap_remove(quietest).1)
    }
}

/// The holder of an address: a host has a whole /64 network of IPv6. Unix sockets are one holder.
fn holder(who: &Endpoint) -> Option<IpAddr> {
    match who.ip()?.to_canonical() {
        IpAddr::V6(ip) => Some(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
        ip => Some(ip),
    }
}

impl<S: Service> Service for Room<S>
where
    Message<S>: Send,
{
    type Conn = S::Conn;

    fn on_loop(&self, at: LoopHandle<Message<S>>) -> Local<S> {
        let _ = self.at.set(at.clone());
        self.service.on_loop(at)
    }

    fn accept(&self, from: &Peer, local: &mut Local<S>) -> Result<S::Conn, Refusal> {
        let conn = self.service.accept(from, local)?;
        // Other connections are reached when this callback has returned.
        if let Some(at) = self.at.get() {
            at.signal();
        }
        Ok(conn)
    }

    fn woken(&self, local: &mut Local<S>, all: &mut Conns<'_, S::Conn>) {
        self.service.woken(local, all);
        self.make_room(local, all);
    }

    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        self.service.refusal_reply(why, from)
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        self.service.speaks_for_others(from)
    }

    fn expired(&self, local: &mut Local<S>, all: &mut Conns<'_, S::Conn>) {
        self.service.expired(local, all);
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, S::Conn>) {
        self.service.dial_failed(token, error, turn);
    }

    fn loop_ended(&self, local: Local<S>) {
        self.service.loop_ended(local);
    }
}

#[cfg(test)]
mod tests {
    use tidewire::sim::{Conditions, PlainState, Sim};
    use tidewire::{Limits, on_input};

    use super::*;

    #[test]
    fn the_quietest_connection_makes_room() {
        let echo = on_input(|input, link| link.forward_all(input));
        let mut sim = Sim::under(1, Conditions::calm());
        let at = sim.add_loop();
        let service = sim.service(at, Room::new(echo, 3), Limits::default());
        let addr = sim.listen(service);
        let second = Duration::from_secs(1);
        let come = |sim: &mut Sim| {
            let plain = sim.plain(addr.clone());
            sim.send(plain, b"x");
            sim.run_for(second);
            plain
        };
        let [first, then, third] = [(); 3].map(|()| come(&mut sim));
        // The first is not the quietest any more.
        sim.send(first, b"y");
        sim.run_for(second);
        let fourth = come(&mut sim);
        let is_there = |sim: &Sim, plain| matches!(sim.state(plain), PlainState::Open);
        let there = [first, then, third, fourth].map(|plain| is_there(&sim, plain));
        assert_eq!(there, [true, false, true, true]);
        assert_eq!(sim.received(fourth), b"x", "who came is served");
        assert_eq!(sim.counters(at).reasons[REASON], 1);
    }

    #[test]
    fn the_peer_with_most_connections_loses_its_quietest() {
        let mut holders = Holders::default();
        let mut add = |who: &str, quiet_since, id| {
            let (who, since) = (who.parse().unwrap(), Instant::from_nanos(quiet_since));
            holders.add(&who, since, ConnId::from_bits(id));
        };
        // The quietest client has one connection only. Two addresses of one network count as one
        // client.
        add("192.0.2.1:1", 1, 10);
        add("[2001:db8::1]:1", 7, 11);
        add("[2001:db8::2]:1", 5, 12);
        add("[2001:db8:0:1::2]:1", 2, 13);
        let mut leave = || holders.take().map(ConnId::to_bits);
        // Then all hold as much.
        assert_eq!([leave(), leave(), leave()], [Some(12), Some(10), Some(13)]);
        assert_eq!(holders.open, 1);
    }
}
