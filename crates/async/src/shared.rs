//! What a connection and its future have in common.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidewire::{Instant, Peer};

/// Input that is read ahead of the future, and output that one poll may write; bytes.
pub(crate) const AHEAD: usize = 64 << 10;

/// Behind a lock only because hyper wants timers that could be sent elsewhere: nobody else ever
/// holds it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) peer: Peer,
    /// As of the event that the future is polled for.
    pub(crate) now: Instant,
    /// What the future has not read yet, from `read` on.
    unread: Vec<u8>,
    read: usize,
    /// The peer sends no more.
    pub(crate) ended: bool,
    pub(crate) broken: Option<io::ErrorKind>,
    /// The connection takes more output.
    pub(crate) room: bool,
    pub(crate) written: Vec<u8>,
    /// The future has said all.
    pub(crate) shut: bool,
    pub(crate) stopping: bool,
    /// It wants to be told of a stop.
    pub(crate) minds_stopping: bool,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) stopper: Option<Waker>,
    sleeps: Vec<(u64, Instant, Waker)>,
    next_sleep: u64,
}

impl Shared {
    pub(crate) fn new(peer: Peer) -> Shared {
        Shared(Arc::new(Mutex::new(State {
            peer,
            now: Instant::from_nanos(0),
            unread: Vec::new(),
            read: 0,
            ended: false,
            broken: None,
            room: true,
            written: Vec::new(),
            shut: false,
            stopping: false,
            minds_stopping: false,
            reader: None,
            writer: None,
            stopper: None,
            sleeps: Vec::new(),
            next_sleep: 0,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes in as much of `bytes` as fits; how much that was.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(AHEAD - self.unread().len());
        if self.read > 0 {
            self.unread.drain(..self.read);
            self.read = 0;
        }
        self.unread.extend_from_slice(&bytes[..n]);
        n
    }

    pub(crate) fn unread(&self) -> &[u8] {
        &self.unread[self.read..]
    }

    /// The future has read `n` bytes. An idle connection owns no buffer.
    fn consume(&mut self, n: usize) {
        self.read += n;
        if self.read == self.unread.len() {
            self.unread = Vec::new();
            self.read = 0;
        }
    }

    /// Hands what there is to `take`, which says how much it took.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        if !self.unread().is_empty() {
            let n = take(self.unread());
            self.consume(n);
            return Poll::Ready(Ok(n));
        }
        if let Some(kind) = self.broken {
            return Poll::Ready(Err(kind.into()));
        }
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.broken {
            return Poll::Ready(Err(kind.into()));
        }
        if self.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = AHEAD.saturating_sub(self.written.len());
        if !self.room || room == 0 {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = bytes.len().min(room);
        self.written.extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    // ---- Sleeping ----

    /// Has `waker` called at `at`, instead of what `id` stood for before; its id.
    pub(crate) fn sleep(&mut self, id: Option<u64>, at: Instant, waker: &Waker) -> u64 {
        if let Some(id) = id {
            self.wake_not(id);
        }
        let id = id.unwrap_or_else(|| {
            self.next_sleep += 1;
            self.next_sleep
        });
        self.sleeps.push((id, at, waker.clone()));
        id
    }

    pub(crate) fn wake_not(&mut self, id: u64) {
        self.sleeps.retain(|(other, ..)| *other != id);
    }

    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.sleeps.iter().map(|(_, at, _)| *at).min()
    }

    /// Those whose time has come.
    pub(crate) fn take_due(&mut self) -> Vec<Waker> {
        let now = self.now;
        let due = self.sleeps.extract_if(.., |(_, at, _)| *at <= now);
        due.map(|(.., waker)| waker).collect()
    }
}
