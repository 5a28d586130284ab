//! Fills transactions of one producer with records of one size, one after the other, for some seconds:
//!
//!     kafka-peer BROKERS TOPIC RECORD_BYTES TRANSACTION_BYTES SECONDS
//!
//! and prints how many bytes of values and transactions were committed in how many seconds, and the processor time that this
//! process took meanwhile, in seconds: four numbers. The next transaction is not filled while one is committed: a client has
//! one at a time; what is in it costs nothing to be made here.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

const PATIENCE: Duration = Duration::from_secs(45);
/// Ticks of `/proc/self/stat` in a second, as Linux has them for programs on every machine.
const TICKS: f64 = 100.0;

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
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("transactional.id", format!("peer-{topic}"))
        .set("acks", "all")
        // The commit sends what waits: so each request is as large as it can be.
        .set("linger.ms", "1000")
        .set("message.max.bytes", "1048576")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    producer.init_transactions(PATIENCE)?;
    let value = vec![b'x'; record];
    let (mut bytes, mut transactions) = (0, 0u64);
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
    producer: &ThreadedProducer<DefaultProducerContext>,
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

/// Of this process, with all its threads.
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
