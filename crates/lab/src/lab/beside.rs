//! How the base of a matrix does beside each other server, in one sentence.
//!
//! The idea: a reader asks about one server, the base, and about each other one once. So servers are grouped by what may
//! be said of them: level, behind the base, ahead of it, or not decided. *Level* is a claim too: the whole interval lies
//! within what two equal servers differed by. An interval that is wider decides nothing, and the sentence says so.

use tidewire_load::abba::Verdict;
use tidewire_load::page::Difference;
use tidewire_load::stats::Estimate;

use super::result::{CPU, Column, Matrix, Row};

/// What is compared where no CPU was measured.
const RATE: &str = "requests_per_second";
/// A factor that is level however steady the machine is.
const LEVEL: f64 = 1.05;

/// The figure that a matrix is judged by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// CPU of the server for each request.
    Cpu,
    /// Answers a second, as nothing is known of the server's CPU.
    Rate,
}

/// Another server, held against the base as a cost: above 1, the other one needs more, or does less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) ratio: Estimate,
    /// How far the ratio of two equal servers reaches, as a factor.
    pub(super) equal: Option<f64>,
    verdict: Verdict,
}

/// What may be said of the base beside another server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    /// The other needs so many times as much.
    Ahead(f64),
    /// The base needs so many times as much.
    Behind(f64),
    Level,
    Open,
}

impl Judged {
    /// CPU, if any server has it.
    pub(super) fn of(matrix: &Matrix) -> Judged {
        let mut columns = matrix.workloads.iter().flat_map(|row| &row.servers);
        match columns.any(|column| Judged::Cpu.beside(column).is_some()) {
            true => Judged::Cpu,
            false => Judged::Rate,
        }
    }

    /// The words for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Judged::Cpu => "CPU per request",
            Judged::Rate => "throughput",
        }
    }

    /// The comparison of this server with the base, if there is one that has a ratio.
    pub(super) fn beside(self, column: &Column) -> Option<Beside> {
        let metric = match self {
            Judged::Cpu => CPU,
            Judged::Rate => RATE,
        };
        let compared = column.comparison(metric)?;
        let ratio = compared.ratio?;
        let cost = match self {
            Judged::Cpu => ratio,
            Judged::Rate => Estimate {
                value: 1.0 / ratio.value,
                low: 1.0 / ratio.high,
                high: 1.0 / ratio.low,
            },
        };
        Some(Beside {
            ratio: cost,
            equal: compared.control_reach(),
            verdict: compared.verdict,
        })
    }
}

impl Beside {
    fn said(&self) -> Said {
        let Estimate { value, low, high } = self.ratio;
        if self.verdict.is_shown() {
            return match value > 1.0 {
                true => Said::Ahead(value),
                false => Said::Behind(1.0 / value),
            };
        }
        let within = self.equal.unwrap_or(1.0).max(LEVEL);
        let is_level =
            self.verdict != Verdict::TooFewRounds && high <= within && low >= 1.0 / within;
        match is_level {
            true => Said::Level,
            false => Said::Open,
        }
    }

    /// The difference as a picture shows it: of the other server.
    pub(super) fn difference(&self) -> Difference {
        match self.said() {
            Said::Ahead(_) => Difference::Worse,
            Said::Behind(_) => Difference::Better,
            Said::Level | Said::Open => Difference::NotShown,
        }
    }
}

/// Another server under the workloads of one base.
struct Other<'a> {
    name: &'a str,
    /// How many workloads it was compared under.
    all: usize,
    said: Vec<(&'a str, Said)>,
    failed: Vec<&'a str>,
}

/// How far the ratios of two equal servers reach, the least and the most of all workloads.
fn equal(rows: &[Row], by: Judged) -> Option<(f64, f64)> {
    let columns = rows.iter().flat_map(|row| &row.servers);
    let reaches = columns.filter_map(|column| by.beside(column)?.equal);
    reaches.fold(None, |span, reach| {
        let (least, most) = span.unwrap_or((reach, reach));
        Some((reach.min(least), reach.max(most)))
    })
}

/// What a matrix comes to: a sentence about each base, or the reason why there is none.
pub(super) fn verdict(matrix: &Matrix) -> Vec<String> {
    match matrix.doubt() {
        Some(doubt) => vec![doubt],
        None => sentences(&matrix.workloads, Judged::of(matrix)),
    }
}

/// A sentence for each base, in the order of the workloads.
pub(super) fn sentences(rows: &[Row], by: Judged) -> Vec<String> {
    let mut bases: Vec<(&str, Vec<Other<'_>>)> = Vec::new();
    for row in rows {
        let at = bases.iter().position(|(base, _)| *base == row.base);
        let at = at.unwrap_or_else(|| {
            bases.push((&row.base, Vec::new()));
            bases.len() - 1
        });
        let others = &mut bases[at].1;
        for column in row.servers.iter().filter(|column| !column.control) {
            let is_base = column.name == row.base;
            if is_base && column.fault.is_none() {
                continue;
            }
            let at = others.iter().position(|other| other.name == column.name);
            let at = at.unwrap_or_else(|| {
                others.push(Other {
                    name: &column.name,
                    all: 0,
                    said: Vec::new(),
                    failed: Vec::new(),
                });
                others.len() - 1
            });
            let other = &mut others[at];
            other.all += 1;
            if column.fault.is_some() {
                other.failed.push(&row.name);
            } else if let Some(beside) = by.beside(column) {
                other.said.push((&row.name, beside.said()));
            }
        }
    }
    let mut sentences: Vec<String> = bases
        .iter()
        .filter_map(|(base, others)| sentence(base, others, by))
        .collect();
    if let (false, Some((least, most))) = (sentences.is_empty(), equal(rows, by)) {
        sentences.push(format!(
            "Two equal servers differed by up to {}{}: no smaller difference can be seen here.",
            span(least, most),
            if rows.len() > 1 {
                ", depending on the load"
            } else {
                ""
            }
        ));
    }
    sentences
}

fn sentence(base: &str, others: &[Other<'_>], by: Judged) -> Option<String> {
    let clause =
        |words: &str, of: Vec<String>| (!of.is_empty()).then(|| format!("{words} {}", listed(&of)));
    let is_far = |other: &Other<'_>| {
        let mut said = other.said.iter();
        said.any(|(_, said)| matches!(said, Said::Ahead(_) | Said::Behind(_)))
    };
    let near = |level: bool| -> Vec<String> {
        let near = others
            .iter()
            .filter(|other| !other.said.is_empty() && !is_far(other));
        let of =
            near.filter(|other| other.said.iter().all(|(_, said)| *said == Said::Level) == level);
        of.map(|other| quoted(other.name)).collect()
    };
    let far = |factor: fn(Said) -> Option<f64>| -> Vec<String> {
        others.iter().filter_map(|other| other.by(factor)).collect()
    };
    let failed = others.iter().filter(|other| !other.failed.is_empty());
    let failed =
        failed.map(|other| format!("{}{}", quoted(other.name), among(&other.failed, other.all)));
    let clauses = [
        clause("level with", near(true)),
        clause(
            "ahead of",
            far(|said| match said {
                Said::Ahead(factor) => Some(factor),
                _ => None,
            }),
        ),
        clause(
            "behind",
            far(|said| match said {
                Said::Behind(factor) => Some(factor),
                _ => None,
            }),
        ),
        clause("not decided beside", near(false)),
    ];
    let said: Vec<String> = clauses.into_iter().flatten().collect();
    let said =
        (!said.is_empty()).then(|| format!("In {}, {base} is {}.", by.name(), said.join("; ")));
    let failed = clause("Failed:", failed.collect()).map(|failed| failed + ".");
    let all: Vec<String> = said.into_iter().chain(failed).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

impl Other<'_> {
    /// By which factor, and under which workloads unless under all.
    fn by(&self, factor: fn(Said) -> Option<f64>) -> Option<String> {
        let found = self
            .said
            .iter()
            .filter_map(|(name, said)| Some((*name, factor(*said)?)));
        let (names, factors): (Vec<&str>, Vec<f64>) = found.unzip();
        let least = factors.iter().copied().reduce(f64::min)?;
        let most = factors.iter().copied().fold(least, f64::max);
        Some(format!(
            "{} by {}{}",
            quoted(self.name),
            span(least, most),
            among(&names, self.all)
        ))
    }
}

/// Two factors, or one if they look alike.
fn span(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(|of| match of {
        10.0.. => format!("{of:.0}x"),
        _ => format!("{of:.2}x"),
    });
    match least == most {
        true => least,
        false => format!("{least} to {most}"),
    }
}

/// Which workloads are meant, unless all are.
fn among(names: &[&str], all: usize) -> String {
    match names.len() {
        few if few == all => String::new(),
        1 | 2 => format!(" ({})", names.join("; ")),
        few => format!(" (in {few} of {all} loads)"),
    }
}

/// A name in a list: in quotes if it has the words of one.
fn quoted(name: &str) -> String {
    match name.contains(',') || name.contains(" and ") {
        true => format!("\u{201c}{name}\u{201d}"),
        false => name.to_owned(),
    }
}

/// Names as a sentence has them.
fn listed(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(value: f64, low: f64, high: f64, equal: f64, verdict: Verdict) -> Said {
        let ratio = Estimate { value, low, high };
        Beside {
            ratio,
            equal: Some(equal),
            verdict,
        }
        .said()
    }

    #[test]
    fn level_is_said_only_of_an_interval_within_the_control() {
        let none = Verdict::NoDifference;
        assert_eq!(beside(1.02, 0.95, 1.2, 1.25, none), Said::Level);
        assert_eq!(
            beside(1.02, 0.95, 1.3, 1.25, none),
            Said::Open,
            "may be 1.3"
        );
        assert_eq!(beside(1.0, 0.7, 1.1, 1.25, none), Said::Open, "may be 0.7");
        assert_eq!(beside(1.01, 0.99, 1.04, 1.01, none), Said::Level);
        assert_eq!(
            beside(1.0, 1.0, 1.0, 1.2, Verdict::TooFewRounds),
            Said::Open
        );
        assert_eq!(
            beside(1.1, 1.05, 1.15, 1.2, Verdict::WithinControl),
            Said::Level
        );
        assert_eq!(
            beside(2.0, 1.5, 2.5, 1.2, Verdict::Different),
            Said::Ahead(2.0)
        );
        assert_eq!(
            beside(0.5, 0.4, 0.6, 1.2, Verdict::Different),
            Said::Behind(2.0)
        );
    }

    fn other<'a>(name: &'a str, said: &[(&'a str, Said)]) -> Other<'a> {
        Other {
            name,
            all: said.len(),
            said: said.to_vec(),
            failed: Vec::new(),
        }
    }

    #[test]
    fn servers_are_grouped_and_loads_named_only_where_they_matter() {
        let (one, many) = ("one connection", "many");
        let others = [
            other("tokio", &[(one, Said::Level), (many, Said::Level)]),
            other("mio", &[(one, Said::Level), (many, Said::Level)]),
            other("may", &[(one, Said::Level), (many, Said::Open)]),
            other("go", &[(one, Said::Ahead(1.4)), (many, Said::Ahead(1.5))]),
            other("ringline", &[(one, Said::Open), (many, Said::Behind(1.1))]),
        ];
        assert_eq!(
            sentence("epoll", &others, Judged::Cpu).unwrap(),
            "In CPU per request, epoll is level with tokio and mio; ahead of go by 1.40x to 1.50x; behind ringline by \
             1.10x (many); not decided beside may."
        );
        let failed = Other {
            failed: vec![many],
            all: 2,
            ..other("liar", &[(one, Said::Level)])
        };
        let said = sentence("epoll", &[failed], Judged::Rate).unwrap();
        assert_eq!(
            said,
            "In throughput, epoll is level with liar. Failed: liar (many)."
        );
        assert_eq!(sentence("epoll", &[], Judged::Cpu), None);
        let named = [other("a, b and 2", &[(one, Said::Ahead(1.2))])];
        let said = sentence("epoll", &named, Judged::Cpu).unwrap();
        assert!(
            said.contains("ahead of \u{201c}a, b and 2\u{201d} by 1.20x"),
            "{said}"
        );
    }
}
