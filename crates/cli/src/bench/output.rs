//! Results for people, and the header of those for machines.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tidewire_ingest::{Level, client};
use tidewire_load::environment::Environment;
use tidewire_load::histogram::LatencySummary;
use tidewire_load::meter::{Metered, SATURATED, STEAL_MAX};
use tidewire_load::report::Report;
use tidewire_load::stats::Samples;
use tidewire_load::workload::{Outcome, Round, Workload};

use crate::exit::Failure;

/// A run as a few lines.
pub(super) fn text(workload: &Workload, lock_step: bool, outcome: &Outcome) -> String {
    let unit = match workload {
        Workload::Echo(_) | Workload::Http(_) => "requests",
        Workload::Kv(_) => "commands",
        Workload::Ack(_) | Workload::Native(_) | Workload::Discard(_) => "messages",
    };
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
    if let Some(latency) = &outcome.latency {
        lines.add("latency", &latencies(latency));
    }
    match &outcome.metered {
        Some(metered) => cpu(&mut lines, metered, outcome),
        None => lines.add("server CPU", "not measured: name its process with --pid"),
    }
    if let Some(metered) = &outcome.metered {
        let busy = metered.server_busy(outcome.server_cores);
        if let Some(offered) = offered(workload) {
            let share = outcome.requests_per_second() / offered * 100.0;
            let offered = grouped(offered);
            lines.add(
                "note",
                &format!("{share:.1} % of the {offered} requests/s offered"),
            );
        } else if lock_step {
            lines.add(
                "note",
                "lock-step: neither side is busy, the rate is that of the round trip",
            );
        } else if busy < SATURATED {
            lines.add("note", &unsaturated(busy * 100.0, metered));
        }
    }
    for doubt in outcome.metered.iter().flat_map(doubts) {
        lines.add("note", &doubt);
    }
    if outcome.interrupted {
        lines.add("note", "interrupted: figures are of what there was");
    }
    lines.0
}

/// What has disturbed the run.
fn doubts(metered: &Metered) -> Vec<String> {
    let mut doubts = Vec::new();
    let steal = metered
        .cores
        .iter()
        .map(|core| core.steal)
        .fold(0.0, f64::max);
    if steal > STEAL_MAX {
        doubts.push(format!(
            "the hypervisor took {:.0} % of a core",
            steal * 100.0
        ));
    }
    if metered.tcp.retransmitted > 0 {
        let (again, sent) = (metered.tcp.retransmitted, metered.tcp.sent);
        doubts.push(format!("{again} of {sent} TCP segments were sent again"));
    }
    doubts
}

/// What is sent, in a few words.
pub(super) fn described(workload: &Workload) -> String {
    match workload {
        Workload::Echo(load) => {
            let batch = match load.batch {
                0 => String::new(),
                batch => format!(", {batch} a write"),
            };
            let rate = load
                .rate
                .map_or_else(String::new, |rate| format!(", {rate} a second"));
            format!(
                "echo of {} bytes, {} in flight{batch}{rate}",
                load.size, load.pipeline
            )
        }
        Workload::Ack(load) => {
            let window = match load.window {
                0 => String::new(),
                window => format!(", window {window}"),
            };
            let (mode, len, batch) = (load.mode, load.message_len(), load.batch);
            let checks = load
                .checks
                .map_or("", |_| ", acknowledgements read now and then");
            let level = match load.level {
                Level::None => String::new(),
                level => format!(", level {level}"),
            };
            format!("ack/{mode} of {len} bytes, {batch} a write{window}{checks}{level}")
        }
        Workload::Native(load) => {
            let window = match load.window {
                0 => String::new(),
                window => format!(", window {window}"),
            };
            let level = match load.level {
                client::Level::Received => "received",
                client::Level::Durable => "durable",
            };
            let named = if load.named { ", with names" } else { "" };
            let pace = match load.rate {
                Some(rate) => format!("{rate} a second"),
                None => format!("{} a write", load.batch),
            };
            let len = load.message_len();
            format!("ingest of {len} bytes, {pace}{window}, level {level}{named}")
        }
        Workload::Http(load) => {
            let how = match load.close {
                true => "a connection for each".to_owned(),
                false => format!("{} in flight", load.pipeline),
            };
            format!("http {}, {how}", load.shown)
        }
        Workload::Kv(load) => format!(
            "kv/{} with {} keys of {} bytes, values of {} bytes, {:.0} % reads, {} in a pipeline",
            workload.mode().unwrap_or_default(),
            load.keys,
            load.key_size,
            load.size,
            load.reads * 100.0,
            load.pipeline
        ),
        Workload::Discard(load) => {
            format!("discard of {} bytes, {} a write", load.size, load.batch)
        }
    }
}

/// What a server that was not busy means.
fn unsaturated(server_percent: f64, metered: &Metered) -> String {
    let generator = share(metered.generator.total_ns, metered.elapsed);
    let who = if generator >= SATURATED * 100.0 {
        format!(
            "the generator is the bottleneck: the server was busy for {server_percent:.0} % only"
        )
    } else {
        format!(
            "neither side was busy (server {server_percent:.0} %, generator {generator:.0} %): they \
             waited for each other, or other processes took their cores"
        )
    };
    format!("{who}; the rate says nothing about the server")
}

/// The rate that was asked for.
fn offered(workload: &Workload) -> Option<f64> {
    match workload {
        Workload::Echo(load) => load.rate,
        Workload::Native(load) => load.rate,
        Workload::Http(load) => load.rate,
        Workload::Ack(_) | Workload::Kv(_) | Workload::Discard(_) => None,
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

fn micros(us: f64) -> String {
    match us {
        us if us >= 10_000.0 => format!("{:.1} ms", us / 1e3),
        us if us >= 100.0 => format!("{us:.0} us"),
        us if us >= 1.0 => format!("{us:.2} us"),
        us => format!("{:.1} ns", us * 1e3),
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        // A string takes everything.
        let _ = writeln!(self.0, "{name:<12} {value}");
    }
}

/// A whole number with commas.
pub(super) fn grouped(n: f64) -> String {
    let digits = format!("{:.0}", n.max(0.0));
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Facts about this machine, now.
pub(super) fn environment() -> Environment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Environment::read(utc(since.unwrap_or_default().as_secs()))
}

/// Writes a result where the user wants it.
pub(super) fn write<R: Serialize>(
    path: &Path,
    kind: &str,
    environment: Environment,
    result: R,
) -> Result<(), Failure> {
    let report = Report::new(kind, std::env::args(), environment, result);
    report
        .write(path)
        .map_err(|e| Failure::usage(e.to_string()))
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

    #[test]
    fn figures_are_grouped_and_units_fit() {
        assert_eq!(grouped(1_234_567.2), "1,234,567");
        assert_eq!(grouped(123.0), "123");
        assert_eq!(micros(0.0123), "12.3 ns");
        assert_eq!(micros(12_345.0), "12.3 ms");
    }
}
