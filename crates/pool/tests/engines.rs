//! Work on threads, over real sockets, on every engine.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::{PANIC, Worker};
use tidewire::{Builder, EngineChoice, Listen, StartError};
use tidewire_pool::{Counters, Pool, Settings};

const PATIENCE: Duration = Duration::from_secs(30);

fn on_every_engine(
    worker: impl Fn(&Pool) -> Worker,
    settings: &Settings,
    f: impl Fn(SocketAddr, &Pool),
) {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let pool = Pool::new(settings).unwrap();
        let mut builder = Builder::new();
        builder.engine(engine).loops(2);
        let id = builder.service(worker(&pool));
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let running = match builder.start() {
            Ok(running) => running,
            Err(e @ StartError::Engine { .. }) => {
                eprintln!("skipped: {e}");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        f(running.addrs()[0].tcp().unwrap(), &pool);
        running.stop(Duration::from_secs(10));
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn read(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn until(pool: &Pool, done: impl Fn(&Counters) -> bool) {
    let start = Instant::now();
    while !done(&pool.counters()) {
        assert!(start.elapsed() < PATIENCE, "{}", pool.counters());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn many_connections_are_answered_in_their_order() {
    let settings = Settings {
        threads: 3,
        ..Settings::default()
    };
    on_every_engine(Worker::new, &settings, |addr, pool| {
        let sent: Vec<u8> = (0..60).map(|n| b'a' + n % 26).collect();
        let mut all: Vec<TcpStream> = (0..15).map(|_| connect(addr)).collect();
        for stream in &mut all {
            stream.write_all(&sent).unwrap();
        }
        for stream in &mut all {
            assert_eq!(read(stream, sent.len()), sent);
        }
        until(pool, |c| c.places == 0 && c.running == 0);
        assert_eq!(pool.counters().done, 15 * 60);
    });
}

/// Holds work until it is let go.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn wait(&self) {
        let open = self.0.lock().unwrap();
        drop(self.1.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

#[test]
fn a_busy_pool_stalls_no_connection_and_refuses_what_is_too_much() {
    let settings = Settings {
        threads: 1,
        places: 3,
        ..Settings::default()
    };
    let gate: Mutex<Arc<Gate>> = Mutex::default();
    let worker = |pool: &Pool| {
        let own = Arc::new(Gate::default());
        *gate.lock().unwrap() = own.clone();
        let mut worker = Worker::new(pool);
        worker.work = Arc::new(move |byte| {
            own.wait();
            byte
        });
        worker
    };
    on_every_engine(worker, &settings, |addr, pool| {
        let mut busy = connect(addr);
        busy.write_all(b"abc").unwrap();
        until(pool, |c| c.places == 3 && c.running == 1);
        // The loops go on, and say so.
        let mut refused = connect(addr);
        refused.write_all(b"d").unwrap();
        assert_eq!(read(&mut refused, 1), b"R");
        gate.lock().unwrap().open();
        assert_eq!(read(&mut busy, 3), b"abc");
        until(pool, |c| c.places == 0);
        refused.write_all(b"e").unwrap();
        assert_eq!(read(&mut refused, 1), b"e");
        assert_eq!(pool.counters().refused_pool, 1);
    });
}

#[test]
fn panics_cost_neither_threads_nor_places() {
    let settings = Settings {
        threads: 2,
        places: 8,
        ..Settings::default()
    };
    on_every_engine(Worker::new, &settings, |addr, pool| {
        let mut stream = connect(addr);
        for _ in 0..50 {
            stream.write_all(&[PANIC, b'x']).unwrap();
            assert_eq!(read(&mut stream, 2), b"Px");
        }
        until(pool, |c| c.places == 0 && c.running == 0);
        assert_eq!(pool.counters().panicked, 50);
    });
}

#[test]
fn work_of_connections_that_have_gone_is_not_begun() {
    let settings = Settings {
        threads: 1,
        ..Settings::default()
    };
    let gate: Mutex<Arc<Gate>> = Mutex::default();
    let open: Mutex<Arc<AtomicUsize>> = Mutex::default();
    let worker = |pool: &Pool| {
        let own = Arc::new(Gate::default());
        *gate.lock().unwrap() = own.clone();
        let mut worker = Worker::new(pool);
        *open.lock().unwrap() = worker.open.clone();
        worker.work = Arc::new(move |byte| {
            own.wait();
            byte
        });
        worker
    };
    on_every_engine(worker, &settings, |addr, pool| {
        let mut stream = connect(addr);
        stream.write_all(b"abcdefgh").unwrap();
        until(pool, |c| c.places == 8 && c.running == 1);
        socket_reset(&stream);
        drop(stream);
        let open = open.lock().unwrap().clone();
        until(pool, |_| open.load(SeqCst) == 0);
        gate.lock().unwrap().open();
        until(pool, |c| c.places == 0);
        assert_eq!((pool.counters().done, pool.counters().dropped), (1, 7));
    });
}

/// Has the close reset the connection, so that the server need not find out.
fn socket_reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn threads_end_with_the_pool_and_weigh_less_than_loops() {
    let pool = Pool::new(&Settings {
        threads: 1,
        nice: 7,
        ..Settings::default()
    })
    .unwrap();
    let nice = Arc::new(AtomicI32::new(0));
    let stopped = Arc::new(AtomicBool::new(false));
    let mut worker = Worker::new(&pool);
    let (seen, end) = (nice.clone(), stopped.clone());
    worker.work = Arc::new(move |byte| {
        thread_local!(static AT_END: std::cell::RefCell<Option<Ends>> = const { std::cell::RefCell::new(None) });
        AT_END.with_borrow_mut(|at_end| *at_end = Some(Ends(end.clone())));
        seen.store(rustix::process::nice(0).unwrap(), SeqCst);
        byte
    });
    let mut builder = Builder::new();
    builder.engine(EngineChoice::Epoll);
    let id = builder.service(worker);
    builder.listen(id, Listen::at("127.0.0.1:0"));
    let running = builder.start().unwrap();
    let mut stream = connect(running.addrs()[0].tcp().unwrap());
    stream.write_all(b"a").unwrap();
    assert_eq!(read(&mut stream, 1), b"a");
    // The test's own process may have another niceness than 0.
    let own = rustix::process::nice(0).unwrap();
    assert_eq!(nice.load(SeqCst), (own + 7).min(19));
    drop(stream);
    running.stop(Duration::from_secs(10));
    drop((pool, builder));
    let start = Instant::now();
    while !stopped.load(SeqCst) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Says that its thread has ended.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let usual = Settings::default;
    for wrong in [
        Settings {
            threads: 0,
            ..usual()
        },
        Settings {
            places: 0,
            ..usual()
        },
        Settings {
            nice: 20,
            ..usual()
        },
        Settings {
            nice: -1,
            ..usual()
        },
    ] {
        let error = Pool::new(&wrong).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}
