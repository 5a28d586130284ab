//! What connections may rely on, reaching across loops, and stopping.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::services::{Owes, Sums};
use crate::sim::{Conditions, Outcome, PlainState, Shape, Sim};
use crate::{
    Closed, ConnId, Conns, Cx, Handle, Input, Limits, LoopHandle, Next, Peer, Placement, Protocol,
    Refusal, Service, Turn,
};

const LONG: Duration = Duration::from_secs(3600);

/// Holds its peers back until another connection has something for them.
#[derive(Default)]
struct Waiters {
    handles: Mutex<Vec<Handle<u8>>>,
    loops: Mutex<Vec<LoopHandle<u8>>>,
    hung_up: Mutex<u32>,
}

struct Waiter(Arc<Waiters>);

impl Service for Arc<Waiters> {
    type Conn = Waiter;

    fn on_loop(&self, at: LoopHandle<u8>) {
        self.loops.lock().unwrap().push(at);
    }

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Waiter, Refusal> {
        Ok(Waiter(self.clone()))
    }

    fn woken(&self, local: &mut (), all: &mut Conns<'_, Waiter>) {
        all.each(local, |_, cx| cx.link.write(b"*"));
    }
}

impl Protocol for Waiter {
    type Local = ();
    type Message = u8;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.handles.lock().unwrap().push(cx.handle());
    }

    fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
        input.consume(1);
        Next::Paused
    }

    fn posted(&mut self, message: u8, cx: &mut Cx<'_, Self>) {
        cx.link.write(&[message]);
        cx.link.resume();
    }

    fn hung_up(&mut self, _: &mut Cx<'_, Self>) {
        *self.0.hung_up.lock().unwrap() += 1;
    }
}

#[test]
fn posts_and_signals_reach_connections_without_a_descriptor() {
    let waiters = Arc::new(Waiters::default());
    let mut sim = Sim::new(4);
    let peers: Vec<_> = (0..3)
        .map(|_| {
            let addr = sim.serve(waiters.clone(), Limits::default());
            sim.plain(&addr)
        })
        .collect();
    for &peer in &peers {
        sim.send(peer, b"??");
    }
    assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
    assert!(peers.iter().all(|&p| sim.received(p).is_empty()));
    for handle in waiters.handles.lock().unwrap().iter() {
        handle.try_post(b'!').unwrap();
    }
    assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
    for at in waiters.loops.lock().unwrap().iter() {
        at.signal();
    }
    assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
    for &peer in &peers {
        assert_eq!(sim.received(peer), b"!*");
    }
}

#[test]
fn a_paused_connection_notices_that_its_peer_goes() {
    for seed in 0..50 {
        let waiters = Arc::new(Waiters::default());
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let service = sim.service(at, waiters.clone(), Limits::default());
        let addr = sim.listen(service);
        let (leaver, breaker) = (sim.plain(&addr), sim.plain(&addr));
        // The end arrives before the pause, or after it, as it happens.
        sim.send(leaver, b"?");
        sim.finish(leaver);
        sim.send(breaker, b"?");
        assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
        assert_eq!(*waiters.hung_up.lock().unwrap(), 1, "seed {seed}");
        sim.close(breaker, true);
        assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
        assert_eq!(sim.counters(at).closed_for(Closed::Reset), 1, "seed {seed}");
    }
}

#[test]
fn a_stop_answers_what_was_received_before_it() {
    let mut sim = Sim::under(6, Conditions::calm());
    let at = sim.add_loop();
    let service = sim.service(at, Sums, Limits::default());
    let addr = sim.listen(service);
    let peer = sim.plain(&addr);
    sim.send(peer, &[1, 0, 0, 0, 9, 1]);
    sim.run_for(Duration::from_millis(1));
    sim.stop(at, Duration::from_secs(1));
    sim.run_for(Duration::from_millis(1));
    assert_eq!(sim.received(peer), 9u64.to_le_bytes());
    assert_eq!(sim.state(peer), PlainState::Ended);
    assert!(!sim.stopped(at));
    sim.close(peer, false);
    let late = sim.plain(&addr);
    assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    assert!(sim.stopped(at));
    assert_eq!(sim.counters(at).closed_for(Closed::Stopped), 1);
    assert!(matches!(sim.state(late), PlainState::Failed(_)));
}

/// The loops have nothing to do and could end long before: a stop is theirs only when their
/// acceptor has ended.
#[test]
fn a_stop_serves_clients_that_wait_for_a_late_acceptor() {
    for placement in [Placement::Acceptor, Placement::LeastConnections] {
        for shape in [Shape::Readiness, Shape::Completion] {
            let mut sim = Sim::under(6, Conditions::calm());
            let at = sim.shape(shape).add_loops(2, placement);
            let service = sim.service(at, Sums, Limits::default());
            let addr = sim.listen(service);
            let late = (sim.now() + Duration::from_millis(10)).as_nanos();
            sim.running(at).node.stall(late);
            let peers = [(); 3].map(|()| sim.plain(&addr));
            for peer in peers {
                sim.send(peer, &[1, 0, 0, 0, 9]);
                sim.finish(peer);
            }
            sim.run_for(Duration::from_millis(1));
            sim.stop(at, Duration::from_secs(1));
            assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
            for peer in peers {
                assert_eq!(sim.received(peer), 9u64.to_le_bytes(), "{shape:?}");
                assert_eq!(sim.state(peer), PlainState::Ended, "{shape:?}");
            }
            assert!(sim.stopped(at), "{shape:?}");
        }
    }
}

#[test]
fn a_stop_cuts_what_does_not_end_in_time() {
    let mut sim = Sim::under(6, Conditions::calm());
    let at = sim.add_loop();
    let limits = Limits {
        linger: LONG,
        ..Limits::default()
    };
    let service = sim.service(at, Sums, limits);
    let addr = sim.listen(service);
    let peer = sim.plain(&addr);
    sim.run_for(Duration::from_millis(1));
    sim.stop(at, Duration::from_secs(1));
    assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
    assert!(sim.stopped(at));
    assert_eq!(sim.counters(at).closed_for(Closed::StopDeadline), 1);
    let reset = PlainState::Failed(std::io::ErrorKind::ConnectionReset);
    assert!(matches!(sim.state(peer), PlainState::Ended) || sim.state(peer) == reset);
}

/// Releases for all what is owed up to a mark, at each signal.
struct Clerks(Arc<AtomicU64>);

impl Service for Clerks {
    type Conn = Owes;
    fn on_loop(&self, at: LoopHandle<()>) -> LoopHandle<()> {
        at
    }
    fn accept(&self, _: &Peer, _: &mut LoopHandle<()>) -> Result<Owes, Refusal> {
        Ok(Owes)
    }
    fn woken(&self, _: &mut LoopHandle<()>, all: &mut Conns<'_, Owes>) {
        all.release_all(self.0.load(SeqCst));
    }
}

#[test]
fn what_waits_for_a_mark_is_sent_when_it_is_released() {
    for seed in 0..50 {
        let mark = Arc::new(AtomicU64::new(0));
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let service = sim.service(at, Clerks(mark.clone()), Limits::default());
        let addr = sim.listen(service);
        let (patient, leaver, stays) = (sim.plain(&addr), sim.plain(&addr), sim.plain(&addr));
        for peer in [patient, leaver, stays] {
            sim.send(peer, b"abc");
        }
        sim.send(patient, b".");
        let release = |sim: &mut Sim, upto: u8| {
            mark.store(u64::from(upto), SeqCst);
            sim.local(service).signal();
        };
        // Hours pass: no connection is idle, slow or lingers.
        assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
        assert_eq!(sim.counters(at).closed_total(), 0, "seed {seed}");
        sim.close(leaver, true);
        assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
        assert_eq!(sim.counters(at).closed_for(Closed::Reset), 1, "seed {seed}");
        release(&mut sim, b'b');
        assert_eq!(sim.run_until_quiet(LONG), Outcome::Idle);
        assert_eq!(sim.received(patient), b"ab", "seed {seed}");
        assert_eq!(sim.received(stays), b"ab", "seed {seed}");
        release(&mut sim, b'c');
        sim.run_for(Duration::from_secs(1));
        assert_eq!(sim.received(patient), b"abc", "seed {seed}");
        assert_eq!(sim.state(patient), PlainState::Ended, "seed {seed}");
        assert_eq!(sim.received(stays), b"abc", "seed {seed}");
    }
}

/// Echo that is told what comes.
struct Foresees;

impl Service for Foresees {
    type Conn = Foresees;
    fn on_loop(&self, _: LoopHandle<()>) -> Vec<u8> {
        Vec::new()
    }
    fn accept(&self, _: &Peer, _: &mut Vec<u8>) -> Result<Foresees, Refusal> {
        Ok(Foresees)
    }
}

impl Protocol for Foresees {
    type Local = Vec<u8>;
    type Message = ();
    const LOOKS_AHEAD: bool = true;

    fn look_ahead(&self, input: &[u8], seen: &mut Vec<u8>) {
        seen.extend_from_slice(input);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

#[test]
fn what_is_announced_is_what_comes() {
    let mut announced = 0;
    for seed in 0..40 {
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let service = sim.service(at, Foresees, Limits::default());
        let addr = sim.listen(service);
        let peers: Vec<_> = (1..6).map(|i| (i, sim.plain(addr.clone()))).collect();
        for &(i, peer) in &peers {
            sim.send(peer, &vec![i; 3000 * usize::from(i)]);
            sim.finish(peer);
        }
        assert_eq!(sim.run_until_idle(LONG), Outcome::Idle);
        let seen = std::mem::take(sim.local(service));
        for &(i, peer) in &peers {
            let got = sim.received(peer);
            if sim.state(peer) == PlainState::Ended {
                assert!(got.len() == 3000 * usize::from(i), "seed {seed}");
            }
            assert!(got.iter().all(|&b| b == i), "seed {seed}");
            assert!(seen.iter().filter(|&&b| b == i).count() <= 3000 * usize::from(i));
        }
        announced += seen.len();
    }
    assert!(announced > 0);
}

/// Answers, or, when it is told to, goes and leaves a message that is not delivered.
struct Leaves;

/// Dropping it panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose: a message is dropped");
    }
}

impl Protocol for Leaves {
    type Local = ();
    type Message = Bomb;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if input.bytes() == b"go" {
            cx.link.abort();
        }
        cx.link.forward_all(input)
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        if why == Closed::Aborted {
            assert!(turn.tell(ConnId::from_bits(u64::MAX), Bomb).is_ok());
        }
    }
}

/// Messages are a protocol's code too: one that panics when it is not delivered does not take the
/// loop with it.
#[test]
fn a_message_that_panics_when_it_is_dropped_does_not_end_the_loop() {
    let mut sim = Sim::under(1, Conditions::calm());
    let addr = sim.serve(crate::service_fn(|_| Leaves), Limits::default());
    let (goes, stays) = (sim.plain(&addr), sim.plain(&addr));
    sim.send(goes, b"go");
    sim.run_for(Duration::from_secs(1));
    sim.send(stays, b"hello");
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.received(stays), b"hello");
}
