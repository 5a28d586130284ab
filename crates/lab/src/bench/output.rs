//! Results for people, and the header of results for machines.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tidewire_load::environment::Environment;
use tidewire_load::histogram::LatencySummary;
use tidewire_load::meter::Metered;
use tidewire_load::report::Report;
use tidewire_load::stats::Samples;
use tidewire_load::trust::Trust;
use tidewire_load::workload::{Outcome, Plan, Round, Schedule};

use super::ceiling::Ceiling;
use tidewire_command::exit::Failure;
use tidewire_load::numbers::{grouped, micros};

/// The parts of a run that are shown.
#[derive(Clone, Copy)]
pub(super) struct Ran<'a> {
    pub(super) plan: &'a Plan,
    pub(super) outcome: &'a Outcome,
    pub(super) trust: &'a Trust,
    pub(super) ceiling: Option<&'a Ceiling>,
}

/// A run as a few lines.
pub(super) fn text(ran: &Ran<'_>) -> String {
    let Ran {
        plan,
        outcome,
        trust,
        ceiling,
    } = *ran;
    let unit = plan.workload.unit();
    let mut lines = Lines::default();
    lines.add(
        &format!("{unit}/s"),
        &format!(
            "{}   ({} in {:.3} s)",
            grouped(outcome.requests_per_second()),
            grouped(outcome.requests as f64),
            outcome.elapsed.as_secs_f64()
        ),
    );
    lines.add("MiB/s", &format!("{:.1}", outcome.mib_per_second()));
    if !outcome.rounds.is_empty() {
        lines.add("rounds", &rounds(&outcome.rounds));
    }
    match &outcome.schedule {
        None => {
            if let Some(latency) = &outcome.latency {
                lines.add("latency", &latencies(latency));
            }
        }
        Some(schedule) => scheduled(&mut lines, schedule, outcome.latency.as_ref()),
    }
    match &outcome.metered {
        Some(metered) => cpu(&mut lines, metered, outcome),
        None => lines.add(
            "server CPU",
            "not measured: no process of this user listens there; see --pid",
        ),
    }
    if let Some(ceiling) = ceiling {
        lines.add("ceiling", &ceiling_of(ceiling, outcome));
    }
    if let Some(reads) = &outcome.reads {
        let share = reads.miss_share().unwrap_or_default() * 100.0;
        lines.add(
            "reads",
            &format!(
                "{} found something, {} nothing ({share:.1} %)",
                grouped(reads.hits as f64),
                grouped(reads.misses as f64)
            ),
        );
    }
    if let Some(reconnects) = &outcome.reconnects {
        let n = |n: u64| grouped(n as f64);
        let lost = match reconnects.lost {
            0 => String::new(),
            lost => format!(", {} messages lost", n(lost)),
        };
        lines.add(
            "reconnects",
            &format!(
                "{} connections made again, {} messages sent again{lost}",
                n(reconnects.connections),
                n(reconnects.resent)
            ),
        );
    }
    if let Some(memory) = &outcome.memory {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
        let each = memory.bytes_per_connection;
        let each = each.map_or_else(String::new, |bytes| {
            format!(", {} bytes a connection", grouped(bytes))
        });
        lines.add("memory", &format!("{}{each}", mib(memory.end_bytes)));
    }
    if let Some(kernel) = &outcome.kernel {
        let n = |n: u64| grouped(n as f64);
        let (tcp, listen) = (&kernel.tcp, &kernel.listen);
        lines.add(
            "kernel",
            &format!(
                "{} of {} segments sent again, {} listen overflows",
                n(tcp.retransmitted),
                n(tcp.sent),
                n(listen.overflows)
            ),
        );
    }
    if plan.is_lock_step() && plan.arrivals.rate().is_none() {
        lines.add(
            "note",
            "lock-step: neither side is busy, the rate is that of the round trip",
        );
    }
    if let (Some(rate), Some(schedule)) = (plan.arrivals.rate(), &outcome.schedule) {
        let share = outcome.requests_per_second() / rate.per_second * 100.0;
        let offered = grouped(rate.per_second);
        let mut note = format!("{share:.1} % of the {offered} {unit}/s offered");
        if schedule.unsent > 0 {
            let unsent = grouped(schedule.unsent as f64);
            note += &format!("; {unsent} were due and not yet sent at the end");
        }
        lines.add("note", &note);
    }
    for reason in &trust.reasons {
        lines.add("note", &reason.text);
    }
    lines.add("verdict", &trust.standing.to_string());
    lines.0
}

fn ceiling_of(ceiling: &Ceiling, outcome: &Outcome) -> String {
    let most = ceiling.requests_per_second;
    let share = outcome.requests_per_second() / most.max(f64::MIN_POSITIVE) * 100.0;
    let (more, why) = match ceiling.reached {
        true => ("", String::new()),
        false => (
            "more than ",
            format!(", {:.0} % busy", ceiling.generator_busy_share * 100.0),
        ),
    };
    format!(
        "{more}{} a second, by this generator{why} against a server that answers from nothing; this run had {share:.0} % of that",
        grouped(most)
    )
}

/// The results of an open-loop load: both latencies, and the generator's own lateness.
fn scheduled(lines: &mut Lines, schedule: &Schedule, sent: Option<&LatencySummary>) {
    if let Some(latency) = &schedule.latency {
        lines.add(
            "latency",
            &format!("{} (from when it was due)", latencies(latency)),
        );
    }
    if let Some(latency) = sent {
        lines.add("from send", &latencies(latency));
    }
    if let Some(slip) = &schedule.slip {
        lines.add(
            "slip",
            &format!("{} (the generator's own)", latencies(slip)),
        );
    }
}

fn cpu(lines: &mut Lines, metered: &Metered, outcome: &Outcome) {
    let each = |ns: u64| ns as f64 / 1e3 / outcome.requests.max(1) as f64;
    let (server, generator) = (&metered.server, &metered.generator);
    lines.add(
        "server CPU",
        &format!(
            "{} each, {:.0} % of {} (user {:.0} %, system {:.0} %)",
            micros(each(server.total_ns)),
            metered.server_busy(outcome.server_cores) * 100.0,
            cores(outcome.server_cores),
            share(server.user_ns, metered.elapsed),
            share(server.system_ns, metered.elapsed),
        ),
    );
    lines.add(
        "both CPU",
        &format!(
            "{} each, the generator {:.0} % of one core",
            micros(each(server.total_ns + generator.total_ns)),
            share(generator.total_ns, metered.elapsed),
        ),
    );
}

fn cores(n: usize) -> String {
    if n == 1 {
        "its core".into()
    } else {
        format!("{n} cores")
    }
}

fn share(ns: u64, of: Duration) -> f64 {
    ns as f64 / of.as_nanos().max(1) as f64 * 100.0
}

fn rounds(rounds: &[Round]) -> String {
    let rates = rounds
        .iter()
        .map(|r| r.messages as f64 / r.elapsed.as_secs_f64().max(1e-9));
    match Samples::new(rates) {
        Ok(rates) => format!(
            "{}: median {} messages/s, slowest {}, fastest {}",
            rounds.len(),
            grouped(rates.median()),
            grouped(rates.min()),
            grouped(rates.max())
        ),
        Err(e) => format!("{}: {e}", rounds.len()),
    }
}

fn latencies(of: &LatencySummary) -> String {
    let us = |ns: u64| micros(ns as f64 / 1e3);
    format!(
        "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        us(of.p50_ns),
        us(of.p90_ns),
        us(of.p99_ns),
        us(of.p99_9_ns),
        us(of.max_ns)
    )
}

/// Width of the names in front of figures.
pub(super) const NAMES: usize = 13;

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        // A string takes everything.
        let _ = writeln!(self.0, "{name:<NAMES$} {value}");
    }
}

/// Facts about this machine, now.
pub(crate) fn environment() -> Environment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Environment::read(utc(since.unwrap_or_default().as_secs()))
}

/// Writes a result where the user wants it.
pub(crate) fn write<R: Serialize>(
    path: &Path,
    kind: &str,
    environment: Environment,
    result: R,
) -> Result<(), Failure> {
    write_report(path, &report(kind, environment, result))
}

/// A result of this command, with its header.
pub(crate) fn report<R: Serialize>(kind: &str, environment: Environment, result: R) -> Report<R> {
    // An argument that is not UTF-8 is the name of a file, and no reason to fail at the end.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    Report::new(kind, words, environment, result)
}

/// A result with its header as JSON, as a page carries it.
pub(super) fn carried<R: Serialize>(kind: &str, environment: &Environment, result: &R) -> String {
    serde_json::to_string(&report(kind, environment.clone(), result)).unwrap_or_default()
}

/// Writes a result with its header where the user wants it.
pub(crate) fn write_report<R: Serialize>(path: &Path, report: &Report<R>) -> Result<(), Failure> {
    report
        .write(path)
        .map_err(|e| Failure::failed(e.to_string()))
}

/// A time of day as ISO 8601 has it. Days are turned into a date by counting years from a March:
/// leap days then come last.
fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_over_leap_days_and_ends_of_years() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
