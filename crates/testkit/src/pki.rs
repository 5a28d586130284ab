//! Authorities and certificates, as files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    /// An authority with a name of its own.
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// An authority with a name of its own.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Authorities of one name would be taken for each other.
        let serial = format!("authority {}", NEXT.fetch_add(1, SeqCst));
        params.distinguished_name.push(DnType::CommonName, serial);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate in PEM form.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The year in which it expires. Returns what the certificate is in DER form.
    pub fn write(&self, place: &Path, stem: &str, names: &[&str], year: i32) -> Vec<u8> {
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
pub struct Files {
    /// The directory of the files.
    pub place: TempDir,
    /// The authority that signed them.
    pub issuer: Authority,
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The server's certificate.
    pub cert: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
}

/// Names that the certificate is for.
pub const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

impl Default for Files {
    /// A certificate for [`NAMES`], signed by a new authority.
    fn default() -> Files {
        Files::new()
    }
}

impl Files {
    /// A certificate for [`NAMES`], signed by a new authority.
    pub fn new() -> Files {
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
    pub fn serve(&self) -> [&str; 4] {
        let [cert, key] = [&self.cert, &self.key].map(|path| path.to_str().unwrap());
        ["--tls-cert", cert, "--tls-key", key]
    }

    /// The file of the authority's certificate.
    pub fn authority(&self) -> &str {
        self.authority.to_str().unwrap()
    }
}
