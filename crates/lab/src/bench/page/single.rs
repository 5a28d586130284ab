//! One run as a page.

use tidewire_load::environment::Environment;
use tidewire_load::page::{Bar, Chart, Line, Page, Section};
use tidewire_load::workload::Outcome;

use super::{command, stacked};
use crate::bench::output::Ran;
use crate::bench::{arrivals, output};
use tidewire_load::numbers::grouped;

/// The page; `data` is all of it as JSON.
pub(in crate::bench) fn page(ran: &Ran<'_>, data: String, facts: &Environment) -> Page {
    let Ran {
        plan,
        outcome,
        trust,
        ..
    } = *ran;
    let rate = grouped(outcome.requests_per_second());
    let load = plan.workload.described() + &arrivals::described(&plan.arrivals);
    Page {
        title: load,
        verdict: vec![
            format!(
                "{rate} a second on {} connections.",
                grouped(plan.connections as f64)
            ),
            format!("The figures are {}.", trust.standing),
        ],
        sections: vec![Section {
            heading: "What came out".into(),
            sentences: Vec::new(),
            doubts: trust
                .reasons
                .iter()
                .map(|reason| reason.text.clone())
                .collect(),
            table: table(ran),
            charts: charts(outcome),
        }],
        facts: facts.facts(),
        commands: vec![command()],
        data,
        ..Page::default()
    }
}

/// The lines of the terminal as rows.
fn table(ran: &Ran<'_>) -> Vec<Vec<String>> {
    let text = output::text(ran);
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("note") && !line.starts_with("verdict"));
    let cells = lines.filter_map(|line| line.split_at_checked(output::NAMES));
    let rows = cells.map(|(name, value)| vec![name.trim().to_owned(), value.trim().to_owned()]);
    std::iter::once(vec!["figure".to_owned(), "value".to_owned()])
        .chain(rows)
        .collect()
}

fn charts(outcome: &Outcome) -> Vec<Chart> {
    let mut charts = Vec::new();
    let line = |label: &str, of: &tidewire_load::histogram::Latencies| Line {
        label: label.into(),
        points: of
            .spectrum()
            .iter()
            .map(|at| (at.quantile, at.ns as f64))
            .collect(),
    };
    if outcome.latency.is_some() {
        let intended = outcome.histograms.intended.as_ref();
        let mut lines: Vec<Line> = intended
            .map(|of| line("from when it was due", of))
            .into_iter()
            .collect();
        lines.push(line("from the send", &outcome.histograms.sent));
        charts.push(Chart::Spectrum {
            title: "Latency".into(),
            lines,
        });
    }
    if outcome.progress.len() > 2 {
        let steps = outcome.progress.windows(2);
        let rate = |pair: &[(f64, u64)]| {
            let (from, to) = (pair[0], pair[1]);
            (
                to.0,
                to.1.saturating_sub(from.1) as f64 / (to.0 - from.0).max(1e-9),
            )
        };
        charts.push(Chart::Lines {
            title: "Course of the run, warm-up included".into(),
            across: "seconds".into(),
            up: "answered a second".into(),
            lines: vec![Line {
                label: "rate".into(),
                points: steps.map(rate).collect(),
            }],
        });
    }
    if let Some(metered) = &outcome.metered {
        let bar = |label: &str, of: &tidewire_load::procfs::CpuSpent| Bar {
            label: label.into(),
            // In all as much as the table says: what the kernel samples only says how it is shared out.
            values: stacked(
                of.total_ns as f64 / outcome.requests.max(1) as f64,
                of.user_ns as f64,
                of.system_ns as f64,
            ),
        };
        charts.push(Chart::Bars {
            title: "CPU for each request".into(),
            unit: "microseconds; user and system by samples of the kernel".into(),
            parts: vec!["user".into(), "system".into()],
            bars: vec![
                bar("server", &metered.server),
                bar("generator", &metered.generator),
            ],
        });
    }
    charts
}
