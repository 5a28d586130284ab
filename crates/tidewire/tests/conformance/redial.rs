//! Dials that are asked for when a connection or a loop ends, and dials that are too many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidewire::{
    Closed, Cx, Dial, Input, Limits, LoopHandle, Next, NotDialled, Peer, Protocol, Refusal,
    Service, Turn,
};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE};
use crate::fixture::Setup;
use crate::hosting::{Loops, host};
use crate::listener::{Listener, nobody};
use crate::probe::{Context, Message, Role};
use crate::process::eventually;
use crate::roles::Echo;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(dial_asked_for_in_closed_is_made),
        case!(dial_asked_for_in_closed_of_a_stop_is_told_of),
        case!(stop_ends_though_every_failed_dial_is_made_again),
        case!(dial_left_to_a_loop_that_has_ended, on = Variant::is_threads),
        case!(dial_refused_by_the_connection_limit),
        case!(
            dials_beyond_their_limit_fail_at_once,
            on = |v| !v.is_threads()
        ),
        case!(dials_beyond_the_inbox_come_back, on = |v| !v.is_threads()),
    ]
}

/// Dials again whenever a connection ends or a dial fails.
struct Redials {
    to: SocketAddr,
    failed: Arc<AtomicU64>,
    again: bool,
    by_turn: bool,
}

/// The address that it dials, and whether by its turn or by a handle.
struct Conn(SocketAddr, bool);

impl Protocol for Conn {
    type Local = LoopHandle<()>;
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Conn>) -> Next {
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
    fn closed(self, _: Closed, turn: &mut Turn<'_, Conn>) {
        if self.1 {
            turn.dial(Dial::to(self.0));
        } else {
            turn.local.dial(Dial::to(self.0)).expect("room for a dial");
        }
    }
}

impl Service for Redials {
    type Conn = Conn;
    fn on_loop(&self, at: LoopHandle<()>) -> LoopHandle<()> {
        at
    }
    fn accept(&self, _: &Peer, _: &mut LoopHandle<()>) -> Result<Conn, Refusal> {
        Ok(Conn(self.to, self.by_turn))
    }
    fn dial_failed(&self, _: u64, _: &std::io::Error, turn: &mut Turn<'_, Conn>) {
        self.failed.fetch_add(1, SeqCst);
        if self.again && self.by_turn {
            turn.dial(Dial::to(self.to));
        } else if self.again {
            // A loop that has failed too often at its end takes no more.
            let _ = turn.local.dial(Dial::to(self.to));
        }
    }
}

/// A server that dials, the listener that it dials, and how often it was told that it failed.
fn redialling(
    v: Variant,
    again: bool,
    by_turn: bool,
) -> (Loops<Redials>, Listener, Arc<AtomicU64>) {
    let listener = Listener::new();
    let failed = Arc::<AtomicU64>::default();
    let service = Redials {
        to: listener.addr(),
        failed: failed.clone(),
        again,
        by_turn,
    };
    (host(v, service, Limits::default()), listener, failed)
}

fn served(to: SocketAddr) -> Client {
    let mut client = Client::connect(to);
    client.send(b"x");
    client.expect(b"x");
    client
}

fn dial_asked_for_in_closed_is_made(v: Variant) {
    for by_turn in [false, true] {
        let (server, listener, failed) = redialling(v, false, by_turn);
        drop(served(server.addr()));
        // The service dials again whenever a dialled connection ends.
        for _ in 0..5 {
            let mut peer = listener.accept();
            peer.send(b"y");
            peer.expect(b"y");
        }
        assert_eq!(failed.load(SeqCst), 0);
    }
}

fn dial_asked_for_in_closed_of_a_stop_is_told_of(v: Variant) {
    for by_turn in [false, true] {
        let (server, _listener, failed) = redialling(v, false, by_turn);
        let client = served(server.addr());
        let ends = world::spawn(move || drop({ client }.rest()));
        let counters = server.stop(Duration::from_secs(10));
        ends.join().expect("an orderly end");
        assert_eq!(failed.load(SeqCst), 1);
        assert_eq!((counters.dialled, counters.open), (0, 0));
    }
}

fn stop_ends_though_every_failed_dial_is_made_again(v: Variant) {
    for by_turn in [false, true] {
        let (server, listener, failed) = redialling(v, true, by_turn);
        drop(listener);
        drop(served(server.addr()));
        eventually("a failure", || failed.load(SeqCst) > 0);
        server.stop(Duration::from_secs(10));
    }
}

/// The threads engine has a loop for each connection; a handle to it is good for ever.
fn dial_left_to_a_loop_that_has_ended(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Echo);
    drop(served(server.addr()));
    server.until("its end", |c| c.open == 0);
    let at = server.record.lock().loops[0].clone();
    let listener = Listener::new();
    for token in 0..20 {
        let dial = Dial::to(listener.addr());
        at.dial(dial.token(token)).expect("room for a dial");
        let mut peer = listener.accept();
        peer.send(b"still here");
        peer.expect(b"still here");
    }
    server.cut();
    let late = at.dial(Dial::to(listener.addr()));
    assert!(matches!(late, Err(NotDialled::Ended(_))));
}

fn dial_refused_by_the_connection_limit(v: Variant) {
    let server = Setup::on(v).limits(|l| l.connections = 1).start(|| Echo);
    let client = served(server.addr());
    let listener = Listener::new();
    server.dial(Dial::to(listener.addr()).token(9));
    listener.accept().expect_reset();
    server
        .record
        .until("the last word", |r| !r.dials_failed.is_empty());
    let (token, error) = server.record.lock().dials_failed[0].clone();
    assert!(token == 9 && error.contains("connection_limit"), "{error}");
    drop(client);
    let counters = server.stop();
    assert_eq!(counters.refused_for(Refusal::ConnectionLimit), 1);
}

/// The dials are not answered, so they stay on their way.
fn dials_beyond_their_limit_fail_at_once(v: Variant) {
    let server = Setup::on(v).limits(|l| l.dials = 3).start(|| Echo);
    let addr = nobody();
    let pause = Duration::from_secs(3600);
    let dials = 8 * v.loops as u64;
    for token in 0..dials {
        server.dial(
            Dial::to(addr)
                .attempts(2)
                .backoff(pause, pause)
                .token(token),
        );
    }
    let most = 3 * v.loops as u64;
    server.record.until("the refusals", |r| {
        r.dials_failed.len() as u64 == dials - most
    });
    let failed = server.record.lock().dials_failed.clone();
    assert!(failed.iter().all(|(_, e)| e.contains("on their way")));
    let record = server.record.clone();
    let counters = server.stop();
    assert_eq!(counters.dials_refused, dials - most);
    let told = record.lock().dials_failed.len() as u64;
    assert_eq!(told, dials, "the others fail when the loops stop");
}

fn dials_beyond_the_inbox_come_back(v: Variant) {
    /// Keeps its loop busy until it is told to go on.
    struct Busy(Arc<AtomicU64>);
    impl Role for Busy {
        fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            input.consume(input.len());
            self.0.fetch_add(1, SeqCst);
            let began = Instant::now();
            while self.0.load(SeqCst) < 1000 && began.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            Next::More
        }
    }
    const ROOM: usize = 5;
    let gate = Arc::<AtomicU64>::default();
    let theirs = gate.clone();
    let server = Setup::on(v)
        .reachable()
        .tune(|b| {
            b.inbox(ROOM).loops(1);
        })
        .start(move || Busy(theirs.clone()));
    let mut client = server.connect();
    client.send(b"x");
    eventually("a busy loop", || gate.load(SeqCst) == 1);
    let addr = nobody();
    let taken = (0..20).map(|token| server.try_dial(Dial::to(addr).token(token)));
    let taken: Vec<bool> = taken.map(|t| t.is_ok()).collect();
    assert_eq!(taken.iter().filter(|&&t| t).count(), ROOM, "{taken:?}");
    // A post does not go through the inbox.
    let posted = server.record.handle(0).try_post(Message::Note(1));
    assert!(posted.is_ok());
    gate.store(1000, SeqCst);
    server.until("the refusals", |c| c.dials_refused == 20 - ROOM as u64);
    server
        .record
        .until("the failures", |r| r.dials_failed.len() == ROOM);
    drop(client);
    server.stop();
}
