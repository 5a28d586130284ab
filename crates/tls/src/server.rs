//! The server's side: settings, and the layer's maker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, ServerConnection};
use tidewire::{Origin, Peer, Refusal, Throttle, Wrap};

use crate::certificates::{Certificates, Roots};
use crate::error::TlsError;
use crate::records::{BETWEEN_LINES, DEADLINE, Records};
use crate::ring::ring;

/// Settings of a TLS server.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key, authority) = (chain.as_bytes(), key.as_bytes(), chain.as_bytes());
/// use std::time::Duration;
/// use tidewire_tls::{Certificate, Roots, Server};
///
/// let tls = Server::new(Certificate::from_pem(chain, key)?)
///     .alpn(["h2", "http/1.1"])
///     .require_client_certificates(&Roots::from_pem(authority)?)
///     .deadline(Duration::from_secs(3))
///     .build()?;
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Server {
    certificates: Certificates,
    alpn: Vec<Vec<u8>>,
    clients: Clients,
    resumption: bool,
    deadline: Duration,
}

/// The certificates that clients must show.
#[derive(Clone, Debug)]
enum Clients {
    NotAsked,
    Asked(Roots),
    Required(Roots),
}

impl Server {
    /// How long a handshake may take, if [`deadline`](Server::deadline) says nothing else: 10 s.
    pub const DEADLINE: Duration = DEADLINE;

    /// A server that shows these certificates; a reference to [`Certificates`] shares them, to be
    /// replaced later.
    #[must_use]
    pub fn new(certificates: impl Into<Certificates>) -> Server {
        Server {
            certificates: certificates.into(),
            alpn: Vec::new(),
            clients: Clients::NotAsked,
            resumption: true,
            deadline: DEADLINE,
        }
    }

    /// Application protocols, the most wanted first. A client that offers only others is turned away
    /// in the handshake; one that offers none is served. Default: none.
    #[must_use]
    pub fn alpn<N: AsRef<[u8]>>(mut self, names: impl IntoIterator<Item = N>) -> Server {
        self.alpn = names.into_iter().map(|n| n.as_ref().to_vec()).collect();
        self
    }

    /// Serves only clients that show a certificate of one of these authorities (WebPKI).
    #[must_use]
    pub fn require_client_certificates(mut self, roots: &Roots) -> Server {
        self.clients = Clients::Required(roots.clone());
        self
    }

    /// Asks clients for a certificate of one of these authorities, and also serves clients without
    /// one: their [identity](tidewire::Identity) then has none. A certificate that cannot be
    /// verified is refused.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
    /// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// # let (chain, key, authority) = (chain.as_bytes(), key.as_bytes(), chain.as_bytes());
    /// use tidewire_tls::{Certificate, Roots, Server};
    ///
    /// // The service inside finds out by `Peer::has_certificate` who has shown one.
    /// let tls = Server::new(Certificate::from_pem(chain, key)?)
    ///     .ask_for_client_certificates(&Roots::from_pem(authority)?)
    ///     .resumption(false)
    ///     .build()?;
    /// # Ok::<(), tidewire_tls::TlsError>(())
    /// ```
    #[must_use]
    pub fn ask_for_client_certificates(mut self, roots: &Roots) -> Server {
        self.clients = Clients::Asked(roots.clone());
        self
    }

    /// Whether clients may take up an earlier session, which spares both sides most of the
    /// handshake's work. Default true: by tickets, whose keys change every six hours and which the
    /// process alone can read.
    #[must_use]
    pub fn resumption(mut self, on: bool) -> Server {
        self.resumption = on;
        self
    }

    /// How long a handshake may take, from the connection on. Default 10 s. A slower connection is
    /// cut.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Server {
        self.deadline = deadline;
        self
    }

    /// The layer's maker, to be put around a service by [`Layered`](tidewire::Layered).
    ///
    /// # Errors
    /// [`TlsError::Setup`] if there are no authorities to check clients against.
    pub fn build(self) -> Result<TlsServer, TlsError> {
        let setup = |e: &dyn fmt::Display| TlsError::Setup(e.to_string());
        let builder = ServerConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .map_err(|e| setup(&e))?;
        let verifier =
            |roots: &Roots| WebPkiClientVerifier::builder_with_provider(roots.0.clone(), ring());
        let builder = match &self.clients {
            Clients::NotAsked => builder.with_no_client_auth(),
            Clients::Asked(roots) => builder.with_client_cert_verifier(
                verifier(roots)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|e| setup(&e))?,
            ),
            Clients::Required(roots) => {
                let built = verifier(roots).build();
                builder.with_client_cert_verifier(built.map_err(|e| setup(&e))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.certificates));
        config.alpn_protocols = self.alpn;
        // Tickets leave nothing to be remembered here.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if self.resumption {
            config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(|e| setup(&e))?;
        } else {
            config.send_tls13_tickets = 0;
        }
        let mut made = TlsServer::from(Arc::new(config));
        made.deadline = self.deadline;
        Ok(made)
    }
}

/// Puts TLS around the connections that a service accepts.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key) = (chain.as_bytes(), key.as_bytes());
/// use tidewire::{Layered, on_input};
/// use tidewire_tls::{Certificate, Server, TlsServer};
///
/// let tls: TlsServer = Server::new(Certificate::from_pem(chain, key)?).build()?;
/// let service = Layered::new(tls, on_input(|input, link| link.forward_all(input)));
/// # drop(service);
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    deadline: Duration,
    /// Throttle of log lines about failed handshakes.
    failures: Arc<Throttle>,
}

/// With settings of rustls's own, and the usual deadline.
impl From<Arc<ServerConfig>> for TlsServer {
    fn from(config: Arc<ServerConfig>) -> TlsServer {
        TlsServer {
            config,
            deadline: DEADLINE,
            failures: Arc::new(Throttle::new(BETWEEN_LINES)),
        }
    }
}

impl Wrap for TlsServer {
    type Layer = Records;

    fn wrap(&self, from: &Peer) -> Result<Option<Records>, Refusal> {
        // Without TLS the connection would be in the clear, unnoticed.
        if matches!(from.origin, Origin::Dialled(_)) {
            return Err(Refusal::ByService(
                "dialled, and TLS is set up as a server's",
            ));
        }
        match ServerConnection::new(self.config.clone()) {
            Ok(tls) => Ok(Some(
                Records::new(tls.into(), self.deadline).logging(self.failures.clone()),
            )),
            Err(_) => Err(Refusal::ByService("TLS is misconfigured")),
        }
    }
}
