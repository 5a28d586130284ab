//! What the system says of a name: `getaddrinfo`, which waits, on threads of its own.

use std::collections::VecDeque;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::reach::names::{Lookup, Resolver};

/// How long a thread waits for another name before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Asks the system, as every other program on this machine does (`getaddrinfo`, with `/etc/hosts` and what else is
/// configured). Threads are started when they are needed and end when nothing was asked for ten seconds. For how long an answer is
/// right the system does not say, so answers are not kept: where many dials go to few names, a caching resolver on
/// the machine helps.
///
/// ```
/// use tidewire::{Builder, SystemResolver};
///
/// // For many names whose servers answer slowly.
/// Builder::new().resolver(SystemResolver::with_threads(16));
/// ```
#[derive(Debug)]
pub struct SystemResolver {
    shared: Arc<Shared>,
    threads_max: usize,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Lookup>,
    threads: usize,
    /// Threads that wait for a name.
    idle: usize,
    is_over: bool,
}

impl Default for SystemResolver {
    /// With at most four threads.
    fn default() -> SystemResolver {
        SystemResolver::with_threads(4)
    }
}

impl SystemResolver {
    /// Looks up so many names at once, at least one; others wait.
    #[must_use]
    pub fn with_threads(threads_max: usize) -> SystemResolver {
        SystemResolver {
            shared: Arc::default(),
            threads_max: threads_max.max(1),
        }
    }
}

impl Resolver for SystemResolver {
    fn resolve(&self, lookup: Lookup) {
        let mut queue = self.shared.lock();
        queue.waiting.push_back(lookup);
        if queue.idle >= queue.waiting.len() || queue.threads >= self.threads_max {
            self.shared.more.notify_one();
            return;
        }
        queue.threads += 1;
        let shared = self.shared.clone();
        let named = thread::Builder::new().name("tidewire-names".into());
        if let Err(e) = named.spawn(move || shared.work()) {
            queue.threads -= 1;
            // Another thread has it, if there is one.
            let unable = (queue.threads == 0)
                .then(|| queue.waiting.pop_back())
                .flatten();
            drop(queue);
            tracing::error!(error = %e, "cannot start a thread to look up a name");
            if let Some(lookup) = unable {
                lookup.fail(e);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn work(&self) {
        while let Some(lookup) = self.next() {
            if lookup.is_wanted() {
                look_up(lookup);
            }
        }
    }

    /// The next name; `None` if none comes.
    fn next(&self) -> Option<Lookup> {
        let mut queue = self.lock();
        let mut waited = false;
        loop {
            if let Some(lookup) = queue.waiting.pop_front() {
                return Some(lookup);
            }
            if waited || queue.is_over {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let waits = self.more.wait_timeout(queue, IDLE);
            let (again, timeout) = waits.unwrap_or_else(PoisonError::into_inner);
            (queue, waited) = (again, timeout.timed_out());
            queue.idle -= 1;
        }
    }
}

/// Asks the system, and waits for its answer.
fn look_up(lookup: Lookup) {
    match (lookup.name(), 0).to_socket_addrs() {
        Ok(found) => {
            let found: Vec<_> = found.map(|addr| addr.ip()).collect();
            lookup.finish(found);
        }
        // Whatever the system calls it, the caller's own words are enough.
        Err(e) => lookup.fail(io::Error::new(e.kind(), e)),
    }
}

impl Drop for SystemResolver {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.more.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reach::names::Names;
    use crate::reach::waker::{Command, Waker};
    use crate::vocabulary::time::Instant;

    /// By `/etc/hosts` or without it, every system knows this one.
    #[test]
    fn the_system_knows_localhost_and_not_what_is_invalid() {
        let names = Arc::new(Names::of(Arc::new(SystemResolver::with_threads(2)), 10));
        let at = Arc::new(Waker::new());
        for (dial, name) in (1..).zip(["localhost", "nothing.invalid"]) {
            names.ask(&name.into(), &at, dial, Instant::default());
        }
        let (mut known, mut unknown) = (None, None);
        while known.is_none() || unknown.is_none() {
            for command in at.commands() {
                let Command::Answered(answer) = command else {
                    panic!("{command:?}");
                };
                match answer.dial {
                    1 => known = Some(answer.found),
                    _ => unknown = Some(answer.found),
                }
            }
            thread::yield_now();
        }
        let known = known.unwrap().unwrap();
        assert!(!known.is_empty() && known.iter().all(|ip| ip.is_loopback()));
        assert!(unknown.unwrap().is_err());
    }
}
