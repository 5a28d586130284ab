//! One connection: its future, and the events for which the future is polled.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tidewire::{Closed, ConnId, Cx, Input, Link, LoopHandle, Next, Protocol, Turn};

use crate::shared::{Shared, State};

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
    at: LoopHandle<()>,
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
            at,
        })
    }

    fn push(&self, id: u64) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(id);
        drop(queue);
        self.at.signal();
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = ConnId> + use<> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *queue)
            .into_iter()
            .map(ConnId::from_bits)
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
        }
    }

    /// Polls the future while it is woken, and carries out its requests.
    pub(crate) fn go_on(&mut self, link: &mut Link<'_>) {
        let Some(alarm) = self.alarm.clone() else {
            return;
        };
        let waker = Waker::from(alarm.clone());
        for _ in 0..POLLS {
            let Some(future) = &mut self.future else {
                return;
            };
            if link.is_closing() {
                return;
            }
            alarm.state.store(POLLED, SeqCst);
            {
                let mut shared = self.shared.lock();
                (shared.now, shared.room) = (link.now(), !link.full());
            }
            let done = future.as_mut().poll(&mut Context::from_waker(&waker));
            self.hand_over(link);
            if done.is_ready() {
                self.future = None;
                return link.finish();
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
    fn hand_over(&self, link: &mut Link<'_>) {
        let mut shared = self.shared.lock();
        let written = std::mem::take(&mut shared.written);
        if !written.is_empty() {
            link.write(&written);
        }
        if shared.shut && !link.has_finished_writing() {
            link.finish_writing();
        }
        match shared.next_alarm() {
            Some(at) if link.timer() != Some(at) => link.set_timer(at),
            None if link.timer().is_some() => link.clear_timer(),
            _ => {}
        }
        if link.paused() && shared.unread().is_empty() {
            link.resume();
        }
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
    fn tell(&mut self, link: &mut Link<'_>, change: impl FnOnce(&mut State) -> Option<Waker>) {
        let waker = {
            let mut shared = self.shared.lock();
            shared.now = link.now();
            change(&mut shared)
        };
        if let Some(waker) = waker {
            self.wake_here([waker]);
            self.go_on(link);
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
        self.go_on(&mut cx.link);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        loop {
            let took = {
                let mut shared = self.shared.lock();
                shared.take_in(input.bytes())
            };
            input.consume(took);
            self.tell(&mut cx.link, |shared| shared.reader.take());
            if input.is_empty() || cx.link.is_closing() {
                return Next::More;
            }
            if !self.shared.lock().unread().is_empty() {
                // The future does not keep up: the rest stays unread until this is read.
                return Next::Paused;
            }
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.tell(&mut cx.link, |shared| shared.writer.take());
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.tell(&mut cx.link, |shared| {
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
        self.go_on(&mut cx.link);
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        let (minds, stoppers) = {
            let mut shared = self.shared.lock();
            shared.now = cx.link.now();
            (shared.minds_stopping, shared.stop())
        };
        if !stoppers.is_empty() {
            self.wake_here(stoppers);
            self.go_on(&mut cx.link);
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
        let waiting = [shared.reader.take(), shared.writer.take()];
        drop(shared);
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

/// A poll that a waker asked for.
pub(crate) fn poll_woken(task: &mut Task, cx: &mut Cx<'_, Task>) {
    task.go_on(&mut cx.link);
}
