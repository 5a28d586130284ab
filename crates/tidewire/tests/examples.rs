//! The examples are part of the documentation: each one's self-test passes on each engine.
//!
//! `cargo test` builds examples before it runs tests. Where only this test was built they are
//! missing, and that is said instead of passed over.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    let mut child = Command::new(program)
        .args(["--engine", engine, "--self-test"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
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
