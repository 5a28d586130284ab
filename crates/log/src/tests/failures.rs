//! Failing disks, full disks, and what goes with time.

use super::recovery::{FIRST, names, open, segments};
use super::{append, frames, ids, settle, settle_at, small};
use crate::disk::sim::{Faults, SimDisk, Survival};
use crate::{EmbeddedLog, Log, Now, ProducerId, Refused, Run, Settings, Step};
use std::time::Duration;

#[test]
fn a_failed_sync_is_final_and_not_forgotten_by_the_next_process() {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let producer = log.producer(stream, "p").expect("a producer");
    append(&log, stream, producer, 1..=3).expect("room");
    settle(&mut writer);
    disk.set_faults(Faults {
        sync: Some(1),
        ..Faults::default()
    });
    let ticket = append(&log, stream, producer, 4..=6).expect("room");
    settle(&mut writer);
    let progress = log.progress();
    assert!(progress.committed < ticket);
    let failure = progress.failure.expect("a failure").to_string();
    assert!(
        failure.contains(FIRST) && failure.contains("sync"),
        "{failure}"
    );
    assert_eq!(append(&log, stream, producer, 7..=7), Err(Refused::Failed));
    assert_eq!(ids(&log, "s", 0, 1000), [1, 2, 3], "reading goes on");
    settle_at(&mut writer, 100);
    assert!(log.progress().committed < ticket);

    // The next process finds all six in the page cache. What it then calls durable must be.
    let disk = disk.kill();
    let (log, _writer, _) = open(&disk).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), (1..=6).collect::<Vec<_>>());
    let disk = disk.crash_with(Survival::Nothing);
    let (log, _writer, _) = open(&disk).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), (1..=6).collect::<Vec<_>>());
}

#[test]
fn a_failed_sync_of_the_directory_is_not_forgotten_either() {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    disk.set_faults(Faults {
        sync_directory: Some(1),
        ..Faults::default()
    });
    append(&log, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    settle(&mut writer);
    assert!(log.progress().failure.is_some());
    let disk = disk.kill();
    let (log, _writer, _) = open(&disk).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), [1, 2, 3]);
    let (log, _writer, _) = open(&disk.crash_with(Survival::Nothing)).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), [1, 2, 3]);
}

#[test]
fn a_full_disk_refuses_reads_on_and_resumes_with_room() {
    let disk = SimDisk::new(3);
    // With what is kept for changes of streams.
    disk.set_capacity((64 + 48) << 10);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut taken = 0;
    let refused = loop {
        match append(&log, stream, ProducerId::ANONYMOUS, taken + 1..=taken + 1) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
        if taken % 10 == 0 {
            settle(&mut writer);
        }
        assert!(taken < 100_000);
    };
    assert!(matches!(refused, Refused::DiskFull { .. }), "{refused:?}");
    settle(&mut writer);
    assert_eq!(log.progress().failure, None);
    assert_eq!(
        ids(&log, "s", 0, 1000),
        (1..=taken).collect::<Vec<_>>(),
        "all accepted is there"
    );

    // A crash, and no room at all: it opens, reads, and refuses.
    disk.set_capacity(0);
    drop((log, writer));
    let disk = disk.crash_with(Survival::Nothing);
    let (log, mut writer, _) = open(&disk).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), (1..=taken).collect::<Vec<_>>());
    let refused = append(&log, stream, ProducerId::ANONYMOUS, 0..=0);
    assert!(
        matches!(refused, Err(Refused::DiskFull { .. })),
        "{refused:?}"
    );
    let now = crate::Now::default();
    writer.step(now);
    assert!(matches!(
        writer.step(now),
        Step::Worked | Step::WaitUntil(_)
    ));
    disk.set_capacity(1 << 20);
    settle_at(&mut writer, 2);
    for id in taken + 1..taken + 1000 {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room");
        settle_at(&mut writer, 2);
    }
    assert_eq!(log.range("s").expect("a stream").next, taken + 999);
}

#[test]
fn idle_producers_expire_and_live_ones_do_not() {
    let settings = Settings {
        producer_idle: Duration::from_secs(100),
        producers_max: 3,
        ..small()
    };
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = EmbeddedLog::open(disk, settings).expect("the log");
    settle_at(&mut writer, 1);
    let stream = log.stream("s").expect("a stream");
    let [a, b, c] = ["a", "b", "c"].map(|name| log.producer(stream, name).expect("a producer"));
    assert_eq!(log.producer(stream, "d"), Err(Refused::TooMany));
    append(&log, stream, a, 1..=1).expect("room");
    append(&log, stream, b, 1..=1).expect("room");
    settle_at(&mut writer, 60);
    append(&log, stream, b, 2..=2).expect("room");
    settle_at(&mut writer, 121);
    assert_eq!(log.mark(a).appended, None);
    assert_eq!(log.mark(b).appended, Some(2));
    assert_eq!(append(&log, stream, c, 1..=1), Err(Refused::Forgotten));
    assert!(!log.hold(c));
    let d = log.producer(stream, "d").expect("room again");
    assert!(![a, b, c].contains(&d), "numbers are never used again");
}

#[test]
fn a_producer_that_is_held_is_not_away() {
    let settings = Settings {
        producer_idle: Duration::from_secs(100),
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(3), settings).expect("the log");
    settle_at(&mut writer, 1);
    let stream = log.stream("s").expect("a stream");
    let a = log.producer(stream, "a").expect("a producer");
    append(&log, stream, a, 1..=1).expect("room");
    assert!(log.hold(a) && log.hold(a));
    settle_at(&mut writer, 1000);
    log.let_go(a);
    settle_at(&mut writer, 2000);
    append(&log, stream, a, 2..=2).expect("it is connected");
    settle_at(&mut writer, 3000);
    // Away from now on.
    log.let_go(a);
    settle_at(&mut writer, 3090);
    assert_eq!(log.mark(a).appended, Some(2));
    settle_at(&mut writer, 3200);
    assert_eq!(log.mark(a).appended, None);
    assert_eq!(append(&log, stream, a, 3..=3), Err(Refused::Forgotten));
}

#[test]
fn the_wall_clock_alone_forgets_no_producer() {
    let settings = Settings {
        producer_idle: Duration::from_secs(100),
        ..small()
    };
    let mut disk = SimDisk::new(3);
    // Years pass by the wall clock, minutes while the log is open.
    for opening in 0..4 {
        let (log, mut writer, _) =
            EmbeddedLog::open(disk.clone(), settings.clone()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let producer = log.producer(stream, "p").expect("a producer");
        let known = log.mark(producer).appended;
        assert_eq!(known, (opening > 0).then_some(opening), "{opening}");
        append(&log, stream, producer, opening + 1..=opening + 1).expect("room");
        let quiet = log.producer(stream, "quiet").expect("a producer");
        if opening == 0 {
            append(&log, stream, quiet, 1..=1).expect("room");
        }
        for seconds in [0, 40, 80] {
            let now = Now {
                monotonic: Duration::from_secs(seconds),
                unix_us: (opening * 400 + seconds) * 86_400_000_000,
            };
            for _ in 0..10 {
                writer.step(now);
            }
        }
        assert_eq!(log.mark(quiet).appended, Some(1), "{opening}");
        drop((log, writer));
        disk = disk.kill();
    }
}

#[test]
fn a_producer_that_is_idle_in_all_openings_together_is_forgotten_and_told_so() {
    let settings = Settings {
        producer_idle: Duration::from_secs(100),
        ..small()
    };
    let mut disk = SimDisk::new(3);
    for opening in 0..3 {
        let (log, mut writer, _) =
            EmbeddedLog::open(disk.clone(), settings.clone()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let other = log.producer(stream, "other").expect("a producer");
        if opening == 0 {
            let producer = log.producer(stream, "p").expect("a producer");
            append(&log, stream, producer, 1..=1).expect("room");
        }
        for seconds in [0, 61, 70] {
            append(&log, stream, other, seconds + 1..=seconds + 1).expect("room");
            settle_at(&mut writer, seconds);
        }
        if opening == 2 {
            let producer = log.producer(stream, "p").expect("a producer");
            let mark = log.mark(producer);
            assert_eq!((mark.appended, mark.forgotten), (None, true));
            let new = log.producer(stream, "new").expect("a producer");
            assert!(!log.mark(new).forgotten, "nobody knew it");
        }
        drop((log, writer));
        disk = disk.kill();
    }
}

#[test]
fn times_never_go_back_in_a_stream_also_over_openings() {
    let disk = SimDisk::new(3);
    let mut disk = disk;
    // The clock is right, an hour ahead, and set back.
    for (id, clock) in [
        (1, 1_000_000),
        (2, 3_601_000_000),
        (3, 2_000_000),
        (4, 3_000_000),
    ] {
        let (log, mut writer, _) = open(&disk).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let run = crate::Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames: &frames([id]),
            count: 1,
            last_id: id,
            timestamp_us: clock,
        };
        log.append(run).expect("room");
        settle(&mut writer);
        let read = log.read("s", 0, crate::Credit(10_000)).expect("reading");
        let times: Vec<_> = read.runs.iter().map(|run| run.timestamp_us).collect();
        assert!(times.is_sorted(), "{times:?}");
        let since = log.locate("s", crate::Begin::Timestamp(3_601_000_000));
        assert_eq!(since, Ok(1.min(id - 1).max(u64::from(id == 1))));
        drop((log, writer));
        disk = disk.kill();
    }
}

#[test]
fn old_segments_go_by_age_but_not_the_one_in_use() {
    let age = std::time::Duration::from_secs(1000);
    let settings = Settings {
        retention_age: Some(age),
        ..small()
    };
    let disk = segments();
    let before = names(&disk).len();
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
    settle_at(&mut writer, 100);
    assert_eq!(names(&disk).len(), before, "all are young");
    settle_at(&mut writer, 5000);
    assert_eq!(names(&disk).len(), 1);
    let range = log.range("s").expect("a stream");
    assert!(range.first > 0 && range.next == 1500, "{range:?}");
    assert_eq!(ids(&log, "s", range.first, 1000).last(), Some(&1500));
}

#[test]
fn what_was_reserved_is_taken_on_a_full_disk_and_counts_until_then() {
    let disk = SimDisk::new(5);
    // With what is kept for changes of streams.
    disk.set_capacity((64 + 48) << 10);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let anonymous = ProducerId::ANONYMOUS;
    // All that a group holds is promised: no other caller gets in, then what was given back is
    // free.
    let mut promised = 0;
    while log.reserve(100).is_ok() {
        promised += 1;
    }
    assert!(promised > 5);
    assert_eq!(append(&log, stream, anonymous, 1..=1), Err(Refused::Busy));
    log.give_back(100);
    append(&log, stream, anonymous, 1..=1).expect("room again");
    settle(&mut writer);
    for _ in 1..promised {
        log.give_back(100);
    }

    let bytes = frames(2..=2).len() + crate::RUN_BYTES;
    log.reserve(bytes).expect("room");
    disk.set_capacity(0);
    let mut next = 3;
    let refused = loop {
        match append(&log, stream, anonymous, next..=next) {
            Ok(_) => next += 1,
            Err(refused) => break refused,
        }
        settle(&mut writer);
    };
    assert!(matches!(refused, Refused::DiskFull { .. }), "{refused:?}");
    let run = Run {
        stream,
        producer: anonymous,
        frames: &frames(2..=2),
        count: 1,
        last_id: 2,
        timestamp_us: 0,
    };
    let placed = log.append_reserved(run, bytes).expect("it was promised");
    settle(&mut writer);
    assert_eq!(log.progress().failure, None);
    assert_eq!(log.progress().committed, placed.ticket);
    assert_eq!(ids(&log, "s", placed.first, 100), [2]);
}

#[test]
fn what_an_earlier_process_failed_to_sync_is_proven_before_a_sync_counts_at_os() {
    for (sync, sync_directory) in [(Some(1), None), (None, Some(1))] {
        let os = || Settings {
            policy: crate::Policy::Os,
            ..small()
        };
        let disk = SimDisk::new(3);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), os()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        append(&log, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
        settle(&mut writer);
        disk.set_faults(Faults {
            sync,
            sync_directory,
            ..Faults::default()
        });
        log.sync();
        settle(&mut writer);
        assert!(log.progress().failure.is_some());
        // The next process finds all in the page cache, and a sync of it succeeds.
        let disk = disk.kill();
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), os()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let ticket = append(&log, stream, ProducerId::ANONYMOUS, 4..=6).expect("room");
        log.sync();
        settle(&mut writer);
        assert_eq!(log.progress().durable, ticket);
        let disk = disk.crash_with(Survival::Nothing);
        let (log, ..) = EmbeddedLog::open(disk, os()).expect("the log");
        assert_eq!(ids(&log, "s", 0, 1000), [1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn what_keeps_a_group_from_growing_is_called_a_full_disk_only_if_it_is_one() {
    let settings = || Settings {
        group_first: 1 << 10,
        group_bytes: 4 << 10,
        ..small()
    };
    for is_full in [true, false] {
        let disk = SimDisk::new(3);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        append(&log, stream, ProducerId::ANONYMOUS, 1..=1).expect("room");
        settle(&mut writer);
        match is_full {
            true => disk.set_capacity(0),
            // The call that reserves room fails, and not for want of any.
            false => disk.set_faults(Faults {
                power: Some(1),
                ..Faults::default()
            }),
        }
        assert_eq!(log.reserve(3 << 10), Err(Refused::Busy));
        settle(&mut writer);
        let refused = log.reserve(3 << 10).expect_err("there is no room");
        let is_called_full = matches!(refused, Refused::DiskFull { .. });
        assert_eq!(is_called_full, is_full, "{refused:?}");
        assert_eq!(log.progress().blocked.is_some(), !is_full);
        log.reserve(100).expect("there is room for as much");
    }
}

/// In 2099, as a clock that runs ahead has it.
const AHEAD_US: u64 = 4_000_000_000_000_000;

/// Appends a record that was received in 2099, and more later, in several segments.
fn append_ahead<D: crate::disk::Disk>(log: &EmbeddedLog<D>, writer: &mut crate::Writer<D>) {
    let stream = log.stream("s").expect("a stream");
    let frames = super::frames([1]);
    let run = crate::Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: 1,
        last_id: 1,
        timestamp_us: AHEAD_US,
    };
    log.append(run).expect("room");
    for n in 0..60 {
        let first = 2 + n * 50;
        append(log, stream, ProducerId::ANONYMOUS, first..=first + 49).expect("room");
        settle_at(writer, 1);
    }
}

#[test]
fn a_clock_that_ran_ahead_once_does_not_end_retention_by_age() {
    let settings = Settings {
        retention_age: Some(Duration::from_secs(1000)),
        ..small()
    };
    let disk = SimDisk::new(5);
    let (log, mut writer, _) = EmbeddedLog::open(disk, settings).expect("the log");
    append_ahead(&log, &mut writer);
    settle_at(&mut writer, 900);
    assert_eq!(log.range("s").expect("a stream").first, 0);
    settle_at(&mut writer, 1100);
    let kept = log.range("s").expect("a stream");
    assert!(kept.first > 1000, "{kept:?}");
}

#[test]
fn a_clock_that_ran_ahead_once_does_not_end_the_age_limit_of_a_stream() {
    let disk = SimDisk::new(5);
    let (log, mut writer, _) = EmbeddedLog::open(disk, small()).expect("the log");
    let settings = crate::StreamSettings {
        retain_age: Some(Duration::from_secs(1000)),
        ..Default::default()
    };
    log.administer(crate::Change::Create {
        stream: "s",
        settings,
    })
    .expect("room");
    settle_at(&mut writer, 0);
    append_ahead(&log, &mut writer);
    settle_at(&mut writer, 900);
    assert_eq!(log.range("s").expect("a stream").first, 0);
    settle_at(&mut writer, 1100);
    settle_at(&mut writer, 1102);
    let kept = log.range("s").expect("a stream");
    assert_eq!((kept.first, kept.next), (3001, 3001));
}
