//! Servers that are taken over from, and clients that must not notice.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use rustix::process::Signal;
use tidewire_handover::Hello;

use crate::common::durable::{assert_code, spawn};
use crate::common::{PATIENCE, Running, addr, stderr, tidewire};

/// Handovers in a row for each engine; `TIDEWIRE_HANDOVERS=100` is the long form.
pub(crate) fn handovers() -> usize {
    let asked = std::env::var("TIDEWIRE_HANDOVERS").ok();
    asked.map_or(3, |n| n.parse().expect("a number"))
}

/// A server with a control socket, and what it says first.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) lines: Vec<String>,
}

impl Server {
    /// Starts one that says so many lines.
    pub(crate) fn start(args: &[&str], lines: usize) -> Server {
        let mut running = Running::from(spawn(tidewire(args)));
        let lines: Vec<String> = (0..lines).map(|_| running.line()).collect();
        if lines.iter().any(String::is_empty) {
            panic!("{lines:?}: {}", stderr(&running.end()));
        }
        Server { running, lines }
    }

    pub(crate) fn addr(&self, line: usize) -> SocketAddr {
        addr(&self.lines[line])
    }

    /// Waits for its end, which is one in order.
    pub(crate) fn ends(self) -> String {
        let output = self.running.end();
        assert_code(&output, 0);
        stderr(&output)
    }

    pub(crate) fn stop(self) -> String {
        self.running.signal(Signal::TERM);
        self.ends()
    }
}

pub(crate) fn with<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [args, more].concat()
}

pub(crate) fn echo(to: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(to).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    echo_again(&mut client);
    client
}

pub(crate) fn echo_again(client: &mut (impl Read + Write)) {
    client.write_all(b"x").unwrap();
    let mut back = [0];
    client.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"x");
}

pub(crate) fn ready(admin: SocketAddr) -> String {
    let mut client = TcpStream::connect(admin).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Clients that connect, ask and leave, over and over.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    clients: Vec<thread::JoinHandle<()>>,
    pub(crate) served: Arc<AtomicU64>,
}

impl Load {
    pub(crate) fn on(to: SocketAddr, clients: usize) -> Load {
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let clients = (0..clients).map(|_| {
            let (over, served): (_, Arc<AtomicU64>) = (over.clone(), Arc::clone(&served));
            thread::spawn(move || {
                while !over.load(SeqCst) {
                    served.fetch_add(u64::from(visit(to)), SeqCst);
                }
            })
        });
        Load {
            clients: clients.collect(),
            over,
            served,
        }
    }

    pub(crate) fn end(self) -> u64 {
        self.over.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("no client is refused or reset");
        }
        self.served.load(SeqCst)
    }
}

/// One connection. It must stand, and end in order; whether it was served: a client that a server
/// accepts just before its end may be disconnected before it has asked.
pub(crate) fn visit(to: SocketAddr) -> bool {
    let mut client = TcpStream::connect(to).expect("a connection attempt is not refused");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"x").expect("not reset when asking");
    let mut back = Vec::new();
    let mut byte = [0];
    match client.read(&mut byte) {
        Ok(0) => return false,
        Ok(_) => back.extend(byte),
        Err(e) => panic!("{e} when answered"),
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    match client.read_to_end(&mut back) {
        Ok(_) => {}
        // A reset does no harm to a client that has received everything.
        Err(e) if e.kind() == ErrorKind::ConnectionReset => panic!("{e} at the end"),
        Err(e) => panic!("{e}"),
    }
    assert_eq!(back, b"x");
    true
}

pub(crate) fn resp(to: SocketAddr, command: &str, answer: &str) -> TcpStream {
    let mut client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(command.as_bytes()).unwrap();
    let mut back = vec![0; answer.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(String::from_utf8_lossy(&back), answer);
    client
}

pub(crate) fn hello() -> Hello {
    Hello {
        version: "test".into(),
        pid: std::process::id(),
        forget: false,
        takes_connections: false,
    }
}
