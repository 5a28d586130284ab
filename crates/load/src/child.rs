//! Servers as child processes: start, wait until they listen, stop.
//!
//! The idea: what is measured runs in a process of its own, so that its CPU time, memory
//! and descriptors are its own too. The server says where it listens in lines on its
//! stdout:
//!
//! ```text
//! listening service=ack mode=sync addr=127.0.0.1:8004 engine=uring
//! ```
//!
//! No child outlives its [`ChildServer`] (unless the measuring process itself is killed by
//! a signal that leaves it no time to drop it), and no wait is without end.

mod lines;
mod listening;

pub use listening::{Listening, ListeningError};

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use self::lines::{Tail, forward_lines};
use crate::procfs::Process;

/// How long a line is waited for before it is looked whether the child has ended.
const STEP: Duration = Duration::from_millis(50);
/// How long an ended child's last words are waited for: a grandchild may hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a child may take to end after SIGKILL.
const KILL_WITHIN: Duration = Duration::from_secs(10);

/// A listener to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    service: String,
    mode: Option<String>,
}

impl Wanted {
    fn is(&self, listening: &Listening) -> bool {
        self.service == listening.service && (self.mode.is_none() || self.mode == listening.mode)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)?;
        self.mode.iter().try_for_each(|mode| write!(f, "/{mode}"))
    }
}

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Launch {
    program: OsString,
    args: Vec<OsString>,
    wanted: Vec<Wanted>,
    ready_within: Duration,
    cpus: Option<Vec<usize>>,
    /// The server announces nothing, but listens at one of these.
    at: Vec<SocketAddr>,
    /// Called with its process now and then until it listens.
    meanwhile: Option<fn(u32)>,
}

/// Why a server could not be started. The child, if there was one, has been killed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program could not be run.
    #[error("can't run {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: OsString,
        /// The error of the system call.
        source: io::Error,
    },
    /// The process could not be kept on the cores asked for.
    #[error("can't pin a server to cores {cpus:?}: {source}")]
    Pin {
        /// The cores.
        cpus: Vec<usize>,
        /// The error of the system call; for cores that don't exist, "invalid argument".
        source: io::Error,
    },
    /// The server announced something that can't be understood.
    #[error("{} announced a listener", program.display())]
    Announcement {
        /// The program.
        program: OsString,
        /// The reason.
        source: ListeningError,
    },
    /// The server ended before it listened.
    #[error("{} ended ({status}) before it listened for {missing}; its stderr ends with:\n{stderr}", program.display())]
    Ended {
        /// The program.
        program: OsString,
        /// The exit status of the server.
        status: ExitStatus,
        /// The listeners that had not been announced.
        missing: String,
        /// The last lines of the server's stderr.
        stderr: String,
    },
    /// The server did not listen in time.
    #[error("{} didn't listen for {missing} within {waited:?}; its stderr ends with:\n{stderr}", program.display())]
    Late {
        /// The program.
        program: OsString,
        /// The listeners that had not been announced.
        missing: String,
        /// How long was waited.
        waited: Duration,
        /// The last lines of the server's stderr.
        stderr: String,
    },
}

impl Launch {
    /// A server without arguments, expected to be ready within 10 seconds.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            wanted: Vec::new(),
            ready_within: Duration::from_secs(10),
            cpus: None,
            at: Vec::new(),
            meanwhile: None,
        }
    }

    /// The server announces nothing: it is ready when it accepts at this address. Another server
    /// that listens there before would be taken for it, so the address has to be free.
    pub fn listens_at(self, addr: SocketAddr) -> Self {
        self.listens_at_any(vec![addr])
    }

    /// Like `listens_at`, for one of several addresses, for example all addresses of a name: the
    /// first that accepts is used.
    pub fn listens_at_any(mut self, addrs: Vec<SocketAddr>) -> Self {
        self.at = addrs;
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        self.args.extend(args);
        self
    }

    /// Has this called with the server's process, every few milliseconds until it listens.
    #[must_use]
    pub fn meanwhile(mut self, call: fn(u32)) -> Self {
        self.meanwhile = Some(call);
        self
    }

    /// Another program with the arguments that there are.
    #[must_use]
    pub fn program(mut self, program: impl AsRef<OsStr>) -> Self {
        self.program = program.as_ref().to_owned();
        self
    }

    /// Has another program run the server: `program` with these arguments, behind which the server's own command line
    /// stands. The program has to become the server, so that the process that is started is it.
    #[must_use]
    pub fn under(
        mut self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        let server = std::mem::replace(&mut self.program, program.as_ref().to_owned());
        self.args = args.chain([server]).chain(self.args).collect();
        self
    }

    /// Adds a listener to wait for, in any mode if that is `None`. A service wanted twice waits for
    /// two listeners. If nothing is wanted, the first listener will do.
    pub fn want(mut self, service: &str, mode: Option<&str>) -> Self {
        self.wanted.push(Wanted {
            service: service.to_owned(),
            mode: mode.map(str::to_owned),
        });
        self
    }

    /// Sets how long the listeners may take to be announced.
    pub fn ready_within(mut self, timeout: Duration) -> Self {
        self.ready_within = timeout;
        self
    }

    /// Pins the server to these cores before its first instruction, so that the server also counts
    /// only them when it decides how many threads to start.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Starts the server and returns when all wanted listeners have been announced.
    ///
    /// The child's stdin is empty. Later output on stdout is read and dropped, and the end of
    /// stderr is kept, so a full pipe never blocks the child. The child has a process group of its
    /// own: Ctrl-C at a terminal reaches only the caller, which can still end its run with a live
    /// server.
    ///
    /// # Errors
    /// [`StartError`]; the child has been killed then.
    pub fn start(&self) -> Result<ChildServer, StartError> {
        let mut child = self.spawn()?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let lines = forward_lines(stdout);
        let mut server = ChildServer {
            child,
            listeners: Vec::new(),
            stderr: Tail::of(stderr),
        };
        self.await_listeners(&mut server, &lines)?;
        Ok(server)
    }

    fn spawn(&self) -> Result<Child, StartError> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let run = |command: &mut Command| {
            command.spawn().map_err(|source| StartError::Spawn {
                program: self.program.clone(),
                source,
            })
        };
        let Some(cpus) = &self.cpus else {
            return run(&mut command);
        };
        // A child inherits the cores of the thread that starts it. Setting them on the
        // child's pid instead would miss threads that it has started by then.
        let pinned = || {
            pin_this_thread(cpus).map_err(|source| StartError::Pin {
                cpus: cpus.clone(),
                source,
            })?;
            run(&mut command)
        };
        thread::scope(|scope| scope.spawn(pinned).join().expect("starting doesn't panic"))
    }

    fn await_listeners(
        &self,
        server: &mut ChildServer,
        lines: &Receiver<String>,
    ) -> Result<(), StartError> {
        let begin = Instant::now();
        while let Some(missing) = self.missing(&server.listeners) {
            if begin.elapsed() >= self.ready_within {
                return Err(StartError::Late {
                    program: self.program.clone(),
                    missing,
                    waited: self.ready_within,
                    stderr: server.stderr.text(),
                });
            }
            if let Some(call) = self.meanwhile {
                call(server.pid());
            }
            if !self.at.is_empty() {
                self.fail_if_ended(server)?;
                let accepts = |addr: &&SocketAddr| {
                    TcpStream::connect_timeout(addr, Duration::from_millis(50)).is_ok()
                };
                if let Some(addr) = self.at.iter().find(accepts) {
                    server.listeners.push(Listening::unannounced(*addr));
                    continue;
                }
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            // In short steps: an ended child's stdout stays open if a grandchild has it.
            let step = self.meanwhile.map_or(STEP, |_| STEP / 25);
            match lines.recv_timeout(step) {
                Ok(line) if line.starts_with("listening ") => {
                    let listening = line.parse().map_err(|source| StartError::Announcement {
                        program: self.program.clone(),
                        source,
                    })?;
                    server.listeners.push(listening);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => self.fail_if_ended(server)?,
                Err(RecvTimeoutError::Disconnected) => {
                    self.fail_if_ended(server)?;
                    // The child lives, but will announce nothing any more.
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        Ok(())
    }

    fn fail_if_ended(&self, server: &mut ChildServer) -> Result<(), StartError> {
        // Waiting for one's own unreaped child can't fail; if it did, time would run out.
        let Ok(Some(status)) = server.child.try_wait() else {
            return Ok(());
        };
        server.stderr.await_end(LAST_WORDS);
        Err(StartError::Ended {
            program: self.program.clone(),
            status,
            missing: self.missing(&server.listeners).unwrap_or_default(),
            stderr: server.stderr.text(),
        })
    }

    /// The listeners that are wanted but not there, or `None` if all are.
    fn missing(&self, found: &[Listening]) -> Option<String> {
        if self.wanted.is_empty() {
            return found.is_empty().then(|| "anything".to_owned());
        }
        // Wanted services that name their mode choose first; services without a mode take the rest.
        let (exact, any): (Vec<&Wanted>, Vec<&Wanted>) =
            self.wanted.iter().partition(|wanted| wanted.mode.is_some());
        let mut left: Vec<&Listening> = found.iter().collect();
        let mut missing = Vec::new();
        for wanted in exact.into_iter().chain(any) {
            match left.iter().position(|listening| wanted.is(listening)) {
                Some(place) => drop(left.swap_remove(place)),
                None => missing.push(wanted.to_string()),
            }
        }
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}

/// A running server. Dropping it kills it; [`ChildServer::stop`] asks first.
#[derive(Debug)]
pub struct ChildServer {
    child: Child,
    listeners: Vec<Listening>,
    stderr: Tail,
}

/// How a server ended.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// Exit status of the child.
    pub status: ExitStatus,
    /// The child did not end by itself in time and was killed.
    pub killed: bool,
    /// Time from the request to the end.
    pub took: Duration,
    /// The last lines of the server's stderr.
    pub stderr: String,
}

impl Stopped {
    /// Whether the server ended by itself, in time, with status 0.
    pub fn is_clean(&self) -> bool {
        self.status.success() && !self.killed
    }
}

impl ChildServer {
    /// Id of the child's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's process, for CPU time and memory.
    pub fn process(&self) -> Process {
        Process::new(self.pid())
    }

    /// The listeners that the server announced until it was ready, in their order.
    pub fn listeners(&self) -> &[Listening] {
        &self.listeners
    }

    /// The address of a service, in any mode if `mode` is `None`; the first announced one if there
    /// are several.
    pub fn addr(&self, service: &str, mode: Option<&str>) -> Option<SocketAddr> {
        let wanted = Wanted {
            service: service.to_owned(),
            mode: mode.map(str::to_owned),
        };
        let found = self.listeners.iter().find(|known| wanted.is(known));
        found.map(|listening| listening.addr)
    }

    /// The last lines that the server wrote to stderr so far (at most 40, each cut at 4,096 bytes).
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// The child's exit status if it has ended by itself, without waiting.
    ///
    /// # Errors
    /// Whatever `waitpid` fails with; not expected.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGTERM, waits until the server has ended, and kills it when `within` is over.
    ///
    /// # Errors
    /// The signal could not be sent (the server runs as another user), or it has not even
    /// ended 10 seconds after SIGKILL.
    pub fn stop(mut self, within: Duration) -> io::Result<Stopped> {
        let begin = Instant::now();
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        let (status, killed) = match self.wait(within)? {
            Some(status) => (status, false),
            None => (self.kill()?, true),
        };
        let took = begin.elapsed();
        self.stderr.await_end(LAST_WORDS);
        Ok(Stopped {
            status,
            killed,
            took,
            stderr: self.stderr.text(),
        })
    }

    fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.wait(KILL_WITHIN)?.ok_or_else(|| {
            let text = format!("process {} survives SIGKILL", self.pid());
            io::Error::new(io::ErrorKind::TimedOut, text)
        })
    }

    fn wait(&mut self, within: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // A child that has been waited for is not signalled again. Errors cannot be reported here.
        let _ = self.kill();
    }
}

/// Keeps the calling thread, and threads and processes that it starts from now on, on
/// these cores.
///
/// # Errors
/// An error of kind `InvalidInput` if the list has no cores or none that exist.
pub fn pin_this_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            let text = format!("core {cpu}: the largest number is {}", CpuSet::MAX_CPU - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::lines::TAIL_LINES_MAX;
    use super::*;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(30);
    const ECHO: &str = "listening service=echo addr=127.0.0.1:12345 engine=epoll";
    const SYNC: &str = "listening service=ack mode=sync addr=[::1]:8004 engine=uring";

    /// A shell script that plays the server.
    fn script(script: &str) -> Launch {
        Launch::new("/bin/sh")
            .args(["-c", script])
            .ready_within(LONG)
    }

    /// Announces both, then lives until a signal comes. `exec` leaves no grandchild.
    fn announcing() -> Launch {
        script(&format!(
            "echo '{ECHO}'; echo hello; echo '{SYNC}'; exec sleep 300"
        ))
    }

    fn is_running(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_server_is_started_and_stopped() {
        let server = announcing()
            .want("ack", Some("sync"))
            .want("echo", None)
            .start()
            .unwrap();
        assert_eq!(server.listeners().len(), 2);
        assert_eq!(
            server.addr("echo", None),
            Some("127.0.0.1:12345".parse().unwrap())
        );
        assert_eq!(server.addr("ack", None), server.addr("ack", Some("sync")));
        assert_eq!(server.addr("ack", Some("async")), None);
        assert!(server.process().cpu().is_ok());
        let pid = server.pid();
        let stopped = server.stop(LONG).unwrap();
        assert!(!stopped.killed);
        assert!(!stopped.is_clean(), "sleep ends by the signal, not with 0");
        assert_eq!(stopped.status.signal(), Some(15));
        assert!(!is_running(pid));
    }

    #[test]
    fn a_graceful_end_is_clean_and_keeps_its_last_words() {
        let server = script(&format!(
            "trap 'echo bye >&2; exit 0' TERM; echo '{ECHO}'; while :; do sleep 0.01; done"
        ))
        .start()
        .unwrap();
        let stopped = server.stop(LONG).unwrap();
        assert!(stopped.is_clean(), "{stopped:?}");
        assert_eq!(stopped.stderr, "  bye\n");
    }

    #[test]
    fn a_deaf_server_is_killed_at_the_deadline() {
        let server = script(&format!(
            "trap '' TERM; echo '{ECHO}'; while :; do sleep 0.01; done"
        ))
        .start()
        .unwrap();
        let pid = server.pid();
        let stopped = server.stop(Duration::from_millis(50)).unwrap();
        assert!(stopped.killed && !stopped.is_clean());
        assert_eq!(stopped.status.signal(), Some(9));
        assert!(stopped.took >= Duration::from_millis(50));
        assert!(!is_running(pid));
    }

    #[test]
    fn dropping_kills() {
        let server = announcing().start().unwrap();
        let pid = server.pid();
        assert!(is_running(pid));
        drop(server);
        assert!(!is_running(pid));
    }

    #[test]
    fn a_server_that_ends_early_is_reported_with_its_stderr() {
        let err = script("echo 'port in use' >&2; exit 3")
            .want("echo", None)
            .want("ack", Some("sync"))
            .start()
            .unwrap_err();
        let text = err.to_string();
        assert!(matches!(err, StartError::Ended { status, .. } if status.code() == Some(3)));
        assert!(text.contains("port in use"), "{text}");
        assert!(text.contains("ack/sync, echo"), "{text}");
    }

    #[test]
    fn an_early_end_is_noticed_though_a_grandchild_holds_the_pipes() {
        let err = script("sleep 3 & exit 4").start().unwrap_err();
        assert!(matches!(err, StartError::Ended { status, .. } if status.code() == Some(4)));
    }

    #[test]
    fn a_silent_server_is_late_and_gone() {
        let begun = script("echo $$ >&2; exec sleep 300")
            .ready_within(Duration::from_millis(300))
            .start();
        let Err(StartError::Late {
            stderr, missing, ..
        }) = begun
        else {
            panic!("{begun:?}");
        };
        assert_eq!(missing, "anything");
        let pid = stderr.trim().parse().unwrap();
        assert!(!is_running(pid));
    }

    #[test]
    fn the_same_listener_wanted_twice_is_awaited_twice() {
        let late = announcing()
            .want("ack", None)
            .want("ack", Some("sync"))
            .ready_within(Duration::from_millis(300))
            .start();
        assert!(matches!(late, Err(StartError::Late { missing, .. }) if missing == "ack"));
        let twice = script(&format!("echo '{SYNC}'; echo '{SYNC}'; exec sleep 300"));
        twice
            .want("ack", None)
            .want("ack", Some("sync"))
            .start()
            .unwrap();
    }

    #[test]
    fn a_broken_announcement_is_an_error() {
        let err = script("echo listening somewhere; exec sleep 300")
            .start()
            .unwrap_err();
        assert!(matches!(err, StartError::Announcement { .. }), "{err}");
    }

    #[test]
    fn a_name_may_have_addresses_without_a_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        // As localhost is, for a server on IPv4 alone.
        let other = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, addr.port()));
        let server = script("exec sleep 300")
            .listens_at_any(vec![other, addr])
            .start()
            .unwrap();
        assert_eq!(server.listeners()[0].addr, addr);
    }

    #[test]
    fn a_missing_program_is_named() {
        let err = Launch::new("/nonexistent/server").start().unwrap_err();
        assert!(err.to_string().contains("/nonexistent/server"), "{err}");
    }

    #[test]
    fn a_talkative_server_is_not_blocked_and_only_its_end_is_kept() {
        let mut server = script(&format!(
            "echo '{ECHO}'; i=0; while [ $i -lt 5000 ]; do i=$((i+1)); \
             echo 'a line on stdout that is long enough to fill a pipe'; \
             echo \"line $i on stderr\" >&2; done"
        ))
        .start()
        .unwrap();
        let begin = Instant::now();
        while server.ended().unwrap().is_none() {
            assert!(begin.elapsed() < LONG, "the server is stuck");
            thread::sleep(Duration::from_millis(5));
        }
        let stopped = server.stop(LONG).unwrap();
        assert!(stopped.is_clean());
        assert_eq!(stopped.stderr.lines().count(), TAIL_LINES_MAX);
        assert!(stopped.stderr.ends_with("line 5000 on stderr\n"));
    }

    #[test]
    fn a_pinned_server_has_its_cores_from_the_start() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let allowed = |text: &str| {
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
            line.unwrap().trim().to_owned()
        };
        let before = allowed(&status);
        // The last core that this process may use itself.
        let last: usize = before.rsplit([',', '-']).next().unwrap().parse().unwrap();
        let server = script(&format!(
            "grep Cpus_allowed_list /proc/self/status >&2; echo '{ECHO}'; exec sleep 300"
        ))
        .cpus([last])
        .start()
        .unwrap();
        let stopped = server.stop(LONG).unwrap();
        assert_eq!(allowed(stopped.stderr.trim()), last.to_string());
        let after = fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(
            allowed(&after),
            before,
            "the caller's own cores have changed"
        );
    }

    #[test]
    fn impossible_cores_are_refused() {
        for cpus in [vec![], vec![1 << 20], vec![CpuSet::MAX_CPU - 1]] {
            let err = announcing().cpus(cpus.clone()).start().unwrap_err();
            assert!(
                matches!(&err, StartError::Pin { source, .. }
                if source.kind() == io::ErrorKind::InvalidInput),
                "{cpus:?}: {err}"
            );
        }
    }
}
