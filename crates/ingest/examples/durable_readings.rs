//! A program that stores a reading ten times a second in a durable log, until a signal ends it, and then says which of them are
//! on the disk. It may be killed at any moment and started again: nothing is stored twice.
//!
//!     tidewire serve ingest &
//!     cargo run -p tidewire-ingest --example durable_readings -- 127.0.0.1:7400

use std::time::{Duration, SystemTime};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire_ingest::client::{Persistence, Producer, Producing};

#[allow(
    clippy::disallowed_methods,
    reason = "a program, and not a protocol: it may look at the clock, and wait"
)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let to = std::env::args().nth(1);
    let to = to.unwrap_or_else(|| "127.0.0.1:7400".into());
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    // By its name the server knows how far this producer has come, whichever process it is.
    let producing = Producing {
        producer: "readings".into(),
        ..Producing::default()
    };
    // A server that is not there, or goes away, is tried again for a while.
    let producer = Producer::connect(&to, producing, Persistence::default())?;
    println!(
        "storing readings at {to}, the next is {}",
        producer.next_id().unwrap_or(1)
    );
    while signals.pending().next().is_none() {
        let since = SystemTime::UNIX_EPOCH.elapsed()?;
        // Returns at once as long as there is room for what is not acknowledged; a program that
        // sends faster than the log writes waits here.
        producer.send(format!("{}.{:03}", since.as_secs(), since.subsec_millis()).as_bytes())?;
        std::thread::sleep(Duration::from_millis(100));
    }
    // All of it is on the disk, or this is an error.
    producer.flush()?;
    println!(
        "on the disk up to {}",
        producer.status().settled.unwrap_or(0)
    );
    producer.close()?;
    Ok(())
}
