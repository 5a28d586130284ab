//! The pool: places, and what runs the work that has one.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use tidewire::{Handle, Permit};

use crate::counters::{Counters, Counting};
use crate::work::{NotDone, contained};

/// Settings of a [`Pool`] of threads.
///
/// ```
/// let settings = tidewire_pool::Settings { threads: 2, ..Default::default() };
/// assert_eq!((settings.places, settings.nice), (1024, 10));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads, at least 1. Default: one for each core that the process may run on.
    pub threads: usize,
    /// Pieces of work that may be reserved, waiting or running at once; more work is
    /// [refused](Refused::Pool). At least 1. Default 1024: with work of 5 ms on two threads, the last
    /// one waits two and a half seconds.
    pub places: usize,
    /// How much less the threads weigh than others where cores are short, as in nice(2): 0 to 19.
    /// Default 10: a loop that has something to do comes first.
    pub nice: i32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            places: 1024,
            nice: 10,
        }
    }
}

/// The queue has no place for more work. The pool has not taken the work.
///
/// ```
/// use tidewire::Handle;
/// use tidewire_pool::{Place, Pool, Refused};
///
/// /// What a peer is told.
/// fn words(refused: Refused) -> &'static [u8] {
///     match refused {
///         Refused::Lane => b"one thing after the other\n",
///         _ => b"busy, come back later\n",
///     }
/// }
///
/// fn take(pool: &Pool, to: &Handle<u64>) -> Result<Place<u64>, &'static [u8]> {
///     pool.reserve(to).map_err(words)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// All [`Settings::places`] are taken.
    #[error("the pool has as much to do as it may have")]
    Pool,
    /// The mailbox of the connection's loop has no place for the answer
    /// ([`RESERVED_MAX`](tidewire::RESERVED_MAX)).
    #[error("too many answers are owed to this loop")]
    Mailbox,
    /// The connection has as much under way as its [`Lane`](crate::Lane) allows.
    #[error("the connection has as much work under way as it may have")]
    Lane,
}

/// Does work for connections, beside their loops. Clones are the same pool; when the last one is
/// dropped the threads end, after what [`stop`](Pool::stop) says.
#[derive(Clone)]
pub struct Pool(Arc<Owner>);

struct Owner {
    how: How,
    shared: Arc<Shared>,
}

enum How {
    Threads(ThreadPool),
    Inline,
    ByHand(Mutex<VecDeque<Job>>),
}

type Job = Box<dyn FnOnce() + Send>;

/// What the pool, its places and its work know of each other.
struct Shared {
    most: usize,
    stopped: AtomicBool,
    counting: Counting,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.counters())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Owner {
    fn stop(&self) {
        self.shared.stopped.store(true, Relaxed);
        if let How::ByHand(jobs) = &self.how {
            let jobs = std::mem::take(&mut *lock(jobs));
            jobs.into_iter().for_each(|job| job());
        }
    }
}

impl Pool {
    /// Starts the threads. Idle ones sleep.
    ///
    /// # Errors
    /// `InvalidInput` if the settings cannot be meant; otherwise what the system says about starting
    /// threads.
    ///
    /// ```
    /// use tidewire_pool::{Pool, Settings};
    ///
    /// let pool = Pool::new(&Settings { threads: 2, places: 100, ..Settings::default() })?;
    /// assert_eq!(pool.counters().places, 0);
    /// assert!(Pool::new(&Settings { threads: 0, ..Settings::default() }).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(settings: &Settings) -> io::Result<Pool> {
        let Settings {
            threads,
            places,
            nice,
        } = *settings;
        if threads == 0 || places == 0 || !(0..=19).contains(&nice) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a pool of {threads} threads, {places} places, nice {nice}: at least 1, 1, and 0 to 19"
                ),
            ));
        }
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|n| format!("pool-{n}"))
            .start_handler(move |_| {
                if let Err(error) = rustix::process::nice(nice) {
                    tracing::warn!(%error, nice, "a thread of the pool runs at the usual priority");
                }
            })
            // Work is contained already; without a handler of ours a mistake here would abort.
            .panic_handler(|_| tracing::error!("the pool itself panicked"))
            .build()
            .map_err(io::Error::other)?;
        Ok(Pool::with(How::Threads(threads), places))
    }

    /// Runs work where it is submitted, before `run` returns; the answer is posted all the same. For
    /// simulations in which work takes no time.
    ///
    /// ```
    /// use tidewire_pool::Pool;
    ///
    /// let pool = Pool::inline(); // what a simulation's services are given
    /// assert!(!pool.step(0), "nothing ever waits");
    /// ```
    #[must_use]
    pub fn inline() -> Pool {
        Pool::with(How::Inline, usize::MAX)
    }

    /// Runs work when [`step`](Pool::step) says so, and never by itself. For simulations in which work
    /// takes as long as the test likes, and ends in any order.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    /// use tidewire_pool::{NotDone, Place, Pool};
    ///
    /// /// Answers each byte, as soon as it is worked out.
    /// struct Asks(Pool);
    ///
    /// impl Protocol for Asks {
    ///     type Local = ();
    ///     type Message = Result<u8, NotDone>;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         for &byte in input.bytes() {
    ///             let place: Result<Place<_>, _> = self.0.reserve(&cx.handle());
    ///             match place {
    ///                 Ok(place) => place.run(move || byte.to_ascii_uppercase(), |done| done),
    ///                 Err(refused) => cx.link.write(format!("({refused})").as_bytes()),
    ///             }
    ///         }
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn posted(&mut self, done: Result<u8, NotDone>, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(&[done.unwrap_or(b'?')]);
    ///     }
    /// }
    ///
    /// let pool = Pool::by_hand(3);
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let serving = pool.clone();
    /// let addr = sim.serve(service_fn(move |_| Asks(serving.clone())), Limits::default());
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"abcd");
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.received(peer), b"(the pool has as much to do as it may have)");
    /// assert!(pool.step(2) && pool.step(0)); // the third first, then the first
    /// pool.stop(); // the second is not done any more
    /// sim.run_for(Duration::from_secs(1));
    /// assert!(sim.received(peer).ends_with(b")CA?"));
    /// assert_eq!((pool.counters().done, pool.counters().refused_pool), (2, 1));
    /// ```
    #[must_use]
    pub fn by_hand(places: usize) -> Pool {
        Pool::with(How::ByHand(Mutex::default()), places)
    }

    fn with(how: How, most: usize) -> Pool {
        let shared = Arc::new(Shared {
            most,
            stopped: AtomicBool::new(false),
            counting: Counting::default(),
        });
        Pool(Arc::new(Owner { how, shared }))
    }

    /// Takes a place in the pool, and one in the mailbox of the connection behind `to`.
    ///
    /// # Errors
    /// [`Refused`], counted by reason.
    pub fn reserve<M: Send + 'static>(&self, to: &Handle<M>) -> Result<Place<M>, Refused> {
        let counting = &self.0.shared.counting;
        let held = Held::take(&self.0.shared).ok_or_else(|| {
            counting.refused_pool.fetch_add(1, Relaxed);
            Refused::Pool
        })?;
        let permit = to.reserve().map_err(|_| {
            counting.refused_mailbox.fetch_add(1, Relaxed);
            Refused::Mailbox
        })?;
        Ok(Place {
            pool: self.clone(),
            to: to.clone(),
            permit,
            held,
        })
    }

    /// Runs one piece of waiting work of a pool [by hand](Pool::by_hand): number `nth`, counted from
    /// the piece that has waited longest. Returns whether there was one.
    pub fn step(&self, nth: usize) -> bool {
        let How::ByHand(jobs) = &self.0.how else {
            return false;
        };
        let job = lock(jobs).remove(nth);
        job.map(|job| job()).is_some()
    }

    /// Begins no more work: running work is finished, waiting and later work is answered with
    /// [`NotDone::Stopped`]. For a program that stops and does not wait for queued work.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// The counters of the pool.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.shared.counting.look()
    }

    pub(crate) fn refused_by_lane(&self) -> Refused {
        let counting = &self.0.shared.counting;
        counting.refused_lane.fetch_add(1, Relaxed);
        Refused::Lane
    }

    fn start(&self, job: Job) {
        match &self.0.how {
            How::Threads(threads) => threads.spawn_fifo(job),
            How::Inline => job(),
            How::ByHand(jobs) => lock(jobs).push_back(job),
        }
    }

    fn has_threads(&self) -> bool {
        matches!(self.0.how, How::Threads(_))
    }
}

/// A place for one piece of work and for its answer. Dropping it gives both back.
///
/// ```
/// use tidewire::Handle;
/// use tidewire_pool::{Pool, Refused};
///
/// /// Has a factorial worked out, whose place for the answer is taken first.
/// fn factorial(pool: &Pool, of: u64, to: &Handle<String>) -> Result<(), Refused> {
///     let place = pool.reserve(to)?;
///     place.run(
///         move || (1..=of).try_fold(1u64, u64::checked_mul),
///         |done| match done {
///             Ok(Some(result)) => result.to_string(),
///             Ok(None) => "too large".to_owned(),
///             Err(why) => why.to_string(), // it panicked, or the pool was stopped
///         },
///     );
///     Ok(())
/// }
/// ```
#[must_use = "a place that is dropped is given back"]
pub struct Place<M> {
    pool: Pool,
    to: Handle<M>,
    permit: Permit<M>,
    held: Held,
}

impl<M> fmt::Debug for Place<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:?})", self.to.id())
    }
}

impl<M: Send + 'static> Place<M> {
    /// Runs `work` on the pool. `answer` makes a message of the result, on the same thread, for
    /// [`Protocol::posted`](tidewire::Protocol::posted) of the connection; if it panics, the connection
    /// is aborted, because it would wait for ever.
    pub fn run<T>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
        answer: impl FnOnce(Result<T, NotDone>) -> M + Send + 'static,
    ) {
        self.run_unless(|| false, work, answer);
    }

    /// As `run`, but the job is dropped unanswered if its requester has gone when its turn comes.
    pub(crate) fn run_unless<T>(
        self,
        gone: impl FnOnce() -> bool + Send + 'static,
        work: impl FnOnce() -> T + Send + 'static,
        answer: impl FnOnce(Result<T, NotDone>) -> M + Send + 'static,
    ) {
        let Place {
            pool,
            to,
            permit,
            held,
        } = self;
        let since = pool.has_threads().then(Instant::now);
        pool.start(Box::new(move || {
            // Given back when all is said, so that the bound covers the answer's making.
            let shared = &held.0;
            if gone() {
                shared.counting.dropped.fetch_add(1, Relaxed);
                return;
            }
            let result = match shared.stopped.load(Relaxed) {
                true => {
                    shared.counting.dropped.fetch_add(1, Relaxed);
                    Err(NotDone::Stopped)
                }
                false => shared.counted(since, work),
            };
            match contained(|| answer(result)) {
                Ok(message) => permit.post(message),
                Err(why) => {
                    tracing::error!(%why, "no answer could be made; the connection is aborted");
                    to.abort();
                }
            }
        }));
    }
}

impl Shared {
    /// Runs the work, and counts it.
    fn counted<T>(&self, since: Option<Instant>, work: impl FnOnce() -> T) -> Result<T, NotDone> {
        let counting = &self.counting;
        let began = since.map(|since| {
            let now = Instant::now();
            add(&counting.waited_nanos, since, now);
            now
        });
        counting.running.fetch_add(1, Relaxed);
        let result = contained(work);
        counting.running.fetch_sub(1, Relaxed);
        if let Some(began) = began {
            add(&counting.ran_nanos, began, Instant::now());
        }
        counting.done.fetch_add(1, Relaxed);
        if let Err(why) = &result {
            counting.panicked.fetch_add(1, Relaxed);
            tracing::error!(%why, "work on the pool");
        }
        result
    }
}

fn add(to: &std::sync::atomic::AtomicU64, from: Instant, till: Instant) {
    let nanos = till.saturating_duration_since(from).as_nanos();
    to.fetch_add(u64::try_from(nanos).unwrap_or(u64::MAX), Relaxed);
}

/// One of the pool's places.
struct Held(Arc<Shared>);

impl Held {
    fn take(shared: &Arc<Shared>) -> Option<Held> {
        let one_more = |taken: usize| (taken < shared.most).then(|| taken + 1);
        let places = &shared.counting.places;
        let taken = places.fetch_update(Relaxed, Relaxed, one_more);
        taken.ok().map(|_| Held(shared.clone()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.counting.places.fetch_sub(1, Relaxed);
    }
}

fn lock(jobs: &Mutex<VecDeque<Job>>) -> MutexGuard<'_, VecDeque<Job>> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}
