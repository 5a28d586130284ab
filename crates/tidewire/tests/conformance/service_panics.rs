//! A panic in what a service does off its connections costs no other connection anything, and is counted.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidewire::admission::{Admission, Rules};
use tidewire::{
    Closed, ConnId, Conns, Counters, Cx, Dial, Input, Limits, LoopHandle, Next, Peer, Protocol,
    Refusal, Service, Turn,
};

use crate::case::{Case, case};
use crate::client::Client;
use crate::hosting::{Loops, host_behind};
use crate::listener::nobody;
use crate::process::eventually;
use crate::record::ON_PURPOSE;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(panic_in_refusal_reply),
        case!(panic_in_speaks_for_others),
        case!(whether_a_service_speaks_for_others_is_asked_once),
        case!(panic_in_dial_failed),
        case!(panic_in_the_services_expired),
        case!(panic_in_undelivered),
        case!(panic_in_overdue),
        case!(panic_in_loop_ended),
    ]
}

/// Where the service panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    RefusalReply,
    DialFailed,
    Expired,
    Undelivered,
    Overdue,
    LoopEnded,
}

impl At {
    fn here(self, place: At) {
        assert!(self != place, "{ON_PURPOSE}");
    }
}

/// What the service answers when it is asked whether a peer speaks for others.
const ITSELF: u8 = 0;
const OTHERS: u8 = 1;
const PANICS: u8 = 2;

/// Echoes.
struct Brittle {
    at: At,
    speaks: Arc<AtomicU8>,
    /// Calls of `expired`.
    expired: Arc<AtomicUsize>,
}

struct Conn(At);

impl Protocol for Conn {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if input.bytes() == b"tell nobody" {
            assert!(cx.tell(ConnId::from_bits(u64::MAX), ()).is_ok());
        }
        cx.link.forward_all(input)
    }

    fn undelivered(&mut self, _: ConnId, (): (), _: &mut Cx<'_, Self>) {
        self.0.here(At::Undelivered);
    }

    fn overdue(&mut self, _: &mut Cx<'_, Self>) {
        self.0.here(At::Overdue);
    }
}

impl Service for Brittle {
    type Conn = Conn;

    fn on_loop(&self, at: LoopHandle<()>) {
        if self.at == At::Expired && at.number() == 0 {
            at.signal();
        }
    }

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Conn, Refusal> {
        Ok(Conn(self.at))
    }

    fn refusal_reply(&self, _: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
        self.at.here(At::RefusalReply);
        None
    }

    fn speaks_for_others(&self, _: &Peer) -> bool {
        let speaks = self.speaks.load(SeqCst);
        assert!(speaks != PANICS, "{ON_PURPOSE}");
        speaks == OTHERS
    }

    fn woken(&self, (): &mut (), all: &mut Conns<'_, Conn>) {
        all.set_timer_after(Duration::from_millis(1));
    }

    /// At the first time.
    fn expired(&self, (): &mut (), _: &mut Conns<'_, Conn>) {
        if self.expired.fetch_add(1, SeqCst) == 0 {
            self.at.here(At::Expired);
        }
    }

    fn dial_failed(&self, _: u64, _: &io::Error, _: &mut Turn<'_, Conn>) {
        self.at.here(At::DialFailed);
    }

    fn loop_ended(&self, (): ()) {
        self.at.here(At::LoopEnded);
    }
}

struct Server {
    loops: Loops<Brittle>,
    speaks: Arc<AtomicU8>,
    expired: Arc<AtomicUsize>,
}

impl Server {
    fn start(
        v: Variant,
        at: At,
        set: impl FnOnce(&mut Limits),
        rules: Option<&Admission>,
    ) -> Server {
        let (speaks, expired) = (Arc::default(), Arc::default());
        let brittle = Brittle {
            at,
            speaks: Arc::clone(&speaks),
            expired: Arc::clone(&expired),
        };
        let mut limits = Limits::default();
        set(&mut limits);
        Server {
            loops: host_behind(v, brittle, limits, rules.cloned()),
            speaks,
            expired,
        }
    }

    fn addr(&self) -> SocketAddr {
        self.loops.addr()
    }

    fn served(&self) -> Client {
        let mut client = Client::connect(self.addr());
        client.send(b"x");
        client.expect(b"x");
        client
    }

    fn until(&self, what: &str, done: impl Fn(&Counters) -> bool) {
        eventually(what, || done(&self.loops.counters()));
    }

    /// Stops the server, which has panicked so often, and lives.
    fn stop(self, panics: u64) -> Counters {
        self.until("the panics to be counted", |c| c.panics == panics);
        drop(self.served());
        let counters = self.loops.stop(Duration::from_secs(10));
        assert_eq!((counters.panics, counters.open), (panics, 0), "{counters}");
        counters
    }
}

fn panic_in_refusal_reply(v: Variant) {
    let server = Server::start(v, At::RefusalReply, |l| l.connections = 1, None);
    let mut within = server.served();
    for _ in 0..3 {
        Client::connect_to_be_reset(server.addr());
    }
    within.send(b"alive");
    within.expect(b"alive");
    drop(within);
    server.until("a place", |c| c.open == 0);
    let counters = server.stop(3);
    assert_eq!(counters.refused_for(Refusal::ConnectionLimit), 3);
}

fn per_address(n: u32) -> Admission {
    Admission::new(Rules {
        per_address: Some(n),
        ..Rules::default()
    })
}

fn panic_in_speaks_for_others(v: Variant) {
    let rules = per_address(1);
    let server = Server::start(v, At::Nothing, |_| {}, Some(&rules));
    let within = server.served();
    server.speaks.store(PANICS, SeqCst);
    for _ in 0..3 {
        Client::connect_to_be_reset(server.addr());
    }
    // The service is not asked again for a client that goes.
    drop(within);
    eventually("a place", || rules.open() == 0);
    server.speaks.store(ITSELF, SeqCst);
    drop(server.served());
    eventually("a place", || rules.open() == 0);
    let counters = server.stop(0);
    assert_eq!(counters.refused_for(Refusal::Panicked), 3);
}

/// What it would say when a connection goes is not what was counted when it came.
fn whether_a_service_speaks_for_others_is_asked_once(v: Variant) {
    let rules = per_address(2);
    let server = Server::start(v, At::Nothing, |_| {}, Some(&rules));
    for (before, after) in [(ITSELF, OTHERS), (OTHERS, ITSELF), (ITSELF, OTHERS)] {
        server.speaks.store(ITSELF, SeqCst);
        let stays = server.served();
        server.speaks.store(before, SeqCst);
        let goes = server.served();
        server.speaks.store(after, SeqCst);
        drop(goes);
        eventually("one to have gone", || rules.open() == 1);
        assert_eq!(rules.sources(), 1, "the one who stays");
        drop(stays);
        eventually("both to have gone", || rules.open() == 0);
        assert_eq!(rules.sources(), 0);
    }
    server.speaks.store(ITSELF, SeqCst);
    server.stop(0);
}

fn panic_in_dial_failed(v: Variant) {
    let server = Server::start(v, At::DialFailed, |_| {}, None);
    let dial = Dial::to(nobody());
    for _ in 0..3 {
        server.loops.dial(dial.clone());
    }
    assert_eq!(server.stop(3).dial_failures, 3);
}

/// What a service does at intervals goes on.
fn panic_in_the_services_expired(v: Variant) {
    let server = Server::start(v, At::Expired, |_| {}, None);
    eventually("another call", || server.expired.load(SeqCst) == 2);
    server.stop(1);
}

fn panic_in_undelivered(v: Variant) {
    let server = Server::start(v, At::Undelivered, |_| {}, None);
    let mut victim = server.served();
    victim.send(b"tell nobody");
    victim.expect_reset();
    assert_eq!(server.stop(1).closed_for(Closed::Panicked), 1);
}

fn panic_in_overdue(v: Variant) {
    let late = Duration::from_millis(300);
    let server = Server::start(v, At::Overdue, |l| l.first_byte = Some(late), None);
    Client::connect(server.addr()).expect_reset();
    let counters = server.loops.stop(Duration::from_secs(10));
    assert_eq!(
        (counters.panics, counters.closed_for(Closed::Panicked)),
        (1, 1)
    );
}

fn panic_in_loop_ended(v: Variant) {
    let server = Server::start(v, At::LoopEnded, |_| {}, None);
    drop(server.served());
    server.until("its end", |c| c.closed_total() == 1);
    let counters = server.loops.stop(Duration::from_secs(10));
    // A thread's loop ends with its connection, the acceptor's at the stop.
    let loops = if v.is_threads() { 2 } else { v.loops as u64 };
    assert_eq!((counters.panics, counters.open), (loops, 0), "{counters}");
}
