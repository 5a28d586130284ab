//! `tidewire lab growth`: whether one more of a thing costs what the one before it cost.
//!
//! The idea: a server is started under callgrind, filled with N things and stopped; then again with 2N, 4N and 8N. A run without
//! things shows the cost of the start. Instructions do not depend on the machine's other work, so the exponent is accurate: the
//! slope of the logarithm of the instructions over the logarithm of the number. The exponent is 1 if each thing costs the same,
//! 2 if each pays for all the others.

mod fill;
mod kinds;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire_command::exit::{Failure, MISSED};
use tidewire_load::child::Launch;
use tidewire_load::count::{Profile, callgrind};
use tidewire_load::numbers::grouped;

use self::kinds::{KINDS, Kind, What};
use crate::bench::{Scratch, Watcher, environment, write};
use crate::measured;

/// An exponent above this is a finding.
const EXPONENT_MAX: f64 = 1.1;
/// How many times the smallest number each run has.
const TIMES: [u64; 4] = [1, 2, 4, 8];
/// How long a server may take to start under valgrind, and a client to end.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a server may take to stop, which costs what it holds.
const STOP_WITHIN: Duration = Duration::from_secs(120);
/// Functions that are named of a finding.
const FUNCTIONS: usize = 4;

/// What one more costs of everything of which there can be many: a finding where it rises with their number.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Things whose names contain this; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// So many times as many of each
    #[arg(long, default_value_t = 1.0, value_name = "TIMES")]
    scale: f64,
    /// Has the servers run from this build of tidewire instead
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Prints what there is, and runs nothing
    #[arg(long)]
    print: bool,
    /// Writes the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result for one kind of thing.
#[derive(Debug, Serialize)]
struct Grown {
    name: &'static str,
    /// How many there were, and the instructions that they took beside the start.
    counts: Vec<(u64, f64)>,
    exponent: f64,
    is_finding: bool,
    /// The functions whose share has grown most.
    functions: Vec<String>,
}

impl Args {
    /// Counts, and says what grows.
    pub(super) fn run(&self) -> Result<(), Failure> {
        if !(self.scale > 0.0 && self.scale <= 1_000.0) {
            return Err(Failure::usage("--scale: above 0 and at most 1000"));
        }
        let wanted = |kind: &&Kind| {
            self.only.is_empty()
                || self
                    .only
                    .iter()
                    .any(|text| kind.name.contains(text.as_str()))
        };
        let kinds: Vec<&Kind> = KINDS.iter().filter(wanted).collect();
        if kinds.is_empty() {
            return Err(Failure::usage(
                "--only: nothing has such a name, see --print",
            ));
        }
        if self.print {
            for kind in kinds {
                let most = self.of(kind) * TIMES[TIMES.len() - 1];
                show_line!(
                    "{:<24} to {:>9}  {}",
                    kind.name,
                    grouped(most as f64),
                    kind.how
                );
            }
            return Ok(());
        }
        callgrind::installed().map_err(|e| Failure::failed(e.to_string()))?;
        let program = match &self.binary {
            Some(binary) => binary.clone(),
            None => measured::program()?,
        };
        let mut watcher = Watcher::new()?;
        let mut all = Vec::new();
        show_line!(
            "exponent  instructions of the last and of the first thing, each beside those before it"
        );
        for (number, kind) in kinds.iter().enumerate() {
            let at = |n: u64| format!("{} of {}: {n} {}", number + 1, kinds.len(), kind.name);
            let mut runs = Vec::new();
            for n in std::iter::once(0).chain(TIMES.map(|times| times * self.of(kind))) {
                watcher.show(&at(n));
                let scratch = Scratch::new(None)?;
                let counted = kind
                    .count(&program, scratch.path(), n)
                    .map_err(|failure| Failure {
                        message: format!("{n} {}: {}", kind.name, failure.message),
                        ..failure
                    });
                if watcher.interrupted() {
                    return Err(Failure::failed("interrupted"));
                }
                runs.push((n, counted?));
            }
            watcher.done();
            let grown = Grown::of(kind.name, &runs);
            grown.show();
            all.push(grown);
        }
        if let Some(path) = &self.json {
            write(path, "lab growth", environment(), &all)?;
        }
        let findings: Vec<&str> = all
            .iter()
            .filter(|grown| grown.is_finding)
            .map(|grown| grown.name)
            .collect();
        match findings.is_empty() {
            true => Ok(()),
            false => Err(Failure {
                status: MISSED,
                message: format!(
                    "one more costs more, the more there are: {}",
                    findings.join(", ")
                ),
            }),
        }
    }

    /// The smallest number of a kind.
    fn of(&self, kind: &Kind) -> u64 {
        ((kind.n as f64 * self.scale) as u64).max(1)
    }
}

impl Grown {
    /// `runs` begin with the run without things.
    fn of(name: &'static str, runs: &[(u64, Profile)]) -> Grown {
        let (_, start) = &runs[0];
        let counts: Vec<(u64, f64)> = runs[1..]
            .iter()
            .map(|(n, profile)| (*n, (profile.total() - start.total()).max(1.0)))
            .collect();
        let exponent = slope(&counts);
        let is_finding = exponent > EXPONENT_MAX;
        let mut functions = Vec::new();
        if is_finding && let [.., (n, before), (_, after)] = runs {
            // The cost of a thing in the last run, beside its expected cost according to the run before.
            let changes = Profile::changes(
                &before.clone().divided(*n as f64),
                &after.clone().divided(2.0 * *n as f64),
            );
            functions.extend(
                changes
                    .iter()
                    .filter(|change| change.by() > 0.0)
                    .take(FUNCTIONS)
                    .map(|change| {
                        format!("{} (+{})", change.function, grouped(change.by().round()))
                    }),
            );
        }
        Grown {
            name,
            counts,
            exponent,
            is_finding,
            functions,
        }
    }

    fn show(&self) {
        let (first_n, first) = self.counts[0];
        let [.., (before_n, before), (last_n, last)] = self.counts[..] else {
            return;
        };
        let each = (last - before) / (last_n - before_n) as f64;
        show_line!(
            "{:>8.2}  {:>12} {:>12}  {}{}",
            self.exponent,
            grouped(each.round()),
            grouped((first / first_n as f64).round()),
            self.name,
            if self.is_finding {
                "  <- a finding"
            } else {
                ""
            }
        );
        for function in &self.functions {
            show_line!("                                     {function}");
        }
    }
}

/// The slope of the logarithm of costs over that of numbers, by least squares.
fn slope(counts: &[(u64, f64)]) -> f64 {
    let points: Vec<(f64, f64)> = counts
        .iter()
        .map(|(n, cost)| ((*n as f64).ln(), cost.ln()))
        .collect();
    let mean =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let both: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    both / across.max(f64::MIN_POSITIVE)
}

impl Kind {
    /// The instructions of a process with this many things; `dir` is an empty directory.
    fn count(&self, program: &Path, dir: &Path, n: u64) -> Result<Profile, Failure> {
        match self.what {
            What::Server { serve, fill } => {
                let out = dir.join("counted");
                let server = serve_args(program, serve, dir).under("valgrind", under(&out));
                let server = server.ready_within(READY_WITHIN).start();
                let server =
                    server.map_err(|e| Failure::failed(format!("cannot start the server: {e}")))?;
                fill(server.listeners()[0].addr, n).map_err(|e| Failure::failed(e.to_string()))?;
                let stopped = server.stop(STOP_WITHIN);
                stopped.map_err(|e| Failure::failed(format!("cannot stop the server: {e}")))?;
                read(&out)
            }
            What::Ship => {
                let server =
                    serve_args(program, &["ingest", "--listen", "ingest=127.0.0.1:0"], dir).start();
                let server =
                    server.map_err(|e| Failure::failed(format!("cannot start the server: {e}")))?;
                let profile = ship(program, dir, &server.listeners()[0].addr.to_string(), n);
                let stopped = server.stop(STOP_WITHIN);
                stopped.map_err(|e| Failure::failed(format!("cannot stop the server: {e}")))?;
                profile
            }
        }
    }
}

/// `tidewire serve` with one loop, on an engine that hears signals under valgrind.
fn serve_args(program: &Path, serve: &[&str], dir: &Path) -> Launch {
    Launch::new(program)
        .args(["serve"])
        .args(serve)
        .args([
            "--engine",
            "epoll",
            "--workers",
            "1",
            "--stall-threshold",
            "0",
        ])
        .args([
            "--admin",
            "off",
            "--control",
            "off",
            "--log",
            "error",
            "--idle",
            "0",
            "--data",
        ])
        .args([dir.join("data")])
}

/// Options of valgrind.
fn under(out: &Path) -> Vec<OsString> {
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(out);
    let mut all: Vec<OsString> = ["-q", "--tool=callgrind", "--cache-sim=no"]
        .map(OsString::from)
        .into();
    all.push(file);
    all
}

fn read(out: &Path) -> Result<Profile, Failure> {
    let text = fs::read_to_string(out)
        .map_err(|e| Failure::failed(format!("cannot read what was counted: {e}")))?;
    Profile::parse(&text).map_err(|e| Failure::failed(format!("{}: {e}", out.display())))
}

/// Ships so many files of a few lines; what that took in all.
fn ship(program: &Path, dir: &Path, to: &str, n: u64) -> Result<Profile, Failure> {
    let cannot = |what: &str, e: std::io::Error| Failure::failed(format!("cannot {what}: {e}"));
    let logs = dir.join("logs");
    fs::create_dir_all(&logs).map_err(|e| cannot("make a directory", e))?;
    // One at least: a pattern that names nothing is an error.
    for number in 0..n.max(1) {
        fs::write(
            logs.join(format!("{number}.log")),
            format!("a line of file {number}\n"),
        )
        .map_err(|e| cannot("write a file to ship", e))?;
    }
    let out = dir.join("counted");
    let mut child = Command::new("valgrind")
        .args(under(&out))
        .arg(program)
        .args(["ship", "--once", "--to", to, "--files"])
        .arg((n + 16).to_string())
        .arg("--state")
        .arg(dir.join("state"))
        .arg(logs.join("*.log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| cannot("run valgrind", e))?;
    let begin = Instant::now();
    loop {
        match child.try_wait().map_err(|e| cannot("wait for ship", e))? {
            Some(status) if status.success() => return read(&out),
            Some(status) => return Err(Failure::failed(format!("ship failed ({status})"))),
            None if begin.elapsed() > READY_WITHIN * 5 => {
                // The process may have ended by now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::failed("ship under valgrind does not end"));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_that_of_the_growth() {
        let of = |cost: fn(f64) -> f64| {
            let counts: Vec<(u64, f64)> = TIMES
                .iter()
                .map(|n| (*n * 100, cost(*n as f64 * 100.0)))
                .collect();
            slope(&counts)
        };
        assert!((of(|n| 7.0 * n) - 1.0).abs() < 1e-9);
        assert!((of(|n| 3.0 * n * n) - 2.0).abs() < 1e-9);
        assert!(of(|n| 5_000.0 * n + 10.0 * n * n) > EXPONENT_MAX);
        assert!(of(|n| 5_000.0 * n * n.log2()) < 1.3);
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
    }
}
