//! The servers that share a topic, and the producers.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidewire_ingest::client::To;
use tidewire_ingest::native::Fleet;
use tidewire_kafka::{PARTITIONS, Target};
use tidewire_replicate::Owners;

use crate::exit::Failure;
use crate::serve::logs::options::LogOptions;
use crate::span::Span;

/// As many partitions as a fleet may have.
const NODES_MAX: usize = 1024;
/// How long handing over may take: a node needs a moment, and the group's client gives up a member after five minutes.
const HAND_OVER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);

/// The fleet of --fleet; this server's place in it is its partition's, or that of --fleet-address. `None` without the flag,
/// or if nothing is replicated.
pub(crate) fn fleet(options: &LogOptions) -> Result<Option<Fleet>, Failure> {
    let Some(home) = &options.replicate else {
        return Ok(None);
    };
    let target: Target = home
        .parse()
        .map_err(|e| Failure::usage(format!("--replicate: {e}")))?;
    if !HAND_OVER.contains(&options.hand_over.0) {
        let (least, most) = (Span(*HAND_OVER.start()), Span(*HAND_OVER.end()));
        return Err(Failure::usage(format!(
            "--fleet-hand-over: from {least} to {most}"
        )));
    }
    if let Some(place) = &options.fleet_address {
        if home.contains("?partition=") {
            return Err(Failure::usage(format!(
                "--replicate {home}: with --fleet-address the group gives out the partitions: \
                 write their number, such as ?partitions={PARTITIONS}, or no parameter"
            )));
        }
        check(place).map_err(|why| Failure::usage(format!("--fleet-address: {why}")))?;
        let partitions = target.partitions.unwrap_or(PARTITIONS);
        return Ok(Some(Fleet::shared(Owners::default(), partitions)));
    }
    if target.partitions.is_some() {
        return Err(Failure::usage(format!(
            "--replicate {home}: ?partitions is for a fleet, which needs --fleet-address; for \
             one server write ?partition=N"
        )));
    }
    let Some(places) = &options.fleet else {
        return Ok(None);
    };
    let wrong = |why: String| Failure::usage(format!("--fleet: {why}"));
    let nodes: Vec<String> = places.split(',').map(str::to_owned).collect();
    let count = nodes.len();
    for node in &nodes {
        check(node).map_err(wrong)?;
    }
    if nodes.iter().collect::<BTreeSet<_>>().len() < count {
        return Err(wrong("a server is listed twice".into()));
    }
    let own = usize::try_from(target.partition).unwrap_or(usize::MAX);
    if count > NODES_MAX {
        return Err(wrong(format!(
            "{count} servers are listed; at most {NODES_MAX} are allowed"
        )));
    }
    match Fleet::new(nodes, own) {
        Some(fleet) => Ok(Some(fleet)),
        None => Err(wrong(format!(
            "the fleet has servers for the partitions 0 to {}, and {target} is not among these servers",
            count - 1
        ))),
    }
}

/// Whether clients can be sent there.
fn check(node: &str) -> Result<(), String> {
    let is_local = node.starts_with("unix:");
    if is_local || node.len() > Fleet::NODE_MAX || To::from(node).check().is_err() {
        return Err(format!("{node:?} is not HOST:PORT"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::defaults;

    fn of(places: &str, home: &str) -> Result<Option<Fleet>, String> {
        let options = LogOptions {
            fleet: Some(places.into()),
            replicate: Some(home.into()),
            ..defaults::of()
        };
        fleet(&options).map_err(|failure| failure.message)
    }

    #[test]
    fn the_place_of_a_server_is_its_partition() {
        let second = of("a:1,b:1", "kafka://k/t?partition=1").unwrap().unwrap();
        assert_eq!(second.elsewhere("web-8").as_deref(), Some("a:1"));
        assert_eq!(second.elsewhere("web-7"), None);
        let first = of("a:1,b:1", "kafka://k/t").unwrap().unwrap();
        assert_eq!(first.elsewhere("web-7").as_deref(), Some("b:1"));
    }

    #[test]
    fn a_member_is_told_how_many_partitions_there_are_and_not_which() {
        let member = |place: &str, home: &str| {
            let options = LogOptions {
                fleet_address: Some(place.into()),
                replicate: Some(home.into()),
                ..defaults::of()
            };
            fleet(&options).map_err(|failure| failure.message)
        };
        for home in ["kafka://k/t", "kafka://k/t?partitions=3"] {
            let found = member("a:7400", home).unwrap().unwrap();
            assert!(found.owners().is_some());
            assert_eq!(found.elsewhere("web-7"), None);
        }
        for (place, home, says) in [
            ("a", "kafka://k/t", "is not HOST:PORT"),
            ("unix:/s", "kafka://k/t", "is not HOST:PORT"),
            ("a:1", "kafka://k/t?partition=1", "the group gives out"),
        ] {
            let said = member(place, home).unwrap_err();
            assert!(said.contains(says), "{place} {home}: {said}");
        }
        let said = of("a:1", "kafka://k/t?partitions=2").unwrap_err();
        assert!(said.contains("needs --fleet-address"), "{said}");
    }

    #[test]
    fn handing_over_takes_neither_no_time_nor_longer_than_the_group_waits() {
        let within = |millis: u64| {
            let options = LogOptions {
                fleet_address: Some("a:7400".into()),
                replicate: Some("kafka://k/t".into()),
                hand_over: Span(Duration::from_millis(millis)),
                ..defaults::of()
            };
            fleet(&options).map_err(|failure| failure.message)
        };
        for millis in [1000, 10_000, 120_000] {
            assert!(within(millis).unwrap().is_some(), "{millis}");
        }
        for millis in [0, 999, 120_001] {
            let said = within(millis).unwrap_err();
            assert!(said.contains("--fleet-hand-over: from 1s to 2m"), "{said}");
        }
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
            (&*many.join(","), "kafka://k/t", "at most 1024"),
        ] {
            let said = of(places, home).unwrap_err();
            assert!(said.contains(says), "{places:.40}: {said}");
        }
    }
}
