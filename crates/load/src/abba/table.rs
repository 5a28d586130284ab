//! A comparison as a table for the terminal.

use std::fmt;

use super::comparison::Comparison;
use crate::numbers::percent;
use crate::stats::Estimate;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, true)
    }
}

/// The figures of a comparison without conclusions: for a comparison whose verdicts are withheld.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a>(pub &'a Comparison);

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, false)
    }
}

impl Comparison {
    fn write(&self, f: &mut fmt::Formatter<'_>, verdicts: bool) -> fmt::Result {
        let schedule = &self.recording.schedule;
        writeln!(f, "A = {}, B = {}", self.a, self.b)?;
        writeln!(
            f,
            "{} rounds interleaved{}, {} warm-up rounds dropped; medians, {} intervals",
            schedule.rounds,
            if schedule.control {
                ", with an A/A control"
            } else {
                ", without control"
            },
            schedule.warm_up_rounds,
            percent(self.bootstrap.confidence),
        )?;
        let mut rows = vec![vec![
            "metric".to_owned(),
            "A".to_owned(),
            "B".to_owned(),
            "B/A".to_owned(),
            "interval".to_owned(),
            "A/A".to_owned(),
            "interval".to_owned(),
        ]];
        for metric in &self.metrics {
            let mut row = vec![
                metric.name.clone(),
                figure(metric.a.median),
                figure(metric.b.median),
            ];
            row.extend(ratio_cells(metric.ratio));
            row.extend(ratio_cells(metric.control_ratio));
            rows.push(row);
        }
        write_table(f, &rows)?;
        for metric in self.metrics.iter().filter(|_| verdicts) {
            writeln!(f, "{}: {}", metric.name, metric.sentence())?;
        }
        for note in &self.notes {
            writeln!(
                f,
                "note on {} of {} runs of {}: {}",
                note.runs, schedule.rounds, note.side, note.text
            )?;
        }
        Ok(())
    }
}

fn ratio_cells(ratio: Option<Estimate>) -> [String; 2] {
    ratio.map_or_else(
        || ["-".to_owned(), "-".to_owned()],
        |r| {
            [
                format!("{:.3}", r.value),
                format!("{:.3}..{:.3}", r.low, r.high),
            ]
        },
    )
}

/// Names to the left, figures to the right.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in rows {
        write!(f, "{:<1$}", row[0], width(0))?;
        for (column, cell) in row.iter().enumerate().skip(1) {
            write!(f, "  {cell:>0$}", width(column))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// A figure to four digits, or in full with thousands set apart.
fn figure(value: f64) -> String {
    if !value.is_finite() || value.abs() < 1_000.0 {
        let digits_before = value.abs().max(1.0).log10().floor() as usize + 1;
        return format!("{value:.*}", 4usize.saturating_sub(digits_before));
    }
    let whole = format!("{:.0}", value.abs());
    let mut shown = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!(figure(0.0), "0.000");
        assert_eq!(figure(0.9712), "0.971");
        assert_eq!(figure(12.3456), "12.35");
        assert_eq!(figure(999.4), "999.4");
        assert_eq!(figure(1234567.8), "1,234,568");
        assert_eq!(figure(-1000.0), "-1,000");
    }
}
