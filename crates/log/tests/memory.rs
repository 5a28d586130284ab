//! Opening a log, checking, dumping and repairing it take the memory of its largest batch, not of its
//! segments. A process of its own is looked at, whose memory is not that of the writing before.

#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidewire_log::disk::real::RealDisk;
use tidewire_log::{EmbeddedLog, Log, Policy, ProducerId, Refused, Run, Settings, Verify, tools};

const DIRECTORY: &str = "TIDEWIRE_OPEN_AND_REPORT";
/// What one may take, the program itself included.
const MOST: u64 = 64 << 20;

fn settings() -> Settings {
    Settings {
        policy: Policy::Os,
        ..Settings::default()
    }
}

const RECORDS: u64 = 400;
const PAYLOAD: usize = 250_000;

/// A segment of 100 MB.
fn write(directory: &Path) {
    let (log, _) = EmbeddedLog::start(directory, settings()).unwrap();
    let stream = log.stream("default").unwrap();
    for id in 1..=RECORDS {
        let mut frames = id.to_le_bytes().to_vec();
        frames.extend((PAYLOAD as u32).to_le_bytes());
        frames.resize(frames.len() + PAYLOAD, b'x');
        let run = || Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames: &frames,
            count: 1,
            last_id: id,
            timestamp_us: 0,
        };
        // The queue is bounded.
        while let Err(refused) = log.append(run()) {
            assert_eq!(refused, Refused::Busy);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    log.close();
}

/// Flips a bit in the middle of the first segment.
fn damage(directory: &Path) {
    let path = directory.join("00000000000000000001.seg");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
}

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn opening_and_the_tools_take_little_memory_however_long_segments_are() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        // The child: opens, and says what that took.
        let settings = Settings {
            verify: Verify::All,
            ..settings()
        };
        let (log, recovery) = EmbeddedLog::start(directory.as_ref(), settings).unwrap();
        println!("opened {}", peak());
        drop(log);
        let directory = Path::new(&directory);
        damage(directory);
        let disk = RealDisk::open(directory).unwrap();
        let report = tools::check(&disk).unwrap();
        assert_eq!(report.problems.len(), 1);
        tools::dump(&disk, 0, |_| ControlFlow::Continue(())).unwrap();
        println!("looked {}", peak());
        let loss = tools::loss(&disk).unwrap().expect("damage");
        tools::repair(&disk, &loss).unwrap();
        assert_eq!(tools::check(&disk).unwrap().problems, []);
        println!("peak {} records {}", peak(), recovery.records);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "opening_and_the_tools_take_little_memory_however_long_segments_are",
            "--nocapture",
        ])
        .env(DIRECTORY, directory.path())
        // What the tools hold is looked at, not what glibc keeps for later: once blocks of tens of megabytes
        // have been freed, it would keep as much, more or less by how large the batches happen to be.
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let report = said
        .lines()
        .find(|line| line.contains("peak "))
        .expect(&said);
    let words: Vec<&str> = report.split_whitespace().collect();
    let after = |word| {
        let at = words.iter().position(|w| *w == word).unwrap();
        words[at + 1].parse::<u64>().unwrap()
    };
    println!("{said}");
    assert_eq!(after("records"), RECORDS);
    assert!(after("peak") < MOST, "{report}");
}
