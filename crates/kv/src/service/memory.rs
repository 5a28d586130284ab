//! MEMORY, except MEMORY USAGE of a key, which is a command of the store.

use std::fmt::Write;

use super::call::{Call, Flow};
use super::held::Held;
use super::info::resident;

/// Steps of freeing that MEMORY PURGE takes at most.
const PURGE: usize = 256;

/// Runs MEMORY DOCTOR, MALLOC-STATS, PURGE and STATS. The arguments were checked; no locks are held.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    // The report counts keys.
    call.session.barrier = call.session.barrier.max(call.shared.last_ticket());
    match &sub[..] {
        b"stats" => stats(call),
        b"purge" => {
            let store = &call.shared.store;
            let freed = (0..PURGE).take_while(|_| store.free_some()).count();
            tracing::debug!(freed, "what was removed is freed");
            call.reply.ok();
        }
        b"malloc-stats" => {
            let now = Figures::of(call);
            let name = crate::allocator::current().name();
            let text = format!(
                "{name}: {} bytes for data, {} of them tables; {} bytes of the process are resident, at most {} were.\n",
                now.used, now.tables, now.resident, now.peak
            );
            call.reply.verbatim(&text);
        }
        _ => {
            let text = advice(&Figures::of(call));
            call.reply.verbatim(&text);
        }
    }
    Flow::Done
}

/// Figures of memory; bytes, unless a field names another unit.
struct Figures {
    used: u64,
    tables: u64,
    /// The number of keys.
    keys: u64,
    resident: u64,
    peak: u64,
    limit: u64,
    held: Held,
    /// Number and tables of each database that has keys.
    databases: Vec<(u16, u64)>,
}

impl Figures {
    fn of(call: &Call<'_, '_>) -> Figures {
        let store = &call.shared.store;
        let databases = store.keyspaces();
        let used = store.used_memory();
        let (resident, peak) = resident();
        let held = Held::of(&call.shared);
        Figures {
            used,
            tables: databases.iter().map(|keys| keys.tables).sum(),
            keys: databases.iter().map(|keys| keys.keys as u64).sum(),
            resident,
            peak: peak.max(used),
            limit: store.maxmemory(),
            held,
            databases: (0..)
                .zip(databases)
                .filter(|(_, keys)| keys.keys > 0)
                .map(|(db, keys)| (db, keys.tables))
                .collect(),
        }
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn stats(call: &mut Call<'_, '_>) {
    let now = Figures::of(call);
    let tables = now.tables.min(now.used);
    let overhead = tables + now.held.sum();
    let dataset = now.used - tables;
    let fragments = now.resident as i64 - now.used as i64;
    let whole = |n: u64| Figure::Whole(n as i64);
    let mut all: Vec<(String, Figure)> = vec![
        ("peak.allocated".into(), whole(now.peak)),
        ("total.allocated".into(), whole(now.used + now.held.sum())),
        ("startup.allocated".into(), whole(0)),
        ("replication.backlog".into(), whole(0)),
        ("clients.slaves".into(), whole(0)),
        ("clients.normal".into(), whole(now.held.clients)),
        ("cluster.links".into(), whole(0)),
        ("aof.buffer".into(), whole(0)),
        ("lua.caches".into(), whole(now.held.scripts)),
        ("functions.caches".into(), whole(now.held.functions)),
    ];
    for (db, bytes) in &now.databases {
        all.push((format!("db.{db}"), Figure::Table(*bytes as i64)));
    }
    let more = [
        ("overhead.total", whole(overhead)),
        ("keys.count", whole(now.keys)),
        ("keys.bytes-per-key", whole(now.used / now.keys.max(1))),
        ("dataset.bytes", whole(dataset)),
        (
            "dataset.percentage",
            Figure::Part(100.0 * ratio(dataset, now.used)),
        ),
        (
            "peak.percentage",
            Figure::Part(100.0 * ratio(now.used, now.peak)),
        ),
        ("allocator.allocated", whole(now.used)),
        ("allocator.active", whole(now.resident)),
        ("allocator.resident", whole(now.resident)),
        (
            "allocator-fragmentation.ratio",
            Figure::Part(ratio(now.resident, now.used)),
        ),
        ("allocator-fragmentation.bytes", Figure::Whole(fragments)),
        ("allocator-rss.ratio", Figure::Part(1.0)),
        ("allocator-rss.bytes", whole(0)),
        ("rss-overhead.ratio", Figure::Part(1.0)),
        ("rss-overhead.bytes", whole(0)),
        ("fragmentation", Figure::Part(ratio(now.resident, now.used))),
        ("fragmentation.bytes", Figure::Whole(fragments)),
    ];
    all.extend(more.map(|(name, figure)| (name.to_owned(), figure)));
    call.reply.map(all.len());
    for (name, figure) in all {
        call.reply.bulk(name.as_bytes());
        match figure {
            Figure::Whole(n) => call.reply.integer(n),
            Figure::Part(x) => call.reply.double(x),
            Figure::Table(bytes) => {
                call.reply.map(2);
                call.reply.bulk(b"overhead.hashtable.main");
                call.reply.integer(bytes);
                // The deadline of a key is part of its entry.
                call.reply.bulk(b"overhead.hashtable.expires");
                call.reply.integer(0);
            }
        }
    }
}

enum Figure {
    Whole(i64),
    Part(f64),
    Table(i64),
}

fn advice(now: &Figures) -> String {
    /// Bytes of memory below which MEMORY DOCTOR has no opinion.
    const LITTLE: u64 = 5 << 20;
    if now.used < LITTLE {
        return "There is hardly any data: nothing can be said of it.\n".to_owned();
    }
    let mut text = String::new();
    if now.limit > 0 && now.used > now.limit / 10 * 9 {
        let _ = writeln!(
            text,
            "Data takes {} of the {} bytes of maxmemory: keys are evicted, or commands refused.",
            now.used, now.limit
        );
    }
    if now.peak > now.used / 2 * 3 {
        let _ = writeln!(
            text,
            "At most {} bytes were resident, and {} are data now: what was freed may not have gone back to the system yet.",
            now.peak, now.used
        );
    }
    if ratio(now.resident, now.used) > 1.4 {
        let _ = writeln!(
            text,
            "{} bytes are resident for {} bytes of data: other services of this process, many connections, or memory in \
             pieces. MEMORY PURGE frees what was removed.",
            now.resident, now.used
        );
    }
    if now.held.clients > now.used / 4 {
        let _ = writeln!(
            text,
            "Clients take {} bytes: CLIENT LIST shows which, and maxmemory-clients bounds it.",
            now.held.clients
        );
    }
    if text.is_empty() {
        text.push_str("Nothing is out of the ordinary.\n");
    }
    text
}
