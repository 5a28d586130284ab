//! TLS with an attacker between client and server that changes, drops, repeats and makes up what
//! the client sends: the service inside hears what the client said, or less of it, never anything
//! else.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidewire::sim::{Conditions, Sim};
use tidewire::{Cx, Input, Layered, Limits, LoopHandle, Next, Peer, Protocol, Refusal, Service};
use tidewire_tls::rustls::pki_types::ServerName;
use tidewire_tls::rustls::version::{TLS12, TLS13};
use tidewire_tls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use tidewire_tls::{Certificate, Server, TlsServer};

const NAME: &str = "it.example";
/// What the client wants to have said.
const WORDS: usize = 20_000;
/// So many turns of 50 ms in which nothing moves end a run; a network that takes a byte every 20 ms has as many as it needs.
const QUIET: usize = 200;

/// Making a key takes longer than a run.
static OURS: LazyLock<(Certificate, RootCertStore)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let mut store = RootCertStore::empty();
    store.add(made.cert.der().clone()).expect("a root");
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes());
    (certificate.expect("the same certificate"), store)
});

/// Sends back what it hears, and remembers it.
struct Hears;

struct Hearing;

impl Service for Hears {
    type Conn = Hearing;
    fn on_loop(&self, _: LoopHandle<()>) -> Vec<u8> {
        Vec::new()
    }
    fn accept(&self, _: &Peer, _: &mut Vec<u8>) -> Result<Hearing, Refusal> {
        Ok(Hearing)
    }
}

impl Protocol for Hearing {
    type Local = Vec<u8>;
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        cx.local.extend_from_slice(input.bytes());
        cx.link.forward_all(input)
    }
}

/// The words that the attacker was given, in order.
struct Between<'a> {
    orders: &'a [u8],
    harmless: bool,
}

impl Between<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.orders.split_first()?;
        self.orders = rest;
        Some(first)
    }

    /// What becomes of one flight. None: the client goes.
    fn meddle(&mut self, mut flight: Vec<u8>) -> Option<Vec<u8>> {
        let Some(order) = self.byte() else {
            return Some(flight);
        };
        let at = |by: u8, len: usize| usize::from(by) * len / 256;
        match order % 16 {
            0 => {
                let (by, bit) = (self.byte()?, self.byte()?);
                let place = at(by, flight.len());
                if let Some(byte) = flight.get_mut(place) {
                    *byte ^= 1 << (bit % 8);
                    self.harmless = false;
                }
            }
            1 => {
                let by = self.byte()?;
                let left = at(by, flight.len());
                self.harmless &= left == flight.len();
                flight.truncate(left);
            }
            2 => {
                let (by, n) = (
                    self.byte()?,
                    usize::from(self.byte()?).min(self.orders.len()),
                );
                let (made_up, rest) = self.orders.split_at(n);
                self.orders = rest;
                let place = at(by, flight.len());
                flight.splice(place..place, made_up.iter().copied());
                self.harmless &= n == 0;
            }
            3 => {
                self.harmless &= flight.is_empty();
                flight.extend_from_within(..);
            }
            4 => return None,
            _ => {}
        }
        Some(flight)
    }
}

fn client(old: bool) -> ClientConnection {
    let versions = if old { &[&TLS12] } else { &[&TLS13] };
    let config = ClientConfig::builder_with_protocol_versions(versions)
        .with_root_certificates(OURS.1.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// Bytes that no place of has a like near by.
fn words() -> Vec<u8> {
    (0..WORDS as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

/// The first bytes choose the network; the version, whether the client ends while words are on
/// their way back, and whether it half-closes then; and how much is said at a time. The rest are
/// orders to the attacker.
pub fn tls_server(input: &[u8]) {
    let Some((&[seed, how, pace], orders)) = input.split_first_chunk() else {
        return;
    };
    let mut between = Between {
        orders,
        harmless: true,
    };
    let mut conditions = Conditions::from_seed(seed.into());
    (conditions.reset_one_in, conditions.refuse_one_in) = (0, 0);
    let mut sim = Sim::under(seed.into(), conditions);
    let at = sim.add_loop();
    let tls: TlsServer = Server::new(&OURS.0).build().expect("a server");
    let limits = Limits {
        output_low: 3000,
        output_high: 20_000,
        // A record is progress when it is whole, which takes minutes where a turn brings a byte.
        idle: None,
        ..Limits::default()
    };
    let service = sim.service(at, Layered::with_limits(tls, Hears, limits.clone()), limits);
    let addr = sim.listen(service);
    let peer = sim.plain(addr);
    let mut tls = client(how % 2 == 1);
    let words = words();
    let (mut said, mut seen, mut back) = (0, 0, Vec::new());
    let step = 64 + usize::from(pace) * 64;
    let (ends_early, half_closes) = (how & 2 != 0, how & 4 != 0);
    let (mut ended, mut finished, mut answered) = (false, false, false);
    let (mut quiet, mut moved) = (0, (0, 0));
    while quiet < QUIET {
        if !tls.is_handshaking() && said < words.len() {
            let end = words.len().min(said + step);
            // A part of it, while enough is queued.
            said += tls
                .writer()
                .write(&words[said..end])
                .expect("room, or none");
        }
        if said == words.len() && !ended && (ends_early || back.len() == said) {
            ended = true;
            tls.send_close_notify();
        }
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).expect("memory takes all");
        }
        match between.meddle(flight) {
            // A client that has finished says no more.
            Some(_) if finished => {}
            Some(flight) => {
                sim.send(peer, &flight);
                finished = ended && half_closes;
                if finished {
                    sim.finish(peer);
                }
            }
            None => {
                between.harmless = false;
                break;
            }
        }
        sim.run_for(Duration::from_millis(50));
        let mut came = &sim.received(peer)[seen..];
        seen += came.len();
        let mut fooled = false;
        while !came.is_empty() && !fooled {
            fooled = tls.read_tls(&mut came).is_err() || tls.process_new_packets().is_err();
            let mut plain = [0; 4096];
            loop {
                match tls.reader().read(&mut plain) {
                    Ok(0) => break answered = true,
                    Ok(n) => back.extend_from_slice(&plain[..n]),
                    Err(e) if e.kind() != ErrorKind::WouldBlock => break fooled = true,
                    _ => break,
                }
            }
        }
        if fooled || (answered && between.orders.is_empty()) {
            break;
        }
        let counters = sim.counters(at);
        let now = (counters.bytes_in, counters.bytes_out);
        let stands = now == moved && between.orders.is_empty();
        (quiet, moved) = (if stands { quiet + 1 } else { 0 }, now);
    }
    if !finished {
        sim.send(peer, between.orders);
    }
    sim.run_for(Duration::from_millis(50));
    sim.close(peer, false);
    sim.run_for(Duration::from_secs(60));
    let heard = sim.local(service);
    assert!(
        words.starts_with(heard),
        "{} bytes that nobody said",
        heard.len()
    );
    assert!(
        words.starts_with(&back),
        "{} bytes that nobody sent back",
        back.len()
    );
    assert!(heard.len() >= back.len());
    let counters = sim.counters(at);
    assert_eq!((counters.open, counters.accepted), (0, 1), "{counters}");
    if between.harmless && between.orders.is_empty() {
        assert!(
            back.len() == said,
            "{} of {said} bytes came back",
            back.len()
        );
        assert!(
            tls.is_handshaking() || (said == words.len() && answered),
            "{said} bytes were said, and no farewell came back"
        );
    }
}
