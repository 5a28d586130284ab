//! The members of the group of a store's servers: Kafka's own group of consumers, which reads nothing. It says which of them
//! live, and the client id of each says where its clients find it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::{ClientConfig, ClientContext};

use super::common::{config, told};
use super::topics;
use crate::assignment::{client_id, place};
use crate::{Settings, Target, Unavailable};

/// How long a broker may take to name the members.
const ANSWER: Duration = Duration::from_secs(3);
/// How often a member reports that it lives; milliseconds.
const HEARTBEAT_MS: &str = "1500";

struct Callbacks;

impl ClientContext for Callbacks {}

impl ConsumerContext for Callbacks {
    fn post_rebalance(&self, consumer: &BaseConsumer<Callbacks>, what: &Rebalance<'_>) {
        if let Rebalance::Assign(_) = what
            && let Ok(all) = consumer.assignment()
        {
            // Nothing is read there; a partition that is not paused is thrown away below.
            let _ = consumer.pause(&all);
        }
    }
}

/// Membership of the group of a store's servers. Dropping it leaves the group at once.
pub struct Members {
    consumer: BaseConsumer<Callbacks>,
    group: String,
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Members({})", self.group)
    }
}

impl Members {
    /// Joins the group of the store at `target`; clients find this member at `at`. A member that is silent for `session` is none
    /// any more. Topics that are missing are made.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn join(
        target: &Target,
        settings: &Settings,
        at: &str,
        session: Duration,
    ) -> Result<Members, Unavailable> {
        topics::ensure(target, settings).map_err(Unavailable::Client)?;
        let group = target.store_group();
        let mut config: ClientConfig = config(target, settings);
        config
            .set("client.id", client_id(at))
            .set("group.id", &group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", session.as_millis().to_string())
            .set("heartbeat.interval.ms", HEARTBEAT_MS)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "latest");
        let client = |error| Unavailable::Client(told(&error));
        let consumer: BaseConsumer<Callbacks> =
            config.create_with_context(Callbacks).map_err(client)?;
        consumer.subscribe(&[&target.marks()]).map_err(client)?;
        Ok(Members { consumer, group })
    }

    /// Is a member for this long; the client sends its heartbeats by itself.
    pub fn stay(&self, within: Duration) {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(Err(error)) = self.consumer.poll(left) {
                tracing::debug!(why = told(&error), "the group of the store");
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Where the members are, this one among them if the group knows it.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn places(&self) -> Result<BTreeSet<String>, Unavailable> {
        let groups = self.consumer.fetch_group_list(Some(&self.group), ANSWER);
        let groups = groups.map_err(|error| Unavailable::Client(told(&error)))?;
        let groups = groups.groups().iter();
        let members = groups.flat_map(|group| group.members());
        let places = members.filter_map(|member| place(member.client_id()));
        Ok(places.map(str::to_owned).collect())
    }
}
