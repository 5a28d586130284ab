//! Doing what is asked: looking, opening, carrying.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord};
use tidewire_replicate::{Answer, Ask, Held, Share, Transaction};

use super::producer::Transactional;
use super::{config, failed, marks, topics};
use crate::format;
use crate::record::{self, Sent};
use crate::{Settings, Target};

/// How long a broker may take to let the partition be opened.
const OPEN: Duration = Duration::from_secs(30);
/// The same for a transaction, from its beginning to its commit.
const CARRY: Duration = Duration::from_secs(45);
/// And to say where the partition ends.
const ANSWER: Duration = Duration::from_secs(10);
/// After which the coordinator aborts a transaction whose owner is silent, so that readers go on. Longer than one is tried.
const ABORTED_MS: &str = "60000";

/// How long a record waits for others, so that there are few requests, each as large as may be: they come as fast as they are copied.
const LINGER_MS: &str = "5";

pub(super) struct Worker {
    target: Target,
    share: Share,
    settings: Settings,
    producer: Option<Transactional>,
    /// Of records, in bytes, where the topics are there, and as they should be.
    batch_max: Option<u64>,
}

impl Worker {
    /// `target` is where the share is at home.
    pub(super) fn new(target: Target, share: Share, settings: Settings) -> Worker {
        Worker {
            target,
            share,
            settings,
            producer: None,
            batch_max: None,
        }
    }

    /// Whether the client takes its settings.
    pub(super) fn try_settings(&self) -> KafkaResult<()> {
        self.config().create::<BaseProducer>().map(drop)
    }

    pub(super) fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Look => match self.look() {
                Ok(answer) => answer,
                Err(why) => Answer::Failed(why.into()),
            },
            Ask::Open => match self.open() {
                Ok(answer) => answer,
                Err(why) => Answer::Failed(why.into()),
            },
            Ask::Carry(transaction) => self.carry(&transaction).unwrap_or_else(|error| {
                // The next one that opens it ends what this one has begun, if the topics still take it.
                self.producer = None;
                self.batch_max = None;
                match error.rdkafka_error_code() {
                    Some(code) if is_fenced(code) => Answer::Fenced(failed(&error)),
                    _ => Answer::Failed(failed(&error)),
                }
            }),
        }
    }

    fn look(&mut self) -> Result<Answer, String> {
        if self.batch_max.is_none() {
            self.batch_max = Some(topics::ensure(&self.target, &self.settings)?);
        }
        let held = marks::read(&self.target, self.share, &self.settings, marks::Until::Soon)?;
        Ok(Answer::Held(held))
    }

    fn open(&mut self) -> Result<Answer, String> {
        self.producer = None;
        self.producer = Some(Transactional::open(&self.config(), OPEN)?);
        // What was under way is committed or aborted now, and nobody else can begin anything.
        let held = marks::read(&self.target, self.share, &self.settings, marks::Until::End)?;
        self.has_records(&held)?;
        Ok(Answer::Held(held))
    }

    /// Whether there is a record at all, or ever was, where the marks say so and all are needed.
    fn has_records(&self, held: &Held) -> Result<(), String> {
        let is_begun = held.streams.values().any(|place| place.next > 0);
        let (Some(producer), true, true) = (&self.producer, self.settings.keeps_all, is_begun)
        else {
            return Ok(());
        };
        let Target {
            topic, partition, ..
        } = &self.target;
        let ends = producer.watermarks(topic, *partition, ANSWER);
        match ends.map_err(|error| super::told(&error))? {
            (_, 0) => Err(format!(
                "topic {topic} never had a record, and its marks say otherwise: was it deleted and made anew? What it had is \
                 gone, and the rest alone is of no use"
            )),
            _ => Ok(()),
        }
    }

    fn config(&self) -> ClientConfig {
        let least = topics::message_max(&self.settings);
        let batch_max = self.batch_max.unwrap_or(least).to_string();
        let mut config = config(&self.target, &self.settings);
        config
            .set("transactional.id", self.target.transactional_id(self.share))
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("transaction.timeout.ms", ABORTED_MS)
            .set("message.timeout.ms", (CARRY.as_millis()).to_string())
            .set("message.max.bytes", &batch_max)
            .set("batch.size", &batch_max)
            .set("queue.buffering.max.messages", "1000000")
            .set("linger.ms", LINGER_MS);
        config
    }

    fn carry(&mut self, transaction: &Transaction) -> KafkaResult<Answer> {
        let Some(producer) = &mut self.producer else {
            return Ok(Answer::Failed("the home is not open".into()));
        };
        let until = Instant::now() + CARRY;
        producer.begin()?;
        for record in &transaction.records {
            let Sent { headers, value } = record::sent(record, self.settings.form);
            let all = OwnedHeaders::new_with_capacity(headers.len());
            let headers = headers.iter().fold(all, |all, (key, value)| {
                let value = Some(value);
                all.insert(Header { key, value })
            });
            let stamp = i64::try_from(record.timestamp_us / 1000).unwrap_or(i64::MAX);
            let to_send = BaseRecord::to(&self.target.topic)
                .partition(self.target.partition)
                .key(record.stream.as_bytes())
                .payload(value)
                .headers(headers)
                .timestamp(stamp);
            producer.send(to_send, until)?;
        }
        let marks = self.target.marks();
        for (key, value) in format::marks(transaction, self.share) {
            let mut to_send = BaseRecord::to(&marks)
                .partition(self.target.partition)
                .key(key.as_slice());
            if let Some(value) = &value {
                to_send = to_send.payload(value.as_slice());
            }
            producer.send(to_send, until)?;
        }
        producer.commit(until)?;
        Ok(Answer::Committed)
    }
}

fn is_fenced(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
    )
}
