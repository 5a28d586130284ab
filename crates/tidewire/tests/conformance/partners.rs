//! Connections of one loop that know each other: telling, dialling from callbacks, services' timers,
//! the end of a loop.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::sim::Conditions;
use tidewire::{
    Chunk, Closed, ConnId, Conns, Cx, Dial, Input, Limits, LoopHandle, Next, Origin, Peer,
    Protocol, Refusal, Service, TELLS_MAX, Turn,
};

use crate::case::{Case, case};
use crate::client::{Client, lonely};
use crate::hosting::{Loops, host};
use crate::listener::{Listener, nobody};
use crate::process::eventually;
use crate::roles::noise;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(chunks_go_through_a_partner_in_order),
        case!(message_for_a_partner_that_is_gone_comes_back),
        case!(tells_are_bounded),
        case!(partners_that_never_stop_let_others_live),
        case!(dial_from_opened_received_expired_and_closed),
        case!(dial_that_fails_tells_its_caller),
        case!(dial_in_the_last_closed_is_made),
        case!(service_timer_goes_on_and_dials),
        case!(loop_ends_once_after_its_connections),
    ]
}

/// What happened, for the case to see.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    count: AtomicU64,
    /// Bytes in the largest chunk.
    longest: AtomicUsize,
}

impl Log {
    fn say(&self, line: impl Into<String>) {
        self.lines.lock().expect("the log").push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("the log").clone()
    }

    fn until(&self, what: &str, done: impl Fn(&[String]) -> bool) {
        eventually(what, || done(&self.lines()));
    }

    fn has(&self, line: &str) {
        self.until(line, |lines| lines.iter().any(|l| l == line));
    }
}

/// What connections do with the bytes that they are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Dial, and hand everything on.
    Relay,
    /// Tell a connection that is not there.
    TellNobody,
    /// Tell as much as goes.
    TellMuch,
    /// Tell itself something whenever it is told.
    TellItself,
    /// Dial at each callback.
    DialEverywhere,
    Timer,
    Nothing,
}

struct Parts {
    job: Job,
    to: SocketAddr,
    log: Arc<Log>,
}

struct Part {
    job: Job,
    to: SocketAddr,
    log: Arc<Log>,
    partner: Option<ConnId>,
    dialled: bool,
}

enum Note {
    Partner(ConnId),
    Data(Chunk),
    Finish,
    Failed(String),
    Again,
}

impl Part {
    fn dial(&self, cx: &mut Cx<'_, Part>) {
        let me = cx.link.id().to_bits();
        cx.dial(Dial::to(self.to).token(me));
    }
}

impl Protocol for Part {
    type Local = Arc<Log>;
    type Message = Note;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        if self.dialled {
            self.log.say("dialled");
            let me = cx.link.id();
            if let Some(partner) = self.partner {
                assert!(cx.tell(partner, Note::Partner(me)).is_ok());
            }
            if self.job == Job::DialEverywhere {
                cx.link.finish();
            }
            return;
        }
        match self.job {
            Job::Relay => {
                self.dial(cx);
                cx.link.pause();
            }
            Job::DialEverywhere => {
                cx.dial(Dial::to(self.to));
                cx.link.set_timer(cx.link.now());
            }
            _ => {}
        }
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        cx.dial(Dial::to(self.to));
        cx.link.write(b"dialled twice");
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        match (self.job, self.partner) {
            (Job::Relay, Some(partner)) => {
                let chunk = input.take(input.len());
                assert!(cx.tell(partner, Note::Data(chunk)).is_ok());
            }
            (Job::TellNobody, _) => {
                let gone = ConnId::from_bits(u64::MAX);
                assert!(cx.tell(gone, Note::Data(input.take(input.len()))).is_ok());
            }
            (Job::TellMuch, _) => {
                let me = cx.link.id();
                let told = (0..).take_while(|_| cx.tell(me, Note::Again).is_ok());
                assert_eq!(told.count(), TELLS_MAX);
            }
            (Job::TellItself, _) if self.log.count.load(SeqCst) == 0 => {
                let me = cx.link.id();
                assert!(cx.tell(me, Note::Again).is_ok());
                assert_eq!(self.log.count.load(SeqCst), 0, "not before this returns");
            }
            (Job::TellItself, _) => cx.link.write(b"alive"),
            (Job::DialEverywhere, _) => cx.dial(Dial::to(self.to)),
            (Job::Timer, _) => {
                self.log.longest.fetch_max(input.len(), SeqCst);
            }
            _ => {}
        }
        input.consume(input.len());
        Next::More
    }

    fn posted(&mut self, note: Note, cx: &mut Cx<'_, Self>) {
        match note {
            Note::Partner(id) => {
                self.partner = Some(id);
                cx.link.resume();
            }
            Note::Data(chunk) => cx.link.write_chunk(chunk),
            Note::Finish => cx.link.finish_writing(),
            Note::Failed(why) => {
                cx.link.write(why.as_bytes());
                cx.link.finish();
            }
            Note::Again => {
                let n = self.log.count.fetch_add(1, SeqCst) + 1;
                let me = cx.link.id();
                if self.job == Job::TellItself {
                    assert!(cx.tell(me, Note::Again).is_ok());
                } else if n == TELLS_MAX as u64 {
                    cx.link.write(b"all");
                }
            }
        }
    }

    fn undelivered(&mut self, _: ConnId, note: Note, cx: &mut Cx<'_, Self>) {
        if let Note::Data(chunk) = note {
            cx.link.write_chunk(chunk);
        }
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        match self.partner {
            Some(partner) if self.job == Job::Relay => {
                assert!(cx.tell(partner, Note::Finish).is_ok());
            }
            _ => cx.link.finish(),
        }
    }

    fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
        if self.job == Job::DialEverywhere && !self.dialled {
            turn.dial(Dial::to(self.to));
        }
        self.log.say("closed");
    }
}

impl Service for Parts {
    type Conn = Part;

    fn on_loop(&self, at: LoopHandle<Note>) -> Arc<Log> {
        if self.job == Job::Timer && at.number() == 0 {
            at.signal();
        }
        self.log.clone()
    }

    fn accept(&self, from: &Peer, _: &mut Arc<Log>) -> Result<Part, Refusal> {
        let (dialled, partner) = match from.origin {
            Origin::Dialled(0) => (true, None),
            Origin::Dialled(token) => (true, Some(ConnId::from_bits(token))),
            Origin::Accepted(_) => (false, None),
        };
        Ok(Part {
            job: self.job,
            to: self.to,
            log: self.log.clone(),
            partner,
            dialled,
        })
    }

    fn woken(&self, _: &mut Arc<Log>, all: &mut Conns<'_, Part>) {
        assert_eq!(all.timer(), None);
        all.set_timer(all.now());
        assert!(all.timer().is_some());
    }

    fn expired(&self, _: &mut Arc<Log>, all: &mut Conns<'_, Part>) {
        assert_eq!((all.timer(), all.number()), (None, 0));
        match self.log.count.fetch_add(1, SeqCst) {
            0..2 => all.set_timer_after(Duration::from_millis(3)),
            2 => all.dial(Dial::to(self.to)),
            _ => unreachable!("it was not set again"),
        }
    }

    fn dial_failed(&self, token: u64, error: &std::io::Error, turn: &mut Turn<'_, Part>) {
        let failed = Note::Failed(error.to_string());
        assert!(turn.tell(ConnId::from_bits(token), failed).is_ok());
    }

    fn loop_ended(&self, log: Arc<Log>) {
        log.say("loop ended");
    }
}

struct Server {
    loops: Loops<Parts>,
    log: Arc<Log>,
}

impl Server {
    fn start(v: Variant, job: Job, to: SocketAddr) -> Server {
        let log = Arc::new(Log::default());
        let parts = Parts {
            job,
            to,
            log: log.clone(),
        };
        let loops = host(v, parts, Limits::default());
        Server { loops, log }
    }

    fn connect(&self) -> Client {
        self.loops.connect()
    }

    fn stop(self) -> tidewire::Counters {
        self.loops.stop(Duration::from_secs(10))
    }
}

fn chunks_go_through_a_partner_in_order(v: Variant) {
    let listener = Listener::new();
    let server = Server::start(v, Job::Relay, listener.addr());
    let mut client = server.connect();
    let mut upstream = listener.accept();
    let (there, back) = (noise(1, 3 << 20), noise(2, 2 << 20));
    let (mut writer, bytes) = (client.second(), there.clone());
    let sender = world::spawn(move || {
        writer.send(&bytes);
        writer.finish();
    });
    assert!(upstream.rest() == there, "in order, to the end");
    sender.join().expect("the sender");
    // The other way is still open.
    let (mut writer, bytes) = (upstream.second(), back.clone());
    let sender = world::spawn(move || {
        writer.send(&bytes);
        writer.finish();
    });
    assert!(client.rest() == back);
    sender.join().expect("the sender");
    server.log.until("both ends", |lines| {
        lines.iter().filter(|l| *l == "closed").count() == 2
    });
    let counters = server.stop();
    assert_eq!(counters.closed_for(Closed::Finished), 2, "{counters}");
    assert_eq!(counters.tells_undeliverable, 0);
}

fn message_for_a_partner_that_is_gone_comes_back(v: Variant) {
    let server = Server::start(v, Job::TellNobody, lonely());
    let mut client = server.connect();
    let sent = noise(3, 300 << 10);
    let (mut writer, bytes) = (client.second(), sent.clone());
    let sender = world::spawn(move || writer.send(&bytes));
    assert!(client.take(sent.len()) == sent, "handed back, nothing lost");
    sender.join().expect("the sender");
    drop(client);
    assert!(server.stop().tells_undeliverable > 0);
}

fn tells_are_bounded(v: Variant) {
    let server = Server::start(v, Job::TellMuch, lonely());
    let mut client = server.connect();
    client.send(b"!");
    client.expect(b"all");
    drop(client);
    assert!(server.stop().tells_refused > 0);
}

/// A message that leads to the next for ever is delivered for ever, between others' turns.
fn partners_that_never_stop_let_others_live(v: Variant) {
    if world::is_simulated() {
        // Time passes there when no loop has anything to do, or one is late.
        world::with(|sim| {
            let usual = sim.conditions().clone();
            sim.set_conditions(Conditions {
                late_one_in: 4,
                ..usual
            });
        });
    }
    let server = Server::start(v, Job::TellItself, lonely());
    let mut client = server.connect();
    client.send(b"!");
    let mut other = server.connect();
    for _ in 0..20 {
        eventually("a word", || server.log.count.load(SeqCst) > 0);
        other.send(b"?");
        other.expect(b"alive");
        client.send(b"?");
        client.expect(b"alive");
    }
    drop((client, other));
    server.stop();
}

fn dial_from_opened_received_expired_and_closed(v: Variant) {
    let listener = Listener::new();
    let server = Server::start(v, Job::DialEverywhere, listener.addr());
    let mut client = server.connect();
    client.expect(b"dialled twice");
    let mut upstream: Vec<_> = (0..2).map(|_| listener.accept()).collect();
    client.send(b"?");
    upstream.push(listener.accept());
    drop(client);
    // The last, from `closed`; on the threads engine the thread lives on for it.
    upstream.push(listener.accept());
    drop(upstream);
    server.log.until("all ends", |lines| {
        lines.iter().filter(|l| *l == "closed").count() == 5
    });
    assert_eq!(server.stop().dialled, 4);
}

fn dial_that_fails_tells_its_caller(v: Variant) {
    let server = Server::start(v, Job::Relay, nobody());
    let mut client = server.connect();
    let why = client.rest();
    assert!(String::from_utf8_lossy(&why).contains("refused"));
    drop(client);
    assert_eq!(server.stop().dial_failures, 1);
}

fn dial_in_the_last_closed_is_made(v: Variant) {
    let listener = Listener::new();
    let server = Server::start(v, Job::DialEverywhere, listener.addr());
    for _ in 0..10 {
        server.connect().expect(b"dialled twice");
        for _ in 0..3 {
            drop(listener.accept());
        }
    }
    server.log.until("all ends", |lines| {
        lines.iter().filter(|l| *l == "closed").count() == 40
    });
    assert_eq!(server.stop().dialled, 30);
}

fn service_timer_goes_on_and_dials(v: Variant) {
    let listener = Listener::new();
    let server = Server::start(v, Job::Timer, listener.addr());
    let mut peer = listener.accept();
    server.log.has("dialled");
    assert_eq!(server.log.count.load(SeqCst), 3);
    peer.send(&noise(4, 1 << 20));
    peer.finish();
    peer.expect_end();
    // This connection has the buffers of any other.
    assert!(server.log.longest.load(SeqCst) > 1 << 10);
    server.stop();
}

fn loop_ends_once_after_its_connections(v: Variant) {
    let server = Server::start(v, Job::Nothing, lonely());
    let clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
    // All are taken in, for each gets its stop.
    let log = server.log.clone();
    let leaver = world::spawn(move || clients.iter().for_each(Client::finish));
    server.stop();
    leaver.join().expect("the leaver");
    let lines = log.lines();
    let ended = lines.iter().filter(|l| *l == "loop ended").count();
    let loops = if v.is_threads() { 1 + 6 } else { v.loops };
    assert_eq!(ended, loops, "{lines:?}");
    assert_eq!(lines.iter().filter(|l| *l == "closed").count(), 6);
    assert_eq!(lines.last().map(String::as_str), Some("loop ended"));
}
