//! TLS as tokio's users set it up: rustls on *ring*, with its defaults, and tickets for resumption.

use std::io;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// With the certificate and the key in these files.
pub fn acceptor(certificate: &str, key: &str) -> io::Result<TlsAcceptor> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(io::Error::other)?
        .collect();
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            let chain = chain.expect("certificates in PEM form");
            config.with_no_client_auth().with_single_cert(chain, key)
        })
        .map_err(io::Error::other)?;
    config.ticketer = ring::Ticketer::new().map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
