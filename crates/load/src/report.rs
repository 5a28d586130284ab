//! A result on disk: the runs, the machine, and the figures.
//!
//! The idea: a result that can't be reproduced is not one, so the command line and the machine are
//! part of the file, not of a person's memory.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;

/// Version of the file's layout; it rises when a reader would have to change.
pub const FORMAT: u32 = 1;

/// A result with its header.
///
/// `R` is a single run's figures or a [`Comparison`](crate::abba::Comparison).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report<R> {
    format: u32,
    /// The kind of the measurement, in a word or two: `bench echo`, `ab`.
    pub kind: String,
    /// The version of what measured; empty in files that do not say it.
    #[serde(default)]
    pub version: Cow<'static, str>,
    /// The command line, as its arguments.
    pub command: Vec<String>,
    /// The environment in which the command ran.
    pub environment: Environment,
    /// The result.
    pub result: R,
}

/// The report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("can't write the report to {}: {source}", path.display())]
pub struct ReportError {
    /// The file that was to be written.
    pub path: PathBuf,
    /// The error of reading or writing.
    pub source: io::Error,
}

impl<R> Report<R> {
    /// Version of the layout.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// The command that was given, as a shell would take it.
    pub fn command_line(&self) -> String {
        let words = self.command.iter().map(|word| quoted(word));
        words.collect::<Vec<_>>().join(" ")
    }
}

impl<R: Serialize> Report<R> {
    /// Puts a header to a result.
    pub fn new(
        kind: impl Into<String>,
        command: impl IntoIterator<Item = String>,
        environment: Environment,
        result: R,
    ) -> Self {
        Self {
            format: FORMAT,
            kind: kind.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: command.into_iter().collect(),
            environment,
            result,
        }
    }

    /// Writes indented JSON to `path`, replacing an existing file. The file is complete or
    /// unchanged: it is written beside its place (`NAME.partial`) and renamed into it. An existing
    /// path that is no plain file, such as `/dev/stdout`, is written to directly.
    ///
    /// # Errors
    /// [`ReportError`] if the directory is missing or not writable, or the disk is full.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let result = if is_special(path) {
            self.write_whole(path)
        } else {
            self.replace(path)
        };
        result.map_err(|source| ReportError {
            path: path.to_owned(),
            source,
        })
    }

    fn replace(&self, path: &Path) -> io::Result<()> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let written = self.write_whole(&partial);
        let replaced = written.and_then(|()| fs::rename(&partial, path));
        if replaced.is_err() {
            // The rest of the file is of no use; it may also not exist.
            let _ = fs::remove_file(&partial);
        }
        replaced
    }

    fn write_whole(&self, path: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        serde_json::to_writer_pretty(&mut out, self)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// Quotes what a shell would take for more than a word.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./,:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Renaming onto a device or a link would take its place instead of writing to it.
fn is_special(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_a_word_is_quoted() {
        assert_eq!(quoted("--size=4k"), "--size=4k");
        assert_eq!(quoted("p99<1ms"), "'p99<1ms'");
        assert_eq!(quoted("it's; rm"), "'it'\\''s; rm'");
        assert_eq!(quoted(""), "''");
    }

    use crate::abba::{Sample, Schedule, run};
    use crate::stats::Bootstrap;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory of the test's own, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!(
                "tidewire-report-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            );
            let dir = std::env::temp_dir().join(name);
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn report<R: Serialize>(result: R) -> Report<R> {
        let command = ["tidewire", "bench", "ab"].map(str::to_owned);
        Report::new("ab", command, Environment::read("2026-01-02"), result)
    }

    #[test]
    fn a_comparison_comes_back_as_json_with_its_header() {
        let runs = run(&Schedule::new(6), |turn| {
            Ok::<_, Infallible>(Sample::new().lower("ns", 10.0 + turn.round as f64))
        });
        let comparison = runs
            .unwrap()
            .compare("epoll", "uring", &Bootstrap::default());
        let scratch = Scratch::new();
        let path = scratch.0.join("ab.json");
        report(comparison.unwrap()).write(&path).unwrap();

        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\n  \"format\": 1,\n") && text.ends_with("}\n"));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["kind"], "ab");
        assert_eq!(json["command"][2], "ab");
        assert_eq!(json["environment"]["date"], "2026-01-02");
        assert_eq!(json["result"]["metrics"][0]["verdict"], "no_difference");
        assert_eq!(json["result"]["recording"]["samples"]["b"][5]["ns"], 15.0);
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn an_older_report_is_replaced() {
        let scratch = Scratch::new();
        let path = scratch.0.join("run.json");
        fs::write(&path, "old".repeat(10_000)).unwrap();
        report(1).write(&path).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["result"], 1);
    }

    #[test]
    fn a_link_is_written_through() {
        let scratch = Scratch::new();
        let (file, link) = (scratch.0.join("file"), scratch.0.join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        report(7).write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&file).unwrap().contains("\"result\": 7"));
    }

    #[test]
    fn a_missing_directory_is_an_error_that_names_the_file() {
        let scratch = Scratch::new();
        let path = scratch.0.join("missing/run.json");
        let err = report(1).write(&path).unwrap_err();
        assert!(err.to_string().contains("missing/run.json"), "{err}");
    }

    #[test]
    fn a_failed_report_leaves_the_old_one_and_no_rest() {
        struct Unserialisable;
        impl Serialize for Unserialisable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("no"))
            }
        }
        let scratch = Scratch::new();
        let path = scratch.0.join("run.json");
        report(1).write(&path).unwrap();
        report(Unserialisable).write(&path).unwrap_err();
        assert!(fs::read_to_string(&path).unwrap().contains("\"result\": 1"));
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }
}
