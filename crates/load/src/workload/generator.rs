//! The generator of a load, and the server that gets the load.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidewire::{EngineChoice, TcpOptions};
use tidewire_tls::TlsClient;

use crate::histogram::Latencies;
use crate::procfs::Process;

/// How long all connections may take to be established, unless it is said.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing may move on a connection that is owed something, unless it is said.
const STALL: Duration = Duration::from_secs(10);
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(200);

/// The engine that makes the load, and how it connects.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The engine of the generator's loops.
    pub engine: EngineChoice,
    /// How many loops.
    pub loops: usize,
    /// Cores to pin the loops to; empty pins nothing.
    pub cpus: Vec<usize>,
    /// Longest time to poll before a loop sleeps.
    pub busy_poll: Duration,
    /// Options of the connections.
    pub tcp: TcpOptions,
    /// The TLS settings; `None` for plain connections. A connection counts as established after its
    /// handshake.
    pub tls: Option<TlsClient>,
    /// Loopback addresses that connections come from in turns, 127.0.0.1 and the following ones:
    /// each has some 28,000 ports to one server. 1 leaves it to the system; absent, there is one
    /// for each 20,000 connections to a server on a loopback address.
    pub sources: Option<u32>,
    /// How long all connections may take to be established; 30 s by default.
    pub connect_within: Duration,
    /// How long nothing may move on a connection that is owed something; 10 s by default.
    pub stall: Duration,
    /// The interval of progress, at whole multiples on the monotonic clock, so that several runs are shown at the same
    /// moments; at least 1 ms, 200 ms by default.
    pub progress: Duration,
    /// Progress has the latencies so far.
    pub live: bool,
    /// A connection that the server ends is made again and counted, and what it owed is counted as lost, where that would
    /// else end the run.
    pub reconnect: bool,
}

impl Default for Generator {
    /// One epoll loop, not pinned.
    fn default() -> Generator {
        Generator {
            engine: EngineChoice::Epoll,
            loops: 1,
            cpus: Vec::new(),
            busy_poll: Duration::ZERO,
            tcp: TcpOptions::default(),
            tls: None,
            sources: None,
            connect_within: CONNECT_WITHIN,
            stall: STALL,
            progress: PROGRESS,
            live: false,
            reconnect: false,
        }
    }
}

impl Generator {
    /// Cores that the generator's loops can keep busy, in each process that makes the load.
    pub fn cores(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.cpus.len() {
            0 => self.loops.min(cores),
            n => self.loops.min(n),
        }
    }
}

/// The server to load.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address at which the server listens.
    pub addr: SocketAddr,
    /// The server's process, if its CPU time is to be measured.
    pub process: Option<Process>,
    /// Cores that the server may use.
    pub cores: usize,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Since the load began.
    pub elapsed: Duration,
    /// The monotonic clock, in ns: one clock for all runs on a machine.
    pub now_ns: u64,
    /// Messages answered (or taken) so far, warm-up included.
    pub requests: u64,
    /// The server's process as found by its connections, if a process is measured.
    pub server: Option<&'a Process>,
    /// Latencies that were measured before the previous look, from when messages were due if they have times; `None`
    /// unless [`Generator::live`].
    pub latencies: Option<&'a Latencies>,
}

/// Is shown progress now and then; answers whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> bool;

/// The time to the next whole multiple of `every` on the monotonic clock.
pub(super) fn to_next_look(every: Duration) -> Duration {
    let every = every.max(Duration::from_millis(1)).as_nanos() as u64;
    Duration::from_nanos(every - now_ns() % every)
}

/// The monotonic clock, in ns.
pub(super) fn now_ns() -> u64 {
    now().as_nanos()
}

/// The present time of the clock that loops have.
pub(super) fn now() -> tidewire::Instant {
    let now = clock_gettime(ClockId::Monotonic);
    // Seconds and nanoseconds are never negative.
    tidewire::Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
