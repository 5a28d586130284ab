//! The cost of one run: readings of server and generator before and after the run, and their
//! differences.
//!
//! The idea: throughput on a shared machine depends on the generator as much as on the server. So
//! every run also reports the server's CPU time per request, the CPU time of both together
//! (loopback charges receive work to the sender), and a note if the server was not the busy one.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::abba::Sample;
use crate::procfs::{
    ContextSwitches, CoreShare, CoreTimes, CpuSpent, CpuTime, ProcError, Process, TcpSegments,
};

/// A server that is busy for less than this share of its cores was not the bottleneck.
pub const SATURATED: f64 = 0.9;
/// A core from which the hypervisor took more than this share has disturbed the run.
pub const STEAL_MAX: f64 = 0.02;
/// The clocks of a reading that took longer than this are read again.
const READING_MAX: Duration = Duration::from_millis(1);
/// Most repetitions of such a reading.
const READINGS_MAX: u32 = 10;

/// The readings at the beginning of a run.
#[derive(Debug, Clone)]
pub struct Meter {
    server: Process,
    /// The processes that make the load.
    generators: Vec<Process>,
    begin: Readings,
    /// The cores that server and generator have; empty is all.
    among: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Readings {
    at: Instant,
    server_cpu: CpuTime,
    generators_cpu: Vec<CpuTime>,
    server_switches: ContextSwitches,
    tcp: TcpSegments,
    cores: CoreTimes,
    server_written_bytes: Option<u64>,
}

impl Readings {
    fn take(server: &Process, generators: &[Process]) -> Result<Self, ProcError> {
        let (at, server_cpu, generators_cpu) = Self::clocks(server, generators)?;
        Ok(Self {
            at,
            server_cpu,
            generators_cpu,
            server_switches: server.context_switches()?,
            tcp: server.tcp_segments()?,
            cores: CoreTimes::read()?,
            server_written_bytes: server.written_bytes(),
        })
    }

    /// The wall clock and the spent CPU, read together: an interruption between the clocks would be
    /// charged to one of them, so such a reading is repeated, a few times at most.
    fn clocks(
        server: &Process,
        generators: &[Process],
    ) -> Result<(Instant, CpuTime, Vec<CpuTime>), ProcError> {
        let mut tries = 0;
        loop {
            let at = Instant::now();
            let server_cpu = server.cpu()?;
            let generators_cpu = generators.iter().map(Process::cpu);
            let generators_cpu = generators_cpu.collect::<Result<_, _>>()?;
            tries += 1;
            if at.elapsed() <= READING_MAX || tries == READINGS_MAX {
                return Ok((at, server_cpu, generators_cpu));
            }
        }
    }
}

impl Meter {
    /// Takes the first readings, of a server and of all processes that load it: call it when the load has warmed up.
    ///
    /// # Errors
    /// [`ProcError`] if one of the processes has ended.
    pub fn start(server: &Process, generators: &[Process]) -> Result<Self, ProcError> {
        Ok(Self {
            begin: Readings::take(server, generators)?,
            server: server.clone(),
            generators: generators.to_vec(),
            among: Vec::new(),
        })
    }

    /// The meter for a server and a generator that run on these cores only.
    #[must_use]
    pub fn among(self, cores: Vec<u32>) -> Self {
        Self {
            among: cores,
            ..self
        }
    }

    /// Takes the second readings: call it while the load still runs, or as it ends.
    ///
    /// # Errors
    /// [`ProcError`] if one of the processes has ended.
    pub fn stop(&self) -> Result<Metered, ProcError> {
        let begin = &self.begin;
        let end = Readings::take(&self.server, &self.generators)?;
        let both = end.generators_cpu.iter().zip(&begin.generators_cpu);
        let server = end.server_cpu.since(&begin.server_cpu);
        let generator: CpuSpent = both.map(|(end, begin)| end.since(begin)).sum();
        let among = match self.among.is_empty() {
            true => end.cores.online(),
            false => self.among.clone(),
        };
        let all_ns = end.cores.of_processes_ns(&begin.cores, &among);
        Ok(Metered {
            elapsed: end.at - begin.at,
            others: Others {
                busy_ns: all_ns.saturating_sub(server.total_ns + generator.total_ns),
                cores: among.len(),
            },
            server,
            generator,
            server_switches: end.server_switches.since(&begin.server_switches),
            tcp: end.tcp.since(&begin.tcp),
            cores: end.cores.since(&begin.cores),
            server_written_bytes: end
                .server_written_bytes
                .zip(begin.server_written_bytes)
                .map(|(end, begin)| end.saturating_sub(begin)),
        })
    }
}

/// The resources that a run has used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metered {
    /// Time between the readings.
    pub elapsed: Duration,
    /// CPU time of the server.
    pub server: CpuSpent,
    /// CPU time of the load generator.
    pub generator: CpuSpent,
    /// Context switches of the server's threads.
    pub server_switches: ContextSwitches,
    /// TCP segments in the server's network namespace.
    pub tcp: TcpSegments,
    /// How every core spent the time.
    pub cores: Vec<CoreShare>,
    /// Other processes on the cores of server and generator.
    pub others: Others,
    /// Bytes that the server wrote to disks; absent where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_written_bytes: Option<u64>,
}

/// Processes that ran on the cores of server and generator, and were neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Others {
    /// Time that processes ran, in ns: at least so much, for interrupts are left out.
    pub busy_ns: u64,
    /// How many cores these are.
    pub cores: usize,
}

impl Metered {
    /// Share of the cores of server and generator that other processes had, 0 to 1.
    pub fn others_share(&self) -> f64 {
        let possible_ns = self.elapsed.as_nanos() as f64 * self.others.cores.max(1) as f64;
        (self.others.busy_ns as f64 / possible_ns.max(1.0)).min(1.0)
    }

    /// Share of `cores` cores that the server was busy, 0 to about 1 (the readings lag by a
    /// scheduler tick); 0 if no time has passed.
    pub fn server_busy(&self, cores: usize) -> f64 {
        let possible_ns = self.elapsed.as_nanos() as f64 * cores.max(1) as f64;
        if possible_ns > 0.0 {
            self.server.total_ns as f64 / possible_ns
        } else {
            0.0
        }
    }

    /// The figures of a run that made `requests` requests (or messages) between the
    /// readings, against a server that may use `server_cores` cores: rate, CPU per
    /// request of the server and of both, and how busy the server was. Notes say what
    /// makes the run doubtful. With no requests, there is no CPU per request.
    pub fn sample(&self, requests: u64, server_cores: usize) -> Sample {
        let busy = self.server_busy(server_cores);
        let seconds = self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut sample = Sample::new().higher("requests_per_second", requests as f64 / seconds);
        if requests > 0 {
            let per_request = |ns: u64| ns as f64 / requests as f64;
            let both_ns = self.server.total_ns + self.generator.total_ns;
            sample = sample
                .lower(
                    "server_cpu_ns_per_request",
                    per_request(self.server.total_ns),
                )
                .lower("both_cpu_ns_per_request", per_request(both_ns));
        }
        sample = sample.neither("server_busy_share", busy);
        for doubt in self.doubts(busy) {
            sample = sample.note(doubt);
        }
        sample
    }

    fn doubts(&self, server_busy: f64) -> Vec<&'static str> {
        let stolen = self.cores.iter().any(|core| core.steal > STEAL_MAX);
        let doubts = [
            (
                server_busy < SATURATED,
                "the server was not saturated: the rate says nothing about it",
            ),
            (
                !self.server.exact,
                "server threads ended: CPU time is right to two ticks only",
            ),
            (stolen, "the hypervisor took more than 2 % of a core"),
            (
                self.tcp.retransmitted > 0,
                "TCP segments were retransmitted",
            ),
        ];
        let applying = doubts.into_iter().filter(|(applies, _)| *applies);
        applying.map(|(_, text)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Launch;

    fn metered() -> Metered {
        Metered {
            elapsed: Duration::from_secs(2),
            server: CpuSpent {
                total_ns: 1_900_000_000,
                user_ns: 900_000_000,
                system_ns: 1_000_000_000,
                exact: true,
            },
            generator: CpuSpent {
                total_ns: 1_100_000_000,
                user_ns: 0,
                system_ns: 0,
                exact: true,
            },
            server_switches: ContextSwitches {
                voluntary: 0,
                involuntary: 0,
            },
            tcp: TcpSegments {
                received: 0,
                sent: 0,
                retransmitted: 0,
            },
            cores: vec![CoreShare {
                core: 0,
                busy: 1.0,
                steal: 0.0,
            }],
            others: Others {
                busy_ns: 0,
                cores: 1,
            },
            server_written_bytes: None,
        }
    }

    #[test]
    fn figures_follow_from_the_readings() {
        let run = metered();
        let expected = Sample::new()
            .higher("requests_per_second", 500.0)
            .lower("server_cpu_ns_per_request", 1_900_000.0)
            .lower("both_cpu_ns_per_request", 3_000_000.0)
            .neither("server_busy_share", 0.95);
        assert_eq!(run.sample(1000, 1), expected);
    }

    #[test]
    fn a_run_without_requests_has_no_cost_per_request() {
        let sample = metered().sample(0, 1);
        assert_eq!(sample.value("requests_per_second"), Some(0.0));
        assert_eq!(sample.value("server_cpu_ns_per_request"), None);
    }

    #[test]
    fn whatever_makes_a_run_doubtful_is_noted() {
        let doubts = |run: &Metered, cores| run.doubts(run.server_busy(cores));
        assert!(doubts(&metered(), 1).is_empty());
        assert!(doubts(&metered(), 2)[0].contains("not saturated"));
        let mut run = metered();
        run.server.exact = false;
        run.tcp.retransmitted = 1;
        run.cores[0].steal = 0.05;
        assert_eq!(doubts(&run, 1).len(), 3);
    }

    #[test]
    fn a_busy_neighbour_is_metered_too() {
        let sleeps = Launch::new("/bin/sh")
            .args(["-c", "echo listening addr=127.0.0.1:1; exec sleep 300"])
            .start()
            .unwrap();
        let neighbour = Launch::new("/bin/sh")
            .args(["-c", "echo listening addr=127.0.0.1:1; while :; do :; done"])
            .start()
            .unwrap();
        let meter = Meter::start(&sleeps.process(), &[Process::current()]).unwrap();
        let before = neighbour.process().cpu().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let used = neighbour.process().cpu().unwrap().since(&before).total_ns;
            let run = meter.stop().unwrap();
            if used >= 400_000_000 {
                // By samples of 10 ms.
                assert!(run.others.busy_ns >= used / 2, "{run:?} {used}");
                assert!(run.others_share() > 0.0 && run.others.cores > 0);
                assert!(run.server.total_ns < used / 10, "{run:?}");
                break;
            }
            assert!(Instant::now() < deadline, "{run:?}");
        }
    }

    #[test]
    fn a_busy_server_is_metered_from_outside() {
        let listening = "listening service=echo addr=127.0.0.1:1 engine=none";
        let server = Launch::new("/bin/sh")
            .args(["-c", &format!("echo {listening}; while :; do :; done")])
            .start()
            .unwrap();
        let begin = Instant::now();
        let meter = Meter::start(&server.process(), &[Process::current()]).unwrap();
        // Ends when the server has used time enough, however slow the machine is.
        let deadline = Instant::now() + Duration::from_secs(60);
        let (run, around) = loop {
            std::thread::sleep(Duration::from_millis(20));
            let run = meter.stop().unwrap();
            let around = begin.elapsed();
            if run.server.total_ns >= 100_000_000 {
                break (run, around);
            }
            assert!(Instant::now() < deadline, "{run:?}");
        };
        assert!(run.server_busy(1) > 0.0);
        // A reading lags by a tick at most, it doesn't make up time: one thread has spent no more
        // than passed around both. (The clock of the run proves nothing: on a busy machine the
        // thread may be interrupted while it reads it, and comes back later than the clock says.)
        assert!(run.elapsed <= around, "{run:?} {around:?}");
        let possible_ns = around.as_nanos() as u64 + 20_000_000;
        assert!(run.server.total_ns <= possible_ns, "{run:?} {around:?}");
        drop(server);
        assert!(meter.stop().is_err());
    }
}
