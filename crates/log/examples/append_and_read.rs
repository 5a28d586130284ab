//! The durable log in a program of one's own: lines of standard input are appended, a line is printed once its record is on
//! the disk, and at the end everything that the log holds is read back.
//!
//! ```text
//! printf 'one\ntwo\n' | cargo run -p tidewire-log --example append_and_read -- /tmp/log
//! ```
//!
//! Killed at any moment and started again, the log has every line that was printed.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use tidewire_log::{Credit, EmbeddedLog, Log, ProducerId, Run, Settings};

/// Bytes of a record beside its payload: id (8), length (4), little-endian.
const HEAD: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .ok_or("say a directory for the log")?;
    let (log, recovery) = EmbeddedLog::start(&PathBuf::from(directory), Settings::default())?;
    eprintln!("opened: {recovery:?}");
    let stream = log.stream("lines")?;

    // The log calls this on its own thread at every change of progress, once for a group of batches.
    let (changed, changes) = mpsc::channel();
    let _watch = log.watch(Arc::new(move || {
        // The receiver is gone when the program ends.
        let _ = changed.send(());
    }));
    let mut out = std::io::stdout().lock();
    for (id, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let line = line?;
        let mut frames = u64::to_le_bytes(id).to_vec();
        frames.extend(u32::try_from(line.len())?.to_le_bytes());
        frames.extend(line.as_bytes());
        let received = SystemTime::UNIX_EPOCH.elapsed()?;
        let ticket = log.append(Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames: &frames,
            count: 1,
            last_id: id,
            timestamp_us: u64::try_from(received.as_micros())?,
        })?;
        // A server would go on with other clients, and answer this one when the watermark has passed its ticket.
        while log.progress().committed < ticket {
            if let Some(why) = log.progress().failure {
                return Err(format!("the log has failed: {why:?}").into());
            }
            changes.recv()?;
        }
        writeln!(out, "{line}")?;
    }

    let (mut next, mut records) = (0, 0);
    loop {
        let read = log.read("lines", next, Credit(64 << 10))?;
        if read.runs.is_empty() {
            break;
        }
        for run in read.runs {
            let mut rest = &run.bytes[..];
            while rest.len() >= HEAD {
                let length = u32::from_le_bytes(rest[8..HEAD].try_into()?) as usize;
                rest = &rest[HEAD + length..];
                records += 1;
            }
        }
        next = read.next;
    }
    writeln!(out, "{records} records in the log")?;
    Ok(())
}
