//! Loops that die, which no service can bring about.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::protocol::connection::{Cx, Protocol};
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::{Input, LoopHandle, Refusal};

struct Echo;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

#[derive(Clone, Default)]
struct EchoService(Arc<Mutex<Vec<LoopHandle<()>>>>);

impl Service for EchoService {
    type Conn = Echo;

    fn on_loop(&self, at: LoopHandle<()>) {
        lock(&self.0).push(at);
    }

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
        Ok(Echo)
    }
}

/// A connection for an unknown service: a mistake that only the toolkit could make.
fn poison() -> Command {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    Command::Adopt {
        socket: OwnedFd::from(client).into(),
        listener: 0,
        service: 999,
        peer: Endpoint::from(([127, 0, 0, 1], 1)),
        permit: host_of(EchoService(Loops::default()), Limits::default())
            .door
            .admit(
                0,
                &Endpoint::from(([127, 0, 0, 1], 1)),
                crate::Instant::default(),
            )
            .unwrap(),
    }
}

fn echoes(to: &Endpoint) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect(to.tcp().expect("TCP"))?;
    client.set_read_timeout(Some(Duration::from_secs(20)))?;
    client.write_all(b"x")?;
    client.read_exact(&mut [0])?;
    Ok(client)
}

type Loops = Arc<Mutex<Vec<LoopHandle<()>>>>;

/// A server with an acceptor, and its loops that ever were.
fn server(engine: EngineChoice) -> Option<(Running, Loops)> {
    let loops = Loops::default();
    let mut builder = Builder::new();
    builder.engine(engine).placement(Placement::Acceptor);
    let service = builder.service_with(
        EchoService(loops.clone()),
        Limits {
            connections: 3,
            ..Limits::default()
        },
    );
    builder.listen(service, Listen::at(([127, 0, 0, 1], 0)));
    match builder.start() {
        Err(StartError::Engine { reason, .. }) => {
            eprintln!("{engine} skipped: {reason}");
            None
        }
        started => Some((started.unwrap(), loops)),
    }
}

#[test]
fn a_loop_that_dies_is_told_of_and_leaves_nothing() {
    for engine in [EngineChoice::Epoll, EngineChoice::Uring] {
        let Some((running, _)) = server(engine) else {
            continue;
        };
        let mut client = echoes(&running.addrs()[0]).unwrap();
        let waits = running.waiter();
        running.loops[0].waker.send(poison()).unwrap();
        let failed = waits.wait().unwrap_err();
        assert_eq!(failed.name(), "tidewire-loop-0", "on {engine}");
        assert!(failed.reason().starts_with("it panicked: "), "{failed}");
        assert!(client.read_exact(&mut [0]).is_err(), "cut with its loop");
        // A client that is accepted now is refused instead of waiting for ever.
        let refused = Instant::now() + Duration::from_secs(20);
        while running.counters().refused_for(Refusal::NoLoop) == 0 {
            assert!(echoes(&running.addrs()[0]).is_err());
            assert!(Instant::now() < refused);
        }
        let counters = running.stop(Duration::from_secs(10));
        assert_eq!(counters.open, 0, "on {engine}: {counters}");
        assert_eq!(counters.closed_for(crate::Closed::Panicked), 1);
    }
}

#[test]
fn an_acceptor_that_dies_is_told_of() {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let Some((running, _)) = server(engine) else {
            continue;
        };
        let mut client = echoes(&running.addrs()[0]).unwrap();
        running.acceptors[0].waker.send(poison()).unwrap();
        let failed = running.wait().unwrap_err();
        assert_eq!(failed.name(), "tidewire-accept", "on {engine}");
        assert!(echoes(&running.addrs()[0]).is_err(), "nobody listens");
        client.write_all(b"y").unwrap();
        client.read_exact(&mut [0]).unwrap();
        drop(client);
        running.stop(Duration::from_secs(10));
    }
}

/// The thread is one of many; the others, and the count of what is open, go on without it.
#[test]
fn a_connections_thread_that_dies_is_forgotten() {
    let (running, loops) = server(EngineChoice::Threads).unwrap();
    let addr = &running.addrs()[0];
    for round in 1..=5 {
        let mut victim = echoes(addr).unwrap();
        assert_eq!(
            lock(&running.counters).live().len(),
            2,
            "the acceptor and the victim"
        );
        let counters = running.counters();
        assert_eq!((counters.open, counters.closed_total()), (1, round - 1));
        let at = lock(&loops).pop().unwrap();
        at.mail.waker.send(poison()).unwrap();
        assert!(victim.read_exact(&mut [0]).is_err());
        let until = Instant::now() + Duration::from_secs(20);
        while lock(&running.counters).live().len() > 1 {
            assert!(Instant::now() < until, "its counters are never retired");
        }
        assert_eq!(running.counters().open, 0);
    }
    assert_eq!(running.waiter().wait_for(Duration::ZERO), None);
    running.stop(Duration::from_secs(10));
}

/// No callback is told of these dials: the protocol is gone with the loop.
#[test]
fn dials_that_a_loop_takes_with_it_are_counted() {
    for engine in [EngineChoice::Epoll, EngineChoice::Uring] {
        let Some((running, _)) = server(engine) else {
            continue;
        };
        let inbox = &running.loops[0].waker;
        for token in 0..3 {
            let dial = Dial::to(([127, 0, 0, 1], 1)).token(token);
            let dial = dial.after(Duration::from_secs(3600));
            inbox.send(Command::Dial { service: 0, dial }).unwrap();
        }
        inbox.send(poison()).unwrap();
        running.wait().unwrap_err();
        let counters = running.stop(Duration::from_secs(10));
        assert_eq!(counters.dial_failures, 3, "on {engine}: {counters}");
    }
}

/// What a loop leaves that dies is dropped, and may panic.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose: dropped with its loop");
    }
}

impl Protocol for Bomb {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        cx.link.forward_all(input)
    }
}

/// The first panic must not keep the others from being dropped, nor the service from being told; two at once would
/// end the process.
#[test]
fn panics_of_what_a_dead_loop_leaves_are_counted_each() {
    for engine in [EngineChoice::Epoll, EngineChoice::Uring] {
        let mut builder = Builder::new();
        builder.engine(engine);
        let service = crate::service_fn(|_| Bomb);
        let running = match builder.serve("127.0.0.1:0", service).start() {
            Err(StartError::Engine { reason, .. }) => {
                eprintln!("{engine} skipped: {reason}");
                continue;
            }
            started => started.unwrap(),
        };
        let clients: Vec<TcpStream> = (0..3)
            .map(|_| echoes(&running.addrs()[0]).unwrap())
            .collect();
        running.loops[0].waker.send(poison()).unwrap();
        let failed = running.wait().unwrap_err();
        assert!(
            failed.reason().contains("index out of bounds"),
            "the first panic: {failed}"
        );
        drop(clients);
        let counters = running.stop(Duration::from_secs(10));
        assert_eq!(counters.panics, 3, "on {engine}: {counters}");
    }
}
