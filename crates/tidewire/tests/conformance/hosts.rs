//! Dials to hosts by their names: what is asked, which addresses are tried, and that nothing is left of what is given up.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::ScriptedNames;
use tidewire::{Dial, Input, Layered, Limits, Next, Origin, Peer, Target};

use crate::case::{Case, case};
use crate::client::Client;
use crate::dialling::deaf;
use crate::fixture::{Server, Setup};
use crate::hosting::host_with;
use crate::layers::{Inverts, inverted};
use crate::listener::{Listener, nobody};
use crate::probe::{Context, Probes, Role};
use crate::record::Record;
use crate::roles::{Echo, echo};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_host_is_dialled_by_its_name),
        case!(addresses_of_a_host_are_tried_until_one_answers),
        case!(an_address_that_does_not_answer_is_passed_by),
        case!(a_host_of_which_no_address_answers_times_out),
        case!(a_host_that_is_not_known_is_asked_for_as_often_as_there_are_attempts),
        case!(dials_to_one_host_ask_once),
        case!(answers_are_kept_for_their_time),
        case!(more_names_than_may_be_looked_up_are_refused),
        case!(localhost_is_known_without_a_resolver),
        case!(a_tied_dial_ends_with_its_connection),
        case!(a_tied_dial_ends_with_its_connection_inside_a_layer),
        case!(a_dial_is_given_up_by_its_token),
        case!(a_stop_gives_up_lookups_and_attempts),
    ]
}

/// A server that asks a script for names.
fn server(v: Variant, names: &ScriptedNames) -> Server {
    Setup::on(v).names(names).start(|| Echo)
}

fn host(port: u16) -> Dial {
    Dial::to(Target::host("One.Test", port).expect("a name"))
}

/// What is told of the dial with this token.
fn failure(record: &Record, token: u64) -> String {
    let of = |all: &[(u64, String)]| all.iter().find(|(t, _)| *t == token).cloned();
    record.until("a failed dial", |inner| of(&inner.dials_failed).is_some());
    let found = of(&record.lock().dials_failed);
    found.expect("it is there").1
}

fn serve(listener: &Listener) -> Client {
    let mut peer = listener.accept();
    peer.send(b"hello");
    peer.expect(b"hello");
    peer
}

fn a_host_is_dialled_by_its_name(v: Variant) {
    let names = ScriptedNames::default();
    let listener = Listener::new();
    names.know("one.test", [listener.addr().ip()]);
    let server = server(v, &names);
    server.dial(host(listener.addr().port()).token(77));
    drop(serve(&listener));
    server.record.why_closed(0);
    assert_eq!(server.record.lock().origins, [Origin::Dialled(77)]);
    let counters = server.stop();
    assert_eq!((counters.dialled, counters.dial_failures), (1, 0));
    assert_eq!((counters.lookups, counters.lookup_failures), (1, 0));
    assert_eq!(names.asked(), ["one.test"]);
}

/// Addresses of this machine without a listener.
fn others(of: SocketAddr, n: u8) -> Vec<IpAddr> {
    let IpAddr::V4(ip) = of.ip() else {
        panic!("not IPv4")
    };
    let [a, b, c, d] = ip.octets();
    let other = |i| [a, b.wrapping_add(100) | 1, c, d.wrapping_add(i)].into();
    (1..=n).map(other).collect()
}

fn addresses_of_a_host_are_tried_until_one_answers(v: Variant) {
    let names = ScriptedNames::default();
    let listener = Listener::new();
    let all = others(listener.addr(), 3).into_iter();
    names.know("one.test", all.chain([listener.addr().ip()]));
    let server = server(v, &names);
    server.dial(host(listener.addr().port()));
    drop(serve(&listener));
    server.record.why_closed(0);
    let counters = server.stop();
    assert_eq!((counters.dialled, counters.dial_failures), (1, 3));
}

/// A listener at another address with this one's port.
fn beside(of: SocketAddr) -> Listener {
    Listener::at((others(of, 1)[0], of.port()))
}

fn an_address_that_does_not_answer_is_passed_by(v: Variant) {
    let names = ScriptedNames::default();
    let (addr, deaf) = deaf();
    let listener = beside(addr);
    names.know("one.test", [addr.ip(), listener.addr().ip()]);
    let server = server(v, &names);
    for _ in 0..3 {
        server.dial(host(addr.port()));
    }
    let peers: Vec<Client> = (0..3).map(|_| serve(&listener)).collect();
    server.until("all", |c| (c.dialled, c.open) == (3, 3));
    drop(peers);
    server.until("all to end", |c| c.closed_total() == 3);
    let counters = server.stop();
    assert_eq!((counters.dialled, counters.dial_failures), (3, 0));
    drop(deaf);
}

fn a_host_of_which_no_address_answers_times_out(v: Variant) {
    let names = ScriptedNames::default();
    let (addr, deaf) = deaf();
    names.know("one.test", [addr.ip()]);
    let server = server(v, &names);
    let dial = host(addr.port())
        .timeout(Duration::from_millis(60))
        .attempts(2)
        .backoff(Duration::from_millis(1), Duration::from_millis(1));
    server.dial(dial.token(3));
    let error = failure(&server.record, 3);
    assert!(
        error.contains("one.test") && error.contains("timed out"),
        "{error}"
    );
    assert_eq!(server.stop().dial_failures, 2);
    drop(deaf);
}

fn a_host_that_is_not_known_is_asked_for_as_often_as_there_are_attempts(v: Variant) {
    let names = ScriptedNames::default();
    let server = server(v, &names);
    let dial = host(1)
        .attempts(3)
        .backoff(Duration::from_millis(1), Duration::from_millis(1));
    server.dial(dial.token(4));
    let error = failure(&server.record, 4);
    assert!(error.contains("no such host"), "{error}");
    names.know("one.test", []);
    server.dial(host(1).token(5));
    let error = failure(&server.record, 5);
    assert!(error.contains("no address"), "{error}");
    assert_eq!(names.asked().len(), 4);
    let counters = server.stop();
    assert_eq!((counters.lookups, counters.lookup_failures), (4, 3));
    assert_eq!(counters.dial_failures, 4);
}

fn dials_to_one_host_ask_once(v: Variant) {
    const DIALS: u64 = 5;
    let names = ScriptedNames::default();
    let listener = Listener::new();
    names.hold("one.test");
    let server = server(v, &names);
    for token in 0..DIALS {
        server.dial(host(listener.addr().port()).token(token));
    }
    server.until("all to ask", |c| c.lookups == DIALS);
    let held = names.held();
    assert_eq!(held.len(), 1);
    let mut lookup = held.into_iter().next().expect("one");
    assert!(lookup.is_wanted());
    // None of the first part answers.
    lookup.found(others(listener.addr(), 1));
    server.until("all to fail", |c| c.dial_failures == DIALS);
    lookup.finish([listener.addr().ip()]);
    let peers: Vec<Client> = (0..DIALS).map(|_| serve(&listener)).collect();
    drop(peers);
    server.until("all to end", |c| c.closed_total() == DIALS);
    assert_eq!(server.stop().dialled, DIALS);
}

fn answers_are_kept_for_their_time(v: Variant) {
    let names = ScriptedNames::default();
    let listener = Listener::new();
    let ip = [listener.addr().ip()];
    names.keep("one.test", ip, Duration::from_secs(3600));
    let server = server(v, &names);
    for _ in 0..3 {
        server.dial(host(listener.addr().port()));
        drop(serve(&listener));
    }
    assert_eq!(names.asked().len(), 1);
    names.keep("two.test", ip, Duration::ZERO);
    for _ in 0..3 {
        server.dial(Dial::to(format!("two.test:{}", listener.addr().port())));
        drop(serve(&listener));
    }
    assert_eq!(names.asked().len(), 4);
    server.until("all to end", |c| c.closed_total() == 6);
    assert_eq!(server.stop().lookups, 6);
}

fn more_names_than_may_be_looked_up_are_refused(v: Variant) {
    if v.is_simulated() {
        // The bound is the builder's: `reach/names.rs` has the same without loops.
        return;
    }
    let names = ScriptedNames::default();
    names.hold("one.test");
    names.hold("two.test");
    let setup = Setup::on(v).names(&names).tune(|b| {
        b.lookups(1);
    });
    let server = setup.start(|| Echo);
    server.dial(host(1).token(1));
    server.until("a lookup", |c| c.lookups == 1);
    server.dial(Dial::to("two.test:1").token(2));
    let error = failure(&server.record, 2);
    assert!(error.contains("as many names"), "{error}");
    assert_eq!(server.counters().lookups_refused, 1);
    drop(names.held());
    let error = failure(&server.record, 1);
    assert!(error.contains("gave no answer"), "{error}");
    server.stop();
}

fn localhost_is_known_without_a_resolver(v: Variant) {
    let names = ScriptedNames::default();
    let listener = match world::is_simulated() {
        true => Listener::at(([127, 0, 0, 1], world::unused_port())),
        false => Listener::at(([127, 0, 0, 1], 0)),
    };
    let server = server(v, &names);
    for name in ["localhost", "a.LocalHost."] {
        server.dial(Dial::to(format!("{name}:{}", listener.addr().port())));
        drop(serve(&listener));
    }
    server.until("all to end", |c| c.closed_total() == 2);
    let counters = server.stop();
    assert_eq!((counters.dialled, counters.lookups), (2, 0));
    assert!(names.asked().is_empty());
}

/// Dials to `to` for each byte that it gets, and says `b'c'` to give that up.
struct Dials {
    to: Target,
    origin: Origin,
}

impl Role for Dials {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if matches!(self.origin, Origin::Dialled(_)) {
            return echo(input, cx);
        }
        match input.bytes()[0] {
            b'c' => cx.cancel_dial(9),
            _ => cx.dial(Dial::to(&self.to).token(9).tied()),
        }
        echo(input, cx)
    }
}

fn dials(to: &Target) -> impl Fn(&Peer) -> Box<dyn Role> + Send + Sync + 'static {
    let to = to.clone();
    move |peer| {
        Box::new(Dials {
            to: to.clone(),
            origin: peer.origin,
        })
    }
}

/// While its name is looked up, while its address is connected to, and with an address from the start.
fn a_tied_dial_ends_with_its_connection(v: Variant) {
    let names = ScriptedNames::default();
    names.hold("one.test");
    let (addr, deaf) = deaf();
    names.know("two.test", [addr.ip()]);
    for (n, to) in [
        Target::host("one.test", addr.port()).expect("a name"),
        Target::host("two.test", addr.port()).expect("a name"),
        addr.into(),
    ]
    .into_iter()
    .enumerate()
    {
        let make = dials(&to);
        let setup = Setup::on(v).names(&names);
        let server = setup.start_with(move |peer| Ok(make(peer)));
        let mut client = server.connect();
        client.send(b"d");
        client.expect(b"d");
        if n < 2 {
            server.until("a lookup", |c| c.lookups == 1);
        }
        drop(client);
        let error = failure(&server.record, 9);
        assert!(error.contains("has ended"), "{error}");
        let held = names.held();
        assert_eq!(held.len(), usize::from(n == 0));
        assert!(held.iter().all(|lookup| !lookup.is_wanted()));
        let counters = server.stop();
        assert_eq!((counters.dialled, counters.dial_failures), (0, 1));
    }
    drop(deaf);
}

fn a_tied_dial_ends_with_its_connection_inside_a_layer(v: Variant) {
    let names = ScriptedNames::default();
    names.hold("one.test");
    let record = Arc::<Record>::default();
    let make = dials(&Target::host("one.test", 1).expect("a name"));
    let probes = Probes {
        record: record.clone(),
        make: Box::new(move |peer: &Peer| Ok(make(peer))),
        woken: None,
        keep_handles: false,
    };
    let loops = host_with(v, Layered::new(Inverts, probes), Limits::default(), &names);
    let mut client = Client::connect(loops.addr());
    client.send(&inverted(b"d"));
    client.expect(&inverted(b"d"));
    drop(client);
    let error = failure(&record, 9);
    assert!(error.contains("has ended"), "{error}");
    assert!(names.held().iter().all(|lookup| !lookup.is_wanted()));
    loops.stop(Duration::from_secs(10));
}

fn a_dial_is_given_up_by_its_token(v: Variant) {
    let names = ScriptedNames::default();
    names.hold("one.test");
    let make = dials(&Target::host("one.test", 1).expect("a name"));
    let setup = Setup::on(v).names(&names);
    let server = setup.start_with(move |peer| Ok(make(peer)));
    let mut client = server.connect();
    client.send(b"d");
    client.expect(b"d");
    server.until("a lookup", |c| c.lookups == 1);
    client.send(b"c");
    client.expect(b"c");
    let error = failure(&server.record, 9);
    assert!(error.contains("given up"), "{error}");
    // An answer that comes later goes to no dial.
    let held = names.held().pop().expect("asked");
    assert!(!held.is_wanted());
    held.finish([nobody().ip()]);
    client.send(b"d");
    client.expect(b"d");
    server.until("another", |c| c.lookups == 2);
    drop(client);
    assert_eq!(names.held().len(), 1);
    server.until("both to fail", |c| c.dial_failures == 2);
    server.stop();
}

fn a_stop_gives_up_lookups_and_attempts(v: Variant) {
    let names = ScriptedNames::default();
    names.hold("one.test");
    let (addr, deaf) = deaf();
    names.know("two.test", [addr.ip()]);
    let server = server(v, &names);
    server.dial(host(addr.port()).token(1).attempts(5));
    server.dial(Dial::to(format!("two.test:{}", addr.port())).token(2));
    server.until("both", |c| c.lookups == 2);
    let record = server.record.clone();
    let counters = server.stop();
    for token in [1, 2] {
        let error = failure(&record, token);
        assert!(error.contains("stopping"), "{error}");
    }
    assert_eq!((counters.dialled, counters.dial_failures), (0, 2));
    let held = names.held().pop().expect("asked");
    held.finish([addr.ip()]);
    drop(deaf);
}
