//! The small binary protocol over real sockets, on each engine: as existing clients write it, and
//! with thousands of them at once.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::common::{PATIENCE, Running, addr, engines, stderr};
use rustix::process::Signal;

/// Connections open at once.
const CROWD: usize = 8192;
/// Threads that the clients are on.
const HANDS: usize = 4;

fn serve(engine: &str) -> (Running, SocketAddr) {
    let args = ["serve", "kv", "--engine", engine, "--listen"];
    let mut server = Running::start(&[&args[..], &["kv/binary=127.0.0.1:0"]].concat());
    let line = server.line();
    assert!(line.contains("mode=binary"), "{line}");
    (server, addr(&line))
}

/// Stops it; what it counted.
fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    let output = server.end();
    let log = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{log}");
    log
}

fn connect(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(addr)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// A request in the pieces in which clients write it.
fn pieces(op: u8, key: &[u8], value: Option<&[u8]>) -> Vec<Vec<u8>> {
    let body = 1 + key.len() + value.map_or(0, |value| 1 + value.len());
    let mut pieces = vec![
        vec![op],
        (body as u16).to_be_bytes().to_vec(),
        vec![key.len() as u8],
        key.to_vec(),
    ];
    if let Some(value) = value {
        pieces.push(vec![value.len() as u8]);
        pieces.push(value.to_vec());
    }
    pieces
}

fn read(key: &[u8]) -> Vec<Vec<u8>> {
    pieces(1, key, None)
}

fn write(key: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
    pieces(2, key, Some(value))
}

/// Takes a response; whether it holds this value.
fn answers(socket: &mut TcpStream, value: &[u8]) -> std::io::Result<bool> {
    let mut response = vec![0; 2 + value.len()];
    socket.read_exact(&mut response)?;
    Ok(response[..2] == [3, value.len() as u8] && response[2..] == *value)
}

#[test]
fn requests_in_one_piece_and_in_six() {
    let long = [b'v'; 255];
    let pairs: [(&[u8], &[u8]); 4] = [
        (b"key", b"value"),
        (b"empty", b""),
        (&long, &long),
        (b"", b"nameless"),
    ];
    for engine in engines() {
        let (server, addr) = serve(engine);
        let mut whole = connect(addr).unwrap();
        let mut six = connect(addr).unwrap();
        for (key, value) in pairs {
            whole.write_all(&read(key).concat()).unwrap();
            assert!(answers(&mut whole, b"").unwrap(), "{engine}: a miss");
            for request in [write(key, value), read(key)] {
                for piece in request {
                    six.write_all(&piece).unwrap();
                }
                assert!(answers(&mut six, value).unwrap(), "{engine}");
            }
            whole.write_all(&read(key).concat()).unwrap();
            assert!(answers(&mut whole, value).unwrap(), "{engine}");
            whole.write_all(&write(key, b"").concat()).unwrap();
            assert!(answers(&mut whole, b"").unwrap(), "{engine}");
        }
        drop((whole, six));
        let log = stop(server);
        assert!(log.contains("reads=12 writes=8"), "{log}");
        assert!(log.contains("faults=0"), "{log}");
    }
}

/// How many connections fit into the descriptors that a process may have.
fn fitting(engine: &str) -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    // The hard limit: `tidewire serve` raises its own to that.
    let most = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
    let most: usize = most.unwrap_or(usize::MAX);
    // A thread is woken by a descriptor of its own.
    let each = if engine == "threads" { 2 } else { 1 };
    let fit = most.saturating_sub(200) / each;
    if fit < CROWD {
        eprintln!("{engine}: {fit} connections, not {CROWD}: only {most} descriptors are allowed");
    }
    fit.min(CROWD)
}

/// Does one WRITE and one READ on each of `n` connections, all open at once; successes, failures.
fn crowd(addr: SocketAddr, n: usize) -> (usize, usize) {
    let (good, bad) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let together = &Barrier::new(HANDS);
    thread::scope(|scope| {
        for hand in 0..HANDS {
            scope.spawn(move || {
                let numbers = (hand..n).step_by(HANDS);
                let mut open: Vec<(String, std::io::Result<TcpStream>)> = numbers
                    .map(|i| (format!("key {i}"), connect(addr)))
                    .collect();
                together.wait();
                for round in 0..2 {
                    for (key, socket) in &mut open {
                        let value = key.to_uppercase();
                        let request = match round {
                            0 => write(key.as_bytes(), value.as_bytes()),
                            _ => read(key.as_bytes()),
                        };
                        if let Ok(at) = socket
                            && let Err(error) = at.write_all(&request.concat())
                        {
                            *socket = Err(error);
                        }
                    }
                    for (key, socket) in &mut open {
                        let value = key.to_uppercase();
                        let outcome = match socket {
                            Ok(at) => answers(at, value.as_bytes()).map_err(|e| e.to_string()),
                            Err(error) => Err(error.to_string()),
                        };
                        if outcome == Ok(true) {
                            good.fetch_add(1, SeqCst);
                        } else if bad.fetch_add(1, SeqCst) < 3 {
                            eprintln!("{key}, round {round}: {outcome:?}");
                        }
                    }
                }
                together.wait();
            });
        }
    });
    (good.load(SeqCst), bad.load(SeqCst))
}

#[test]
fn thousands_at_once_each_write_and_read() {
    for engine in engines() {
        let n = fitting(engine);
        let (server, addr) = serve(engine);
        assert_eq!(crowd(addr, n), (2 * n, 0), "{engine}");
        let log = stop(server);
        assert!(
            log.contains(&format!("reads={n} writes={n} unreadable=0 faults=0")),
            "{log}"
        );
        assert!(log.contains(&format!("accepted={n}")), "{log}");
    }
}
