//! Counters of events, kept by each loop without sharing a cache line, added up when they are read.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters of a service since its start, over all loops.
///
/// ```
/// use std::time::Duration;
/// use tidewire_http::{Http, Router};
///
/// let app = Http::new(Router::new());
/// let running = tidewire::Builder::new().serve("127.0.0.1:0", app.clone()).start()?;
/// # use std::io::{Read, Write};
/// # let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
/// # client.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
/// # client.read_to_end(&mut Vec::new())?;
/// running.stop(Duration::from_secs(1));
/// let counters = app.counters();
/// assert_eq!((counters.requests, counters.replies_4xx), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Heads that were whole and in order.
    pub requests: u64,
    /// Replies that say success.
    pub replies_2xx: u64,
    /// Replies that point elsewhere.
    pub replies_3xx: u64,
    /// Replies that blame the client, including replies to refused requests.
    pub replies_4xx: u64,
    /// Replies that blame the server.
    pub replies_5xx: u64,
    /// Requests refused because they were malformed, or meant differently by different servers: 400,
    /// 411, 417, 501, 505.
    pub malformed: u64,
    /// Requests refused because they were larger than a [setting](crate::Settings) allows: 413, 414,
    /// 431.
    pub too_large: u64,
    /// Requests that came too slowly: 408.
    pub too_slow: u64,
    /// Requests refused because of what others take: 503, when too many bodies are being gathered or
    /// too many answers are owed.
    pub overloaded: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "requests={} replies_2xx={} replies_3xx={} replies_4xx={} replies_5xx={} malformed={} \
             too_large={} too_slow={} overloaded={}",
            self.requests,
            self.replies_2xx,
            self.replies_3xx,
            self.replies_4xx,
            self.replies_5xx,
            self.malformed,
            self.too_large,
            self.too_slow,
            self.overloaded
        )
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.requests += other.requests;
        self.replies_2xx += other.replies_2xx;
        self.replies_3xx += other.replies_3xx;
        self.replies_4xx += other.replies_4xx;
        self.replies_5xx += other.replies_5xx;
        self.malformed += other.malformed;
        self.too_large += other.too_large;
        self.too_slow += other.too_slow;
        self.overloaded += other.overloaded;
    }
}

/// A count that one thread adds to and others read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds one; only the loop that owns the counter may call this.
    #[inline]
    pub(crate) fn add(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts of one loop.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: Count,
    /// By the first digit of the status.
    replies: [Count; 6],
    malformed: Count,
    too_large: Count,
    too_slow: Count,
    overloaded: Count,
}

impl Counts {
    /// A reply was written.
    pub(crate) fn replied(&self, status: u16) {
        self.replies[usize::from(status / 100).min(5)].add();
    }

    /// A request was refused.
    pub(crate) fn refused(&self, status: u16) {
        match status {
            408 => self.too_slow.add(),
            413 | 414 | 431 => self.too_large.add(),
            503 => self.overloaded.add(),
            _ => self.malformed.add(),
        }
    }

    fn snapshot(&self) -> Counters {
        Counters {
            requests: self.requests.value(),
            replies_2xx: self.replies[2].value(),
            replies_3xx: self.replies[3].value(),
            replies_4xx: self.replies[4].value(),
            replies_5xx: self.replies[5].value(),
            malformed: self.malformed.value(),
            too_large: self.too_large.value(),
            too_slow: self.too_slow.value(),
            overloaded: self.overloaded.value(),
        }
    }
}

/// The counts of all loops.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    running: Vec<Arc<Counts>>,
    /// Counts of loops that have ended: the threads engine has one loop for each
    /// connection.
    ended: Counters,
}

impl Totals {
    pub(crate) fn start(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.lock().running.push(counts.clone());
        counts
    }

    pub(crate) fn end(&self, counts: &Arc<Counts>) {
        let mut all = self.lock();
        all.running.retain(|known| !Arc::ptr_eq(known, counts));
        all.ended += counts.snapshot();
    }

    pub(crate) fn sum(&self) -> Counters {
        let all = self.lock();
        let mut sum = all.ended;
        for counts in &all.running {
            sum += counts.snapshot();
        }
        sum
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
