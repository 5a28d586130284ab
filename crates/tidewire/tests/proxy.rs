//! The proxy of the examples against clients and servers that half-close, reset and do not read: on
//! every engine, and in the simulator.

#[allow(dead_code, unused_imports)]
#[path = "../examples/proxy.rs"]
mod proxy;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tidewire::sim::{Outcome, PlainState, Sim};
use tidewire::{
    Builder, Closed, Cx, Endpoint, EngineChoice, Input, Limits, Listen, LoopHandle, Next, Peer,
    Protocol, Refusal, Running, Service, StartError,
};

use proxy::Proxy;

const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy on one engine, and the socket that it dials.
struct Setup {
    running: Running,
    upstream: TcpListener,
}

/// Runs `case` on every engine that works here.
fn on_engines(case: fn(&Setup)) {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut builder = Builder::new();
        let addr = upstream.local_addr().expect("bound");
        let service = builder.service(Proxy {
            upstream: addr.into(),
        });
        builder.listen(service, Listen::at(([127, 0, 0, 1], 0)));
        builder.engine(engine);
        match builder.start() {
            Ok(running) => {
                let setup = Setup { running, upstream };
                case(&setup);
                let open = until(&setup, |s| s.running.counters().open == 0);
                assert!(open, "{engine}: {}", setup.running.counters());
                setup.running.stop(PATIENCE);
            }
            Err(e @ StartError::Engine { .. }) => eprintln!("skipped on {engine}: {e}"),
            Err(e) => panic!("{engine}: {e}"),
        }
    }
}

fn until(setup: &Setup, done: impl Fn(&Setup) -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !done(setup) {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

impl Setup {
    /// A client, and its other end behind the proxy.
    fn pair(&self) -> (TcpStream, TcpStream) {
        let client =
            TcpStream::connect(self.running.addrs()[0].tcp().expect("TCP")).expect("connected");
        let (server, _) = self.upstream.accept().expect("dialled");
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE)).expect("an option");
            stream.set_write_timeout(Some(PATIENCE)).expect("an option");
        }
        (client, server)
    }
}

fn bytes(seed: u32, n: u32) -> Vec<u8> {
    (0..n).map(|i| (i.wrapping_mul(seed) >> 7) as u8).collect()
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("an orderly end");
    got
}

/// `first` says all and half-closes; only then does `second`.
fn one_after_the_other(mut first: TcpStream, mut second: TcpStream) {
    let (there, back) = (bytes(3, 3 << 20), bytes(5, 2 << 20));
    thread::scope(|scope| {
        scope.spawn(|| {
            first.write_all(&there).expect("written");
            first.shutdown(Shutdown::Write).expect("half-closed");
            assert!(rest(&mut first) == back);
        });
        assert!(rest(&mut second) == there);
        second.write_all(&back).expect("the other way is open");
        second.shutdown(Shutdown::Write).expect("half-closed");
    });
}

#[test]
fn a_client_that_half_closes_gets_its_answer() {
    on_engines(|setup| {
        let (client, server) = setup.pair();
        one_after_the_other(client, server);
    });
}

#[test]
fn a_server_that_half_closes_hears_its_client_out() {
    on_engines(|setup| {
        let (client, server) = setup.pair();
        one_after_the_other(server, client);
    });
}

#[test]
fn both_directions_at_once() {
    on_engines(|setup| {
        let (client, server) = setup.pair();
        thread::scope(|scope| {
            for (i, mut stream) in [client, server].into_iter().enumerate() {
                let (mine, theirs) = (bytes(7 + i as u32, 4 << 20), bytes(8 - i as u32, 4 << 20));
                let mut writer = stream.try_clone().expect("a descriptor");
                scope.spawn(move || {
                    writer.write_all(&mine).expect("written");
                    writer.shutdown(Shutdown::Write).expect("half-closed");
                });
                scope.spawn(move || assert!(rest(&mut stream) == theirs));
            }
        });
        let finished = until(setup, |s| {
            s.running.counters().closed_for(Closed::Finished) == 2
        });
        assert!(finished, "{}", setup.running.counters());
    });
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("an option");
}

fn expect_reset(stream: &mut TcpStream) {
    let error = stream.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn resets_are_passed_on_as_resets() {
    on_engines(|setup| {
        let (client, mut server) = setup.pair();
        reset(client);
        expect_reset(&mut server);
        let (mut client, server) = setup.pair();
        reset(server);
        expect_reset(&mut client);
        // A side that has said all may reset, too.
        let (mut client, server) = setup.pair();
        server.shutdown(Shutdown::Write).expect("half-closed");
        assert!(rest(&mut client).is_empty());
        reset(server);
        assert!(until(setup, |s| s.running.counters().open == 0));
        let _ = client.write_all(b"?");
    });
}

#[test]
fn a_client_is_reset_without_an_upstream_listener() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = nobody.local_addr().expect("bound");
    drop(nobody);
    for engine in [EngineChoice::Threads, EngineChoice::Epoll] {
        let mut builder = Builder::new();
        let service = builder.service(Proxy {
            upstream: addr.into(),
        });
        builder.listen(service, Listen::at(([127, 0, 0, 1], 0)));
        builder.engine(engine);
        let running = builder.start().expect("started");
        let mut client =
            TcpStream::connect(running.addrs()[0].tcp().expect("TCP")).expect("connected");
        client.set_read_timeout(Some(PATIENCE)).expect("an option");
        expect_reset(&mut client);
        running.stop(PATIENCE);
    }
}

/// A side that does not read stops the other side's reading: what the proxy holds is bounded by its
/// marks.
#[test]
fn a_stuck_side_costs_no_more_than_its_marks() {
    on_engines(|setup| {
        for client_writes in [true, false] {
            let (client, server) = setup.pair();
            let (mut writer, mut reader) = match client_writes {
                true => (client, server),
                false => (server, client),
            };
            writer.set_nonblocking(true).expect("an option");
            let before = setup.running.counters();
            let held = || {
                let now = setup.running.counters();
                (now.bytes_in - before.bytes_in) - (now.bytes_out - before.bytes_out)
            };
            let (mut written, mut refused) = (0, 0);
            // Until the pipe has been full for a while.
            while refused < 100 {
                match writer.write(&[9; 64 << 10]) {
                    Ok(n) => (written, refused) = (written + n, 0),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        refused += 1;
                        thread::sleep(Duration::from_millis(2));
                    }
                    Err(e) => panic!("{e}"),
                }
                assert!(written < 256 << 20, "nothing holds the writer back");
                assert!(held() < 1 << 20, "{} bytes held", held());
            }
            writer.shutdown(Shutdown::Write).expect("half-closed");
            assert_eq!(rest(&mut reader).len(), written);
        }
    });
}

/// Takes all there is, then sends it back: a server that is half-closed to.
#[derive(Clone)]
struct TakesFirst;

struct Taken(Vec<u8>);

impl Service for TakesFirst {
    type Conn = Taken;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Taken, Refusal> {
        Ok(Taken(Vec::new()))
    }
}

impl Protocol for Taken {
    type Local = ();
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
        self.0.extend_from_slice(input.bytes());
        input.consume(input.len());
        Next::More
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        cx.link.write(&self.0);
        cx.link.finish();
    }
}

/// Sends back what it gets, and reads on after it has half-closed at the first full stop.
#[derive(Clone)]
struct StopsTalking;

impl Service for StopsTalking {
    type Conn = StopsTalking;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, _: &Peer, _: &mut ()) -> Result<StopsTalking, Refusal> {
        Ok(StopsTalking)
    }
}

impl Protocol for StopsTalking {
    type Local = ();
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let stop = input.bytes().iter().position(|&b| b == b'.');
        let n = stop.unwrap_or(input.len());
        cx.link.forward(input, n);
        if stop.is_some() {
            cx.link.finish_writing();
            input.consume(input.len());
        }
        Next::More
    }
}

fn limits() -> Limits {
    Limits {
        idle: None,
        output_low: 300,
        output_high: 2000,
        ..Limits::default()
    }
}

/// A proxy in front of `server` on a rough network, and where it accepts.
fn proxied<S: Service>(sim: &mut Sim, server: S) -> Endpoint {
    let upstream = sim.serve(server, limits());
    sim.serve(Proxy { upstream }, limits())
}

#[test]
fn simulated_half_closes_come_through() {
    for seed in 0..60 {
        let said = bytes(seed as u32 + 1, 12_000);
        let mut sim = Sim::new(seed);
        let addr = proxied(&mut sim, TakesFirst);
        let peers: Vec<_> = (0..3).map(|_| sim.plain(addr.clone())).collect();
        for &peer in &peers {
            sim.send(peer, &said);
            sim.finish(peer);
        }
        let outcome = sim.run_until_idle(Duration::from_secs(3600));
        assert_eq!(outcome, Outcome::Idle, "seed {seed}");
        for &peer in &peers {
            match sim.state(peer) {
                // The network may refuse or lose a connection; what came before is right.
                PlainState::Failed(_) => assert!(said.starts_with(sim.received(peer))),
                state => {
                    assert!(sim.received(peer) == said, "seed {seed}: {state:?}");
                    assert_eq!(state, PlainState::Ended, "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn simulated_server_says_all_first() {
    let said = bytes(11, 9_000);
    let said: Vec<u8> = said
        .iter()
        .map(|&b| if b == b'.' { b',' } else { b })
        .collect();
    for seed in 0..60 {
        let mut sim = Sim::new(seed);
        let addr = proxied(&mut sim, StopsTalking);
        let peer = sim.plain(addr.clone());
        sim.send(peer, &said);
        sim.send(peer, b".");
        assert_eq!(
            sim.run_until_quiet(Duration::from_secs(3600)),
            Outcome::Idle
        );
        if sim.state(peer) == PlainState::Ended {
            assert!(sim.received(peer) == said, "seed {seed}");
            sim.send(peer, &said);
        }
        sim.finish(peer);
        let outcome = sim.run_until_idle(Duration::from_secs(3600));
        assert_eq!(outcome, Outcome::Idle, "seed {seed}");
    }
}

/// Streams break at any time; nothing is left behind, and the side that is left sees a reset.
#[test]
fn simulated_resets_leave_nothing_behind() {
    for seed in 0..60 {
        let mut sim = Sim::new(seed);
        let upstream = sim.serve(TakesFirst, limits());
        let at = sim.add_loop();
        let service = sim.service(at, Proxy { upstream }, limits());
        let addr = sim.listen(service);
        let peers: Vec<_> = (0..4).map(|_| sim.plain(addr.clone())).collect();
        for &peer in &peers {
            sim.send(peer, &bytes(seed as u32 + 1, 8_000));
        }
        sim.run_for(Duration::from_millis(seed % 20));
        for stream in (0..sim.streams()).filter(|s| (u64::from(*s) + seed) % 2 == 0) {
            sim.lose(stream);
        }
        for (i, &peer) in peers.iter().enumerate() {
            if i % 2 == 0 {
                sim.close(peer, i == 0);
            } else {
                sim.finish(peer);
            }
        }
        let outcome = sim.run_until_idle(Duration::from_secs(3600));
        assert_eq!(outcome, Outcome::Idle, "seed {seed}");
        assert_eq!(sim.counters(at).open, 0, "seed {seed}");
    }
}
