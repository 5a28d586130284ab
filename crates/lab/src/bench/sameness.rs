//! Whether two results on disk are of the same thing.
//!
//! The idea: a ratio of two results means something only if load, times and machine were equal; only the servers may
//! differ. So other differences are refused, as `lab` refuses to continue runs of another suite; differences that may be
//! intended are reported.

use std::collections::BTreeMap;

use serde_json::Value;

/// Two servers whose shares of reads that find nothing differ by more than this do not do the same work.
pub(crate) const MISSES_APART: f64 = 0.01;
/// Bodies whose lengths differ by more than this share are not of one page.
const LENGTHS_APART: f64 = 0.01;

/// Whether two servers' bodies are so different in length that sending them is not the same work.
pub(crate) fn lengths_differ(a: u64, b: u64) -> bool {
    a.abs_diff(b) as f64 > a.max(b) as f64 * LENGTHS_APART
}

/// What a row of a result is of: names and values.
pub(super) type Of = BTreeMap<&'static str, String>;

/// What two results differ in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// What makes a comparison mean nothing.
    pub(super) refused: Vec<String>,
    /// Differences that may be intended.
    pub(super) told: Vec<String>,
}

/// The properties of a whole report: its machine, its times.
fn of_report(report: &Value) -> Of {
    let result = &report["result"];
    let facts = [
        ("kind", &report["kind"]),
        ("kernel", &report["environment"]["kernel"]),
        ("processor", &report["environment"]["cpu_model"]),
        ("cores", &report["environment"]["cores"]),
        ("cores allowed", &report["environment"]["cores_allowed"]),
        (
            "congestion control",
            &report["environment"]["congestion_control"],
        ),
        ("time of a run", &result["round_time"]),
        ("time of a run in ms", &result["run_ms"]),
        ("warm-up", &result["warm_up"]),
        ("warm-up in ms", &result["warm_up_ms"]),
        ("generator", &result["generator"]),
    ];
    known(facts)
}

/// The properties of a server in a lab's workload.
pub(super) fn of_lab(work: &Value, server: &Value) -> Of {
    known([
        ("load", &work["load"]),
        ("connections", &work["connections"]),
        ("command", &server["command"]),
    ])
}

/// The properties of a side of `bench ab`.
pub(super) fn of_ab(result: &Value, side: &str) -> Of {
    known([
        ("workload", &result[format!("workload_{side}")]),
        ("arrivals", &result["arrivals"]),
        ("connections", &result["connections"]),
        ("engine", &result[format!("engine_{side}")]),
    ])
}

fn known<const N: usize>(facts: [(&'static str, &Value); N]) -> Of {
    let known = facts.into_iter().filter(|(_, value)| !value.is_null());
    known
        .map(|(name, value)| match value {
            Value::String(text) => (name, text.clone()),
            value => (name, value.to_string()),
        })
        .collect()
}

/// Compares two reports and the rows that they have in common, by name.
pub(super) fn differences(
    reports: [&Value; 2],
    rows: &[(&str, [&Of; 2])],
    alone: &[String],
) -> Differences {
    let mut found = Differences::default();
    let [a, b] = reports.map(of_report);
    found.add("", [&a, &b]);
    for (name, of) in rows {
        found.add(&format!("{name}: "), *of);
    }
    let [before, after] = reports.map(|report| report["version"].as_str());
    if let (Some(before), Some(after)) = (before, after)
        && before != after
    {
        found
            .told
            .push(format!("version {before} before, {after} after"));
    }
    found.told.extend(alone.iter().cloned());
    found
}

impl Differences {
    fn add(&mut self, whose: &str, [a, b]: [&Of; 2]) {
        let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
        for name in names {
            match (a.get(name), b.get(name)) {
                (Some(before), Some(after)) if before == after => {}
                (Some(before), Some(after)) => {
                    let what = format!("{whose}{name} {before} before, {after} after");
                    // Another program, or one at another place, is what is compared.
                    match *name == "command" && !(is_own(before) && is_own(after)) {
                        true => self.told.push(what),
                        false => self.refused.push(what),
                    }
                }
                _ => self
                    .told
                    .push(format!("{whose}only one of the two says its {name}")),
            }
        }
    }
}

/// Whether it is a server of this command, of which the arguments are known.
fn is_own(command: &str) -> bool {
    command.starts_with("tidewire serve")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lab(load: &str, command: &str, cores: u32) -> (Value, Of) {
        let work = json!({"load": load, "connections": 2});
        let of = of_lab(&work, &json!({"command": command}));
        let report = json!({"kind": "lab", "version": "1", "environment": {"cores": cores}, "result": {"run_ms": 500}});
        (report, of)
    }

    fn refused(b: (Value, Of)) -> Vec<String> {
        let a = lab("echo --size 64", "tidewire serve ... --engine epoll", 2);
        differences([&a.0, &b.0], &[("w, s", [&a.1, &b.1])], &[]).refused
    }

    #[test]
    fn another_load_server_or_machine_is_refused() {
        let own = "tidewire serve ... --engine epoll";
        assert!(refused(lab("echo --size 64", own, 2)).is_empty());
        let size = refused(lab("echo --size 16384", own, 2));
        assert_eq!(
            size,
            ["w, s: load echo --size 64 before, echo --size 16384 after"]
        );
        assert_eq!(refused(lab("kv --size 64", own, 2)).len(), 1);
        assert_eq!(refused(lab("echo --size 64", own, 4)).len(), 1);
        let uring = "tidewire serve ... --engine uring";
        assert_eq!(refused(lab("echo --size 64", uring, 2)).len(), 1);
        // Two builds in different places may be what the user compares; the difference is reported.
        let (a, b) = (
            lab("echo", "/old/redis", 2),
            lab("echo", "/new/redis --x", 2),
        );
        let found = differences([&a.0, &b.0], &[("w, s", [&a.1, &b.1])], &[]);
        assert_eq!((found.refused.len(), found.told.len()), (0, 1));
    }

    #[test]
    fn what_only_one_says_is_told() {
        let a = lab("echo", "x", 2);
        let found = differences([&a.0, &json!({})], &[("w", [&a.1, &Of::new()])], &[]);
        assert!(found.refused.is_empty() && !found.told.is_empty());
    }
}
