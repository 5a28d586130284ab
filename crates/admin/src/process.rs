//! Figures of this process, read from `/proc`. A figure that cannot be read is left out.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use crate::catalogue::process as metrics;
use crate::snapshot::Snapshot;

/// Adds the metrics of the process.
pub(crate) fn collect(to: &mut Snapshot) {
    if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
        of_stat(&stat, to);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // One of the descriptors is the directory being read.
        to.add(&metrics::OPEN_FDS, &[], entries.count().saturating_sub(1));
    }
    let most = getrlimit(Resource::Nofile).current;
    to.add(
        &metrics::MAX_FDS,
        &[],
        most.map_or(f64::INFINITY, |n| n as f64),
    );
}

fn of_stat(stat: &str, to: &mut Snapshot) {
    // The name in parentheses may hold anything; the fields are counted from the one behind it, the third.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = clock_ticks_per_second() as f64;
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        to.add(&metrics::CPU_SECONDS, &[], (user + system) / ticks);
    }
    if let Some(threads) = field(20) {
        to.add(&metrics::THREADS, &[], threads);
    }
    if let (Some(started), Some(booted)) = (field(22), boot_time()) {
        to.add(&metrics::START_TIME, &[], booted + started / ticks);
    }
    if let Some(bytes) = field(23) {
        to.add(&metrics::VIRTUAL_BYTES, &[], bytes);
    }
    if let Some(pages) = field(24) {
        to.add(&metrics::RESIDENT_BYTES, &[], pages * page_size() as f64);
    }
}

/// Seconds since 1970.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// Processor time of a thread of this process, in seconds.
pub(crate) fn thread_cpu_seconds(tid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    let ns: f64 = stat.split_ascii_whitespace().next()?.parse().ok()?;
    Some(ns / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Value;

    #[test]
    fn the_process_is_described() {
        let mut snapshot = Snapshot::default();
        collect(&mut snapshot);
        let value = |name: &str| {
            let mut families = snapshot.families();
            let found = families.find(|(metric, _)| metric.name == name);
            match found.unwrap_or_else(|| panic!("{name} is missing")).1[0].value {
                Value::Number(n) => n,
                Value::Count(n) => n as f64,
                Value::Histogram { .. } => unreachable!(),
            }
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("tidewire_process_threads") >= 1.0);
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .as_secs_f64();
        let started = value("process_start_time_seconds");
        assert!(
            started <= now + 2.0 && started > now - 86400.0,
            "{started} {now}"
        );
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(thread_cpu_seconds(own).is_some_and(|s| s >= 0.0));
    }

    #[test]
    fn a_name_with_parentheses_is_read_whole() {
        let mut snapshot = Snapshot::default();
        let mut stat = String::from("1 (a) b (c) S");
        for n in 4..=30 {
            stat.push_str(&format!(" {n}"));
        }
        of_stat(&stat, &mut snapshot);
        let page = snapshot.to_prometheus();
        assert!(page.contains("tidewire_process_threads 20\n"), "{page}");
        assert!(page.contains("process_virtual_memory_bytes 23\n"), "{page}");
    }
}
