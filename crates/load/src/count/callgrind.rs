//! A server under valgrind's callgrind: instructions, function by function.
//!
//! The idea: through `vgdb`, callgrind is told to store its counts and to begin anew. `vgdb` wakes
//! a server whose threads all sleep in system calls. A thread that sleeps in `io_uring_enter`
//! cannot be woken: valgrind does not know that this call waits, and keeps its one lock during the
//! call, so no other thread of the process runs until the call returns. Then the counts are stored
//! when the next message arrives; the reader sends one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::counter::{CountError, Counter, Threads, version};
use super::profile::Profile;
use super::quiet::Quiet;
use crate::child::Launch;

/// How long a server may take to start under valgrind.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How often a server is nudged before it is looked whether it listens.
const NUDGES: u32 = 100;
/// How long a loop may take to go around before it is nudged again.
const GOES_AROUND: Duration = Duration::from_micros(500);
/// The number of `io_uring_enter` on every architecture.
const IO_URING_ENTER: &str = "426";

/// The counter of one server.
#[derive(Debug)]
pub struct Callgrind {
    dir: PathBuf,
    quiet: Option<Quiet>,
    asking: Vec<Child>,
    read: BTreeSet<PathBuf>,
}

/// Which valgrind is there.
///
/// # Errors
/// [`CountError::Missing`].
pub fn installed() -> Result<String, CountError> {
    version("valgrind", "instructions", "--version")
}

impl Callgrind {
    /// A counter that keeps its files in this directory.
    pub fn new(dir: &Path) -> Callgrind {
        Callgrind {
            dir: dir.to_owned(),
            quiet: None,
            asking: Vec::new(),
            read: BTreeSet::new(),
        }
    }

    /// Has a server run under callgrind.
    pub fn launch(&self, server: Launch) -> Launch {
        let option = |name: &str, file: &str| {
            let mut option = OsString::from(name);
            option.push(self.dir.join(file));
            option
        };
        let mut args: Vec<OsString> = [
            "-q",
            "--tool=callgrind",
            "--cache-sim=no",
            "--separate-threads=yes",
            "--trace-children=yes",
            "--fair-sched=try",
            // Where vgdb cannot wake the server, it finds the question at its next message.
            "--vgdb-poll=20",
        ]
        .map(OsString::from)
        .into();
        args.push(option("--vgdb-prefix=", "vgdb"));
        args.push(option("--callgrind-out-file=", "out.%p"));
        let launch = server.under("valgrind", args);
        launch.ready_within(READY_WITHIN).meanwhile(nudge)
    }

    /// Notes that the server has started as this process.
    pub fn started(&mut self, pid: u32) {
        self.quiet = Some(Quiet::of(pid));
    }

    fn tool(what: String) -> CountError {
        CountError::Tool {
            tool: "valgrind",
            what,
        }
    }
}

/// Makes a loop that waits in io_uring run once, if there is one. While such a loop waits, valgrind
/// runs no other thread, perhaps not even the thread that has to print the listening address;
/// valgrind switches threads when one has run for long enough.
fn nudge(pid: u32) {
    for _ in 0..NUDGES {
        if !in_io_uring(pid) {
            return;
        }
        // To be stopped ends the wait.
        let mut quiet = Quiet::of(pid);
        quiet.hold();
        quiet.release();
        thread::sleep(GOES_AROUND);
    }
}

/// Whether a thread of the process waits in a call of which valgrind does not know that it waits.
fn in_io_uring(pid: u32) -> bool {
    let Ok(dir) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    dir.flatten().any(|task| {
        let call = fs::read_to_string(task.path().join("syscall"));
        call.is_ok_and(|call| call.split(' ').next() == Some(IO_URING_ENTER))
    })
}

impl Counter for Callgrind {
    fn begin(&mut self) -> Result<(), CountError> {
        let processes = self
            .quiet
            .as_ref()
            .map(Quiet::processes)
            .unwrap_or_default();
        for pid in processes {
            // To wake a process whose lock is held would not end.
            let wakes = match in_io_uring(pid) {
                true => "--max-invoke-ms=0",
                false => "--max-invoke-ms=100",
            };
            let mut prefix = OsString::from("--vgdb-prefix=");
            prefix.push(self.dir.join("vgdb"));
            let child = Command::new("vgdb")
                .arg(prefix)
                .args([wakes, &format!("--pid={pid}"), "dump"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| Callgrind::tool(format!("cannot run its vgdb: {e}")))?;
            self.asking.push(child);
        }
        Ok(())
    }

    fn is_done(&mut self, within: Duration) -> Result<bool, CountError> {
        let begin = Instant::now();
        loop {
            let mut failed = None;
            self.asking.retain_mut(|child| match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) if status.success() => false,
                Ok(Some(status)) => {
                    failed = Some(status.to_string());
                    false
                }
                Err(e) => {
                    failed = Some(e.to_string());
                    false
                }
            });
            if let Some(how) = failed {
                return Err(Callgrind::tool(format!("its vgdb failed ({how})")));
            }
            if self.asking.is_empty() {
                return Ok(true);
            }
            if begin.elapsed() >= within {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn take(&mut self) -> Result<Threads, CountError> {
        let mut threads = Threads::new();
        let cannot = |path: &Path| {
            let path = path.to_owned();
            move |source| CountError::Read { path, source }
        };
        let dir = fs::read_dir(&self.dir).map_err(cannot(&self.dir))?;
        for path in dir.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(thread) = name.and_then(thread_of) else {
                continue;
            };
            if !self.read.insert(path.clone()) {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(cannot(&path))?;
            let profile = Profile::parse(&text).map_err(|source| CountError::Parse {
                path: path.clone(),
                source,
            })?;
            threads.entry(thread).or_default().merge(&profile);
        }
        Ok(threads)
    }
}

impl Drop for Callgrind {
    fn drop(&mut self) {
        for child in &mut self.asking {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The process and the thread in the name of a file: `out.PID.PART-THREAD`.
fn thread_of(name: &str) -> Option<String> {
    let (pid, rest) = name.strip_prefix("out.")?.split_once('.')?;
    let (part, thread) = rest.split_once('-')?;
    part.parse::<u32>().ok()?;
    Some(format!("{pid}-{thread}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_readings_are_told_from_others() {
        assert_eq!(thread_of("out.123.4-05").as_deref(), Some("123-05"));
        assert_eq!(thread_of("out.123"), None);
        assert_eq!(thread_of("out.123-05"), None, "written at the end");
        assert_eq!(thread_of("vgdb-from-vgdb-to-123-by-x-on-y"), None);
    }
}
