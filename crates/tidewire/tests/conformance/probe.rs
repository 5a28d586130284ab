//! The protocol under test: it checks the contracts around a [`Role`] that a case gives it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tidewire::{
    Closed, Conns, Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service, Turn,
};

use crate::record::{Event, Record};

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
    fn timer_expired(&mut self, _key: u64, _: &mut Context<'_>) {}
    fn notified(&mut self, _key: u64, _: &mut Context<'_>) {}
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

    fn timer_expired(&mut self, key: u64, cx: &mut Context<'_>) {
        self.event(Event::TimerExpired(key), cx, |role, cx| {
            role.timer_expired(key, cx);
        });
    }

    fn notified(&mut self, key: u64, cx: &mut Context<'_>) {
        self.event(Event::Notified(key), cx, |role, cx| role.notified(key, cx));
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

    fn closed(mut self, why: Closed, turn: &mut Turn<'_, Self>) {
        let local = &*turn.local;
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

pub(crate) type Maker = Box<dyn Fn(&Peer) -> Result<Box<dyn Role>, Refusal> + Send + Sync>;
pub(crate) type Woken = Box<dyn Fn(&mut OnLoop, &mut Conns<'_, Probe>) + Send + Sync>;

/// Makes probes.
pub(crate) struct Probes {
    pub(crate) record: Arc<Record>,
    pub(crate) make: Maker,
    pub(crate) woken: Option<Woken>,
    pub(crate) keep_handles: bool,
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

    fn dial_failed(&self, token: u64, error: &std::io::Error, turn: &mut Turn<'_, Probe>) {
        let _inside = Inside::enter(turn.local, "dial_failed");
        let failed = (token, error.to_string());
        self.record.change(|inner| inner.dials_failed.push(failed));
    }
}
