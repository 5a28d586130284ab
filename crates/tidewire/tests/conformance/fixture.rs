//! The server under test: a protocol that checks the contracts around a [`Role`] that a case gives
//! it, and the set of loops that runs it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidewire::{
    Builder, Closed, Conns, Counters, Cx, Dial, Input, Limits, Listen, LoopHandle, Next, Peer,
    Protocol, Refusal, Running, Service, ServiceId, TcpOptions,
};

use crate::client::Client;
use crate::record::{Event, Record};
use crate::variant::Variant;

pub(crate) type Context<'a> = Cx<'a, Probe>;

/// What a case has its connections do. Called by [`Probe`] in the callback of the same name.
pub(crate) trait Role: 'static {
    fn opened(&mut self, _: &mut Context<'_>) {}
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next;
    fn writable(&mut self, _: &mut Context<'_>) {}
    fn peer_finished(&mut self, _unread: usize, cx: &mut Context<'_>) {
        cx.link.finish();
    }
    fn hung_up(&mut self, _: &mut Context<'_>) {}
    fn expired(&mut self, _: &mut Context<'_>) {}
    fn idle(&mut self, cx: &mut Context<'_>) {
        cx.link.finish();
    }
    fn posted(&mut self, _note: u64, _: &mut Context<'_>) {}
    fn draining(&mut self, cx: &mut Context<'_>) {
        cx.link.finish();
    }
    fn closed(&mut self, _why: Closed) {}
}

/// What cases post.
pub(crate) enum Message {
    Note(u64),
    /// Runs on the connection's loop.
    Do(Box<dyn FnOnce(&mut Context<'_>) + Send>),
}

impl Message {
    pub(crate) fn run(f: impl FnOnce(&mut Context<'_>) + Send + 'static) -> Message {
        Message::Do(Box::new(f))
    }
}

/// One connection: records what happens to it and checks that it may.
pub(crate) struct Probe {
    number: u64,
    role: Box<dyn Role>,
    record: Arc<Record>,
    keep_handle: bool,
    opened: bool,
    told_closed: bool,
}

/// A loop's state.
pub(crate) struct OnLoop {
    record: Arc<Record>,
    busy: Rc<Cell<bool>>,
}

/// Marks the loop as inside a callback; a second one at the same time breaks the contract.
struct Inside(Rc<Cell<bool>>);

impl Inside {
    fn enter(local: &OnLoop, what: &str) -> Inside {
        if local.busy.replace(true) {
            local
                .record
                .violated(format!("{what} inside another callback"));
        }
        Inside(local.busy.clone())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Probe {
    fn enter(&mut self, what: &str, cx: &mut Context<'_>) -> Inside {
        let inside = Inside::enter(cx.local, what);
        if cx.link.is_closing() {
            let after = format!("connection {}: {what} after its end", self.number);
            self.record.violated(after);
        }
        if self.opened == (what == "opened") {
            let order = format!("connection {}: {what} out of order", self.number);
            self.record.violated(order);
        }
        inside
    }

    fn event(
        &mut self,
        event: Event,
        cx: &mut Context<'_>,
        f: impl FnOnce(&mut dyn Role, &mut Context<'_>),
    ) {
        let _inside = self.enter(
            if event == Event::Opened {
                "opened"
            } else {
                "event"
            },
            cx,
        );
        self.opened = true;
        self.record.note(self.number, event);
        f(&mut *self.role, cx);
    }
}

impl Protocol for Probe {
    type Local = OnLoop;
    type Message = Message;

    fn opened(&mut self, cx: &mut Context<'_>) {
        if self.keep_handle {
            let handle = cx.handle();
            self.record
                .change(|inner| inner.handles.push((self.number, handle)));
        }
        self.event(Event::Opened, cx, |role, cx| role.opened(cx));
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let _inside = self.enter("received", cx);
        self.record.calls.fetch_add(1, SeqCst);
        let before = input.len();
        let next = self.role.received(input, cx);
        let consumed = (before - input.len()) as u64;
        self.record.consumed.fetch_add(consumed, SeqCst);
        next
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        self.event(Event::Writable, cx, |role, cx| role.writable(cx));
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Context<'_>) {
        self.event(Event::PeerFinished(unread), cx, |role, cx| {
            role.peer_finished(unread, cx);
        });
    }

    fn hung_up(&mut self, cx: &mut Context<'_>) {
        self.event(Event::HungUp, cx, |role, cx| role.hung_up(cx));
    }

    fn expired(&mut self, cx: &mut Context<'_>) {
        self.event(Event::Expired, cx, |role, cx| role.expired(cx));
    }

    fn idle(&mut self, cx: &mut Context<'_>) {
        self.event(Event::Idle, cx, |role, cx| role.idle(cx));
    }

    fn posted(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            Message::Note(n) => self.event(Event::Posted(n), cx, |role, cx| role.posted(n, cx)),
            Message::Do(f) => {
                let _inside = self.enter("posted", cx);
                f(cx);
            }
        }
    }

    fn draining(&mut self, cx: &mut Context<'_>) {
        self.event(Event::Draining, cx, |role, cx| role.draining(cx));
    }

    fn closed(mut self, why: Closed, local: &mut OnLoop) {
        let _inside = Inside::enter(local, "closed");
        if !self.opened {
            let number = self.number;
            local
                .record
                .violated(format!("connection {number}: closed but never opened"));
        }
        self.told_closed = true;
        self.record.note(self.number, Event::Closed(why));
        self.role.closed(why);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.opened && !self.told_closed {
            let number = self.number;
            self.record
                .violated(format!("connection {number}: dropped without `closed`"));
        }
    }
}

type Maker = Box<dyn Fn(&Peer) -> Result<Box<dyn Role>, Refusal> + Send + Sync>;
type Woken = Box<dyn Fn(&mut OnLoop, &mut Conns<'_, Probe>) + Send + Sync>;

/// Makes probes.
pub(crate) struct Probes {
    record: Arc<Record>,
    make: Maker,
    woken: Option<Woken>,
    keep_handles: bool,
}

impl Probes {
    /// For cases that put several services together themselves.
    pub(crate) fn new<R: Role>(
        record: Arc<Record>,
        make: impl Fn() -> R + Send + Sync + 'static,
    ) -> Probes {
        Probes {
            record,
            make: Box::new(move |_| Ok(Box::new(make()))),
            woken: None,
            keep_handles: false,
        }
    }
}

impl Service for Probes {
    type Conn = Probe;

    fn on_loop(&self, at: LoopHandle<Message>) -> OnLoop {
        self.record.loops_made.fetch_add(1, SeqCst);
        if self.keep_handles {
            self.record.change(|inner| inner.loops.push(at));
        }
        OnLoop {
            record: self.record.clone(),
            busy: Rc::default(),
        }
    }

    fn accept(&self, from: &Peer, local: &mut OnLoop) -> Result<Probe, Refusal> {
        let _inside = Inside::enter(local, "accept");
        let role = (self.make)(from)?;
        Ok(Probe {
            number: self.record.new_conn(from),
            role,
            keep_handle: self.keep_handles,
            record: self.record.clone(),
            opened: false,
            told_closed: false,
        })
    }

    fn woken(&self, local: &mut OnLoop, all: &mut Conns<'_, Probe>) {
        // The callbacks of connections in `each` are this service's own code: not a callback
        // inside another one.
        let inside = Inside::enter(local, "woken");
        self.record.woken.fetch_add(1, SeqCst);
        if let Some(woken) = &self.woken {
            woken(local, all);
        }
        drop(inside);
    }

    fn dial_failed(&self, token: u64, error: &std::io::Error, local: &mut OnLoop) {
        let _inside = Inside::enter(local, "dial_failed");
        let failed = (token, error.to_string());
        self.record.change(|inner| inner.dials_failed.push(failed));
    }
}

/// A server to be.
pub(crate) struct Setup {
    pub(crate) builder: Builder,
    limits: Limits,
    listens: Vec<Listen>,
    woken: Option<Woken>,
    keep_handles: bool,
}

impl Setup {
    pub(crate) fn on(variant: Variant) -> Setup {
        Setup {
            builder: variant.builder(),
            limits: Limits::default(),
            listens: Vec::new(),
            woken: None,
            keep_handles: false,
        }
    }

    pub(crate) fn limits(mut self, set: impl FnOnce(&mut Limits)) -> Setup {
        set(&mut self.limits);
        self
    }

    pub(crate) fn tune(mut self, set: impl FnOnce(&mut Builder)) -> Setup {
        set(&mut self.builder);
        self
    }

    /// Listens here instead of on any port of 127.0.0.1.
    pub(crate) fn listen(mut self, listen: Listen) -> Setup {
        self.listens.push(listen);
        self
    }

    /// Small kernel buffers on the server's side, so that full pipes need little data.
    pub(crate) fn small_buffers(self) -> Setup {
        let options = TcpOptions {
            send_buffer: Some(32 << 10),
            receive_buffer: Some(32 << 10),
            ..TcpOptions::default()
        };
        self.listen(Listen::at(([127, 0, 0, 1], 0).into()).options(options))
    }

    /// Keeps a handle to every connection and loop in the record. Otherwise nobody can reach them,
    /// which is a path of its own in the threads engine.
    pub(crate) fn reachable(mut self) -> Setup {
        self.keep_handles = true;
        self
    }

    pub(crate) fn woken(
        mut self,
        f: impl Fn(&mut OnLoop, &mut Conns<'_, Probe>) + Send + Sync + 'static,
    ) -> Setup {
        self.woken = Some(Box::new(f));
        self
    }

    pub(crate) fn start<R: Role>(self, make: impl Fn() -> R + Send + Sync + 'static) -> Server {
        self.start_with(move |_| Ok(Box::new(make())))
    }

    pub(crate) fn start_with(
        self,
        make: impl Fn(&Peer) -> Result<Box<dyn Role>, Refusal> + Send + Sync + 'static,
    ) -> Server {
        let record = Arc::new(Record::default());
        let mut builder = self.builder;
        let probes = Probes {
            record: record.clone(),
            make: Box::new(make),
            woken: self.woken,
            keep_handles: self.keep_handles,
        };
        let service = builder.service_with(probes, self.limits);
        let mut listens = self.listens;
        if listens.is_empty() {
            listens.push(Listen::at(([127, 0, 0, 1], 0).into()));
        }
        for listen in listens {
            builder.listen(service, listen);
        }
        let running = builder.start().expect("the server starts");
        Server {
            running: Some(running),
            service,
            record,
        }
    }
}

/// A server under test. Dropping it stops it at once; [`Server::stop`] also checks the contracts.
pub(crate) struct Server {
    running: Option<Running>,
    service: ServiceId<Probes>,
    pub(crate) record: Arc<Record>,
}

impl Server {
    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("runs until it is stopped")
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running().addrs()[0]
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    pub(crate) fn counters(&self) -> Counters {
        self.running().counters()
    }

    pub(crate) fn dial(&self, dial: Dial) {
        self.running().dial(self.service, dial);
    }

    /// Waits until a counter is as wanted.
    pub(crate) fn until(&self, what: &str, done: impl Fn(&Counters) -> bool) {
        self.record.until(what, |_| done(&self.counters()));
    }

    /// A graceful stop with a generous deadline, and the contracts checked.
    pub(crate) fn stop(self) -> Counters {
        self.stop_within(Duration::from_secs(10))
    }

    pub(crate) fn stop_within(mut self, deadline: Duration) -> Counters {
        let running = self.running.take().expect("stopped once");
        let counters = running.stop(deadline);
        self.record.check();
        assert_eq!(counters.open, 0, "nothing is open after a stop: {counters}");
        assert_eq!(counters.closed_total(), self.record.lock().closed());
        counters
    }

    /// Cuts everything, and checks the contracts.
    pub(crate) fn cut(self) -> Counters {
        self.stop_within(Duration::ZERO)
    }

    /// A graceful stop without the checks, to be followed by some of the case's own.
    pub(crate) fn into_parts(mut self) -> (Running, Arc<Record>) {
        (
            self.running.take().expect("stopped once"),
            self.record.clone(),
        )
    }
}
