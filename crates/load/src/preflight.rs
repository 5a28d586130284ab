//! Settings of the system that are in the way of a measurement, and the commands that change them.
//!
//! The idea: nothing is changed here. The machine's owner decides, and a measurement goes on with
//! what there is.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// A setting that is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The finding, and its effect on figures.
    pub what: String,
    /// The exact command that changes it, until the next start of the machine.
    pub command: String,
}

/// Descriptors below which the tests with many connections do not go.
const DESCRIPTORS: u64 = 20_000;
/// Connections that wait to be accepted.
const BACKLOG: u64 = 4_096;
/// Ports of one address.
const PORTS: u64 = 28_000;

/// Obstacles to good figures on this machine, now.
pub fn findings() -> Vec<Finding> {
    look(Path::new("/"))
}

/// Descriptors that a process has beside its connections, at most.
const OTHERS: u64 = 64;

/// Obstacles to this many connections, made by this many processes. `served` says that a single server process
/// needs a descriptor for each.
pub fn of_connections(connections: u64, processes: u64, served: bool) -> Vec<Finding> {
    let hard = getrlimit(Resource::Nofile).maximum;
    short(connections, processes, served, hard)
}

fn short(connections: u64, processes: u64, served: bool, hard: Option<u64>) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(hard) = hard else {
        return found;
    };
    let room = hard.saturating_sub(OTHERS).max(1);
    if connections.div_ceil(processes.max(1)) > room {
        found.push(Finding {
            what: format!(
                "a process may have {hard} descriptors, and the generator needs one for each of {connections} connections"
            ),
            command: format!("--processes {}", connections.div_ceil(room)),
        });
    }
    if served && connections > room {
        let loops = connections.div_ceil(room) + 1;
        found.push(Finding {
            what: format!(
                "a server of one process has as few descriptors for {connections} connections, unless they are the ring's"
            ),
            command: format!(
                "--engine uring --server-args '--direct-descriptors --workers {loops}'   (or: ulimit -Hn {})",
                connections + OTHERS
            ),
        });
    }
    found
}

fn look(root: &Path) -> Vec<Finding> {
    let read = |path: &str| {
        let text = fs::read_to_string(root.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let number = |path: &str| -> Option<u64> { read(path)?.parse().ok() };
    let mut found = Vec::new();
    let mut add = |what: String, command: &str| {
        found.push(Finding {
            what,
            command: command.to_owned(),
        });
    };
    if let Some(name) = read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        && name != "performance"
    {
        add(
            format!("the frequency governor is {name}: cores are slow when a run begins"),
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        );
    }
    if read("sys/devices/system/cpu/intel_pstate/no_turbo").as_deref() == Some("0") {
        add(
            "turbo is on: the frequency depends on temperature and on neighbours".into(),
            "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo",
        );
    }
    if read("sys/devices/system/cpu/cpufreq/boost").as_deref() == Some("1") {
        add(
            "frequency boost is on: the frequency depends on temperature and on neighbours".into(),
            "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
        );
    }
    if read("sys/devices/system/cpu/smt/active").as_deref() == Some("1") {
        add(
            "cores are shared by two threads each: what runs beside a server slows it".into(),
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
        );
    }
    if let Some(name) = read("proc/sys/net/ipv4/tcp_congestion_control")
        && name == "bbr"
    {
        add(
            "congestion control is bbr: its pacing timers disturb loopback (or use --congestion cubic)".into(),
            "sudo sysctl -w net.ipv4.tcp_congestion_control=cubic",
        );
    }
    if let Some(n) = number("proc/sys/net/core/somaxconn")
        && n < BACKLOG
    {
        add(
            format!("at most {n} connections wait to be accepted: many at once are refused"),
            "sudo sysctl -w net.core.somaxconn=4096",
        );
    }
    if let Some(range) = read("proc/sys/net/ipv4/ip_local_port_range") {
        let ends: Vec<u64> = range
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        if let [first, last] = ends[..]
            && last.saturating_sub(first) < PORTS
        {
            add(
                format!(
                    "only the ports {first} to {last} for connections of one address (or use --sources)"
                ),
                "sudo sysctl -w net.ipv4.ip_local_port_range='1024 65535'",
            );
        }
    }
    if number("proc/sys/kernel/io_uring_disabled").is_some_and(|n| n > 0) {
        add(
            "io_uring is disabled: what needs it is left out".into(),
            "sudo sysctl -w kernel.io_uring_disabled=0",
        );
    }
    if let Some(load) = read("proc/loadavg")
        && let Some(one) = load.split(' ').next().and_then(|n| n.parse::<f64>().ok())
        && one > 0.5
    {
        add(
            format!("other programs are running (load {one:.1} over the last minute)"),
            "top",
        );
    }
    let descriptors = getrlimit(Resource::Nofile);
    if let Some(hard) = descriptors.maximum
        && hard < DESCRIPTORS
    {
        add(
            format!(
                "a process may have {hard} descriptors at most: tests with many connections fail"
            ),
            "ulimit -Hn 65536",
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_found_and_what_is_not_is_not() {
        let root = tempdir();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let about = |word: &str| {
            look(&root)
                .into_iter()
                .any(|found| found.what.contains(word))
        };
        put("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
        put("proc/sys/net/core/somaxconn", "128\n");
        put("proc/sys/net/ipv4/ip_local_port_range", "32768\t40000\n");
        put(
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
        );
        put("sys/devices/system/cpu/smt/active", "1\n");
        put("proc/loadavg", "3.10 1.00 0.50 1/100 7\n");
        for word in ["bbr", "128", "40000", "powersave", "shared", "load 3.1"] {
            assert!(about(word), "{word}");
        }
        put("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
        put("proc/sys/net/core/somaxconn", "nonsense\n");
        put("proc/sys/net/ipv4/ip_local_port_range", "1024 65535\n");
        put(
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "performance\n",
        );
        put("sys/devices/system/cpu/smt/active", "0\n");
        put("proc/loadavg", "0.10 1.00 0.50 1/100 7\n");
        for word in ["bbr", "wait to be", "ports", "governor", "shared", "load"] {
            assert!(!about(word), "{word}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn more_connections_than_a_process_may_have_descriptors_are_told_what_to_do() {
        let words = |connections, processes, hard| -> Vec<String> {
            let found = short(connections, processes, true, hard);
            found.into_iter().map(|found| found.command).collect()
        };
        assert!(words(98_304, 1, None).is_empty());
        assert!(words(1_000, 1, Some(20_000)).is_empty());
        assert!(words(19_936, 1, Some(20_000)).is_empty());
        let one = words(98_304, 1, Some(20_000));
        assert_eq!(one[0], "--processes 5");
        assert!(one[1].contains("--workers 6"), "{one:?}");
        assert_eq!(
            words(98_304, 5, Some(20_000)).len(),
            1,
            "of the server only"
        );
        // Not a division by nothing.
        assert_eq!(words(5, 0, Some(0)).len(), 2);
    }

    fn tempdir() -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tidewire-preflight-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }
}
