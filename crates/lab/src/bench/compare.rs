//! Compares two results on disk. `bench ab` cannot, because the two servers did not run at one time.
//!
//! The idea: any change of the machine between the two results is part of the ratio. So a regression is reported
//! only if the interval is beyond the threshold, the distributions differ, and equal runs of either result differ
//! by less.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use tidewire_load::page::{Difference, Lane, carried};
use tidewire_load::stats::{Bootstrap, Estimate, ROUNDS_MIN, Samples};

use super::page;
use super::page::compare::{Pair, Runs};
use super::sameness::{self, MISSES_APART, Of, lengths_differ};
use tidewire_command::exit::{Failure, MISSED, UNTRUSTWORTHY};

/// A comparison of two results.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The result before: JSON of `lab` or of `bench ab`, or a page of theirs
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// The result after
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// What is compared
    #[arg(
        long,
        default_value = "server_cpu_ns_per_request",
        value_name = "METRIC"
    )]
    metric: String,
    /// A change for the worse by less than this is no regression
    #[arg(long, default_value_t = 2.0, value_name = "PERCENT")]
    threshold: f64,
    /// Compares results that are of another load, server, time or machine too, and says what differs
    #[arg(long)]
    anyway: bool,
    /// Prints a table in Markdown, for a pull request
    #[arg(long)]
    markdown: bool,
    /// Writes the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the result as one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The metrics that show what work was done.
const MISSES: &str = "read_miss_share";
const BODY_BYTES: &str = "http_body_bytes";
/// Differences of distributions that come up by chance less often than this count.
const LEVEL: f64 = 0.01;

/// Runs of a metric.
#[derive(Debug, Default, PartialEq)]
struct Series {
    runs: Vec<f64>,
    /// What charts show of them.
    shown: Runs,
    /// How far from equal the second runs of the base are, as a factor, where there are any.
    reach: Option<f64>,
    /// The properties that identify the compared rows.
    of: Of,
    /// The median share of reads that found nothing, where there were reads.
    misses: Option<f64>,
    /// Bytes of the bodies of HTTP replies.
    body_bytes: Option<f64>,
}

/// How one row has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Better,
    Same,
    Worse,
    /// The results differ, and nothing says how far two equal servers do.
    NoControl,
    /// Fewer runs than an interval needs.
    TooFew,
    /// The replies show that the two did not do the same work.
    OtherWork,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    ratio: Option<Estimate>,
    /// How probable such a difference of distributions is by chance.
    p: Option<f64>,
    /// How far two equal runs differ, as a factor.
    reach: Option<f64>,
    runs: (usize, usize),
    change: Change,
}

/// Runs it and shows what came out.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if !(0.0..=1000.0).contains(&args.threshold) {
        return Err(Failure::usage("--threshold must be from 0 to 1000"));
    }
    let (report_a, a) = read(&args.a, &args.metric)?;
    let (report_b, b) = read(&args.b, &args.metric)?;
    let higher_is_better = args.metric.ends_with("per_second");
    let both = a
        .iter()
        .filter_map(|(name, of)| Some((name, of, b.get(name)?)));
    let rows: Vec<Row> = both
        .map(|(name, a, b)| row(name, a, b, args.threshold / 100.0, higher_is_better))
        .collect();
    if rows.is_empty() {
        return Err(Failure::failed(format!(
            "{} and {} have no workload and server in common with runs of {}",
            args.a.display(),
            args.b.display(),
            args.metric
        )));
    }
    let remarks = args.remarks([&report_a, &report_b], [&a, &b])?;
    let doubts = [doubts("before", &report_a), doubts("after", &report_b)].concat();
    let verdict = match doubts.first() {
        Some(doubt) => doubt.clone(),
        None => verdict(&rows, args.threshold),
    };
    match args.markdown {
        true => show!("{}", markdown(&rows, &verdict, &args.metric)),
        false => show!("{}", text(&rows, &verdict, &args.metric)),
    }
    for remark in &remarks {
        show_line!("note: {remark}");
    }
    if args.json.is_some() || args.html.is_some() {
        #[derive(Serialize)]
        struct Compared<'a> {
            metric: &'a str,
            threshold_percent: f64,
            verdict: &'a str,
            /// What the two differ in besides.
            remarks: &'a [String],
            rows: &'a [Row],
        }
        let shown = Compared {
            metric: &args.metric,
            threshold_percent: args.threshold,
            verdict: &verdict,
            remarks: &remarks,
            rows: &rows,
        };
        let environment = super::environment();
        if let Some(path) = &args.html {
            let head = ["", "after/before", "interval", "p", "A/A", ""].map(str::to_owned);
            let table = std::iter::once(head).chain(rows.iter().map(cells));
            let table = table.map(Vec::from).collect();
            let mut pairs: Vec<Pair> = rows
                .iter()
                .filter_map(|row| pair(row, a.get(&row.name)?, b.get(&row.name)?))
                .collect();
            if !doubts.is_empty() {
                let lanes = pairs.iter_mut().map(|pair| &mut pair.lane);
                lanes.for_each(|lane| lane.difference = Difference::NotShown);
            }
            let data = super::output::carried("bench compare", &environment, &shown);
            let page =
                page::compare::page(&verdict, &args.metric, table, &pairs, data, &environment);
            page::write(path, &page)?;
        }
        if let Some(path) = &args.json {
            super::write(path, "bench compare", environment, shown)?;
        }
    }
    let any = |change| rows.iter().any(|row| row.change == change);
    let doubtful = [Change::TooFew, Change::NoControl, Change::OtherWork];
    let status = if !doubts.is_empty() || doubtful.into_iter().any(any) {
        UNTRUSTWORTHY
    } else if any(Change::Worse) {
        MISSED
    } else {
        return Ok(());
    };
    Err(Failure {
        status,
        message: verdict,
    })
}

/// What a result itself says against its figures.
fn doubts(when: &str, report: &Value) -> Vec<String> {
    let doubts = report["result"]["doubts"].as_array().into_iter().flatten();
    let doubts = doubts.filter_map(Value::as_str);
    doubts
        .map(|doubt| format!("{doubt} (said by the result {when})"))
        .collect()
}

/// The runs of a metric in a file, by workload and server.
fn read(path: &Path, metric: &str) -> Result<(Value, BTreeMap<String, Series>), Failure> {
    let failed = |e: String| Failure::failed(format!("cannot compare {}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let text = carried(&text).unwrap_or(text);
    let report: Value = serde_json::from_str(&text).map_err(|e| {
        failed(format!(
            "it is not what --json of `lab` or `bench ab` writes: {e}"
        ))
    })?;
    let format = u64::from(tidewire_load::report::FORMAT);
    if report["format"].as_u64() != Some(format) {
        return Err(failed(format!(
            "its format is {}, not {format}",
            report["format"]
        )));
    }
    let result = &report["result"];
    let all = match report["kind"].as_str() {
        Some("lab") => Ok(of_lab(result, metric)),
        Some("bench ab") => Ok(of_ab(result, metric)),
        Some(kind) => Err(failed(format!(
            "it is of {kind}, one run; runs are compared by the dozen: see lab and bench ab"
        ))),
        None => Err(failed("it is no report of this command".into())),
    }?;
    Ok((report, all))
}

impl Args {
    /// The differences of the two results, as remarks. A failure if they forbid the comparison and `--anyway` is not
    /// given.
    fn remarks(
        &self,
        reports: [&Value; 2],
        [a, b]: [&BTreeMap<String, Series>; 2],
    ) -> Result<Vec<String>, Failure> {
        let rows: Vec<(&str, [&Of; 2])> = a
            .iter()
            .filter_map(|(name, of)| Some((&**name, [&of.of, &b.get(name)?.of])))
            .collect();
        let only = |of: &BTreeMap<String, Series>, other: &BTreeMap<String, Series>, when| {
            let alone = of.keys().filter(|name| !other.contains_key(*name));
            alone
                .map(|name| format!("{name} is only in the result {when}"))
                .collect::<Vec<_>>()
        };
        let alone = [only(a, b, "before"), only(b, a, "after")].concat();
        let found = sameness::differences(reports, &rows, &alone);
        if found.refused.is_empty() || self.anyway {
            return Ok([found.refused, found.told].concat());
        }
        Err(Failure::failed(format!(
            "{} and {} are not of the same thing, so their ratio would mean nothing: {} (--anyway compares them \
             nevertheless)",
            self.a.display(),
            self.b.display(),
            found.refused.join("; ")
        )))
    }
}

fn values<'a>(runs: &'a Value, value: impl Fn(&'a Value) -> &'a Value) -> Vec<f64> {
    let runs = runs.as_array().into_iter().flatten();
    runs.filter_map(|run| value(run).as_f64()).collect()
}

fn of_lab(result: &Value, metric: &str) -> BTreeMap<String, Series> {
    let mut all = BTreeMap::new();
    for work in result["workloads"].as_array().into_iter().flatten() {
        let servers = || work["servers"].as_array().into_iter().flatten();
        let runs = |server: &Value| values(&server["runs"], |run| &run["metrics"][metric]);
        let is = |server: &&Value, control: bool| server["control"] == control;
        let base = servers().find(|server| is(server, false) && server["name"] == work["base"]);
        let control = servers().find(|server| is(server, true));
        let reach = base
            .zip(control)
            .and_then(|(base, control)| reach(&runs(base), &runs(control)));
        for server in servers().filter(|server| is(server, false)) {
            let name = [&work["name"], &server["name"]].map(|part| part.as_str().unwrap_or("?"));
            let of = |metric: &str| values(&server["runs"], |run| &run["metrics"][metric]);
            let series = Series {
                runs: runs(server),
                shown: Runs {
                    spectrum: spectrum(&server["runs"]),
                    ..charted(&of)
                },
                reach,
                of: sameness::of_lab(work, server),
                misses: median(&of(MISSES)),
                body_bytes: median(&of(BODY_BYTES)),
            };
            if !series.runs.is_empty() {
                all.insert(name.join(", "), series);
            }
        }
    }
    all
}

fn of_ab(result: &Value, metric: &str) -> BTreeMap<String, Series> {
    let samples = &result["recording"]["samples"];
    let runs = |side: &str| values(&samples[side], |run| &run[metric]);
    let reach = reach(&runs("a"), &runs("control"));
    let sides = ["a", "b"].map(|side| {
        let name = result[side].as_str().unwrap_or(side).to_owned();
        let of = |metric: &str| values(&samples[side], |run| &run[metric]);
        let series = Series {
            runs: runs(side),
            shown: charted(&of),
            reach,
            of: sameness::of_ab(result, side),
            misses: median(&of(MISSES)),
            body_bytes: median(&of(BODY_BYTES)),
        };
        (name, series)
    });
    sides
        .into_iter()
        .filter(|(_, series)| !series.runs.is_empty())
        .collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let samples = Samples::new(values.iter().copied()).ok()?;
    Some(samples.median())
}

/// What charts show beside the metric that is compared.
fn charted(of: &dyn Fn(&str) -> Vec<f64>) -> Runs {
    Runs {
        cpu: of("server_cpu_ns_per_request"),
        user: of("server_user_ns_per_request"),
        system: of("server_system_ns_per_request"),
        rate: of("requests_per_second"),
        ..Runs::default()
    }
}

/// The distribution of the run in the middle by its p99.
fn spectrum(runs: &Value) -> Vec<(f64, f64)> {
    let mut runs: Vec<&Value> = runs.as_array().into_iter().flatten().collect();
    let p99 = |run: &Value| run["metrics"]["latency_p99_ns"].as_f64().unwrap_or(0.0);
    runs.sort_by(|a, b| p99(a).total_cmp(&p99(b)));
    let points = runs
        .get(runs.len() / 2)
        .and_then(|run| run["spectrum"].as_array());
    let points = points.into_iter().flatten();
    points
        .filter_map(|at| Some((at[0].as_f64()?, at[1].as_f64()?)))
        .collect()
}

/// A row with its runs.
fn pair(row: &Row, before: &Series, after: &Series) -> Option<Pair> {
    let ratio = row.ratio?;
    let change = match row.change {
        Change::Better => "better",
        Change::Same => "no change is shown",
        Change::Worse => "worse",
        Change::NoControl => {
            "they differ, and without a control nothing says whether equal servers do"
        }
        Change::TooFew => "too few runs to mean anything",
        Change::OtherWork => "but the two did not do the same work, so it means nothing",
    };
    let reach = row.reach.map_or(String::new(), |reach| {
        format!("; two equal servers differ by up to {reach:.3}")
    });
    let runs = |of: &Series| Runs {
        compared: of.runs.clone(),
        ..of.shown.clone()
    };
    Some(Pair {
        name: row.name.clone(),
        sentence: format!(
            "After is {:.3} of before, 95 % interval {:.3} to {:.3}{reach}: {change}.",
            ratio.value, ratio.low, ratio.high
        ),
        lane: Lane {
            label: row.name.clone(),
            ratio: Some(ratio),
            equal: row.reach,
            difference: match row.change {
                Change::Better => Difference::Better,
                Change::Worse => Difference::Worse,
                Change::Same | Change::NoControl | Change::TooFew | Change::OtherWork => {
                    Difference::NotShown
                }
            },
        },
        before: runs(before),
        after: runs(after),
    })
}

/// How far from equal two equal servers were, as a factor.
fn reach(base: &[f64], control: &[f64]) -> Option<f64> {
    let ratio = Bootstrap::default().paired_ratio(base, control).ok()?;
    Some(ratio.high.max(1.0 / ratio.low))
}

fn row(name: &str, a: &Series, b: &Series, threshold: f64, higher_is_better: bool) -> Row {
    let bootstrap = Bootstrap::default();
    let ratio = bootstrap.ratio_of_medians(&a.runs, &b.runs).ok();
    let p = bootstrap.same_distribution(&a.runs, &b.runs).ok();
    let reach = [a.reach, b.reach].into_iter().flatten().reduce(f64::max);
    let mut row = Row {
        name: name.to_owned(),
        ratio,
        p,
        reach,
        runs: (a.runs.len(), b.runs.len()),
        change: Change::TooFew,
    };
    let misses = a.misses.zip(b.misses);
    let bodies = a.body_bytes.zip(b.body_bytes);
    if misses.is_some_and(|(a, b)| (a - b).abs() > MISSES_APART)
        || bodies.is_some_and(|(a, b)| lengths_differ(a as u64, b as u64))
    {
        row.change = Change::OtherWork;
        return row;
    }
    let enough = row.runs.0.min(row.runs.1) >= ROUNDS_MIN;
    if let (true, Some(ratio), Some(p)) = (enough, ratio, p) {
        // As a cost: above 1 is worse.
        let (value, low, high) = match higher_is_better {
            true => (1.0 / ratio.value, 1.0 / ratio.high, 1.0 / ratio.low),
            false => (ratio.value, ratio.low, ratio.high),
        };
        let by_chance = p >= LEVEL;
        let within = |factor: f64| reach.is_some_and(|reach| factor <= reach);
        let beyond = low > 1.0 + threshold || high < 1.0 / (1.0 + threshold);
        row.change = if by_chance || !beyond {
            Change::Same
        } else if reach.is_none() {
            Change::NoControl
        } else if value > 1.0 && !within(value) {
            Change::Worse
        } else if value < 1.0 && !within(1.0 / value) {
            Change::Better
        } else {
            Change::Same
        };
    }
    row
}

fn verdict(rows: &[Row], threshold: f64) -> String {
    let count = |change| rows.iter().filter(|row| row.change == change).count();
    let (worse, better) = (count(Change::Worse), count(Change::Better));
    let all = rows.len();
    if count(Change::OtherWork) > 0 {
        return format!(
            "not trustworthy: in {} of {all} the two did not do the same work: one's reads found nothing more often, or its \
             HTTP bodies have another length",
            count(Change::OtherWork)
        );
    }
    if count(Change::TooFew) > 0 {
        return format!("not trustworthy: fewer than {ROUNDS_MIN} runs on a side mean nothing");
    }
    if count(Change::NoControl) > 0 {
        return format!(
            "not trustworthy: {} of {all} differ, and without a control nothing says whether equal servers do",
            count(Change::NoControl)
        );
    }
    match (worse, better) {
        (0, 0) => format!("no change of more than {threshold} % is shown in any of {all}"),
        (0, better) => format!("better in {better} of {all}, a regression in none"),
        (worse, better) => format!("a regression in {worse} of {all}, better in {better}"),
    }
}

fn cells(row: &Row) -> [String; 6] {
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let interval = row
        .ratio
        .map(|ratio| format!("{:.3}..{:.3}", ratio.low, ratio.high));
    [
        row.name.clone(),
        shown(row.ratio.map(|ratio| ratio.value)),
        interval.unwrap_or("-".into()),
        shown(row.p),
        shown(row.reach),
        match row.change {
            Change::Better => "better",
            Change::Same => "same",
            Change::Worse => "worse",
            Change::NoControl => "no control",
            Change::TooFew => "too few runs",
            Change::OtherWork => "other work",
        }
        .to_owned(),
    ]
}

fn text(rows: &[Row], verdict: &str, metric: &str) -> String {
    let mut out =
        format!("{verdict}\n{metric}, B/A of medians, 95 % intervals; not taken in turns\n");
    let head = ["", "B/A", "interval", "p", "A/A", ""].map(str::to_owned);
    for [name, rest @ ..] in std::iter::once(head).chain(rows.iter().map(cells)) {
        // A string takes everything.
        let _ = write!(out, "{name:<36}");
        for (cell, width) in rest.iter().zip([6, 13, 5, 5, 12]) {
            let _ = write!(out, " {cell:>width$}");
        }
        out.push('\n');
    }
    out
}

fn markdown(rows: &[Row], verdict: &str, metric: &str) -> String {
    let mut out = format!("**{verdict}**\n\n`{metric}`, B/A of medians with 95 % intervals\n\n");
    out += "| | B/A | interval | p | A/A | |\n|---|---:|---|---:|---:|---|\n";
    for cells in rows.iter().map(cells) {
        // Characters that would end a cell or the line.
        let clean = cells.map(|cell| cell.replace('|', "\\|").replace(['\n', '\r'], " "));
        let _ = writeln!(out, "| {} |", clean.join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(around: f64) -> Series {
        Series {
            runs: (0..12)
                .map(|n| around * (1.0 + 0.002 * f64::from(n)))
                .collect(),
            reach: Some(1.01),
            ..Series::default()
        }
    }

    #[test]
    fn changes_are_called_by_their_direction_and_only_beyond_the_threshold() {
        let change = |factor: f64, higher| {
            row("x", &series(10.0), &series(10.0 * factor), 0.02, higher).change
        };
        assert_eq!(change(1.1, false), Change::Worse);
        assert_eq!(change(1.1, true), Change::Better);
        assert_eq!(change(0.9, false), Change::Better);
        assert_eq!(change(0.9, true), Change::Worse);
        assert_eq!(change(1.0, false), Change::Same);
        assert_eq!(change(1.015, false), Change::Same);
    }

    #[test]
    fn a_machine_that_makes_up_as_much_by_itself_shows_nothing() {
        let noisy = Series {
            reach: Some(1.2),
            ..series(11.0)
        };
        assert_eq!(
            row("x", &series(10.0), &noisy, 0.02, false).change,
            Change::Same
        );
        let few = Series {
            runs: vec![1.0; 5],
            ..Series::default()
        };
        assert_eq!(row("x", &few, &few, 0.02, false).change, Change::TooFew);
    }

    #[test]
    fn what_a_result_says_against_itself_is_said_again() {
        let report = serde_json::json!({"result": {"doubts": ["not trustworthy: x"]}});
        let said = doubts("after", &report);
        assert_eq!(said, ["not trustworthy: x (said by the result after)"]);
        assert!(doubts("after", &serde_json::json!({"result": {}})).is_empty());
    }

    #[test]
    fn a_server_that_does_other_work_is_not_called_better() {
        let with = |around: f64, misses: f64, body_bytes: f64| Series {
            misses: Some(misses),
            body_bytes: Some(body_bytes),
            ..series(around)
        };
        let change = |b: &Series| row("x", &with(10.0, 0.0, 1_000.0), b, 0.02, false).change;
        assert_eq!(change(&with(5.0, 0.001, 1_001.0)), Change::Better);
        assert_eq!(change(&with(5.0, 0.5, 1_000.0)), Change::OtherWork);
        assert_eq!(change(&with(5.0, 0.0, 10.0)), Change::OtherWork);
        let rows = [row(
            "x",
            &with(10.0, 0.0, 9.0),
            &with(5.0, 1.0, 9.0),
            0.02,
            false,
        )];
        assert!(verdict(&rows, 2.0).starts_with("not trustworthy: in 1 of 1"));
    }

    #[test]
    fn markdown_keeps_its_cells() {
        let rows = [row("a|b\nc", &series(1.0), &series(2.0), 0.02, false)];
        let text = markdown(&rows, &verdict(&rows, 2.0), "m");
        assert!(text.contains("| a\\|b c | 2.000 |"), "{text}");
        assert!(text.starts_with("**a regression in 1 of 1"), "{text}");
    }
}
