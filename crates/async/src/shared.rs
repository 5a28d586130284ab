//! State that a connection and its future share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidewire::{Dial, Instant, Peer};

/// Input that is read ahead of the future, and output that one poll may write; bytes.
pub(crate) const AHEAD: usize = 64 << 10;

/// The state is behind a lock only because hyper wants timers that are `Send`: no other thread ever
/// holds the lock. No waker is dropped while the lock is held: dropping a waker may drop a future,
/// and the future takes the lock.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) peer: Peer,
    /// As of the event that the future is polled for.
    pub(crate) now: Instant,
    /// Input that the future has not read yet, from `read` on.
    unread: Vec<u8>,
    read: usize,
    /// The peer sends no more.
    pub(crate) ended: bool,
    /// The peer's data may be cut short; reading reports that behind the last byte.
    pub(crate) is_cut: bool,
    pub(crate) broken: Option<io::ErrorKind>,
    /// The connection takes more output.
    pub(crate) room: bool,
    pub(crate) written: Vec<u8>,
    /// The future has said all.
    pub(crate) shut: bool,
    pub(crate) stopping: bool,
    /// The future wants to be told of a stop.
    pub(crate) minds_stopping: bool,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// Futures that wait for a stop, each with its own waker.
    stoppers: Vec<(u64, Waker)>,
    sleeps: Vec<(u64, Instant, Waker)>,
    /// Told when the connection fails, whatever else is waited for.
    pub(crate) watcher: Option<Waker>,
    /// Where another future has the stream: has the connection's task look at this.
    pub(crate) keeper: Option<Waker>,
    /// No more input is received until this has been read.
    pub(crate) held_back: bool,
    /// How the connection is to end, whatever its future does.
    pub(crate) ending: Option<Ending>,
    /// What the future asks the connection to dial.
    pub(crate) dials: Vec<(Dial, Arc<dyn Asks>)>,
    /// Tokens of dials that it waits for no more.
    pub(crate) given_up: Vec<u64>,
    /// Last number given to a sleep, or to a wait for a stop.
    last_id: u64,
}

/// What waits for a dial.
pub(crate) trait Asks: Send + Sync {
    /// The dial was made, with this token.
    fn name(&self, token: u64);
    /// The dial has become a connection, or has failed.
    fn settle(&self, result: io::Result<Shared>);
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// In order: what was written is delivered.
    Finish,
    /// With a reset.
    Abort,
}

impl Shared {
    pub(crate) fn new(peer: Peer) -> Shared {
        Shared(Arc::new(Mutex::new(State {
            peer,
            now: Instant::from_nanos(0),
            unread: Vec::new(),
            read: 0,
            ended: false,
            is_cut: false,
            broken: None,
            room: true,
            written: Vec::new(),
            shut: false,
            stopping: false,
            minds_stopping: false,
            reader: None,
            writer: None,
            stoppers: Vec::new(),
            sleeps: Vec::new(),
            watcher: None,
            keeper: None,
            held_back: false,
            ending: None,
            dials: Vec::new(),
            given_up: Vec::new(),
            last_id: 0,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the available input to `take`, which returns how much it took.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if let Some(result) = state.read(take) {
            let keeper = state.keeper.clone().filter(|_| state.held_back);
            drop(state);
            keeper.into_iter().for_each(Waker::wake);
            return Poll::Ready(result);
        }
        let before = state.reader.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if let Some(result) = state.write(bytes) {
            let keeper = state.keeper.clone();
            drop(state);
            keeper.into_iter().for_each(Waker::wake);
            return Poll::Ready(result);
        }
        let before = state.writer.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Waits until something may be written; an error will be told by writing.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        let is_over = state.broken.is_some() || state.shut;
        if is_over || state.room && state.written.len() < AHEAD {
            return Poll::Ready(());
        }
        let before = state.writer.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Writes what there is room for.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.change(|state| state.write(bytes).unwrap_or(Ok(0)))
    }

    /// Why nothing can be written, once that is so.
    pub(crate) fn poll_failure(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut state = self.lock();
        if let Some(kind) = state.broken {
            return Poll::Ready(kind.into());
        }
        let before = state.watcher.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Changes something that the connection's task is to act on.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let keeper = state.keeper.clone();
        drop(state);
        keeper.into_iter().for_each(Waker::wake);
        result
    }
}

impl State {
    /// The connection is to end so, or harder if that was said before.
    pub(crate) fn end(&mut self, how: Ending) {
        self.ending = self.ending.max(Some(how));
    }

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

    /// Both sides have said all, and the connection is gone.
    fn is_over_in_order(&self) -> bool {
        self.ended && self.broken == Some(io::ErrorKind::BrokenPipe)
    }

    /// `None` if no byte can be read yet.
    fn read(&mut self, take: impl FnOnce(&[u8]) -> usize) -> Option<io::Result<usize>> {
        if !self.unread().is_empty() {
            let n = take(self.unread());
            self.consume(n);
            return Some(Ok(n));
        }
        if let Some(kind) = self.broken
            && !self.is_over_in_order()
        {
            return Some(Err(kind.into()));
        }
        self.ended.then_some(match self.is_cut {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(0),
        })
    }

    /// `None` if there is no room yet.
    fn write(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        if let Some(kind) = self.broken {
            return Some(Err(kind.into()));
        }
        if self.shut {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = AHEAD.saturating_sub(self.written.len());
        if !self.room || room == 0 {
            return None;
        }
        let n = bytes.len().min(room);
        self.written.extend_from_slice(&bytes[..n]);
        Some(Ok(n))
    }

    fn id_or_new(&mut self, id: Option<u64>) -> u64 {
        id.unwrap_or_else(|| {
            self.last_id += 1;
            self.last_id
        })
    }

    // ---- Stopping ----

    /// Has `waker` called at a stop, instead of what `id` stood for before; its id, and the waker that it
    /// replaces.
    pub(crate) fn mind_stop(&mut self, id: Option<u64>, waker: &Waker) -> (u64, Option<Waker>) {
        let before = id.and_then(|id| self.mind_no_stop(id));
        let id = self.id_or_new(id);
        self.stoppers.push((id, waker.clone()));
        (id, before)
    }

    pub(crate) fn mind_no_stop(&mut self, id: u64) -> Option<Waker> {
        let at = self.stoppers.iter().position(|(other, _)| *other == id)?;
        Some(self.stoppers.swap_remove(at).1)
    }

    /// Notes that the server is about to stop, and returns the wakers that wait
    /// for it.
    pub(crate) fn stop(&mut self) -> Vec<Waker> {
        self.stopping = true;
        let stoppers = std::mem::take(&mut self.stoppers);
        stoppers.into_iter().map(|(_, waker)| waker).collect()
    }

    // ---- Sleeping ----

    /// Has `waker` called at `at`, instead of what `id` stood for before; its id, and the waker that it
    /// replaces.
    pub(crate) fn sleep(
        &mut self,
        id: Option<u64>,
        at: Instant,
        waker: &Waker,
    ) -> (u64, Option<Waker>) {
        let before = id.and_then(|id| self.wake_not(id));
        let id = self.id_or_new(id);
        self.sleeps.push((id, at, waker.clone()));
        (id, before)
    }

    pub(crate) fn wake_not(&mut self, id: u64) -> Option<Waker> {
        let at = self.sleeps.iter().position(|(other, ..)| *other == id)?;
        Some(self.sleeps.remove(at).2)
    }

    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.sleeps.iter().map(|(_, at, _)| *at).min()
    }

    /// Takes the wakers of sleeps that are due.
    pub(crate) fn take_due(&mut self) -> Vec<Waker> {
        let now = self.now;
        let due = self.sleeps.extract_if(.., |(_, at, _)| *at <= now);
        due.map(|(.., waker)| waker).collect()
    }
}
