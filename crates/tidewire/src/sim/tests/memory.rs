//! The limit on what all connections hold together, in the simulator: one for all of its loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::reactor::lines_of_tests::logged;
use crate::sim::{Conditions, PlainState, Shape, Sim};
use crate::{
    Chunk, Closed, Cx, Dial, Input, Limits, LoopHandle, Next, Peer, Protocol, Refusal, Service,
    Turn,
};

const LIMIT: usize = 1 << 20;
const MOMENT: Duration = Duration::from_secs(5);

/// Keeps what comes in the loop's state, where no connection has it. `>` and a number makes as many KiB of
/// output that is never released.
#[derive(Clone, Default)]
struct Keeper {
    dials_failed: Arc<AtomicUsize>,
}

struct Conn;

impl Service for Keeper {
    type Conn = Conn;

    fn on_loop(&self, _: LoopHandle<()>) -> Vec<Chunk> {
        Vec::new()
    }

    fn accept(&self, _: &Peer, _: &mut Vec<Chunk>) -> Result<Conn, Refusal> {
        Ok(Conn)
    }

    fn dial_failed(&self, _: u64, _: &std::io::Error, _: &mut Turn<'_, Conn>) {
        self.dials_failed.fetch_add(1, SeqCst);
    }
}

impl Protocol for Conn {
    type Local = Vec<Chunk>;
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if let Some(kib) = input.bytes().strip_prefix(b">") {
            let kib: usize = std::str::from_utf8(kib).unwrap().parse().unwrap();
            cx.link.hold_until(1);
            for _ in 0..kib {
                cx.link.write(&[0; 1 << 10]);
            }
            input.consume(input.len());
        } else {
            cx.local.push(input.take(input.len()));
        }
        Next::More
    }
}

fn sim() -> Sim {
    let mut sim = Sim::under(1, Conditions::calm());
    // By completions one turn brings up to all that a loop's buffers hold before it is counted, which
    // is more than this limit.
    sim.shape(Shape::Readiness).memory(LIMIT);
    sim
}

/// What is kept counts for the connection that took it, which is not read from beyond three
/// quarters of the limit of all loops. When it is dropped reading goes on, though no connection has
/// a part in that.
#[test]
fn chunks_count_wherever_they_are() {
    let mut sim = sim();
    let loops = [(); 2].map(|()| sim.add_loop());
    let services = loops.map(|at| sim.service(at, Keeper::default(), Limits::default()));
    let peers = services.map(|service| {
        let addr = sim.listen(service);
        sim.plain(&addr)
    });
    for peer in peers {
        sim.send(peer, &vec![7; 2 * LIMIT]);
    }
    let kept =
        |sim: &mut Sim| services.map(|s| sim.local(s).iter().map(|c| c.len()).sum::<usize>());
    sim.run_for(MOMENT);
    let before: usize = kept(&mut sim).iter().sum();
    // A chunk counts with its whole buffer of 68 KiB, of which what came in pieces of 64 KiB fills so much.
    let least = LIMIT / 4 * 3 / 68 * 64;
    assert!((least..=LIMIT).contains(&before), "{before}");
    assert!(loops.iter().any(|&at| sim.counters(at).memory_pauses > 0));
    for service in services {
        sim.local(service).clear();
    }
    sim.run_for(MOMENT);
    let after: usize = kept(&mut sim).iter().sum();
    assert!((least..=LIMIT).contains(&after), "{after}");
    for at in loops {
        assert_eq!(sim.counters(at).closed_for(Closed::MemoryLimit), 0);
    }
}

/// Beyond the limit the one that holds most goes, whatever loop it is on, and no other.
#[test]
fn the_greediest_of_all_loops_is_closed() {
    for greedy in 0..3 {
        let mut sim = sim();
        let peers: Vec<_> = (0..3)
            .map(|_| {
                let addr = sim.serve(Keeper::default(), Limits::default());
                sim.plain(&addr)
            })
            .collect();
        // The one that goes is not the one whose part is too much.
        sim.send(peers[greedy], b">500");
        sim.run_for(MOMENT);
        for &peer in peers.iter().filter(|&&peer| peer != peers[greedy]) {
            sim.send(peer, b">300");
            sim.run_for(MOMENT);
        }
        for (i, &peer) in peers.iter().enumerate() {
            let gone = sim.state(peer) != PlainState::Open;
            assert_eq!(gone, i == greedy, "{i} of {greedy}");
        }
    }
}

/// An attempt to connect fails while memory is short; a dial that tries again succeeds when it is not.
#[test]
fn dials_wait_for_memory() {
    let mut sim = sim();
    let to = sim.serve(Keeper::default(), Limits::default());
    let at = sim.add_loop();
    let keeper = Keeper::default();
    let service = sim.service(at, keeper.clone(), Limits::default());
    let addr = sim.listen(service);
    let peer = sim.plain(&addr);
    sim.send(peer, b">950");
    sim.run_for(MOMENT);
    let lines = logged(|| {
        sim.dial(service, Dial::to(to.clone()));
        sim.dial(service, Dial::to(to).attempts(u32::MAX));
        sim.run_for(MOMENT);
    });
    let refused = |line: &String| line.contains("dial refused") && line.contains("as much memory");
    assert!(lines.iter().any(refused), "{lines:?}");
    assert_eq!(keeper.dials_failed.load(SeqCst), 1);
    assert!(sim.counters(at).dials_refused > 2);
    sim.close(peer, true);
    sim.run_for(10 * MOMENT);
    assert_eq!(sim.counters(at).dialled, 1);
    assert_eq!(keeper.dials_failed.load(SeqCst), 1);
}

/// Connections that wait for each other's memory, with half a frame each, do not wait for ever.
#[test]
fn a_shortage_ends_though_no_connection_can_give_anything_back() {
    let mut sim = sim();
    let peers: Vec<_> = (0..2)
        .map(|_| {
            let addr = sim.serve(Keeper::default(), Limits::default());
            sim.plain(&addr)
        })
        .collect();
    sim.send(peers[0], b">390");
    sim.send(peers[1], b">391");
    sim.run_for(MOMENT);
    assert!(
        peers
            .iter()
            .all(|&peer| sim.state(peer) == PlainState::Open)
    );
    sim.run_for(12 * MOMENT);
    assert_eq!(sim.state(peers[0]), PlainState::Open);
    assert_ne!(sim.state(peers[1]), PlainState::Open, "who holds most");
}
