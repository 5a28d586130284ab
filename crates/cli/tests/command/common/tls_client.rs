//! Clients that speak TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use tidewire_tls::rustls::pki_types::pem::PemObject;
use tidewire_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tidewire_tls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use crate::common::PATIENCE;
use crate::common::pki::NAMES;

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn config(authority: &str, own: Option<(&str, &str)>) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        store.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let cert = CertificateDer::from_pem_file(cert).unwrap();
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    })
}

pub(crate) fn socket(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn secure(socket: TcpStream, config: &Arc<ClientConfig>) -> Secure {
    let name = ServerName::try_from(NAMES[1]).unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), socket)
}

pub(crate) fn ask(
    stream: &mut (impl Read + Write),
    question: &[u8],
    answer: &[u8],
) -> io::Result<()> {
    stream.write_all(question)?;
    let mut said = vec![0; answer.len()];
    stream.read_exact(&mut said)?;
    assert_eq!(said, answer, "{:?}", String::from_utf8_lossy(&said));
    Ok(())
}
