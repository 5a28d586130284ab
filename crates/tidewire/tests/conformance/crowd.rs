//! Many connections, and memory and descriptors back where they were.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use tidewire::{Closed, EngineChoice, Input, Next, Running};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::plain;
use crate::probe::{Context, Role};
use crate::process::{crowd, descriptors, eventually, in_use, resident};
use crate::roles::{Echo, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(crowd_comes_and_goes_without_a_trace, alone),
        case!(peers_that_never_read_cost_bounded_memory, alone),
        case!(little_words_cost_little_memory, alone),
    ]
}

/// Opens, uses and closes `n` connections.
fn visit(server: &Running, n: usize) {
    let addr = server.addrs()[0].tcp().expect("TCP");
    let mut clients: Vec<Client> = (0..n).map(|_| Client::connect(addr)).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(&(i as u32).to_be_bytes());
    }
    for (i, client) in clients.iter_mut().enumerate() {
        client.expect(&(i as u32).to_be_bytes());
    }
    assert_eq!(server.counters().open, n as u64);
    drop(clients);
    eventually("none open", || server.counters().open == 0);
}

/// Crowds that come one after the other.
const ROUNDS: usize = 6;

fn crowd_comes_and_goes_without_a_trace(v: Variant) {
    let n = crowd(v, true);
    let server = plain::server(v);
    visit(&server, 10);
    // What is kept for good, such as a high-water mark of tables, is there after the first time.
    let (fds, before) = (descriptors(), in_use());
    let left: Vec<usize> = (0..ROUNDS)
        .map(|_| {
            visit(&server, n);
            eventually("the descriptors to be back", || descriptors() <= fds);
            in_use().saturating_sub(before)
        })
        .collect();
    eprintln!("{n} connections left {left:?} bytes, time after time");
    // The C library keeps up to 40 MiB of threads' stacks, the more the busier the machine is, and one
    // live allocation high in the heap keeps the pages beneath it: so a single round may leave more
    // than the one before. What leaks, leaks in every round.
    let (most, leak) = match v.engine {
        EngineChoice::Threads => (64 << 20, 4096),
        // Small receive buffers come on top, 4 MiB a loop, which seem to stay once a busy machine
        // has needed all of them.
        EngineChoice::Uring => ((4 << 20) + v.loops * (5 << 20), 64),
        _ => (4 << 20, 64),
    };
    assert!(left.iter().all(|&bytes| bytes < most), "{left:?}");
    let leaks = left.windows(2).all(|w| w[1] > w[0] + leak * n);
    assert!(!leaks, "{left:?}");
    let counters = server.stop(Duration::from_secs(10));
    assert_eq!(
        counters.closed_for(Closed::Finished),
        (ROUNDS * n) as u64 + 10
    );
}

fn peers_that_never_read_cost_bounded_memory(v: Variant) {
    const PEERS: usize = 40;
    let server = Setup::on(v).start(|| Echo);
    let mut first = server.connect();
    first.send(b"x");
    first.expect(b"x");
    let piece = noise(20, 64 << 10);
    let before = resident("self");
    let mut stuck: Vec<Client> = (0..PEERS).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.patience(Duration::ZERO);
    }
    // Until no kernel buffers take any more.
    let mut quiet = 0;
    while quiet < 10 {
        let mut sent = 0;
        for client in &mut stuck {
            while let Ok(n) = client.write(&piece) {
                sent += n;
            }
        }
        quiet = if sent == 0 { quiet + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(10));
    }
    let counters = server.counters();
    assert!(counters.output_pauses >= PEERS as u64, "{counters}");
    let grown = resident("self").saturating_sub(before);
    // The high mark, a chunk more that was on its way, and the receive buffers of all loops.
    eprintln!("{grown} bytes for {PEERS} peers that do not read");
    let most = PEERS * (512 << 10) + v.loops * (10 << 20);
    assert!(
        grown < most,
        "{grown} bytes for {PEERS} peers that do not read"
    );
    first.send(b"y");
    first.expect(b"y");
    server.cut();
}

/// However replies are written, a connection that cannot send them holds what its marks allow.
fn little_words_cost_little_memory(v: Variant) {
    const PEERS: usize = 16;
    /// Writes until the marks say stop, in the way that the first byte says; nothing of it leaves.
    struct Words;
    impl Role for Words {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            cx.link.hold_until(1);
            let shared = Bytes::from_static(&[7; 300]);
            while !cx.link.full() {
                match input.bytes()[0] {
                    b'w' => cx.link.write_with(65536, |space| {
                        space[..8].fill(1);
                        8
                    }),
                    b's' => {
                        cx.link.write(b"eight...");
                        cx.link.write_shared(shared.clone());
                    }
                    b'b' => cx.link.write(&[2; 33 << 10]),
                    _ => {
                        cx.link.hold_until(1 + cx.link.queued_len() as u64);
                        cx.link.write(b".");
                    }
                }
            }
            input.consume(input.len());
            Next::More
        }
    }
    let server = Setup::on(v).start(|| Words);
    let resident_for = |way: &[u8]| {
        let consumed = || server.record.consumed();
        let (before, full) = (resident("self"), consumed() + PEERS as u64);
        let mut clients: Vec<Client> = (0..PEERS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(way);
        }
        let record = &server.record;
        record.until("them to be full", |_| consumed() >= full);
        let grown = resident("self").saturating_sub(before);
        clients.into_iter().for_each(Client::reset);
        server.until("none open", |c| c.open == 0);
        grown
    };
    // What is there after the first time, such as stacks.
    resident_for(b"b");
    for way in [b"w", b"s", b"b", b"m"] {
        let grown = resident_for(way);
        let each = grown / PEERS;
        eprintln!("{}: {each} bytes for each", char::from(way[0]));
        // The high mark and two blocks; and a thread's stack and buffers.
        assert!(each < (256 << 10) + (192 << 10), "{each} bytes for each");
    }
    server.cut();
}
