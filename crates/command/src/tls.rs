//! TLS as a client, for the commands that connect to a server.

use std::path::{Path, PathBuf};

use tidewire_tls::rustls::RootCertStore;
use tidewire_tls::{Certificate, Client, Roots, TlsClient};

use crate::exit::Failure;

/// How a server is spoken to.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// Speaks TLS with the server, which must show a certificate of an authority that this machine
    /// trusts
    #[arg(long, help_heading = "TLS")]
    tls: bool,
    /// Authorities to trust instead, in PEM form; of a server that signs for itself, its certificate.
    /// Implies --tls
    #[arg(long, help_heading = "TLS", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A certificate to show to a server that asks for one, in PEM form. Implies --tls
    #[arg(long, help_heading = "TLS", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM form
    #[arg(long, help_heading = "TLS", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name that the server's certificate must be for [default: the host that is connected to]. Implies --tls
    #[arg(long, help_heading = "TLS", value_name = "NAME")]
    tls_name: Option<String>,
}

impl TlsArgs {
    /// Whether TLS is to be spoken.
    pub fn is_wanted(&self) -> bool {
        let implied = [&self.tls_ca, &self.tls_cert]
            .into_iter()
            .any(Option::is_some);
        self.tls || implied || self.tls_name.is_some()
    }

    /// These arguments for the server `host`, unless another name is given.
    pub fn for_host(mut self, host: &str) -> TlsArgs {
        self.tls = true;
        self.tls_name.get_or_insert_with(|| host.to_owned());
        self
    }

    /// The client that was asked for.
    pub fn client(&self) -> Result<Option<TlsClient>, Failure> {
        self.is_wanted().then(|| self.made()).transpose()
    }

    /// A client, asked for or not.
    pub fn made(&self) -> Result<TlsClient, Failure> {
        let wrong = |what: &Path, e| Failure::usage(format!("{}: {e}", what.display()));
        let roots = match &self.tls_ca {
            Some(path) => Roots::from_pem(&read(path)?).map_err(|e| wrong(path, e))?,
            None => Roots::from(trusted_here()?),
        };
        let mut client = Client::new(&roots);
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let own = Certificate::from_pem(&read(cert)?, &read(key)?);
            client = client.certificate(&own.map_err(|e| wrong(cert, e))?);
        }
        let usage = |e: tidewire_tls::TlsError| Failure::usage(e.to_string());
        if let Some(name) = &self.tls_name {
            client = client.server_name(name).map_err(usage)?;
        }
        client.build().map_err(usage)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))
}

/// What the system trusts; a bundle or two that cannot be read do no harm while another can.
fn trusted_here() -> Result<RootCertStore, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = found.errors.first().map(|e| format!(" ({e})"));
        return Err(Failure::failed(format!(
            "no authorities are trusted on this machine{}: name one with --tls-ca",
            why.unwrap_or_default()
        )));
    }
    Ok(store)
}
