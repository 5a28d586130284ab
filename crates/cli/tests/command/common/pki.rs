//! Authorities and certificates, as files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Authorities of one name would be taken for each other.
        let serial = format!("authority {}", NEXT.fetch_add(1, SeqCst));
        params.distinguished_name.push(DnType::CommonName, serial);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// The year in which it expires. Returns what the certificate is in DER form.
    pub(crate) fn write(&self, place: &Path, stem: &str, names: &[&str], year: i32) -> Vec<u8> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.0).unwrap();
        let name = |what: &str| place.join(format!("{stem}.{what}"));
        let _ = std::fs::remove_file(name("key"));
        std::fs::write(name("pem"), signed.pem()).unwrap();
        std::fs::write(name("key"), key.serialize_pem()).unwrap();
        signed.der().to_vec()
    }
}

/// An authority, and a server's certificate for 127.0.0.1 and localhost.
pub(crate) struct Files {
    pub(crate) place: TempDir,
    pub(crate) issuer: Authority,
    /// The authority's certificate.
    pub(crate) authority: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

pub(crate) const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

impl Files {
    pub(crate) fn new() -> Files {
        let place = tempfile::tempdir().unwrap();
        let issuer = Authority::new();
        let authority = place.path().join("authority.pem");
        std::fs::write(&authority, issuer.pem()).unwrap();
        issuer.write(place.path(), "server", &NAMES, 4000);
        Files {
            authority,
            cert: place.path().join("server.pem"),
            key: place.path().join("server.key"),
            issuer,
            place,
        }
    }

    /// What `serve` is told.
    pub(crate) fn serve(&self) -> [&str; 4] {
        let [cert, key] = [&self.cert, &self.key].map(|path| path.to_str().unwrap());
        ["--tls-cert", cert, "--tls-key", key]
    }

    pub(crate) fn authority(&self) -> &str {
        self.authority.to_str().unwrap()
    }
}
