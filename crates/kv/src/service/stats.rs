//! Counters of events, kept by each loop without sharing a cache line, added up when they are read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use super::count::Count;
use super::times::{Sum, Times};
use crate::apart::Apart;

/// Different error prefixes that are told apart; the rest is counted together.
const ERRORS_MAX: usize = 128;
/// Bytes of an error prefix that is told apart.
const ERROR_MAX: usize = 32;
/// Commands whose counters are set aside together: most clients use few.
const PER_PAGE: usize = 16;
const PAGES: usize = 32;

/// The counters of one command.
#[derive(Debug, Default)]
pub(crate) struct PerCommand {
    pub(crate) calls: Count,
    /// Not run: wrong number of arguments, or not now.
    pub(crate) rejected: Count,
    /// Run, with an error for a reply.
    pub(crate) failed: Count,
    /// Calls that were timed, and how long they took.
    pub(crate) timed: Count,
    pub(crate) timed_ns: Count,
    times: OnceLock<Box<Times>>,
}

impl PerCommand {
    /// How long calls took; only the loop that owns it may ask.
    pub(crate) fn times(&self) -> &Times {
        self.times.get_or_init(Box::default)
    }
}

type Page = Box<Apart<[PerCommand; PER_PAGE]>>;

/// The counts of one loop.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LoopStats {
    pub(crate) commands: Count,
    pub(crate) connections: Count,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
    pub(crate) errors: Count,
    pub(crate) protocol_errors: Count,
    /// Clients of other hosts turned away for want of a password.
    pub(crate) denied: Count,
    /// Subscribers cut because they did not take their messages.
    pub(crate) slow_subscribers: Count,
    /// Clients cut because a reply was larger than the limit of their output.
    pub(crate) large_replies: Count,
    /// Calls of PSUBSCRIBE refused because the patterns of one client would have taken too much memory.
    pub(crate) refused_patterns: Count,
    /// Commands refused because more would have stayed than one client may make the server hold.
    pub(crate) refused_holding: Count,
    /// Clients cut because all clients together held more than they may.
    pub(crate) evicted_clients: Count,
    /// Connections closed because half a command was all that came, or nothing at all.
    pub(crate) timed_out: Count,
    /// Connections closed because they had to log in and did not do so in time.
    pub(crate) not_logged_in: Count,
    pages: [OnceLock<Page>; PAGES],
    /// Error replies by their first word. Other threads take the lock only to read.
    by_prefix: Mutex<Errors>,
}

type Errors = BTreeMap<String, u64>;

impl LoopStats {
    #[inline]
    pub(crate) fn command(&self, id: u16) -> &PerCommand {
        let id = usize::from(id);
        let page = self.pages[id / PER_PAGE].get_or_init(Page::default);
        &page[id % PER_PAGE]
    }

    /// Counts an error reply by its first word.
    #[cold]
    pub(crate) fn error(&self, prefix: &[u8]) {
        // A script may make errors of any words: as in Redis, a long one counts as no word.
        let prefix = match prefix.len() {
            ..=ERROR_MAX => prefix,
            _ => b"ERR",
        };
        count_error(&mut self.by_prefix(), &String::from_utf8_lossy(prefix), 1);
    }

    fn by_prefix(&self) -> MutexGuard<'_, Errors> {
        self.by_prefix
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the calls of a command took that were counted since `before`; `None` if none was.
    pub(crate) fn times_since(&self, before: &LoopStats, id: u16) -> Option<Sum> {
        let times = self.command(id).times.get()?;
        let before = before.command(id).times.get();
        Some(times.since(before.map(|before| &**before)))
    }

    /// Adds the counts of another loop; call this only while this value has a single owner.
    fn absorb(&self, other: &LoopStats) {
        let pairs = |a: &LoopStats, b: &LoopStats| {
            for (to, from) in [
                (&a.commands, &b.commands),
                (&a.connections, &b.connections),
                (&a.bytes_in, &b.bytes_in),
                (&a.bytes_out, &b.bytes_out),
                (&a.errors, &b.errors),
                (&a.protocol_errors, &b.protocol_errors),
                (&a.denied, &b.denied),
                (&a.slow_subscribers, &b.slow_subscribers),
                (&a.large_replies, &b.large_replies),
                (&a.refused_patterns, &b.refused_patterns),
                (&a.refused_holding, &b.refused_holding),
                (&a.evicted_clients, &b.evicted_clients),
                (&a.timed_out, &b.timed_out),
                (&a.not_logged_in, &b.not_logged_in),
            ] {
                to.add(from.value());
            }
        };
        pairs(self, other);
        let mut errors = self.by_prefix();
        for (prefix, count) in &*other.by_prefix() {
            count_error(&mut errors, prefix, *count);
        }
        drop(errors);
        for (at, page) in other.pages.iter().enumerate() {
            let Some(page) = page.get() else { continue };
            for (slot, from) in page.iter().enumerate() {
                let to = self.command((at * PER_PAGE + slot) as u16);
                to.calls.add(from.calls.value());
                to.rejected.add(from.rejected.value());
                to.failed.add(from.failed.value());
                to.timed.add(from.timed.value());
                to.timed_ns.add(from.timed_ns.value());
                if let Some(times) = from.times.get() {
                    to.times().absorb(times);
                }
            }
        }
    }
}

/// Counts so many more of a prefix, unless there are too many to tell them apart.
fn count_error(errors: &mut Errors, prefix: &str, more: u64) {
    if let Some(count) = errors.get_mut(prefix) {
        *count += more;
    } else if errors.len() < ERRORS_MAX {
        errors.insert(prefix.to_owned(), more);
    }
}

/// Commands a second, measured over the last second or a little more.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    last: Mutex<(u64, u64)>,
    per_s: AtomicU64,
}

impl Rate {
    /// Measures if a second has passed since it last did.
    pub(crate) fn measure(&self, now_ms: u64, count: impl FnOnce() -> u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (then_ms, before) = *last;
        let passed_ms = now_ms.saturating_sub(then_ms);
        if passed_ms >= 1000 {
            let now = count();
            *last = (now_ms, now);
            if then_ms > 0 {
                let per_s = now.saturating_sub(before).saturating_mul(1000) / passed_ms;
                self.per_s.store(per_s, Relaxed);
            }
        }
    }

    pub(crate) fn per_s(&self) -> u64 {
        self.per_s.load(Relaxed)
    }
}

/// The counts of all loops, including ended ones.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    loops: Mutex<Loops>,
}

#[derive(Debug, Default)]
struct Loops {
    running: Vec<Arc<LoopStats>>,
    /// Counts of loops that have ended: the threads engine has one for each connection.
    ended: LoopStats,
    /// The counters at the last CONFIG RESETSTAT.
    forgotten: LoopStats,
}

impl Stats {
    pub(crate) fn on_loop(&self) -> Arc<LoopStats> {
        let stats = Arc::new(LoopStats::default());
        self.lock().running.push(stats.clone());
        stats
    }

    pub(crate) fn loop_ended(&self, stats: &Arc<LoopStats>) {
        let mut loops = self.lock();
        loops.running.retain(|known| !Arc::ptr_eq(known, stats));
        loops.ended.absorb(stats);
    }

    /// Calls `f` with all counters so far, and with the counters at the last reset, which are to be
    /// subtracted.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&LoopStats, &LoopStats) -> R) -> R {
        let loops = self.lock();
        f(&loops.sum(), &loops.forgotten)
    }

    /// Counts from here.
    pub(crate) fn reset(&self) {
        let mut loops = self.lock();
        loops.forgotten = loops.sum();
        for stats in loops
            .running
            .iter()
            .map(|stats| &**stats)
            .chain([&loops.ended])
        {
            stats.by_prefix().clear();
        }
    }

    /// Error replies by their first word, since they were last forgotten.
    pub(crate) fn errors_by_prefix(&self) -> Errors {
        std::mem::take(&mut *self.lock().sum().by_prefix())
    }

    fn lock(&self) -> MutexGuard<'_, Loops> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loops {
    fn sum(&self) -> LoopStats {
        let sum = LoopStats::default();
        sum.absorb(&self.ended);
        for stats in &self.running {
            sum.absorb(stats);
        }
        sum
    }
}
