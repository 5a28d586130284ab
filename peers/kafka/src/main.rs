//! Fills transactions of one producer with records of one size, one after the other, for some seconds:
//!
//!     kafka-peer BROKERS TOPIC RECORD_BYTES TRANSACTION_BYTES SECONDS
//!
//! and prints how many bytes of values and transactions were committed in how many seconds, and the processor time that this
//! process took meanwhile, in seconds: four numbers. The next transaction is not filled while one is committed: a client has
//! one at a time; what is in it costs nothing to be made here.

use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};

const PATIENCE: Duration = Duration::from_secs(45);
/// Ticks of `/proc/self/stat` in a second, as Linux has them for programs on every machine.
const TICKS: f64 = 100.0;

/// How many records are answered. The client's own commit waits for that in steps of 100 ms, so it is waited for before.
#[derive(Default)]
struct Answered {
    records: Mutex<u64>,
    more: Condvar,
}

impl ClientContext for Answered {}

impl ProducerContext for Answered {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {
        *self.records.lock().expect("nobody panics") += 1;
        self.more.notify_one();
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, topic, record, transaction, seconds] = args.as_slice() else {
        eprintln!("usage: kafka-peer BROKERS TOPIC RECORD_BYTES TRANSACTION_BYTES SECONDS");
        return ExitCode::from(2);
    };
    let (Ok(record), Ok(transaction), Ok(seconds)) =
        (record.parse(), transaction.parse(), seconds.parse())
    else {
        eprintln!("sizes and seconds are numbers");
        return ExitCode::from(2);
    };
    match run(brokers, topic, record, transaction, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kafka-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    brokers: &str,
    topic: &str,
    record: usize,
    transaction: usize,
    seconds: u64,
) -> Result<(), KafkaError> {
    let producer: Arc<BaseProducer<Answered>> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("transactional.id", format!("peer-{topic}"))
        .set("acks", "all")
        .set("linger.ms", "5")
        // A whole transaction in one request, as there.
        .set("message.max.bytes", "5242880")
        .set("batch.size", "5242880")
        .set("queue.buffering.max.messages", "1000000")
        .create_with_context(Answered::default())
        .map(Arc::new)?;
    let served = producer.clone();
    // The thread ends with the program.
    std::thread::spawn(move || {
        loop {
            served.poll(Duration::from_secs(1));
        }
    });
    producer.init_transactions(PATIENCE)?;
    let value = vec![b'x'; record];
    let (mut bytes, mut transactions, mut records) = (0, 0u64, 0);
    let (since, busy) = (Instant::now(), processor_s());
    while since.elapsed() < Duration::from_secs(seconds) {
        producer.begin_transaction()?;
        let mut filled = 0;
        while filled < transaction {
            send(
                &producer,
                BaseRecord::to(topic).partition(0).key(b"s").payload(&value),
            )?;
            filled += record;
            records += 1;
        }
        let answered = producer.context();
        let now = answered.records.lock().expect("nobody panics");
        let all = answered
            .more
            .wait_timeout_while(now, PATIENCE, |now| *now < records);
        drop(all.expect("nobody panics"));
        // Delivery reports arrive before the records count as answered.
        while producer.in_flight_count() > 0 && since.elapsed() < 2 * PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
        producer.commit_transaction(PATIENCE)?;
        bytes += filled;
        transactions += 1;
    }
    let took = since.elapsed().as_secs_f64();
    println!(
        "{bytes} {transactions} {took:.3} {:.2}",
        processor_s() - busy
    );
    Ok(())
}

fn send(
    producer: &BaseProducer<Answered>,
    mut record: BaseRecord<'_, [u8; 1], Vec<u8>>,
) -> Result<(), KafkaError> {
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                std::thread::sleep(Duration::from_millis(1));
                record = back;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// Processor time of this process, with all its threads.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat
        .rsplit(')')
        .next()
        .expect("a name in brackets")
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().expect("a number"))
        .sum();
    ticks / TICKS
}
