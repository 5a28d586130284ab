//! A log of any length is opened in the same memory: one of a terabyte, most of which are holes.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::frames;
use crate::catalog::{Entry, Extent, Index, Segment};
use crate::disk::real::RealDisk;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, Flags, Needs, Records, SEGMENT_HEADER, SegmentHeader, Stored,
    VERSION, padding, put_checkpoint, segment_name,
};
use crate::index::Saved;
use crate::state::State;
use crate::{Begin, Compression, Credit, EmbeddedLog, Log, ProducerId, Run, Settings, StreamId};
use crate::{Policy, Verify};

const DIRECTORY: &str = "TIDEWIRE_VAST_LOG";
/// How many segments it has, of 128 MiB each.
const SEGMENTS: &str = "TIDEWIRE_VAST_SEGMENTS";
/// How far apart the entries of its index files are, in KiB: 64 as in a short log; in one that has grown
/// to a terabyte they are 4 MiB apart in the end.
const APART: &str = "TIDEWIRE_VAST_APART";
/// What opening it may take, the program itself included.
const MOST: u64 = 64 << 20;

/// Records before the one batch of a segment that can be read.
const BEFORE: u64 = 1_000_000;

/// A batch with a run of one record behind all that its index tells of, and a checkpoint.
fn batch(number: u64, first: u64) -> Vec<u8> {
    let mut state = State::default();
    let stream = state.add_stream("s");
    let frames = frames([first]);
    let run = Run {
        stream: StreamId(stream),
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: 1,
        last_id: first,
        timestamp_us: 1,
    };
    let stored = Stored {
        bytes: &frames,
        crc: crc32c::crc32c(&frames),
        compression: Compression::None,
    };
    let head = Records::header(&run, 1, first, stored);
    let known = state.streams.get_mut(stream).expect("just made");
    (known.next, known.newest_us) = (first + 1, 1);
    let mut checkpoint = Vec::new();
    put_checkpoint(&mut checkpoint, |to| state.encode(to));
    let mut body = [&head[..], &frames, &checkpoint].concat();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &checkpoint);
    body.resize(body.len() + padding(body.len()), 0);
    let header = BatchHeader {
        header: BATCH_HEADER,
        log: 7,
        segment: number,
        number,
        durable_through: number - 1,
        written_us: 1,
        length: (BATCH_HEADER + body.len()) as u32,
        runs: 2,
        records: 1,
        body_crc: crc,
        flags: Flags::CHECKPOINT,
        epoch: 1,
        lived_us: 1,
    };
    [&header.encode()[..], &body].concat()
}

/// An index as it is of a segment that is full of small records.
fn index(number: u64, apart: u64) -> Segment {
    const USED: u64 = 128 << 20;
    let first = (number - 1) * BEFORE;
    let count = USED / apart;
    let entries = (0..count).map(|at| Entry {
        first: first + at * (BEFORE / count),
        offset: (SEGMENT_HEADER + BATCH_HEADER) as u64 + at * apart,
        batch_end: USED,
        timestamp_us: 1,
        before: at * apart,
    });
    let mut index = Index::default();
    let extent = Extent {
        first,
        next: number * BEFORE,
        bytes: USED,
        entries: entries.collect(),
    };
    index.insert(0, extent);
    Segment {
        used: USED,
        newest_us: 1,
        lived_us: 1,
        index,
        gaps: Vec::new(),
        left_out: 0,
    }
}

fn make(directory: &Path, segments: u64, apart: u64) {
    let disk = RealDisk::open(directory).expect("the directory");
    for number in 1..=segments {
        let header = SegmentHeader {
            version: VERSION,
            needs: Needs::default(),
            log: 7,
            number,
            kind: None,
        };
        let file = disk.create(&segment_name(number)).expect("a segment");
        let whole = [&header.encode()[..], &batch(number, (number - 1) * BEFORE)].concat();
        file.write_at(&[std::io::IoSlice::new(&whole)], 0)
            .expect("writing");
        if number < segments {
            file.truncate(128 << 20).expect("a hole");
            let saved = Saved {
                header,
                next_batch: number + 1,
                epoch: 1,
                lived_us: 1,
                view: index(number, apart),
            };
            saved.save(&disk).expect("an index");
        }
    }
}

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") << 10
}

#[test]
fn a_log_of_any_length_is_opened_in_the_same_memory() {
    let given = |name, default| {
        std::env::var(name).map_or(default, |n| n.parse::<u64>().expect("a number"))
    };
    let segments = given(SEGMENTS, 1000);
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let settings = Settings {
            policy: Policy::Os,
            verify: Verify::Tail,
            ..Settings::default()
        };
        let began = Instant::now();
        let (log, _) = EmbeddedLog::start(directory.as_ref(), settings).expect("the log");
        let took = began.elapsed();
        let found = log.locate("s", Begin::Position(5)).expect("there is one");
        // The place before a position is found, also where entries were left out.
        let read = log
            .read("s", (segments - 1) * BEFORE, Credit(1))
            .expect("the last record");
        assert_eq!((found, read.runs[0].count), (5, 1));
        let entries = log.shared().catalog().entries();
        println!("peak {} entries {entries} took {took:?}", peak());
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    make(directory.path(), segments, given(APART, 64) << 10);
    let name = "tests::vast::a_log_of_any_length_is_opened_in_the_same_memory";
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(DIRECTORY, directory.path())
        .output()
        .expect("the child");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let errors = String::from_utf8_lossy(&child.stderr);
    let report = said.lines().find(|line| line.contains("peak "));
    let report = report.unwrap_or_else(|| panic!("{said} {errors}"));
    println!("{segments} segments: {report}");
    let after = report.split("peak ").nth(1);
    let peak = after.and_then(|rest| rest.split(' ').next());
    let peak: u64 = peak.and_then(|peak| peak.parse().ok()).expect("a size");
    assert!(peak < MOST, "{report}");
}
