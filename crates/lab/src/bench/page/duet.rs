//! Two servers under load at once, as a page.

use tidewire_load::duet::{Duet, Round, SLICE, Slice};
use tidewire_load::environment::Environment;
use tidewire_load::page::{Bar, Chart, Difference, Dots, Group, Lane, Line, Page, Section};
use tidewire_load::stats::Samples;

use super::command;

/// The page; `data` is all of it as JSON.
pub(in crate::bench) fn page(
    title: String,
    duet: &Duet,
    [a, b]: [&str; 2],
    [sentences, remarks]: [Vec<String>; 2],
    data: String,
    facts: &Environment,
) -> Page {
    Page {
        title: format!("{title}, two servers at once"),
        picture: picture(duet, a, b).filter(|_| !sentences.is_empty()),
        verdict: match sentences.is_empty() {
            true => remarks.clone(),
            false => sentences,
        },
        sections: vec![Section {
            heading: "What came out".into(),
            sentences: vec![format!(
                "A is {a}, B is {b}. Each run loads A and one other at the same time and pairs them per slice of {} ms; \
                 the median of a run's slices is one observation. The control is a second A.",
                SLICE.as_millis()
            )],
            doubts: remarks,
            table: table(duet),
            charts: charts(duet),
        }],
        facts: facts.facts(),
        commands: vec![command()],
        data,
        ..Page::default()
    }
}

/// B beside A, with the second A as the band.
fn picture(duet: &Duet, a: &str, b: &str) -> Option<Chart> {
    let ratio = duet.ratio?;
    let difference = match duet.verdict.is_shown() {
        true if ratio.value > 1.0 => Difference::Worse,
        true => Difference::Better,
        false => Difference::NotShown,
    };
    let equal = duet
        .control_ratio
        .map(|control| control.high.max(1.0 / control.low));
    Some(Chart::Ratios {
        title: format!("CPU for each request of {b}, divided by that of {a}"),
        unit: "Dot: median of the runs. Line: its 95 % interval. Grey: how far a second server like A differed from A. Full \
               dot: a difference is shown. Hollow dot: none is shown."
            .into(),
        less: format!("needs less CPU than {a}"),
        more: "needs more CPU".into(),
        groups: vec![Group {
            label: String::new(),
            remark: String::new(),
            lanes: vec![Lane {
                label: b.to_owned(),
                ratio: Some(ratio),
                equal,
                difference,
            }],
        }],
    })
}

fn table(duet: &Duet) -> Vec<Vec<String>> {
    let head = [
        "beside A",
        "CPU per request, x A",
        "interval",
        "runs",
        "slices",
    ];
    let rows = [
        ("B", duet.ratio, &duet.rounds),
        ("A again, the control", duet.control_ratio, &duet.control),
    ];
    let rows = rows.map(|(name, ratio, rounds)| {
        let interval =
            |of: tidewire_load::stats::Estimate| format!("{:.3}..{:.3}", of.low, of.high);
        vec![
            name.to_owned(),
            ratio.map_or("-".into(), |of| format!("{:.3}", of.value)),
            ratio.map_or("-".into(), interval),
            rounds.len().to_string(),
            rounds
                .iter()
                .map(|round| round.a.len())
                .sum::<usize>()
                .to_string(),
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}

fn charts(duet: &Duet) -> Vec<Chart> {
    let ratios = |rounds: &[Round]| rounds.iter().map(|round| round.ratio).collect();
    let median = |of: Vec<f64>| Samples::new(of).ok().map(|of| of.median());
    let rate = |label: &str, of: Vec<f64>| Bar {
        label: label.into(),
        values: median(of).into_iter().collect(),
    };
    let a = |rounds: &[Round]| rounds.iter().map(|round| round.rates().0).collect();
    let other = |rounds: &[Round]| rounds.iter().map(|round| round.rates().1).collect();
    vec![
        Chart::Dots {
            title: "Every run".into(),
            unit: "CPU per request beside A's; the stroke is the median".into(),
            rows: vec![
                Dots {
                    label: "B".into(),
                    values: ratios(&duet.rounds),
                },
                Dots {
                    label: "A again, the control".into(),
                    values: ratios(&duet.control),
                },
            ],
        },
        Chart::Bars {
            title: "Throughput".into(),
            unit: "a second, median of the runs".into(),
            parts: vec!["rate".into()],
            bars: vec![
                rate("A beside B", a(&duet.rounds)),
                rate("B", other(&duet.rounds)),
                rate("A beside A", a(&duet.control)),
                rate("A again", other(&duet.control)),
            ],
        },
        Chart::Lines {
            title: "Slice by slice, runs of A beside B".into(),
            across: "slices".into(),
            up: "microseconds of server CPU for each request".into(),
            lines: vec![
                course("A", &duet.rounds, |round| &round.a),
                course("B", &duet.rounds, |round| &round.other),
            ],
        },
    ]
}

fn course(label: &str, rounds: &[Round], of: fn(&Round) -> &Vec<Slice>) -> Line {
    let slices = rounds.iter().flat_map(of);
    let points = (1u32..).zip(slices).map(|(n, slice)| {
        let cost = slice.cpu_ns as f64 / 1e3 / slice.requests.max(1) as f64;
        (f64::from(n), cost)
    });
    Line {
        label: label.into(),
        points: points.collect(),
    }
}
