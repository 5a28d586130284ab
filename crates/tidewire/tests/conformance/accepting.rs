//! Taking connections in: refusals, limits, listeners of all kinds, storms.

use std::collections::HashSet;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use socket2::SockRef;
use tidewire::{
    Endpoint, Engine, EngineChoice, Input, Limits, Listen, Next, Origin, Refusal, StartError,
    TcpOptions,
};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE, lonely};
use crate::fixture::Setup;
use crate::probe::{Context, Probes, Role};
use crate::process::eventually;
use crate::record::Record;
use crate::roles::{Echo, Receives, Rng, echo};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(
            acceptor_waits_for_loops_that_are_behind,
            on = |v| v.placement == tidewire::Placement::Acceptor
        ),
        case!(service_refuses),
        case!(connection_limit_refuses_and_recovers),
        case!(several_services_and_listeners),
        case!(ipv6),
        case!(inherited_listener),
        case!(peer_that_has_reset_before_it_is_accepted_has_its_address),
        case!(inherited_listener_that_is_shut_down),
        case!(port_in_use_is_an_error),
        case!(tcp_options_are_applied_or_refused),
        case!(engine_in_use_is_told, on = |v| v.is_plain()),
        case!(connections_are_spread_over_loops, on = |v| v.loops > 1),
        case!(loops_can_be_pinned),
        case!(connect_and_close_storm),
        case!(busy_polling_serves_and_counts),
    ]
}

fn service_refuses(v: Variant) {
    let server = Setup::on(v).start_with(|peer| {
        assert!(peer.endpoint.is_tcp() && peer.origin == Origin::Accepted(0));
        Err(Refusal::ByService("closed on Sundays"))
    });
    for _ in 0..5 {
        Client::connect_to_be_reset(server.addr());
    }
    let counters = server.stop();
    assert_eq!((counters.accepted, counters.open), (5, 0));
    assert_eq!(counters.refused_for(Refusal::ByService("")), 5);
    assert_eq!(counters.closed_total(), 0);
}

fn connection_limit_refuses_and_recovers(v: Variant) {
    let server = Setup::on(v).limits(|l| l.connections = 3).start(|| Echo);
    let mut within: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut within {
        client.send(b"x");
        client.expect(b"x");
    }
    Client::connect_to_be_reset(server.addr());
    Client::connect_to_be_reset(server.addr());
    server.until("the refusals", |c| {
        c.refused_for(Refusal::ConnectionLimit) == 2
    });
    within.pop();
    server.until("a place", |c| c.open == 2);
    let mut next = server.connect();
    next.send(b"y");
    next.expect(b"y");
    server.cut();
}

/// Two services on the same loops, the first of which listens twice.
struct Both {
    addrs: Vec<SocketAddr>,
    stop: Box<dyn FnOnce()>,
}

fn both(v: Variant, one: Probes, two: Probes) -> Both {
    if world::is_simulated() {
        let at = [lonely(), lonely(), lonely()];
        let loops = world::with(move |sim| {
            let loops = sim.add_loops(v.loops, v.placement);
            let one = sim.service(loops, one, Limits::default());
            let two = sim.service(loops, two, Limits::default());
            sim.listen_at(one, at[0]);
            sim.listen_at(two, at[1]);
            sim.listen_at(one, at[2]);
            loops
        });
        let stop = Box::new(move || {
            world::with(move |sim| sim.stop(loops, Duration::from_secs(10)));
            let stopped = world::wait(PATIENCE, move |sim| sim.stopped(loops).then_some(()));
            assert!(stopped.is_some(), "a stop takes longer than it may");
        });
        return Both {
            addrs: at.to_vec(),
            stop,
        };
    }
    let mut builder = v.builder();
    let (one, two) = (builder.service(one), builder.service(two));
    let any = || Listen::at(([127, 0, 0, 1], 0));
    assert_eq!(builder.listen(one, any()), 0);
    assert_eq!(builder.listen(two, any()), 1);
    assert_eq!(builder.listen(one, any()), 2);
    let running = builder.start().expect("the server starts");
    Both {
        addrs: running.addrs().iter().filter_map(Endpoint::tcp).collect(),
        stop: Box::new(move || drop(running.stop(Duration::from_secs(10)))),
    }
}

fn several_services_and_listeners(v: Variant) {
    let (echo_record, shout_record) = (Arc::new(Record::default()), Arc::new(Record::default()));
    let shouts = || {
        Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
            cx.link.write(&input.bytes().to_ascii_uppercase());
            input.consume(input.len());
            Next::More
        })
    };
    let Both { addrs, stop } = both(
        v,
        Probes::new(echo_record.clone(), || Echo),
        Probes::new(shout_record.clone(), shouts),
    );
    assert_eq!(addrs.iter().collect::<HashSet<_>>().len(), 3);
    let mut clients: Vec<Client> = (0..30).map(|i| Client::connect(addrs[i % 3])).collect();
    for round in 0..3 {
        for (i, client) in clients.iter_mut().enumerate() {
            let said = format!("hello {round} {i}");
            client.send(said.as_bytes());
            let want = if i % 3 == 1 {
                said.to_uppercase()
            } else {
                said
            };
            client.expect(want.as_bytes());
        }
    }
    drop(clients);
    echo_record.until("20 ends", |r| r.closed() == 20);
    shout_record.until("10 ends", |r| r.closed() == 10);
    stop();
    echo_record.check();
    shout_record.check();
    let by = |record: &Record, listener| {
        let inner = record.lock();
        let from = inner.origins.iter();
        from.filter(|o| **o == Origin::Accepted(listener)).count()
    };
    assert_eq!(
        [
            by(&echo_record, 0),
            by(&shout_record, 1),
            by(&echo_record, 2)
        ],
        [10; 3]
    );
}

fn ipv6(v: Variant) {
    let port = match world::is_simulated() {
        true => world::unused_port(),
        false if TcpListener::bind("[::1]:0").is_err() => return eprintln!("no IPv6 here"),
        false => 0,
    };
    let server = Setup::on(v).at((Ipv6Addr::LOCALHOST, port)).start(|| Echo);
    assert!(server.addr().is_ipv6());
    let mut client = server.connect();
    client.send(b"six");
    client.expect(b"six");
    drop(client);
    server.record.why_closed(0);
    server.stop();
}

/// An inherited listener also serves clients that waited in its queue before a loop ran.
fn inherited_listener(v: Variant) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut early = Client::connect(listener.local_addr().expect("bound"));
    early.send(b"early");
    let server = Setup::on(v)
        .listen(Listen::inherited(listener))
        .start(|| Echo);
    early.expect(b"early");
    let mut others: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    for client in &mut others {
        client.send(b"x");
        client.expect(b"x");
    }
    drop((early, others));
    server.record.until("11 ends", |r| r.closed() == 11);
    server.stop();
}

/// The listener can never accept again: nothing spins on it, and the other listener is served.
fn inherited_listener_that_is_shut_down(v: Variant) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let same = listener.try_clone().expect("a descriptor");
    let server = Setup::on(v)
        .listen(Listen::at(([127, 0, 0, 1], 0)))
        .listen(Listen::inherited(listener))
        .start(|| Echo);
    SockRef::from(&same)
        .shutdown(std::net::Shutdown::Both)
        .expect("a listener can be shut down");
    std::thread::sleep(Duration::from_millis(100));
    let before = server.counters().turns;
    std::thread::sleep(Duration::from_millis(300));
    let turns = server.counters().turns - before;
    assert!(turns < 100, "{turns} turns with nothing to do");
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    drop(client);
    server.record.why_closed(0);
    server.stop();
}

fn port_in_use_is_an_error(v: Variant) {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("bound");
    let mut builder = v.builder();
    let service = builder.service(Probes::new(Arc::default(), || Echo));
    builder.listen(service, Listen::at(addr));
    match builder.start() {
        Err(e @ StartError::Listen { .. }) => {
            assert!(e.to_string().contains(&addr.to_string()), "{e}");
        }
        other => panic!("{other:?}"),
    }
}

fn tcp_options_are_applied_or_refused(v: Variant) {
    let any = || Listen::at(([127, 0, 0, 1], 0));
    let all = TcpOptions {
        nodelay: false,
        keepalive: Some(Duration::from_secs(30)),
        backlog: 16,
        receive_buffer: Some(64 << 10),
        send_buffer: Some(64 << 10),
        congestion: Some("reno".into()),
        ipv6_only: true,
    };
    let server = Setup::on(v).listen(any().options(all)).start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    drop(client);
    server.record.why_closed(0);
    server.stop();
    let unknown = TcpOptions {
        congestion: Some("hope".into()),
        ..TcpOptions::default()
    };
    let mut builder = v.builder();
    let service = builder.service(Probes::new(Arc::default(), || Echo));
    builder.listen(service, any().options(unknown));
    assert!(matches!(builder.start(), Err(StartError::Listen { .. })));
}

fn engine_in_use_is_told(v: Variant) {
    let asked = v.builder().start().expect("it starts");
    assert_eq!(asked.engine().to_string(), v.name);
    assert_eq!(asked.engine_reason(), "asked for");
    let mut auto = v.builder();
    auto.engine(EngineChoice::Auto);
    let auto = auto.start().expect("it starts");
    assert_ne!(auto.engine(), Engine::Threads);
    assert!(
        auto.engine_reason().contains("io_uring"),
        "{}",
        auto.engine_reason()
    );
}

/// Notes which loop and which thread runs it.
struct Located(Arc<Mutex<Vec<(u32, ThreadId)>>>);

impl Role for Located {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let mut seen = self.0.lock().expect("no panic while it was held");
        seen.push((cx.number(), std::thread::current().id()));
        echo(input, cx)
    }
}

fn connections_are_spread_over_loops(v: Variant) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = seen.clone();
    let server = Setup::on(v).start(move || Located(theirs.clone()));
    let mut clients: Vec<Client> = (0..64).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"x");
        client.expect(b"x");
    }
    let seen = seen.lock().expect("no panic while it was held").clone();
    let loops: HashSet<_> = seen.iter().map(|(number, _)| number).collect();
    assert_eq!((seen.len(), loops.len()), (64, 2));
    if !world::is_simulated() {
        let threads: HashSet<_> = seen.iter().map(|(_, thread)| thread).collect();
        assert_eq!(threads.len(), 2);
    }
    if v.placement == tidewire::Placement::Acceptor {
        let first = seen.iter().filter(|at| at.0 == seen[0].0).count();
        assert_eq!(first, 32, "in turn");
    }
    drop(clients);
    server.record.until("64 ends", |r| r.closed() == 64);
    server.stop();
}

fn loops_can_be_pinned(v: Variant) {
    let server = Setup::on(v)
        .tune(|b| {
            b.cpus(&[0]);
        })
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                input.consume(input.len());
                let on = rustix::thread::sched_getaffinity(None).expect("its own affinity");
                cx.link.write(&[on.count() as u8]);
                Next::More
            })
        });
    let mut client = server.connect();
    client.send(b"?");
    client.expect(&[1]);
    drop(client);
    server.record.why_closed(0);
    server.stop();
}

/// Connections that come and go in every way at once.
fn connect_and_close_storm(v: Variant) {
    const EACH: u64 = 250;
    let server = Setup::on(v).start(|| Echo);
    let addr = server.addr();
    let storm: Vec<_> = (0..4u64)
        .map(|seed| {
            world::spawn(move || {
                let mut rng = Rng(seed);
                for _ in 0..EACH {
                    let mut client = Client::connect(addr);
                    match rng.between(0, 5) {
                        0 => {}
                        1 => client.reset(),
                        2 => client.send(b"gone before the answer"),
                        3 => {
                            client.send(b"cut before the answer");
                            client.reset();
                        }
                        4 => {
                            client.send(b"x");
                            client.expect(b"x");
                        }
                        _ => {
                            client.send(b"yz");
                            client.finish();
                            client.expect(b"yz");
                            client.expect_end();
                        }
                    }
                }
            })
        })
        .collect();
    for thread in storm {
        thread.join().expect("a storm");
    }
    // A client that was reset before it was accepted may never have been seen.
    server.until("all ends", |c| c.open == 0 && c.closed_total() >= EACH * 2);
    let mut client = server.connect();
    client.send(b"calm");
    client.expect(b"calm");
    drop(client);
    server.until("the end", |c| c.open == 0);
    let counters = server.stop();
    assert!(counters.accepted <= 4 * EACH + 1);
    assert_eq!(counters.accepted, counters.closed_total());
}

fn busy_polling_serves_and_counts(v: Variant) {
    let server = Setup::on(v)
        .tune(|b| {
            b.busy_poll(Duration::from_millis(2));
        })
        .start(|| Echo);
    let mut client = server.connect();
    for i in 0..500u32 {
        client.send(&i.to_be_bytes());
        client.expect(&i.to_be_bytes());
    }
    drop(client);
    server.record.why_closed(0);
    let counters = server.stop();
    assert!(counters.busy_poll_hits > 0, "{counters}");
}

/// More connections than fit the loops' inboxes: the acceptor keeps what it has, takes no more, and
/// goes on when there is room.
fn acceptor_waits_for_loops_that_are_behind(v: Variant) {
    /// Keeps its loop busy until the gate is open, then echoes.
    struct Gated(Arc<AtomicU64>);
    const OPEN: u64 = 1000;
    impl Role for Gated {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            self.0.fetch_add(1, SeqCst);
            while self.0.load(SeqCst) < OPEN {
                std::thread::yield_now();
            }
            echo(input, cx)
        }
    }
    let gate = Arc::<AtomicU64>::default();
    let theirs = gate.clone();
    let server = Setup::on(v)
        .tune(|b| {
            b.inbox(2);
        })
        .start(move || Gated(theirs.clone()));
    let mut clients = Vec::new();
    for i in 1..=v.loops as u64 {
        let mut client = server.connect();
        client.send(b"x");
        clients.push(client);
        eventually("a busy loop", || gate.load(SeqCst) == i);
    }
    for _ in 0..100 {
        let mut client = server.connect();
        client.send(b"x");
        clients.push(client);
    }
    server.until("a pause", |c| c.accept_pauses > 0);
    gate.store(OPEN, SeqCst);
    for client in &mut clients {
        client.expect(b"x");
    }
    drop(clients);
    server.until("all ends", |c| c.closed_total() == 100 + v.loops as u64);
    let counters = server.stop();
    assert_eq!(counters.accepted, 100 + v.loops as u64);
}

fn peer_that_has_reset_before_it_is_accepted_has_its_address(v: Variant) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = Client::connect(listener.local_addr().expect("bound"));
    let from = client.socket().local_addr().expect("bound");
    client.reset();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = seen.clone();
    let server = Setup::on(v)
        .listen(Listen::inherited(listener))
        .start_with(move |peer| {
            theirs.lock().expect("no panic").push(peer.endpoint.tcp());
            Ok(Box::new(Echo))
        });
    server.record.until("its end", |r| r.closed() == 1);
    assert_eq!(*seen.lock().expect("no panic"), [Some(from)]);
    server.stop();
}
