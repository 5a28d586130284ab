//! What is told to a log that is made anew.

use super::{append, ids, settle, small};
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, DiskFile};
use crate::tools::{check, loss, repair};
use crate::{
    ChangeRefused, Credit, EmbeddedLog, Log, ProducerId, Range, ReadError, Refused, Verify, Writer,
};

const NOBODY: ProducerId = ProducerId::ANONYMOUS;

type Opened = (EmbeddedLog<SimDisk>, Writer<SimDisk>);

fn open(disk: &SimDisk, verify: Verify) -> Opened {
    let settings = crate::Settings { verify, ..small() };
    let (log, writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
    (log, writer)
}

/// Until the writer has made room.
fn patiently<T>(writer: &mut Writer<SimDisk>, mut put: impl FnMut() -> Result<T, Refused>) -> T {
    for _ in 0..10 {
        match put() {
            Err(Refused::Busy) => settle(writer),
            done => return done.expect("room"),
        }
    }
    panic!("never any room");
}

/// Stream `s` from 100 on, without 110 to 199, and up to 210; producers whose records are gone; stream `t`, of which nothing is left.
fn restored(disk: &SimDisk, rolls: bool) -> Opened {
    let (log, mut writer) = open(disk, Verify::All);
    let s = log.begin_stream("s", 100).expect("a stream");
    let t = log.begin_stream("t", 7).expect("a stream");
    assert_eq!(log.begin_stream("s", 1), Err(ChangeRefused::Exists));
    let here = log.producer(s, "here").expect("a producer");
    append(&log, s, here, 1..=10).expect("room");
    assert_eq!(log.pass(s, 200), Err(Refused::Busy), "a gap is alone");
    if rolls {
        log.begin_segment().expect("the next segment is there");
    }
    settle(&mut writer);
    assert_eq!(log.pass(s, 110), Err(Refused::Beyond));
    patiently(&mut writer, || log.pass(s, 200));
    assert_eq!(append(&log, s, here, 11..=20), Err(Refused::Busy));
    assert_eq!(log.reserve(1), Err(Refused::Busy));
    assert_eq!(log.begin_growing(0), Err(Refused::Busy));
    if rolls {
        log.begin_segment().expect("the next segment is there");
    }
    settle(&mut writer);
    append(&log, s, here, 11..=20).expect("room");
    for (stream, name, last) in [(s, "gone", 5), (s, "here", 3), (t, "gone", 70)] {
        let producer = log.producer(stream, name).expect("a producer");
        log.remember(producer, last).expect("known");
    }
    let ticket = patiently(&mut writer, || log.begin_segment());
    settle(&mut writer);
    assert!(log.progress().committed >= ticket);
    (log, writer)
}

fn is_whole(log: &EmbeddedLog<SimDisk>) {
    let range = |first, next| Some(Range { first, next });
    assert_eq!(log.range("s"), range(100, 210));
    assert_eq!(log.range("t"), range(7, 7));
    assert_eq!(log.records("s"), Some(20));
    let read = log.read("s", 0, Credit(1)).expect_err("gone");
    assert_eq!(
        read,
        ReadError::Gone {
            asked: 0,
            first: 100
        }
    );
    let read = log.read("s", 100, Credit(10_000)).expect("records");
    assert_eq!(read.next, 110);
    for asked in [110, 150] {
        let missing = log.read("s", asked, Credit(1)).expect_err("missing");
        assert_eq!(missing, ReadError::Missing { asked, next: 200 });
    }
    assert_eq!(ids(log, "s", 200, 10_000), Vec::from_iter(11..=20));
    for (stream, name, last) in [("s", "gone", 5), ("s", "here", 20), ("t", "gone", 70)] {
        let stream = log.stream(stream).expect("a stream");
        let producer = log.producer(stream, name).expect("a producer");
        assert_eq!(log.mark(producer).appended, Some(last), "{name}");
    }
}

#[test]
fn a_log_that_is_made_anew_is_what_it_was_told_also_after_a_restart() {
    for rolls in [false, true] {
        let disk = SimDisk::new(1);
        let (log, mut writer) = restored(&disk, rolls);
        is_whole(&log);
        let s = log.stream("s").expect("a stream");
        append(&log, s, NOBODY, 30..=31).expect("room");
        settle(&mut writer);
        drop((log, writer));
        for verify in [Verify::All, Verify::Tail] {
            let report = check(&disk).expect("reading");
            assert_eq!((report.problems, report.records), (vec![], 22));
            assert_eq!(loss(&disk).expect("reading"), None);
            let (log, writer) = open(&disk, verify);
            assert_eq!(log.range("s").map(|range| range.next), Some(212));
            assert_eq!(ids(&log, "s", 200, 10_000)[10..], [30, 31]);
            drop((log, writer));
        }
    }
}

#[test]
fn what_is_committed_of_it_stays_whatever_happens() {
    for (seed, rolls) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let disk = SimDisk::new(seed);
        drop(restored(&disk, rolls));
        let disk = disk.crash();
        let (log, _writer) = open(&disk, Verify::All);
        is_whole(&log);
    }
}

/// A gap that it was told of and what damage makes in front of it, behind it and elsewhere.
#[test]
fn a_repair_keeps_the_gaps_of_a_log_that_was_made_anew() {
    for (damaged, records, gaps) in [
        (1, 30, &[(100, 200)][..]),
        (11, 30, &[(110, 210)]),
        (30, 30, &[(110, 200), (210, 220)]),
    ] {
        let disk = SimDisk::new(1);
        let (log, mut writer) = restored(&disk, false);
        let s = log.stream("s").expect("a stream");
        append(&log, s, NOBODY, 30..=39).expect("room");
        settle(&mut writer);
        append(&log, s, NOBODY, 40..=49).expect("room");
        settle(&mut writer);
        writer.close(crate::Now::default());
        drop(log);
        damage(&disk, damaged);
        let lost = loss(&disk).expect("reading").expect("something is lost");
        repair(&disk, &lost).expect("it can be mended");
        let (log, _writer) = open(&disk, Verify::All);
        assert_eq!(log.records("s"), Some(records), "{damaged}");
        for &(first, next) in gaps {
            for asked in [first, next - 1] {
                let missing = reads(&log, asked).expect_err("missing");
                assert_eq!(missing, ReadError::Missing { asked, next }, "{damaged}");
            }
        }
        assert_eq!(ids(&log, "s", 220, 10_000), Vec::from_iter(40..=49));
        assert_eq!(loss(&disk).expect("reading"), None);
    }
}

/// What is there from a position on, past gaps that touch each other.
fn reads(log: &EmbeddedLog<SimDisk>, from: u64) -> Result<(), ReadError> {
    let mut at = from;
    loop {
        match log.read("s", at, Credit(1)) {
            Err(ReadError::Missing { next, .. }) => at = next,
            Ok(_) if at > from => {
                return Err(ReadError::Missing {
                    asked: from,
                    next: at,
                });
            }
            read => return read.map(drop),
        }
    }
}

/// Flips a byte of the record with this id.
fn damage(disk: &SimDisk, id: u64) {
    let frame = &super::frames([id])[..16];
    let names = disk.list().expect("a list").into_iter();
    for name in names.filter(|name| name.ends_with(".seg")) {
        let file = disk.open(&name).expect("a file");
        let length = file.len().expect("a length");
        let mut bytes = vec![0; usize::try_from(length).expect("short")];
        file.read_at(&mut bytes, 0).expect("reading");
        if let Some(at) = bytes.windows(16).position(|piece| piece == frame) {
            let flipped = [bytes[at] ^ 0xff];
            let parts = [std::io::IoSlice::new(&flipped)];
            return file.write_at(&parts, at as u64).expect("writing");
        }
    }
    panic!("there is no record {id}");
}
