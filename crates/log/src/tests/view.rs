//! Looking at a log that is left as it is.

use std::ops::ControlFlow;
use std::path::Path;

use super::{append, settle, small};
use crate::disk::real::RealDisk;
use crate::disk::{Disk, ReadOnlyDisk};
use crate::tools::{check, dump, info};
use crate::{Credit, EmbeddedLog, Log, OpenError, ProducerId, Range, Settings, View};

/// Names and lengths of everything in a directory.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let length = entry.metadata().expect("metadata").len();
            (entry.file_name().into_string().expect("a name"), length)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn where_there_is_no_log_none_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    for path in [directory.path(), &missing] {
        let error = View::open(path).expect_err("no log");
        assert!(
            matches!(&error, OpenError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
            "{error}"
        );
        assert!(error.to_string().contains("no log there"), "{error}");
    }
    assert_eq!(files(directory.path()), []);
}

#[test]
fn a_log_is_seen_beside_its_writer_and_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = RealDisk::open(directory.path()).expect("the disk");
    let (log, mut writer, _) = EmbeddedLog::open(disk, small()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    for id in 1..=1500 {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room");
        if id % 10 == 0 {
            settle(&mut writer);
        }
    }
    settle(&mut writer);
    let before = files(directory.path());
    let disk = ReadOnlyDisk::open(directory.path()).expect("a log");
    assert!(disk.is_written());
    assert_eq!(info(&disk).expect("reading").records, 1500);
    assert_eq!(check(&disk).expect("reading").problems, []);
    dump(&disk, 0, |_| ControlFlow::Continue(())).expect("reading");
    assert!(disk.create("x").is_err() && disk.remove(&before[0].0).is_err());
    let view = View::open(directory.path()).expect("a view");
    assert_eq!(view.problem(), None);
    let range = Range {
        first: 0,
        next: 1500,
    };
    assert_eq!(view.range("s"), Some(range));
    assert_eq!(view.range("typo"), None);
    let mut next = 0;
    while next < 1500 {
        next = view.read("s", next, Credit(4000)).expect("reading").next;
    }
    assert_eq!(files(directory.path()), before);
    // The writer goes on undisturbed.
    append(&log, stream, ProducerId::ANONYMOUS, 1501..=1501).expect("room");
    settle(&mut writer);
    drop((log, writer));
    assert!(!disk.is_written());
}

#[test]
fn views_of_a_log_whose_segments_come_and_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings {
        retention_bytes: Some(40 << 10),
        ..small()
    };
    let (log, _) = EmbeddedLog::start(directory.path(), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut id = 0;
    for _ in 0..40 {
        for _ in 0..50 {
            id += 1;
            // Busy is for the next round.
            let _ = append(&log, stream, ProducerId::ANONYMOUS, id..=id);
        }
        let view = View::open(directory.path()).expect("a view");
        let damaged = view
            .problem()
            .filter(|problem| problem.batch <= view.durable_through());
        assert_eq!(damaged, None);
    }
}

/// A read of several runs of which one is damaged: it gave nothing where what stands before is whole.
#[test]
fn records_before_damage_are_read() {
    let (whole, ends) = super::recovery::batches(6);
    // The records of batch 3 are damaged below what is indexed: the log was opened before.
    let (log, ..) = super::recovery::open(&whole).expect("the log");
    assert!(whole.flip(super::recovery::FIRST, ends[2] as u64 - 9, 2));
    let read = log.read("s", 0, Credit(100_000)).expect("two batches");
    assert_eq!(read.next, 6);
    let damaged = log.read("s", 6, Credit(100_000));
    assert!(
        matches!(damaged, Err(crate::ReadError::Damaged(_))),
        "{damaged:?}"
    );
}
