//! Reads the marks of a partition to their end.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidewire_replicate::{Held, Share};

use super::common::{config, passes, told};
use super::said;
use crate::{Malformed, Settings, Target, format};

/// How long a broker may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long what is under way may take to be committed, before the marks are read without it.
const SOON: Duration = Duration::from_secs(5);
/// How long transactions of others that were open may take to end, where readers are to see what is committed.
const HIDDEN: Duration = Duration::from_secs(10);
/// How long marks that must be read to the end may take.
const END: Duration = Duration::from_secs(30);

/// How far to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// To the end, or as far as is committed after a while: another process may have a transaction
    /// under way.
    Soon,
    /// Read to the end.
    End,
}

/// The committed marks.
pub(super) fn read(
    target: &Target,
    share: Share,
    settings: &Settings,
    until: Until,
) -> Result<Held, String> {
    let held = read_with(target, settings, until, |key, value, held| {
        format::take(key, value, share, held)
    })?;
    fits(target, &held)?;
    Ok(held)
}

/// Reads the marks, with the producers of any share.
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
            true => Ok(true),
            false => format::take(key, value, share, held),
        },
    )
}

/// Whether the topic of the records is the one that the marks speak of.
fn fits(target: &Target, held: &Held) -> Result<(), String> {
    let topic = &target.topic;
    let is_begun = held.streams.values().any(|place| place.next > 0);
    if is_begun && !held.has_records {
        return Err(format!(
            "topic {topic} never had a record, and its marks say otherwise: was it deleted and \
             made anew? Its records are lost. Nothing is replicated to an incomplete home: give \
             the log a topic of its own"
        ));
    }
    Ok(())
}

/// The error that a topic ends before an offset where it had records.
pub(super) fn remade(topic: &str, end: u64, reached: u64) -> String {
    format!(
        "topic {topic} ends at offset {end}, and had records up to {reached}: it was deleted and \
         made anew, or has lost records. Nothing is replicated to an incomplete home: give the \
         log a topic of its own"
    )
}

fn read_with(
    target: &Target,
    settings: &Settings,
    until: Until,
    take: impl Fn(&[u8], Option<&[u8]>, &mut Held) -> Result<bool, Malformed>,
) -> Result<Held, String> {
    read_all(target, settings, until, take).map_err(|error| match error {
        Trouble::Client(why) => format!(
            "reading the marks: {}",
            said::with_cause(why, target, settings)
        ),
        Trouble::Other(why) => format!("reading the marks: {why}"),
    })
}

enum Trouble {
    Client(String),
    Other(String),
}

impl From<KafkaError> for Trouble {
    fn from(error: KafkaError) -> Trouble {
        Trouble::Client(told(&error))
    }
}

fn read_all(
    target: &Target,
    settings: &Settings,
    until: Until,
    take: impl Fn(&[u8], Option<&[u8]>, &mut Held) -> Result<bool, Malformed>,
) -> Result<Held, Trouble> {
    let marks = target.marks();
    // The first consumer sees all records, the second the committed ones: if their ends agree, no
    // transaction is open.
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
    let topic = &target.topic;
    let (_, records) = all.fetch_watermarks(topic, target.partition, ANSWER)?;
    let mut held = Held {
        has_records: records > 0,
        ..Held::default()
    };
    if until == Until::End {
        held.hidden = hidden(&committed, target, records, HIDDEN)?.map(Into::into);
    }
    if first >= next {
        return Ok(held);
    }
    let mut places = TopicPartitionList::new();
    places.add_partition_offset(&marks, target.partition, Offset::Beginning)?;
    committed.assign(&places)?;
    let mut heard = Instant::now();
    let mut trouble = None;
    let mut others = 0_u64;
    loop {
        match committed.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let key = message.key().unwrap_or_default();
                let taken = take(key, message.payload(), &mut held);
                let is_mark = taken.map_err(|why| {
                    let offset = message.offset();
                    Trouble::Other(format!("offset {offset} of {marks} is {why}"))
                })?;
                format::note_proof(key, message.offset(), &mut held);
                others += u64::from(!is_mark);
                continue;
            }
            // All records that were committed at the request have been read.
            Some(Err(KafkaError::PartitionEOF(_))) => {
                if others > 0 {
                    tracing::warn!(
                        topic = marks,
                        others,
                        "records of another program are among the marks"
                    );
                }
                let reached = format::take_reached(&mut held);
                // Asked after the marks were read, which speak of it: another owner may be writing all the time.
                let (_, records) = all.fetch_watermarks(topic, target.partition, ANSWER)?;
                held.has_records = records > 0;
                let end = u64::try_from(records).unwrap_or(0);
                if end < reached {
                    return Err(Trouble::Other(remade(topic, end, reached)));
                }
                return Ok(held);
            }
            Some(Err(error)) if passes(&error) => trouble = Some(error),
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
        if heard.elapsed() >= END {
            return Err(trouble.map_or(Trouble::Other("nothing comes".into()), Trouble::from));
        }
    }
}

/// Waits until readers see everything that is committed up to an offset of the topic of records; the error says why they do not,
/// if it takes longer.
fn hidden(
    committed: &BaseConsumer,
    target: &Target,
    end: i64,
    within: Duration,
) -> KafkaResult<Option<String>> {
    let began = Instant::now();
    loop {
        let (_, seen) = committed.fetch_watermarks(&target.topic, target.partition, ANSWER)?;
        if seen >= end {
            return Ok(None);
        }
        if began.elapsed() >= within {
            return Ok(Some(is_hidden(&target.topic, seen, end)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The error that readers do not see committed records.
pub(super) fn is_hidden(topic: &str, seen: i64, end: i64) -> String {
    format!(
        "readers of topic {topic} do not see committed records behind offset {seen}, up to {end}: another program has a transaction open \
         there. Brokers end it after its time-out, at most transaction.max.timeout.ms; kafka-transactions.sh finds it and can abort it"
    )
}

/// A consumer that reads committed records, or all that were written.
pub(super) fn consumer(
    target: &Target,
    settings: &Settings,
    isolation: &str,
) -> KafkaResult<BaseConsumer> {
    reading(target, settings, isolation).create()
}

/// The configuration of a consumer.
pub(super) fn reading(target: &Target, settings: &Settings, isolation: &str) -> ClientConfig {
    let mut config = config(target, settings);
    config
        // Asked for by the client; nothing is ever committed under it.
        .set("group.id", "tidewire")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "50")
        // Brokers hand out the bytes on their disks without checking them.
        .set("check.crcs", "true")
        .set("isolation.level", isolation);
    config
}
