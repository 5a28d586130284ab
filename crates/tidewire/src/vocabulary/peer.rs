//! The other end of a connection.

use std::sync::Arc;

use crate::vocabulary::endpoint::Endpoint;

/// The other end of a connection: its address, whether it connected or was dialled, and its
/// identity. Cheap to clone; a connection without an identity allocates nothing for it.
///
/// ```
/// use tidewire::{Identity, Origin, Peer};
///
/// let proxy = Peer::new(([10, 0, 0, 1], 40_000), Origin::Accepted(0));
/// assert_eq!(proxy.client().to_string(), "10.0.0.1:40000");
///
/// let mut told = Identity::default();
/// told.original = Some(([192, 0, 2, 7], 5000).into());
/// let peer = proxy.with_identity(told);
/// assert_eq!(peer.endpoint.to_string(), "10.0.0.1:40000");
/// assert_eq!(peer.client().to_string(), "192.0.2.7:5000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The other end of the connection itself; this may be a proxy.
    pub endpoint: Endpoint,
    /// How the connection came about.
    pub origin: Origin,
    identity: Option<Arc<Identity>>,
}

/// How a connection came about.
///
/// ```
/// use tidewire::{Origin, Peer};
///
/// let peer = Peer::new(([127, 0, 0, 1], 4000), Origin::Dialled(7));
/// assert!(matches!(peer.origin, Origin::Dialled(token) if token == 7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Accepted by the listener of this number, in the order of the builder's `listen` calls.
    Accepted(u32),
    /// Dialled, with the token given to [`Dial::token`](crate::Dial::token).
    Dialled(u64),
}

/// The facts about a peer beyond its address: from the kernel, or from its first bytes as a layer
/// read them. Clones share it.
///
/// ```
/// use tidewire::{Identity, Origin, Peer};
///
/// let peer = Peer::new(([127, 0, 0, 1], 4000), Origin::Accepted(0));
/// assert_eq!(*peer.identity(), Identity::default()); // nothing is known of it
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// A trusted proxy in between speaks for the client, which it may have named or not.
    pub proxied: bool,
    /// The client's address, as a trusted proxy in between told it.
    pub original: Option<Endpoint>,
    /// The address that the client connected to, as a trusted proxy told it.
    pub original_destination: Option<Endpoint>,
    /// The name of the server that the client asked for (TLS server name indication).
    pub server_name: Option<Box<str>>,
    /// The application protocol that was agreed upon (TLS ALPN), such as `h2`.
    pub alpn: Option<Box<[u8]>>,
    /// The certificates that the peer has shown and that were verified, its own first (DER).
    pub certificates: Vec<Box<[u8]>>,
    /// The process at the other end of a Unix socket, as the kernel recorded it when that process
    /// connected or listened.
    pub process: Option<Process>,
}

/// The process at the other end of a Unix socket (`SO_PEERCRED`, unix(7)).
///
/// ```
/// use tidewire::{Peer, Process};
///
/// /// Whether the peer is on a Unix socket and runs as this user.
/// fn is_user(peer: &Peer, uid: u32) -> bool {
///     let process: Option<Process> = peer.identity().process;
///     process.is_some_and(|process| process.uid == uid)
/// }
/// # use tidewire::Origin;
/// # assert!(!is_user(&Peer::new(([127, 0, 0, 1], 4000), Origin::Accepted(0)), 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Id of the process; `None` if it is out of sight, in another PID namespace.
    pub pid: Option<u32>,
    /// Effective user of the process.
    pub uid: u32,
    /// Effective group of the process.
    pub gid: u32,
}

static NOBODY: Identity = Identity {
    proxied: false,
    original: None,
    original_destination: None,
    server_name: None,
    alpn: None,
    certificates: Vec::new(),
    process: None,
};

impl Peer {
    /// A peer of which nothing more is known.
    #[must_use]
    pub fn new(endpoint: impl Into<Endpoint>, origin: Origin) -> Peer {
        Peer {
            endpoint: endpoint.into(),
            origin,
            identity: None,
        }
    }

    /// This peer with a better known identity.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Peer {
        self.identity = Some(Arc::new(identity));
        self
    }

    /// The peer's identity beyond its endpoint; all fields are empty if nothing is known.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.identity.as_deref().unwrap_or(&NOBODY)
    }

    /// Where the client is: the original address if a proxy told it, else the endpoint.
    #[must_use]
    pub fn client(&self) -> &Endpoint {
        let told = self.identity().original.as_ref();
        told.unwrap_or(&self.endpoint)
    }

    /// The original address, if a proxy told it.
    #[must_use]
    pub fn original(&self) -> Option<&Endpoint> {
        self.identity().original.as_ref()
    }

    /// Whether the client is on this machine, as far as addresses show: loopback, 127.0.0.0/8 or ::1, or a
    /// Unix socket. Behind a proxy, both the proxy and the client that it names must be on this machine; a
    /// client that the proxy does not name counts as remote.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let local = |endpoint: &Endpoint| {
            let ip = endpoint.ip();
            ip.is_none_or(|ip| ip.to_canonical().is_loopback())
        };
        let client = match self.original() {
            Some(original) => local(original),
            None => !self.identity().proxied,
        };
        client && local(&self.endpoint)
    }

    /// Whether the peer has shown a certificate that was verified.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        !self.identity().certificates.is_empty()
    }

    /// Whether the peer may use services that ask for no secret, unless they are open to all: it is
    /// [on this machine](Peer::is_local), or has proved its identity by a
    /// [certificate](Peer::has_certificate).
    ///
    /// ```
    /// use tidewire::{Identity, Origin, Peer};
    ///
    /// let far = Peer::new(([192, 0, 2, 7], 5000), Origin::Accepted(0));
    /// assert!(!far.is_local() && !far.is_trusted());
    ///
    /// let mut known = Identity::default();
    /// known.certificates = vec![b"DER, as TLS has verified it".as_slice().into()];
    /// let known = far.with_identity(known);
    /// assert!(known.has_certificate() && known.is_trusted());
    ///
    /// // A proxy on this machine does not make its clients local.
    /// let mut told = Identity::default();
    /// told.original = Some(([192, 0, 2, 7], 5000).into());
    /// let proxied = Peer::new(([127, 0, 0, 1], 40_000), Origin::Accepted(0)).with_identity(told);
    /// assert_eq!(proxied.original(), Some(&([192, 0, 2, 7], 5000).into()));
    /// assert_eq!(proxied.identity().server_name, None);
    /// assert!(!proxied.is_local());
    /// ```
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.is_local() || self.has_certificate()
    }

    /// Learns which process is at the other end of a Unix socket, if the kernel knows.
    pub(crate) fn known_as(&mut self, process: Option<Process>) {
        self.identity = Some(Arc::new(Identity {
            process,
            ..Identity::default()
        }));
    }
}

impl Process {
    pub(crate) fn new(pid: Option<u32>, uid: u32, gid: u32) -> Process {
        Process { pid, uid, gid }
    }
}
