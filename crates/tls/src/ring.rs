//! The cryptography: *ring*.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The cryptography that everything here uses, whatever the process has installed as its default.
pub(crate) fn ring() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
