//! What an idle connection of the command costs, in resident memory: the library's share, the
//! allocator's and all else.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::{PATIENCE, Running};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

/// Most that a connection may cost; bytes.
const MOST: usize = 512;

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

/// Bytes for each connection from a ninth of the crowd to all of it.
fn cost(engine: &str, workers: &str) -> Option<usize> {
    let args = ["serve", "echo", "--listen", "echo=0", "--engine", engine];
    let mut server = Running::start(&[&args[..], &["--workers", workers]].concat());
    let line = server.line();
    if line.is_empty() {
        eprintln!("skipped: {engine} does not work here");
        return None;
    }
    let addr = line.split(' ').find_map(|word| word.strip_prefix("addr="));
    let addr: SocketAddr = addr.unwrap().parse().unwrap();
    let mut clients: Vec<TcpStream> = Vec::new();
    let mut fill = |n: usize| {
        while clients.len() < n {
            let mut client = TcpStream::connect_timeout(&addr, PATIENCE).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            clients.push(client);
        }
    };
    let most = crowd();
    fill(most / 9);
    let few = settled(server.pid());
    fill(most);
    let each = settled(server.pid()).saturating_sub(few) / (most - most / 9);
    eprintln!("{engine}, {workers} loops: {each} bytes for each of {most} idle connections");
    Some(each)
}

// One after the other: each takes the descriptors of this process.
#[test]
fn an_idle_connection_costs_at_most_512_bytes() {
    for (engine, workers) in [
        ("epoll", "1"),
        ("epoll", "2"),
        ("uring", "1"),
        ("uring", "2"),
    ] {
        if let Some(each) = cost(engine, workers) {
            assert!(each <= MOST, "{engine}, {workers} loops: {each} bytes");
        }
    }
}
