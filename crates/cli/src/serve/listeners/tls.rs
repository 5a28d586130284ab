//! The layers in front of services: TLS and the PROXY protocol, as each listener asks for them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer};
use tidewire::Network;
use tidewire::proxy::Proxy;
use tidewire_tls::{Certificate, Roots, Server, TlsServer};

use crate::exit::Failure;
use crate::serve::settings::defaults::secs;
use crate::serve::settings::given::Need;

/// Files of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct TlsOptions {
    /// The certificate that the server shows, with the chain up to its authority, in PEM form. All TCP
    /// listeners speak TLS then, except listeners given as --listen SERVICE=plain:ADDR; Unix sockets do
    /// only as SERVICE=tls:unix:/PATH. SIGHUP has it and the other files of TLS read again
    #[arg(long = "tls-cert", id = "tls_cert", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of --tls-cert, in PEM form
    #[arg(long = "tls-key", id = "tls_key", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// Authorities, in PEM form: clients must show a certificate of one of them. A
    /// client that does is let in from other hosts too; TLS without it is no authentication
    #[arg(long = "tls-client-ca", id = "tls_client_ca", value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
}

impl TlsOptions {
    /// The condition under which a flag of this name has an effect.
    pub(crate) fn need(flag: &str) -> Option<Need> {
        // Keys and authorities are checked together with their certificate.
        (flag == "tls-cert").then_some(Need::Tls)
    }

    /// Whether any is given.
    pub(crate) fn is_some(&self) -> bool {
        *self != TlsOptions::default()
    }

    /// These settings, and for absent ones the settings of `base`. A certificate and its key go
    /// together.
    pub(crate) fn over(self, base: TlsOptions) -> TlsOptions {
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => (base.cert, base.key),
            _ => (self.cert, self.key),
        };
        TlsOptions {
            cert,
            key,
            client_ca: self.client_ca.or(base.client_ca),
        }
    }

    /// Checks that what belongs together is there.
    pub(crate) fn files(self) -> Result<Option<TlsFiles>, Failure> {
        match (self.cert, self.key) {
            (Some(cert), Some(key)) => Ok(Some(TlsFiles {
                cert,
                key,
                client_ca: self.client_ca,
                alpn: &[],
            })),
            (Some(_), None) => Err(Failure::usage(
                "--tls-cert without --tls-key: the certificate's private key is needed too",
            )),
            (None, Some(_)) => Err(Failure::usage("--tls-key without --tls-cert")),
            (None, None) if self.client_ca.is_some() => Err(Failure::usage(
                "--tls-client-ca without --tls-cert and --tls-key: no client could show a certificate \
                 where no TLS is spoken",
            )),
            (None, None) => Ok(None),
        }
    }
}

/// The longest time that a client may take for its handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake {
    /// The time for the handshake of TLS.
    pub(crate) tls: Duration,
    /// The time for the header of a proxy.
    pub(crate) proxy: Duration,
}

impl Default for Handshake {
    fn default() -> Handshake {
        Handshake {
            tls: Server::DEADLINE,
            proxy: Proxy::DEADLINE,
        }
    }
}

/// Formats both times in seconds.
impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", secs(self.tls), secs(self.proxy))
    }
}

impl From<Duration> for Handshake {
    fn from(both: Duration) -> Handshake {
        Handshake {
            tls: both,
            proxy: both,
        }
    }
}

/// Files of TLS, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    /// Application protocols that are negotiated; none where clients offer none.
    pub(crate) alpn: &'static [&'static str],
}

/// Application protocols of HTTP services.
const HTTP: &[&str] = &["http/1.1", "http/1.0"];

impl TlsFiles {
    /// The settings for an HTTP service.
    pub(crate) fn of_http(self) -> TlsFiles {
        TlsFiles { alpn: HTTP, ..self }
    }

    pub(crate) fn load(&self, handshake: Handshake) -> Result<TlsServer, Failure> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))
        };
        let wrong = |path: &Path, e| Failure::usage(format!("{}: {e}", path.display()));
        let certificate =
            Certificate::from_pem(&read(&self.cert)?, &read(&self.key)?).map_err(|e| {
                let (cert, key) = (self.cert.display(), self.key.display());
                Failure::usage(format!("certificate {cert} with key {key}: {e}"))
            })?;
        let mut server = Server::new(certificate).alpn(self.alpn);
        if let Some(path) = &self.client_ca {
            let roots = Roots::from_pem(&read(path)?).map_err(|e| wrong(path, e))?;
            server = server.require_client_certificates(&roots);
        }
        let server = server.deadline(handshake.tls);
        server.build().map_err(|e| wrong(&self.cert, e))
    }
}

/// The layers in front of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) tls: Option<TlsFiles>,
    /// Proxies that speak for others.
    pub(crate) proxy_from: Vec<Network>,
}

impl Front {
    /// TLS by these files, or nothing, in front of the admin listener.
    pub(crate) fn of_admin(tls: Option<TlsFiles>) -> Front {
        Front {
            tls: tls.map(TlsFiles::of_http),
            ..Front::default()
        }
    }

    /// Whether no setting of TLS is given.
    pub(crate) fn is_bare(&self) -> bool {
        *self == Front::default()
    }

    /// Whether clients must show a certificate.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Checks that the certificate, the key and the authorities can be used.
    pub(crate) fn check(&self, handshake: Handshake) -> Result<(), Failure> {
        match &self.tls {
            Some(files) => files.load(handshake).map(drop),
            None => Ok(()),
        }
    }

    /// A description for the line that announces the listener.
    pub(crate) fn described(&self) -> String {
        let mut text = match &self.tls {
            Some(_) if self.asks_for_certificates() => " tls=client-certificates",
            Some(_) => " tls=on",
            None => "",
        }
        .to_owned();
        if !self.proxy_from.is_empty() {
            let all: Vec<String> = self.proxy_from.iter().map(ToString::to_string).collect();
            text += &format!(" proxy-from={}", all.join(","));
        }
        text
    }
}

/// A list of networks in the file.
pub(crate) fn networks<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<Network>>, D::Error> {
    let all = Vec::<String>::deserialize(from)?;
    let all: Result<Vec<Network>, _> = all.iter().map(|text| text.parse()).collect();
    all.map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(cert: &str, key: &str, ca: &str) -> TlsOptions {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        TlsOptions {
            cert: path(cert),
            key: path(key),
            client_ca: path(ca),
        }
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        assert!(options("c", "", "").files().is_err());
        assert!(options("", "k", "").files().is_err());
        assert!(options("", "", "a").files().is_err());
        assert!(options("", "", "").files().unwrap().is_none());
        assert!(options("c", "k", "a").files().unwrap().is_some());
        // A certificate from the flags is not combined with a key from the file.
        let mixed = options("c2", "", "").over(options("c", "k", "a"));
        assert_eq!(mixed, options("c2", "", "a"));
        let flags = options("", "", "a2").over(options("c", "k", "a"));
        assert_eq!(flags, options("c", "k", "a2"));
    }
}
