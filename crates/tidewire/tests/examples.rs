//! The examples are part of the documentation: each one's self-test passes on each engine.
//!
//! `cargo test` builds examples before it runs tests. Where only this test was built they are
//! missing, and that is said instead of passed over.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

const ENGINES: [&str; 3] = ["threads", "epoll", "uring"];
/// Far more than any of them needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(sources)
        .expect("the examples' folder")
        .filter_map(|entry| {
            Some(
                entry
                    .ok()?
                    .file_name()
                    .to_str()?
                    .strip_suffix(".rs")?
                    .to_owned(),
            )
        })
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let mut trials = Vec::new();
    for name in names {
        for engine in ENGINES {
            let program = program(&name);
            let reason = if !program.exists() {
                Some("not built: run the whole `cargo test`, or `cargo build --examples`")
            } else if engine == "uring" && !uring_works() {
                Some("io_uring does not work here")
            } else {
                None
            };
            let label = format!("{name}/{engine}");
            match reason {
                Some(why) => {
                    println!("skipped {label}: {why}");
                    trials.push(Trial::test(label, || Ok(())).with_ignored_flag(true));
                }
                None => trials.push(Trial::test(label, move || self_test(&program, engine))),
            }
        }
        // Clients end by themselves.
        if program(&name).exists() && !name.ends_with("client") {
            let label = format!("{name}/signal");
            trials.push(Trial::test(label, move || {
                stops_on_a_signal(&program(&name))
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Examples are built next to the folder of the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program's path");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST");
    profile.join("examples").join(name)
}

fn uring_works() -> bool {
    let mut builder = tidewire::Builder::new();
    builder.engine(tidewire::EngineChoice::Uring);
    builder.start().is_ok()
}

fn self_test(program: &Path, engine: &str) -> Result<(), Failed> {
    let child = Command::new(program)
        .args(["--engine", engine, "--self-test"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    succeeded(child)
}

fn stops_on_a_signal(program: &Path) -> Result<(), Failed> {
    let mut child = Command::new(program)
        .args(["--engine", "epoll"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    std::io::BufReader::new(stdout).read_line(&mut line)?;
    if !line.starts_with("listening on ") {
        child.kill()?;
        return Err(format!("it said {line:?}").into());
    }
    // It says where it listens a moment before it waits for signals.
    let start = Instant::now();
    while !catches_signals(child.id()) && child.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill()?;
            return Err("it catches no signal".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    succeeded(child)
}

/// Whether SIGTERM has a handler in this process (proc(5), SigCgt).
fn catches_signals(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (15 - 1)) != 0)
}

/// Waits for its end.
fn succeeded(mut child: Child) -> Result<(), Failed> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Err(format!("{}\n{out}\n{err}", output.status).into())
}
