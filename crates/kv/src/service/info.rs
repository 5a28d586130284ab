//! INFO: what there is to know, in the sections and under the names that tools look for.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::acl::Reason;
use super::call::{Call, Flow};
use super::held::Held;
use super::hello::REDIS_VERSION;
use super::pubsub::Kind;
use super::replication_commands;
use super::section::line;
use super::sentinel_commands;
use super::stats::{Count, LoopStats};
use super::table;

type Section = fn(&mut Call<'_, '_>, &mut String);

/// The sections in order; marked ones are shown only when asked for.
const SECTIONS: &[(&str, &str, bool, Section)] = &[
    ("server", "Server", true, server),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, memory),
    ("persistence", "Persistence", true, super::persistence::info),
    ("stats", "Stats", true, stats),
    (
        "replication",
        "Replication",
        true,
        replication_commands::info,
    ),
    ("sentinel", "Sentinel", true, sentinel_commands::info),
    ("cpu", "CPU", true, cpu),
    ("modules", "Modules", true, |_, _| {}),
    ("commandstats", "Commandstats", false, command_stats),
    ("latencystats", "Latencystats", false, super::latency::info),
    ("errorstats", "Errorstats", true, error_stats),
    ("cluster", "Cluster", true, |_, text| {
        line(text, "cluster_enabled", 0)
    }),
    ("keyspace", "Keyspace", true, keyspace),
];

/// Runs INFO.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    let asked: Vec<String> = call.args[1..]
        .iter()
        .map(|arg| String::from_utf8_lossy(arg).to_ascii_lowercase())
        .collect();
    let has = |name: &str| asked.iter().any(|asked| asked == name);
    let all = has("all") || has("everything");
    let usual = asked.is_empty() || has("default");
    let mut text = String::with_capacity(4096);
    for &(name, title, by_default, section) in SECTIONS {
        if name == "sentinel" && call.shared.sentinel.get().is_none() {
            continue;
        }
        if all || (usual && by_default) || has(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {title}\r\n");
            section(call, &mut text);
        }
    }
    // The section counts keys.
    call.session.barrier = call.session.barrier.max(call.shared.told_ticket());
    call.reply.verbatim(&text);
    Flow::Done
}

fn server(call: &mut Call<'_, '_>, text: &mut String) {
    let uptime_s = uptime_s(call);
    let run_id = call.shared.run_id.get().cloned().unwrap_or_default();
    line(text, "redis_version", REDIS_VERSION);
    line(text, "redis_git_sha1", "00000000");
    line(text, "redis_git_dirty", 0);
    line(text, "redis_mode", "standalone");
    line(text, "server_name", "tidewire");
    line(text, "tidewire_version", env!("CARGO_PKG_VERSION"));
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    line(text, "process_id", std::process::id());
    line(text, "run_id", run_id);
    line(text, "tcp_port", call.shared.port());
    line(text, "server_time_usec", call.link.wall().as_micros());
    line(text, "uptime_in_seconds", uptime_s);
    line(text, "uptime_in_days", uptime_s / 86400);
    line(text, "config_file", "");
    line(text, "io_threads_active", 0);
}

fn uptime_s(call: &Call<'_, '_>) -> u64 {
    let started = call.shared.started_ms.load(Relaxed);
    call.now_ms().saturating_sub(started) / 1000
}

fn clients(call: &mut Call<'_, '_>, text: &mut String) {
    let all = call.shared.clients.all();
    let count =
        |f: &dyn Fn(&super::clients::Card) -> bool| all.iter().filter(|card| f(card)).count();
    line(text, "connected_clients", all.len());
    line(text, "cluster_connections", 0);
    line(text, "maxclients", call.shared.config.clients_max);
    let input = all.iter().map(|card| card.input_len.load(Relaxed)).max();
    let output = all.iter().map(|card| card.output_len.load(Relaxed)).max();
    line(text, "client_recent_max_input_buffer", input.unwrap_or(0));
    line(text, "client_recent_max_output_buffer", output.unwrap_or(0));
    line(
        text,
        "blocked_clients",
        count(&super::clients::Card::is_blocked),
    );
    let tracking = call.shared.store.tracking();
    line(text, "tracking_clients", tracking.clients());
    line(text, "pubsub_clients", count(&|card| card.is_subscriber()));
    line(
        text,
        "watching_clients",
        count(&|card| card.watching.load(Relaxed) > 0),
    );
    let (keys, heeded) = call.shared.store.waited_for();
    line(text, "total_blocking_keys", keys);
    line(text, "total_blocking_keys_on_nokey", heeded);
}

fn memory(call: &mut Call<'_, '_>, text: &mut String) {
    let store = &call.shared.store;
    let used = store.used_memory();
    let held = Held::of(&call.shared);
    let most = store.maxmemory();
    let (resident, peak) = resident();
    line(text, "used_memory", used);
    line(text, "used_memory_human", human(used));
    line(text, "used_memory_rss", resident);
    line(text, "used_memory_rss_human", human(resident));
    line(text, "used_memory_peak", peak.max(used));
    line(text, "used_memory_peak_human", human(peak.max(used)));
    line(text, "used_memory_dataset", used);
    // `used_memory` is what `maxmemory` bounds: keys and values. Clients have `maxmemory-clients`, the others limits of their own.
    line(text, "used_memory_overhead", held.sum());
    line(text, "mem_not_counted_for_evict", 0);
    line(text, "mem_clients_normal", held.clients);
    line(text, "mem_clients_slaves", 0);
    line(text, "mem_tracking_gone", held.tracking);
    line(text, "mem_logs", held.logs);
    line(text, "mem_messages", held.messages);
    line(text, "mem_users", held.users);
    line(text, "used_memory_functions", held.functions);
    line(text, "maxmemory_clients", call.shared.clients_limit());
    line(text, "maxmemory", most);
    line(text, "maxmemory_human", human(most));
    line(text, "maxmemory_policy", store.policy().name());
    line(
        text,
        "mem_fragmentation_ratio",
        format!("{:.2}", resident as f64 / used.max(1) as f64),
    );
    line(text, "mem_allocator", crate::allocator::current().name());
    super::script::info(call, text);
    line(text, "lazyfree_pending_objects", store.lazyfree_pending());
    line(text, "lazyfreed_objects", store.lazyfreed());
}

/// Resident memory of the process, and its maximum so far, bytes; 0 where the system does not tell.
pub(super) fn resident() -> (u64, u64) {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return (0, 0);
    };
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line[name.len()..]
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    };
    let bytes = |name| kib(name).unwrap_or(0) << 10;
    (bytes("VmRSS:"), bytes("VmHWM:"))
}

fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes}B")
    } else {
        format!("{value:.2}{}", units[unit])
    }
}

fn stats(call: &mut Call<'_, '_>, text: &mut String) {
    let shared = call.shared.clone();
    shared.stats.read(|now, before| {
        let since = |f: fn(&LoopStats) -> &Count| f(now).value() - f(before).value();
        line(
            text,
            "total_connections_received",
            since(|s| &s.connections),
        );
        line(text, "total_commands_processed", since(|s| &s.commands));
        line(text, "instantaneous_ops_per_sec", shared.rate.per_s());
        line(text, "total_net_input_bytes", since(|s| &s.bytes_in));
        line(text, "total_net_output_bytes", since(|s| &s.bytes_out));
        line(text, "total_error_replies", since(|s| &s.errors));
        line(text, "protocol_errors", since(|s| &s.protocol_errors));
        line(
            text,
            "client_output_buffer_limit_disconnections",
            since(|s| &s.slow_subscribers) + since(|s| &s.large_replies),
        );
        line(text, "clients_timed_out", since(|s| &s.timed_out));
        line(
            text,
            "clients_not_logged_in_in_time",
            since(|s| &s.not_logged_in),
        );
        line(text, "denied_connections", since(|s| &s.denied));
        line(
            text,
            "pubsub_patterns_refused",
            since(|s| &s.refused_patterns),
        );
        line(
            text,
            "client_memory_refusals",
            since(|s| &s.refused_holding),
        );
        line(text, "evicted_clients", since(|s| &s.evicted_clients));
    });
    for (name, reason) in [
        ("acl_access_denied_auth", Reason::Auth),
        ("acl_access_denied_cmd", Reason::Command),
        ("acl_access_denied_key", Reason::Key),
        ("acl_access_denied_channel", Reason::Channel),
    ] {
        line(text, name, shared.acl.log.count(reason));
    }
    let store = shared.store.stats();
    line(text, "rejected_connections", 0);
    line(text, "expired_keys", store.expired);
    line(text, "evicted_keys", store.evicted);
    line(text, "keyspace_hits", store.hits);
    line(text, "keyspace_misses", store.misses);
    line(text, "pubsub_channels", shared.hub.count(Kind::Channel));
    line(text, "pubsub_patterns", shared.hub.count(Kind::Pattern));
    line(text, "pubsubshard_channels", shared.hub.count(Kind::Shard));
    line(text, "keyspace_events_lost", shared.store.events_lost());
    line(text, "latest_fork_usec", 0);
    let tracking = shared.store.tracking();
    line(text, "tracking_total_keys", tracking.keys());
    line(text, "tracking_total_items", tracking.items());
    line(text, "tracking_total_prefixes", tracking.prefixes());
}

fn cpu(_: &mut Call<'_, '_>, text: &mut String) {
    let (user, system) = cpu_times();
    line(text, "used_cpu_sys", format!("{system:.6}"));
    line(text, "used_cpu_user", format!("{user:.6}"));
}

/// Seconds that the process has spent, in user mode and in the kernel; 0 where it cannot be told.
fn cpu_times() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |n: usize| {
        let field = after.split_ascii_whitespace().nth(n);
        field.and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
    };
    (ticks(11), ticks(12))
}

fn command_stats(call: &mut Call<'_, '_>, text: &mut String) {
    call.shared.stats.read(|now, before| {
        for entry in table::table().all() {
            let (now, before) = (now.command(entry.id), before.command(entry.id));
            let calls = now.calls.value() - before.calls.value();
            let rejected = now.rejected.value() - before.rejected.value();
            let failed = now.failed.value() - before.failed.value();
            if calls == 0 && rejected == 0 {
                continue;
            }
            // Not every call is timed: the mean of the timed calls stands for all.
            let timed = now.timed.value() - before.timed.value();
            let ns = now.timed_ns.value() - before.timed_ns.value();
            let mean_us = ns as f64 / 1e3 / timed.max(1) as f64;
            let name = entry.name;
            let usec = mean_us * calls as f64;
            let value = format!(
                "calls={calls},usec={usec:.0},usec_per_call={mean_us:.2},\
                 rejected_calls={rejected},failed_calls={failed}"
            );
            line(text, &format!("cmdstat_{name}"), value);
        }
    });
}

fn error_stats(call: &mut Call<'_, '_>, text: &mut String) {
    for (prefix, count) in call.shared.stats.errors_by_prefix() {
        line(
            text,
            &format!("errorstat_{prefix}"),
            format!("count={count}"),
        );
    }
}

fn keyspace(call: &mut Call<'_, '_>, text: &mut String) {
    for (db, keys) in call.shared.store.keyspaces().iter().enumerate() {
        if keys.keys > 0 {
            let value = format!("keys={},expires={},avg_ttl=0", keys.keys, keys.expires);
            line(text, &format!("db{db}"), value);
        }
    }
}
