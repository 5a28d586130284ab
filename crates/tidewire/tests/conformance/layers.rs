//! Layers around a service: what the first bytes say comes before the service is asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::proxy::Proxy;
use tidewire::{Around, Closed, Input, Layer, Layered, Limits, Next, Peer, Refusal, Service, Wrap};

use crate::case::{Case, case};
use crate::client::Client;
use crate::hosting::{Loops, host};
use crate::probe::Probes;
use crate::record::{Event, Record};
use crate::roles::{Echo, noise};
use crate::shares::{Giver, MAKE_ONE, MAKE_TURN, PIECE, all_at_once};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_layer_names_the_peer_before_the_service_is_asked),
        case!(a_refusal_inside_a_layer_resets_and_is_counted),
        case!(a_layer_that_waits_ends_with_the_stop_and_with_its_deadline),
        case!(a_layers_connection_waits_for_its_turn_too),
    ]
}

/// A layer whose wire carries every bit of what is inside turned over.
pub(crate) struct Inverts;

impl Wrap for Inverts {
    type Layer = Inverts;

    fn wrap(&self, _: &Peer) -> Result<Option<Inverts>, Refusal> {
        Ok(Some(Inverts))
    }
}

pub(crate) fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

impl Layer for Inverts {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Inverts>) {
        let peer = at.peer().clone();
        let _ = at.accept(peer);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Inverts>,
    ) -> Next {
        if at.wants_input() {
            at.received(&inverted(input.bytes()));
            input.consume(input.len());
        }
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Inverts>) {
        at.take_output(|link, bytes| {
            link.write(&inverted(bytes));
            bytes.len()
        });
    }
}

fn a_layers_connection_waits_for_its_turn_too(v: Variant) {
    const CLIENTS: usize = 16;
    const EACH: usize = 2 << 20;
    let record = Arc::<Record>::default();
    let made = Arc::default();
    let probes = Probes {
        record: record.clone(),
        make: Box::new(move |_: &Peer| {
            let giver = Giver::new(EACH, Arc::clone(&made), Arc::default());
            Ok(Box::new(giver) as Box<dyn crate::probe::Role>)
        }),
        woken: None,
        keep_handles: true,
    };
    let limits = Limits {
        output_high: 32 << 20,
        output_hard: 64 << 20,
        ..Limits::default()
    };
    let loops = host(
        v,
        Layered::with_limits(Inverts, probes, limits.clone()),
        limits,
    );
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| loops.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&inverted(b"?"));
        record.until("a question", |_| loops.counters().bytes_in > n as u64);
    }
    let before = loops.counters();
    all_at_once(&record, CLIENTS, |cx| cx.link.resume());
    for client in &mut clients {
        assert!(client.take(EACH).iter().all(|&byte| byte == !7));
    }
    let turns = (loops.counters().turns - before.turns) as usize;
    let (made, most) = (
        CLIENTS * EACH,
        (turns + 1 + v.loops) * (MAKE_TURN + MAKE_ONE + PIECE),
    );
    assert!(
        v.is_threads() || made <= most,
        "{made} bytes in {turns} turns"
    );
    drop(clients);
    loops.stop(Duration::from_secs(10));
    record.check();
}

const HEADER: &[u8] = b"PROXY TCP4 198.51.100.9 192.0.2.1 5 6\r\n";

struct Server {
    loops: Loops<Layered<Proxy, Probes>>,
    record: Arc<Record>,
    guests: Arc<Mutex<Vec<Peer>>>,
}

/// Refuses clients that the proxy says to come from 203.0.113.1.
fn server(v: Variant, deadline: Duration) -> Server {
    let (record, guests) = (Arc::<Record>::default(), Arc::<Mutex<Vec<Peer>>>::default());
    let theirs = guests.clone();
    let make = move |peer: &Peer| {
        theirs.lock().expect("not poisoned").push(peer.clone());
        if peer.client().to_string().starts_with("203.0.113.1") {
            return Err(Refusal::ByService("unwanted"));
        }
        Ok(Box::new(Echo) as Box<dyn crate::probe::Role>)
    };
    let probes = Probes {
        record: record.clone(),
        make: Box::new(make),
        woken: None,
        keep_handles: true,
    };
    let local = ["127.0.0.0/8", "10.0.0.0/8"].map(|text| text.parse().expect("a network"));
    let proxy = Proxy::from(local).deadline(deadline);
    Server {
        loops: host(v, Layered::new(proxy, probes), Limits::default()),
        record,
        guests,
    }
}

impl Server {
    fn connect(&self) -> Client {
        self.loops.connect()
    }

    fn stop(self) -> tidewire::Counters {
        let counters = self.loops.stop(Duration::from_secs(10));
        self.record.check();
        counters
    }
}

fn a_layer_names_the_peer_before_the_service_is_asked(v: Variant) {
    let server = server(v, Duration::from_secs(60));
    let mut client = server.connect();
    // In pieces, the last of which brings the first bytes for the service.
    client.send(&HEADER[..7]);
    client.send(&HEADER[7..]);
    let bytes = noise(4, 300_000);
    let mut writer = client.second();
    let sent = bytes.clone();
    let writes = world::spawn(move || writer.send(&sent));
    client.expect(&bytes);
    writes.join().expect("written");
    {
        let guests = server.guests.lock().expect("not poisoned");
        assert_eq!(guests.len(), 1);
        assert_eq!(
            guests[0].original().expect("told").to_string(),
            "198.51.100.9:5"
        );
        assert_ne!(
            Some(guests[0].endpoint.clone()),
            guests[0].original().cloned()
        );
    }
    // Handles reach the protocol inside.
    server
        .record
        .handle(0)
        .try_post(crate::probe::Message::Note(9))
        .ok()
        .expect("room");
    server
        .record
        .until("the note", |r| r.has(0, &Event::Posted(9)));
    client.finish();
    client.expect_end();
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn a_refusal_inside_a_layer_resets_and_is_counted(v: Variant) {
    let server = server(v, Duration::from_secs(60));
    let mut unwanted = server.connect();
    unwanted.send(b"PROXY TCP4 203.0.113.1 192.0.2.1 5 6\r\nhello");
    unwanted.expect_reset();
    let mut stranger = server.connect();
    stranger.send(b"hello, no proxy here");
    stranger.expect_reset();
    let counters = server.stop();
    assert_eq!(counters.refused_for(Refusal::ByService("")), 1);
    assert_eq!(counters.closed_for(Closed::Refused(Refusal::Stopping)), 1);
    assert_eq!(counters.closed_for(Closed::ByProtocol("")), 1);
}

fn a_layer_that_waits_ends_with_the_stop_and_with_its_deadline(v: Variant) {
    let slow = server(v, Duration::from_millis(50));
    let mut client = slow.connect();
    client.send(&HEADER[..5]);
    client.expect_reset();
    assert!(slow.guests.lock().expect("not poisoned").is_empty());
    assert_eq!(slow.stop().closed_for(Closed::ByProtocol("")), 1);

    // A stop waits for what the layer waits for, and for the first request behind it.
    let stopping = server(v, Duration::from_secs(60));
    let mut client = stopping.connect();
    client.send(&HEADER[..5]);
    let mut marker = stopping.connect();
    marker.send(HEADER);
    marker.send(b"first");
    marker.expect(b"first");
    let record = stopping.record.clone();
    record.until("accepted", |_| stopping.loops.counters().open == 2);
    let stops = world::spawn(move || stopping.stop());
    marker.expect_end();
    drop(marker);
    client.send(&HEADER[5..]);
    client.send(b"late");
    client.expect(b"late");
    client.expect_end();
    drop(client);
    let counters = stops.join().expect("stopped");
    assert_eq!(counters.closed_for(Closed::Stopped), 2);
}
