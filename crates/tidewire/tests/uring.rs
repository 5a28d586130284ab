//! The io_uring engine under strain: what only it can get wrong. What all engines have in common
//! is in the conformance suite.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;
use tidewire::{
    Builder, Closed, Counters, Cx, EngineChoice, Input, Listen, LoopHandle, Next, Peer, Protocol,
    Refusal, Running, Service, StartError,
};

/// What a connection does.
#[derive(Clone, Copy)]
enum Habit {
    Echo,
    /// Pauses after each chunk and resumes a moment later.
    EchoInFits,
    /// Reads nothing after the first byte, and stays when the peer finishes.
    Wait,
}

struct Conn {
    habit: Habit,
    chunk_max: Arc<Mutex<usize>>,
}

impl Protocol for Conn {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        {
            let mut most = self.chunk_max.lock().unwrap();
            *most = n.max(*most);
        }
        cx.link.forward(input, n);
        match self.habit {
            Habit::Echo => Next::More,
            Habit::EchoInFits => {
                cx.link
                    .set_timer(cx.link.now() + Duration::from_micros(200));
                Next::Paused
            }
            Habit::Wait => Next::Paused,
        }
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.resume();
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        if !matches!(self.habit, Habit::Wait) {
            cx.link.finish();
        }
    }
}

struct Conns {
    habit: Habit,
    chunk_max: Arc<Mutex<usize>>,
}

impl Service for Conns {
    type Conn = Conn;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
        Ok(Conn {
            habit: self.habit,
            chunk_max: self.chunk_max.clone(),
        })
    }
}

struct Server {
    running: Running,
    chunk_max: Arc<Mutex<usize>>,
}

/// `None` where io_uring does not work.
fn start(habit: Habit) -> Option<Server> {
    start_at(habit, ([127, 0, 0, 1], 0).into())
}

fn start_at(habit: Habit, addr: SocketAddr) -> Option<Server> {
    let chunk_max = Arc::<Mutex<usize>>::default();
    let mut builder = Builder::new();
    builder.engine(EngineChoice::Uring);
    let service = builder.service(Conns {
        habit,
        chunk_max: chunk_max.clone(),
    });
    builder.listen(service, Listen::at(addr));
    match builder.start() {
        Ok(running) => Some(Server { running, chunk_max }),
        Err(e @ StartError::Engine { .. }) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

impl Server {
    fn addr(&self) -> SocketAddr {
        self.running.addrs()[0].tcp().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr()).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// The largest chunk since the last call.
    fn chunk_max(&self) -> usize {
        std::mem::take(&mut self.chunk_max.lock().unwrap())
    }

    fn until(&self, what: &str, holds: impl Fn(&Counters) -> bool) {
        for _ in 0..2000 {
            if holds(&self.running.counters()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("waited in vain for {what}: {}", self.running.counters());
    }

    fn stop(self) -> Counters {
        self.running.stop(Duration::from_secs(10))
    }
}

/// Bytes that differ from place to place.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}

/// Sends on a thread of its own.
fn send(stream: &TcpStream, bytes: Vec<u8>, times: usize) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        for _ in 0..times {
            stream.write_all(&bytes).unwrap();
        }
    })
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
}

#[test]
fn a_stream_takes_large_chunks_and_goes_back() {
    let Some(server) = start(Habit::Echo) else {
        return;
    };
    let mut client = server.connect();
    let piece = noise(1, 1 << 20);
    for round in 0..2 {
        for i in 0..100u8 {
            client.write_all(&[i; 100]).unwrap();
            expect(&mut client, &[i; 100]);
        }
        assert_eq!(server.chunk_max(), 100);
        let sender = send(&client, piece.clone(), 64);
        for _ in 0..64 {
            expect(&mut client, &piece);
        }
        sender.join().unwrap();
        let most = server.chunk_max();
        assert!(most > 16 << 10, "no stream in round {round}: {most}");
    }
    // Small messages again, by small pieces again: 5000 bytes are two of them, and one chunk.
    for i in 0..50u8 {
        client.write_all(&[i; 100]).unwrap();
        expect(&mut client, &[i; 100]);
    }
    server.chunk_max();
    client.write_all(&[7; 5000]).unwrap();
    expect(&mut client, &[7; 5000]);
    assert_eq!(server.chunk_max(), 5000);
    drop(client);
    server.stop();
}

#[test]
fn pauses_with_data_in_flight_lose_nothing() {
    let Some(server) = start(Habit::EchoInFits) else {
        return;
    };
    let clients: Vec<_> = (0..20)
        .map(|i| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                // Sizes around the small piece, so that both ways of receiving take part.
                for n in [1, 100, 4095, 4096, 4097, 30_000, 3, 100_000, 8192] {
                    let piece = noise(i, n);
                    let sender = send(&client, piece.clone(), 5);
                    for _ in 0..5 {
                        expect(&mut client, &piece);
                    }
                    sender.join().unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let counters = server.stop();
    assert_eq!(counters.bytes_in, counters.bytes_out);
}

#[test]
fn indices_and_descriptors_are_reused_under_fire() {
    let Some(server) = start(Habit::Echo) else {
        return;
    };
    let mut steady = server.connect();
    let stop = Arc::new(AtomicBool::new(false));
    let stormers: Vec<_> = (0..4)
        .map(|t| {
            let (addr, stop) = (server.addr(), stop.clone());
            std::thread::spawn(move || {
                let mut n = 0;
                while !stop.load(SeqCst) {
                    n += 1;
                    let mut client = TcpStream::connect(addr).unwrap();
                    let _ = client.write_all(&noise(n, 5000));
                    match (n + t) % 3 {
                        // Replies and requests on their way when it resets.
                        0 => {
                            let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
                        }
                        1 => {
                            let _ = client.read(&mut [0; 100]);
                        }
                        _ => {
                            client.shutdown(Shutdown::Write).unwrap();
                            let mut back = Vec::new();
                            client.read_to_end(&mut back).unwrap();
                            assert!(back == noise(n, 5000), "another connection's bytes");
                        }
                    }
                }
            })
        })
        .collect();
    for i in 0..2000u64 {
        let bytes = noise(i, 300);
        steady.write_all(&bytes).unwrap();
        expect(&mut steady, &bytes);
    }
    stop.store(true, SeqCst);
    for stormer in stormers {
        stormer.join().unwrap();
    }
    drop(steady);
    server.until("all to be closed", |c| c.open == 0);
    let counters = server.stop();
    assert_eq!(counters.closed_total(), counters.accepted);
}

#[test]
fn a_flood_leaves_room_for_others() {
    let Some(server) = start(Habit::Echo) else {
        return;
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flood = server.connect();
    let (mut source, mut sink) = (flood.try_clone().unwrap(), flood.try_clone().unwrap());
    let stopped = stop.clone();
    let source = std::thread::spawn(move || {
        let piece = noise(3, 256 << 10);
        while !stopped.load(SeqCst) {
            source.write_all(&piece).unwrap();
        }
        source.shutdown(Shutdown::Write).unwrap();
    });
    let sink = std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while sink.read(&mut buffer).unwrap() > 0 {}
    });
    let mut polite: Vec<TcpStream> = (0..50).map(|_| server.connect()).collect();
    for round in 0..20 {
        for client in &mut polite {
            client.write_all(&[round; 64]).unwrap();
        }
        for client in &mut polite {
            expect(client, &[round; 64]);
        }
    }
    stop.store(true, SeqCst);
    source.join().unwrap();
    sink.join().unwrap();
    // Otherwise the stop waits for them to close.
    drop((flood, polite));
    server.stop();
}

/// A stop reads what was there when it began, not what keeps coming.
#[test]
fn a_flood_does_not_hold_up_a_stop() {
    let Some(server) = start(Habit::Echo) else {
        return;
    };
    let flood = server.connect();
    let stop = Arc::new(AtomicBool::new(false));
    let (mut source, mut sink) = (flood.try_clone().unwrap(), flood.try_clone().unwrap());
    let stopped = stop.clone();
    let source = std::thread::spawn(move || {
        let piece = noise(4, 64 << 10);
        while !stopped.load(SeqCst) && source.write_all(&piece).is_ok() {}
    });
    let sink = std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while sink.read(&mut buffer).unwrap() > 0 {}
        stop.store(true, SeqCst);
    });
    server.until("a flood", |c| c.bytes_in > 50 << 20);
    let counters = std::thread::spawn(|| server.stop());
    sink.join().unwrap();
    source.join().unwrap();
    drop(flood);
    let counters = counters.join().unwrap();
    assert_eq!(counters.closed_for(Closed::Stopped), 1, "{counters}");
}

#[test]
fn a_connection_that_waits_sees_its_peer_finish_and_then_vanish() {
    let Some(server) = start(Habit::Wait) else {
        return;
    };
    let mut client = server.connect();
    client.write_all(b"x").unwrap();
    expect(&mut client, b"x");
    // Arrives while paused: the receive that was armed is not renewed.
    client.write_all(&[1; 100_000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let before = server.running.counters().turns;
    std::thread::sleep(Duration::from_millis(300));
    let turns = server.running.counters().turns - before;
    assert!(turns < 30, "{turns} turns with nothing to do");
    assert_eq!(server.running.counters().open, 1);
    SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    server.until("the reset to be seen", |c| c.closed_for(Closed::Reset) == 1);
    server.stop();
}

#[test]
fn the_port_is_free_as_soon_as_the_loops_have_ended() {
    let Some(mut server) = start(Habit::Echo) else {
        return;
    };
    for graceful in [true, false, true, false, true] {
        let addr = server.addr();
        let mut client = server.connect();
        client.write_all(b"x").unwrap();
        expect(&mut client, b"x");
        if graceful {
            // The client closes first, so that no connection lingers on the port.
            drop(client);
            server.until("the end", |c| c.open == 0);
            server.stop();
        } else {
            drop(server);
            let end = client.read(&mut [0; 1]).map_err(|e| e.kind());
            assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)));
        }
        // Without SO_REUSEADDR's help against listeners: they must be gone.
        std::net::TcpListener::bind(addr).expect("the port to be free");
        server = start_at(Habit::Echo, addr).expect("the same address again");
    }
}
