//! Which home is meant: `kafka://HOST[:PORT],.../TOPIC[?partition=N]`, or `?partitions=N` of a fleet.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use tidewire_replicate::Share;

use crate::Form;

/// Default port of a broker.
const PORT: u16 = 9092;

/// As many partitions as a fleet may have.
pub const PARTITIONS_MAX: u32 = 1024;
/// Default number of partitions.
pub const PARTITIONS: u32 = 12;

/// A partition of a topic, and some brokers that know where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Hosts and ports, at least one.
    pub brokers: Vec<String>,
    /// The topic of the records.
    pub topic: String,
    /// The partition of the topic, and of the topic of the marks. Default 0.
    pub partition: i32,
    /// How many partitions there are, where that is said: a fleet shares them.
    pub partitions: Option<u32>,
}

/// A text that is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no home: {why}; write it like kafka://host1:9092,host2,host3/TOPIC or ...?partition=3; with --fleet-address, ...?partitions=12"
)]
pub struct BadTarget {
    text: String,
    why: &'static str,
}

/// Settings of the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Settings of the client (librdkafka's), for TLS, SASL and the like. Settings that the promise
    /// of durability needs override these settings.
    pub client: Vec<(String, String)>,
    /// Goes on with a topic that cannot keep the promise, with a word in the log. Default false.
    pub is_unsafe: bool,
    /// Whether the records are useful only as a whole: then a topic that forgets records is refused. Default false.
    pub keeps_all: bool,
    /// The form of a record of the topic: the code that fills transactions cuts them at
    /// [`Form::record_bytes`](crate::Form::record_bytes). Default runs.
    pub form: Form,
    /// The largest payload that the log takes; bytes.
    pub payload_max: u32,
    /// How often the client checks whether the topics still keep the promise, while records are carried. Default
    /// 30 s.
    pub check_every: Duration,
    /// How long the group of a fleet waits for a member to hand over revoked partitions; longer than a node takes for
    /// that, and below the client's `max.poll.interval.ms`. Default 20 s.
    pub hand_over: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            client: Vec::new(),
            is_unsafe: false,
            keeps_all: false,
            form: Form::Run,
            payload_max: 1 << 20,
            check_every: Duration::from_secs(30),
            hand_over: Duration::from_secs(20),
        }
    }
}

impl Target {
    /// The topic of the marks.
    #[must_use]
    pub fn marks(&self) -> String {
        format!("{}-marks", self.topic)
    }

    /// The topic of snapshots, with the same partition.
    #[must_use]
    pub fn snapshots(&self) -> Target {
        Target {
            topic: format!("{}-snapshots", self.topic),
            ..self.clone()
        }
    }

    /// The transactional id of a share, which belongs to the partition, or to the log.
    #[must_use]
    pub fn transactional_id(&self, share: Share) -> String {
        match share {
            Share::Whole | Share::Partition { .. } => {
                format!("tidewire-{}-{}", self.topic, self.partition)
            }
            Share::Own { log, .. } => format!("tidewire-{}-log-{log:016x}", self.topic),
        }
    }

    /// The group whose members share the partitions.
    #[must_use]
    pub fn group(&self) -> String {
        format!("tidewire-{}", self.topic)
    }

    /// The group of the servers of a store.
    #[must_use]
    pub fn store_group(&self) -> String {
        format!("tidewire-{}-store-{}", self.topic, self.partition)
    }

    /// Where a share of a fleet is at home.
    #[must_use]
    pub fn of(&self, share: Share) -> Target {
        let partition = share
            .partition()
            .and_then(|number| i32::try_from(number).ok());
        Target {
            partition: partition.unwrap_or(self.partition),
            ..self.clone()
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka://{}/{}", self.brokers.join(","), self.topic)?;
        match self.partitions {
            Some(partitions) => write!(f, "?partitions={partitions}"),
            None => write!(f, "?partition={}", self.partition),
        }
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Target, BadTarget> {
        let bad = |why| BadTarget {
            text: without_secret(text),
            why,
        };
        let rest = text
            .strip_prefix("kafka://")
            .ok_or(bad("it does not begin with kafka://"))?;
        let (brokers, place) = rest.split_once('/').ok_or(bad("it names no topic"))?;
        let (topic, which) = match place.split_once('?') {
            Some((topic, which)) => (topic, Some(which)),
            None => (place, None),
        };
        let (partition, partitions) = match which.map(|which| which.split_once('=')) {
            None => (Some(0), None),
            Some(Some(("partition", number))) => (number.parse().ok(), None),
            Some(Some(("partitions", number))) => {
                let count = number.parse().ok();
                let count = count.filter(|count| (1..=PARTITIONS_MAX).contains(count));
                let why = "there are 1 to 1024 partitions";
                (Some(0), Some(count.ok_or(bad(why))?))
            }
            Some(_) => (None, None),
        };
        let partition = partition.filter(|partition| *partition >= 0);
        let is_named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        // The topic of the marks has six characters more, and no topic more than 249.
        if topic.is_empty()
            || topic.len() > 243
            || !topic.chars().all(is_named)
            || topic == "."
            || topic == ".."
        {
            return Err(bad(
                "a topic has 1 to 243 letters, digits, dots, dashes and underscores",
            ));
        }
        if brokers.split(',').any(str::is_empty) {
            return Err(bad("a host is missing"));
        }
        if brokers.contains('@') {
            return Err(bad(
                "user and password do not belong in an address: they go into the client's settings file (sasl.username, sasl.password)",
            ));
        }
        let brokers: Option<Vec<String>> = brokers.split(',').map(with_port).collect();
        Ok(Target {
            brokers: brokers.ok_or(bad(
                "a host is a name, an address or an [address], and its port a number from 1 to 65535",
            ))?,
            topic: topic.to_owned(),
            partition: partition.ok_or(bad("a partition is a number from 0 on"))?,
            partitions,
        })
    }
}

/// The target as it was given, without its secrets.
fn without_secret(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}://...@{rest}"),
        None => text.to_owned(),
    }
}

/// A broker, with the default port if the text names none; `None` if the text is no broker.
fn with_port(broker: &str) -> Option<String> {
    let (host, port) = match broker.rsplit_once(':') {
        Some((host, port)) if !broker.ends_with(']') => (host, Some(port)),
        _ => (broker, None),
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok());
    let port = port.filter(|port| *port > 0)?;
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match inner {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let is_named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !host.is_empty() && host.chars().all(is_named)
        }
    };
    is_host.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_go_both_ways() {
        let target: Target = "kafka://a,b:1,[::1]:9/t.x?partition=3".parse().unwrap();
        assert_eq!(target.brokers, ["a:9092", "b:1", "[::1]:9"]);
        assert_eq!((&*target.topic, target.partition), ("t.x", 3));
        assert_eq!(target.to_string().parse(), Ok(target));
        assert_eq!("kafka://a/t".parse::<Target>().unwrap().partition, 0);
        let fleet: Target = "kafka://a/t?partitions=6".parse().unwrap();
        assert_eq!((fleet.partitions, fleet.partition), (Some(6), 0));
        assert_eq!(fleet.to_string().parse(), Ok(fleet));
        for bad in [
            "a/t",
            "kafka://a",
            "kafka:///t",
            "kafka://a,/t",
            "kafka://a/",
            "kafka://a/t?partition=-1",
            "kafka://a/t u",
            "kafka://a/t?x=1",
            "kafka://a/t?",
            "kafka://a/t?partitions=0",
            "kafka://a/t?partitions=1025",
            "kafka://a/t?partitions=-1",
            "kafka://a/..",
            "kafka://a b/t",
            "kafka://a:99999/t",
            "kafka://a:0/t",
            "kafka://a:/t",
            "kafka://::1/t",
            "kafka://[a]/t",
            "kafka://:9/t",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_repeated() {
        for bad in [
            "kafka://me:hunter2@a/t",
            "kafka://a,me:hunter2@b:1/t",
            "http://me:hunter2@a/t",
            "me:hunter2@a",
        ] {
            let why = bad.parse::<Target>().unwrap_err().to_string();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
