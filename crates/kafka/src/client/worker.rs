//! Doing what is asked: looking, opening, carrying.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DefaultProducerContext, Producer, ThreadedProducer,
};
use tidewire_replicate::{Answer, Ask, Share, Transaction};

use super::{config, failed, marks, topics};
use crate::format::{self, HEADERS};
use crate::{Settings, Target};

/// How long a broker may take to let the partition be opened.
const OPEN: Duration = Duration::from_secs(30);
/// The same for a transaction, from its beginning to its commit.
const CARRY: Duration = Duration::from_secs(45);
/// After which the coordinator aborts a transaction whose owner is silent, so that readers go on. Longer than one is tried.
const ABORTED_MS: &str = "60000";

/// Records wait for the commit, which sends at once whatever waits: so there are few requests, each as large as may be.
const LINGER_MS: &str = "1000";

/// With a thread that serves what the brokers have answered: the client's own commit waits for that. (`BaseProducer::flush`,
/// which serves it on the caller's thread, waits in steps of 100 ms, and would be most of a transaction's time.)
type Client = ThreadedProducer<DefaultProducerContext>;

pub(super) struct Worker {
    target: Target,
    share: Share,
    settings: Settings,
    producer: Option<Client>,
    /// The topics are there, and as they should be.
    is_checked: bool,
}

impl Worker {
    /// `target` is where the share is at home.
    pub(super) fn new(target: Target, share: Share, settings: Settings) -> Worker {
        Worker {
            target,
            share,
            settings,
            producer: None,
            is_checked: false,
        }
    }

    /// Whether the client takes its settings.
    pub(super) fn try_settings(&self) -> KafkaResult<()> {
        // Without the thread, whose end takes a while.
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
                // The next one that opens it ends what this one has begun.
                self.producer = None;
                match &error {
                    KafkaError::Transaction(why) if is_fenced(why.code()) => {
                        Answer::Fenced(failed(&error))
                    }
                    error => Answer::Failed(failed(error)),
                }
            }),
        }
    }

    fn look(&mut self) -> Result<Answer, String> {
        if !self.is_checked {
            topics::ensure(&self.target, &self.settings)?;
            self.is_checked = true;
        }
        let held = marks::read(&self.target, self.share, &self.settings, marks::Until::Soon)?;
        Ok(Answer::Held(held))
    }

    fn open(&mut self) -> Result<Answer, String> {
        self.producer = None;
        let producer: Client = self
            .config()
            .create()
            .map_err(|error| super::told(&error))?;
        producer
            .init_transactions(OPEN)
            .map_err(|error| super::told(&error))?;
        self.producer = Some(producer);
        // What was under way is committed or aborted now, and nobody else can begin anything.
        let held = marks::read(&self.target, self.share, &self.settings, marks::Until::End)?;
        Ok(Answer::Held(held))
    }

    fn config(&self) -> ClientConfig {
        let mut config = config(&self.target, &self.settings);
        config
            .set("transactional.id", self.target.transactional_id(self.share))
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("transaction.timeout.ms", ABORTED_MS)
            .set("message.timeout.ms", (CARRY.as_millis()).to_string())
            .set(
                "message.max.bytes",
                topics::message_max(&self.settings).to_string(),
            )
            .set("queue.buffering.max.messages", "1000000")
            .set("linger.ms", LINGER_MS);
        config
    }

    fn carry(&mut self, transaction: &Transaction) -> KafkaResult<Answer> {
        let Some(producer) = &self.producer else {
            return Ok(Answer::Failed("the home is not open".into()));
        };
        let until = Instant::now() + CARRY;
        producer.begin_transaction()?;
        for record in &transaction.records {
            let values = format::headers(record);
            let headers = HEADERS.iter().zip(&values);
            let headers = headers.fold(
                OwnedHeaders::new_with_capacity(5),
                |headers, (&key, value)| {
                    headers.insert(Header {
                        key,
                        value: Some(value),
                    })
                },
            );
            let stamp = i64::try_from(record.timestamp_us / 1000).unwrap_or(i64::MAX);
            let to_send = BaseRecord::to(&self.target.topic)
                .partition(self.target.partition)
                .key(record.stream.as_bytes())
                .payload(record.frames.as_slice())
                .headers(headers)
                .timestamp(stamp);
            send(producer, to_send, until)?;
        }
        let marks = self.target.marks();
        for (key, value) in format::marks(transaction, self.share) {
            let mut to_send = BaseRecord::to(&marks)
                .partition(self.target.partition)
                .key(key.as_slice());
            if let Some(value) = &value {
                to_send = to_send.payload(value.as_slice());
            }
            send(producer, to_send, until)?;
        }
        loop {
            match producer.commit_transaction(until.saturating_duration_since(Instant::now())) {
                Ok(()) => return Ok(Answer::Committed),
                // The same commit once more, which is what the protocol allows.
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Hands a record to the client, as soon as there is room.
fn send(producer: &Client, record: BaseRecord<'_, [u8], [u8]>, until: Instant) -> KafkaResult<()> {
    let mut record = record;
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back))
                if Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
                record = back;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

fn is_fenced(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced | RDKafkaErrorCode::InvalidProducerEpoch
    )
}
