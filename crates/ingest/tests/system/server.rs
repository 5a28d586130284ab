//! A server's process: loops of one shape, the services on them, the log, and the writer that is stepped by hand.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tidewire::Limits;
use tidewire::sim::{LoopId, Shape, Sim};
use tidewire_ingest::classic::{Classic, ClassicService};
use tidewire_ingest::native::{IngestService, Settings};
use tidewire_ingest::{Level, LogSink};
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{EmbeddedLog, Now, Policy, Step, Writer};

/// Where the native protocol is spoken; each by one loop, or all by one.
pub(crate) const NATIVE: [&str; 2] = ["10.9.9.9:7001", "10.9.9.9:7002"];
/// Where the classic one is.
pub(crate) const CLASSIC: &str = "10.9.9.9:8003";
/// The stream that classic messages go to.
pub(crate) const CLASSIC_STREAM: &str = "classic";

/// Mistakes that a server is to make.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mistakes {
    pub(crate) log: tidewire_log::Mistakes,
    pub(crate) native: tidewire_ingest::Mistakes,
    /// Classic messages are acknowledged when they are appended.
    pub(crate) classic_early: bool,
}

pub(crate) struct Server {
    loops: Vec<LoopId>,
    pub(crate) log: Arc<EmbeddedLog<SimDisk>>,
    writer: Writer<SimDisk>,
}

/// Small, so that everything happens soon. With an `interval`, what is written waits for its sync.
pub(crate) fn log_settings(
    mistakes: Mistakes,
    interval: Option<Duration>,
) -> tidewire_log::Settings {
    tidewire_log::Settings {
        policy: interval.map_or(Policy::Sync, Policy::Interval),
        mistakes: mistakes.log,
        segment_bytes: 16 << 10,
        group_bytes: 4 << 10,
        payload_max: 1000,
        identity: Some(7),
        ..tidewire_log::Settings::default()
    }
}

impl Server {
    /// Starts on what is on the disk.
    ///
    /// # Errors
    /// What the log says.
    pub(crate) fn start(
        sim: &mut Sim,
        shape: Shape,
        disk: &SimDisk,
        classic: Classic,
        mistakes: Mistakes,
        interval: Option<Duration>,
        rng: &mut Rng,
    ) -> Result<Server, String> {
        let opened = EmbeddedLog::open(disk.clone(), log_settings(mistakes, interval));
        let (log, writer, _) = opened.map_err(|e| e.to_string())?;
        let log = Arc::new(log);
        let settings = Settings {
            window_messages: rng.u32(1..50),
            // Without threads; and the hosts of the simulated network are all others than the server's.
            read_threads: 0,
            protected: false,
            mistakes: mistakes.native,
            ..Settings::default()
        };
        let limits = settings.limits();
        let native = Arc::new(IngestService::new(log.clone(), settings));
        let level = if mistakes.classic_early {
            Level::Received
        } else {
            Level::Durable
        };
        let sink = LogSink::new(log.clone(), CLASSIC_STREAM, level);
        let sink = sink.map_err(|e| e.to_string())?;
        let old = Arc::new(ClassicService::new(classic, sink));
        sim.shape(shape);
        let loops: Vec<LoopId> = (0..rng.usize(1..=2)).map(|_| sim.add_loop()).collect();
        for &at in &loops {
            let native = sim.service(at, native.clone(), limits.clone());
            let mine = loops.iter().position(|l| *l == at);
            for (number, place) in NATIVE.into_iter().enumerate() {
                if Some(number % loops.len()) == mine {
                    sim.listen_at(native, place);
                }
            }
        }
        let limits = Limits {
            idle: None,
            ..classic.limits()
        };
        let old = sim.service(loops[0], old, limits);
        sim.listen_at(old, CLASSIC);
        Ok(Server { loops, log, writer })
    }

    /// Has the log written; whether there was something to write.
    pub(crate) fn step(&mut self, sim: &Sim) -> bool {
        let now = Now {
            monotonic: Duration::from_nanos(sim.now().as_nanos()),
            unix_us: sim.now().as_nanos() / 1000,
        };
        self.writer.step(now) == Step::Worked
    }

    pub(crate) fn die(self, sim: &mut Sim) {
        for at in self.loops {
            sim.kill(at);
        }
    }
}
