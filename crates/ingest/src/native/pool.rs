//! Threads that read the log for readers, because reading blocks on the disk.
//!
//! A reader has one read outstanding, and a place reserved for its answer before it asks; so the
//! queue is bounded by the number of readers, and no answer is lost.
#![expect(
    clippy::disallowed_methods,
    reason = "reading blocks, and may not do so on a loop"
)]

use super::message::{Answer, Message};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tidewire::Permit;
use tidewire_log::{Begin, Credit, Log, Range, ReadError};

/// A read that is to be done, and the connection that asked for it.
pub(super) struct Job {
    pub(super) stream: Arc<str>,
    pub(super) what: Want,
    pub(super) permit: Permit<Message>,
}

/// The records to read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// The place where reading begins.
    Place(Begin),
    /// Records from a position on.
    Records(u64, Credit),
}

/// The threads.
pub(super) struct Pool {
    log: Arc<dyn Log>,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    stopping: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads.len())
    }
}

impl Pool {
    /// Starts so many threads. Without any, the asking thread reads.
    pub(super) fn new(threads: usize, log: &Arc<dyn Log>) -> Pool {
        let queue = Arc::new(Queue::default());
        let start = |n: usize| {
            let (log, queue) = (log.clone(), queue.clone());
            std::thread::Builder::new()
                .name(format!("log-reader-{n}"))
                .spawn(move || {
                    while let Some(job) = queue.next() {
                        job.run(&*log);
                    }
                })
                .inspect_err(|e| {
                    tracing::warn!("cannot start a thread that reads the log: {e}");
                })
                .ok()
        };
        Pool {
            threads: (0..threads).filter_map(start).collect(),
            log: log.clone(),
            queue,
        }
    }

    /// Gives a job to the pool.
    pub(super) fn submit(&self, job: Job) {
        if self.threads.is_empty() {
            return job.run(&*self.log);
        }
        self.queue.lock().jobs.push_back(job);
        self.queue.filled.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.lock().stopping = true;
        self.queue.filled.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of a read is caught; there is nothing else that could fail.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a job; `None`: there will be none.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Job {
    fn run(self, log: &dyn Log) {
        let stream = &*self.stream;
        let answer = match self.what {
            Want::Place(begin) => Answer::Place(caught(|| place(log, stream, begin))),
            Want::Records(from, credit) => {
                Answer::Records(caught(|| log.read(stream, from, credit)))
            }
        };
        self.permit.post(Message::Read(answer));
    }
}

fn place(log: &dyn Log, stream: &str, begin: Begin) -> Result<(Range, u64), ReadError> {
    let start = log.locate(stream, begin)?;
    let nothing = Range { first: 0, next: 0 };
    Ok((log.range(stream).unwrap_or(nothing), start))
}

fn caught<T>(read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ReadError::Damaged("reading the log panicked".into())))
}
