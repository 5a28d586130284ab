//! `tidewire lab show`: the text and the page of a result on disk.
//!
//! The idea: a page is what this command makes of a result, so that a better page needs no new runs. A page carries its
//! result, and is a file to read from as well.

use std::path::PathBuf;

use tidewire_command::exit::Failure;
use tidewire_load::page::carried;
use tidewire_load::report::{FORMAT, Report};

use super::result::Matrix;
use super::{KIND, doubtless, page};
use crate::bench::{write_page, write_report};

/// A result on disk, shown again.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A result of `tidewire lab`: what --json has written, or a page, which carries the same
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Writes the result as JSON, every run included
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the result as one page that needs nothing else; may be the file that is read
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let report = self.read()?;
        let matrix = &report.result;
        show_line!("{}", matrix.title);
        let mut shown: Vec<&str> = Vec::new();
        for column in matrix.workloads.iter().flat_map(|row| &row.servers) {
            if !shown.contains(&&*column.name) {
                show_line!("  {:<18} {}", column.name, column.command);
                shown.push(&column.name);
            }
        }
        show!("{}", report.environment);
        show!("{matrix}");
        if let Some(to) = &self.html {
            write_page(to, &page::page(&report))?;
        }
        if let Some(to) = &self.json {
            write_report(to, &report)?;
        }
        doubtless(matrix.doubt())
    }

    fn read(&self) -> Result<Report<Matrix>, Failure> {
        let path = self.file.display();
        let text = std::fs::read_to_string(&self.file)
            .map_err(|e| Failure::failed(format!("cannot read {path}: {e}")))?;
        let wrong =
            |why: String| Failure::failed(format!("{path} has no result of tidewire lab: {why}"));
        let data = carried(&text).unwrap_or(text);
        let mut report: Report<Matrix> =
            serde_json::from_str(&data).map_err(|e| wrong(e.to_string()))?;
        if report.kind != KIND || report.format() != FORMAT {
            return Err(wrong(format!(
                "it is of kind {:?} and format {}, not {KIND:?} and {FORMAT}",
                report.kind,
                report.format()
            )));
        }
        report.result.compare()?;
        Ok(report)
    }
}
