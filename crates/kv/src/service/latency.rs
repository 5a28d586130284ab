//! LATENCY: what took longer than it should, and how long commands take.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::call::{Call, Flow};
use super::spikes::Series;
use super::table::table;
use crate::commands::Error;
use crate::commands::subcommands::Subcommands;

/// The subcommands of LATENCY.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("doctor", 2),
    ("graph", 3),
    ("help", 2),
    ("histogram", -2),
    ("history", 3),
    ("latest", 2),
    ("reset", -2),
];

/// Runs LATENCY.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    let shared = call.shared.clone();
    let spikes = shared.spikes.all();
    match (&sub[..], &call.args[2..]) {
        (b"latest", []) => {
            call.reply.array(spikes.len());
            for (event, series) in &*spikes {
                let (at_s, ms) = series.samples.back().copied().unwrap_or_default();
                call.reply.array(4);
                call.reply.bulk(event.as_bytes());
                call.reply.integer(at_s as i64);
                call.reply.integer(ms as i64);
                call.reply.integer(series.longest_ms as i64);
            }
        }
        (b"history", [event]) => {
            let series = find(&spikes, event);
            call.reply.array(series.map_or(0, |s| s.samples.len()));
            for (at_s, ms) in series.into_iter().flat_map(|s| &s.samples) {
                call.reply.array(2);
                call.reply.integer(*at_s as i64);
                call.reply.integer(*ms as i64);
            }
        }
        (b"graph", [event]) => match find(&spikes, event) {
            Some(series) => {
                let now_s = call.link.wall().as_secs();
                let event = String::from_utf8_lossy(event).to_ascii_lowercase();
                call.reply.verbatim(&graph(&event, series, now_s));
            }
            None => {
                let none = Error::quoting("ERR No samples available for event '", event, "'");
                call.reply.error(none.0);
            }
        },
        (b"reset", events) => {
            drop(spikes);
            let mut spikes = shared.spikes.all();
            let before = spikes.len();
            spikes.retain(|event, _| {
                let is_it = |other: &&[u8]| other.eq_ignore_ascii_case(event.as_bytes());
                !(events.is_empty() || events.iter().any(is_it))
            });
            call.reply.integer((before - spikes.len()) as i64);
        }
        (b"doctor", []) => {
            let threshold_ms = shared.config.spikes_ms.load(Relaxed);
            call.reply.verbatim(&advice(&spikes, threshold_ms));
        }
        (b"histogram", names) => histogram(call, names),
        (b"help", []) => call.help(&[
            "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DOCTOR",
            "    Say in words what has taken long, and what may help.",
            "GRAPH <event>",
            "    Draw the samples of an event.",
            "HISTOGRAM [<command> ...]",
            "    Return how many calls of commands took up to how many microseconds.",
            "HISTORY <event>",
            "    Return the samples of an event, as time and milliseconds.",
            "LATEST",
            "    Return the newest and the longest sample of each event.",
            "RESET [<event> ...]",
            "    Forget the samples of events (default: of all).",
        ]),
        _ => call.subcommand_error("latency"),
    }
    Flow::Done
}

fn find<'s>(spikes: &'s BTreeMap<&'static str, Series>, event: &[u8]) -> Option<&'s Series> {
    let mut all = spikes.iter();
    let found = all.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(event))?;
    Some(found.1)
}

fn histogram(call: &mut Call<'_, '_>, names: &[&[u8]]) {
    let shared = call.shared.clone();
    let wanted = |name: &str| {
        let is_it = |other: &&[u8]| other.eq_ignore_ascii_case(name.as_bytes());
        names.is_empty() || names.iter().any(is_it)
    };
    shared.stats.read(|now, before| {
        let times = table().all().iter().filter(|entry| wanted(entry.name));
        let times = times.filter_map(|entry| {
            let sum = now.times_since(before, entry.id)?;
            (sum.calls() > 0).then_some((entry.name, sum))
        });
        let times: Vec<_> = times.collect();
        call.reply.map(times.len());
        for (name, sum) in times {
            let steps = sum.cumulative();
            call.reply.bulk(name.as_bytes());
            call.reply.map(2);
            call.reply.bulk(b"calls");
            call.reply.integer(sum.calls() as i64);
            call.reply.bulk(b"histogram_usec");
            call.reply.map(steps.len());
            for (us, calls) in steps {
                call.reply.integer(us as i64);
                call.reply.integer(calls as i64);
            }
        }
    });
}

/// The section of INFO.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let percentiles = call.shared.config.percentiles();
    call.shared.stats.read(|now, before| {
        for entry in table().all() {
            let Some(sum) = now.times_since(before, entry.id) else {
                continue;
            };
            if sum.calls() == 0 {
                continue;
            }
            let one = |percent: &f64| {
                let us = sum.percentile(*percent) as f64 / 1e3;
                format!("p{percent}={us:.3}")
            };
            let all: Vec<String> = percentiles.iter().map(one).collect();
            let name = format!("latency_percentiles_usec_{}", entry.name);
            super::section::line(text, &name, all.join(","));
        }
    });
}

/// Columns of bars, the newest at the right, and below them how long ago that was.
fn graph(event: &str, series: &Series, now_s: u64) -> String {
    /// Number of bars in a graph, and of the steps of their height.
    const BARS: usize = 80;
    const STEPS: u64 = 8;
    let skipped = series.samples.len().saturating_sub(BARS);
    let shown: Vec<(u64, u64)> = series.samples.iter().skip(skipped).copied().collect();
    let most = shown.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let least = shown.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let mut text = format!(
        "{event} - high {most} ms, low {least} ms (all time high {} ms)\n{}\n",
        series.longest_ms,
        "-".repeat(BARS)
    );
    for row in (0..STEPS).rev() {
        let bar = |(_, ms): &(u64, u64)| {
            let height = (ms * STEPS).div_ceil(most.max(1));
            if height > row { '#' } else { ' ' }
        };
        let line: String = shown.iter().map(bar).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let ages: Vec<String> = shown
        .iter()
        .map(|(at, _)| age(now_s.saturating_sub(*at)))
        .collect();
    let rows = ages.iter().map(String::len).max().unwrap_or(0);
    for row in 0..rows {
        let letter = |age: &String| char::from(*age.as_bytes().get(row).unwrap_or(&b' '));
        let line: String = ages.iter().map(letter).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Seconds in two letters or three.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn advice(spikes: &BTreeMap<&'static str, Series>, threshold_ms: u64) -> String {
    if spikes.is_empty() {
        return match threshold_ms {
            0 => "Nothing is watched: set latency-monitor-threshold to the milliseconds from which on \
                  something takes too long.\n"
                .to_owned(),
            ms => format!("Nothing has taken {ms} ms or more.\n"),
        };
    }
    let mut text = String::new();
    for (event, series) in spikes {
        let n = series.samples.len() as u64;
        let mean = series.samples.iter().map(|(_, ms)| ms).sum::<u64>() / n.max(1);
        let _ = writeln!(
            text,
            "{event}: {n} samples, {mean} ms on average, {} ms at most. {}",
            series.longest_ms,
            match *event {
                "fast-command" =>
                    "These are commands that are quick by themselves: look for other load on this \
                     machine, swapping, or more loops than processors.",
                "expire-cycle" => "Many keys expire at once: spread their times.",
                _ => "SLOWLOG GET shows which commands these are.",
            }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::spikes::{SAMPLES, Spikes};

    #[test]
    fn a_second_has_one_sample_and_there_are_not_too_many() {
        let spikes = Spikes::default();
        for (at_s, ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            spikes.add("command", at_s, ms);
        }
        {
            let all = spikes.all();
            let series = &all["command"];
            assert_eq!(series.samples, [(1, 9), (2, 3)]);
            assert_eq!(series.longest_ms, 9);
            let drawn = graph("command", series, 63);
            assert!(
                drawn.starts_with("command - high 9 ms, low 3 ms (all time high 9 ms)\n"),
                "{drawn}"
            );
            assert!(drawn.ends_with("\n##\n##\n##\n11\nmm\n"), "{drawn}");
        }
        for at_s in 3..1000 {
            spikes.add("command", at_s, 1);
        }
        assert_eq!(spikes.all()["command"].samples.len(), SAMPLES);
    }
}
