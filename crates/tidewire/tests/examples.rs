//! The examples are part of the documentation: each one's self-test passes on each engine.

#[path = "shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;

use std::path::Path;
use std::process::{Command, Stdio};

use example::{Serving, program, succeeded};
use libtest_mimic::{Arguments, Failed, Trial};

const ENGINES: [&str; 3] = ["threads", "epoll", "uring"];

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
            trials.push(Trial::test(label, move || stops_on_a_signal(&name)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
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
    Ok(succeeded(child)?)
}

fn stops_on_a_signal(name: &str) -> Result<(), Failed> {
    match Serving::start(name, &["--engine", "epoll"]) {
        Some(example) => Ok(example.stop()?),
        None => Ok(()),
    }
}
