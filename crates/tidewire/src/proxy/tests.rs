use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::sim::chunking::{self, Feed};
use crate::sim::tests::services::{Echo, Sums};
use crate::sim::{Outcome, PlainState, Sim};
use crate::{Closed, Layered, Limits, LoopHandle};

/// Notes its guests, and refuses guests of 192.0.2.0/24.
#[derive(Clone, Default)]
struct Guests(Arc<Mutex<Vec<Peer>>>);

impl Service for Guests {
    type Conn = Echo;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, from: &Peer, (): &mut ()) -> Result<Echo, Refusal> {
        self.0.lock().unwrap().push(from.clone());
        let unwanted: Network = "192.0.2.0/24".parse().unwrap();
        match unwanted.contains(from.client()) {
            true => Err(Refusal::ByService("unwanted")),
            false => Ok(Echo),
        }
    }
}

fn everybody() -> Proxy {
    Proxy::from(["0.0.0.0/0".parse().unwrap(), "unix".parse().unwrap()])
}

/// What one peer that sends `bytes` gets back, how it stands, and the service's guests and counters.
fn run(proxy: Proxy, bytes: &[u8]) -> (Vec<u8>, PlainState, Vec<Peer>, crate::Counters) {
    let guests = Guests::default();
    let mut sim = Sim::new(7);
    let at = sim.add_loop();
    let service = sim.service(at, Layered::new(proxy, guests.clone()), Limits::default());
    let addr = sim.listen(service);
    let peer = sim.plain(addr);
    sim.send(peer, bytes);
    sim.run_for(Duration::from_secs(10));
    let seen = guests.0.lock().unwrap().clone();
    (
        sim.received(peer).to_vec(),
        sim.state(peer),
        seen,
        sim.counters(at),
    )
}

#[test]
fn the_service_is_asked_once_the_header_has_named_the_client() {
    let (got, state, seen, _) = run(
        everybody(),
        b"PROXY TCP4 198.51.100.9 127.0.0.1 5 6\r\nhello",
    );
    assert_eq!((&got[..], state), (&b"hello"[..], PlainState::Open));
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].client().to_string(), "198.51.100.9:5");
    let told = seen[0].identity().original_destination.clone();
    assert_eq!(told, Some(([127, 0, 0, 1], 6).into()));
    assert!(seen[0].endpoint.to_string().starts_with("10."));
    assert!(!seen[0].is_local(), "whoever the proxy speaks for is not");

    let (got, _, seen, _) = run(everybody(), b"PROXY UNKNOWN\r\nhello");
    assert_eq!((&got[..], seen[0].original()), (&b"hello"[..], None));
}

#[test]
fn a_refusal_inside_closes_with_its_reason() {
    let (got, state, seen, counters) =
        run(everybody(), b"PROXY TCP4 192.0.2.1 127.0.0.1 5 6\r\nhello");
    assert!(got.is_empty() && matches!(state, PlainState::Failed(_)));
    assert_eq!(seen.len(), 1);
    assert_eq!(counters.refused_for(Refusal::ByService("")), 1);
    assert_eq!(counters.closed_for(Closed::Refused(Refusal::Stopping)), 1);
    assert_eq!(counters.open, 0);
}

#[test]
fn no_header_a_late_header_and_an_unlisted_proxy() {
    let (got, state, seen, counters) = run(everybody(), b"GET / HTTP/1.1\r\n");
    assert!(got.is_empty() && seen.is_empty() && matches!(state, PlainState::Failed(_)));
    assert_eq!(counters.closed_for(Closed::ByProtocol("")), 1);

    let late = everybody().deadline(Duration::from_secs(1));
    let (_, state, seen, _) = run(late, b"PROXY TCP4 ");
    assert!(seen.is_empty() && matches!(state, PlainState::Failed(_)));

    let elsewhere = || Proxy::from(["192.0.2.1".parse().unwrap()]);
    let (got, _, seen, _) = run(elsewhere(), b"PROXY UNKNOWN\r\n");
    assert_eq!(
        (&got[..], seen.len()),
        (&b"PROXY UNKNOWN\r\n"[..], 1),
        "as it is"
    );
    let (_, state, seen, counters) = run(elsewhere().refuse_others(), b"x");
    assert!(seen.is_empty() && matches!(state, PlainState::Failed(_)));
    assert_eq!(counters.refused_for(Refusal::ByService("")), 1);
}

/// Services that serve only this machine rely on it.
#[test]
fn a_proxy_does_not_make_its_clients_local() {
    let through = |endpoint: &str, header: &[u8]| {
        let guests = Guests::default();
        let mut sim = Sim::new(7);
        let at = sim.add_loop();
        let layered = Layered::new(everybody(), guests.clone());
        let service = sim.service(at, layered, Limits::default());
        sim.listen_at(service, endpoint);
        let peer = sim.plain(endpoint);
        sim.send(peer, header);
        sim.run_for(Duration::from_secs(1));
        let seen = guests.0.lock().unwrap();
        seen[0].is_local()
    };
    // A plain peer of a Unix socket is on this machine, one of TCP is not.
    let (here, away) = ("unix:@here", "10.0.0.1:80");
    let unix = [&b"/x"[..], &[0; 214]].concat();
    for (header, expected) in [
        (&b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n"[..], true),
        (b"PROXY TCP4 198.51.100.1 127.0.0.1 1 2\r\n", false),
        (b"PROXY UNKNOWN\r\n", false),
        (&header::tests::v2(1, 0x31, &unix), true),
        (&header::tests::v2(1, 0, b""), false),
        (&header::tests::v2(0, 0, b""), true),
    ] {
        assert_eq!(through(here, header), expected, "{header:?}");
        assert!(!through(away, header), "{header:?}");
    }
}

fn sums(bodies: &[Vec<u8>]) -> Vec<u8> {
    let frame = |b: &Vec<u8>| [&(b.len() as u32).to_le_bytes(), &b[..]].concat();
    bodies.iter().flat_map(frame).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Behind the header, and however both are split, nothing shows of it.
    #[test]
    fn the_header_is_all_that_is_taken(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..40),
        seed: u64,
        half_close: bool,
        window in 1usize..2000,
        binary: bool,
    ) {
        let plain = sums(&bodies);
        let header = match binary {
            true => header::tests::v2(1, 0x11, &[9; 30]),
            false => b"PROXY TCP6 ::1 ::2 1 2\r\n".to_vec(),
        };
        let input = [header, plain.clone()].concat();
        let splits = chunking::splits(seed, input.len());
        let want = Feed::new(&plain).half_close(half_close).run(Sums);
        let feed = Feed::new(&input).splits(&splits).half_close(half_close).window(window);
        prop_assert_eq!(feed.run(Layered::new(everybody(), Sums)), want);
    }
}

#[test]
fn over_a_rough_network() {
    for seed in 0..30 {
        let mut sim = Sim::new(seed);
        let limits = Limits {
            idle: None,
            ..Limits::default()
        };
        let addr = sim.serve(Layered::new(everybody(), Echo), limits);
        let peer = sim.plain(addr);
        let said = vec![seed as u8; 20_000];
        sim.send(peer, b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n");
        sim.send(peer, &said);
        sim.finish(peer);
        assert_eq!(sim.run_until_idle(Duration::from_secs(3600)), Outcome::Idle);
        assert!(sim.received(peer) == said, "seed {seed}");
    }
}
