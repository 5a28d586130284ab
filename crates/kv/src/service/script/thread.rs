//! The way to the thread for scripts, whatever it is given to do: a queue that outlives the thread which takes from it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The way to the thread, which is started with the first script for it. What goes there knows what all loops share, which
/// has this: so the way does not know what that is.
#[derive(Debug, Default)]
pub(super) struct Thread(Mutex<Option<Box<dyn Any + Send>>>);

impl Thread {
    /// The queue, made with its threads by the first caller; `None` if no threads can be started.
    pub(super) fn queue<J: Send + 'static, R: Send + Sync + 'static>(
        &self,
        start: impl FnOnce() -> Option<Arc<Queue<J, R>>>,
    ) -> Option<Arc<Queue<J, R>>> {
        let mut way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if way.is_none() {
            *way = start().map(|queue| Box::new(Way(queue)) as Box<dyn Any + Send>);
        }
        let way: &Way<J, R> = way.as_ref()?.downcast_ref()?;
        Some(way.0.clone())
    }
}

/// Closes the queue when there is no server any more.
struct Way<J, R>(Arc<Queue<J, R>>);

impl<J, R> Drop for Way<J, R> {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.jobs.notify_all();
        self.0.runs.notify_all();
    }
}

/// Jobs that wait for the thread, and the one that runs, of which `R` is what the thread that watches it sees.
#[derive(Debug)]
pub(super) struct Queue<J, R> {
    state: Mutex<State<J, R>>,
    /// There is a job, or no server any more.
    jobs: Condvar,
    /// A job runs, or there is no server any more.
    runs: Condvar,
}

#[derive(Debug)]
struct State<J, R> {
    waiting: VecDeque<J>,
    running: Option<Arc<R>>,
    /// A thread takes jobs, or runs one and has not been given up.
    is_served: bool,
    /// Whether the watching thread waits until a script runs.
    watcher_sleeps: bool,
    closed: bool,
}

/// The next task of the thread.
pub(super) enum Next<J> {
    Job(J),
    /// No task has arrived in time.
    Nothing,
    /// The server has ended.
    Closed,
}

impl<J, R> Default for Queue<J, R> {
    fn default() -> Queue<J, R> {
        Queue {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                running: None,
                is_served: false,
                watcher_sleeps: false,
                closed: false,
            }),
            jobs: Condvar::new(),
            runs: Condvar::new(),
        }
    }
}

impl<J, R> Queue<J, R> {
    fn state(&self) -> MutexGuard<'_, State<J, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a job in. `serve` starts a thread where none takes jobs.
    ///
    /// # Errors
    /// No thread takes jobs, and none was started: the job.
    pub(super) fn put(&self, job: J, serve: impl FnOnce() -> bool) -> Result<(), J> {
        let mut state = self.state();
        if !state.is_served {
            state.is_served = serve();
        }
        if !state.is_served {
            return Err(job);
        }
        state.waiting.push_back(job);
        self.jobs.notify_one();
        Ok(())
    }

    /// The next job; without a time as long as it takes.
    pub(super) fn next(&self, within: Option<Duration>) -> Next<J> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                return Next::Job(job);
            }
            if state.closed {
                return Next::Closed;
            }
            let Some(within) = within else {
                let woken = self.jobs.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let woken = self.jobs.wait_timeout(state, within);
            let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.waiting.is_empty() {
                return Next::Nothing;
            }
        }
    }

    /// A job that waits, without waiting for one.
    pub(super) fn take(&self) -> Option<J> {
        self.state().waiting.pop_front()
    }

    /// A job runs from now on.
    pub(super) fn begin(&self, job: Arc<R>) {
        let mut state = self.state();
        state.running = Some(job);
        if std::mem::take(&mut state.watcher_sleeps) {
            self.runs.notify_one();
        }
    }

    /// The running job has come to its end.
    pub(super) fn end(&self) {
        self.state().running = None;
    }

    /// The thread that runs a job is given up. The jobs that wait for it, if `serve` starts no other.
    pub(super) fn give_up(&self, serve: impl FnOnce() -> bool) -> Vec<J> {
        let mut state = self.state();
        state.running = None;
        state.is_served = serve();
        match state.is_served {
            true => Vec::new(),
            false => state.waiting.drain(..).collect(),
        }
    }

    /// The running job.
    pub(super) fn running(&self) -> Option<Arc<R>> {
        self.state().running.clone()
    }

    /// Waits until something runs; false if there is no server any more.
    pub(super) fn wait_until_one_runs(&self) -> bool {
        let mut state = self.state();
        while state.running.is_none() && !state.closed {
            state.watcher_sleeps = true;
            state = self
                .runs
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.watcher_sleeps = false;
        !state.closed
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "it tests two threads")]
mod tests {
    use super::*;

    #[test]
    fn jobs_go_to_the_next_thread_or_back_to_those_who_sent_them() {
        let queue: Queue<u32, ()> = Queue::default();
        assert_eq!(queue.put(1, || false), Err(1), "no thread is started");
        queue.put(2, || true).unwrap();
        queue
            .put(3, || panic!("a thread takes jobs already"))
            .unwrap();
        assert!(matches!(queue.next(None), Next::Job(2)));
        queue.begin(Arc::new(()));
        assert!(queue.running().is_some());
        assert_eq!(queue.give_up(|| true), [], "another thread takes them");
        assert!(queue.running().is_none());
        assert!(matches!(queue.next(None), Next::Job(3)));
        queue.put(4, || true).unwrap();
        assert_eq!(queue.give_up(|| false), [4], "no other thread takes them");
        assert_eq!(queue.put(5, || false), Err(5));
        assert!(queue.take().is_none());
    }

    #[test]
    fn threads_end_when_the_server_has_gone() {
        let thread = Thread::default();
        let queue: Arc<Queue<u32, ()>> = thread.queue(|| Some(Arc::default())).unwrap();
        let again = thread.queue(|| -> Option<Arc<Queue<u32, ()>>> { panic!("it is there") });
        assert!(again.is_some());
        std::thread::scope(|scope| {
            let takes = scope.spawn(|| matches!(queue.next(None), Next::Closed));
            let watches = scope.spawn(|| queue.wait_until_one_runs());
            drop(thread);
            assert!(takes.join().unwrap());
            assert!(!watches.join().unwrap());
        });
    }
}
