//! Certificates with their keys, which can be replaced while connections come in; authorities.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::error::TlsError;
use crate::ring::ring;

/// A certificate, the chain up to its authority, and the private key. Cheap to clone.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key) = (chain.as_bytes(), key.as_bytes());
/// use tidewire_tls::{Certificate, TlsError};
///
/// let certificate = Certificate::from_pem(chain, key)?;
/// // The wrong way round:
/// assert!(matches!(Certificate::from_pem(key, chain), Err(TlsError::Pem { .. })));
/// # drop(certificate);
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone)]
pub struct Certificate(pub(crate) Arc<CertifiedKey>);

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate(a chain of {})", self.0.cert.len())
    }
}

impl Certificate {
    /// From PEM: the chain, the server's or client's own certificate first, and the key (PKCS#8,
    /// PKCS#1 or SEC1).
    ///
    /// # Errors
    /// [`TlsError::Pem`] if either is missing or broken, [`TlsError::Key`] if they do not go together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| TlsError::Pem {
            what: "private key",
            reason: why_no_key(key, &e),
        })?;
        Certificate::from_der(certificates(chain)?, key)
    }

    /// A certificate from DER.
    ///
    /// # Errors
    /// [`TlsError::Key`] if the key is not the certificate's.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
    /// # let (der, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    /// use tidewire_tls::Certificate;
    /// use tidewire_tls::rustls::pki_types::PrivateKeyDer;
    ///
    /// // As a key store hands it out: the certificate, and the key as PKCS#8.
    /// let certificate = Certificate::from_der(vec![der], PrivateKeyDer::try_from(key)?)?;
    /// # drop(certificate);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Certificate, TlsError> {
        let made = CertifiedKey::from_der(chain, key, &ring());
        Ok(Certificate(Arc::new(made.map_err(TlsError::Key)?)))
    }
}

/// The reason as a text.
fn why_not(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "there is none".into(),
        pem::Error::MissingSectionEnd { end_marker } => {
            let end = String::from_utf8_lossy(end_marker);
            format!("the file ends before the line that ends {end}: a part of it is missing")
        }
        pem::Error::IllegalSectionStart { .. } => {
            "a line that begins a part of it is broken".into()
        }
        other => other.to_string(),
    }
}

/// Says why a file has no usable private key, and names the files that are
/// often given instead.
fn why_no_key(pem: &[u8], error: &pem::Error) -> String {
    let text = String::from_utf8_lossy(pem);
    let has = |label: &str| text.contains(&format!("-----BEGIN {label}-----"));
    match error {
        pem::Error::NoItemsFound if has("ENCRYPTED PRIVATE KEY") => {
            "the key is encrypted, and a server cannot ask for its password: `openssl pkey -in FILE -out NEW` \
             writes it in the clear"
                .into()
        }
        pem::Error::NoItemsFound if has("CERTIFICATE") => "there is a certificate instead".into(),
        other => why_not(other),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason: String| TlsError::Pem {
        what: "certificate",
        reason,
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| wrong(why_not(&e)))?;
    if all.is_empty() {
        return Err(wrong("there is none".into()));
    }
    Ok(all)
}

/// The certificates of a server: one for all names, or others for certain names. Clones share the
/// certificates, so that a running server can replace them: later connections use the new one,
/// present connections are left alone.
///
/// ```
/// # fn renewed() -> (String, String) {
/// #   let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// #   (made.cert.pem(), made.signing_key.serialize_pem()) }
/// use tidewire_tls::{Certificate, Certificates, Server};
///
/// # let (chain, key) = renewed();
/// let certificates = Certificates::from(Certificate::from_pem(chain.as_bytes(), key.as_bytes())?);
/// let server = Server::new(&certificates);
/// // Later, on any thread; nothing changes if the new one is no good.
/// # let (chain, key) = renewed();
/// certificates.replace(Certificate::from_pem(chain.as_bytes(), key.as_bytes())?);
/// # drop(server);
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Certificates(Arc<RwLock<Shown>>);

#[derive(Debug)]
struct Shown {
    usual: Certificate,
    /// Certificates by name, in lower case.
    named: HashMap<Box<str>, Certificate>,
}

impl From<Certificate> for Certificates {
    fn from(usual: Certificate) -> Certificates {
        let named = HashMap::new();
        Certificates(Arc::new(RwLock::new(Shown { usual, named })))
    }
}

impl From<&Certificate> for Certificates {
    fn from(usual: &Certificate) -> Certificates {
        Certificates::from(usual.clone())
    }
}

impl From<&Certificates> for Certificates {
    fn from(same: &Certificates) -> Certificates {
        same.clone()
    }
}

impl Certificates {
    /// Replaces the usual certificate.
    pub fn replace(&self, usual: Certificate) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).usual = usual;
    }

    /// Sets the certificate for clients that ask for the server by exactly this name.
    ///
    /// ```
    /// # let made = |name: &str| rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    /// # let (usual, other) = (made("it.example"), made("other.example"));
    /// use tidewire_tls::rustls::pki_types::PrivateKeyDer;
    /// use tidewire_tls::{Certificate, Certificates};
    ///
    /// // DER, as a key store may hand it out.
    /// let key = |pkcs8: Vec<u8>| PrivateKeyDer::try_from(pkcs8);
    /// let usual = Certificate::from_der(vec![usual.cert.into()], key(usual.signing_key.serialize_der())?)?;
    /// let other = Certificate::from_der(vec![other.cert.into()], key(other.signing_key.serialize_der())?)?;
    ///
    /// let certificates = Certificates::from(&usual);
    /// certificates.replace_named("other.example", other); // the rest still sees `usual`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_named(&self, name: &str, certificate: Certificate) {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let name = name.to_ascii_lowercase().into_boxed_str();
        shown.named.insert(name, certificate);
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let named = hello
            .server_name()
            .and_then(|name| shown.named.get(&*name.to_ascii_lowercase()));
        Some(named.unwrap_or(&shown.usual).0.clone())
    }
}

/// Authorities whose word is taken. Cheap to clone.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key) = (chain.as_bytes(), key.as_bytes());
/// use tidewire_tls::{Client, Roots};
///
/// let authorities = Roots::from_pem(chain)?;
/// let client = Client::new(&authorities).server_name("it.example")?.build()?;
/// # drop(client);
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Roots(pub(crate) Arc<RootCertStore>);

impl Roots {
    /// Authorities from PEM: one certificate or several.
    ///
    /// # Errors
    /// [`TlsError::Pem`] if there is none, [`TlsError::Root`] if one cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Roots, TlsError> {
        let mut store = RootCertStore::empty();
        for certificate in certificates(pem)? {
            store.add(certificate).map_err(TlsError::Root)?;
        }
        Ok(Roots(Arc::new(store)))
    }
}

impl From<RootCertStore> for Roots {
    fn from(store: RootCertStore) -> Roots {
        Roots(Arc::new(store))
    }
}
