//! Authorities and certificates, and services that use a connection in every way.
#![allow(dead_code, unreachable_pub)]

use std::io;
use std::sync::{Arc, Mutex};

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519,
    SerialNumber, date_time_ymd,
};
use tidewire::{Closed, Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service, Turn};
use tidewire_tls::rustls::pki_types::PrivateKeyDer;
use tidewire_tls::rustls::{self, RootCertStore};
use tidewire_tls::{Certificate, Roots};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Authorities of one name would be taken for each other.
        let serial = NEXT.fetch_add(1, SeqCst);
        params
            .distinguished_name
            .push(DnType::CommonName, serial.to_string());
        params.serial_number = Some(SerialNumber::from(u64::from(serial) + 1));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, new_key()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn roots(&self) -> Roots {
        Roots::from_pem(self.pem().as_bytes()).unwrap()
    }

    /// The authority as the root store of rustls.
    pub fn store(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        store.add(self.0.der().clone()).unwrap();
        store
    }

    pub fn certificate(&self, name: &str) -> Certificate {
        self.valid_until(name, 4000)
    }

    /// The year in which it expires.
    pub fn valid_until(&self, name: &str, year: i32) -> Certificate {
        let (signed, key) = self.sign(name, year);
        Certificate::from_pem(signed.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    /// A server of rustls alone.
    pub fn server_config(&self, name: &str) -> Arc<rustls::ServerConfig> {
        let (signed, key) = self.sign(name, 4000);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.der().clone()], key);
        Arc::new(config.unwrap())
    }

    fn sign(&self, name: &str, year: i32) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.serial_number = Some(SerialNumber::from(u64::from(NEXT.fetch_add(1, SeqCst)) + 1));
        let key = new_key();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// All keys and signatures of this kind have one length, so that the sizes of all records are a function of the seed.
fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ED25519).unwrap()
}

/// What happened on one side.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Happened>>);

#[derive(Clone, Default)]
pub struct Happened {
    pub peers: Vec<Peer>,
    pub got: Vec<u8>,
    pub closed: Vec<String>,
    pub failed: Vec<String>,
    pub written: usize,
    /// Bytes.
    pub echoed: usize,
}

impl Log {
    pub fn get(&self) -> Happened {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, f: impl FnOnce(&mut Happened)) {
        f(&mut self.0.lock().unwrap());
    }
}

/// Fails unless each side knows the other by its certificate, and both what was agreed on: the server by this name,
/// for this protocol.
pub fn know_each_other(server: &Happened, client: &Happened, (name, alpn): (&str, &[u8])) {
    let (seen, sees) = (server.peers[0].identity(), client.peers[0].identity());
    assert_eq!(seen.server_name.as_deref(), Some(name));
    assert_eq!(seen.alpn.as_deref(), Some(alpn));
    assert_eq!((seen.certificates.len(), sees.certificates.len()), (1, 1));
    assert_ne!(seen.certificates, sees.certificates);
    assert_eq!(sees.alpn, seen.alpn);
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    Echo,
    /// Writes while there is room.
    Flood,
    /// Reads nothing.
    Deaf,
    /// Refuses every connection.
    Refuses,
    /// Sends back what it gets, and aborts when its peer has said all.
    Offended,
}

/// Says `text`, and that it has said all; then takes what comes, or sends it back.
#[derive(Clone)]
pub struct Talk {
    pub habit: Habit,
    pub text: Arc<[u8]>,
    pub log: Log,
}

impl Talk {
    pub fn new(habit: Habit) -> Talk {
        Talk {
            habit,
            text: Arc::from([]),
            log: Log::default(),
        }
    }

    pub fn says(text: impl Into<Arc<[u8]>>) -> Talk {
        Talk {
            text: text.into(),
            ..Talk::new(Habit::Flood)
        }
    }
}

pub struct Talking {
    talk: Talk,
    said: usize,
}

impl Service for Talk {
    type Conn = Talking;
    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, from: &Peer, (): &mut ()) -> Result<Talking, Refusal> {
        self.log.note(|l| l.peers.push(from.clone()));
        if self.habit == Habit::Refuses {
            return Err(Refusal::ByService("not you"));
        }
        Ok(Talking {
            talk: self.clone(),
            said: 0,
        })
    }

    fn dial_failed(&self, _: u64, error: &io::Error, _: &mut Turn<'_, Talking>) {
        self.log.note(|l| l.failed.push(error.to_string()));
    }
}

impl Talking {
    fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
        if self.talk.habit != Habit::Flood {
            return;
        }
        let endless = self.talk.text.is_empty();
        while !cx.link.full() && !cx.link.has_finished_writing() {
            let rest = &self.talk.text[self.said.min(self.talk.text.len())..];
            if endless {
                cx.link.write(&[7; 1000]);
                self.said += 1000;
            } else if rest.is_empty() {
                cx.link.finish_writing();
            } else {
                let n = rest.len().min(1234);
                cx.link.write(&rest[..n]);
                self.said += n;
            }
        }
        let written = self.said;
        self.talk.log.note(|l| l.written = written);
    }
}

impl Protocol for Talking {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        if self.talk.habit == Habit::Deaf {
            cx.link.pause();
        }
        self.go_on(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if matches!(self.talk.habit, Habit::Echo | Habit::Offended) {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let n = input.len();
            cx.link.forward(input, n);
            self.talk.log.note(|l| l.echoed += n);
            return Next::More;
        }
        self.talk
            .log
            .note(|l| l.got.extend_from_slice(input.bytes()));
        input.consume(input.len());
        Next::More
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.go_on(cx);
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        assert_eq!(unread, 0);
        if self.talk.habit == Habit::Offended {
            return cx.link.abort();
        }
        if cx.link.has_finished_writing() || self.talk.habit != Habit::Flood {
            cx.link.finish();
        }
    }

    fn closed(self, why: Closed, _: &mut Turn<'_, Self>) {
        self.talk.log.note(|l| l.closed.push(why.to_string()));
    }
}
