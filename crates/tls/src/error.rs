//! Why TLS cannot be set up.

/// Why a certificate, an authority or a setting is no good.
///
/// ```
/// use tidewire_tls::{Certificate, TlsError};
///
/// let error = Certificate::from_pem(b"", b"").unwrap_err();
/// assert!(matches!(error, TlsError::Pem { what: "private key", .. }));
/// assert_eq!(error.to_string(), "no private key in PEM form: there is none");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The PEM text does not hold the expected item, or is malformed.
    #[error("no {what} in PEM form: {reason}")]
    Pem {
        /// The item that was expected.
        what: &'static str,
        /// The reader's error, in words.
        reason: String,
    },
    /// The key does not belong to the certificate, or is of a kind that is not known.
    #[error("the key and the certificate do not go together: {0}")]
    Key(rustls::Error),
    /// An authority's certificate cannot be used.
    #[error("an authority's certificate cannot be used: {0}")]
    Root(rustls::Error),
    /// The name is neither a host's name nor an IP address.
    #[error("{0:?} is no server name: a host's name or an IP address")]
    Name(String),
    /// A setting that rustls refuses.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}
