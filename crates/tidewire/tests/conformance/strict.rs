//! Clients that write a message once and read once for its reply, as rust_echo_bench does: what
//! comes back in two pieces has failed. Every reply leaves by one call on every engine. Above half
//! of a connection's first window the sender's kernel cuts by itself now and then, so there only
//! the server's calls are counted.
//!
//! A short sweep of lengths and connections; `TIDEWIRE_ECHO_SWEEP=long` makes it a long one, which prints the receives of each message.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread;

use tidewire::EngineChoice;

use crate::case::{Case, case};
use crate::child;
use crate::client::PATIENCE;
use crate::fixture::{Server, Setup};
use crate::pieces::{Chunks, Notes};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![case!(one_write_is_answered_by_one_read, alone)]
}

/// Half of the window that a Linux kernel announces first on loopback: from here on the sender's kernel may cut.
const KERNEL_CUTS: usize = 32_741;

/// What io_uring receives of a connection into before it has learned how long messages are.
const SMALL: usize = 4096;

/// Receives of a message, beside receives for a connection's end and for what its engine has to
/// learn.
const RECEIVES_MAX: f64 = 1.05;

struct Sweep {
    lengths: Vec<usize>,
    /// Connections, and messages of each.
    loads: &'static [(usize, usize)],
}

impl Sweep {
    fn asked_for() -> Sweep {
        match child::is_long() {
            true => Sweep {
                lengths: (1..=65_536).step_by(2_621).chain([65_536]).collect(),
                loads: &[(1, 400), (10, 400), (50, 400), (100, 400), (300, 400)],
            },
            false => Sweep {
                lengths: vec![1, 700, 4_999, 8_191, 12_345, 25_000, 32_740, 47_001, 65_536],
                loads: &[(1, 100), (30, 20)],
            },
        }
    }
}

/// How long the first piece of each reply was that did not come whole.
fn cuts(to: SocketAddr, length: usize, messages: usize, together: &Barrier) -> Vec<usize> {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let (message, mut reply) = (vec![7; length], vec![0; length]);
    together.wait();
    let mut cuts = Vec::new();
    for _ in 0..messages {
        stream.write_all(&message).expect("sent");
        let came = stream.read(&mut reply).expect("a reply");
        if came < length {
            cuts.push(came);
            stream.read_exact(&mut reply[came..]).expect("its rest");
        }
        assert_eq!(reply[length - 1], 7);
    }
    cuts
}

fn load(server: &Server, length: usize, (connections, messages): (usize, usize)) -> Vec<usize> {
    let to = server.addr();
    let together = Arc::new(Barrier::new(connections));
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let together = together.clone();
            thread::spawn(move || cuts(to, length, messages, &together))
        })
        .collect();
    let ends = clients.into_iter().map(|client| client.join());
    ends.flat_map(|cuts| cuts.expect("a client")).collect()
}

fn one_write_is_answered_by_one_read(v: Variant) {
    let sweep = Sweep::asked_for();
    let is_ring = v.engine == EngineChoice::Uring;
    for &length in &sweep.lengths {
        for &of in sweep.loads {
            let chunks = Chunks::default();
            let theirs = chunks.clone();
            let server = Setup::on(v).start(move || Notes(theirs.clone()));
            let cuts = load(&server, length, of);
            let (messages, chunks) = (
                (of.0 * of.1) as u64,
                chunks.lock().expect("not poisoned").len() as u64,
            );
            let counted = server.stop();
            let what = format!("{length} bytes, {} connections: {cuts:?}", of.0);
            if length < KERNEL_CUTS {
                assert!(cuts.is_empty(), "{what}");
                assert_eq!(chunks, messages, "{what}");
            }
            // What the sender's kernel has cut is answered a chunk at a time, or together where the first waited for its turn.
            let sends = messages..=chunks;
            assert!(sends.contains(&counted.sends), "{what}: {counted}");
            let each = counted.receives as f64 / messages as f64;
            println!("{v}: {what}: {each:.4} receives of each message, {chunks} chunks");
            // The end is a receive of its own, and a ring's first message of each connection one for each small buffer.
            let learns = if is_ring { length / SMALL } else { 0 };
            let beside = (1 + learns) as f64 / of.1 as f64;
            assert!(
                each <= RECEIVES_MAX + beside,
                "{what}: {each:.4} receives of each"
            );
        }
    }
}
