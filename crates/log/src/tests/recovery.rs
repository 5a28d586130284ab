//! What opening does with torn tails and with damage.

use std::io::IoSlice;

use super::{append, frames, ids, settle, settle_at, small};
use crate::disk::sim::{SimDisk, Survival};
use crate::disk::{Disk, DiskFile};
use crate::tools::info;
use crate::{EmbeddedLog, Log, OpenError, Policy, ProducerId, Recovery, Settings};

pub(super) const FIRST: &str = "00000000000000000001.seg";

pub(super) type Opened =
    Result<(EmbeddedLog<SimDisk>, crate::Writer<SimDisk>, Recovery), OpenError>;

pub(super) fn open(disk: &SimDisk) -> Opened {
    EmbeddedLog::open(disk.clone(), small())
}

/// A log of batches of three records each, written one by one, with the offset where each ends.
pub(super) fn batches(count: u64) -> (SimDisk, Vec<usize>) {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let producer = log.producer(stream, "p").expect("a producer");
    let mut ends = Vec::new();
    for batch in 0..count {
        append(&log, stream, producer, batch * 3 + 1..=batch * 3 + 3).expect("room");
        settle(&mut writer);
        let bytes = disk.contents(FIRST).expect("a segment");
        let start = ends.last().copied().unwrap_or(64);
        let length = bytes[start + 48..start + 52].try_into().expect("a length");
        ends.push(start + u32::from_le_bytes(length) as usize);
    }
    drop((log, writer));
    (disk.kill(), ends)
}

pub(super) fn overwrite(disk: &SimDisk, name: &str, offset: usize, bytes: &[u8]) {
    let file = disk.open(name).expect("a file");
    file.write_at(&[IoSlice::new(bytes)], offset as u64)
        .expect("writing");
}

fn damage(opened: Opened) -> (crate::Damage, u64) {
    match opened {
        Err(OpenError::Damaged { damage, claimed }) => (damage, claimed),
        other => panic!("it should not open: {:?}", other.map(|opened| opened.2)),
    }
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_back() {
    let (whole, ends) = batches(5);
    let bytes = whole.contents(FIRST).expect("a segment");
    let (start, end) = (ends[3], ends[4]);
    for at in start..end {
        let disk = whole.fork();
        let zeros = vec![0; end - at];
        if bytes[at..end] == zeros {
            continue;
        }
        overwrite(&disk, FIRST, at, &zeros);
        let (log, mut writer, recovery) = open(&disk).expect("a torn tail is none to refuse");
        assert_eq!(
            ids(&log, "s", 0, 1000),
            (1..=12).collect::<Vec<_>>(),
            "torn at {at}"
        );
        if at == start {
            assert_eq!(recovery.cut, None, "nothing of it is there");
        } else {
            let cut = recovery.cut.expect("something of it is there");
            assert_eq!(cut.at.file, FIRST);
            assert!((start..end).contains(&(cut.at.offset as usize)), "{cut:?}");
            assert_eq!((cut.at.batch, cut.whole_batches), (5, 0));
        }
        // The mark goes back with the records, and the log goes on.
        let stream = log.stream("s").expect("known");
        let producer = log.producer(stream, "p").expect("known");
        assert_eq!(log.mark(producer).appended, Some(12));
        append(&log, stream, producer, 13..=20).expect("room");
        settle(&mut writer);
        drop((log, writer));
        let (log, _writer, recovery) = open(&disk).expect("the log");
        assert_eq!(recovery.cut, None);
        assert_eq!(ids(&log, "s", 0, 1000), (1..=20).collect::<Vec<_>>());
    }
}

#[test]
fn a_shorter_file_is_a_torn_tail_too() {
    let (whole, ends) = batches(4);
    for at in ends[2]..ends[3] {
        let disk = whole.fork();
        disk.open(FIRST)
            .expect("a file")
            .truncate(at as u64)
            .expect("cutting");
        let (log, _writer, _) = open(&disk).expect("the log");
        assert_eq!(
            ids(&log, "s", 0, 1000),
            (1..=9).collect::<Vec<_>>(),
            "cut at {at}"
        );
    }
}

#[test]
fn a_bit_flipped_below_a_claim_refuses_with_file_and_offset() {
    let (whole, ends) = batches(5);
    // Batch 5 claims batch 4: everything up to there is acknowledged.
    for at in 0..ends[3] {
        let disk = whole.fork();
        assert!(disk.flip(FIRST, at as u64, (at % 8) as u8));
        let (damage, claimed) = damage(open(&disk));
        assert_eq!(damage.file, FIRST);
        assert_eq!(claimed, 4, "flipped at {at}");
        let batch = ends.iter().position(|&end| at < end).expect("the batch");
        let (start, end) = match (at, batch) {
            (..64, _) => (0, 64),
            (_, 0) => (64, ends[0]),
            (_, batch) => (ends[batch - 1], ends[batch]),
        };
        assert!(
            (start..end).contains(&(damage.offset as usize)),
            "{damage} flipped at {at}"
        );
        let before = disk.contents(FIRST);
        drop(open(&disk));
        assert_eq!(disk.contents(FIRST), before, "nothing is changed");
    }
}

#[test]
fn a_bit_flipped_in_the_last_batch_is_a_torn_tail() {
    let (whole, ends) = batches(5);
    for at in ends[3]..ends[4] {
        let disk = whole.fork();
        disk.flip(FIRST, at as u64, 3);
        let (log, _writer, recovery) = open(&disk).expect("the log");
        assert_eq!(
            ids(&log, "s", 0, 1000),
            (1..=12).collect::<Vec<_>>(),
            "flipped at {at}"
        );
        assert!(recovery.cut.is_some());
    }
}

#[test]
fn a_closed_log_claims_all_of_itself() {
    let disk = SimDisk::new(3);
    let (log, writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    append(&log, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    writer.close(crate::Now::default());
    drop(log);
    let bytes = disk.contents(FIRST).expect("a segment");
    // The last byte of the last payload.
    let frames = frames(1..=3);
    let at = bytes
        .windows(frames.len())
        .position(|part| part == frames)
        .expect("the records");
    let disk = disk.kill();
    disk.flip(FIRST, (at + frames.len() - 1) as u64, 0);
    let (damage, claimed) = damage(open(&disk));
    assert_eq!((&*damage.file, damage.batch, claimed), (FIRST, 1, 2));
}

/// Batches written without a sync between, so that none claims another.
fn unclaimed(batches: u64) -> SimDisk {
    let settings = Settings {
        policy: Policy::Interval(std::time::Duration::from_secs(9000)),
        ..small()
    };
    let disk = SimDisk::new(5);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    for id in 1..=batches {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room");
        // A group without a waiting caller is held for a moment.
        settle_at(&mut writer, 2 * id);
        settle_at(&mut writer, 2 * id + 1);
    }
    assert_eq!(
        log.range("s").expect("a stream").next,
        0,
        "nothing is committed"
    );
    disk.kill()
}

#[test]
fn groups_that_arrived_out_of_order_are_cut_with_what_is_missing_before_them() {
    let disk = unclaimed(5);
    let bytes = disk.contents(FIRST).expect("a segment");
    let third = frames(3..=3);
    let at = bytes
        .windows(third.len())
        .position(|part| part == third)
        .expect("the record");
    overwrite(&disk, FIRST, at, &vec![0; third.len()]);
    let (log, mut writer, recovery) = open(&disk).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), [1, 2]);
    let cut = recovery.cut.expect("a cut");
    assert_eq!((cut.at.batch, cut.whole_batches), (3, 2));
    // A batch of the same length in the same place does not bring back what was behind it.
    let stream = log.stream("s").expect("known");
    append(&log, stream, ProducerId::ANONYMOUS, 3..=3).expect("room");
    settle(&mut writer);
    let (log, _writer, recovery) = open(&disk.kill()).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), [1, 2, 3]);
    assert_eq!(recovery.cut, None);
}

/// A log of several segments.
pub(super) fn segments() -> SimDisk {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    for id in 1..=1500 {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room");
        if id % 10 == 0 {
            settle(&mut writer);
        }
    }
    settle(&mut writer);
    drop((log, writer));
    let disk = disk.kill();
    assert!(names(&disk).len() > 2, "{:?}", names(&disk));
    disk
}

pub(super) fn names(disk: &SimDisk) -> Vec<String> {
    disk.names()
        .into_iter()
        .filter(|name| name.ends_with(".seg"))
        .collect()
}

/// The bug of the issue: after a kill nothing claimed the last group, and damage to it was cut off
/// as never acknowledged.
#[test]
fn after_a_second_of_silence_the_last_group_is_claimed() {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    for id in 1..=3 {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("room");
        settle(&mut writer);
    }
    let last = frames(3..=3);
    let bytes = disk.contents(FIRST).expect("a segment");
    let at = bytes
        .windows(last.len())
        .position(|part| part == last)
        .expect("the record") as u64;
    let busy = disk.fork();
    settle_at(&mut writer, 1);
    let operations = disk.operations();
    settle_at(&mut writer, 50);
    assert_eq!(disk.operations(), operations, "once is enough");
    drop((log, writer));
    let disk = disk.kill();
    disk.flip(FIRST, at + 13, 0);
    let (damage, claimed) = damage(open(&disk));
    assert_eq!((&*damage.file, damage.batch, claimed), (FIRST, 3, 3));
    // After a kill before that, the cause is unknown, and what is cut off is kept.
    busy.flip(FIRST, at + 13, 0);
    let (_log, _writer, recovery) = open(&busy).expect("nothing claims it");
    let cut = recovery.cut.expect("a cut");
    let kept = busy.contents(&cut.kept_in[0]).expect("what was cut off");
    assert!(kept.windows(8).any(|part| part == 3_u64.to_le_bytes()));
}

#[test]
fn a_stray_later_segment_is_set_aside_and_not_deleted() {
    let (whole, _) = batches(3);
    let bytes = whole.contents(FIRST).expect("a segment");
    for stray in [&bytes[..], b"notes of somebody"] {
        let disk = whole.fork();
        let name = "00000000000000009999.seg";
        drop(disk.create(name).expect("a file"));
        overwrite(&disk, name, 0, stray);
        let opened = open(&disk);
        if let Ok((log, _writer, recovery)) = opened {
            assert_eq!(ids(&log, "s", 0, 1000), (1..=9).collect::<Vec<_>>());
            let kept = recovery.cut.expect("a cut").kept_in;
            assert_eq!(kept, [format!("{name}.cut")]);
            assert_eq!(disk.contents(&kept[0]).as_deref(), Some(stray));
        } else {
            // A whole header under another's name is refused, and nothing is changed.
            damage(opened);
            assert_eq!(disk.contents(name).as_deref(), Some(stray));
        }
    }
}

#[test]
fn a_segment_that_is_missing_refuses() {
    let whole = segments();
    let names = names(&whole);
    for name in &names[1..names.len() - 1] {
        let disk = whole.fork();
        disk.remove(name).expect("removing");
        let (damage, _) = damage(open(&disk));
        assert!(
            damage.expected.contains("segment that begins with"),
            "{damage}"
        );
    }
    let disk = whole.fork();
    disk.remove(&names[0]).expect("removing");
    let (first, _) = damage(open(&disk));
    assert!(
        first.expected.contains("segment that begins with batch 1"),
        "{first}"
    );
    let disk = whole.fork();
    let last = names.last().expect("several");
    disk.remove(last).expect("removing");
    let (gone, _) = damage(open(&disk));
    assert_eq!((&*gone.file, &*gone.found), (&**last, "no such file"));
    let disk = whole.fork();
    names
        .iter()
        .for_each(|name| disk.remove(name).expect("removing"));
    assert_eq!(damage(open(&disk)).0.found, "no such file");
    let disk = whole.fork();
    let file = disk.open(&names[1]).expect("a file");
    file.truncate(file.len().expect("a length") - 300)
        .expect("cutting");
    damage(open(&disk));
}

#[test]
fn batches_and_segments_from_elsewhere_are_not_believed() {
    let ours = segments();
    let names = names(&ours);
    // One log, another segment: its batches are whole, and not where they belong.
    let first = ours.contents(&names[0]).expect("a segment");
    let (whole, ends) = batches(5);
    let disk = whole.fork();
    overwrite(&disk, FIRST, ends[4], &first[64..2000]);
    let (log, _writer, recovery) = open(&disk).expect("the log");
    assert_eq!(ids(&log, "s", 0, 1000), (1..=15).collect::<Vec<_>>());
    assert_eq!(recovery.cut.expect("a cut").at.offset, ends[4] as u64);

    // A segment of another log under the right name.
    let other = Settings {
        identity: Some(8),
        ..small()
    };
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), other).expect("the log");
    let stream = log.stream("s").expect("a stream");
    append(&log, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    settle(&mut writer);
    let foreign = disk.contents(FIRST).expect("a segment");
    let disk = ours.fork();
    overwrite(&disk, FIRST, 0, &foreign[..64]);
    assert!(damage(open(&disk)).0.found.contains("of log"));
    // A segment under another's name.
    let disk = ours.fork();
    disk.rename(&names[1], &names[2]).expect("renaming");
    assert!(damage(open(&disk)).0.expected.contains("segment"));
}

#[test]
fn index_files_spare_the_reading_and_are_never_needed() {
    let whole = segments();
    let tail = Settings {
        verify: crate::Verify::Tail,
        ..small()
    };
    let reopen = |disk: &SimDisk| EmbeddedLog::open(disk.clone(), tail.clone()).expect("the log");
    let names = names(&whole);
    let all = (1..=1500).collect::<Vec<_>>();
    let disk = whole.fork();
    let (log, mut writer, recovery) = reopen(&disk);
    assert!(recovery.records < 400, "{recovery:?}");
    assert_eq!(ids(&log, "s", 0, 1000), all);
    let stream = log.stream("s").expect("known");
    append(&log, stream, ProducerId::ANONYMOUS, 1501..=1501).expect("room");
    settle(&mut writer);
    assert_eq!(ids(&log, "s", 1499, 1000), [1500, 1501]);
    // Missing, and of another segment.
    let index = |name: &String| name.replace(".seg", ".idx");
    let disk = whole.fork();
    disk.remove(&index(&names[0])).expect("removing");
    disk.rename(&index(&names[2]), &index(&names[1]))
        .expect("renaming");
    let (log, _writer, recovery) = reopen(&disk);
    assert!(recovery.records > 400, "{recovery:?}");
    assert_eq!(ids(&log, "s", 0, 1000), all);
    // Damage that opening did not look for is found by reading, and by opening with a look.
    let disk = whole.fork();
    let bytes = disk.contents(&names[1]).expect("a segment");
    disk.flip(&names[1], bytes.len() as u64 / 2, 0);
    let (log, _writer, _) = reopen(&disk);
    let mut next = 0;
    let error = loop {
        match log.read("s", next, crate::Credit(1000)) {
            Ok(read) => next = read.next,
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains(&names[1]), "{error}");
    assert_eq!(damage(open(&disk)).0.file, names[1]);
}

#[test]
fn a_torn_first_batch_of_a_segment_takes_its_checkpoint_with_it() {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let producer = log.producer(stream, "p").expect("a producer");
    let mut id = 0;
    while names(&disk).len() < 3 {
        id += 1;
        assert!(id < 10_000);
        append(&log, stream, producer, id..=id).expect("room");
        settle(&mut writer);
    }
    drop((log, writer));
    let disk = disk.kill();
    let last = names(&disk).pop().expect("a segment");
    assert!(
        disk.flip(&last, 64 + 72 + 48, 0),
        "a byte of its first record"
    );
    // The batch was acknowledged, and the file of claims says so.
    let (told, claimed) = damage(open(&disk));
    assert_eq!((&told.file, claimed), (&last, told.batch));
    for verify in [crate::Verify::All, crate::Verify::Tail] {
        let settings = Settings { verify, ..small() };
        let disk = disk.fork();
        disk.remove("claims").expect("removing");
        let (log, mut writer, recovery) =
            EmbeddedLog::open(disk.clone(), settings).expect("nobody was told of it");
        assert_eq!(
            recovery.cut.expect("a cut").kept_in,
            [format!("{last}.cut")]
        );
        assert_eq!(
            log.producer(stream, "p")
                .map(|producer| log.mark(producer).appended),
            Ok(Some(id - 1))
        );
        assert_eq!(ids(&log, "s", 0, 1000), (1..id).collect::<Vec<_>>());
        append(&log, stream, producer, id..=id).expect("room");
        settle(&mut writer);
        assert_eq!(ids(&log, "s", 0, 1000), (1..=id).collect::<Vec<_>>());
    }
}

#[test]
fn without_syncs_what_was_finished_is_claimed_after_a_while_all_the_same() {
    let os = || Settings {
        policy: Policy::Os,
        verify: crate::Verify::Tail,
        ..small()
    };
    let disk = SimDisk::new(4);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), os()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    settle_at(&mut writer, 0);
    for n in 0..60 {
        let first = 1 + n * 50;
        append(&log, stream, ProducerId::ANONYMOUS, first..=first + 49).expect("room");
        settle_at(&mut writer, 1);
    }
    drop((log, writer));
    // Killed at once: nothing says that any of it is durable, and all of it is read.
    let mut disk = disk.kill();
    let read = |disk: &SimDisk| {
        let (log, writer, found) = EmbeddedLog::open(disk.clone(), os()).expect("the log");
        (log, writer, found.batches, found.segments)
    };
    let (log, mut writer, all, segments) = read(&disk);
    assert!(
        all >= 60 && segments >= 4,
        "{all} batches in {segments} segments"
    );
    // Batches of earlier openings are proven meanwhile, and new ones are synced.
    let stream = log.stream("s").expect("a stream");
    append(&log, stream, ProducerId::ANONYMOUS, 3001..=3050).expect("room");
    for seconds in [1, 61, 62, 121, 122] {
        settle_at(&mut writer, seconds);
    }
    drop((log, writer));
    disk = disk.kill();
    let (log, _, some, _) = read(&disk);
    assert!(some * 3 < all, "{some} batches of {all} were read");
    assert_eq!(ids(&log, "s", 0, 1000).len(), 3050);
    // The log is as durable as it says.
    let (log, ..) = read(&disk.crash_with(Survival::Nothing));
    let kept = ids(&log, "s", 0, 1000);
    assert!(kept.iter().copied().eq(1..=kept.len() as u64));
    assert!(kept.len() >= 2000, "{} are left", kept.len());
}

#[test]
fn opening_tells_how_far_it_is() {
    let disk = segments();
    let used: u64 = info(&disk)
        .expect("reading")
        .segments
        .iter()
        .map(|s| s.bytes - 64)
        .sum();
    let mut said = Vec::new();
    let opened = crate::recovery::open(disk, small(), &mut |opening| said.push(opening));
    let (_, recovery) = opened.expect("the log");
    let all = recovery.segments;
    assert!(said.iter().all(|opening| opening.segments == all));
    assert!(said.is_sorted_by_key(|opening| (opening.done, opening.bytes)));
    let last = said.last().expect("some");
    assert_eq!((last.done, last.bytes), (all - 1, used));
    assert!(said.len() as u64 > recovery.batches);
}
