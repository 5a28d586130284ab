//! Reading a home, record by record.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::statistics::Statistics;
use rdkafka::{Offset, TopicPartitionList};

use super::common::{passes, told};
use super::marks;
use crate::record;
use crate::{Found, Settings, Target, Unavailable};

/// How long a broker may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest time without a record or the end.
const SILENCE: Duration = Duration::from_secs(30);

/// The result of waiting a bounded time for a [`Reader`].
#[derive(Debug)]
pub enum Polled {
    /// The next record.
    Record(Found),
    /// No further committed record is there now.
    End,
    /// No record has arrived.
    Nothing,
    /// A record cannot be read: it is damaged, or none of this format. The records behind the
    /// unreadable record come next.
    Unreadable(String),
}

/// How often the client says how far it has come; milliseconds.
const STATISTICS_MS: &str = "1000";

/// The partition's end according to the client: the offset at which the client last found the end. The end itself comes once
/// for each offset, and without it.
struct Ends {
    place: (String, i32),
    /// The offset of the last record; negative if there was none.
    last: AtomicI64,
}

impl ClientContext for Ends {
    fn stats(&self, statistics: Statistics) {
        let topic = statistics.topics.get(&self.place.0);
        if let Some(partition) = topic.and_then(|topic| topic.partitions.get(&self.place.1)) {
            self.last.store(partition.eof_offset, Relaxed);
        }
    }
}

impl ConsumerContext for Ends {}

/// Reads the committed records of a home, in order.
pub struct Reader {
    consumer: BaseConsumer<Ends>,
    /// The topic, and the partition.
    place: (String, i32),
    /// The offset at which the reader began.
    first: u64,
    is_empty: bool,
    /// Foreign records that [`next`](Reader::next) has passed over, and what was wrong with the
    /// first.
    passed: Option<(u64, String)>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Reader {
    /// Begins at an offset of the partition, or at the oldest that is kept.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn open(
        target: &Target,
        settings: &Settings,
        from: Option<u64>,
    ) -> Result<Reader, Unavailable> {
        let client = |error: KafkaError| Unavailable::Client(told(&error));
        let ends = Ends {
            place: (target.topic.clone(), target.partition),
            last: AtomicI64::new(-1),
        };
        let mut config = marks::reading(target, settings, "read_committed");
        config.set("statistics.interval.ms", STATISTICS_MS);
        let consumer: BaseConsumer<Ends> = config.create_with_context(ends).map_err(client)?;
        let ends = consumer.fetch_watermarks(&target.topic, target.partition, ANSWER);
        let (first, next) = ends.map_err(client)?;
        let from = from.map_or(first, |from| {
            i64::try_from(from).unwrap_or(i64::MAX).max(first)
        });
        let mut places = TopicPartitionList::new();
        let place =
            places.add_partition_offset(&target.topic, target.partition, Offset::Offset(from));
        place
            .and_then(|()| consumer.assign(&places))
            .map_err(client)?;
        Ok(Reader {
            consumer,
            place: (target.topic.clone(), target.partition),
            first: u64::try_from(from).unwrap_or(0),
            is_empty: from >= next,
            passed: None,
        })
    }

    /// The offset at which the reader began; later than requested if the home has not kept the records before.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The next record, if a record arrives within this time. The client retries failures on the way to the
    /// brokers; then this may be called again.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn poll(&mut self, within: Duration) -> Result<Polled, Unavailable> {
        if std::mem::take(&mut self.is_empty) {
            return Ok(Polled::End);
        }
        match self.consumer.poll(within) {
            None => Ok(Polled::Nothing),
            Some(Ok(message)) => Ok(match found(&message) {
                Ok(found) => Polled::Record(found),
                Err(why) => Polled::Unreadable(why.to_string()),
            }),
            Some(Err(KafkaError::PartitionEOF(_))) => Ok(Polled::End),
            Some(Err(error))
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::BadMessage) =>
            {
                Ok(Polled::Unreadable(told(&error)))
            }
            Some(Err(error)) => Err(Unavailable::Client(told(&error))),
        }
    }

    /// The offset of the first record that ends behind this position, where positions rise with
    /// offsets: in the home of one log or store. Or the end.
    ///
    /// # Errors
    /// The error of Kafka's client, or that the records are not of this format.
    pub fn find(target: &Target, settings: &Settings, position: u64) -> Result<u64, Unavailable> {
        let client = |error: KafkaError| Unavailable::Client(told(&error));
        let consumer = marks::consumer(target, settings, "read_committed").map_err(client)?;
        let ends = consumer.fetch_watermarks(&target.topic, target.partition, ANSWER);
        let (first, next) = ends.map_err(client)?;
        let number = |offset: i64| u64::try_from(offset).unwrap_or(0);
        let (mut low, mut high) = (number(first), number(next));
        while low < high {
            let middle = low + (high - low) / 2;
            let mut reader = Reader::open(target, settings, Some(middle))?;
            // The next one there is may lie further on.
            match reader.next(false)? {
                Some(found) if found.record.first + u64::from(found.record.count) <= position => {
                    low = found.offset + 1;
                }
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The end of the committed records, if the brokers tell it within this time.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn end(&self, within: Duration) -> Result<u64, Unavailable> {
        let ends = self
            .consumer
            .fetch_watermarks(&self.place.0, self.place.1, within);
        let (_, end) = ends.map_err(|error| Unavailable::Client(told(&error)))?;
        Ok(u64::try_from(end).unwrap_or(0))
    }

    /// The end of the topic that the client found last; it looks once a second. When [`poll`](Reader::poll) finds nothing, all
    /// records before this offset have been returned.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        let last = self.consumer.context().last.load(Relaxed);
        u64::try_from(last).ok()
    }

    /// How many records that are not of this format [`next`](Reader::next) has passed over, and what is wrong with the first.
    #[must_use]
    pub fn passed(&self) -> Option<(u64, &str)> {
        let passed = self.passed.as_ref();
        passed.map(|(count, why)| (*count, why.as_str()))
    }

    /// The next record; `None` at the end, unless it is to wait there for more. A broker that is not reached is waited for: for 30 s
    /// without a record, or without end where it waits for more. Records that are not of this format are
    /// [passed over](Reader::passed): what is missing of a stream shows by its positions.
    ///
    /// # Errors
    /// The error of Kafka's client.
    pub fn next(&mut self, follow: bool) -> Result<Option<Found>, Unavailable> {
        if std::mem::take(&mut self.is_empty) && !follow {
            return Ok(None);
        }
        let began = Instant::now();
        let mut trouble = None;
        loop {
            match self.consumer.poll(Duration::from_secs(1)) {
                Some(Ok(message)) => match found(&message) {
                    Ok(found) => return Ok(Some(found)),
                    Err(why) => {
                        let passed = self.passed.get_or_insert_with(|| (0, why.to_string()));
                        passed.0 += 1;
                    }
                },
                Some(Err(KafkaError::PartitionEOF(_))) if !follow => return Ok(None),
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(error)) if passes(&error) => trouble = Some(told(&error)),
                Some(Err(error)) => return Err(Unavailable::Client(told(&error))),
                None => {}
            }
            if began.elapsed() >= SILENCE && !follow {
                let why = trouble.map(|why| format!(" ({why})")).unwrap_or_default();
                return Err(Unavailable::Client(format!(
                    "Kafka: the brokers send no records, and the end is not reached{why}"
                )));
            }
        }
    }
}

fn found(message: &BorrowedMessage<'_>) -> Result<Found, Unavailable> {
    let header = |name: &str| {
        let mut headers = message.headers()?.iter();
        headers
            .find(|header| header.key == name)
            .and_then(|header| header.value)
    };
    let key = message.key().unwrap_or_default();
    let record = record::record(key, header, message.payload().unwrap_or_default());
    let offset = u64::try_from(message.offset()).unwrap_or(0);
    let record = record.map_err(|why| {
        Unavailable::Client(format!(
            "offset {offset} is no record of a replicated log: {why}"
        ))
    })?;
    Ok(Found { offset, record })
}
