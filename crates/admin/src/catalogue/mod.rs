//! Every metric there is, with what it means. docs/reference/metrics.md is this list; a test holds the two together.
//!
//! Names follow Prometheus's conventions: base units (seconds, bytes) behind the name, `_total` behind counters.
//! Labels are bounded: services, loops, and reasons that stand in the code.

pub mod ack;
pub mod admin;
pub mod http;
pub mod ingest;
pub mod kv;
pub mod kv_home;
pub mod log;
pub mod process;
pub mod replication;
pub mod server;
pub mod ship;

use crate::metric::Metric;

/// All metrics, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let parts = [
        server::ALL,
        process::ALL,
        log::ALL,
        replication::ALL,
        ingest::ALL,
        ack::ALL,
        kv::ALL,
        kv_home::ALL,
        http::ALL,
        admin::ALL,
        ship::ALL,
    ];
    parts.into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metric::Kind;

    #[test]
    fn names_keep_to_the_conventions() {
        let mut names = BTreeSet::new();
        for metric in all() {
            let name = metric.name;
            assert!(names.insert(name), "{name} stands twice");
            let counts = metric.kind == Kind::Counter;
            assert_eq!(name.ends_with("_total"), counts, "{name}");
            assert!(
                name.starts_with("tidewire_") || name.starts_with("process_"),
                "{name}"
            );
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(word), "{name}");
            assert!(!metric.labels.contains(&"le"), "{name}");
            let help = metric.help.trim();
            assert!(help.ends_with('.') && help.len() > 10, "{name}: {help}");
        }
    }

    /// The table of docs/reference/metrics.md, rebuilt: `cargo test -p tidewire-admin -- --nocapture table` prints it.
    #[test]
    fn the_documentation_has_this_table() {
        let mut table = String::new();
        for metric in all() {
            let labels = match metric.labels {
                [] => String::new(),
                labels => format!("`{}`", labels.join("`, `")),
            };
            let kind = metric.kind.name();
            let help = metric.help.trim();
            table.push_str(&format!(
                "| `{}` | {kind} | {labels} | {help} |\n",
                metric.name
            ));
        }
        let written = include_str!("../../../../docs/reference/metrics.md");
        let rows = |text: &str| -> Vec<String> {
            let rows = text.lines().filter(|line| line.starts_with("| `"));
            rows.map(ToOwned::to_owned).collect()
        };
        if rows(written) != rows(&table) {
            println!("{table}");
        }
        assert_eq!(
            rows(written),
            rows(&table),
            "docs/reference/metrics.md tells of other metrics"
        );
    }
}
