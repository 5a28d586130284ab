//! Appending and reading, over reopenings.

use std::io::{self, IoSlice};
use std::time::Duration;

use super::{append, ids, settle, settle_at, small};
use crate::disk::real::RealDisk;
use crate::disk::sim::{BLOCK, SimDisk};
use crate::disk::{Disk, DiskFile};
use crate::{
    Begin, EmbeddedLog, GROUP_WAIT_MAX, Log, Now, OpenError, Policy, ProducerId, Range, ReadError,
    Refused, Run, Settings, Step,
};

#[test]
fn streams_are_dense_over_reopenings_without_a_close() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut next = [0_u64; 3];
    for round in 0..6 {
        let disk = RealDisk::open(directory.path()).expect("the disk");
        let (log, mut writer, recovery) = EmbeddedLog::open(disk, small()).expect("the log");
        assert_eq!(recovery.cut, None);
        let names = ["a", "b", "c"];
        let streams = names.map(|name| log.stream(name).expect("a stream"));
        for step in 0..40_u64 {
            let which = ((step * 7 + round) % 3) as usize;
            let count = 1 + step % 9;
            let first = next[which];
            let last = first + count - 1;
            append(&log, streams[which], ProducerId::ANONYMOUS, first..=last).expect("room");
            next[which] += count;
            if step % 3 == 0 {
                settle(&mut writer);
            }
        }
        settle(&mut writer);
        for (which, name) in names.into_iter().enumerate() {
            assert_eq!(
                log.range(name),
                Some(Range {
                    first: 0,
                    next: next[which]
                })
            );
            for credit in [1, 100, 5000, 1 << 20] {
                let expected: Vec<u64> = (0..next[which]).collect();
                assert_eq!(ids(&log, name, 0, credit), expected, "credit {credit}");
            }
            let expected: Vec<u64> = (next[which] / 2..next[which]).collect();
            assert_eq!(ids(&log, name, next[which] / 2, 300), expected);
        }
    }
}

#[test]
fn marks_and_cursors_survive_with_and_without_a_close() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..6_u64 {
        let (log, _) = EmbeddedLog::start(directory.path(), small()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let producer = log.producer(stream, "p").expect("a producer");
        let mark = log.mark(producer);
        assert_eq!(mark.appended, (round > 0).then_some(round * 10));
        assert_eq!(log.cursor("s", "c"), (round > 0).then_some(round));
        append(&log, stream, producer, round * 10 + 1..=round * 10 + 10).expect("room");
        log.set_cursor("s", "c", round + 1).expect("room");
        assert_eq!(log.mark(producer).appended, Some(round * 10 + 10));
        if round % 2 == 0 {
            log.close();
            assert_eq!(
                append(&log, stream, producer, 99..=99),
                Err(Refused::Failed)
            );
            assert_eq!(ids(&log, "s", 0, 64).len() as u64, (round + 1) * 10);
        }
    }
}

#[test]
fn one_process_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let (log, _) = EmbeddedLog::start(directory.path(), Settings::default()).expect("the log");
    let again = EmbeddedLog::start(directory.path(), Settings::default());
    assert!(matches!(&again, Err(OpenError::Io { .. })), "{again:?}");
    assert!(
        again
            .expect_err("locked")
            .to_string()
            .contains("another process")
    );
    drop(log);
    EmbeddedLog::start(directory.path(), Settings::default()).expect("free again");
}

#[test]
fn what_is_not_committed_is_not_read() {
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), small()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let ticket = append(&log, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    assert_eq!(log.range("s"), Some(Range { first: 0, next: 0 }));
    assert!(log.progress().committed < ticket);
    settle(&mut writer);
    assert_eq!(log.range("s"), Some(Range { first: 0, next: 3 }));
    assert_eq!(log.progress().committed, ticket);
    assert_eq!(log.range("t"), None);
    assert_eq!(log.locate("t", Begin::Tail), Ok(0));
}

#[test]
fn a_full_queue_says_busy_and_wakes_when_there_is_room() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), small()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut taken = 0;
    let refused = loop {
        match append(&log, stream, ProducerId::ANONYMOUS, taken..=taken) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, Refused::Busy);
    let wakes = Arc::new(AtomicU32::new(0));
    let counted = wakes.clone();
    let watch = log.watch(Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    settle(&mut writer);
    assert_eq!(
        wakes.load(Ordering::Relaxed),
        2,
        "one for the room, one for the commit"
    );
    append(&log, stream, ProducerId::ANONYMOUS, taken..=taken).expect("room");
    drop(watch);
    settle(&mut writer);
    assert_eq!(wakes.load(Ordering::Relaxed), 2);
    let large = vec![0; 4096];
    let run = crate::Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &large,
        count: 1,
        last_id: 1,
        timestamp_us: 0,
    };
    assert_eq!(log.append(run), Err(Refused::TooLarge));
}

#[test]
fn a_time_leads_to_its_first_record() {
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), small()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    for id in 0..2000 {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room");
        if id % 20 == 0 {
            settle(&mut writer);
        }
    }
    settle(&mut writer);
    for id in [0, 1, 17, 999, 1999] {
        let at = Begin::Timestamp(1_000_000 + id * 1000);
        assert_eq!(log.locate("s", at), Ok(id));
        let just_before = Begin::Timestamp(1_000_000 + id * 1000 - 999);
        assert_eq!(log.locate("s", just_before), Ok(id));
    }
    assert_eq!(log.locate("s", Begin::Timestamp(u64::MAX)), Ok(2000));
    assert_eq!(log.locate("s", Begin::Timestamp(0)), Ok(0));
}

#[test]
fn the_oldest_go_when_there_is_too_much() {
    let settings = Settings {
        retention_bytes: Some(40 << 10),
        ..small()
    };
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings.clone()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let quiet = log.stream("quiet").expect("a stream");
    let producer = log.producer(stream, "p").expect("a producer");
    append(&log, quiet, ProducerId::ANONYMOUS, 1..=4).expect("room");
    for id in 1..=4000 {
        append(&log, stream, producer, id..=id).expect("room");
        if id % 20 == 0 {
            settle(&mut writer);
        }
    }
    settle(&mut writer);
    let range = log.range("s").expect("a stream");
    assert!(range.first > 1000 && range.next == 4000, "{range:?}");
    let gone = log.read("s", 0, crate::Credit(100));
    assert_eq!(
        gone,
        Err(ReadError::Gone {
            asked: 0,
            first: range.first
        })
    );
    assert_eq!(
        ids(&log, "s", range.first, 1000),
        (range.first + 1..=4000).collect::<Vec<_>>()
    );
    assert_eq!(log.locate("s", Begin::Position(0)), Ok(range.first));
    assert_eq!(log.range("quiet"), Some(Range { first: 4, next: 4 }));

    let (log, _writer, _) = EmbeddedLog::open(disk.kill(), settings).expect("the log");
    assert_eq!(log.range("s"), Some(range));
    assert_eq!(log.range("quiet"), Some(Range { first: 4, next: 4 }));
    assert_eq!(
        log.mark(log.producer(stream, "p").expect("known")).appended,
        Some(4000)
    );
}

/// A disk whose files panic when they are synced, all but the file of claims.
#[derive(Debug)]
struct Mined(SimDisk);

#[derive(Clone, Debug)]
struct MinedFile(<SimDisk as Disk>::File, bool);

impl Disk for Mined {
    type File = MinedFile;

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str) -> io::Result<MinedFile> {
        let file = self.0.create(name)?;
        Ok(MinedFile(file, name != "claims"))
    }

    fn open(&self, name: &str) -> io::Result<MinedFile> {
        let file = self.0.open(name)?;
        Ok(MinedFile(file, name != "claims"))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
}

impl DiskFile for MinedFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_at(parts, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        assert!(!self.1, "a mine, on purpose");
        self.0.sync_data()
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.0.reserve(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[test]
fn waits_end_with_an_error_when_the_writer_panics() {
    let (log, writer, _) = EmbeddedLog::open(Mined(SimDisk::new(1)), small()).expect("the log");
    let (woken, wait) = std::sync::mpsc::channel();
    let _watch = log.watch(std::sync::Arc::new(move || {
        let _ = woken.send(());
    }));
    log.spawn(writer).expect("a thread");
    let stream = log.stream("s").expect("a stream");
    for _ in 0..100 {
        wait.recv_timeout(std::time::Duration::from_secs(60))
            .expect("a wake");
        if let Some(failure) = log.progress().failure {
            assert!(failure.to_string().contains("panicked"));
            let refused = append(&log, stream, ProducerId::ANONYMOUS, 1..=1);
            assert_eq!(refused, Err(Refused::Failed));
            return;
        }
    }
    panic!("no failure");
}

/// The bug of the issue: 1.2 KiB took 129 MB.
#[test]
fn a_log_that_holds_little_takes_little_room() {
    use std::os::unix::fs::MetadataExt;

    let directory = tempfile::tempdir().expect("a directory");
    let taken = || -> u64 {
        let entries = std::fs::read_dir(directory.path()).expect("a directory");
        let blocks =
            entries.map(|entry| entry.expect("an entry").metadata().expect("one").blocks());
        blocks.sum::<u64>() * 512
    };
    let disk = RealDisk::open(directory.path()).expect("the disk");
    let (log, mut writer, _) = EmbeddedLog::open(disk, Settings::default()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    append(&log, stream, ProducerId::ANONYMOUS, 1..=60).expect("room");
    settle(&mut writer);
    assert!(taken() < 4 << 20, "{}", taken());
    log.close();
    writer.close(crate::Now::default());
    assert!(taken() < 64 << 10, "{}", taken());
    drop(log);
    // A record of any size still finds its place, when the writer had its turn.
    let disk = RealDisk::open(directory.path()).expect("the disk");
    let (log, mut writer, _) = EmbeddedLog::open(disk, Settings::default()).expect("the log");
    let frames = [
        &1_u64.to_le_bytes()[..],
        &1_000_000_u32.to_le_bytes(),
        &[7; 1_000_000],
    ]
    .concat();
    let run = crate::Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: 1,
        last_id: 1,
        timestamp_us: 0,
    };
    assert_eq!(log.append(run), Err(Refused::Busy));
    settle(&mut writer);
    log.append(run).expect("room was made");
    settle(&mut writer);
    assert_eq!(log.range("s").expect("a stream").next, 61);
}

/// With everything that is reserved.
#[test]
fn the_limit_of_the_logs_size_holds_at_every_moment() {
    let limit = 128 << 10;
    let settings = Settings {
        retention_bytes: Some(limit),
        ..small()
    }
    .with_segments(limit / 4)
    .expect("long enough");
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut id = 0;
    for _ in 0..4000 {
        id += 1;
        if append(&log, stream, ProducerId::ANONYMOUS, id..=id).is_err() || id % 13 == 0 {
            writer.step(crate::Now::default());
        }
        let names = disk.names();
        let taken = names
            .iter()
            .map(|name| disk.contents(name).expect("a file").len() as u64);
        let taken: u64 = taken.sum();
        assert!(taken <= limit, "{taken} after {id}: {names:?}");
    }
    assert!(log.range("s").expect("a stream").first > 0);
}

/// The limit holds while room is reserved for the next segment: with groups so large that this is
/// done as soon as one has begun.
#[test]
fn the_limit_of_the_logs_size_holds_within_a_step_too() {
    // Whole blocks of so many files, at most.
    const ROUNDING: u64 = 9 * BLOCK;
    for limit in (260 << 10..324 << 10).step_by(4 << 10) {
        let settings = Settings {
            segment_bytes: 64 << 10,
            group_bytes: 10 << 10,
            group_first: 10 << 10,
            retention_bytes: Some(limit),
            ..small()
        };
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
        let stream = log.stream("s").expect("a stream");
        for group in 0..100 {
            let ids = group * 400 + 1..=group * 400 + 400;
            append(&log, stream, ProducerId::ANONYMOUS, ids).expect("room");
            settle(&mut writer);
        }
        assert!(log.range("s").expect("a stream").first > 0);
        let most = disk.most_used();
        assert!(
            most <= limit + ROUNDING,
            "{most} where {limit} is the limit"
        );
    }
}

/// What was committed before stays readable, and nothing that comes later is promised.
#[test]
fn a_released_log_is_anothers_to_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let (old, _) = EmbeddedLog::start(directory.path(), small()).expect("the log");
    let stream = old.stream("s").expect("a stream");
    append(&old, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    let again = EmbeddedLog::start(directory.path(), small());
    assert!(matches!(again, Err(OpenError::Io { .. })), "it is locked");
    old.release();
    assert!(append(&old, stream, ProducerId::ANONYMOUS, 4..=4).is_err());
    let (new, _) = EmbeddedLog::start(directory.path(), small()).expect("unlocked");
    assert_eq!(ids(&new, "s", 0, 1 << 20), [1, 2, 3]);
    let stream = new.stream("s").expect("a stream");
    append(&new, stream, ProducerId::ANONYMOUS, 4..=4).expect("room");
    assert_eq!(ids(&old, "s", 0, 1 << 20), [1, 2, 3]);
    // The end of the released log takes nothing away from the other one.
    drop(old);
    assert!(EmbeddedLog::start(directory.path(), small()).is_err());
}

#[test]
fn what_is_of_no_use_any_more_is_removed_and_nothing_else() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("the log");
    let streams = ["a", "b"].map(|name| log.stream(name).expect("a stream"));
    for first in (0..4000).step_by(40) {
        let stream = streams[usize::from(first >= 2000)];
        append(&log, stream, ProducerId::ANONYMOUS, first..=first + 39).expect("room");
        settle(&mut writer);
    }
    let segments = || disk.names().iter().filter(|n| n.ends_with("seg")).count();
    let all = segments();
    assert!(all > 4, "{all}");
    log.discard(streams[1], 2000);
    settle(&mut writer);
    assert_eq!(segments(), all, "the first ones hold records of the other");
    log.discard(streams[0], 1000);
    settle(&mut writer);
    let first = log.range("a").expect("a stream").first;
    assert!(first > 500 && first <= 1000, "{first}");
    assert_eq!(
        ids(&log, "a", first, 5000),
        (first..2000).collect::<Vec<_>>()
    );
    log.discard(streams[0], 2000);
    settle(&mut writer);
    assert_eq!(segments(), 1, "the one in use stays");
    let next = log.range("b").expect("a stream").next;
    drop((log, writer));
    let (log, _, recovery) = EmbeddedLog::open(disk.crash(), small()).expect("the log");
    assert_eq!(recovery.cut, None);
    assert_eq!(log.range("b").expect("a stream").next, next);
}

#[test]
fn a_sync_is_done_when_it_is_asked_for() {
    for policy in [
        Policy::Os,
        Policy::Interval(std::time::Duration::from_secs(900)),
    ] {
        let disk = SimDisk::new(1);
        let settings = Settings { policy, ..small() };
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let ticket = append(&log, stream, ProducerId::ANONYMOUS, 1..=9).expect("room");
        settle_at(&mut writer, 1);
        assert!(log.progress().durable < ticket, "{policy:?}");
        log.sync();
        settle_at(&mut writer, 1);
        assert_eq!(log.progress().durable, ticket, "{policy:?}");
        let survived = disk.crash_with(crate::disk::sim::Survival::Nothing);
        let (log, ..) = EmbeddedLog::open(survived, small()).expect("the log");
        assert_eq!(
            log.range("s").map(|range| range.next),
            Some(9),
            "{policy:?}"
        );
    }
}

/// Callers that were told of a commit come back in the next group, if it waits for them.
#[test]
fn a_group_waits_for_released_clients_and_no_longer_than_it_may() {
    let settings = Settings {
        group_wait: Duration::from_millis(1),
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut now = Now::default();
    let mut id = 0;
    let mut one = || {
        id += 1;
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room")
    };
    // The definition of the stream is a run, and the records are another.
    one();
    while writer.step(now) == Step::Worked {}
    let committed = || log.progress().committed;

    one();
    let before = committed();
    let begun = now.monotonic;
    assert_eq!(
        writer.step(now),
        Step::WaitUntil(begun + Duration::from_millis(1)),
        "two were released, and one has come back"
    );
    let last = one();
    assert_eq!(committed(), before);
    assert_eq!(writer.step(now), Step::Worked);
    assert_eq!(committed(), last, "both, together");

    let last = one();
    while writer.step(now) == Step::Worked {}
    assert!(committed() < last);
    now.monotonic += Duration::from_millis(1);
    assert_eq!(writer.step(now), Step::Worked);
    assert_eq!(committed(), last, "the other one stayed away");

    while writer.step(now) == Step::Worked {}
    let last = one();
    assert_eq!(writer.step(now), Step::Worked);
    assert_eq!(committed(), last, "who is alone does not wait");

    let (_, last) = (one(), one());
    assert_eq!(writer.step(now), Step::Worked);
    one();
    assert!(matches!(writer.step(now), Step::WaitUntil(_)));
    log.sync();
    while writer.step(now) == Step::Worked {}
    assert!(
        committed() > last,
        "what somebody asks for is not waited with"
    );
    one();
    let last = one();
    writer.close(now);
    assert_eq!(committed(), last);
}

#[test]
fn a_group_never_waits_longer_than_is_allowed() {
    let settings = Settings {
        group_wait: Duration::MAX,
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut now = Now::default();
    append(&log, stream, ProducerId::ANONYMOUS, 1..=1).expect("room");
    while writer.step(now) == Step::Worked {}
    let last = append(&log, stream, ProducerId::ANONYMOUS, 2..=2).expect("room");
    while writer.step(now) == Step::Worked {}
    assert!(log.progress().committed < last);
    now.monotonic += GROUP_WAIT_MAX;
    assert_eq!(writer.step(now), Step::Worked);
    assert_eq!(log.progress().committed, last);
}

/// No caller waits for the group, so it is written when it is worth a write, or old; the time that
/// it waited counts against the interval.
#[test]
fn a_group_without_waiters_is_written_when_it_is_large_or_old() {
    let interval = Duration::from_secs(1);
    let settings = Settings {
        policy: Policy::Interval(interval),
        identity: Some(7),
        ..Settings::default()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut now = Now::default();
    let mut id = 0;
    let mut some = |count: u64| {
        let first = id + 1;
        id += count;
        append(&log, stream, ProducerId::ANONYMOUS, first..=id).expect("room")
    };
    some(1);
    while writer.step(now) == Step::Worked {}
    let written = || log.progress().written;

    let (hold, begun) = (Duration::from_millis(10), now.monotonic);
    let last = some(1);
    assert_eq!(writer.step(now), Step::WaitUntil(begun + hold));
    assert!(written() < last);
    assert!(
        log.shared().gather().is_awaited(),
        "nobody wakes the writer for a little more"
    );
    now.monotonic += hold;
    assert_eq!(writer.step(now), Step::Worked);
    assert_eq!(written(), last, "it is old");

    // As much as is worth a write, in runs that are not.
    let before = log.progress().groups;
    for _ in 0..800 {
        some(100);
        while writer.step(now) == Step::Worked {}
    }
    let groups = log.progress().groups - before;
    assert!((2..=12).contains(&groups), "{groups} of about 1.6 MB");

    // A sync begins so early that what was held is not lost later than after the interval.
    let last = some(1);
    now.monotonic += interval;
    while writer.step(now) == Step::Worked {}
    let asked = now.monotonic;
    let last = last.max(some(1));
    assert_eq!(writer.step(now), Step::WaitUntil(asked + hold));
    now.monotonic += hold;
    while writer.step(now) == Step::Worked {}
    assert_eq!(written(), last);
    now.monotonic = asked + interval;
    while writer.step(now) == Step::Worked {}
    assert_eq!(log.progress().durable, last);

    let last = some(1);
    writer.close(now);
    assert_eq!(log.progress().durable, last, "and at the end");
}

/// The zeros would be a second write of every byte, for syncs that no caller waits for.
#[test]
fn zeros_are_written_ahead_only_where_clients_wait_for_syncs() {
    for (policy, wants) in [
        (Policy::Sync, true),
        (Policy::Interval(Duration::from_secs(9)), false),
        (Policy::Os, false),
    ] {
        let settings = Settings { policy, ..small() };
        let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
        let stream = log.stream("s").expect("a stream");
        for round in 0..60 {
            let first = 1 + 20 * round;
            append(&log, stream, ProducerId::ANONYMOUS, first..=first + 19).expect("room");
            settle_at(&mut writer, round);
        }
        assert_eq!(log.shared().zeros.is_wanted(), wants, "{policy:?}");
    }
}

/// What is compressed to next to nothing fills a group with more records than a batch's header can count.
#[test]
fn a_group_takes_no_more_records_than_a_header_counts() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk, small()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let many = |count| {
        log.append(Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames: b"little",
            count,
            last_id: 0,
            timestamp_us: 0,
        })
    };
    let most = 1 << 31;
    assert_eq!(many(most + 1), Err(Refused::TooLarge));
    many(most - 1).expect("room");
    assert_eq!(many(2), Err(Refused::Busy));
    many(1).expect("room for one more");
    assert_eq!(many(1), Err(Refused::Busy));
    settle(&mut writer);
    many(most).expect("room in the next one");
    settle(&mut writer);
    let next = 2 * u64::from(most);
    assert_eq!(log.range("s"), Some(Range { first: 0, next }));
}
