//! The loads against servers that look closely: how much is in flight, where ids begin, what was
//! sent in all.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use tidewire_ingest::Level;
use tidewire_ingest::classic::Mode;
use tidewire_load::workload::{
    AckLoad, Arrivals, Checks, DiscardLoad, EchoLoad, Extent, Failure, Generator, Outcome, Plan,
    Preset, Rounds, Target, Workload, run,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nothing has to come before the client is taken to wait for us.
const SILENCE: Duration = Duration::from_millis(30);

/// A server that gives each connection to `each`; what that returns comes out of the receiver.
fn server<T: Send + 'static>(
    each: impl Fn(TcpStream) -> T + Send + Sync + Clone + 'static,
) -> (SocketAddr, Receiver<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, each, tell) = (socket.unwrap(), each.clone(), tell.clone());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || tell.send(each(socket)));
        }
    });
    (addr, told)
}

fn load(
    workload: Workload,
    connections: usize,
    extent: Extent,
    addr: SocketAddr,
) -> Result<Outcome, Failure> {
    let target = Target {
        addr,
        process: None,
        cores: 1,
    };
    let plan = Plan {
        workload,
        connections,
        arrivals: Arrivals::Closed,
        extent,
    };
    run(&plan, &Generator::default(), &target, &mut |_| true)
}

/// What comes until nothing more does; `None` at the end.
fn until_silence(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let patience = if all.is_empty() { PATIENCE } else { SILENCE };
        socket.set_read_timeout(Some(patience)).unwrap();
        match socket.read(&mut bytes) {
            Ok(0) => return None,
            Ok(n) => all.extend_from_slice(&bytes[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Some(all);
            }
            Err(_) => return None,
        }
    }
}

#[test]
fn an_echo_load_keeps_its_pipeline_full_and_no_fuller() {
    let (addr, told) = server(|mut socket| {
        let mut most = 0;
        while let Some(bytes) = until_silence(&mut socket) {
            most = most.max(bytes.len());
            socket.write_all(&bytes).unwrap();
        }
        most
    });
    let echo = EchoLoad {
        size: 100,
        pipeline: 7,
        batch: 0,
    };
    let outcome = load(Workload::of(echo), 1, Extent::Count(20), addr).unwrap();
    assert_eq!((outcome.requests, outcome.bytes), (20, 2000));
    assert_eq!(outcome.latency.unwrap().count, 20);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 700);
}

/// Takes 17-byte messages, acknowledges all that came at once with one acknowledgement; the most
/// that was outstanding, and all ids.
fn acknowledger(mut socket: TcpStream) -> (usize, Vec<u64>) {
    let (mut most, mut ids, mut rest) = (0, Vec::new(), Vec::new());
    while let Some(bytes) = until_silence(&mut socket) {
        rest.extend(bytes);
        let whole = rest.len() / 17;
        let came = rest.drain(..whole * 17).collect::<Vec<u8>>();
        for message in came.chunks_exact(17) {
            assert_eq!(message[8..], *b"\x05\0\0\0xxxxx");
            ids.push(u64::from_ne_bytes(message[..8].try_into().unwrap()));
        }
        most = most.max(whole);
        if whole > 0 {
            let mut ack = ids[ids.len() - 1].to_ne_bytes().to_vec();
            ack.extend_from_slice(&(whole as u32 - 1).to_le_bytes());
            socket.write_all(&ack).unwrap();
        }
    }
    (most, ids)
}

fn acks() -> AckLoad {
    AckLoad {
        level: Level::None,
        mode: Mode::Sync,
        payload: 5,
        batch: 10,
        window: 0,
        checks: None,
        rounds: None,
    }
}

#[test]
fn a_window_bounds_what_is_not_acknowledged() {
    for checks in [None, Preset(Mode::Async).load().checks] {
        let (addr, told) = server(acknowledger);
        let load_of = AckLoad {
            window: 25,
            checks,
            ..acks()
        };
        let outcome = load(Workload::of(load_of), 1, Extent::Count(97), addr).unwrap();
        assert_eq!(outcome.requests, 97);
        let (most, ids) = told.recv_timeout(PATIENCE).unwrap();
        assert!((10..=20).contains(&most), "whole writes of 10 within 25");
        assert!(ids.iter().copied().eq(0..97));
    }
}

/// The server takes all at once, so that each connection always has more to send.
#[test]
fn a_load_without_a_window_hears_its_acknowledgements() {
    let (addr, _told) = server(|mut socket| {
        let (mut taken, mut acknowledged) = (0, 0);
        let mut bytes = vec![0; 256 << 10];
        while let Ok(n @ 1..) = socket.read(&mut bytes) {
            taken += n as u64;
            let whole = taken / 17;
            if whole > acknowledged {
                let mut ack = (whole - 1).to_ne_bytes().to_vec();
                let others = (whole - acknowledged - 1) as u32;
                ack.extend_from_slice(&others.to_le_bytes());
                acknowledged = whole;
                if socket.write_all(&ack).is_err() {
                    break;
                }
            }
        }
    });
    let load_of = AckLoad {
        batch: 4096,
        ..acks()
    };
    let extent = Extent::Time {
        warm_up: Duration::from_millis(100),
        measured: Duration::from_millis(500),
    };
    let outcome = load(Workload::of(load_of), 8, extent, addr).unwrap();
    assert!(outcome.requests > 0);
}

#[test]
fn rounds_restart_ids_only_if_told_to() {
    for restart_ids in [true, false] {
        let (addr, told) = server(acknowledger);
        let rounds = Rounds {
            rounds: 3,
            messages: 15,
            restart_ids,
        };
        let load_of = AckLoad {
            rounds: Some(rounds),
            ..acks()
        };
        let outcome = load(Workload::of(load_of), 1, Extent::Rounds, addr).unwrap();
        assert_eq!(outcome.requests, 45);
        assert_eq!(outcome.rounds.len(), 3);
        assert!(outcome.rounds.iter().all(|round| round.messages == 15));
        let (most, ids) = told.recv_timeout(PATIENCE).unwrap();
        assert!(most <= 15, "a round ends before the next begins");
        assert_eq!(ids[15], if restart_ids { 0 } else { 15 });
    }
}

#[test]
fn looks_for_acknowledgements_come_as_told_and_the_last_one_lasts() {
    let (addr, told) = server(acknowledger);
    let load_of = AckLoad {
        checks: Some(Checks {
            messages: 20,
            interval: Duration::ZERO,
            patience: Duration::from_secs(3600),
        }),
        ..acks()
    };
    // Each look waits until something has come, which is after a silence.
    let outcome = load(Workload::of(load_of), 1, Extent::Count(95), addr).unwrap();
    assert_eq!(outcome.requests, 95);
    let (most, ids) = told.recv_timeout(PATIENCE).unwrap();
    assert!((10..=50).contains(&most), "{most} without a look");
    assert_eq!(ids.len(), 95);
}

#[test]
fn a_count_is_spread_over_all_connections() {
    let (addr, told) = server(|mut socket| {
        let mut total = 0;
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = socket.read(&mut bytes) {
            total += n;
        }
        total
    });
    let discard = DiscardLoad { size: 10, batch: 4 };
    let outcome = load(Workload::of(discard), 3, Extent::Count(100), addr).unwrap();
    assert_eq!((outcome.requests, outcome.bytes), (100, 1000));
    let mut each: Vec<usize> = (0..3)
        .map(|_| told.recv_timeout(PATIENCE).unwrap())
        .collect();
    each.sort_unstable();
    assert_eq!(each, [330, 330, 340]);
}

#[test]
fn a_watcher_can_end_a_run() {
    let (addr, _told) = server(|mut socket| {
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
    });
    let echo = EchoLoad {
        size: 64,
        pipeline: 1,
        batch: 0,
    };
    let target = Target {
        addr,
        process: None,
        cores: 1,
    };
    let plan = Plan {
        workload: Workload::of(echo),
        connections: 2,
        arrivals: Arrivals::Closed,
        extent: Extent::Count(u64::MAX - 1),
    };
    let generator = Generator::default();
    let outcome = run(&plan, &generator, &target, &mut |progress| {
        progress.requests < 10
    });
    let outcome = outcome.unwrap();
    assert!(outcome.interrupted && outcome.requests >= 10);
}
