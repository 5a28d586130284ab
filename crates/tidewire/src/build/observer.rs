//! Looking at a running server from any thread, without disturbing its loops.

use std::fmt;
use std::sync::Arc;

use crate::build::engine::Engine;
use crate::build::watch::{Board, Stall};
use crate::memory::budget::Memory;
use crate::reach::sync::{Mutex, lock};
use crate::reactor::counters::Counters;
use crate::reactor::life::{LoopView, Registry};

/// Looks at a running server: what each loop has counted for each service. Cheap to clone; the counters stay when
/// the loops have ended.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, on_input};
///
/// let mut builder = Builder::new();
/// let echo = builder.service(on_input(|input, link| link.forward_all(input)));
/// builder.name(echo, "echo").listen(echo, "127.0.0.1:0");
/// builder.engine(EngineChoice::Epoll);
/// let running = builder.start()?;
/// let observer = running.observer();
///
/// assert_eq!(&*observer.services()[0], "echo");
/// let loops = observer.loops();
/// assert_eq!(&*loops[0].name, "loop-0");
/// assert_eq!(loops[0].services[0].accepted, 0);
/// running.stop(Duration::from_secs(1));
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone)]
pub struct Observer {
    pub(crate) engine: Engine,
    pub(crate) reason: Arc<str>,
    pub(crate) services: Arc<[Arc<str>]>,
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) stalls: Arc<Mutex<Board>>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({}, {:?})", self.engine, self.services)
    }
}

impl Observer {
    /// The engine that runs the loops.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Why this engine was chosen.
    #[must_use]
    pub fn engine_reason(&self) -> &str {
        &self.reason
    }

    /// The names of the services, in the order in which the builder was given them: see
    /// [`Builder::name`](crate::Builder::name).
    #[must_use]
    pub fn services(&self) -> &[Arc<str>] {
        &self.services
    }

    /// The counters of each loop, including ended loops.
    #[must_use]
    pub fn loops(&self) -> Vec<LoopView> {
        lock(&self.registry).views()
    }

    /// The counters of all loops and services, at this moment.
    #[must_use]
    pub fn counters(&self) -> Counters {
        lock(&self.registry).sum()
    }

    /// Memory that all connections together may hold; bytes. See [`Builder::memory`](crate::Builder::memory).
    #[must_use]
    pub fn memory_max(&self) -> usize {
        self.memory.limit()
    }

    /// Where loops were stuck, if they are [watched](crate::Builder::watch).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let mut builder = Builder::new();
    /// builder.engine(EngineChoice::Epoll).memory(64 << 20).watch(Duration::from_secs(1));
    /// let running = builder.serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input))).start()?;
    /// let observer = running.observer();
    /// let page = format!(
    ///     "{} ({}): {} connections, {} of {} bytes, {} stalls",
    ///     observer.engine(),
    ///     observer.engine_reason(),
    ///     observer.counters().open,
    ///     observer.counters().memory,
    ///     observer.memory_max(),
    ///     observer.stalls().len(),
    /// );
    /// assert!(page.contains("0 connections, 0 of 67108864 bytes"));
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    #[must_use]
    pub fn stalls(&self) -> Vec<Stall> {
        lock(&self.stalls).stalls()
    }
}
