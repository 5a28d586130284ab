//! Runs as lines of JSON: what is appended as each is done, and what everything shown is made from.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidewire_load::abba::Sample;

use crate::bench::Ran;
use tidewire_command::exit::Failure;

/// Version of the lines; it rises when a reader would have to change.
pub(super) const FORMAT: u32 = 1;

/// Bytes of a body to each request of an HTTP load together.
pub(super) const BODY_BYTES: &str = "http_body_bytes";

/// The first line: what the runs are of. Runs of another header do not go into the same file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u32,
    /// The suite as it was, changes by flags included.
    pub(super) suite: String,
    pub(super) rounds: u32,
    pub(super) run_ms: u64,
    pub(super) warm_up_ms: u64,
    pub(super) seed: u64,
    /// Version of the command.
    pub(super) version: String,
    pub(super) environment: serde_json::Value,
}

impl Header {
    /// Whether runs of both may be compared: all but the machine's momentary state.
    fn is_same(&self, other: &Header) -> bool {
        let bare = |header: &Header| Header {
            environment: ["kernel", "cpu_model", "cores"]
                .iter()
                .map(|fact| header.environment[fact].clone())
                .collect(),
            ..header.clone()
        };
        bare(self) == bare(other)
    }
}

/// Where a run stands in the matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) round: u32,
    pub(super) workload: String,
    pub(super) server: String,
    /// The column is the second run of the base.
    pub(super) control: bool,
}

/// What speaks against a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Doubt {
    /// The machine in a few words, equal for each run.
    pub(super) kind: String,
    /// The finding, with its figures.
    pub(super) text: String,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub(super) place: Place,
    /// Names, with their units last, and values.
    pub(super) metrics: BTreeMap<String, f64>,
    /// How far it may be believed, and what speaks against it.
    pub(super) standing: String,
    pub(super) reasons: Vec<Doubt>,
    /// Quantiles and latencies in ns, from when each message was due or, without a rate, from its send.
    pub(super) spectrum: Vec<(f64, u64)>,
}

impl Run {
    pub(super) fn of(place: Place, ran: &Ran) -> Run {
        let sample = ran.outcome.sample();
        let spectrum = ran.outcome.spectrum.iter();
        let reasons = ran.trust.reasons.iter().map(|reason| Doubt {
            kind: reason.kind.to_string(),
            text: reason.text.clone(),
        });
        let metrics = sample.metrics();
        let mut metrics: BTreeMap<String, f64> = metrics
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if let Some(bytes) = ran.outcome.body_bytes {
            metrics.insert(BODY_BYTES.to_owned(), bytes as f64);
        }
        Run {
            place,
            metrics,
            standing: ran.trust.standing.to_string(),
            reasons: reasons.collect(),
            spectrum: spectrum.map(|point| (point.quantile, point.ns)).collect(),
        }
    }

    /// The metrics, as comparisons want them.
    pub(super) fn sample(&self) -> Sample {
        self.metrics
            .iter()
            .fold(Sample::new(), |sample, (name, value)| match name {
                name if name.ends_with("per_second") => sample.higher(name, *value),
                name if name.ends_with("share") || name == BODY_BYTES => {
                    sample.neither(name, *value)
                }
                name => sample.lower(name, *value),
            })
    }
}

/// The file.
pub(super) struct Records {
    file: File,
    pub(super) runs: Vec<Run>,
}

impl Records {
    /// Begins a file, or goes on with one of the same header. A last line that is not whole, of a run
    /// during which everything ended, is cut off.
    pub(super) fn open(path: &Path, header: &Header) -> Result<Records, Failure> {
        let failed = |e: io::Error| {
            Failure::failed(format!("cannot keep the runs in {}: {e}", path.display()))
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = text
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut records = Records {
            file,
            runs: Vec::new(),
        };
        if whole == 0 {
            records.append(header).map_err(failed)?;
            return Ok(records);
        }
        let found = read(&text[..whole]);
        let (old, runs) = found.map_err(|e| {
            Failure::failed(format!("{} has no runs of a lab: {e}", path.display()))
        })?;
        if !old.is_same(header) {
            return Err(Failure::failed(format!(
                "{} has runs of another suite, seed, version or machine: name another file with --runs, \
                 or remove it",
                path.display()
            )));
        }
        records.runs = runs;
        Ok(records)
    }

    pub(super) fn has(&self, place: &Place) -> bool {
        self.runs.iter().any(|run| run.place == *place)
    }

    pub(super) fn add(&mut self, run: Run) -> Result<(), Failure> {
        self.append(&run)
            .map_err(|e| Failure::failed(format!("cannot write a run down: {e}")))?;
        self.runs.push(run);
        Ok(())
    }

    fn append(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }
}

/// The header and the runs of such lines.
fn read(text: &[u8]) -> Result<(Header, Vec<Run>), String> {
    let mut lines = BufReader::new(text).lines();
    let first = lines
        .next()
        .ok_or("it is empty")?
        .map_err(|e| e.to_string())?;
    let header: Header = serde_json::from_str(&first).map_err(|e| format!("line 1: {e}"))?;
    if header.format != FORMAT {
        return Err(format!("its format is {}, not {FORMAT}", header.format));
    }
    let runs = lines.enumerate().map(|(n, line)| {
        let line = line.map_err(|e| e.to_string())?;
        serde_json::from_str(&line).map_err(|e| format!("line {}: {e}", n + 2))
    });
    Ok((header, runs.collect::<Result<_, String>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(seed: u64) -> Header {
        Header {
            format: FORMAT,
            suite: "s".into(),
            rounds: 1,
            run_ms: 1,
            warm_up_ms: 0,
            seed,
            version: "1".into(),
            environment: serde_json::json!({"kernel": "6", "date": seed}),
        }
    }

    fn run(round: u32) -> Run {
        Run {
            place: Place {
                round,
                workload: "w".into(),
                server: "s".into(),
                control: false,
            },
            metrics: BTreeMap::from([("requests_per_second".into(), 1.0)]),
            standing: "trustworthy".into(),
            reasons: vec![],
            spectrum: vec![(0.5, 7)],
        }
    }

    #[test]
    fn what_was_done_is_found_again_and_half_a_line_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs");
        let mut records = Records::open(&path, &header(1)).unwrap();
        for round in 0..3 {
            records.add(run(round)).unwrap();
        }
        drop(records);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let mut records = Records::open(&path, &header(1)).unwrap();
        assert_eq!(records.runs, [run(0), run(1)]);
        assert!(records.has(&run(1).place) && !records.has(&run(2).place));
        records.add(run(2)).unwrap();
        drop(records);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn runs_of_something_else_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs");
        drop(Records::open(&path, &header(1)).unwrap());
        assert!(Records::open(&path, &header(2)).is_err());
        std::fs::write(&path, "hello\n").unwrap();
        assert!(Records::open(&path, &header(1)).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"hello\n", "left alone");
    }
}
