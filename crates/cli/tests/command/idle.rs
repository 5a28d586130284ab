//! What an idle connection of the command costs, in resident memory: the library's share, the
//! allocator's and all else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::pki::{Files, NAMES};
use crate::common::{PATIENCE, Running};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tidewire_tls::{Client, Roots};

/// Most that a connection may cost; bytes.
const MOST: usize = 512;
/// Most memory of an idle connection with TLS.
const MOST_WITH_TLS: usize = 10 << 10;

fn resident(pid: Pid) -> usize {
    let path = format!("/proc/{}/statm", pid.as_raw_nonzero());
    let statm = std::fs::read_to_string(path).unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Resident memory, when it has stopped changing.
fn settled(pid: Pid) -> usize {
    let mut last = resident(pid);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        let now = resident(pid);
        if now == last {
            break;
        }
        last = now;
    }
    last
}

/// As many connections as the descriptors of this process allow, up to 9,000.
fn crowd() -> usize {
    let limit = getrlimit(Resource::Nofile).maximum;
    let both = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, both).unwrap();
    let room = limit.unwrap_or(u64::MAX).saturating_sub(200);
    9000.min(usize::try_from(room).unwrap_or(usize::MAX))
}

/// A server with these arguments more, and where it listens; none if its engine does not work here.
fn serve(engine: &str, workers: &str, more: &[&str]) -> Option<(Running, SocketAddr)> {
    let args = ["serve", "echo", "--listen", "echo=0", "--engine", engine];
    let args = [&args[..], &["--workers", workers], more].concat();
    let mut server = Running::start(&args);
    let line = server.line();
    if line.is_empty() {
        eprintln!("skipped: {engine} does not work here");
        return None;
    }
    let addr = line.split(' ').find_map(|word| word.strip_prefix("addr="));
    Some((server, addr.unwrap().parse().unwrap()))
}

/// Bytes for each connection from a ninth of so many to all of them.
fn cost<C: Read + Write>(server: &Running, most: usize, connect: impl Fn() -> C) -> usize {
    let mut clients: Vec<C> = Vec::new();
    let mut fill = |n: usize| {
        while clients.len() < n {
            let mut client = connect();
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            clients.push(client);
        }
    };
    fill(most / 9);
    let few = settled(server.pid());
    fill(most);
    settled(server.pid()).saturating_sub(few) / (most - most / 9)
}

fn socket(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

// One after the other: each takes the descriptors of this process.
#[test]
fn an_idle_connection_costs_at_most_512_bytes() {
    let most = crowd();
    for (engine, workers) in [
        ("epoll", "1"),
        ("epoll", "2"),
        ("uring", "1"),
        ("uring", "2"),
    ] {
        if let Some((server, addr)) = serve(engine, workers, &[]) {
            let each = cost(&server, most, || socket(addr));
            eprintln!(
                "{engine}, {workers} loops: {each} bytes for each of {most} idle connections"
            );
            assert!(each <= MOST, "{engine}, {workers} loops: {each} bytes");
        }
    }
    idle_tls_connections_cost_what_is_said(most.min(1800));
}

/// With TLS: rustls's state of a connection, and its buffers.
fn idle_tls_connections_cost_what_is_said(most: usize) {
    let files = Files::new();
    let roots = Roots::from_pem(files.issuer.pem().as_bytes()).unwrap();
    let client = Client::new(&roots).build().unwrap();
    for engine in ["epoll", "uring"] {
        if let Some((server, addr)) = serve(engine, "1", &files.serve()) {
            let connect = || client.connect(socket(addr), NAMES[1], PATIENCE).unwrap();
            let each = cost(&server, most, connect);
            eprintln!("{engine}: {each} bytes for each of {most} idle TLS connections");
            assert!(each <= MOST_WITH_TLS, "{engine}: {each} bytes");
        }
    }
}
