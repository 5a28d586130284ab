//! Reading the marks, to their end.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidewire_replicate::{Held, Share};

use super::{config, passes, told};
use crate::{Malformed, Settings, Target, format};

/// How long a broker may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long what is under way may take to be committed, before the marks are read without it.
const SOON: Duration = Duration::from_secs(5);
/// And where they must be read to the end.
const END: Duration = Duration::from_secs(30);

/// How far to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// To the end, or as far as is committed after a while: somebody else may have something under way.
    Soon,
    /// To the end.
    End,
}

/// What the marks say, by what is committed.
pub(super) fn read(
    target: &Target,
    share: Share,
    settings: &Settings,
    until: Until,
) -> Result<Held, String> {
    read_with(target, settings, until, |key, value, held| {
        format::take(key, value, share, held)
    })
}

/// The same, with the producers of whatever share.
pub(super) fn read_with_producers(
    target: &Target,
    share: Share,
    settings: &Settings,
) -> Result<Held, String> {
    read_with(
        target,
        settings,
        Until::Soon,
        |key, value, held| match format::take_producer(key, value, held)? {
            true => Ok(()),
            false => format::take(key, value, share, held),
        },
    )
}

fn read_with(
    target: &Target,
    settings: &Settings,
    until: Until,
    take: impl Fn(&[u8], Option<&[u8]>, &mut Held) -> Result<(), Malformed>,
) -> Result<Held, String> {
    read_all(target, settings, until, take).map_err(|error| match error {
        Trouble::Client(error) => format!("reading the marks: {}", told(&error)),
        Trouble::Other(why) => format!("reading the marks: {why}"),
    })
}

enum Trouble {
    Client(KafkaError),
    Other(String),
}

impl From<KafkaError> for Trouble {
    fn from(error: KafkaError) -> Trouble {
        Trouble::Client(error)
    }
}

fn read_all(
    target: &Target,
    settings: &Settings,
    until: Until,
    take: impl Fn(&[u8], Option<&[u8]>, &mut Held) -> Result<(), Malformed>,
) -> Result<Held, Trouble> {
    let marks = target.marks();
    // One sees all that was written, the other what is committed: where they agree nothing is under way.
    let all = consumer(target, settings, "read_uncommitted")?;
    let committed = consumer(target, settings, "read_committed")?;
    let (_, end) = all.fetch_watermarks(&marks, target.partition, ANSWER)?;
    let within = match until {
        Until::Soon => SOON,
        Until::End => END,
    };
    let began = Instant::now();
    let (first, next) = loop {
        let (first, next) = committed.fetch_watermarks(&marks, target.partition, ANSWER)?;
        if next >= end {
            break (first, next);
        }
        if began.elapsed() >= within {
            match until {
                Until::Soon => break (first, next),
                Until::End => {
                    return Err(Trouble::Other(format!(
                        "what was written up to offset {end} is committed only up to {next}"
                    )));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut held = Held::default();
    if first >= next {
        return Ok(held);
    }
    let mut places = TopicPartitionList::new();
    places.add_partition_offset(&marks, target.partition, Offset::Beginning)?;
    committed.assign(&places)?;
    let mut heard = Instant::now();
    let mut trouble = None;
    loop {
        match committed.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let key = message.key().unwrap_or_default();
                take(key, message.payload(), &mut held)
                    .map_err(|why| Trouble::Other(why.to_string()))?;
                continue;
            }
            // Nothing that was committed when it was asked for is behind this.
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(held),
            Some(Err(error)) if passes(&error) => trouble = Some(error),
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
        if heard.elapsed() >= END {
            return Err(trouble.map_or(Trouble::Other("nothing comes".into()), Trouble::Client));
        }
    }
}

/// One that reads what is committed, or all that was written.
pub(super) fn consumer(
    target: &Target,
    settings: &Settings,
    isolation: &str,
) -> KafkaResult<BaseConsumer> {
    reading(target, settings, isolation).create()
}

/// What it is set to.
pub(super) fn reading(target: &Target, settings: &Settings, isolation: &str) -> ClientConfig {
    let mut config = config(target, settings);
    config
        // Asked for by the client; nothing is ever committed under it.
        .set("group.id", "tidewire")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "50")
        // Brokers hand out what their disks have, and look at none of it.
        .set("check.crcs", "true")
        .set("isolation.level", isolation);
    config
}
