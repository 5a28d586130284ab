//! One connection: its future, and the events for which the future is polled.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tidewire::{Closed, ConnId, Cx, Input, LoopHandle, Next, Protocol, Turn};

use crate::shared::{Asks, Ending, Shared, State};

/// Polls in a row after which other connections get their turn.
const POLLS: usize = 32;

/// A connection that is a future: what [`serve`](crate::serve) makes.
///
/// ```
/// use tidewire::Service;
/// use tidewire_async::{Stream, Task, serve};
///
/// /// Whatever the function, the connections are tasks.
/// fn is_of_tasks(_: &impl Service<Conn = Task>) {}
///
/// is_of_tasks(&serve(|stream: Stream| async move { drop(stream) }));
/// ```
pub struct Task {
    /// The future; `None` once it has returned.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    shared: Shared,
    /// Made when the connection is opened.
    alarm: Option<Arc<Alarm>>,
    /// The connection was dialled by another one, whose future has its stream.
    is_lent: bool,
    /// What waits for that, until the connection is opened.
    asked: Option<Arc<dyn Asks>>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self.future.is_some();
        write!(f, "Task({})", if running { "running" } else { "done" })
    }
}

/// The futures of one loop that were woken, until the loop polls them. Of no use to others.
///
/// ```
/// use std::sync::Arc;
/// use tidewire::Protocol;
/// use tidewire_async::{Task, Woken};
///
/// /// A layer around tasks shares their state on each loop, which is this.
/// fn of_tasks(local: Arc<Woken>) -> <Task as Protocol>::Local {
///     local
/// }
/// ```
pub struct Woken {
    /// Names, as numbers: wakers come from anywhere.
    queue: Mutex<VecDeque<u64>>,
    dials: Mutex<Dials>,
    at: LoopHandle<()>,
}

/// Dials of futures on one loop that are under way, by their tokens.
#[derive(Default)]
struct Dials {
    last: u64,
    asked: BTreeMap<u64, Arc<dyn Asks>>,
}

impl fmt::Debug for Woken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Woken")
    }
}

impl Woken {
    pub(crate) fn new(at: LoopHandle<()>) -> Arc<Woken> {
        Arc::new(Woken {
            queue: Mutex::default(),
            dials: Mutex::default(),
            at,
        })
    }

    fn push(&self, id: u64) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(id);
        drop(queue);
        self.at.signal();
    }

    /// A token for this dial, unlike those of the program's own dials.
    fn token(&self, asked: &Arc<dyn Asks>) -> u64 {
        let mut dials = self.dials.lock().unwrap_or_else(PoisonError::into_inner);
        dials.last += 1;
        let token = dials.last | OURS;
        dials.asked.insert(token, asked.clone());
        token
    }

    /// Takes the dial with this token, if it is a future's.
    pub(crate) fn asked(&self, token: u64) -> Option<Arc<dyn Asks>> {
        let mut dials = self.dials.lock().unwrap_or_else(PoisonError::into_inner);
        dials.asked.remove(&token)
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = ConnId> + use<> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *queue)
            .into_iter()
            .map(ConnId::from_bits)
    }
}

/// In all tokens of dials that futures make.
const OURS: u64 = 1 << 63;

/// Makes the dials that a future has asked for, and gives those up that it waits for no more.
#[cold]
fn dial_for(shared: &mut State, cx: &mut Cx<'_, Task>) {
    for (dial, asked) in shared.dials.drain(..) {
        let token = cx.local.token(&asked);
        asked.name(token);
        cx.dial(dial.token(token).tied());
    }
    for token in shared.given_up.drain(..) {
        cx.cancel_dial(token);
    }
}

/// Wakes one future, from anywhere. Each is in the queue at most once, which bounds the queue.
struct Alarm {
    state: AtomicU8,
    id: u64,
    woken: Arc<Woken>,
}

/// The task has no work.
const QUIET: u8 = 0;
/// Being polled, and will be looked at again.
const POLLED: u8 = 1;
/// Woken: queued, or about to be polled again.
const WOKEN: u8 = 2;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, SeqCst) == QUIET {
            self.woken.push(self.id);
        }
    }
}

impl Task {
    pub(crate) fn new(shared: Shared, future: Pin<Box<dyn Future<Output = ()>>>) -> Task {
        Task {
            future: Some(future),
            shared,
            alarm: None,
            is_lent: false,
            asked: None,
        }
    }

    /// A connection that another one has dialled.
    pub(crate) fn lent(shared: Shared, asked: Arc<dyn Asks>) -> Task {
        Task {
            future: None,
            shared,
            alarm: None,
            is_lent: true,
            asked: Some(asked),
        }
    }

    /// Polls the future while it is woken, and does what it asked for.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_, Task>) {
        let Some(alarm) = self.alarm.clone() else {
            return;
        };
        if self.is_lent {
            // What was asked from here on is looked at again.
            alarm.state.store(QUIET, SeqCst);
            if !cx.link.is_closing() {
                self.hand_over(cx);
            }
            return;
        }
        let waker = Waker::from(alarm.clone());
        for _ in 0..POLLS {
            let Some(future) = &mut self.future else {
                return;
            };
            if cx.link.is_closing() {
                return;
            }
            alarm.state.store(POLLED, SeqCst);
            {
                let mut shared = self.shared.lock();
                (shared.now, shared.room) = (cx.link.now(), !cx.link.full());
            }
            let done = future.as_mut().poll(&mut Context::from_waker(&waker));
            self.hand_over(cx);
            if done.is_ready() {
                self.future = None;
                return cx.link.finish();
            }
            let quiet = alarm.state.compare_exchange(POLLED, QUIET, SeqCst, SeqCst);
            if quiet.is_ok() {
                return;
            }
        }
        // This future is still woken; other futures come first.
        alarm.woken.push(alarm.id);
    }

    /// Does what the future has asked for: output, its end, more input, the next timer.
    fn hand_over(&self, cx: &mut Cx<'_, Task>) {
        let mut shared = self.shared.lock();
        if !shared.dials.is_empty() || !shared.given_up.is_empty() {
            dial_for(&mut shared, cx);
        }
        let link = &mut cx.link;
        let written = std::mem::take(&mut shared.written);
        if !written.is_empty() {
            link.write(&written);
        }
        // With both ends told the connection is over, and with it a future that has not read all.
        let is_behind = !shared.unread().is_empty();
        if shared.shut && !link.has_finished_writing() && !(is_behind && shared.ended) {
            link.finish_writing();
            if is_behind {
                shared.held_back = true;
                link.pause();
            }
        }
        match shared.next_alarm() {
            Some(at) if link.timer() != Some(at) => link.set_timer(at),
            None if link.timer().is_some() => link.clear_timer(),
            _ => {}
        }
        if link.paused() && shared.unread().is_empty() {
            shared.held_back = false;
            link.resume();
        }
        match shared.ending {
            Some(Ending::Finish) => link.finish(),
            Some(Ending::Abort) => link.abort(),
            None => {}
        }
        shared.room = !link.full();
        // The written bytes fit after all.
        let writer = if link.full() {
            None
        } else {
            shared.writer.take()
        };
        drop(shared);
        writer.into_iter().for_each(Waker::wake);
    }

    /// Changes what the future sees, wakes the futures that it concerns, and
    /// polls.
    fn tell(&mut self, cx: &mut Cx<'_, Task>, change: impl FnOnce(&mut State) -> Option<Waker>) {
        let waker = {
            let mut shared = self.shared.lock();
            shared.now = cx.link.now();
            change(&mut shared)
        };
        if let Some(waker) = waker {
            match self.is_lent {
                // The waker is another connection's future's.
                true => waker.wake(),
                false => self.wake_here([waker]),
            }
            self.go_on(cx);
        }
    }

    /// Wakes before a poll: so the future need not be queued.
    fn wake_here(&self, wakers: impl IntoIterator<Item = Waker>) {
        if let Some(alarm) = &self.alarm {
            alarm.state.store(POLLED, SeqCst);
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Protocol for Task {
    type Local = Arc<Woken>;
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.alarm = Some(Arc::new(Alarm {
            state: AtomicU8::new(QUIET),
            id: cx.link.id().to_bits(),
            woken: cx.local.clone(),
        }));
        if let Some(asked) = self.asked.take() {
            self.shared.lock().keeper = self.alarm.clone().map(Waker::from);
            asked.settle(Ok(self.shared.clone()));
        }
        self.go_on(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        loop {
            let took = {
                let mut shared = self.shared.lock();
                shared.take_in(input.bytes())
            };
            input.consume(took);
            self.tell(cx, |shared| shared.reader.take());
            if cx.link.is_closing() {
                return Next::More;
            }
            let mut shared = self.shared.lock();
            let is_behind = !shared.unread().is_empty();
            if is_behind && (!input.is_empty() || shared.shut) {
                // The future does not keep up: the rest stays unread until this is read. So does the peer's end where it
                // would be the connection's.
                shared.held_back = true;
                return Next::Paused;
            }
            if input.is_empty() {
                return Next::More;
            }
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.tell(cx, |shared| {
            shared.room = true;
            shared.writer.take()
        });
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.tell(cx, |shared| {
            shared.ended = true;
            shared.reader.take()
        });
    }

    fn cut_short(&mut self, unread: usize, _: &'static str, cx: &mut Cx<'_, Self>) {
        self.shared.lock().is_cut = true;
        self.peer_finished(unread, cx);
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        let due = {
            let mut shared = self.shared.lock();
            shared.now = cx.link.now();
            shared.take_due()
        };
        self.wake_here(due);
        self.go_on(cx);
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_lent {
            // The connection that dialled this one is told.
            return;
        }
        let (minds, stoppers) = {
            let mut shared = self.shared.lock();
            shared.now = cx.link.now();
            (shared.minds_stopping, shared.stop())
        };
        if !stoppers.is_empty() {
            self.wake_here(stoppers);
            self.go_on(cx);
        }
        if !minds {
            cx.link.finish();
        }
    }

    fn closed(self, why: Closed, _: &mut Turn<'_, Self>) {
        let mut shared = self.shared.lock();
        shared.broken = Some(match why {
            Closed::Reset => io::ErrorKind::ConnectionReset,
            Closed::Failed(kind) => kind,
            Closed::Finished => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::ConnectionAborted,
        });
        // A future that kept a clone elsewhere waits no longer.
        let waiting = [
            shared.reader.take(),
            shared.writer.take(),
            shared.watcher.take(),
        ];
        let _keeper = shared.keeper.take();
        drop(shared);
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

/// A poll that a waker asked for.
pub(crate) fn poll_woken(task: &mut Task, cx: &mut Cx<'_, Task>) {
    task.go_on(cx);
}
