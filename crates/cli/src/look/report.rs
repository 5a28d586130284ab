//! A page as text.

use std::fmt::Write;

use super::change::Change;
use super::columns::is_word;
use super::numbers::{bytes, count, known, percent, span, time};

/// Rows of a table that are shown.
const ROWS: usize = 20;

/// All there is to say, in a screen or two.
pub(super) fn report(change: &Change<'_>) -> String {
    let mut out = String::new();
    for (name, value) in facts(change) {
        line(&mut out, name, &value);
    }
    let services = services(change);
    table(&mut out, "services", &SERVICES, &services);
    table(&mut out, "loops", &LOOPS, &loops(change));
    let limits = change.limits().into_iter().take(ROWS);
    let limits: Vec<_> = limits
        .map(|(what, place, n)| vec![what, place, count(n)])
        .collect();
    table(
        &mut out,
        "limits reached",
        &["what", "where", "times"],
        &limits,
    );
    let closed = change.closed().into_iter().take(ROWS);
    let closed: Vec<_> = closed
        .map(|(reason, service, n)| vec![reason.to_owned(), service.to_owned(), count(n)])
        .collect();
    table(
        &mut out,
        "connections closed",
        &["reason", "service", "times"],
        &closed,
    );
    for (title, facts) in [
        ("log of messages", log(change, MESSAGES)),
        ("log of keys", log(change, KEYS)),
        ("key-value store", kv(change)),
    ] {
        if !facts.is_empty() {
            let _ = writeln!(out, "\n{title}");
        }
        for (name, value) in facts {
            line(&mut out, &format!("  {name}"), &value);
        }
    }
    out
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "{name:<22} {value}");
}

pub(super) const SERVICES: [&str; 8] = [
    "service", "at", "open", "accepted", "received", "sent", "refused", "closed",
];
pub(super) const LOOPS: [&str; 6] = ["loop", "open", "turns", "busy", "p99", "held"];

/// Facts of the server as a whole.
pub(super) fn facts(change: &Change<'_>) -> Vec<(&'static str, String)> {
    let page = change.now;
    let up = span(page.uptime_seconds);
    let doing = match &*page.doing {
        "" => String::new(),
        doing => format!(": {doing}"),
    };
    let held = bytes(change.sum("tidewire_held_bytes", &[]));
    let held_max = bytes(change.sum("tidewire_held_max_bytes", &[]));
    let stalls = change.sum("tidewire_loop_stalls_total", &[]);
    let stalled = time(change.sum("tidewire_loop_stalled_seconds_total", &[]));
    let late = (change.lag(0.5, &[]), change.lag(0.99, &[]));
    let cpu = change.sum("process_cpu_seconds_total", &[]);
    vec![
        (
            "state",
            format!(
                "{}{doing}, up {up}, pid {}, version {}",
                page.state, page.pid, page.version
            ),
        ),
        (
            "engine",
            format!("{} ({})", page.engine, page.engine_reason),
        ),
        (
            "connections",
            format!(
                "{} open, {} accepted, {} refused",
                count(change.sum("tidewire_connections_open", &[])),
                count(change.sum("tidewire_connections_accepted_total", &[])),
                count(change.sum("tidewire_connections_refused_total", &[])),
            ),
        ),
        (
            "traffic",
            format!(
                "{} received, {} sent",
                bytes(change.sum("tidewire_received_bytes_total", &[])),
                bytes(change.sum("tidewire_sent_bytes_total", &[])),
            ),
        ),
        (
            "loop latency",
            format!("p50 {}, p99 {}", known(late.0, time), known(late.1, time)),
        ),
        (
            "stalls",
            match stalls > 0.0 {
                true => format!("{}, {stalled} altogether", count(stalls)),
                false => "none".into(),
            },
        ),
        ("processor", format!("{} used", time(cpu))),
        (
            "memory",
            format!(
                "{} resident, {held} of {held_max} held by connections",
                bytes(change.sum("process_resident_memory_bytes", &[])),
            ),
        ),
        (
            "descriptors",
            format!(
                "{} of {}",
                count(change.sum("process_open_fds", &[])),
                count(change.sum("process_max_fds", &[])),
            ),
        ),
        (
            "logging",
            format!(
                "{} lines, {} dropped",
                count(change.sum("tidewire_logging_lines_total", &[])),
                count(change.sum("tidewire_logging_dropped_lines_total", &[])),
            ),
        ),
    ]
}

/// With rates instead of sums, where there is a page before.
pub(super) fn services(change: &Change<'_>) -> Vec<Vec<String>> {
    let all = change.by("tidewire_connections_accepted_total", "service");
    let row = |service: &str| {
        let of = [("service", service)];
        let at = change.now.listeners.iter().filter(|l| l.service == service);
        let at: Vec<&str> = at.map(|l| l.addr.as_str()).collect();
        let grows = |metric: &str, show: fn(f64) -> String| match change.rate(metric, &of) {
            Some(rate) => format!("{}/s", show(rate)),
            None => show(change.sum(metric, &of)),
        };
        vec![
            service.to_owned(),
            at.join(" "),
            count(change.sum("tidewire_connections_open", &of)),
            grows("tidewire_connections_accepted_total", count),
            grows("tidewire_received_bytes_total", bytes),
            grows("tidewire_sent_bytes_total", bytes),
            count(change.sum("tidewire_connections_refused_total", &of)),
            count(change.sum("tidewire_connections_closed_total", &of)),
        ]
    };
    // The store's service is on the loops also where only its other one listens: keys expire there.
    let listens = |service: &str| change.now.listeners.iter().any(|l| l.service == service);
    let shown = all
        .iter()
        .filter(|(service, n)| **n > 0.0 || listens(service));
    shown.map(|(service, _)| row(service)).collect()
}

pub(super) fn loops(change: &Change<'_>) -> Vec<Vec<String>> {
    let all = change.by("tidewire_loop_turns_total", "loop");
    let row = |name: &str| {
        let of = [("loop", name)];
        let turns = match change.rate("tidewire_loop_turns_total", &of) {
            Some(rate) => format!("{}/s", count(rate)),
            None => count(change.sum("tidewire_loop_turns_total", &of)),
        };
        let cpu = change
            .now
            .points("tidewire_loop_cpu_seconds_total", &of)
            .next();
        let busy = cpu.map(
            |cpu| match change.rate("tidewire_loop_cpu_seconds_total", &of) {
                Some(share) => percent(share),
                None => time(cpu.value),
            },
        );
        vec![
            name.to_owned(),
            count(change.sum("tidewire_connections_open", &of)),
            turns,
            busy.unwrap_or("-".into()),
            known(change.lag(0.99, &of), time),
            bytes(change.sum("tidewire_held_bytes", &of)),
        ]
    };
    all.keys().map(|name| row(name)).collect()
}

/// The names of the two logs in metrics.
pub(super) const MESSAGES: &str = "messages";
pub(super) const KEYS: &str = "kv";

/// Facts of one of the two logs; nothing if the server does not have it.
pub(super) fn log(change: &Change<'_>, log: &str) -> Vec<(String, String)> {
    let of = [("log", log)];
    if change
        .now
        .points("tidewire_log_segments", &of)
        .next()
        .is_none()
    {
        return Vec::new();
    }
    let sum = |metric: &str| change.sum(metric, &of);
    let state = match (sum("tidewire_log_failed"), sum("tidewire_log_blocked")) {
        (failed, _) if failed > 0.0 => "failed",
        (_, blocked) if blocked > 0.0 => {
            let full = [("log", log), ("because", "disk_full")];
            match change.sum("tidewire_log_blocked", &full) > 0.0 {
                true => "accepts no messages: the disk is full",
                false => "accepts no messages: no room can be reserved on the disk",
            }
        }
        _ if log == MESSAGES => "taking messages",
        _ => "taking changes",
    };
    let appended = sum("tidewire_log_appended_batches_total");
    let committed = sum("tidewire_log_committed_batches_total");
    let segments = sum("tidewire_log_segments");
    let took = |share| {
        known(
            change.within("tidewire_log_commit_seconds", share, &of),
            time,
        )
    };
    let mut facts = vec![("state".to_owned(), state.to_owned())];
    let ingested = "tidewire_ingest_messages_total";
    if log == MESSAGES && change.now.metrics.contains_key(ingested) {
        let messages = match change.rate(ingested, &[]) {
            Some(rate) => format!("{}/s ingested", count(rate)),
            None => format!("{} ingested", count(change.sum(ingested, &[]))),
        };
        facts.push(("messages".to_owned(), messages));
    }
    facts.extend([
        (
            "batches".to_owned(),
            format!(
                "{} committed, {} waiting",
                count(committed),
                count((appended - committed).max(0.0))
            ),
        ),
        (
            "commits".to_owned(),
            format!("p50 {}, p99 {}", took(0.5), took(0.99)),
        ),
        (
            "in use".to_owned(),
            format!(
                "{} in {} {}",
                bytes(sum("tidewire_log_used_bytes")),
                count(segments),
                if segments == 1.0 {
                    "segment"
                } else {
                    "segments"
                },
            ),
        ),
        (
            "disk".to_owned(),
            format!(
                "{} free of {}",
                bytes(sum("tidewire_log_disk_free_bytes")),
                bytes(sum("tidewire_log_disk_size_bytes"))
            ),
        ),
    ]);
    // The store's one stream is shown to no reader.
    if log == KEYS {
        return facts;
    }
    let next = "tidewire_log_stream_next_position";
    for point in change.now.points(next, &[("log", "messages")]).take(ROWS) {
        let (stream, next) = (&point.labels["stream"], point.value);
        let of = [("log", "messages"), ("stream", stream.as_str())];
        let first = change.sum("tidewire_log_stream_first_position", &of);
        let records = count(next - first);
        facts.push((
            format!("stream {stream}"),
            format!("{records} records, next {next}"),
        ));
    }
    facts
}

/// The lines about the key-value store; no lines if the server has no store.
pub(super) fn kv(change: &Change<'_>) -> Vec<(String, String)> {
    if !change.now.metrics.contains_key("tidewire_kv_keys") {
        return Vec::new();
    }
    let sum = |metric: &str| change.sum(metric, &[]);
    let most = sum("tidewire_kv_max_memory_bytes");
    let most = if most > 0.0 {
        format!("of {}", bytes(most))
    } else {
        "without a limit".into()
    };
    let commands = match change.rate("tidewire_kv_commands_total", &[]) {
        Some(rate) => format!("{}/s", count(rate)),
        None => count(sum("tidewire_kv_commands_total")),
    };
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let level = change.by("tidewire_kv_durability_info", "level");
    let level = level.keys().next().copied();
    let pending = "tidewire_kv_uncommitted_changes";
    let mut durability = level.unwrap_or("-").to_owned();
    if change.now.metrics.contains_key(pending) {
        durability += &format!(", {} changes uncommitted", count(sum(pending)));
    }
    vec![
        pair("commands", commands),
        pair("durability", durability),
        pair("hit rate", known(change.hit_rate(), percent)),
        pair(
            "keys",
            format!(
                "{}, {} of them expire",
                count(sum("tidewire_kv_keys")),
                count(sum("tidewire_kv_keys_expiring"))
            ),
        ),
        pair(
            "memory",
            format!("{} {most}", bytes(sum("tidewire_kv_used_memory_bytes"))),
        ),
        pair(
            "expired, evicted",
            format!(
                "{}, {}",
                count(sum("tidewire_kv_expired_keys_total")),
                count(sum("tidewire_kv_evicted_keys_total"))
            ),
        ),
    ]
}

/// Writes a table: the first column and columns of words to the left, numbers to the right.
fn table(out: &mut String, title: &str, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([head[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut write = |cells: &[&str]| {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let width = widths[at];
            let _ = match is_word(head, at) {
                true => write!(line, "  {cell:<width$}"),
                false => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    };
    write(head);
    for row in rows {
        write(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
