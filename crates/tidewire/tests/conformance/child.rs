//! Cases that need a process of their own: this program, started again and told by an environment
//! variable which case to run.

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::case::Case;
use crate::variant::{self, Variant};

/// Makes this program a server in another process; see [`idle`](crate::idle).
pub(crate) const SERVER: &str = "TIDEWIRE_CONFORMANCE_SERVER";
const CASE: &str = "TIDEWIRE_CONFORMANCE_CASE";
/// Has glibc's allocator give back what is freed instead of learning to keep it, so that what a case
/// measures is what is in use.
const FRUGAL: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];
/// A child that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// A child that was asked for a long sweep may take longer.
const LONG_PATIENCE: Duration = Duration::from_secs(3600);

/// Whether a long sweep was asked for, and what it prints.
pub(crate) fn is_long() -> bool {
    std::env::var("TIDEWIRE_ECHO_SWEEP").is_ok_and(|how| how == "long")
}

/// The case that this process was started for, if it is a child.
pub(crate) fn wanted() -> Option<String> {
    std::env::var(CASE).ok()
}

/// The variant that this process is to serve on, if it is a server.
pub(crate) fn served() -> Option<Variant> {
    let name = std::env::var(SERVER).ok()?;
    variant::ALL.into_iter().find(|v| v.name == name)
}

/// Runs the one case, in the child.
pub(crate) fn run_here(cases: &[Case], wanted: &str) -> ExitCode {
    let found = variant::ALL.into_iter().find_map(|v| {
        let case = wanted.strip_prefix(v.name)?.strip_prefix('/')?;
        Some((v, cases.iter().find(|c| c.name == case)?))
    });
    let Some((variant, case)) = found else {
        eprintln!("no case is called {wanted}");
        return ExitCode::FAILURE;
    };
    (case.run)(variant);
    ExitCode::SUCCESS
}

/// Runs a case in a child, and says what it printed if it failed.
pub(crate) fn run(name: &str) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let (stdout, patience) = match is_long() {
        true => (Stdio::inherit(), LONG_PATIENCE),
        false => (Stdio::null(), PATIENCE),
    };
    let mut child = Command::new(program)
        .env(CASE, name)
        .envs(FRUGAL)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut stderr = child.stderr.take().expect("was piped");
    let printed = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let until = Instant::now() + patience;
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                let text = printed.join().unwrap_or_default();
                return Err(format!("hung for {patience:?}\n{text}"));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let text = printed.join().unwrap_or_default();
    if status.success() {
        Ok(())
    } else {
        Err(format!("{status}\n{text}"))
    }
}

/// As many descriptors as the system lets this process have.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}
