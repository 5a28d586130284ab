//! The result of a run.

use std::time::Duration;

use serde::Serialize;

use super::findings::{Reads, Reconnects, Work};
use super::generator::Target;
use super::stage::Round;
use crate::abba::Sample;
use crate::histogram::{Latencies, LatencySummary, Mode, Quantile};
use crate::meter::Metered;
use crate::procfs::{ListenQueues, Process, TcpSegments};
use crate::serving::Serving;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Messages answered during the measurement; for discard, messages taken by the kernel.
    pub requests: u64,
    /// Bytes of the messages, one way.
    pub bytes: u64,
    /// The length of the measurement.
    pub elapsed: Duration,
    /// From the actual send to the reply; absent if nothing is ever answered.
    pub latency: Option<LatencySummary>,
    /// The figures that only a load by the clock has.
    pub schedule: Option<Schedule>,
    /// The distribution: from when messages were due where they have times, else from their sends.
    pub spectrum: Vec<Quantile>,
    /// The two summits of the latencies, if they have two.
    pub modes: Vec<Mode>,
    /// Messages answered by then, seconds since the load began, every 200 ms; longer runs have fewer
    /// points.
    pub progress: Vec<(f64, u64)>,
    /// Bytes of one reply's body to each request of an HTTP load together, where each was answered with a body.
    #[serde(skip)]
    pub body_bytes: Option<u64>,
    /// Reads that found something and nothing, where the load has reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
    /// Connections that took the place of others, if any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnects: Option<Reconnects>,
    /// The longest time in which no connection of a loop was answered although replies were due; `None` for open-loop
    /// loads, whose latencies show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_gap: Option<Duration>,
    /// Which processes hold the server's ends of the connections.
    #[serde(skip)]
    pub serving: Serving,
    /// The server's memory, if its process is known.
    pub memory: Option<MemoryUse>,
    /// Both distributions of latencies in full.
    #[serde(skip)]
    pub histograms: Histograms,
    /// CPU of both sides; absent without a process to measure.
    pub metered: Option<Metered>,
    /// The kernel's counts from the first connection to the end; `None` if the kernel does not
    /// count.
    pub kernel: Option<Kernel>,
    /// Cores that the server may use.
    pub server_cores: usize,
    /// Rounds, if the workload has them.
    pub rounds: Vec<Round>,
    /// Whether the run was ended before its time.
    pub interrupted: bool,
    /// The generator's engine.
    pub client_engine: String,
    /// The generator's loops, in each of its processes.
    pub generator_loops: usize,
    /// The generator's processes.
    pub generator_processes: usize,
    /// Cores that all processes of the generator may keep busy.
    pub generator_cores: usize,
}

/// The distributions of a run.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    /// From the send to the reply.
    pub sent: Latencies,
    /// From when each message was due; absent without a schedule.
    pub intended: Option<Latencies>,
}

impl Histograms {
    /// The latencies that a user would have felt: from when messages were due, if they had times.
    pub fn felt(&self) -> &Latencies {
        self.intended.as_ref().unwrap_or(&self.sent)
    }
}

/// Connections below which their memory cannot be told from that of pages.
const MEMORY_CONNECTIONS: usize = 100;

/// Resident memory of the server, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryUse {
    /// Before the first connection of this run.
    pub before_bytes: u64,
    /// With all connections, before anything was sent.
    pub connected_bytes: u64,
    /// Bytes at the end of the measurement.
    pub end_bytes: u64,
    /// Memory of a silent connection; `None` for fewer than 100 connections, where pages hide it.
    pub bytes_per_connection: Option<f64>,
}

/// Counters of a whole network namespace: the server's where its process is known, else the
/// generator's. The counts include other users of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Segments of TCP.
    pub tcp: TcpSegments,
    /// Handshakes that were turned away.
    pub listen: ListenQueues,
}

impl MemoryUse {
    /// Computed from three readings, with this many connections; `None` if a reading is missing.
    pub(super) fn of(
        connections: usize,
        before: Option<u64>,
        connected: Option<u64>,
        end: Option<u64>,
    ) -> Option<MemoryUse> {
        let (before_bytes, connected_bytes) = (before?, connected?);
        let more = connected_bytes.saturating_sub(before_bytes) as f64;
        let enough = connections >= MEMORY_CONNECTIONS;
        Some(MemoryUse {
            before_bytes,
            connected_bytes,
            end_bytes: end?,
            bytes_per_connection: enough.then(|| more / connections as f64),
        })
    }
}

impl Kernel {
    /// The counters now; none where the kernel does not count, or the process has gone.
    pub(super) fn of(target: &Target) -> Option<Kernel> {
        match &target.process {
            Some(server) => Kernel::read(server),
            None => Kernel::read(&Process::current()),
        }
    }

    fn read(process: &Process) -> Option<Kernel> {
        Some(Kernel {
            tcp: process.tcp_segments().ok()?,
            listen: process.listen_queues().ok()?,
        })
    }

    pub(super) fn since(&self, earlier: &Kernel) -> Kernel {
        Kernel {
            tcp: self.tcp.since(&earlier.tcp),
            listen: self.listen.since(&earlier.listen),
        }
    }
}

/// How a load by the clock went.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// Latency from the time at which each message was due to its reply. Counts each message that
    /// was due during the measured time, whenever it was answered; unsent messages count with the
    /// time that they had waited at the end. `None` if nothing is ever answered.
    pub latency: Option<LatencySummary>,
    /// From the time at which each message could have been sent (its time, or when the window had room
    /// again) to the send: the generator's own lateness.
    pub slip: Option<LatencySummary>,
    /// Messages that were due and had found no room when the measured time was over.
    pub unsent: u64,
}

impl Outcome {
    /// What the replies say of the work that was done for them.
    pub fn work(&self) -> Work {
        Work {
            reads: self.reads.unwrap_or_default(),
            body_bytes: self.body_bytes,
        }
    }

    /// Messages a second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// MiB a second, one way.
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / (1 << 20) as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The figures as one run of a comparison.
    pub fn sample(&self) -> Sample {
        let mut sample = match &self.metered {
            Some(metered) => metered.sample(self.requests, self.server_cores),
            None => Sample::new().higher("requests_per_second", self.requests_per_second()),
        };
        sample = sample.higher("mib_per_second", self.mib_per_second());
        if let (Some(metered), true) = (&self.metered, self.requests > 0) {
            let each = |ns: u64| ns as f64 / self.requests as f64;
            sample = sample
                .lower("server_user_ns_per_request", each(metered.server.user_ns))
                .lower(
                    "server_system_ns_per_request",
                    each(metered.server.system_ns),
                );
        }
        if let Some(bytes) = self.memory.and_then(|memory| memory.bytes_per_connection) {
            sample = sample.lower("server_bytes_per_connection", bytes);
        }
        if let (Some(metered), true) = (&self.metered, self.bytes > 0) {
            let kib = self.bytes as f64 / 1024.0;
            let spent = metered.server.total_ns as f64;
            sample = sample.lower("server_cpu_ns_per_kib", spent / kib);
        }
        if let Some(share) = self.reads.and_then(|reads| reads.miss_share()) {
            sample = sample.neither("read_miss_share", share);
        }
        let scheduled = self.schedule.as_ref().and_then(|by| by.latency.as_ref());
        match scheduled.or(self.latency.as_ref()) {
            Some(summary) => sample.latencies(summary),
            None => sample,
        }
    }
}
