//! What a peer sends together with its end: a turn of a loop may hear of both at once, and in what order depends on the engine.
//! What came before the end is served, and what was answered is sent, plain and inside layers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidewire::fault::Faults;
use tidewire::proxy::Proxy;
use tidewire::trace::Tracer;
use tidewire::{
    Around, Closed, Input, Layer, Layered, Limits, Listen, Next, Peer, Refusal, Service, Wrap,
};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::{Loops, Real, host};
use crate::layers::{Inverts, inverted};
use crate::pieces::hold_loop_of;
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
        case!(an_abort_at_the_end_sends_what_was_answered),
        case!(an_abort_at_an_end_inside_layers_sends_what_was_answered),
        case!(an_abort_after_a_continued_reply_has_sent_it),
        case!(a_send_that_fails_takes_no_input_with_it),
        case!(a_send_that_fails_inside_layers_takes_no_input_with_it),
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

/// Connections of this role.
fn probes<R: Role>(make: impl Fn() -> R + Send + Sync + 'static) -> (Probes, Arc<Record>) {
    let record = Arc::<Record>::default();
    let probes = Probes {
        record: record.clone(),
        make: Box::new(move |_: &Peer| Ok(Box::new(make()) as Box<dyn Role>)),
        woken: None,
        keep_handles: true,
    };
    (probes, record)
}

/// An echo inside this layer.
fn inside<W: Wrap>(v: Variant, wrap: W) -> (Loops<Layered<W, Probes>>, Arc<Record>) {
    let (probes, record) = probes(|| Echo);
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

fn an_abort_at_the_end_sends_what_was_answered(v: Variant) {
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

/// A layer in which a byte of zero is the end of what a peer sends, while its connection goes on.
struct Farewells;

impl Wrap for Farewells {
    type Layer = Farewells;

    fn wrap(&self, _: &Peer) -> Result<Option<Farewells>, Refusal> {
        Ok(Some(Farewells))
    }
}

impl Layer for Farewells {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Farewells>) {
        let peer = at.peer().clone();
        let _ = at.accept(peer);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Farewells>,
    ) -> Next {
        let said = input.bytes().iter().position(|&byte| byte == 0);
        at.received(&input.bytes()[..said.unwrap_or(input.len())]);
        if said.is_some() {
            at.peer_finished();
        }
        input.consume(input.len());
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Farewells>) {
        at.take_output(|link, bytes| {
            link.write(bytes);
            bytes.len()
        });
    }
}

fn an_abort_at_an_end_inside_layers_sends_what_was_answered(v: Variant) {
    fn of<S: Service>(v: Variant, service: S, record: &Record) {
        let loops = host(v, service, Limits::default());
        for n in 0..CLIENTS {
            let mut client = loops.connect();
            client.send(b"hello\0");
            client.expect(REQUEST);
            client.expect_reset();
            let ended = Event::Closed(Closed::Aborted);
            record.until("the end", |r| r.has(n, &ended));
        }
        loops.stop(Duration::from_secs(10));
        record.check();
    }
    let (service, record) = probes(|| Offended);
    of(v, Layered::new(Farewells, service), &record);
    let (service, record) = probes(|| Offended);
    let within = Layered::new(Farewells, service);
    of(v, Layered::new(tracer(), within), &record);
}

/// Answers in two pieces, the second of them when the first has drained, and wants nothing to do with a peer that leaves.
#[derive(Default)]
struct InTwo {
    began: bool,
}

static FIRST: [u8; 100_000] = [1; 100_000];
const SECOND: [u8; 10] = [2; 10];

impl Role for InTwo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        input.consume(input.len());
        if std::mem::replace(&mut self.began, true) {
            cx.link.write(&SECOND);
            return Next::More;
        }
        cx.link.write(&FIRST);
        Next::AfterDrain
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        cx.link.abort();
    }
}

fn an_abort_after_a_continued_reply_has_sent_it(v: Variant) {
    fn of(connect: impl Fn() -> Client, record: &Record) {
        for n in 0..CLIENTS {
            let mut client = connect();
            client.send(REQUEST);
            client.finish();
            client.expect(&FIRST);
            client.expect(&SECOND);
            client.expect_reset();
            let ended = Event::Closed(Closed::Aborted);
            record.until("the end", |r| r.has(n, &ended));
        }
        record.check();
    }
    let server = Setup::on(v).start(InTwo::default);
    of(|| server.connect(), &server.record);
    server.stop();
    let (service, record) = probes(InTwo::default);
    let loops = host(v, Layered::new(tracer(), service), Limits::default());
    of(|| loops.connect(), &record);
    loops.stop(Duration::from_secs(10));
}

/// Says a word about each chunk.
struct Acknowledges;

impl Role for Acknowledges {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        input.consume(input.len());
        cx.link.write(b"had it");
        Next::More
    }
}

const CHUNK: usize = 4 << 10;
/// Several chunks, and less than a kernel's first receive window.
const FLIGHT: usize = 40_000;

/// Clients that send more than a chunk and a reset before their connection's loop looks: its first reply cannot be sent.
fn fail_sends(connect: impl Fn() -> Client, record: &Record, on_the_wire: fn(&[u8]) -> Vec<u8>) {
    const FEW: u64 = 10;
    for n in 0..FEW {
        let mut client = connect();
        record.until("the connection", |r| r.has(n, &Event::Opened));
        let release = hold_loop_of(record, n);
        client.send(&on_the_wire(&[7; FLIGHT]));
        client.reset();
        drop(release);
        let ended = Event::Closed(Closed::Reset);
        record.until("the end", |r| r.has(n, &ended));
    }
    assert_eq!(record.consumed(), FEW * FLIGHT as u64);
    record.check();
}

fn a_send_that_fails_takes_no_input_with_it(v: Variant) {
    let setup = Setup::on(v).chunk(CHUNK).reachable();
    let server = setup.start(|| Acknowledges);
    fail_sends(|| server.connect(), &server.record, as_it_is);
    server.stop();
}

fn a_send_that_fails_inside_layers_takes_no_input_with_it(v: Variant) {
    fn of<W: Wrap>(v: Variant, wrap: W, on_the_wire: fn(&[u8]) -> Vec<u8>) {
        let (service, record) = probes(|| Acknowledges);
        let mut builder = v.builder();
        builder.chunk(CHUNK);
        let any = vec![Listen::at(([127, 0, 0, 1], 0))];
        let service = Layered::new(wrap, service);
        let real = Real::start(builder, service, Limits::default(), any);
        let loops = Loops::Real(Box::new(real));
        fail_sends(|| loops.connect(), &record, on_the_wire);
        loops.stop(Duration::from_secs(10));
    }
    of(v, Inverts, inverted);
    of(v, tracer(), as_it_is);
}
