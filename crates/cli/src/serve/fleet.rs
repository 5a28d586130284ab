//! The servers that share a topic, and the producers.

use std::collections::BTreeSet;

use tidewire_ingest::client::To;
use tidewire_ingest::native::Fleet;
use tidewire_kafka::Target;

use super::durable::LogOptions;
use crate::exit::Failure;

/// As many partitions as a fleet may have.
const NODES_MAX: usize = 1024;

/// The fleet of --fleet, in which this server has the place of its partition; `None` if there is no such flag, or nothing
/// is replicated.
pub(super) fn fleet(options: &LogOptions) -> Result<Option<Fleet>, Failure> {
    let (Some(places), Some(home)) = (&options.fleet, &options.replicate) else {
        return Ok(None);
    };
    let target: Target = home
        .parse()
        .map_err(|e| Failure::usage(format!("--replicate: {e}")))?;
    let wrong = |why: String| Failure::usage(format!("--fleet: {why}"));
    let nodes: Vec<String> = places.split(',').map(str::to_owned).collect();
    let count = nodes.len();
    for node in &nodes {
        let is_local = node.starts_with("unix:");
        if is_local || node.len() > Fleet::NODE_MAX || To::from(&**node).check().is_err() {
            return Err(wrong(format!("{node:?} is not HOST:PORT")));
        }
    }
    if nodes.iter().collect::<BTreeSet<_>>().len() < count {
        return Err(wrong("a server stands there twice".into()));
    }
    let own = usize::try_from(target.partition).unwrap_or(usize::MAX);
    if count > NODES_MAX {
        return Err(wrong(format!("{count} servers; there may be {NODES_MAX}")));
    }
    match Fleet::new(nodes, own) {
        Some(fleet) => Ok(Some(fleet)),
        None => Err(wrong(format!(
            "it has places for the partitions 0 to {}, and {target} is none of them",
            count - 1
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &str, home: &str) -> Result<Option<Fleet>, String> {
        let options = LogOptions {
            fleet: Some(places.into()),
            replicate: Some(home.into()),
            ..LogOptions::default()
        };
        fleet(&options).map_err(|failure| failure.message)
    }

    #[test]
    fn the_place_of_a_server_is_its_partition() {
        let second = of("a:1,b:1", "kafka://k/t?partition=1").unwrap().unwrap();
        assert_eq!(second.elsewhere("web-8"), Some("a:1"));
        assert_eq!(second.elsewhere("web-7"), None);
        let first = of("a:1,b:1", "kafka://k/t").unwrap().unwrap();
        assert_eq!(first.elsewhere("web-7"), Some("b:1"));
    }

    #[test]
    fn what_is_no_fleet_is_refused_with_a_word() {
        let long = format!("{}:1", "a".repeat(255));
        let many: Vec<String> = (0..=NODES_MAX).map(|n| format!("a{n}:1")).collect();
        for (places, home, says) in [
            ("", "kafka://k/t", "is not HOST:PORT"),
            ("a:1,", "kafka://k/t", "is not HOST:PORT"),
            ("a", "kafka://k/t", "is not HOST:PORT"),
            ("unix:/s", "kafka://k/t", "is not HOST:PORT"),
            (&*long, "kafka://k/t", "is not HOST:PORT"),
            ("a:1,a:1", "kafka://k/t", "twice"),
            ("a:1,b:1", "kafka://k/t?partition=2", "partitions 0 to 1"),
            (&*many.join(","), "kafka://k/t", "there may be 1024"),
        ] {
            let said = of(places, home).unwrap_err();
            assert!(said.contains(says), "{places:.40}: {said}");
        }
    }
}
