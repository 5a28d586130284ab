//! Loops on queues and buffers so small that what is rare becomes the rule.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::build::engine::run_uring;
use crate::driver::completion::works;
use crate::kernel::uring::Sizes;
use crate::protocol::connection::{Cx, Protocol};
use crate::protocol::service::Service;
use crate::reach::waker::{Stop, Waker};
use crate::reactor::core::Plan;
use crate::reactor::counters::LoopCounters;
use crate::reactor::host::host_of;
use crate::reactor::lines_of_tests::logged;
use crate::reactor::making::MakeShares;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{Listener, LoopSetup, Spread};
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::{Input, Limits, LoopHandle, Refusal, TcpOptions};

struct Echo;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

struct EchoService;

impl Service for EchoService {
    type Conn = Echo;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
        Ok(Echo)
    }
}

/// One loop, run directly.
struct Server {
    addr: SocketAddr,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    clock: Arc<crate::reach::stop::StopClock>,
    thread: JoinHandle<(std::io::Result<()>, Vec<String>)>,
}

/// `None` where io_uring does not work.
fn start(sizes: Sizes, buffers: usize) -> Option<Server> {
    if let Err(why) = works() {
        eprintln!("skipped: {why}");
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let setup = LoopSetup {
        plan: Arc::new(Plan {
            throttles: Arc::default(),
            log_connections: false,
            made: MakeShares::default(),
            shares: SendShares::default(),
            received: ReceiveShares::default(),
            memory: Arc::default(),
            hosts: vec![host_of(EchoService, Limits::default())],
            chunk: 16 << 10,
            buffers,
        }),
        dial_options: Arc::new(TcpOptions::default()),
        names: Arc::default(),
        busy_poll: Duration::ZERO,
        direct: false,
        clock: Arc::default(),
        registry: Arc::default(),
        inbox: 64,
        listeners: vec![Listener {
            socket: Arc::new(OwnedFd::from(listener).into()),
            service: 0,
            number: 0,
            is_private: true,
        }],
        spread: Spread::Here,
        cpu: None,
    };
    let waker = Arc::new(Waker::new());
    let counters = Arc::<LoopCounters>::default();
    let (ready, readied) = mpsc::channel();
    let clock = setup.clock.clone();
    let theirs = (waker.clone(), counters.clone());
    let thread = std::thread::spawn(move || {
        let mut ended = Ok(());
        let lines = logged(|| ended = run_uring(sizes, setup, theirs.0, theirs.1, &ready));
        (ended, lines)
    });
    readied.recv().unwrap().unwrap();
    Some(Server {
        addr,
        waker,
        counters,
        clock,
        thread,
    })
}

impl Server {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream
    }

    fn stop(self) -> Arc<LoopCounters> {
        self.stop_and_say().0
    }

    /// With what the loop has logged.
    fn stop_and_say(self) -> (Arc<LoopCounters>, Vec<String>) {
        self.clock.set(Duration::from_secs(10));
        self.waker.stop(Stop::Graceful);
        let (ended, lines) = self.thread.join().unwrap();
        ended.unwrap();
        (self.counters, lines)
    }
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    expect(stream, bytes);
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
}

#[test]
fn queues_of_a_few_entries_lose_nothing() {
    let sizes = Sizes {
        submissions: 2,
        completions: 4,
    };
    let Some(server) = start(sizes, 64) else {
        return;
    };
    let mut clients: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    for round in 0..20u8 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.write_all(&[round, i as u8, 1, 2, 3]).unwrap();
        }
        for (i, client) in clients.iter_mut().enumerate() {
            expect(client, &[round, i as u8, 1, 2, 3]);
        }
    }
    drop(clients);
    let counters = server.stop();
    assert!(counters.completions_overflowed.value() > 0);
    assert_eq!(counters.sum().accepted, 200);
    assert_eq!(counters.sum().bytes_out, 200 * 20 * 5);
}

#[test]
fn two_buffers_serve_all_connections_in_turn() {
    let Some(server) = start(Sizes::default(), 2) else {
        return;
    };
    // Streams: 40 connections that share two large pieces, of which one may be kept for sending.
    let threads: Vec<_> = (0..40u8)
        .map(|i| {
            let mut stream = server.connect();
            std::thread::spawn(move || {
                let piece: Vec<u8> = (0..40_000).map(|n| (n / 7) as u8 ^ i).collect();
                for _ in 0..20 {
                    echo(&mut stream, &piece);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let (counters, lines) = server.stop_and_say();
    assert!(counters.buffers_exhausted.value() > 0);
    let said = lines.iter().any(|line| line.contains("receiving delayed"));
    assert!(said, "{lines:?}");
    assert_eq!(counters.sum().bytes_out, 40 * 20 * 40_000);
}

#[test]
fn a_small_receive_ring_grows_with_a_crowd() {
    let Some(server) = start(Sizes::default(), 128) else {
        return;
    };
    // More than the kernel is given at first, all at once.
    let mut clients: Vec<TcpStream> = (0..1000).map(|_| server.connect()).collect();
    for round in 0..10u8 {
        for client in &mut clients {
            client.write_all(&[round; 100]).unwrap();
        }
        for client in &mut clients {
            expect(client, &[round; 100]);
        }
    }
    drop(clients);
    let counters = server.stop();
    assert_eq!(counters.buffers_exhausted.value(), 0, "it had more to give");
}
