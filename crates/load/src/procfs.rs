//! The kernel's figures about a process and the machine, read from /proc.
//!
//! The idea: read all counters before and after a run and subtract. So the cost of a server is
//! measured from outside, and equally for any server. Each reading has `since(&earlier)` for the
//! subtraction.
//!
//! # CPU time
//!
//! The kernel keeps two accounts of a process's CPU time, neither enough by itself:
//! - `/proc/PID/task/TID/schedstat` counts nanoseconds, but for one thread, and is gone
//!   when that thread ends;
//! - `/proc/PID/stat` includes ended threads and tells user from system time, but in
//!   ticks of commonly 10 ms.
//!
//! [`CpuTime::since`] sums the first over the threads, and takes the second instead where
//! it is larger by more than its rounding, which happens when threads ended meanwhile.
//! Both lag by up to one scheduler tick (1 to 10 ms) for a thread that is running at the
//! moment of reading, so runs should last a second and more.

mod written;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Why something could not be read from /proc.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// A file could not be read: most often, the process has ended.
    #[error("can't read {}: has the process ended, or does it belong to another user?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file lacks a field, or it isn't a number.
    #[error("{} has no usable field {field}: does this kernel lack it?", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field that was looked for.
        field: &'static str,
    },
}

/// Children that are counted with their parent.
const FAMILY_MAX: usize = 1_000;

/// A process of which figures can be read. Holds no descriptor; if the process ends, its
/// pid can come to mean another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    dir: PathBuf,
    /// The CPU time includes the children's.
    family: bool,
    /// Other processes that are measured with the process.
    others: Vec<u32>,
    known_by: KnownBy,
}

/// Why a process is taken for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownBy {
    /// The user says so.
    Name,
    /// The process was started here.
    Start,
    /// The process has the listening socket, as others may have.
    Listening,
}

impl Process {
    /// The process with this pid; whether it exists shows at the first reading.
    pub fn new(pid: u32) -> Self {
        Self {
            dir: PathBuf::from(format!("/proc/{pid}")),
            family: false,
            others: Vec::new(),
            known_by: KnownBy::Name,
        }
    }

    /// This process, taken for the server for another reason than the user's word.
    #[must_use]
    pub fn known_by(self, known_by: KnownBy) -> Self {
        Self { known_by, ..self }
    }

    /// Why the process is taken for the server.
    pub fn is_known_by(&self) -> KnownBy {
        self.known_by
    }

    /// This process with others, and their children if its own are counted: for servers of several
    /// processes.
    #[must_use]
    pub fn with_others(self, others: Vec<u32>) -> Self {
        Self { others, ..self }
    }

    /// The process id, if the value was made from a number.
    pub fn pid(&self) -> Option<u32> {
        self.dir.file_name()?.to_str()?.parse().ok()
    }

    /// The ids of all processes that are measured, each once, itself first.
    pub fn pids(&self) -> Vec<u32> {
        let all = self.members();
        all.iter().filter_map(Process::pid).collect()
    }

    /// The cores on which the process may run; `None` if that cannot be read.
    pub fn cores(&self) -> Option<Vec<u32>> {
        let status = fs::read_to_string(self.dir.join("status")).ok()?;
        let list = field(&status, "Cpus_allowed_list")?;
        let ranges = list.split(',').map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.trim().parse::<u32>().ok()?..=to.trim().parse().ok()?)
        });
        let ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        Some(ranges.into_iter().flatten().collect())
    }

    /// This process with its descendants in [`Process::cpu`]: for servers that fork workers.
    /// Children that end are not counted any more, and the calling process with its own never is: a
    /// generator that the server's process has started is no part of the server.
    #[must_use]
    pub fn with_children(mut self) -> Self {
        self.family = true;
        self
    }

    /// The calling process.
    pub fn current() -> Self {
        Self::new(std::process::id())
    }

    /// CPU time so far, of all threads that live and, to a tick, of threads that ended.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn cpu(&self) -> Result<CpuTime, ProcError> {
        let mut all = self.own_cpu()?;
        for other in self.members().iter().skip(1) {
            // A process that ended a moment ago has nothing to say.
            if let Ok(cpu) = other.own_cpu() {
                all.user_ns += cpu.user_ns;
                all.system_ns += cpu.system_ns;
                all.threads.extend(cpu.threads);
            }
        }
        Ok(all)
    }

    /// All that are measured, each once, itself first.
    fn members(&self) -> Vec<Process> {
        let alone = Process {
            others: Vec::new(),
            ..self.clone()
        };
        let others = self.others.iter().map(|pid| Process {
            dir: PathBuf::from(format!("/proc/{pid}")),
            ..alone.clone()
        });
        let mut all: Vec<Process> = Vec::new();
        for root in [alone.clone()].into_iter().chain(others) {
            let family = root.descendants();
            for one in [root].into_iter().chain(family) {
                if all.iter().all(|known| known.dir != one.dir) {
                    all.push(one);
                }
            }
        }
        all
    }

    /// The descendants, if they are counted; at most [`FAMILY_MAX`].
    fn descendants(&self) -> Vec<Process> {
        let mut found: Vec<Process> = Vec::new();
        if !self.family {
            return found;
        }
        let mut parent = self.clone();
        // The number of processes whose children have been looked for.
        let mut seen = 0;
        loop {
            let words = parent.of_each_thread("children", |text, _| Ok(text.to_owned()));
            let words = words.unwrap_or_default();
            let pids = words
                .values()
                .flat_map(|text| text.split_ascii_whitespace());
            let myself = std::process::id();
            let pids = pids.filter_map(|pid| pid.parse().ok());
            let children = pids.filter(|pid| *pid != myself).map(Process::new);
            let room = FAMILY_MAX - found.len();
            found.extend(children.take(room));
            let Some(next) = found.get(seen) else {
                return found;
            };
            parent = next.clone();
            seen += 1;
        }
    }

    fn own_cpu(&self) -> Result<CpuTime, ProcError> {
        let path = self.dir.join("stat");
        let stat = read(&path)?;
        let (user_ns, system_ns) = user_system_ns(&stat, &path)?;
        let threads = self.of_each_thread("schedstat", |text, path| {
            let first = text.split_ascii_whitespace().next();
            number(first, "run time", path)
        })?;
        Ok(CpuTime {
            threads,
            user_ns,
            system_ns,
        })
    }

    /// Memory held now.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn memory(&self) -> Result<Memory, ProcError> {
        let path = self.dir.join("smaps_rollup");
        let rollup = read(&path)?;
        let bytes = |field| Ok(kilobytes(&rollup, field, &path)? * 1024);
        Ok(Memory {
            resident_bytes: self.resident_bytes()?,
            anonymous_bytes: bytes("Anonymous")?,
            anonymous_share_bytes: bytes("Pss_Anon")?,
        })
    }

    /// Resident size alone (`VmRSS`), which is cheaper than [`Process::memory`]: the kernel
    /// keeps it as a counter, of which each core may hold back some pages.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn resident_bytes(&self) -> Result<u64, ProcError> {
        let path = self.dir.join("status");
        Ok(kilobytes(&read(&path)?, "VmRSS", &path)? * 1024)
    }

    /// [`Process::resident_bytes`] of all that are measured. Pages that they share count for each of them, so only
    /// differences between two readings mean something.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn all_resident_bytes(&self) -> Result<u64, ProcError> {
        let own = self.resident_bytes()?;
        let others = self.members();
        let others = others.iter().skip(1);
        // A process that ended a moment ago holds nothing.
        let others = others.filter_map(|other| other.resident_bytes().ok());
        Ok(own + others.sum::<u64>())
    }

    /// Number of threads now.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn thread_count(&self) -> Result<usize, ProcError> {
        self.count_entries("task")
    }

    /// Number of open descriptors now. For the calling process this includes the descriptor that
    /// reads the directory.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended or belongs to another user.
    pub fn descriptor_count(&self) -> Result<usize, ProcError> {
        self.count_entries("fd")
    }

    /// Context switches so far, summed over the threads that live, of all that are measured.
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn context_switches(&self) -> Result<ContextSwitches, ProcError> {
        let mut all = self.own_switches()?;
        for other in self.members().iter().skip(1) {
            if let Ok(more) = other.own_switches() {
                all.voluntary += more.voluntary;
                all.involuntary += more.involuntary;
            }
        }
        Ok(all)
    }

    fn own_switches(&self) -> Result<ContextSwitches, ProcError> {
        let threads = self.of_each_thread("status", |text, path| {
            let of = |name| number(field(text, name), name, path);
            Ok(ContextSwitches {
                voluntary: of("voluntary_ctxt_switches")?,
                involuntary: of("nonvoluntary_ctxt_switches")?,
            })
        })?;
        Ok(ContextSwitches {
            voluntary: threads.values().map(|thread| thread.voluntary).sum(),
            involuntary: threads.values().map(|thread| thread.involuntary).sum(),
        })
    }

    /// TCP segments so far in the network namespace of this process (all its processes).
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended.
    pub fn tcp_segments(&self) -> Result<TcpSegments, ProcError> {
        let path = self.dir.join("net/snmp");
        let snmp = read(&path)?;
        let of = |name| number(column(&snmp, "Tcp:", name), name, &path);
        Ok(TcpSegments {
            received: of("InSegs")?,
            sent: of("OutSegs")?,
            retransmitted: of("RetransSegs")?,
        })
    }

    /// The connections that listeners so far have had to turn away in the network namespace of this process (all
    /// its processes).
    ///
    /// # Errors
    /// [`ProcError::Read`] if the process has ended, [`ProcError::Field`] where the kernel does not count it.
    pub fn listen_queues(&self) -> Result<ListenQueues, ProcError> {
        let path = self.dir.join("net/netstat");
        let netstat = read(&path)?;
        let of = |name| number(column(&netstat, "TcpExt:", name), name, &path);
        Ok(ListenQueues {
            overflows: of("ListenOverflows")?,
            drops: of("ListenDrops")?,
        })
    }

    fn count_entries(&self, name: &str) -> Result<usize, ProcError> {
        let path = self.dir.join(name);
        match fs::read_dir(&path) {
            Ok(entries) => Ok(entries.count()),
            Err(source) => Err(ProcError::Read { path, source }),
        }
    }

    /// Reads one file of each thread. Threads that end meanwhile are left out.
    fn of_each_thread<T>(
        &self,
        file: &str,
        parse: impl Fn(&str, &Path) -> Result<T, ProcError>,
    ) -> Result<BTreeMap<u32, T>, ProcError> {
        let dir = self.dir.join("task");
        let failed = |source| ProcError::Read {
            path: dir.clone(),
            source,
        };
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(thread) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let path = entry.path().join(file);
            // An ended thread gives ENOENT on open or ESRCH on read; if it was the whole
            // process, the caller finds no threads or fails at its next reading.
            if let Ok(text) = fs::read_to_string(&path) {
                found.insert(thread, parse(&text, &path)?);
            }
        }
        Ok(found)
    }
}

/// A process's CPU time up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuTime {
    threads: BTreeMap<u32, u64>,
    user_ns: u64,
    system_ns: u64,
}

/// CPU time of a process, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuSpent {
    /// User and system time together; to the nanosecond if `exact`, else to two ticks.
    pub total_ns: u64,
    /// User time, in ticks of commonly 10 ms. The kernel splits by what it samples, so
    /// over less than a second this says little.
    pub user_ns: u64,
    /// System time, in ticks likewise.
    pub system_ns: u64,
    /// No thread ended that had used noteworthy time.
    pub exact: bool,
}

impl std::iter::Sum for CpuSpent {
    /// The sum of several processes; exact if all are.
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let nothing = Self {
            total_ns: 0,
            user_ns: 0,
            system_ns: 0,
            exact: true,
        };
        all.fold(nothing, |sum, one| Self {
            total_ns: sum.total_ns + one.total_ns,
            user_ns: sum.user_ns + one.user_ns,
            system_ns: sum.system_ns + one.system_ns,
            exact: sum.exact && one.exact,
        })
    }
}

impl CpuTime {
    /// CPU spent between `earlier` and this reading of the same process.
    pub fn since(&self, earlier: &Self) -> CpuSpent {
        let of_thread = |(thread, now): (&u32, &u64)| {
            now.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        let living_ns: u64 = self.threads.iter().map(of_thread).sum();
        let user_ns = self.user_ns.saturating_sub(earlier.user_ns);
        let system_ns = self.system_ns.saturating_sub(earlier.system_ns);
        // User and system time are each cut to whole ticks.
        let exact = user_ns + system_ns <= living_ns + 2 * tick_ns();
        CpuSpent {
            total_ns: if exact {
                living_ns
            } else {
                user_ns + system_ns
            },
            user_ns,
            system_ns,
            exact,
        }
    }

    /// CPU spent since the process began.
    pub fn total(&self) -> CpuSpent {
        self.since(&Self {
            threads: BTreeMap::new(),
            user_ns: 0,
            system_ns: 0,
        })
    }
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Resident: all pages in memory, files and shared ones too (`VmRSS`).
    pub resident_bytes: u64,
    /// Resident pages that are no file's: heap, stacks (`Anonymous`, counted exactly).
    pub anonymous_bytes: u64,
    /// Anonymous memory, with shared pages divided among the processes that share them
    /// (`Pss_Anon`).
    pub anonymous_share_bytes: u64,
}

/// How often threads were switched out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ContextSwitches {
    /// Switches because a thread waited for an event.
    pub voluntary: u64,
    /// Because something else was to run.
    pub involuntary: u64,
}

impl ContextSwitches {
    /// Switches between `earlier` and this reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// TCP segments of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TcpSegments {
    /// Received.
    pub received: u64,
    /// Sent, without retransmits.
    pub sent: u64,
    /// Sent again; on loopback more than a few spoil a run.
    pub retransmitted: u64,
}

impl TcpSegments {
    /// Segments between `earlier` and this reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(earlier.received),
            sent: self.sent.saturating_sub(earlier.sent),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
        }
    }
}

/// The connections that the listeners of a network namespace turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListenQueues {
    /// Handshakes for which an accept queue had no room: the client waits a second or more, and
    /// tries again.
    pub overflows: u64,
    /// Handshakes that were dropped for whatever reason, overflows included.
    pub drops: u64,
}

impl ListenQueues {
    /// The counts between `earlier` and this reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            overflows: self.overflows.saturating_sub(earlier.overflows),
            drops: self.drops.saturating_sub(earlier.drops),
        }
    }
}

/// How each core has spent its time up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreTimes {
    cores: BTreeMap<u32, CoreTicks>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CoreTicks {
    busy: u64,
    /// The part that processes have used, without interrupts.
    of_processes: u64,
    idle: u64,
    steal: u64,
}

/// How a core spent a stretch of time; shares are 0 to 1 and add up to 1 with idle time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CoreShare {
    /// The core's number.
    pub core: u32,
    /// Running anything: user, system, interrupts.
    pub busy: f64,
    /// Ready to run, but the hypervisor ran another guest.
    pub steal: f64,
}

impl CoreTimes {
    /// Reads /proc/stat.
    ///
    /// # Errors
    /// [`ProcError`] if the file cannot be read or understood.
    pub fn read() -> Result<Self, ProcError> {
        let path = Path::new("/proc/stat");
        Self::parse(&read(path)?, path)
    }

    /// How each core that is online at both readings spent the time between them. The unit is a
    /// tick of commonly 10 ms, so a period below a second is inaccurate.
    pub fn since(&self, earlier: &Self) -> Vec<CoreShare> {
        let paired = self
            .cores
            .iter()
            .filter_map(|(core, now)| Some((*core, *now, *earlier.cores.get(core)?)));
        paired
            .map(|(core, now, before)| {
                let spent = CoreTicks {
                    busy: now.busy.saturating_sub(before.busy),
                    of_processes: now.of_processes.saturating_sub(before.of_processes),
                    // The kernel may set idle time back a little.
                    idle: now.idle.saturating_sub(before.idle),
                    steal: now.steal.saturating_sub(before.steal),
                };
                spent.shares(core)
            })
            .collect()
    }

    /// Time that these cores have run processes since `earlier`, in ns, by samples of commonly 10
    /// ms. Time of interrupts is left out: some kernels charge it to the process that was running,
    /// others to none.
    pub fn of_processes_ns(&self, earlier: &Self, cores: &[u32]) -> u64 {
        let spent = cores.iter().filter_map(|core| {
            let (now, before) = (self.cores.get(core)?, earlier.cores.get(core)?);
            Some(now.of_processes.saturating_sub(before.of_processes))
        });
        spent.sum::<u64>() * tick_ns()
    }

    /// The cores that are online.
    pub fn online(&self) -> Vec<u32> {
        self.cores.keys().copied().collect()
    }

    /// How each core spent the time since the machine started.
    pub fn total(&self) -> Vec<CoreShare> {
        let cores = self.cores.iter();
        cores.map(|(core, ticks)| ticks.shares(*core)).collect()
    }

    fn parse(stat: &str, path: &Path) -> Result<Self, ProcError> {
        let mut cores = BTreeMap::new();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().unwrap_or("");
            let Some(core) = name.strip_prefix("cpu").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let mut next = |field| number(words.next(), field, path);
            // Guest time follows, but is part of user time already.
            let (user, nice, system) = (next("user")?, next("nice")?, next("system")?);
            let (idle, iowait) = (next("idle")?, next("iowait")?);
            let (irq, softirq, steal) = (next("irq")?, next("softirq")?, next("steal")?);
            cores.insert(
                core,
                CoreTicks {
                    busy: user + nice + system + irq + softirq,
                    of_processes: user + nice + system,
                    idle: idle + iowait,
                    steal,
                },
            );
        }
        Ok(Self { cores })
    }
}

impl CoreTicks {
    fn shares(self, core: u32) -> CoreShare {
        let all = self.busy + self.idle + self.steal;
        let share = |ticks: u64| {
            if all == 0 {
                0.0
            } else {
                ticks as f64 / all as f64
            }
        };
        CoreShare {
            core,
            busy: share(self.busy),
            steal: share(self.steal),
        }
    }
}

fn read(path: &Path) -> Result<String, ProcError> {
    fs::read_to_string(path).map_err(|source| ProcError::Read {
        path: path.to_owned(),
        source,
    })
}

fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

fn number(word: Option<&str>, field: &'static str, path: &Path) -> Result<u64, ProcError> {
    let parsed = word.and_then(|word| word.parse().ok());
    parsed.ok_or_else(|| ProcError::Field {
        path: path.to_owned(),
        field,
    })
}

/// The value of a `Name:   value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn kilobytes(text: &str, name: &'static str, path: &Path) -> Result<u64, ProcError> {
    let value = field(text, name).and_then(|value| value.strip_suffix(" kB"));
    number(value.map(str::trim), name, path)
}

/// User and system time of /proc/PID/stat. The command in parentheses may hold spaces
/// and parentheses itself, so fields are counted from the last closing one.
fn user_system_ns(stat: &str, path: &Path) -> Result<(u64, u64), ProcError> {
    let after_command = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // The state is the third field of the file, user time the 14th.
    let mut fields = after_command.split_ascii_whitespace().skip(11);
    let user = number(fields.next(), "utime", path)?;
    let system = number(fields.next(), "stime", path)?;
    Ok((user * tick_ns(), system * tick_ns()))
}

/// A value of a pair of lines that begin with `which`, names above values.
fn column<'a>(text: &'a str, which: &str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(which));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_ascii_whitespace().position(|n| n == name)?;
    values.split_ascii_whitespace().nth(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    const MS: u64 = 1_000_000;

    /// Computes until the calling thread itself has used this much CPU time.
    fn burn(cpu: Duration) {
        let thread_cpu = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
        };
        let (begin, deadline) = (thread_cpu(), Instant::now() + Duration::from_secs(60));
        let mut sum = 0u64;
        while thread_cpu() - begin < cpu {
            assert!(Instant::now() < deadline, "no CPU to be had for a minute");
            for i in 0..10_000u64 {
                sum = black_box(sum.wrapping_add(i));
            }
        }
    }

    fn time(threads: &[(u32, u64)], user_ns: u64, system_ns: u64) -> CpuTime {
        CpuTime {
            threads: threads.iter().copied().collect(),
            user_ns,
            system_ns,
        }
    }

    /// Ends the child, however the test ends.
    struct Ended(std::process::Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            // The child ends when its output is not read.
            drop(self.0.stdout.take());
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_children_spend_is_counted_where_it_is_asked_for() {
        // The shell waits, and its child writes as fast as it is read.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "yes & wait"]);
        let child = command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut shell = Ended(child);
        let mut out = shell.0.stdout.take().unwrap();
        let alone = Process::new(shell.0.id());
        let family = alone.clone().with_children();
        let spent = |of: &Process| of.cpu().unwrap().total().total_ns;
        let begin = std::time::Instant::now();
        let mut bytes = vec![0; 1 << 16];
        while spent(&family) < spent(&alone) + 50_000_000 {
            assert!(begin.elapsed() < std::time::Duration::from_secs(30));
            std::io::Read::read_exact(&mut out, &mut bytes).unwrap();
        }
        shell.0.stdout = Some(out);
    }

    #[test]
    fn a_generator_is_no_part_of_the_server_that_started_it() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        let server = Process::new(parent as u32).with_children();
        assert!(!server.descendants().contains(&Process::current()));
        // A process that is named is counted all the same.
        assert!(Process::current().with_children().cpu().is_ok());
    }

    #[test]
    fn an_accept_queue_that_is_full_is_counted() {
        let before = Process::current().listen_queues().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        // No process accepts. The first that finds no room waits, and would try again in a second.
        let patience = Duration::from_millis(300);
        let connect = |_| std::net::TcpStream::connect_timeout(&addr, patience).ok();
        let held: Vec<std::net::TcpStream> = (0..900).map_while(connect).collect();
        let since = Process::current().listen_queues().unwrap().since(&before);
        assert!(
            since.overflows > 0 && since.drops >= since.overflows,
            "{since:?}, {} held",
            held.len()
        );
    }

    #[test]
    fn burnt_time_is_seen_from_outside() {
        let this = Process::current();
        let before = this.cpu().unwrap();
        burn(Duration::from_millis(150));
        let spent = this.cpu().unwrap().since(&before);
        // A reading may lag by a tick of at most 10 ms.
        assert!(spent.total_ns >= 140 * MS, "{spent:?}");
        assert!(spent.user_ns + spent.system_ns >= 120 * MS, "{spent:?}");
    }

    #[test]
    fn time_of_an_ended_thread_is_not_lost() {
        let this = Process::current();
        let before = this.cpu().unwrap();
        thread::spawn(|| burn(Duration::from_millis(200)))
            .join()
            .unwrap();
        let spent = this.cpu().unwrap().since(&before);
        assert!(spent.total_ns >= 160 * MS, "{spent:?}");
    }

    #[test]
    fn living_threads_are_summed_to_the_nanosecond() {
        let spent =
            time(&[(1, 1_000), (2, 500), (3, 7)], 0, 0).since(&time(&[(1, 400), (2, 500)], 0, 0));
        assert_eq!(spent.total_ns, 607);
        assert!(spent.exact);
    }

    #[test]
    fn ticks_count_only_beyond_their_rounding() {
        let tick = tick_ns();
        let begin = time(&[(1, 0)], 0, 0);
        let near = time(&[(1, 5 * tick)], 5 * tick, 2 * tick).since(&begin);
        assert_eq!((near.total_ns, near.exact), (5 * tick, true));
        let lost = time(&[(1, 5 * tick)], 6 * tick, 2 * tick).since(&begin);
        assert_eq!((lost.total_ns, lost.exact), (8 * tick, false));
        assert_eq!((lost.user_ns, lost.system_ns), (6 * tick, 2 * tick));
    }

    #[test]
    fn an_ended_thread_does_not_make_time_run_backwards() {
        let before = time(&[(1, 10 * MS), (2, 900 * MS)], 600 * MS, 310 * MS);
        let after = time(&[(1, 30 * MS)], 620 * MS, 310 * MS);
        assert_eq!(after.since(&before).total_ns, 20 * MS);
    }

    #[test]
    fn a_command_with_spaces_and_parentheses_is_skipped() {
        let stat = "4764 (a) R (b c) R 4762 4762 3507 0 -1 4194304 100 0 0 0 7 5 0 0 20 0 1";
        let (user, system) = user_system_ns(stat, Path::new("stat")).unwrap();
        assert_eq!((user, system), (7 * tick_ns(), 5 * tick_ns()));
        let err = user_system_ns("1 (x) R 1", Path::new("stat")).unwrap_err();
        assert!(err.to_string().contains("utime"), "{err}");
    }

    #[test]
    fn touched_memory_shows() {
        let this = Process::current();
        let before = this.memory().unwrap();
        let held = black_box(vec![1u8; 64 << 20]);
        let after = this.memory().unwrap();
        let grown = after.anonymous_bytes - before.anonymous_bytes;
        assert!(grown >= 60 << 20, "grew by {grown}");
        assert!(after.resident_bytes >= after.anonymous_bytes);
        assert!(after.anonymous_share_bytes <= after.anonymous_bytes);
        drop(held);
    }

    #[test]
    fn threads_and_descriptors_are_counted() {
        let this = Process::current();
        let (end, wait) = mpsc::channel::<()>();
        let thread = thread::spawn(move || wait.recv());
        assert!(this.thread_count().unwrap() >= 2);
        drop(end);
        thread.join().unwrap().unwrap_err();

        let files: Vec<_> = (0..50)
            .map(|_| fs::File::open("/proc/self/stat").unwrap())
            .collect();
        assert!(this.descriptor_count().unwrap() >= 50);
        drop(files);
    }

    #[test]
    fn waiting_is_a_voluntary_switch() {
        let this = Process::current();
        let before = this.context_switches().unwrap();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(1));
        }
        let after = this.context_switches().unwrap();
        // Other tests' threads may have ended meanwhile and taken theirs along, so only
        // the calling thread's own are sure to be there.
        assert!(after.voluntary >= 20, "{before:?} {after:?}");
    }

    #[test]
    fn loopback_traffic_counts_segments() {
        let this = Process::current();
        let before = this.tcp_segments().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let spent = this.tcp_segments().unwrap().since(&before);
        assert!(spent.sent >= 3 && spent.received >= 3, "{spent:?}");
    }

    #[test]
    fn tcp_columns_are_found_by_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 10 3\n";
        assert_eq!(column(snmp, "Tcp:", "RetransSegs"), Some("3"));
        assert_eq!(column(snmp, "Tcp:", "OutSegs"), None);
        assert_eq!(column("Tcp: InSegs\n", "Tcp:", "InSegs"), None);
    }

    #[test]
    fn core_shares_leave_out_idle_time() {
        let parse = |text| CoreTimes::parse(text, Path::new("stat")).unwrap();
        let before = parse("cpu  9 9 9 9 9 9 9 9\ncpu0 100 0 0 500 0 0 0 0 0 0\nintr 5\n");
        let after =
            parse("cpu  9 9 9 9 9 9 9 9\ncpu0 110 2 3 560 10 4 1 10 77 0\ncpu1 1 1 1 1 1 1 1 1\n");
        let shares = after.since(&before);
        // The core that came online meanwhile has no earlier reading.
        assert_eq!(
            shares,
            [CoreShare {
                core: 0,
                busy: 0.2,
                steal: 0.1
            }]
        );
        assert_eq!(before.since(&before)[0].busy, 0.0);
    }

    #[test]
    fn real_cores_are_found() {
        let cores = CoreTimes::read().unwrap().total();
        let allowed = thread::available_parallelism().unwrap().get();
        assert!(cores.len() >= allowed);
        assert!(
            cores
                .iter()
                .all(|c| (0.0..=1.0).contains(&(c.busy + c.steal)))
        );
        assert!(cores.iter().any(|c| c.busy > 0.0));
    }

    #[test]
    fn an_absent_process_is_an_error_that_names_the_file() {
        // Above the largest pid that Linux gives.
        let nobody = Process::new(1 << 23);
        let err = nobody.cpu().unwrap_err();
        assert!(err.to_string().contains("/proc/8388608/stat"), "{err}");
        assert!(nobody.memory().is_err());
        assert!(nobody.thread_count().is_err());
        assert!(nobody.descriptor_count().is_err());
        assert!(nobody.context_switches().is_err());
        assert!(nobody.tcp_segments().is_err());
    }
}
