//! State that a producer's caller and its thread share, and how each wakes the other.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;
use tidewire::Instant;

use super::clock::Clock;
use super::connect::Server;
use super::error::Error;
use super::session::Session;

/// Is called when there is news of a [`Producer`](super::Producer).
#[derive(Clone)]
pub struct News(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("News")
    }
}

/// The state that the caller and the client's thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Something was acknowledged, the first welcome came, or it is all over.
    pub(super) news: Condvar,
    /// Called for the same reasons.
    pub(super) listener: Option<News>,
    /// Wakes the thread.
    pub(super) wake: OwnedFd,
    pub(super) server: Server,
    pub(super) clock: Clock,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) session: Session,
    /// Whether the thread waits, and has no bytes to write.
    pub(super) asleep: bool,
    /// Callers that wait for news.
    pub(super) waiting: u32,
    pub(super) stop: bool,
    pub(super) failure: Option<Error>,
    pub(super) acknowledged: u64,
    pub(super) connections: u64,
    pub(super) trouble: Option<String>,
}

impl State {
    pub(super) fn check(&self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread if it sleeps.
    #[inline]
    pub(super) fn rouse(&self, state: &mut State) {
        if std::mem::take(&mut state.asleep) {
            self.ring();
        }
    }

    pub(super) fn ring(&self) {
        // The write fails only when the thread has already been woken.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(super) fn stop(&self, state: &mut State) {
        state.stop = true;
        self.ring();
    }

    /// The producer has failed for good.
    pub(super) fn fail(&self, state: &mut State, failure: Error) {
        state.failure.get_or_insert(failure);
        self.news.notify_all();
        self.listen();
    }

    /// Wakes the callers that wait.
    pub(super) fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.news.notify_all();
        }
        self.listen();
    }

    pub(super) fn listen(&self) {
        if let Some(News(listener)) = &self.listener {
            listener();
        }
    }

    pub(super) fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = match until {
            None => self
                .news
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let waited = self.news.wait_timeout(state, until.since(self.clock.now()));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.waiting -= 1;
        state
    }
}
