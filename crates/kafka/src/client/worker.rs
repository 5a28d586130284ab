//! The thread that carries out requests: looking, opening, carrying.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord};
use tidewire_replicate::{Answer, Ask, Share, Transaction};

use super::common::{config, failed, passes, told};
use super::producer::Transactional;
use super::{marks, topics};
use crate::format;
use crate::record::{self, Sent};
use crate::{Settings, Target};

/// How long a broker may take to let the partition be opened.
const OPEN: Duration = Duration::from_secs(30);
/// Time-out of a transaction, from its beginning to its commit.
const CARRY: Duration = Duration::from_secs(45);
/// How long brokers may take to say where the partition ends.
const ANSWER: Duration = Duration::from_secs(10);
/// After which the coordinator aborts a transaction whose owner is silent, so that readers go on. Longer than one is tried.
const ABORTED_MS: &str = "60000";

/// How long a record waits for others, so that there are few requests, each as large as may be: they come as fast as they are copied.
const LINGER_MS: &str = "5";

/// How long records go without a time after a broker has refused theirs.
const UNTIMED: Duration = Duration::from_secs(600);
/// Timestamp of a record without a time. Brokers take it whatever their clocks and limits; 0 would
/// be the client's clock.
const NO_TIME: i64 = -1;
/// Between looks at what readers see.
const SEEN: Duration = Duration::from_millis(1);
const SEEN_LAST: Duration = Duration::from_millis(50);

/// Why a transaction was not carried, or why it is unknown whether it was.
enum NotCarried {
    Client(KafkaError),
    Other(String),
}

impl From<KafkaError> for NotCarried {
    fn from(error: KafkaError) -> NotCarried {
        NotCarried::Client(error)
    }
}

pub(super) struct Worker {
    target: Target,
    share: Share,
    settings: Settings,
    producer: Option<Transactional>,
    /// Largest batch of records in bytes, once the topics are there and in order.
    batch_max: Option<u64>,
    /// When the topics were last checked.
    checked: Instant,
    /// Brokers have refused the times of records: until then they have none.
    untimed: Option<Instant>,
    /// The highest offset that was written in each topic: in a topic that was made anew, offsets begin
    /// again.
    reached: BTreeMap<String, i64>,
    /// Asks what readers see.
    sees: Option<BaseConsumer>,
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
            checked: Instant::now(),
            untimed: None,
            reached: BTreeMap::new(),
            sees: None,
        }
    }

    /// Checks that the client takes its settings.
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
            Ask::Carry(transaction) => match self.carry(&transaction) {
                Ok(answer) => answer,
                Err(why) => self.not_carried(why),
            },
        }
    }

    fn not_carried(&mut self, why: NotCarried) -> Answer {
        let refused = self.producer.as_ref().and_then(Transactional::refused);
        // The next opening ends the transactions that this producer has begun, if the topics still
        // accept that.
        self.producer = None;
        self.batch_max = None;
        if refused == Some(RDKafkaErrorCode::InvalidTimestamp) {
            self.untimed = Some(Instant::now() + UNTIMED);
            tracing::warn!(
                topic = self.target.topic,
                "a broker refuses the time of a record: its clock or this one is wrong, or the \
                 topic refuses such times. For 10 minutes records are sent without a time; their \
                 header tidewire-received-us has it"
            );
        }
        match why {
            NotCarried::Other(why) => Answer::Failed(why.into()),
            NotCarried::Client(error) => match error.rdkafka_error_code() {
                Some(code) if is_fenced(code) => Answer::Fenced(failed(&error)),
                _ => Answer::Failed(failed(&error)),
            },
        }
    }

    fn look(&mut self) -> Result<Answer, String> {
        if self.batch_max.is_none() {
            self.batch_max = Some(topics::ensure(&self.target, &self.settings)?);
            self.checked = Instant::now();
        }
        let held = marks::read(&self.target, self.share, &self.settings, marks::Until::Soon)?;
        Ok(Answer::Held(held))
    }

    fn open(&mut self) -> Result<Answer, String> {
        self.producer = None;
        self.producer = Some(Transactional::open(&self.config(), OPEN)?);
        // Transactions under way are committed or aborted now, and no other process can begin one.
        let held = marks::read(&self.target, self.share, &self.settings, marks::Until::End)?;
        Ok(Answer::Held(held))
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

    fn carry(&mut self, transaction: &Transaction) -> Result<Answer, NotCarried> {
        let until = Instant::now() + CARRY;
        self.check()?;
        let (topic, marks) = (self.target.topic.clone(), self.target.marks());
        let stamps = self.stamps();
        let Some(producer) = &mut self.producer else {
            return Ok(Answer::Failed("the home is not open".into()));
        };
        producer.begin()?;
        for record in &transaction.records {
            let Sent { headers, value } = record::sent(record, self.settings.form);
            let all = OwnedHeaders::new_with_capacity(headers.len());
            let headers = headers.iter().fold(all, |all, (key, value)| {
                let value = Some(value);
                all.insert(Header { key, value })
            });
            let to_send = BaseRecord::to(&topic)
                .partition(self.target.partition)
                .key(record.stream.as_bytes())
                .payload(value)
                .headers(headers)
                .timestamp(stamps.of(record.timestamp_us));
            producer.send(to_send, until)?;
        }
        let reached = self.reached.get(&topic).map(|last| last + 1);
        let reached = reached.filter(|_| !matches!(self.share, Share::Own { .. }));
        let reached = reached.and_then(|end| Some(format::reached(u64::try_from(end).ok()?)));
        for (key, value) in format::marks(transaction, self.share)
            .into_iter()
            .chain(reached)
        {
            let mut to_send = BaseRecord::to(&marks)
                .partition(self.target.partition)
                .key(key.as_slice())
                .timestamp(NO_TIME);
            if let Some(value) = &value {
                to_send = to_send.payload(value.as_slice());
            }
            producer.send(to_send, until)?;
        }
        producer.settle(until);
        let offsets = [topic, marks].map(|topic| (producer.offsets(&topic), topic));
        let offsets: Vec<_> = offsets
            .into_iter()
            .filter_map(|(of, topic)| Some((topic, of?)))
            .collect();
        for (topic, (first, _)) in &offsets {
            let before = self.reached.get(topic).copied().unwrap_or(-1);
            if *first <= before && !self.settings.is_unsafe {
                let number = |offset: i64| u64::try_from(offset).unwrap_or(0);
                let why = marks::remade(topic, number(*first), number(before) + 1);
                return Err(NotCarried::Other(why));
            }
        }
        producer.commit(until)?;
        for (topic, (_, last)) in &offsets {
            self.reached.insert(topic.clone(), *last);
        }
        self.seen(&offsets, until)?;
        Ok(Answer::Committed)
    }

    /// Looks now and then whether the topics still keep the promise.
    fn check(&mut self) -> Result<(), NotCarried> {
        if self.checked.elapsed() >= self.settings.check_every {
            topics::check(&self.target, &self.settings).map_err(NotCarried::Other)?;
            self.checked = Instant::now();
        }
        Ok(())
    }

    /// Waits until readers see what was committed: another program's open transaction may hide it.
    fn seen(&mut self, offsets: &[(String, (i64, i64))], until: Instant) -> Result<(), NotCarried> {
        let sees = match self.sees.take() {
            Some(sees) => sees,
            None => marks::consumer(&self.target, &self.settings, "read_committed")?,
        };
        for (topic, (_, last)) in offsets {
            let mut pause = SEEN;
            loop {
                let why = match sees.fetch_watermarks(topic, self.target.partition, ANSWER) {
                    Ok((_, end)) if end > *last => break,
                    Ok((_, end)) => marks::is_hidden(topic, end, last + 1),
                    Err(error) if passes(&error) => told(&error),
                    Err(error) => return Err(error.into()),
                };
                if Instant::now() >= until {
                    return Err(NotCarried::Other(why));
                }
                std::thread::sleep(pause);
                pause = (2 * pause).min(SEEN_LAST);
            }
        }
        self.sees = Some(sees);
        Ok(())
    }

    /// The times that records are given.
    fn stamps(&mut self) -> Stamps {
        if self.untimed.is_some_and(|until| Instant::now() >= until) {
            self.untimed = None;
        }
        match self.untimed {
            Some(_) => Stamps::None,
            None => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                Stamps::UpTo(
                    now.unwrap_or_default()
                        .as_millis()
                        .try_into()
                        .unwrap_or(i64::MAX),
                )
            }
        }
    }
}

/// The times of records at home, in milliseconds. A header has the true one.
enum Stamps {
    None,
    /// Timestamps are never later than now: brokers refuse timestamps an hour ahead, and a clock
    /// that was ahead has left some in the log.
    UpTo(i64),
}

impl Stamps {
    fn of(&self, received_us: u64) -> i64 {
        match self {
            Stamps::None => NO_TIME,
            Stamps::UpTo(now_ms) => {
                let received_ms = i64::try_from(received_us / 1000).unwrap_or(i64::MAX);
                // 0 would be the client's clock.
                received_ms.clamp(1, (*now_ms).max(1))
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_given_a_time_that_is_yet_to_come() {
        let stamps = Stamps::UpTo(1_000_000);
        assert_eq!(stamps.of(999_999_999), 999_999);
        for ahead_us in [1_000_001_000, 3_600_000_000_000, u64::MAX] {
            assert_eq!(stamps.of(ahead_us), 1_000_000);
        }
        assert_eq!((stamps.of(0), Stamps::UpTo(0).of(5)), (1, 1));
        assert_eq!(Stamps::None.of(7), NO_TIME);
    }
}
