//! Streams are made, changed, shortened and deleted.

use std::time::Duration;

use super::{append, ids, settle, settle_at, small};
use crate::disk::sim::SimDisk;
use crate::format::{SEGMENT_HEADER, SegmentHeader};
use crate::tools::{check, loss, repair};
use crate::{
    Change, ChangeRefused, Compression, Credit, EmbeddedLog, Log, ProducerId, Range, ReadError,
    Refused, Run, Settings, StreamSettings, Writer,
};

type Open = (EmbeddedLog<SimDisk>, Writer<SimDisk>);

/// Segments that are long beside their groups, so that the next one is not reserved at once.
fn long() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        ..small()
    }
}

fn open(disk: &SimDisk) -> Open {
    let (log, writer, recovery) = EmbeddedLog::open(disk.clone(), long()).expect("the log");
    assert_eq!(recovery.cut, None);
    (log, writer)
}

/// Has it done, waiting for room as a caller would.
fn administer((log, writer): &mut Open, change: Change<'_>) {
    for _ in 0..3 {
        let done = log.administer(change);
        settle(writer);
        match done {
            Err(ChangeRefused::Log(Refused::Busy)) => {}
            done => {
                let ticket = done.expect("it is taken");
                assert!(log.progress().committed >= ticket);
                return assert_eq!(log.progress().failure, None);
            }
        }
    }
    panic!("there is never room");
}

fn range(log: &impl Log, stream: &str) -> (u64, u64) {
    let Range { first, next } = log.range(stream).expect("a stream");
    (first, next)
}

#[test]
fn the_first_change_begins_a_segment_that_says_so() {
    let disk = SimDisk::new(1);
    let mut open = open(&disk);
    let stream = open.0.stream("s").expect("a stream");
    append(&open.0, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    settle(&mut open.1);
    let settings = StreamSettings {
        limit_bytes: Some(1000),
        ..StreamSettings::default()
    };
    administer(
        &mut open,
        Change::Set {
            stream: "s",
            settings,
        },
    );
    let segments = disk
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".seg"));
    let needs = segments.map(|name| {
        let bytes = disk.contents(&name).expect("it is listed");
        let number = name[..20].parse().expect("a number");
        let header = SegmentHeader::decode(&bytes[..SEGMENT_HEADER], number);
        header.expect("a header").needs.0
    });
    assert_eq!(needs.collect::<Vec<_>>(), [0, 4]);
    drop(open);
    let open = self::open(&disk.crash());
    let status = open.0.stream_status("s").expect("a stream");
    assert_eq!((status.settings, status.range.next), (settings, 3));
}

#[test]
fn a_limit_refuses_until_records_go() {
    let disk = SimDisk::new(1);
    let mut open = open(&disk);
    let settings = StreamSettings {
        limit_bytes: Some(100),
        ..StreamSettings::default()
    };
    administer(
        &mut open,
        Change::Create {
            stream: "s",
            settings,
        },
    );
    let stream = open.0.stream("s").expect("a stream");
    let anybody = ProducerId::ANONYMOUS;
    append(&open.0, stream, anybody, 1..=4).expect("room");
    let refused = append(&open.0, stream, anybody, 5..=8);
    assert!(
        matches!(refused, Err(Refused::StreamFull { .. })),
        "{refused:?}"
    );
    let aged = StreamSettings {
        retain_age: Some(Duration::from_secs(10)),
        ..settings
    };
    administer(
        &mut open,
        Change::Set {
            stream: "s",
            settings: aged,
        },
    );
    settle_at(&mut open.1, 100);
    settle_at(&mut open.1, 102);
    assert_eq!(range(&open.0, "s"), (4, 4));
    append(&open.0, stream, anybody, 5..=8).expect("room again");
    settle_at(&mut open.1, 102);
    let gone = open.0.read("s", 0, Credit(1000));
    assert_eq!(gone, Err(ReadError::Gone { asked: 0, first: 4 }));
    assert_eq!(ids(&open.0, "s", 4, 1000), [5, 6, 7, 8]);
    drop(open);
    let open = self::open(&disk.crash());
    assert_eq!(range(&open.0, "s"), (4, 8));
}

/// Where a stream was cut off between two entries of the index, what was before that counted twice: more was to be cut off
/// than there was.
#[test]
fn what_was_cut_off_does_not_count_once_more() {
    let disk = SimDisk::new(1);
    let mut open = open(&disk);
    let stream = "s";
    let aged = StreamSettings {
        retain_age: Some(Duration::from_secs(10)),
        ..StreamSettings::default()
    };
    let settings = aged;
    administer(&mut open, Change::Create { stream, settings });
    let id = open.0.stream(stream).expect("a stream");
    let append = |open: &mut Open, group: u64, seconds| {
        let ids = group * 80 + 1..=group * 80 + 80;
        append(&open.0, id, ProducerId::ANONYMOUS, ids).expect("room");
        settle_at(&mut open.1, seconds);
    };
    for group in 0..6 {
        append(&mut open, group, 0);
    }
    settle_at(&mut open.1, 100);
    settle_at(&mut open.1, 102);
    assert_eq!(range(&open.0, stream), (480, 480));
    let settings = StreamSettings {
        retain_bytes: Some(20 << 10),
        ..StreamSettings::default()
    };
    administer(&mut open, Change::Set { stream, settings });
    for group in 6..120 {
        append(&mut open, group, 103 + group);
    }
    assert_eq!(range(&open.0, stream).1, 9600);
}

#[test]
fn a_deleted_stream_is_gone_and_its_name_goes_on_behind_it() {
    let disk = SimDisk::new(1);
    let mut open = open(&disk);
    let old = open.0.stream("s").expect("a stream");
    let producer = open.0.producer(old, "p").expect("a producer");
    append(&open.0, old, producer, 1..=5).expect("room");
    settle(&mut open.1);
    open.0.set_cursor("s", "c", 3).expect("a cursor");
    administer(&mut open, Change::Delete { stream: "s" });
    let log = &open.0;
    assert_eq!(log.range("s"), None);
    assert_eq!(append(log, old, producer, 6..=6), Err(Refused::NoStream));
    assert_eq!(log.producer(old, "p"), Err(Refused::NoStream));
    assert_eq!(log.set_cursor("s", "c", 0), Err(Refused::NoStream));
    drop(open);
    let mut open = self::open(&disk.crash());
    assert_eq!(open.0.range("s"), None);
    let new = open.0.stream("s").expect("a stream");
    assert_ne!(new, old);
    let producer = open.0.producer(new, "p").expect("a producer");
    assert_eq!(open.0.mark(producer).appended, None);
    assert_eq!(open.0.cursor("s", "c"), None);
    append(&open.0, new, producer, 1..=2).expect("room");
    settle(&mut open.1);
    assert_eq!(range(&open.0, "s"), (5, 7));
    assert_eq!(ids(&open.0, "s", 5, 1000), [1, 2]);
}

#[test]
fn a_check_looks_into_what_is_compressed() {
    for compression in Compression::ALL {
        let disk = SimDisk::new(1);
        let mut open = open(&disk);
        let settings = StreamSettings {
            compression,
            ..StreamSettings::default()
        };
        let stream = "s";
        administer(&mut open, Change::Create { stream, settings });
        let stream = open.0.stream(stream).expect("a stream");
        // Frames that are fewer than is said: no checksum tells.
        let frames = super::frames(1..=40);
        for count in [40, 41, 40] {
            let run = Run {
                stream,
                producer: ProducerId::ANONYMOUS,
                frames: &frames,
                count,
                last_id: 40,
                timestamp_us: 0,
            };
            open.0.append(run).expect("room");
            settle(&mut open.1);
        }
        drop(open);
        let disk = disk.crash();
        let report = check(&disk).expect("reading");
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        let damage = &report.problems[0].damage;
        assert!(damage.expected.contains("41 whole records"), "{damage}");
        assert!(report.problems[0].acknowledged);
        // A repair keeps the others.
        let would_lose = loss(&disk).expect("reading").expect("it cannot be read");
        assert_eq!(would_lose.gaps[0].batches, (damage.batch, damage.batch));
        repair(&disk, &would_lose).expect("repairing");
        assert_eq!(check(&disk).expect("reading").problems, []);
        let (log, _) = self::open(&disk);
        let missing = ReadError::Missing {
            asked: 40,
            next: 81,
        };
        assert_eq!(log.read("s", 40, Credit(1000)), Err(missing));
        assert_eq!(
            log.read("s", 81, Credit(1)).expect("it is there").runs[0].first,
            81
        );
    }
}

#[test]
fn compressed_records_are_read_as_they_came() {
    for compression in Compression::ALL {
        let disk = SimDisk::new(1);
        let mut open = open(&disk);
        let settings = StreamSettings {
            compression,
            ..StreamSettings::default()
        };
        administer(
            &mut open,
            Change::Create {
                stream: "s",
                settings,
            },
        );
        let stream = open.0.stream("s").expect("a stream");
        for from in (1..=200).step_by(20) {
            append(&open.0, stream, ProducerId::ANONYMOUS, from..=from + 19).expect("room");
            settle(&mut open.1);
        }
        let all: Vec<u64> = (1..=200).collect();
        for credit in [1, 50, 100, 1000, 100_000] {
            assert_eq!(ids(&open.0, "s", 0, credit), all);
            assert_eq!(ids(&open.0, "s", 33, credit), all[33..]);
        }
        let stored = open.0.stream_status("s").expect("a stream").bytes;
        let came = super::frames(1..=200).len() as u64;
        assert_eq!(
            stored < came,
            compression != Compression::None,
            "{stored} {came}"
        );
        drop(open);
        let open = self::open(&disk.crash());
        assert_eq!(ids(&open.0, "s", 0, 100_000), all);
        assert_eq!(open.0.stream_status("s").expect("a stream").bytes, stored);
    }
}

/// The records of one stream stayed until a limit of size or age took them, or all of it was deleted.
#[test]
fn a_stream_is_trimmed_to_a_position_and_stays_so() {
    let disk = SimDisk::new(1);
    let mut open = open(&disk);
    let stream = open.0.stream("s").expect("a stream");
    append(&open.0, stream, ProducerId::ANONYMOUS, 1..=9).expect("room");
    settle(&mut open.1);
    let trim = |before| Change::Trim {
        stream: "s",
        before,
    };
    administer(&mut open, trim(4));
    assert_eq!(range(&open.0, "s"), (4, 9));
    let gone = open.0.read("s", 3, Credit(1000));
    assert_eq!(gone, Err(ReadError::Gone { asked: 3, first: 4 }));
    assert_eq!(ids(&open.0, "s", 4, 1000), [5, 6, 7, 8, 9]);
    // Records that are gone are trimmed already.
    administer(&mut open, trim(2));
    assert_eq!(range(&open.0, "s"), (4, 9));
    let beyond = open.0.administer(trim(10));
    assert_eq!(beyond, Err(ChangeRefused::Beyond(9)));
    let change = Change::Trim {
        stream: "none",
        before: 1,
    };
    assert_eq!(open.0.administer(change), Err(ChangeRefused::NoStream));
    drop(open);
    let mut open = self::open(&disk.crash());
    assert_eq!(range(&open.0, "s"), (4, 9));
    // All of it; what comes later has the next position.
    administer(&mut open, trim(9));
    assert_eq!(range(&open.0, "s"), (9, 9));
    let stream = open.0.stream("s").expect("a stream");
    append(&open.0, stream, ProducerId::ANONYMOUS, 10..=10).expect("room");
    settle(&mut open.1);
    assert_eq!(ids(&open.0, "s", 9, 1000), [10]);
}

/// One record of one stream kept segments of others, and nothing showed which.
#[test]
fn a_stream_that_keeps_the_segments_of_another_is_shown_and_trimming_it_frees_them() {
    let disk = SimDisk::new(1);
    let (log, writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("the log");
    let mut open = (log, writer);
    let anybody = ProducerId::ANONYMOUS;
    let idle = open.0.stream("idle").expect("a stream");
    append(&open.0, idle, anybody, 1..=1).expect("room");
    settle(&mut open.1);
    let busy = open.0.stream("busy").expect("a stream");
    for id in 1..=1000 {
        append(&open.0, busy, anybody, id..=id).expect("room");
        settle(&mut open.1);
    }
    let used = |open: &Open| open.0.usage().used_bytes;
    let pins = |open: &Open, stream: &str| {
        let status = open.0.stream_status(stream).expect("a stream");
        let listed = open.0.streams("", 10);
        let listed = listed.iter().find(|one| &*one.name == stream);
        assert_eq!(listed, Some(&status));
        status.pins
    };
    assert_eq!(
        pins(&open, "idle"),
        pins(&open, "busy"),
        "both are in the oldest"
    );
    let change = Change::Trim {
        stream: "busy",
        before: 999,
    };
    administer(&mut open, change);
    settle_at(&mut open.1, 10);
    let before = used(&open);
    assert!(pins(&open, "idle") > before / 2, "of {before}");
    assert_eq!(pins(&open, "busy"), 0);
    let offline = crate::tools::info(&disk.fork()).expect("a log");
    let of = |name: &str| {
        let mut streams = offline.streams.iter();
        let stream = streams.find(|one| one.name == name).expect("a stream");
        (stream.bytes, stream.pins)
    };
    let online = open.0.stream_status("idle").expect("a stream");
    assert_eq!(of("idle"), (online.bytes, online.pins));
    assert_eq!(of("busy").1, 0);
    let change = Change::Trim {
        stream: "idle",
        before: 1,
    };
    administer(&mut open, change);
    settle_at(&mut open.1, 20);
    assert!(used(&open) < before / 2, "{} of {before}", used(&open));
    assert_eq!(pins(&open, "idle"), 0);
}
