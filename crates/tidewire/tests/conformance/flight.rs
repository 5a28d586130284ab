//! What a peer sends together with its end: a turn of a loop may hear of both at once, and in what order depends on the engine.
//! What came before the end is served, and what was answered is sent, plain and inside layers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidewire::fault::Faults;
use tidewire::proxy::Proxy;
use tidewire::trace::Tracer;
use tidewire::{Closed, Input, Layered, Limits, Next, Peer, Wrap};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::{Loops, host};
use crate::layers::{Inverts, inverted};
use crate::probe::{Context, Probes, Role};
use crate::record::{Event, Record};
use crate::roles::{Echo, echo};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(what_comes_with_the_end_is_answered),
        case!(what_comes_with_the_end_is_answered_inside_layers),
        case!(what_comes_with_a_reset_is_received),
        case!(what_comes_with_a_reset_is_received_inside_layers),
        case!(who_aborts_at_the_end_has_sent_what_it_answered),
    ]
}

const CLIENTS: u64 = 30;
const REQUEST: &[u8] = b"hello";

fn as_it_is(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn behind_a_proxy(bytes: &[u8]) -> Vec<u8> {
    [b"PROXY TCP4 198.51.100.9 192.0.2.1 5 6\r\n", bytes].concat()
}

/// Clients one after the other, each of which sends a request and its end at once.
fn ends(mut connect: impl FnMut() -> Client, on_the_wire: fn(&[u8]) -> Vec<u8>, answer: &[u8]) {
    for _ in 0..CLIENTS {
        let mut client = connect();
        client.send(&on_the_wire(REQUEST));
        client.finish();
        client.expect(answer);
        client.expect_end();
    }
}

fn resets(mut connect: impl FnMut() -> Client, on_the_wire: fn(&[u8]) -> Vec<u8>, of: &Record) {
    for n in 1..=CLIENTS {
        let mut client = connect();
        client.send(&on_the_wire(REQUEST));
        client.reset();
        of.until("the end", |r| r.closed() == n);
    }
    assert_eq!(of.consumed(), CLIENTS * REQUEST.len() as u64);
}

/// An echo inside this layer.
fn inside<W: Wrap>(v: Variant, wrap: W) -> (Loops<Layered<W, Probes>>, Arc<Record>) {
    let record = Arc::<Record>::default();
    let probes = Probes {
        record: record.clone(),
        make: Box::new(|_: &Peer| Ok(Box::new(Echo) as Box<dyn Role>)),
        woken: None,
        keep_handles: false,
    };
    let loops = host(v, Layered::new(wrap, probes), Limits::default());
    (loops, record)
}

fn proxy() -> Proxy {
    let local = ["127.0.0.0/8", "10.0.0.0/8"].map(|text| text.parse().expect("a network"));
    Proxy::from(local)
}

/// A network that splits what comes, and delays some of it.
fn faults() -> Faults {
    let (least, most) = (Duration::from_micros(10), Duration::from_millis(2));
    Faults::none(7).splits(2, 3).delays(4, least..=most)
}

fn tracer() -> Tracer {
    Tracer::named("echo").words(io::sink())
}

fn what_comes_with_the_end_is_answered(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    ends(|| server.connect(), as_it_is, REQUEST);
    server.stop();
}

fn what_comes_with_the_end_is_answered_inside_layers(v: Variant) {
    fn of<W: Wrap>(v: Variant, wrap: W, on_the_wire: fn(&[u8]) -> Vec<u8>, answer: &[u8]) {
        let (loops, record) = inside(v, wrap);
        ends(|| loops.connect(), on_the_wire, answer);
        let counters = loops.stop(Duration::from_secs(10));
        record.check();
        assert_eq!(counters.closed_for(Closed::Finished), CLIENTS);
    }
    of(v, Inverts, inverted, &inverted(REQUEST));
    of(v, proxy(), behind_a_proxy, REQUEST);
    of(v, faults(), as_it_is, REQUEST);
    of(v, tracer(), as_it_is, REQUEST);
}

fn what_comes_with_a_reset_is_received(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    resets(|| server.connect(), as_it_is, &server.record);
    server.stop();
}

fn what_comes_with_a_reset_is_received_inside_layers(v: Variant) {
    fn of<W: Wrap>(v: Variant, wrap: W, on_the_wire: fn(&[u8]) -> Vec<u8>) {
        let (loops, record) = inside(v, wrap);
        resets(|| loops.connect(), on_the_wire, &record);
        loops.stop(Duration::from_secs(10));
        record.check();
    }
    of(v, Inverts, inverted);
    of(v, proxy(), behind_a_proxy);
    of(v, tracer(), as_it_is);
}

/// Answers, and wants nothing to do with a peer that leaves.
struct Offended;

impl Role for Offended {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        echo(input, cx)
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        cx.link.abort();
    }
}

fn who_aborts_at_the_end_has_sent_what_it_answered(v: Variant) {
    let server = Setup::on(v).start(|| Offended);
    for n in 0..CLIENTS {
        let mut client = server.connect();
        client.send(REQUEST);
        client.finish();
        client.expect(REQUEST);
        client.expect_reset();
        let ended = Event::Closed(Closed::Aborted);
        server.record.until("the end", |r| r.has(n, &ended));
    }
    server.stop();
}
