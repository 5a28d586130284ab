//! A matrix as text of a terminal.

use std::fmt;

use tidewire_load::stats::ROUNDS_MIN;

use super::beside::{self, Judged};
use super::result::Matrix;

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in beside::verdict(self) {
            writeln!(f, "{sentence}")?;
        }
        let by = Judged::of(self);
        for row in &self.workloads {
            writeln!(f, "\n{}  ({}; {} blocks)", row.name, row.load, row.rounds)?;
            if row.rounds >= ROUNDS_MIN {
                for sentence in beside::sentences(std::slice::from_ref(row), by) {
                    writeln!(f, "{sentence}")?;
                }
            }
            for cells in row.table() {
                let [name, rest @ ..] = &cells[..] else {
                    continue;
                };
                let name: String = name.chars().take(24).collect();
                write!(f, "{name:<24}")?;
                for (cell, width) in rest.iter().zip([9, 7, 13, 12, 10, 10]) {
                    write!(f, " {cell:>width$}")?;
                }
                writeln!(f)?;
            }
            for fault in row.faults() {
                writeln!(f, "fault: {fault}")?;
            }
            for reason in row.not_counted() {
                writeln!(f, "not counted: {reason}")?;
            }
            for doubt in row.doubts() {
                writeln!(f, "note: {doubt}")?;
            }
        }
        Ok(())
    }
}
