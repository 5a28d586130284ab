//! Which home is meant: `kafka://HOST[:PORT],.../TOPIC[?partition=N]`.

use std::fmt;
use std::str::FromStr;

/// What a broker listens at if nobody says.
const PORT: u16 = 9092;

/// A partition of a topic, and some brokers that know where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Hosts and ports, at least one.
    pub brokers: Vec<String>,
    /// The topic of the records.
    pub topic: String,
    /// The partition, of it and of the topic of the marks. Default 0.
    pub partition: i32,
}

/// What is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no home: {why}; it should be like kafka://host1:9092,host2,host3/TOPIC or ...?partition=3"
)]
pub struct BadTarget {
    text: String,
    why: &'static str,
}

/// What can be set about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Settings of the client (librdkafka's), for TLS, SASL and the like. They come before those that the
    /// promise needs.
    pub client: Vec<(String, String)>,
    /// Goes on with a topic that cannot keep the promise, with a word in the log. Default false.
    pub is_unsafe: bool,
    /// The largest payload that the log takes; bytes.
    pub payload_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            client: Vec::new(),
            is_unsafe: false,
            payload_max: 1 << 20,
        }
    }
}

impl Target {
    /// The topic of the marks.
    #[must_use]
    pub fn marks(&self) -> String {
        format!("{}-marks", self.topic)
    }

    /// The transactional id, which belongs to the partition.
    #[must_use]
    pub fn transactional_id(&self) -> String {
        format!("tidewire-{}-{}", self.topic, self.partition)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kafka://{}/{}?partition={}",
            self.brokers.join(","),
            self.topic,
            self.partition
        )
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Target, BadTarget> {
        let bad = |why| BadTarget {
            text: text.to_owned(),
            why,
        };
        let rest = text
            .strip_prefix("kafka://")
            .ok_or(bad("it does not begin with kafka://"))?;
        let (brokers, place) = rest.split_once('/').ok_or(bad("it names no topic"))?;
        let (topic, partition) = match place.split_once("?partition=") {
            Some((topic, partition)) => (topic, partition.parse().ok()),
            None => (place, Some(0)),
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
        let with_port = |broker: &str| match broker.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => broker.to_owned(),
            _ => format!("{broker}:{PORT}"),
        };
        if brokers.split(',').any(str::is_empty) {
            return Err(bad("a host is missing"));
        }
        Ok(Target {
            brokers: brokers.split(',').map(with_port).collect(),
            topic: topic.to_owned(),
            partition: partition.ok_or(bad("a partition is a number from 0 on"))?,
        })
    }
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
        for bad in [
            "a/t",
            "kafka://a",
            "kafka:///t",
            "kafka://a,/t",
            "kafka://a/",
            "kafka://a/t?partition=-1",
            "kafka://a/t u",
            "kafka://a/t?x=1",
            "kafka://a/..",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
