//! Outgoing connections: what to reach, how long to try, how to space the attempts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::vocabulary::endpoint::{Endpoint, EndpointError};
use crate::vocabulary::target::Target;

/// An outgoing connection to make.
///
/// ```
/// use std::time::Duration;
/// let dial = tidewire::Dial::to("127.0.0.1:7400")
///     .attempts(5)
///     .backoff(Duration::from_millis(50), Duration::from_secs(2))
///     .token(1);
/// ```
#[derive(Clone, Debug)]
pub struct Dial {
    to: Result<Target, EndpointError>,
    from: Option<Result<Endpoint, EndpointError>>,
    pub(crate) token: u64,
    pub(crate) attempts: u32,
    pub(crate) timeout: Duration,
    pub(crate) backoff_first: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) after: Duration,
    tied: bool,
}

/// What an attempt connects to, and the address that it is bound to first.
pub(crate) enum Route {
    /// This endpoint.
    Endpoint(Endpoint, Option<SocketAddr>),
    /// This port of a host.
    Host { port: u16, from: Option<SocketAddr> },
}

impl Dial {
    /// One attempt, given up after 10 s. What is to be reached may be given as a [`Target`], an [`Endpoint`], an address, a
    /// tuple, a path, or as text; text that is neither an endpoint nor `name:port` makes the dial fail, and
    /// [`dial_failed`](crate::Service::dial_failed) is told.
    ///
    /// The addresses of a host are asked of a [`Resolver`](crate::Resolver) and tried as RFC 8305 says: IPv6 and IPv4 in turns,
    /// another one after 250 ms or as soon as the last one has failed. The first that answers is the connection, and
    /// its [`Peer`](crate::Peer) has that address.
    ///
    /// ```
    /// use tidewire::{Dial, Target};
    ///
    /// let dial = Dial::to("example.org:443");
    /// let dial = Dial::to(Target::host("example.org", 443)?);
    /// # Ok::<(), tidewire::EndpointError>(())
    /// ```
    #[must_use]
    pub fn to<E>(target: E) -> Dial
    where
        E: TryInto<Target>,
        E::Error: Into<EndpointError>,
    {
        Dial {
            to: target.try_into().map_err(Into::into),
            from: None,
            token: 0,
            attempts: 1,
            timeout: Duration::from_secs(10),
            backoff_first: Duration::from_millis(100),
            backoff_max: Duration::from_secs(10),
            after: Duration::ZERO,
            tied: false,
        }
    }

    /// Binds to this local address first. With port 0 the port is chosen when connecting, so that
    /// one source address serves its 64k ports towards each destination. For TCP only: a dial to a
    /// Unix socket, or from one, fails.
    #[must_use]
    pub fn from<E>(mut self, place: E) -> Dial
    where
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        self.from = Some(place.try_into().map_err(Into::into));
        self
    }

    /// A number that the service sees in [`Origin::Dialled`](crate::Origin::Dialled) and in
    /// [`dial_failed`](crate::Service::dial_failed).
    #[must_use]
    pub fn token(mut self, token: u64) -> Dial {
        self.token = token;
        self
    }

    /// How often to try, at least once; `u32::MAX` for ever. Default 1.
    #[must_use]
    pub fn attempts(mut self, n: u32) -> Dial {
        self.attempts = n.max(1);
        self
    }

    /// How long one attempt may take: with a host's name, the question and all its addresses together. Default 10 s.
    #[must_use]
    pub fn timeout(mut self, t: Duration) -> Dial {
        self.timeout = t;
        self
    }

    /// The pause after the first failed attempt, doubled after each further one up to `max`; the
    /// pause taken is drawn evenly from its upper half. Default 100 ms up to 10 s.
    #[must_use]
    pub fn backoff(mut self, first: Duration, max: Duration) -> Dial {
        (self.backoff_first, self.backoff_max) = (first, max);
        self
    }

    /// Ties the dial to the connection that makes it by [`Cx::dial`](crate::Cx::dial): when that ends, what is under way is
    /// given up, and [`dial_failed`](crate::Service::dial_failed) is told ([`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted)).
    /// For proxies: the client has gone, so no connection waits for the server. See [`Cx::cancel_dial`](crate::Cx::cancel_dial)
    /// too. A dial that is made otherwise is tied to nothing.
    ///
    /// ```
    /// # use tidewire::{Cx, Dial, Protocol};
    /// fn ask_upstream<P: Protocol>(cx: &mut Cx<'_, P>) {
    ///     let me = cx.link.id().to_bits();
    ///     cx.dial(Dial::to("example.org:443").token(me).tied());
    /// }
    /// ```
    #[must_use]
    pub fn tied(mut self) -> Dial {
        self.tied = true;
        self
    }

    pub(crate) fn is_tied(&self) -> bool {
        self.tied
    }

    /// What it is to reach, for logs and errors.
    pub(crate) fn target(&self) -> Target {
        self.to
            .clone()
            .unwrap_or(Target::Endpoint(Endpoint::Unnamed))
    }

    /// The name of the host that it is to reach.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        match &self.to {
            Ok(Target::Host { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Where to, and which local address to bind to.
    pub(crate) fn route(&self) -> Result<Route, EndpointError> {
        let to = self.to.clone()?;
        if let Target::Endpoint(to) = &to {
            to.check()?;
        }
        let from = match &self.from {
            None => None,
            Some(from) => {
                let from = from.clone()?;
                let is_tcp = match &to {
                    Target::Endpoint(to) => to.is_tcp(),
                    Target::Host { .. } => true,
                };
                let Some(from) = from.tcp().filter(|_| is_tcp) else {
                    return Err(EndpointError::new(format!(
                        "cannot connect to {to} from {from}: only TCP connections have a source address"
                    )));
                };
                Some(from)
            }
        };
        Ok(match to {
            Target::Endpoint(to) => Route::Endpoint(to, from),
            Target::Host { port, .. } => Route::Host { port, from },
        })
    }

    /// How long to wait before the first attempt, say because the server asked for it. Default not
    /// at all.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::Dial;
    ///
    /// // To a server that has asked for five seconds of peace, from a certain address, and for no longer
    /// // than two seconds each time.
    /// let dial = Dial::to("192.0.2.1:7400")
    ///     .from("192.0.2.7:0")
    ///     .after(Duration::from_secs(5))
    ///     .timeout(Duration::from_secs(2))
    ///     .attempts(10);
    /// ```
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Dial {
        self.after = pause;
        self
    }
}

/// Why a dial was not even taken; it comes back.
///
/// ```
/// use tidewire::{Dial, LoopHandle, NotDialled};
///
/// /// A dial that has to wait is kept; a dial that no loop will make is not.
/// fn dial(by: &LoopHandle<()>, dial: Dial, later: &mut Vec<Dial>) {
///     match by.dial(dial) {
///         Ok(()) => {}
///         Err(NotDialled::NoRoom(dial)) => later.push(*dial),
///         Err(e) => eprintln!("{e}"),
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDialled {
    /// As many commands wait for the loop as [`Builder::inbox`](crate::Builder::inbox) allows. Counted
    /// as `dials_refused`.
    #[error("the loop has not caught up with what it was asked to do: too many dials wait")]
    NoRoom(Box<Dial>),
    /// The loop has ended.
    #[error("the loop that was to dial has ended")]
    Ended(Box<Dial>),
}
