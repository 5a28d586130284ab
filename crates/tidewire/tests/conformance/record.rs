//! What the connections of a server under test went through, and which contracts they saw broken.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{Closed, Handle, LoopHandle, Origin, Peer};

use crate::client::PATIENCE;
use crate::probe::Message;
use crate::world;

/// A callback other than `received`, which is only counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Opened,
    Writable,
    PeerFinished(usize),
    HungUp,
    Expired,
    TimerExpired(u64),
    Notified(u64),
    Idle,
    Posted(u64),
    Draining,
    Closed(Closed),
}

/// Shared by all connections of one server, and by the case.
#[derive(Default)]
pub(crate) struct Record {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Calls of `received`, over all connections.
    pub(crate) calls: AtomicU64,
    /// Bytes that connections consumed.
    pub(crate) consumed: AtomicU64,
    /// Calls of `woken`, over all loops.
    pub(crate) woken: AtomicU64,
    /// Loops started.
    pub(crate) loops_made: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Inner {
    /// Number of the connection, from 0 in the order of accepting, and what happened to it.
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) handles: Vec<(u64, Handle<Message>)>,
    pub(crate) loops: Vec<LoopHandle<Message>>,
    pub(crate) dials_failed: Vec<(u64, String)>,
    /// Contracts broken.
    violations: Vec<String>,
    opened: u64,
    closed: u64,
}

impl Inner {
    /// What happened to one connection.
    pub(crate) fn of(&self, conn: u64) -> Vec<Event> {
        let mine = self.events.iter().filter(|(c, _)| *c == conn);
        mine.map(|(_, e)| e.clone()).collect()
    }

    pub(crate) fn count(&self, event: &Event) -> usize {
        self.events.iter().filter(|(_, e)| e == event).count()
    }

    pub(crate) fn has(&self, conn: u64, event: &Event) -> bool {
        self.events.iter().any(|(c, e)| *c == conn && e == event)
    }

    pub(crate) fn closed(&self) -> u64 {
        self.closed
    }

    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }
}

impl Record {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new_conn(&self, peer: &Peer) -> u64 {
        let mut inner = self.lock();
        inner.origins.push(peer.origin);
        inner.origins.len() as u64 - 1
    }

    pub(crate) fn note(&self, conn: u64, event: Event) {
        let mut inner = self.lock();
        match event {
            Event::Opened => inner.opened += 1,
            Event::Closed(_) => inner.closed += 1,
            _ => {}
        }
        inner.events.push((conn, event));
        self.changed.notify_all();
    }

    pub(crate) fn change(&self, f: impl FnOnce(&mut Inner)) {
        f(&mut self.lock());
        self.changed.notify_all();
    }

    pub(crate) fn violated(&self, what: String) {
        self.change(|inner| inner.violations.push(what));
    }

    /// Waits until `done` says so; fails the case if it never does.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut(&Inner) -> bool) {
        if world::is_simulated() {
            if !world::wait_here(PATIENCE, || done(&self.lock())) {
                self.in_vain(what, &self.lock());
            }
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let mut inner = self.lock();
        while !done(&inner) {
            if Instant::now() >= deadline {
                self.in_vain(what, &inner);
            }
            // Also looks at conditions that are not announced, such as counters.
            let step = Duration::from_millis(20);
            let (again, _) = self
                .changed
                .wait_timeout(inner, step)
                .unwrap_or_else(PoisonError::into_inner);
            inner = again;
        }
    }

    fn in_vain(&self, what: &str, inner: &Inner) -> ! {
        panic!(
            "waited in vain for: {what}; {} opened, {} closed, last events {:?}",
            inner.opened,
            inner.closed,
            inner.events.iter().rev().take(20).collect::<Vec<_>>(),
        );
    }

    /// Waits for the end of connection `conn` and says why it ended.
    pub(crate) fn why_closed(&self, conn: u64) -> Closed {
        let find = |inner: &Inner| {
            inner.events.iter().find_map(|(c, e)| match e {
                Event::Closed(why) if *c == conn => Some(*why),
                _ => None,
            })
        };
        self.until("the connection's end", |inner| find(inner).is_some());
        find(&self.lock()).expect("just seen")
    }

    /// Fails if any contract was broken, or a connection was opened but never closed.
    pub(crate) fn check(&self) {
        let inner = self.lock();
        assert!(inner.violations.is_empty(), "{:#?}", inner.violations);
        assert_eq!(inner.opened, inner.closed, "one `closed` for each `opened`");
    }

    /// A handle to connection `conn`, once it is open. Only for a server that keeps handles.
    pub(crate) fn handle(&self, conn: u64) -> Handle<Message> {
        let find = |inner: &Inner| {
            let mut all = inner.handles.iter();
            all.find(|(c, _)| *c == conn).map(|(_, h)| h.clone())
        };
        self.until("a handle", |inner| find(inner).is_some());
        find(&self.lock()).expect("just seen")
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.load(SeqCst)
    }

    pub(crate) fn woken(&self) -> u64 {
        self.woken.load(SeqCst)
    }
}

/// In the message of every panic that a case causes on purpose.
pub(crate) const ON_PURPOSE: &str = "on purpose";

/// Keeps panics that cases cause on purpose out of the output.
pub(crate) fn hush_expected_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or(payload.downcast_ref::<String>().map(String::as_str));
        if !text.is_some_and(|t| t.contains(ON_PURPOSE)) {
            usual(info);
        }
    }));
}
