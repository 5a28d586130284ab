//! Examples as programs: where they are, that they serve, that they end on a signal.
//!
//! `cargo test` builds examples before it runs tests. Where only one test was built they are missing, and
//! that is said instead of passed over.

use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than any of them needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Examples are built next to the folder of the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program's path");
    let profile = test.parent().and_then(std::path::Path::parent);
    let profile = profile.expect("target/PROFILE/deps/TEST");
    profile.join("examples").join(name)
}

/// An example that says where it listens, and serves until it gets a signal.
pub(crate) struct Serving {
    child: Child,
    /// What follows "listening on " in its first line.
    pub(crate) at: String,
}

impl Serving {
    /// Starts it; `None`, and a word why, if it is not built.
    pub(crate) fn start(name: &str, args: &[&str]) -> Option<Serving> {
        let program = program(name);
        if !program.exists() {
            println!(
                "skipped {name}: not built: run the whole `cargo test`, or `cargo build --examples`"
            );
            return None;
        }
        let mut child = Command::new(program)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an example starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        let read = std::io::BufReader::new(stdout).read_line(&mut line);
        let at = line.trim_end().strip_prefix("listening on ");
        let Some(at) = at.map(str::to_owned) else {
            let _ = child.kill();
            panic!("it said {line:?} ({read:?})");
        };
        Some(Serving { child, at })
    }

    /// Stops it by a signal, and waits for its end in order.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        // The example says where it listens a moment before it waits for signals.
        let start = Instant::now();
        let pid = self.child.id();
        while !catches_signals(pid) && self.child.try_wait().is_ok_and(|end| end.is_none()) {
            if start.elapsed() > PATIENCE {
                let _ = self.child.kill();
                return Err("it catches no signal".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = format!("kill -TERM {pid}");
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "a signal");
        succeeded(self.child)
    }
}

/// Whether SIGTERM has a handler in this process (proc(5), SigCgt).
fn catches_signals(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (15 - 1)) != 0)
}

/// Waits for its end.
pub(crate) fn succeeded(mut child: Child) -> Result<(), String> {
    let start = Instant::now();
    while child.try_wait().is_ok_and(|end| end.is_none()) {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Err(format!("{}\n{out}\n{err}", output.status))
}
