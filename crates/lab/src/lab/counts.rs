//! `tidewire lab counts`: counts the cost of a message on some forty paths, and reports changes.
//!
//! The idea: counts repeat to a thousandth on one machine and toolchain, so a table of them is kept with the sources. A change that
//! makes a path dearer shows as a line, with the functions in which it lies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Parser;
use serde::Deserialize;
use tidewire_load::count::callgrind;
use tidewire_load::count::table::{self, Table};

use crate::bench::{Cell, Scratch, Server, Side, Want, Watcher};
use crate::measured;
use tidewire_command::count;
use tidewire_command::exit::{FAILED, Failure, MISSED};

use super::cost::Cost;
use super::ship_cost;
use super::suite::words;

/// The paths.
const PATHS: &str = include_str!("suites/counts.toml");
/// A change that is told, as a share.
const CHANGE: f64 = 0.01;
/// Messages of a segment if nothing says.
const MESSAGES: u32 = 1_000;
/// Functions that are named of a path.
const FUNCTIONS: usize = 5;

/// What a message costs on some forty paths: instructions and system calls, under callgrind and strace.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compares with this table, and ends with status 3 if a path costs 1 % more or less
    #[arg(long, value_name = "FILE", conflicts_with = "write")]
    check: Option<PathBuf>,
    /// Writes the table
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Paths whose names contain this; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Has the servers run from this build of tidewire instead
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Messages of a segment; there are at least three in each of two starts of a server
    /// [default: as in the table that is compared with, or 1k]
    #[arg(long, value_name = "N", value_parser = count::some)]
    messages: Option<u32>,
    /// Leaves system calls out
    #[arg(long)]
    no_calls: bool,
    /// Prints the paths, and runs nothing
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paths {
    #[serde(rename = "path")]
    paths: Vec<Line>,
}

/// One path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    /// More of the server's command line.
    #[serde(default)]
    serve: String,
    /// As behind `tidewire bench`.
    #[serde(default)]
    load: String,
    /// The path is that of `tidewire ship` instead, with lines of so many bytes.
    ship: Option<usize>,
    /// A Lua script for {script-file}.
    script: Option<String>,
}

/// A load, as it stands behind `tidewire bench`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Load {
    #[command(subcommand)]
    cell: Cell,
}

impl Args {
    /// Counts, and compares.
    pub(super) fn run(&self) -> Result<(), Failure> {
        if self.print {
            show!("{PATHS}");
            return Ok(());
        }
        let kept = self.check.as_deref().map(read).transpose()?;
        let valgrind = callgrind::installed().map_err(|e| Failure::failed(e.to_string()))?;
        let messages = self.messages(kept.as_ref());
        let mut now = Table {
            made_on: self.made_on(valgrind, messages)?,
            paths: Vec::new(),
        };
        if let Some(kept) = &kept {
            for (what, here, there) in kept.elsewhere(&now) {
                show_line!(
                    "the comparison is not valid: {what} is {there} here, and the table was made with {here}"
                );
            }
        }
        let files = Files::new()?;
        let mut watcher = Watcher::new()?;
        let paths = paths()?;
        let wanted = |path: &&Line| {
            self.only.is_empty()
                || self
                    .only
                    .iter()
                    .any(|text| path.name.contains(text.as_str()))
        };
        let paths: Vec<&Line> = paths.iter().filter(wanted).collect();
        let mut failed = 0;
        for (number, path) in paths.iter().enumerate() {
            watcher.show(&format!(
                "path {} of {}: {}",
                number + 1,
                paths.len(),
                path.name
            ));
            let counted = self.count(path, &files, messages).map_err(|mut failure| {
                failure.message = format!("{}: {}", path.name, failure.message);
                failure
            });
            if watcher.interrupted() {
                return Err(Failure::failed("interrupted"));
            }
            watcher.done();
            let counted = match counted {
                Ok(Some(counted)) => counted,
                Ok(None) => continue,
                // A wrong reply is the end; what cannot be done here is said, and the others are counted.
                Err(failure) if failure.status == FAILED => {
                    show_line!("not counted: {}", failure.message);
                    failed += 1;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let calls = counted
                .calls
                .map_or("-".to_owned(), |calls| format!("{calls:.2}"));
            show_line!(
                "{:>10.1}  {:>5.2} %  {calls:>6}  {}",
                counted.cost,
                counted.spread * 100.0,
                counted.name
            );
            now.paths.push(counted);
        }
        if let Some(path) = &self.write {
            let whole = self.with_others(path, now.clone())?;
            let text = format!("{HEAD}\n{whole}");
            fs::write(path, text)
                .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))?;
        }
        kept.map_or(Ok(()), |kept| self.compare(&kept, &now))?;
        match failed {
            0 => Ok(()),
            n => Err(Failure::failed(format!("{n} paths could not be counted"))),
        }
    }

    /// Paths that were not asked for stay in a table as they are.
    fn with_others(&self, file: &Path, mut now: Table) -> Result<Table, Failure> {
        if self.only.is_empty() || !file.exists() {
            return Ok(now);
        }
        let kept = read(file)?;
        if let Some((what, here, _)) = kept.elsewhere(&now).first() {
            return Err(Failure::failed(format!(
                "{}: its other paths were counted with another {what} ({here}): leave --only out",
                file.display()
            )));
        }
        let (others, _) = kept.unmatched(&now);
        now.paths.extend(
            kept.paths
                .into_iter()
                .filter(|path| others.contains(&path.name)),
        );
        let order: Vec<String> = paths()?.into_iter().map(|path| path.name).collect();
        now.paths
            .sort_by_key(|path| order.iter().position(|name| *name == path.name));
        Ok(now)
    }

    /// Counts one path; `None` if the path is not available on this machine, which is reported.
    fn count(
        &self,
        path: &Line,
        files: &Files,
        messages: u32,
    ) -> Result<Option<table::Path>, Failure> {
        if let Some(length) = path.ship {
            let scratch = Scratch::new(None)?;
            let program = self.program()?;
            let cost = ship_cost::of(&program, scratch.path(), length)?;
            return Ok(Some(entry(path, cost)));
        }
        let needs_certificate = path.serve.contains("{cert-file}");
        if needs_certificate && !files.certificate() {
            show_line!(
                "left out: {} (no openssl here to make a certificate)",
                path.name
            );
            return Ok(None);
        }
        if let Some(script) = &path.script {
            files.script(script)?;
        }
        let load = words(&files.filled(&path.load)).map_err(Failure::usage)?;
        let load = Load::try_parse_from(load).map_err(|e| Failure::usage(e.to_string()))?;
        let mut serve = words(&files.filled(&path.serve)).map_err(Failure::usage)?;
        serve.extend(["--workers", "1"].map(str::to_owned));
        let side = Side {
            server: Server::Own(serve),
            name: path.name.clone(),
            ..Side::default()
        };
        let want = Want {
            messages,
            calls: !self.no_calls,
            binary: self.binary.as_deref(),
        };
        let cost = Cost::of(&load.cell, &side, &want)?;
        Ok(Some(entry(path, cost)))
    }

    /// The program whose paths are counted.
    fn program(&self) -> Result<PathBuf, Failure> {
        match &self.binary {
            Some(binary) => Ok(binary.clone()),
            None => measured::program(),
        }
    }

    /// Messages of a segment.
    fn messages(&self, kept: Option<&Table>) -> u32 {
        let said = || {
            let all = &kept?.made_on;
            let (_, value) = all.iter().find(|(name, _)| name == "messages")?;
            value.parse().ok()
        };
        self.messages.or_else(said).unwrap_or(MESSAGES)
    }

    /// On what counts depend, as far as it can be known.
    fn made_on(&self, valgrind: String, messages: u32) -> Result<Vec<(String, String)>, Failure> {
        let binary = self.program()?;
        let cannot = |e| Failure::failed(format!("cannot read {}: {e}", binary.display()));
        let bytes = fs::read(&binary).map_err(cannot)?;
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let cpu = cpu.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
        let build = match bytes.windows(ASSERTED.len()).any(|part| part == ASSERTED) {
            true => "with debug assertions (cargo build)",
            false => "without debug assertions (cargo build --release)",
        };
        Ok([
            (
                "toolchain",
                compiler(&bytes).unwrap_or_else(|| "unknown".into()),
            ),
            ("build", build.to_owned()),
            ("counter", valgrind),
            ("processor", cpu.to_owned()),
            ("messages", messages.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }

    fn compare(&self, kept: &Table, now: &Table) -> Result<(), Failure> {
        let (gone, new) = kept.unmatched(now);
        if self.only.is_empty() {
            for name in gone {
                show_line!("not counted, and in the table: {name}");
            }
        }
        for name in new {
            show_line!("not in the table: {name}");
        }
        let changed = kept.changed(now, CHANGE);
        for path in &changed {
            let by = (path.after / path.before - 1.0) * 100.0;
            show_line!(
                "{}: {:.1}, and {:.1} in the table ({by:+.1} %)",
                path.name,
                path.after,
                path.before
            );
            if let Some((before, after)) = path.calls {
                show_line!("  system calls {after:.2}, and {before:.2} in the table");
            }
            for function in path.functions.iter().take(FUNCTIONS) {
                show_line!("  {:+.1}  {}", function.by(), function.function);
            }
        }
        let elsewhere = kept.elsewhere(now);
        match (changed.len(), elsewhere.first()) {
            (0, _) => {
                show_line!("no path has changed by 1 %, of {}", now.paths.len());
                Ok(())
            }
            (n, Some((what, ..))) => {
                show_line!(
                    "{n} paths differ, which says nothing: another {what} than that of the table"
                );
                Ok(())
            }
            (n, None) => Err(Failure {
                status: MISSED,
                message: format!("{n} paths cost other than the table says"),
            }),
        }
    }
}

/// What the table begins with.
const HEAD: &str = "\
# What a message costs on each path of the servers: instructions of user code on the average of the segments of two starts, how
# well that is known (half of its 95 % interval), system calls; then the functions by themselves. Made by: tidewire lab counts --write docs/counts.txt
# Compared by: tidewire lab counts --check docs/counts.txt";

/// A text that only a build with debug assertions has.
const ASSERTED: &[u8] = b"attempt to add with overflow";

/// The compiler, as it has written itself into a program.
fn compiler(bytes: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"rustc version ";
    let at = bytes.windows(MARK.len()).position(|part| part == MARK)?;
    let text: Vec<u8> = bytes[at..]
        .iter()
        .copied()
        .take_while(|byte| byte.is_ascii_graphic() || *byte == b' ')
        .collect();
    String::from_utf8(text).ok()
}

/// What the table has of a path.
fn entry(path: &Line, cost: Cost) -> table::Path {
    table::Path {
        name: path.name.clone(),
        cost: cost.instructions,
        spread: cost.within,
        calls: cost.system_calls,
        profile: cost.profile,
    }
}

fn read(path: &Path) -> Result<Table, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|e| Failure::failed(format!("cannot read {}: {e}", path.display())))?;
    Table::parse(&text).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))
}

fn paths() -> Result<Vec<Line>, Failure> {
    let paths: Paths =
        toml::from_str(PATHS).map_err(|e| Failure::failed(format!("the paths: {e}")))?;
    Ok(paths.paths)
}

/// Files that paths need.
struct Files(Scratch);

impl Files {
    fn new() -> Result<Files, Failure> {
        Scratch::new(None).map(Files)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command line with the names of the files in it.
    fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for name in ["cert", "key", "script"] {
            text = text.replace(
                &format!("{{{name}-file}}"),
                &self.at(name).to_string_lossy(),
            );
        }
        text
    }

    fn script(&self, text: &str) -> Result<(), Failure> {
        let path = self.at("script");
        fs::write(&path, text)
            .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
    }

    /// Makes a certificate that signs for itself, of 127.0.0.1; whether there is one now.
    fn certificate(&self) -> bool {
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"])
            .args([
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ])
            .arg("-keyout")
            .arg(self.at("key"))
            .arg("-out")
            .arg(self.at("cert"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        made.is_ok_and(|status| status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_can_be_meant_and_has_a_name_of_its_own() {
        let paths = paths().unwrap();
        assert!(paths.len() >= 40, "{}", paths.len());
        let mut names: Vec<&str> = paths.iter().map(|path| &*path.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), paths.len());
        let files = Files::new().unwrap();
        for path in &paths {
            if path.ship.is_some() {
                assert!(
                    path.load.is_empty() && path.serve.is_empty(),
                    "{}",
                    path.name
                );
                continue;
            }
            let load = words(&files.filled(&path.load)).unwrap();
            let read = Load::try_parse_from(load);
            assert!(read.is_ok(), "{}: {}", path.name, read.unwrap_err());
            words(&files.filled(&path.serve)).unwrap();
            assert!(!path.name.contains("  "));
        }
    }

    #[test]
    fn the_compiler_is_found_in_the_program() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = compiler(&own).unwrap();
        assert!(found.starts_with("rustc version 1."), "{found}");
        assert!(own.windows(ASSERTED.len()).any(|part| part == ASSERTED));
        assert_eq!(compiler(b"nothing"), None);
    }
}
