//! librdkafka's own simulated brokers within this process, for tests. The brokers know producers' transactions, but no
//! administrators' requests.

use std::fmt;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::common::told;
use crate::{Target, Unavailable};

/// How many there are.
const BROKERS: i32 = 3;

/// Some simulated brokers, until this value is dropped.
pub struct Brokers(MockCluster<'static, DefaultProducerContext>);

impl fmt::Debug for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Brokers({})", self.0.bootstrap_servers())
    }
}

impl Brokers {
    /// Three simulated brokers, with the topics of a store whose home has this name.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn start(topic: &str) -> Result<(Brokers, Target), Unavailable> {
        let client = |error| Unavailable::Client(told(&error));
        let cluster = MockCluster::new(BROKERS).map_err(client)?;
        let target = Target {
            brokers: cluster
                .bootstrap_servers()
                .split(',')
                .map(str::to_owned)
                .collect(),
            topic: topic.to_owned(),
            partition: 0,
            partitions: None,
        };
        for topic in [&target.topic, &target.marks(), &target.snapshots().topic] {
            cluster.create_topic(topic, 1, BROKERS).map_err(client)?;
        }
        Ok((Brokers(cluster), target))
    }

    /// Makes all brokers unreachable, or reachable again.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn reach(&self, is_reached: bool) -> Result<(), Unavailable> {
        for number in 1..=BROKERS {
            let done = match is_reached {
                true => self.0.broker_up(number),
                false => self.0.broker_down(number),
            };
            done.map_err(|error| Unavailable::Client(told(&error)))?;
        }
        Ok(())
    }
}
