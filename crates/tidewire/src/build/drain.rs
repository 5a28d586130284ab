//! Ending in order, with its progress to be seen.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::build::builder::{Running, Stopper};
use crate::kernel::clock::Clock;
use crate::reach::stop::StopClock;
use crate::reactor::counters::Counters;
use crate::reactor::env::service_bit;

/// How far the end of a server has come.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, Phase};
///
/// let running = Builder::new().engine(EngineChoice::Epoll).start()?;
/// let drain = running.drain(Duration::from_secs(1));
/// while drain.progress().phase < Phase::Over {
///     drain.wait_for(Duration::from_millis(10));
/// }
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// Connected clients are being taken in; after that no client is.
    Closing,
    /// Protocols are being told of the stop; connections finish their replies.
    Finishing,
    /// The deadline has passed, or the end was asked for at once: what is left is cut.
    Cutting,
    /// All loops have ended.
    Over,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Closing => "closing",
            Phase::Finishing => "finishing",
            Phase::Cutting => "cutting",
            Phase::Over => "over",
        })
    }
}

/// The work that one service still has to finish during a stop: see [`Progress`].
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, Left, on_input};
///
/// let mut builder = Builder::new();
/// builder.service(on_input(|input, link| link.forward_all(input)));
/// let drain = builder.engine(EngineChoice::Epoll).start()?.drain(Duration::from_secs(1));
/// let left: Vec<Left> = drain.progress().services;
/// assert_eq!((left[0].open, left[0].lingering), (0, 0));
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// The service, as in [`Observer::services`](crate::Observer::services).
    pub service: Arc<str>,
    /// Connections that are still open.
    pub open: u64,
    /// Connections among them that have sent all their output, and wait for the peer's end or for
    /// [`Limits::linger`](crate::Limits).
    pub lingering: u64,
}

/// The work that a [`Drain`] has left to do. Shown as one line: `phase=finishing connections=2 echo=2 held_bytes=0
/// left_s=9.5`.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, on_input};
///
/// let mut builder = Builder::new();
/// let echo = builder.service(on_input(|input, link| link.forward_all(input)));
/// builder.name(echo, "echo").engine(EngineChoice::Epoll);
/// let drain = builder.start()?.drain(Duration::from_secs(1));
/// let progress = drain.progress();
/// assert_eq!((&*progress.services[0].service, progress.open()), ("echo", 0));
/// println!("{progress}");
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The present phase of the stop.
    pub phase: Phase,
    /// The unfinished connections of each service, in the order in which the builder was given the
    /// services.
    pub services: Vec<Left>,
    /// Bytes that connections hold in queued output and input that is not consumed.
    pub held: u64,
    /// Time since the stop began.
    pub elapsed: Duration,
    /// Time until the remaining connections are cut.
    pub left: Duration,
}

impl Progress {
    /// Connections that are still open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.services.iter().map(|left| left.open).sum()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phase={} connections={}", self.phase, self.open())?;
        for left in self.services.iter().filter(|left| left.open > 0) {
            write!(f, " {}={}", left.service, left.open)?;
        }
        let (held, left) = (self.held, self.left.as_secs_f64());
        write!(f, " held_bytes={held} left_s={left:.1}")
    }
}

/// A server that ends in order: see [`Running::drain`] and [`Running::hand_over`]. Dropping the drain cuts the
/// remaining connections.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, on_input};
///
/// let running = Builder::new()
///     .engine(EngineChoice::Epoll)
///     .serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input)))
///     .start()?;
/// let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
/// client.write_all(b"x")?;
///
/// let drain = running.drain(Duration::from_secs(10));
/// client.read_exact(&mut [0])?; // what was sent before is answered
/// drop(client);
/// while !drain.wait_for(Duration::from_secs(1)) {
///     println!("{}", drain.progress());
/// }
/// assert_eq!(drain.wait().accepted, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cuts every connection"]
pub struct Drain {
    running: Running,
    began: Instant,
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drain({})", self.progress())
    }
}

impl Drain {
    pub(crate) fn new(running: Running) -> Drain {
        let began = Instant::now();
        Drain { running, began }
    }

    /// The present progress of the stop. Cheap enough to be asked many times a second.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let observer = self.running.observer();
        let names = observer.services();
        let mut services: Vec<Left> = names.iter().cloned().map(Left::none).collect();
        let mut held = 0;
        for of in observer.loops() {
            held += of.counters.memory;
            for (left, counters) in services.iter_mut().zip(&of.services) {
                left.open += counters.open;
                left.lingering += counters.lingering;
            }
        }
        let clock = self.running.clock();
        let now = Clock::System.monotonic();
        let phase = if self.running.has_ended(Duration::ZERO) {
            Phase::Over
        } else if clock.deadline() <= now {
            Phase::Cutting
        } else if clock.any_open() {
            Phase::Closing
        } else {
            Phase::Finishing
        };
        Progress {
            phase,
            services,
            held,
            elapsed: self.began.elapsed(),
            left: clock.deadline().since(now),
        }
    }

    pub(crate) fn clock(&self) -> &StopClock {
        self.running.clock()
    }

    /// Waits until the stop has ended, for at most `most`; returns whether it has ended. With a time of zero, and in
    /// a callback of one of the loops, the call returns at once.
    pub fn wait_for(&self, most: Duration) -> bool {
        self.running.has_ended(most)
    }

    /// Waits until the stop has ended. Returns the final counters. In a callback of one of the
    /// loops the call does not wait: the loops end by themselves, and the counters are the present
    /// ones.
    pub fn wait(mut self) -> Counters {
        self.running.join();
        self.running.counters()
    }

    /// A handle with which another thread can cut the stop short.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let running = Builder::new()
    ///     .engine(EngineChoice::Epoll)
    ///     .serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input)))
    ///     .start()?;
    /// let client = std::net::TcpStream::connect(&running.addrs()[0])?;
    /// let drain = running.drain(Duration::from_secs(3600));
    /// let stopper = drain.stopper();
    /// let impatient = std::thread::spawn(move || stopper.stop_now()); // a second SIGTERM, say
    /// drain.wait();
    /// # impatient.join().unwrap();
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.running.stopper()
    }
}

impl Running {
    /// Stops in order: takes what waits to be accepted, closes the listeners, reads what peers have
    /// sent, has every connection told, waits for them to finish until the deadline, cuts the rest.
    /// Returns the final counters. [`drain`](Running::drain) also stops, and can be watched.
    ///
    /// In a callback of one of the loops, the call does not wait, because that loop cannot end before the callback returns:
    /// the loops are told to stop, and end by themselves. Dropping `Running` in a callback does not wait either, and cuts all
    /// connections.
    pub fn stop(self, deadline: Duration) -> Counters {
        self.drain(deadline).wait()
    }

    /// Begins to [stop](Running::stop) in order, and lets one see how far that has come.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let running = Builder::new()
    ///     .engine(EngineChoice::Epoll)
    ///     .serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input)))
    ///     .start()?;
    /// let observer = running.observer();
    /// let drain = running.drain(Duration::from_secs(10));
    /// while !drain.wait_for(Duration::from_millis(100)) {
    ///     println!("{} are left", drain.progress().open());
    /// }
    /// assert_eq!(observer.counters().open, 0);
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn drain(mut self, deadline: Duration) -> Drain {
        self.remove_files();
        self.begin_stop(deadline);
        Drain::new(self)
    }

    /// During a stop, waits for unserved connections of these services for at most `most`, instead of until their own
    /// deadlines or the stop's. An unserved connection was accepted, and nothing was read from it or written to it. Use this
    /// for services whose idle clients must not keep a successor waiting. Call this before the stop begins; names of unknown
    /// services are ignored.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let mut builder = Builder::new();
    /// let store = builder.service(on_input(|input, link| link.forward_all(input)));
    /// builder.name(store, "store").engine(EngineChoice::Epoll);
    /// let running = builder.start()?;
    /// running.limit_unserved(&["store"], Duration::from_secs(2));
    /// running.hand_over(Duration::from_secs(10)).wait();
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn limit_unserved(&self, services: &[impl AsRef<str>], most: Duration) {
        let observer = self.observer();
        let names = observer.services();
        let is_meant = |name: &str| services.iter().any(|of| of.as_ref() == name);
        let bit = |(i, name): (usize, &Arc<str>)| match is_meant(name) {
            true => service_bit(u16::try_from(i).unwrap_or(u16::MAX)),
            false => 0,
        };
        let bits = names
            .iter()
            .enumerate()
            .map(bit)
            .fold(0, |all, bit| all | bit);
        self.clock()
            .limit_unserved(bits, Clock::System.monotonic() + most);
    }

    /// Like [`drain`](Running::drain), for a stop in which a successor has the
    /// [listeners](Running::listeners): clients that wait to be accepted are left to the successor,
    /// and so are the files of Unix sockets. Connections that were accepted already end in this
    /// process.
    pub fn hand_over(mut self, deadline: Duration) -> Drain {
        self.leave_to_successor();
        self.begin_stop(deadline);
        Drain::new(self)
    }
}

impl Left {
    fn none(service: Arc<str>) -> Left {
        Left {
            service,
            open: 0,
            lingering: 0,
        }
    }
}
