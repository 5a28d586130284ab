//! A transactional producer that waits for brokers, and for no clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig,
};
use rdkafka::{ClientConfig, ClientContext};

/// How long one call for answers lasts. The client spends up to the last millisecond of each without sleeping.
const STEP: Duration = Duration::from_secs(1);

/// The brokers' answers, good or bad, since the producer was made.
#[derive(Default)]
struct Answered {
    now: Mutex<Now>,
    more: Condvar,
}

#[derive(Default)]
struct Now {
    records: u64,
    /// Why a record was refused first.
    refused: Option<RDKafkaErrorCode>,
    /// The lowest and the highest offset in each topic, of the records of the transaction that runs.
    offsets: BTreeMap<String, (i64, i64)>,
}

impl ClientContext for Answered {}

impl ProducerContext for Answered {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut now = self.lock();
        now.records += 1;
        match result {
            Ok(record) => now.note(record.topic(), record.offset()),
            Err((error, _)) => {
                now.refused = now.refused.or(error.rdkafka_error_code());
            }
        }
        self.more.notify_one();
    }
}

impl Now {
    fn note(&mut self, topic: &str, offset: i64) {
        match self.offsets.get_mut(topic) {
            Some((first, last)) => {
                *first = offset.min(*first);
                *last = offset.max(*last);
            }
            None => {
                self.offsets.insert(topic.to_owned(), (offset, offset));
            }
        }
    }
}

impl Answered {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this many records are answered.
    fn wait(&self, records: u64, until: Instant) {
        let mut now = self.lock();
        while now.records < records {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return;
            };
            let woken = self.more.wait_timeout(now, left);
            now = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// With a thread that serves what the brokers have answered.
///
/// The client's own commit waits for its records in steps of 100 ms, which would be most of a transaction's time; here it finds them
/// all answered.
pub(super) struct Transactional {
    producer: Arc<BaseProducer<Answered>>,
    is_over: Arc<AtomicBool>,
    sent: u64,
}

impl Transactional {
    /// Opens the producer: from then on, no transaction of another process can be committed.
    ///
    /// # Errors
    /// The error of Kafka's client, or that no thread could be started.
    pub(super) fn open(config: &ClientConfig, within: Duration) -> Result<Transactional, String> {
        let told = |error| super::told(&error);
        let producer = config
            .create_with_context::<_, BaseProducer<Answered>>(Answered::default())
            .map_err(told)?;
        let (producer, is_over) = (Arc::new(producer), Arc::new(AtomicBool::new(false)));
        let (served, ends) = (producer.clone(), is_over.clone());
        // The thread is not joined: it ends within a step, and the client with it.
        Builder::new()
            .name("tidewire-acks".into())
            .spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    served.poll(STEP);
                }
            })
            .map_err(|error| format!("no thread for the client of Kafka: {error}"))?;
        let opened = Transactional {
            producer,
            is_over,
            sent: 0,
        };
        opened.producer.init_transactions(within).map_err(told)?;
        Ok(opened)
    }

    /// Why a record was refused, if any was.
    pub(super) fn refused(&self) -> Option<RDKafkaErrorCode> {
        self.producer.context().lock().refused
    }

    /// The lowest and the highest offset of the records of this transaction in a topic, as far as they are answered.
    pub(super) fn offsets(&self, topic: &str) -> Option<(i64, i64)> {
        self.producer.context().lock().offsets.get(topic).copied()
    }

    pub(super) fn begin(&self) -> KafkaResult<()> {
        self.producer.context().lock().offsets.clear();
        self.producer.begin_transaction()
    }

    /// Hands a record to the client, as soon as there is room.
    pub(super) fn send(
        &mut self,
        mut record: BaseRecord<'_, [u8], [u8]>,
        until: Instant,
    ) -> KafkaResult<()> {
        loop {
            match self.producer.send(record) {
                Ok(()) => {
                    self.sent += 1;
                    return Ok(());
                }
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

    /// Waits until all sent records are answered.
    pub(super) fn settle(&self, until: Instant) {
        // A record that was refused is known to the commit, too.
        self.producer.context().wait(self.sent, until);
        // Delivery reports arrive before the records count as answered.
        while self.producer.in_flight_count() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Commits the records that were sent and [answered](Transactional::settle).
    pub(super) fn commit(&self, until: Instant) -> KafkaResult<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.producer.commit_transaction(left) {
                // The commit once more, which is what the protocol allows.
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                done => return done,
            }
        }
    }
}

impl Drop for Transactional {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Waiting records are not to be sent while the thread ends.
        self.producer
            .purge(PurgeConfig::default().queue().inflight());
    }
}
