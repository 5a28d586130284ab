//! The client's side: settings, and the layer's maker.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::{IpAddr, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection};
use tidewire::{Origin, Peer, Refusal, Wrap};

use crate::certificates::{Certificate, Roots};
use crate::error::TlsError;
use crate::records::{DEADLINE, Records};
use crate::ring::ring;

/// Settings of a TLS client.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key, authority) = (chain.as_bytes(), key.as_bytes(), chain.as_bytes());
/// use tidewire_tls::{Certificate, Client, Roots};
///
/// let tls = Client::new(&Roots::from_pem(authority)?)
///     .server_name("it.example")?
///     .certificate(&Certificate::from_pem(chain, key)?)
///     .build()?;
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    roots: Roots,
    name: Option<ServerName<'static>>,
    alpn: Vec<Vec<u8>>,
    certificate: Option<Certificate>,
    resumption: bool,
    deadline: Duration,
}

impl Client {
    /// A client that trusts these authorities.
    #[must_use]
    pub fn new(roots: &Roots) -> Client {
        Client {
            roots: roots.clone(),
            name: None,
            alpn: Vec::new(),
            certificate: None,
            resumption: true,
            deadline: DEADLINE,
        }
    }

    /// The identity that the server must prove: a host's name or an IP address. Default: the IP
    /// address that was dialled.
    ///
    /// # Errors
    /// [`TlsError::Name`] if the text is neither.
    pub fn server_name(mut self, name: &str) -> Result<Client, TlsError> {
        let parsed = ServerName::try_from(name.to_owned());
        self.name = Some(parsed.map_err(|_| TlsError::Name(name.to_owned()))?);
        Ok(self)
    }

    /// Application protocols, the most wanted first. Default: none.
    #[must_use]
    pub fn alpn<N: AsRef<[u8]>>(mut self, names: impl IntoIterator<Item = N>) -> Client {
        self.alpn = names.into_iter().map(|n| n.as_ref().to_vec()).collect();
        self
    }

    /// Shown to servers that ask for one.
    #[must_use]
    pub fn certificate(mut self, certificate: &Certificate) -> Client {
        self.certificate = Some(certificate.clone());
        self
    }

    /// Sets whether earlier sessions are taken up. Default true; the last 256 are remembered.
    #[must_use]
    pub fn resumption(mut self, on: bool) -> Client {
        self.resumption = on;
        self
    }

    /// How long a handshake may take, from the connection on. Default 10 s.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
    /// # let chain = made.cert.pem();
    /// use std::time::Duration;
    /// use tidewire_tls::{Client, Roots};
    ///
    /// let tls = Client::new(&Roots::from_pem(chain.as_bytes())?)
    ///     .alpn(["h2", "http/1.1"])
    ///     .resumption(false) // a full handshake each time
    ///     .deadline(Duration::from_secs(3))
    ///     .build()?;
    /// # Ok::<(), tidewire_tls::TlsError>(())
    /// ```
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Client {
        self.deadline = deadline;
        self
    }

    /// The layer's maker, to be put around a service by [`Layered`](tidewire::Layered).
    ///
    /// # Errors
    /// [`TlsError::Setup`], should rustls refuse the settings.
    pub fn build(self) -> Result<TlsClient, TlsError> {
        let builder = ClientConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::Setup(e.to_string()))?
            .with_root_certificates(self.roots.0);
        let mut config = match self.certificate {
            Some(Certificate(key)) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn;
        if !self.resumption {
            config.resumption = Resumption::disabled();
        }
        Ok(TlsClient {
            config: Arc::new(config),
            name: self.name,
            deadline: self.deadline,
        })
    }
}

/// Puts TLS around the connections that a service dials, or around [a socket](TlsClient::connect).
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key) = (chain.as_bytes(), key.as_bytes());
/// use tidewire::{Layered, on_input};
/// use tidewire_tls::{Client, Roots, TlsClient};
///
/// let tls: TlsClient = Client::new(&Roots::from_pem(chain)?).server_name("it.example")?.build()?;
/// // What this service dials is spoken to in TLS.
/// let service = Layered::new(tls, on_input(|input, link| link.forward_all(input)));
/// # drop(service);
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TlsClient {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: Option<ServerName<'static>>,
    deadline: Duration,
}

impl TlsClient {
    /// With settings of rustls's own, and the usual deadline.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
    /// use std::sync::Arc;
    /// use tidewire_tls::TlsClient;
    /// use tidewire_tls::rustls::{ClientConfig, RootCertStore, version::TLS13};
    ///
    /// // What [`Client`](crate::Client) has no setting for: one version and no other.
    /// let mut roots = RootCertStore::empty();
    /// roots.add(made.cert.into())?;
    /// let config = ClientConfig::builder_with_protocol_versions(&[&TLS13])
    ///     .with_root_certificates(roots)
    ///     .with_no_client_auth();
    /// let tls = TlsClient::from_config(Arc::new(config), Some("it.example".try_into()?));
    /// # drop(tls);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_config(config: Arc<ClientConfig>, name: Option<ServerName<'static>>) -> TlsClient {
        TlsClient {
            config,
            name,
            deadline: DEADLINE,
        }
    }
}

impl Wrap for TlsClient {
    type Layer = Records;

    fn wrap(&self, to: &Peer) -> Result<Option<Records>, Refusal> {
        // Without TLS the connection would be in the clear, unnoticed.
        if matches!(to.origin, Origin::Accepted(_)) {
            return Err(Refusal::ByService(
                "accepted, and TLS is set up as a client's",
            ));
        }
        let dialled = || Some(ServerName::IpAddress(IpAddr::from(to.endpoint.ip()?)));
        let Some(name) = self.name.clone().or_else(dialled) else {
            return Err(Refusal::ByService(
                "no server name is set, and no IP address was dialled",
            ));
        };
        match ClientConnection::new(self.config.clone(), name) {
            Ok(tls) => Ok(Some(Records::new(tls.into(), self.deadline))),
            Err(_) => Err(Refusal::ByService("TLS is misconfigured")),
        }
    }
}
