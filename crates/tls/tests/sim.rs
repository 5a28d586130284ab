//! TLS on the simulated network: every split, small buffers, both ends.

mod common;
#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use std::time::Duration;

use common::{Authority, Habit, Happened, Talk};
use tidewire::sim::{Conditions, Outcome, PlainState, Shape, Sim, for_each_seed, seeds};
use tidewire::{Closed, Counters, Dial, Layered, Limits, Refusal};
use tidewire_tls::{Certificates, Client, Server, TlsClient, TlsServer};

const NAME: &str = "it.example";

const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];

struct Ends {
    outcome: Outcome,
    server: Happened,
    client: Happened,
    server_counters: Counters,
}

/// One connection under these conditions, until nothing is left to happen.
fn meet(sim: Sim, server: (Server, Talk), client: (Client, Talk)) -> Ends {
    meet_until(sim, server, client, None)
}

/// [`meet`]; the server dies after so many steps.
fn meet_until(
    mut sim: Sim,
    (tls, service): (Server, Talk),
    (client_tls, client): (Client, Talk),
    death: Option<u64>,
) -> Ends {
    let (server_log, client_log) = (service.log.clone(), client.log.clone());
    let limits = || Limits {
        output_low: 3000,
        output_high: 20_000,
        linger: Duration::from_secs(1000),
        // A record may take minutes, and is no progress before it is whole.
        idle: Some(Duration::from_secs(1000)),
        ..Limits::default()
    };
    let tls: TlsServer = tls.build().unwrap();
    let client_tls: TlsClient = client_tls.build().unwrap();
    let server_at = sim.add_loop();
    let served = sim.service(
        server_at,
        Layered::with_limits(tls, service, limits()),
        limits(),
    );
    let addr = sim.listen(served);
    let at = sim.add_loop();
    let client = sim.service(
        at,
        Layered::with_limits(client_tls, client, limits()),
        limits(),
    );
    sim.dial(client, Dial::to(addr).token(1));
    if let Some(death) = death {
        for _ in 0..death {
            sim.step();
        }
        sim.kill(server_at);
    }
    let outcome = sim.run_until_idle(Duration::from_secs(3600));
    Ends {
        outcome,
        server: server_log.get(),
        client: client_log.get(),
        server_counters: sim.counters(server_at),
    }
}

fn usual(authority: &Authority) -> (Server, Client) {
    let client = Client::new(&authority.roots()).server_name(NAME).unwrap();
    (Server::new(authority.certificate(NAME)), client)
}

/// Whatever the network does, what was said comes back whole, both half-closes arrive, and the ends
/// are in order.
#[test]
fn an_echo_survives_every_network() {
    let authority = Authority::new();
    let said: Vec<u8> = (0..60_000u32).map(|i| (i % 251) as u8).collect();
    // The handshake of seed 1056 takes longer than ten seconds: its network carries a few bytes at a time.
    for seed in seeds(60).chain([1056]) {
        let (server, client) = usual(&authority);
        let patience = Duration::from_secs(1000);
        let (server, client) = (server.deadline(patience), client.deadline(patience));
        let talk = Talk::says(said.clone());
        let mut sim = Sim::new(seed);
        sim.shape(SHAPES[(seed % 3) as usize]);
        let ends = meet(sim, (server, Talk::new(Habit::Echo)), (client, talk));
        assert_eq!(ends.outcome, Outcome::Idle, "seed {seed}");
        if Conditions::from_seed(seed).refuse_one_in != 0 && !ends.client.failed.is_empty() {
            continue; // the network refused
        }
        assert!(
            ends.client.got == said,
            "seed {seed}: {} bytes, {:?} {:?} {:?}",
            ends.client.got.len(),
            ends.client.closed,
            ends.client.failed,
            ends.server.closed
        );
        assert_eq!(ends.client.closed, ["finished"], "seed {seed}");
        assert_eq!(ends.server.closed, ["finished"], "seed {seed}");
    }
}

/// A server that dies in the middle is no server that has said all: the client is told so, and has the beginning of
/// what it would have heard.
#[test]
fn a_server_that_dies_has_not_said_its_farewell() {
    let authority = Authority::new();
    let said: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    let (client_tls, server_tls) = {
        let (server, client) = usual(&authority);
        (client, server)
    };
    for_each_seed(300, |seed| {
        let mut conditions = Conditions::from_seed(seed);
        conditions.segment_max = conditions.segment_max.max(200);
        conditions.receive_max = conditions.receive_max.max(200);
        conditions.accept_max = conditions.accept_max.max(200);
        let mut sim = Sim::under(seed, conditions);
        sim.shape(SHAPES[(seed % 3) as usize]);
        let ends = meet_until(
            sim,
            (server_tls.clone(), Talk::new(Habit::Echo)),
            (client_tls.clone(), Talk::says(said.clone())),
            Some(seed * 3),
        );
        let (got, closed) = (&ends.client.got, &ends.client.closed);
        if !said.starts_with(got) {
            return Err(format!("{} bytes that nobody said", got.len()));
        }
        let finished = closed.iter().any(|why| why == "finished");
        if finished && *got != said {
            return Err(format!("{} bytes pass for all: {closed:?}", got.len()));
        }
        match closed.len() + ends.client.failed.len() {
            0 => Err(format!("it is never told: {:?}", ends.outcome)),
            _ => Ok(()),
        }
    });
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    let authority = Authority::new();
    let (server, client) = usual(&authority);
    let ends = meet(
        Sim::under(1, Conditions::calm()),
        (server, Talk::new(Habit::Flood)),
        (client, Talk::new(Habit::Deaf)),
    );
    let written = ends.server.written;
    assert!(
        (20_000..1 << 20).contains(&written),
        "{written} bytes were queued"
    );
    assert_eq!(ends.server.closed, ["stalled"]);
}

/// All that the client says is there when the server begins to write without an end, and the network takes more of that than a
/// server may write before it has read.
#[test]
fn a_constant_writer_reads_all_the_same() {
    const BUFFER: usize = 4 << 20;
    let said: Vec<u8> = (0..150_000u32).map(|i| (i % 251) as u8).collect();
    for shape in SHAPES {
        let authority = Authority::new();
        let (server_tls, client_tls) = usual(&authority);
        let (server, client) = (Talk::new(Habit::Flood), Talk::says(said.clone()));
        let (heard, says) = (server.log.clone(), client.log.clone());
        let mut sim = Sim::under(
            1,
            Conditions {
                send_buffer: BUFFER,
                receive_buffer: BUFFER,
                ..Conditions::calm()
            },
        );
        sim.shape(shape);
        let at = sim.add_loop();
        let inside = Layered::new(server_tls.build().unwrap(), server);
        let served = sim.service(at, inside, Limits::default());
        let addr = sim.listen(served);
        let other = sim.add_loop();
        let inside = Layered::new(client_tls.build().unwrap(), client);
        let client = sim.service(other, inside, Limits::default());
        sim.dial(client, Dial::to(addr));
        while says.get().peers.is_empty() {
            sim.step();
        }
        sim.stall(at, Duration::from_secs(1));
        while heard.get().got.len() < said.len() {
            sim.step();
        }
        let written = heard.get().written;
        assert!(written < BUFFER, "{shape:?}: {written} bytes came first");
    }
}

/// What the client says of why it failed, and how often the server closed for a reason.
fn refused(server: Server, client: Client) -> String {
    let ends = meet(
        Sim::under(1, Conditions::calm()),
        (server, Talk::new(Habit::Echo)),
        (client, Talk::says(*b"hello")),
    );
    assert!(ends.server.closed.is_empty() || ends.client.failed.is_empty());
    assert_eq!(ends.server_counters.closed_for(Closed::ByProtocol("")), 1);
    [ends.client.failed, ends.client.closed].concat().join(", ")
}

#[test]
fn certificates_that_are_no_good_are_refused_with_a_clear_word() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client = || Client::new(&authority.roots()).server_name(NAME).unwrap();
    let expired = Server::new(authority.valid_until(NAME, 2001));
    assert_eq!(
        refused(expired, client()),
        "the peer's certificate has expired"
    );
    let elsewhere = Server::new(authority.certificate("other.example"));
    assert_eq!(
        refused(elsewhere, client()),
        "the peer's certificate is for another name"
    );
    let foreign = Server::new(other.certificate(NAME));
    let why = refused(foreign, client());
    assert_eq!(
        why,
        "the authority that signed the peer's certificate is not trusted"
    );

    let server = || Server::new(authority.certificate(NAME));
    let asks = server().require_client_certificates(&other.roots());
    assert_eq!(
        refused(asks.clone(), client()),
        "the peer requires a client certificate, and none was sent"
    );
    let foreign = client().certificate(&authority.certificate("me"));
    assert!(refused(asks, foreign).contains("certificate"));
    let why = refused(server().alpn(["a"]), client().alpn(["b"]));
    assert!(why.contains("no application protocol in common"), "{why}");
}

#[test]
fn client_and_server_learn_each_others_identity() {
    let authority = Authority::new();
    let (server, client) = usual(&authority);
    let server = server
        .require_client_certificates(&authority.roots())
        .alpn(["b", "c"]);
    let shown = authority.certificate("me.example");
    let ends = meet(
        Sim::under(1, Conditions::calm()),
        (server, Talk::new(Habit::Echo)),
        (
            client.certificate(&shown).alpn(["a", "c"]),
            Talk::says(*b"hello"),
        ),
    );
    assert_eq!(ends.client.got, b"hello");
    common::know_each_other(&ends.server, &ends.client, (NAME, b"c"));
}

#[test]
fn a_service_that_refuses_is_heard() {
    let authority = Authority::new();
    let (server, client) = usual(&authority);
    let ends = meet(
        Sim::under(1, Conditions::calm()),
        (server, Talk::new(Habit::Refuses)),
        (client, Talk::says(*b"hello")),
    );
    assert_eq!(ends.server_counters.refused_for(Refusal::ByService("")), 1);
    assert!(ends.client.got.is_empty());
}

#[test]
fn names_have_certificates_of_their_own() {
    let authority = Authority::new();
    let certificates = Certificates::from(authority.certificate("usual.example"));
    certificates.replace_named("IT.example", authority.certificate(NAME));
    for name in ["usual.example", NAME] {
        let client = Client::new(&authority.roots()).server_name(name).unwrap();
        let ends = meet(
            Sim::under(1, Conditions::calm()),
            (Server::new(&certificates), Talk::new(Habit::Echo)),
            (client, Talk::says(*b"hello")),
        );
        assert_eq!(ends.client.got, b"hello", "{:?}", ends.client.failed);
    }
}

/// Not TLS, silence, an end in the middle: each is cut, by its own reason, and nothing is left.
#[test]
fn what_is_not_tls_is_cut() {
    let authority = Authority::new();
    for (bytes, finishes, within) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], false, 1),
        (&[0x16, 3, 1][..], false, 11),
        (&[][..], true, 1),
    ] {
        let mut sim = Sim::under(1, Conditions::calm());
        let at = sim.add_loop();
        let (server, _) = usual(&authority);
        let layered = Layered::new(server.build().unwrap(), Talk::new(Habit::Echo));
        let service = sim.service(at, layered, Limits::default());
        let addr = sim.listen(service);
        let peer = sim.plain(addr);
        sim.send(peer, bytes);
        if finishes {
            sim.finish(peer);
        }
        sim.run_for(Duration::from_secs(within));
        let state = sim.state(peer);
        assert!(
            matches!(state, PlainState::Failed(_) | PlainState::Ended),
            "{state:?}"
        );
        sim.close(peer, false);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(sim.counters(at).closed_for(Closed::ByProtocol("")), 1);
        assert_eq!(sim.counters(at).open, 0);
    }
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "an_echo_survives_every_network",
        "a_server_that_dies_has_not_said_its_farewell",
    ];
    for test in tests {
        (0..4).for_each(|seed| twice::says_the_same(test, seed, "sizes: "));
    }
}
