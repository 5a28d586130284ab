//! Which clients are let in: limits for each address and network, rates, lists, what refused
//! clients hear, and that places come back, whatever becomes of a connection.

use std::borrow::Cow;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tidewire::admission::{Admission, Rules};
use tidewire::proxy::Proxy;
use tidewire::{
    Counters, Endpoint, Input, Layered, Limits, Listen, LoopHandle, Next, Peer, Placement, Refusal,
    Service,
};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::host_behind;
use crate::probe::{Context, Message, OnLoop, Probe, Probes, Role};
use crate::process::eventually;
use crate::record::{ON_PURPOSE, Record};
use crate::roles::{Echo, Receives, echo};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(an_address_and_its_network_have_limits),
        case!(rates_are_kept_in_all_and_for_each_address),
        case!(lists_decide_which_clients_may_connect),
        case!(an_ipv4_client_of_an_ipv6_listener_is_in_ipv4_networks),
        case!(listener_service_and_all_have_rules_of_their_own),
        case!(a_refused_client_hears_it_in_the_services_words),
        case!(places_come_back_from_connections_that_panicked_or_were_refused),
        case!(a_proxys_clients_are_counted_and_the_proxy_is_not),
        case!(unix_sockets_are_counted_and_listed),
        case!(a_flood_that_is_refused_leaves_the_others_alone),
        case!(
            least_connections_fills_the_emptiest_first,
            on = |v| v.placement == Placement::Acceptor
        ),
    ]
}

fn from(host: [u8; 2]) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, host[0], host[1])
}

/// A client with an address of its own.
fn connect_from(host: [u8; 2], to: SocketAddr) -> Client {
    try_from(host, to).expect("the server accepts")
}

fn try_from(host: [u8; 2], to: SocketAddr) -> io::Result<Client> {
    Client::try_connect_from((from(host), 0).into(), to)
}

fn is_served(client: &mut Client) {
    client.send(b"x");
    client.expect(b"x");
}

fn served_from(host: [u8; 2], to: SocketAddr) -> Client {
    let mut client = connect_from(host, to);
    is_served(&mut client);
    client
}

/// By a reset, perhaps before it knows that it is connected.
fn refused_from(host: [u8; 2], to: SocketAddr) {
    match try_from(host, to) {
        Ok(mut client) => client.expect_reset(),
        Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
    }
}

fn rules(set: impl FnOnce(&mut Rules)) -> Admission {
    let mut rules = Rules::default();
    set(&mut rules);
    Admission::new(rules)
}

fn an_address_and_its_network_have_limits(v: Variant) {
    let admission = rules(|r| (r.per_address, r.per_prefix) = (Some(2), Some(3)));
    let theirs = admission.clone();
    let server = Setup::on(v).admission(theirs).start(|| Echo);
    let to = server.addr();
    let mut within: Vec<Client> = (0..2).map(|_| served_from([1, 1], to)).collect();
    refused_from([1, 1], to);
    within.push(served_from([1, 2], to));
    refused_from([1, 3], to);
    within.push(served_from([2, 1], to));
    server.until("the refusals", |c| {
        let refused = |why| c.refused_for(why);
        (
            refused(Refusal::AddressLimit),
            refused(Refusal::PrefixLimit),
        ) == (1, 1)
    });
    within.remove(0);
    server.until("a place", |c| c.open == 3);
    within.push(served_from([1, 1], to));
    drop(within);
    server.until("the ends", |c| c.open == 0);
    assert_eq!((admission.open(), admission.sources()), (0, 0));
    server.stop();
}

fn rates_are_kept_in_all_and_for_each_address(v: Variant) {
    let admission = rules(|r| {
        r.rate = Some("4/h".parse().expect("a rate"));
        r.rate_per_address = Some("2/h".parse().expect("a rate"));
    });
    let server = Setup::on(v).admission(admission).start(|| Echo);
    let to = server.addr();
    // Each arrival counts, though each client is gone before the next.
    for _ in 0..2 {
        drop(served_from([3, 1], to));
    }
    for _ in 0..3 {
        refused_from([3, 1], to);
    }
    for _ in 0..2 {
        drop(served_from([3, 2], to));
    }
    refused_from([3, 3], to);
    server.until("the refusals", |c| {
        let refused = |why| c.refused_for(why);
        (refused(Refusal::AddressRate), refused(Refusal::AcceptRate)) == (3, 1)
    });
    server.cut();
}

fn lists_decide_which_clients_may_connect(v: Variant) {
    let network = |text: &str| text.parse().expect("a network");
    let admission = rules(|r| {
        r.allow = vec![network("127.77.4.0/24"), network("127.77.5.9")];
        r.deny = vec![network("127.77.4.128/25")];
    });
    let server = Setup::on(v).admission(admission).start(|| Echo);
    let to = server.addr();
    let _within = [served_from([4, 1], to), served_from([5, 9], to)];
    for host in [[4, 128], [5, 8], [6, 1]] {
        refused_from(host, to);
    }
    server.until("the refusals", |c| c.refused_for(Refusal::Denied) == 3);
    server.cut();
}

/// A socket that takes both families tells of IPv4 clients in IPv6's clothes.
fn an_ipv4_client_of_an_ipv6_listener_is_in_ipv4_networks(v: Variant) {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    if socket.set_only_v6(false).is_err() || socket.bind(&any.into()).is_err() {
        return eprintln!("no IPv6 here");
    }
    socket.listen(64).expect("it listens");
    let port = socket
        .local_addr()
        .ok()
        .and_then(|a| a.as_socket())
        .expect("bound")
        .port();
    let admission = rules(|r| {
        r.deny = vec!["127.77.7.0/24".parse().expect("a network")];
        r.per_prefix = Some(1);
    });
    let server = Setup::on(v)
        .listen(Listen::inherited(socket).admission(admission))
        .start(|| Echo);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    refused_from([7, 1], to);
    let _within = served_from([8, 1], to);
    refused_from([8, 2], to);
    server.until("the refusals", |c| {
        (
            c.refused_for(Refusal::Denied),
            c.refused_for(Refusal::PrefixLimit),
        ) == (1, 1)
    });
    server.cut();
}

fn listener_service_and_all_have_rules_of_their_own(v: Variant) {
    let record = Arc::new(Record::default());
    let most = |n| rules(move |r| r.connections = Some(n));
    let (all, own, first) = (most(4), most(3), most(2));
    let mut builder = v.builder();
    let one = builder.service(Probes::new(record.clone(), || Echo));
    let two = builder.service(Probes::new(record.clone(), || Echo));
    let any = || Listen::at(([127, 0, 0, 1], 0));
    builder
        .admission(all.clone())
        .admission_of(one, own.clone());
    builder.listen(one, any().admission(first.clone()));
    builder.listen(one, any());
    builder.listen(two, any());
    let running = builder.start().expect("the server starts");
    let to: Vec<SocketAddr> = running
        .addrs()
        .iter()
        .filter_map(tidewire::Endpoint::tcp)
        .collect();
    let mut within = vec![served_from([9, 1], to[0]), served_from([9, 1], to[0])];
    refused_from([9, 1], to[0]); // the listener is full
    within.push(served_from([9, 1], to[1]));
    refused_from([9, 1], to[1]); // the service is
    within.push(served_from([9, 1], to[2]));
    refused_from([9, 1], to[2]); // and now all are
    assert_eq!((first.open(), own.open(), all.open()), (2, 3, 4));
    drop(within);
    record.until("the ends", |r| r.closed() == 4);
    eventually("all places", || first.open() + own.open() + all.open() == 0);
    let counters = running.stop(Duration::from_secs(10));
    assert_eq!(counters.refused_for(Refusal::ConnectionLimit), 3);
    record.check();
}

const WORDS: &[u8] = b"-full, come back later\r\n";

/// The service of probes, with a word for refused clients.
struct Polite(Probes);

impl Service for Polite {
    type Conn = Probe;

    fn on_loop(&self, at: LoopHandle<Message>) -> OnLoop {
        self.0.on_loop(at)
    }

    fn accept(&self, from: &Peer, local: &mut OnLoop) -> Result<Probe, Refusal> {
        self.0.accept(from, local)
    }

    fn refusal_reply(&self, why: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
        assert_ne!(why, Refusal::Panicked, "has no words, and panics");
        why.is_temporary().then_some(Cow::Borrowed(WORDS))
    }
}

fn a_refused_client_hears_it_in_the_services_words(v: Variant) {
    let record = Arc::new(Record::default());
    let refused_inside = |peer: &Peer| match peer.endpoint.ip() {
        Some(ip) if ip == from([10, 9]) => Err(Refusal::MemoryLimit),
        _ => Ok(Box::new(Echo) as Box<dyn Role>),
    };
    let probes = Probes {
        make: Box::new(refused_inside),
        ..Probes::new(record.clone(), || Echo)
    };
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let denied = rules(|r| r.deny = vec!["127.77.11.0/24".parse().expect("a network")]);
    let server = host_behind(v, Polite(probes), limits, Some(denied));
    let to = server.addr();
    // A client that the service itself refuses, which is known on the loop that would carry it.
    let mut inside = connect_from([10, 9], to);
    assert_eq!(inside.rest(), WORDS);
    let _within = [served_from([10, 1], to), served_from([10, 1], to)];
    for early in [true, false] {
        let mut client = connect_from([10, 2], to);
        if early {
            // What a client has said by itself must not turn the words into a reset.
            client.send(b"a request, sent before anything was heard");
        }
        assert_eq!(client.rest(), WORDS);
        // The client may still be sending.
        client.try_send(b"more");
    }
    refused_from([11, 1], to); // who is denied hears nothing
    // More of them than are kept, at once.
    let many: Vec<Client> = (0..200).map(|_| connect_from([10, 3], to)).collect();
    for mut client in many {
        assert_eq!(client.rest(), WORDS);
    }
    let refused = |c: &Counters, why| c.refused_for(why);
    let counters = server.stop(Duration::from_secs(10));
    assert_eq!(refused(&counters, Refusal::MemoryLimit), 1);
    assert_eq!(refused(&counters, Refusal::ConnectionLimit), 202);
    assert_eq!(refused(&counters, Refusal::Denied), 1);
    assert_eq!((counters.accepted, counters.open), (206, 0));
}

fn places_come_back_from_connections_that_panicked_or_were_refused(v: Variant) {
    let admission = rules(|r| (r.per_address, r.per_prefix) = (Some(1), Some(1)));
    let theirs = admission.clone();
    let server = Setup::on(v)
        .limits(|l| l.connections = 1)
        .admission(theirs)
        .start_with(|peer| match peer.endpoint.ip() {
            Some(ip) if ip == from([12, 1]) => Err(Refusal::ByService("closed on Sundays")),
            Some(ip) if ip == from([12, 2]) => panic!("{ON_PURPOSE}"),
            _ => Ok(Box::new(Receives(
                |input: &mut Input<'_>, cx: &mut Context<'_>| match input.bytes() {
                    b"panic" => panic!("{ON_PURPOSE}"),
                    b"abort" => {
                        cx.link.abort();
                        Next::More
                    }
                    _ => echo(input, cx),
                },
            ))),
        });
    let to = server.addr();
    for round in 1..=10 {
        refused_from([12, 1], to);
        refused_from([12, 2], to);
        for said in [&b"panic"[..], b"abort"] {
            let mut client = served_from([12, 3], to);
            client.send(said);
            client.expect_reset();
            server.until("the end", |c| c.open == 0);
        }
        served_from([12, 3], to).reset();
        let whole = 3 * round;
        server.until("the ends", |c| c.closed_total() == whole && c.open == 0);
        eventually("its place", || admission.open() == 0);
    }
    assert_eq!(admission.sources(), 0);
    server.cut();
}

fn a_proxys_clients_are_counted_and_the_proxy_is_not(v: Variant) {
    let record = Arc::new(Record::default());
    let admission = rules(|r| {
        r.per_address = Some(2);
        r.deny = vec!["203.0.113.0/24".parse().expect("a network")];
        r.connections = Some(12);
    });
    let proxy = Proxy::from(["127.77.13.0/24".parse().expect("a network")]);
    let polite = Polite(Probes::new(record.clone(), || Echo));
    let service = Layered::new(proxy, polite);
    let server = host_behind(v, service, Limits::default(), Some(admission.clone()));
    let to = server.addr();
    let through = |client: &str| {
        let mut proxy = connect_from([13, 1], to);
        proxy.send(format!("PROXY TCP4 {client} 192.0.2.1 5 6\r\nx").as_bytes());
        proxy
    };
    let mut within = Vec::new();
    for client in [
        "198.51.100.1",
        "198.51.100.2",
        "198.51.100.1",
        "198.51.100.3",
    ] {
        let mut conn = through(client);
        conn.expect(b"x");
        within.push(conn);
    }
    // Another path around the proxy counts with it.
    assert_eq!(through("198.51.100.1").rest(), WORDS);
    through("203.0.113.7").expect_reset();
    // A client that is no proxy counts by its own address, and cannot pretend.
    let mut direct: Vec<Client> = (0..2).map(|_| served_from([14, 1], to)).collect();
    assert_eq!(connect_from([14, 1], to).rest(), WORDS);
    direct[0].send(b"PROXY TCP4 198.51.100.9 192.0.2.1 5 6\r\n");
    direct[0].expect(b"PROXY TCP4 198.51.100.9 192.0.2.1 5 6\r\n");
    let counters = || server.counters();
    eventually("the refusals", || {
        let refused = |why| counters().refused_for(why);
        (refused(Refusal::AddressLimit), refused(Refusal::Denied)) == (2, 1)
    });
    drop((within, direct));
    eventually("the ends", || counters().open == 0);
    assert_eq!((admission.open(), admission.sources()), (0, 0));
    server.stop(Duration::from_secs(10));
    record.check();
}

fn unix_sockets_are_counted_and_listed(v: Variant) {
    let name = format!("unix:@tidewire-admission-{}-{}", std::process::id(), v.name);
    let server = |admission: Admission| {
        let at: Endpoint = name.parse().expect("an endpoint");
        let setup = Setup::on(v);
        if world::is_simulated() {
            return setup.at(at).admission(admission).start(|| Echo);
        }
        let listen = Listen::at(at).admission(admission);
        setup.listen(listen).start(|| Echo)
    };
    let served = |server: &crate::fixture::Server| {
        let mut client = Client::try_connect_unix(&server.addrs()[0]).ok()?;
        let mut back = [0];
        let answered =
            client.try_send(b"x") && io::Read::read(&mut client, &mut back).is_ok_and(|n| n == 1);
        answered.then_some(client)
    };
    let tcp_only = server(rules(|r| {
        r.allow = vec!["0.0.0.0/0".parse().expect("a network")]
    }));
    assert!(served(&tcp_only).is_none());
    assert_eq!(tcp_only.cut().refused_for(Refusal::Denied), 1);
    let two = server(rules(|r| {
        r.allow = vec!["unix".parse().expect("a network")];
        (r.connections, r.per_address) = (Some(2), Some(1));
    }));
    let within = (served(&two), served(&two));
    assert!(within.0.is_some() && within.1.is_some());
    assert!(served(&two).is_none());
    assert_eq!(two.cut().refused_for(Refusal::ConnectionLimit), 1);
}

/// Present clients are served on, round for round, while others come and are refused.
fn a_flood_that_is_refused_leaves_the_others_alone(v: Variant) {
    let server = Setup::on(v).limits(|l| l.connections = 4).start(|| Echo);
    let to = server.addr();
    let mut within: Vec<Client> = (0..4).map(|_| served_from([15, 1], to)).collect();
    let floods: Vec<_> = (0..2u8)
        .map(|i| {
            world::spawn(move || {
                for n in 0..300u16 {
                    let [high, low] = n.to_be_bytes();
                    refused_from([16 + i * 4 + high, low], to);
                }
            })
        })
        .collect();
    let mut rounds = 0;
    while rounds < 50 || floods.iter().any(|flood| !flood.is_finished()) {
        rounds += 1;
        within.iter_mut().for_each(is_served);
    }
    floods
        .into_iter()
        .for_each(|flood| flood.join().expect("refused, all of them"));
    assert_eq!(server.counters().refused_for(Refusal::ConnectionLimit), 600);
    drop(within);
    server.until("the ends", |c| c.open == 0);
    server.stop();
}

fn least_connections_fills_the_emptiest_first(v: Variant) {
    /// Says which loop it is on.
    struct WhichLoop;
    impl Role for WhichLoop {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            input.consume(input.len());
            cx.link.write(&[cx.number() as u8]);
            Next::More
        }
    }
    let server = Setup::on(v)
        .placement(Placement::LeastConnections)
        .start(|| WhichLoop);
    let mut all: Vec<Vec<Client>> = (0..v.loops).map(|_| Vec::new()).collect();
    let open = |server: &crate::fixture::Server, all: &mut Vec<Vec<Client>>, n: usize| {
        for _ in 0..n {
            let mut client = server.connect();
            client.send(b"?");
            let number = usize::from(client.take(1)[0]);
            all[number].push(client);
        }
    };
    let count = |all: &Vec<Vec<Client>>| all.iter().map(Vec::len).collect::<Vec<_>>();
    open(&server, &mut all, 8);
    assert_eq!(count(&all), [4, 4]);
    all[0].clear();
    server.until("four ends", |c| c.open == 4);
    open(&server, &mut all, 4);
    assert_eq!(count(&all), [4, 4]);
    open(&server, &mut all, 2);
    assert_eq!(count(&all), [5, 5]);
    drop(all);
    server.until("the ends", |c| c.open == 0);
    server.stop();
}
