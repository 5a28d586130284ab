//! The facts about a machine without which its figures can't be judged.
//!
//! The idea: facts about the environment are collected by the program that measures, never by hand,
//! and every report begins with them. A fact that can't be had is left out rather than guessed.

use std::fmt;
use std::fs;

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::procfs::CoreTimes;

/// Facts about the machine and the limits of the calling process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// When the run was made, as the caller wrote it.
    pub date: String,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Cores online.
    pub cores: Option<usize>,
    /// Cores this process may run on; a container's quota counts too.
    pub cores_allowed: Option<usize>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// Most descriptors this process may open.
    pub descriptors: Limit,
    /// Most memory this process may lock, in bytes; older kernels charge rings to it.
    pub locked_memory_bytes: Limit,
    /// Congestion control that new TCP sockets get.
    pub congestion_control: Option<String>,
    /// Share of the time since the machine started that the hypervisor gave to others
    /// while a core was ready to run, 0 to 1, mean of all cores. That of the run itself is
    /// the run's to report.
    pub steal_since_boot: Option<f64>,
}

/// A resource limit; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit in force now.
    pub soft: Option<u64>,
    /// The limit up to which the process may raise its own limit.
    pub hard: Option<u64>,
}

impl Environment {
    /// Collects the facts. `date` is passed in since a program that measures may want to
    /// name a day, a commit time or none.
    pub fn read(date: impl Into<String>) -> Self {
        let cores = CoreTimes::read().ok().map(|times| times.total());
        Self {
            date: date.into(),
            kernel: line_of("/proc/sys/kernel/osrelease"),
            cpu_model: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| cpu_model(&text)),
            cores: cores.as_ref().map(Vec::len),
            cores_allowed: std::thread::available_parallelism().ok().map(usize::from),
            memory_bytes: fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| memory_bytes(&text)),
            descriptors: limit(Resource::Nofile),
            locked_memory_bytes: limit(Resource::Memlock),
            congestion_control: line_of("/proc/sys/net/ipv4/tcp_congestion_control"),
            steal_since_boot: cores
                .filter(|cores| !cores.is_empty())
                .map(|cores| cores.iter().map(|core| core.steal).sum::<f64>() / cores.len() as f64),
        }
    }
}

impl Environment {
    /// Names and values of the facts, for people.
    pub fn facts(&self) -> Vec<(String, String)> {
        let text = self.to_string();
        let pairs = text.lines().filter_map(|line| line.split_once("  "));
        pairs
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "date                {}", self.date)?;
        writeln!(f, "kernel              {}", shown(&self.kernel))?;
        writeln!(f, "processor           {}", shown(&self.cpu_model))?;
        writeln!(
            f,
            "cores               {}, {} allowed",
            shown(&self.cores),
            shown(&self.cores_allowed)
        )?;
        writeln!(
            f,
            "memory              {}",
            shown(
                &self
                    .memory_bytes
                    .map(|bytes| format!("{} MiB", bytes >> 20))
            )
        )?;
        writeln!(f, "descriptors         {}", self.descriptors)?;
        writeln!(f, "locked memory       {} bytes", self.locked_memory_bytes)?;
        writeln!(f, "congestion control  {}", shown(&self.congestion_control))?;
        let steal = self.steal_since_boot.map(|s| format!("{:.1} %", s * 100.0));
        writeln!(f, "steal since boot    {}", shown(&steal))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
        write!(f, "{} (at most {})", number(self.soft), number(self.hard))
    }
}

fn shown<T: fmt::Display>(fact: &Option<T>) -> String {
    fact.as_ref()
        .map_or_else(|| "unknown".to_owned(), T::to_string)
}

fn line_of(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

fn limit(resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit {
        soft: limit.current,
        hard: limit.maximum,
    }
}

/// The first processor's name. The name of the line differs between architectures; some have no
/// such line.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "cpu model", "uarch"]
        .iter()
        .find_map(|name| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == *name).then(|| value.trim().to_owned())
            })
        })
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_machine_tells_the_essentials() {
        let here = Environment::read("2026-01-02");
        assert_eq!(here.date, "2026-01-02");
        assert!(here.kernel.as_ref().unwrap().starts_with(char::is_numeric));
        assert!(here.cores.unwrap() >= 1);
        assert!(here.memory_bytes.unwrap() > 1 << 20);
        let steal = here.steal_since_boot.unwrap();
        assert!((0.0..=1.0).contains(&steal), "{steal}");
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|l| l.starts_with("Max open files"));
        let soft = line.unwrap().split_ascii_whitespace().nth(3).unwrap();
        assert_eq!(here.descriptors.soft, soft.parse().ok());
    }

    #[test]
    fn processor_names_of_other_architectures() {
        let x86 = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC: 3rd\n";
        assert_eq!(cpu_model(x86).unwrap(), "AMD EPYC: 3rd");
        let arm = "processor\t: 0\nCPU part\t: 0xd0c\n\nModel\t\t: Raspberry Pi 5\n";
        assert_eq!(cpu_model(arm).unwrap(), "Raspberry Pi 5");
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }

    #[test]
    fn text_says_unknown_and_unlimited() {
        let mut here = Environment::read("today");
        here.kernel = None;
        here.locked_memory_bytes = Limit {
            soft: Some(65536),
            hard: None,
        };
        let text = here.to_string();
        assert!(text.contains("kernel              unknown\n"), "{text}");
        assert!(text.contains("65536 (at most unlimited) bytes"), "{text}");
        assert_eq!(text.lines().count(), 9);
    }

    #[test]
    fn json_keeps_unknown_as_null() {
        let mut here = Environment::read("today");
        here.cpu_model = None;
        let json = serde_json::to_value(&here).unwrap();
        assert_eq!(json["cpu_model"], serde_json::Value::Null);
        assert_eq!(json["date"], "today");
        assert!(json["descriptors"]["soft"].is_u64() || json["descriptors"]["soft"].is_null());
    }
}
