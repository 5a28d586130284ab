//! The PROXY protocol, versions 1 and 2: a proxy in front names its client.
//!
//! A layer in front of any service: [`Proxy`] reads the header that proxies such as HAProxy, nginx
//! or a cloud's balancer send first, then steps aside. The service finds the client in
//! [`Peer::client`] and [`Peer::original`](crate::Peer::original), and may turn it away for it.
//!
//! Peers that may speak for others are listed: any other peer is served as it is, so that no client
//! can pretend to come from elsewhere.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::proxy::Proxy;
//! use tidewire::sim::Sim;
//! use tidewire::{Layered, Limits};
//! # use tidewire::*;
//! # struct WhoAmI;
//! # struct Conn;
//! # impl Protocol for Conn { type Local = (); type Message = ();
//! #   fn opened(&mut self, cx: &mut Cx<'_, Self>) {
//! #     let client = cx.link.peer().client().to_string(); cx.link.write(client.as_bytes()); }
//! #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//! #     let n = i.len(); cx.link.forward(i, n); Next::More } }
//! # impl Service for WhoAmI { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) {}
//! #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) } }
//!
//! let proxy = Proxy::from(["10.0.0.0/8".parse()?]).deadline(Duration::from_secs(3));
//! let mut sim = Sim::new(1);
//! let addr = sim.serve(Layered::new(proxy, WhoAmI), Limits::default());
//! let balancer = sim.plain(addr); // peers in the simulator come from 10.0.0.0/8
//! sim.send(balancer, b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n, hello");
//! sim.run_for(Duration::from_secs(1));
//! assert_eq!(sim.received(balancer), b"192.0.2.7:5000, hello");
//! # Ok::<(), tidewire::NetworkError>(())
//! ```

mod header;

use std::sync::Arc;
use std::time::Duration;

use crate::layer::{Around, Layer, Wrap};
use crate::protocol::input::Input;
use crate::protocol::service::Service;
use crate::reactor::throttle::Throttle;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::network::Network;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};
use header::{Parsed, Said};

/// The settings: which peers speak for others, and how long the header may take.
///
/// ```
/// use std::time::Duration;
/// use tidewire::proxy::Proxy;
///
/// // Only the balancer may connect, and names its client within a second.
/// let proxy = Proxy::from(["192.0.2.1".parse()?]).refuse_others().deadline(Duration::from_secs(1));
/// # drop(proxy);
/// # Ok::<(), tidewire::NetworkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Proxy {
    from: Vec<Network>,
    others: Others,
    deadline: Duration,
    failures: Arc<Throttle>,
}

/// Least time between two log lines about proxies that did not name their client.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// How connections are treated that do not come from a listed proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Served,
    Refused,
}

impl Proxy {
    /// How long a header may take, if [`deadline`](Proxy::deadline) says nothing else: 5 s.
    pub const DEADLINE: Duration = Duration::from_secs(5);

    /// Requires a header from peers in these networks, within 5 s. Peers outside of these networks
    /// are served without a header.
    #[must_use]
    pub fn from(networks: impl IntoIterator<Item = Network>) -> Proxy {
        Proxy {
            from: networks.into_iter().collect(),
            others: Others::Served,
            deadline: Proxy::DEADLINE,
            failures: Arc::new(Throttle::new(BETWEEN_LINES)),
        }
    }

    /// Refuses peers that are not listed.
    #[must_use]
    pub fn refuse_others(mut self) -> Proxy {
        self.others = Others::Refused;
        self
    }

    /// How long the header may take, from the connection on. Default 5 s. A slower peer is cut.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Proxy {
        self.deadline = deadline;
        self
    }
}

impl Wrap for Proxy {
    type Layer = Header;

    fn wrap(&self, from: &Peer) -> Result<Option<Header>, Refusal> {
        let accepted = matches!(from.origin, Origin::Accepted(_));
        if accepted && self.from.iter().any(|n| n.contains(&from.endpoint)) {
            return Ok(Some(Header {
                deadline: self.deadline,
                failures: self.failures.clone(),
            }));
        }
        match self.others {
            Others::Refused if accepted => Err(Refusal::ByService("not a listed proxy")),
            _ => Ok(None),
        }
    }

    /// A header goes one way only.
    fn is_transparent(&self, _: &Peer) -> bool {
        true
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        matches!(self.wrap(from), Ok(Some(_)))
    }
}

/// A connection of which the header is still to come.
///
/// ```
/// use tidewire::proxy::{Header, Proxy};
/// use tidewire::{Origin, Peer, Wrap};
///
/// let proxy = Proxy::from(["192.0.2.0/24".parse()?]);
/// let from = |addr| Peer::new((addr, 4000), Origin::Accepted(0));
/// let layer: Option<Header> = proxy.wrap(&from([192, 0, 2, 1])).expect("no client is refused");
/// assert!(layer.is_some());
/// assert!(proxy.wrap(&from([198, 51, 100, 1])).expect("no client is refused").is_none());
/// # Ok::<(), tidewire::NetworkError>(())
/// ```
#[derive(Debug)]
pub struct Header {
    deadline: Duration,
    failures: Arc<Throttle>,
}

impl Header {
    /// Cuts a proxy that does not name its client: one of the two is configured wrongly.
    fn give_up<S: Service>(&self, why: &'static str, at: &mut Around<'_, '_, S, Header>) {
        let link = at.link();
        if let Some(held_back) = self.failures.pass(link.now()) {
            let peer = &link.peer().endpoint;
            tracing::warn!(%peer, reason = why, held_back, "cutting a proxy without a right header");
        }
        link.abort_because(why);
    }
}

impl Layer for Header {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.link().set_timer_after(self.deadline);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        match header::parse(input.bytes()) {
            Parsed::Partial(n) => return Next::AtLeast(n),
            Parsed::Wrong(why) => self.give_up(why, at),
            Parsed::Header(said, len) => {
                input.consume(len);
                let mut peer = at.peer().clone();
                if said != Said::Local {
                    let mut identity = peer.identity().clone();
                    identity.proxied = true;
                    if let Said::Proxied {
                        source,
                        destination,
                    } = said
                    {
                        identity.original = Some(source);
                        identity.original_destination = Some(destination);
                    }
                    peer = peer.with_identity(identity);
                }
                // A refusal closes by itself.
                let _ = at.hand_over(peer);
            }
        }
        Next::More
    }

    fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        self.give_up("the PROXY protocol header took too long", at);
    }
}

#[cfg(test)]
mod tests;
