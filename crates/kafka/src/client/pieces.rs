//! Sending the pieces of a snapshot home, reading them back, and removing what a snapshot stands for.

use std::io::{Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::common::{config, told};
use super::{marks, topics};
use crate::snapshot::AtHome;
use crate::{Settings, Target, Unavailable};

/// Bytes of a piece.
const PIECE: usize = 512 << 10;
/// How long a broker may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Between looks at a topic that is not known everywhere yet.
const UNKNOWN_YET: Duration = Duration::from_millis(100);
/// The longest time without progress.
const SILENCE: Duration = Duration::from_secs(60);

/// Whether the brokers have taken the pieces: the client's queue is empty too when a broker has
/// refused all of them.
#[derive(Default)]
struct Deliveries(Mutex<(u64, Option<KafkaError>)>);

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, (u64, Option<KafkaError>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are there.
    ///
    /// # Errors
    /// Why one is not.
    fn arrived(&self) -> Result<u64, Unavailable> {
        match &*self.lock() {
            (_, Some(error)) => Err(client(error)),
            (arrived, None) => Ok(*arrived),
        }
    }
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut now = self.lock();
        match result {
            Ok(_) => now.0 += 1,
            Err((error, _)) => now.1 = Some(error.clone()),
        }
    }
}

fn client(error: &KafkaError) -> Unavailable {
    Unavailable::Client(told(error))
}

/// Sends the bytes of a snapshot to the topic of snapshots, as `id`. The snapshot counts when the
/// returned note about it is committed among the marks. Until then, and if this call fails, its
/// pieces are useless. `goes_on` is called before each piece.
///
/// # Errors
/// The error of Kafka's client, or of the reader.
pub fn send_snapshot(
    target: &Target,
    settings: &Settings,
    (id, log, position): (u64, u64, u64),
    from: &mut dyn Read,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<AtHome, Unavailable> {
    let own = target.snapshots();
    topics::ensure_snapshots(&own, settings).map_err(Unavailable::Client)?;
    let mut config = config(&own, settings);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", SILENCE.as_millis().to_string())
        .set(
            "message.max.bytes",
            topics::message_max(settings).to_string(),
        )
        // Bound of memory, in KiB.
        .set("queue.buffering.max.kbytes", "8192");
    let producer: BaseProducer<Deliveries> = config
        .create_with_context(Deliveries::default())
        .map_err(|e| client(&e))?;
    let (_, end) = ends(&producer, &own).map_err(|e| client(&e))?;
    let mut sent = AtHome {
        id,
        log,
        position,
        from: u64::try_from(end).unwrap_or(0),
        pieces: 0,
        bytes: 0,
    };
    let mut piece = vec![0; PIECE];
    loop {
        if !goes_on() {
            return Err(Unavailable::Client(
                "sending the snapshot was cancelled".into(),
            ));
        }
        let size = fill(from, &mut piece)?;
        if size == 0 {
            break;
        }
        let key = key(id, sent.pieces);
        let mut record = BaseRecord::to(&own.topic)
            .partition(own.partition)
            .key(&key)
            .payload(&piece[..size])
            // No time: whatever this machine's clock says, brokers take it.
            .timestamp(-1);
        let since = Instant::now();
        while let Err((error, back)) = producer.send(record) {
            let is_full = matches!(
                error,
                KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)
            );
            if !is_full || since.elapsed() >= SILENCE || !goes_on() {
                return Err(client(&error));
            }
            producer.poll(Duration::from_millis(20));
            record = back;
        }
        producer.poll(Duration::ZERO);
        producer.context().arrived()?;
        sent.pieces += 1;
        sent.bytes += size as u64;
    }
    producer.flush(SILENCE).map_err(|e| client(&e))?;
    let arrived = producer.context().arrived()?;
    if arrived != sent.pieces {
        return Err(Unavailable::Client(format!(
            "of {} pieces of the snapshot {arrived} have arrived in the home",
            sent.pieces
        )));
    }
    Ok(sent)
}

/// The first and the last offset of the pieces. A topic that was just made is not known to all
/// brokers at once.
fn ends(producer: &BaseProducer<Deliveries>, own: &Target) -> KafkaResult<(i64, i64)> {
    let since = Instant::now();
    loop {
        let ends = producer
            .client()
            .fetch_watermarks(&own.topic, own.partition, ANSWER);
        let is_unknown = ends.as_ref().err().is_some_and(|error| {
            matches!(
                error.rdkafka_error_code(),
                Some(
                    RDKafkaErrorCode::UnknownPartition
                        | RDKafkaErrorCode::UnknownTopic
                        | RDKafkaErrorCode::UnknownTopicOrPartition
                )
            )
        });
        if !is_unknown || since.elapsed() >= ANSWER {
            return ends;
        }
        std::thread::sleep(UNKNOWN_YET);
    }
}

/// As many bytes as there are, up to a piece.
fn fill(from: &mut dyn Read, piece: &mut [u8]) -> Result<usize, Unavailable> {
    let mut size = 0;
    while size < piece.len() {
        match from.read(&mut piece[size..]) {
            Ok(0) => break,
            Ok(read) => size += read,
            Err(e) => return Err(Unavailable::Client(format!("reading the snapshot: {e}"))),
        }
    }
    Ok(size)
}

fn key(id: u64, number: u64) -> Vec<u8> {
    [id.to_le_bytes(), number.to_le_bytes()].concat()
}

/// Reads a snapshot back; the snapshot's own checksums show whether it is whole. A piece that was sent twice is taken once.
/// `goes_on` is asked now and then. Brokers that are away are waited for, for a minute without a piece.
///
/// # Errors
/// The error of Kafka's client; [`Unavailable::Broken`] stands for an error of the writer, and for
/// missing pieces.
pub fn fetch_snapshot(
    target: &Target,
    settings: &Settings,
    what: &AtHome,
    into: &mut dyn Write,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<(), Unavailable> {
    let own = target.snapshots();
    let consumer = marks::consumer(&own, settings, "read_committed").map_err(|e| client(&e))?;
    let mut places = TopicPartitionList::new();
    let from = Offset::Offset(i64::try_from(what.from).unwrap_or(i64::MAX));
    places
        .add_partition_offset(&own.topic, own.partition, from)
        .and_then(|()| consumer.assign(&places))
        .map_err(|e| client(&e))?;
    let (mut pieces, mut bytes, mut heard) = (0, 0, Instant::now());
    let mut trouble: Option<KafkaError> = None;
    while pieces < what.pieces {
        if !goes_on() {
            return Err(Unavailable::Client(
                "reading the snapshot was cancelled".into(),
            ));
        }
        if heard.elapsed() >= SILENCE {
            return Err(trouble.as_ref().map_or_else(
                || {
                    Unavailable::Client(
                        "the brokers send no piece of the snapshot in the home".into(),
                    )
                },
                client,
            ));
        }
        let message = match consumer.poll(Duration::from_millis(200)) {
            None => continue,
            Some(Ok(message)) => message,
            Some(Err(KafkaError::PartitionEOF(_))) => {
                return Err(Unavailable::Broken(format!(
                    "of the {} pieces of the snapshot at home {pieces} are there",
                    what.pieces
                )));
            }
            // The client tries again by itself.
            Some(Err(error)) => {
                if trouble.is_none() {
                    let why = told(&error);
                    tracing::warn!(why, pieces, "the snapshot at home is not read for now");
                }
                trouble = Some(error);
                continue;
            }
        };
        heard = Instant::now();
        if trouble.take().is_some() {
            tracing::info!(pieces, "the snapshot at home is read again");
        }
        if message.key() == Some(&key(what.id, pieces)) {
            let piece = message.payload().unwrap_or_default();
            into.write_all(piece)
                .map_err(|e| Unavailable::Broken(format!("keeping the snapshot: {e}")))?;
            pieces += 1;
            bytes += piece.len() as u64;
        }
    }
    match bytes == what.bytes {
        true => Ok(()),
        false => Err(Unavailable::Broken(format!(
            "the snapshot at home has {bytes} bytes, and {} were sent",
            what.bytes
        ))),
    }
}

/// Removes the records, and the pieces of snapshots, before these offsets.
///
/// # Errors
/// The error of Kafka's client.
pub fn forget(
    target: &Target,
    settings: &Settings,
    records: u64,
    pieces: u64,
) -> Result<(), Unavailable> {
    let admin: AdminClient<DefaultClientContext> =
        config(target, settings).create().map_err(|e| client(&e))?;
    let options = AdminOptions::new()
        .request_timeout(Some(ANSWER))
        .operation_timeout(Some(ANSWER));
    let mut places = TopicPartitionList::new();
    for (target, before) in [(target.clone(), records), (target.snapshots(), pieces)] {
        if before > 0 {
            let before = Offset::Offset(i64::try_from(before).unwrap_or(i64::MAX));
            places
                .add_partition_offset(&target.topic, target.partition, before)
                .map_err(|e| client(&e))?;
        }
    }
    if places.count() == 0 {
        return Ok(());
    }
    let done = topics::wait(admin.delete_records(&places, &options)).map_err(|e| client(&e))?;
    for place in done.elements() {
        place.error().map_err(|e| client(&e))?;
    }
    Ok(())
}
