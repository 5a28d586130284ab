//! What becomes of names after a repair where it is unknown what the lost part held.

use std::ops::ControlFlow;
use std::time::Duration;

use super::recovery::{names, overwrite};
use super::{append, ids, settle, settle_at, small};
use crate::claims;
use crate::disk::sim::{Faults, SimDisk};
use crate::disk::{Disk, DiskFile};
use crate::format::SEGMENT_HEADER;
use crate::tools::{Gap, Item, check, dump_file, loss, repair};
use crate::{
    Change, ChangeRefused, Credit, EmbeddedLog, Log, NAMELESS, Now, ProducerId, ReadError, Refused,
    Settings, StreamSettings, Writer,
};

/// Segments that are long beside their groups: all that follows is in one.
fn long() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        ..small()
    }
}

struct Open {
    disk: SimDisk,
    log: EmbeddedLog<SimDisk>,
    writer: Writer<SimDisk>,
}

/// Where a batch is.
struct Place {
    file: String,
    offset: u64,
    length: u32,
}

impl Place {
    fn zero(&self, disk: &SimDisk) {
        let zeros = vec![0; self.length as usize];
        overwrite(disk, &self.file, self.offset as usize, &zeros);
        let file = disk.open(&self.file).expect("a segment");
        file.sync_data().expect("syncing");
    }
}

impl Open {
    fn new(disk: &SimDisk) -> Open {
        let (log, writer, _) = EmbeddedLog::open(disk.clone(), long()).expect("the log");
        let disk = disk.clone();
        Open { disk, log, writer }
    }

    /// A log whose streams are administered, with the stream `s` in it: five records of the producer `p`.
    fn administered() -> Open {
        let mut open = Open::new(&SimDisk::new(1));
        open.change(Change::Create {
            stream: "s",
            settings: StreamSettings {
                limit_bytes: Some(1 << 20),
                ..StreamSettings::default()
            },
        });
        settle(&mut open.writer);
        open.append("s", "p", 1..=5);
        settle(&mut open.writer);
        open
    }

    fn change(&mut self, change: Change<'_>) {
        for _ in 0..5 {
            match self.log.administer(change) {
                Err(ChangeRefused::Log(Refused::Busy)) => settle(&mut self.writer),
                done => return assert!(done.is_ok(), "{done:?}"),
            }
        }
        panic!("there is never room");
    }

    fn append(&self, stream: &str, producer: &str, ids: std::ops::RangeInclusive<u64>) {
        let stream = self.log.stream(stream).expect("a stream");
        let producer = self.log.producer(stream, producer).expect("a producer");
        append(&self.log, stream, producer, ids).expect("room");
    }

    /// Commits what has gathered: the batch that it has become.
    fn batch(&mut self) -> Place {
        settle(&mut self.writer);
        let file = names(&self.disk).pop().expect("a segment");
        let mut last = None;
        dump_file(&self.disk, &file, |item| {
            if let Item::Batch { offset, length, .. } = item {
                last = Some((offset, length));
            }
            ControlFlow::Continue(())
        })
        .expect("reading");
        let (offset, length) = last.expect("a batch");
        Place {
            file,
            offset,
            length,
        }
    }

    fn kill(self) -> SimDisk {
        drop((self.log, self.writer));
        self.disk.kill()
    }

    fn close(self) -> SimDisk {
        self.writer.close(Now::default());
        drop(self.log);
        self.disk.kill()
    }

    fn range(&self, stream: &str) -> (u64, u64) {
        let range = self.log.range(stream).expect("a stream");
        (range.first, range.next)
    }

    /// Where a stream begins that is made now.
    fn beginning(&mut self, stream: &str) -> u64 {
        assert_eq!(self.log.range(stream), None);
        for _ in 0..5 {
            match self.log.stream(stream) {
                Err(Refused::Busy) => settle(&mut self.writer),
                made => {
                    made.expect("room");
                    settle(&mut self.writer);
                    return self.range(stream).0;
                }
            }
        }
        panic!("there is never room");
    }
}

/// Repairs it: the only gap, and the log as it is then.
fn repaired(disk: &SimDisk) -> (Gap, Open) {
    assert!(EmbeddedLog::open(disk.fork(), long()).is_err());
    let mut would_lose = loss(disk).expect("reading").expect("damage");
    repair(disk, &would_lose).expect("repairing");
    assert_eq!(loss(disk).expect("reading"), None);
    assert_eq!(check(disk).expect("reading").problems, []);
    assert_eq!(would_lose.gaps.len(), 1);
    (would_lose.gaps.remove(0), Open::new(disk))
}

/// The defect of journal 0038: the old stream went on at its own last position.
#[test]
fn an_old_stream_goes_on_behind_the_one_that_may_have_followed_it() {
    for is_closed in [false, true] {
        let mut open = Open::administered();
        open.log.set_cursor("s", "c", 4).expect("room");
        settle(&mut open.writer);
        open.change(Change::Delete { stream: "s" });
        open.append("s", "p", 1..=3);
        let lost = open.batch();
        open.append("s", "p", 4..=6);
        open.batch();
        assert_eq!(open.range("s"), (5, 11));
        let disk = if is_closed { open.close() } else { open.kill() };
        lost.zero(&disk);
        let (gap, mut open) = repaired(&disk);
        assert_eq!(gap.unsure, ["s"]);
        let nameless = format!("{NAMELESS}1");
        assert_eq!(gap.positions[0], (nameless.clone(), 0, 8));
        let (first, next) = open.range("s");
        assert!(first == 0 && next >= 11, "{next}");
        if is_closed {
            // The file of claims tells where the new one ended; others may have come and gone before it.
            assert_eq!(open.range(&nameless).1, 11);
        }
        // The remaining records are there, and readers are told of the gap.
        let read = open
            .log
            .read("s", 0, Credit(1000))
            .expect("the old records");
        assert_eq!((read.next, &*read.runs[0].producer), (5, "p"));
        for asked in [5, 7] {
            let missing = Err(ReadError::Missing { asked, next });
            assert_eq!(open.log.read("s", asked, Credit(1000)), missing);
        }
        assert_eq!(
            ids(&open.log, &nameless, 8, 1).get(..3),
            Some(&[4, 5, 6][..])
        );
        // The producer's mark is unknown, after the next opening, too.
        for _ in 0..2 {
            let stream = open.log.stream("s").expect("known");
            let producer = open.log.producer(stream, "p").expect("known");
            let mark = open.log.mark(producer);
            assert!(mark.forgotten && mark.appended.is_none(), "{mark:?}");
            open = Open::new(&open.kill());
        }
        open.append("s", "p", 7..=7);
        settle(&mut open.writer);
        assert_eq!(ids(&open.log, "s", next, 1000), [7]);
        // Any stream may have had this name; also when it is gone.
        assert!(open.beginning("x") >= 11);
        open.change(Change::Delete { stream: &nameless });
        settle(&mut open.writer);
        let mut open = Open::new(&open.kill());
        assert!(open.beginning("y") >= 11);
    }
}

/// What is in doubt is said by the last gap: if that gap were written last, and never is, the doubt
/// would be lost.
#[test]
fn a_repair_that_loses_power_leaves_no_doubt_out() {
    let mut open = Open::administered();
    open.change(Change::Delete { stream: "s" });
    open.append("s", "p", 1..=3);
    let lost = open.batch();
    open.append("s", "p", 4..=6);
    open.batch();
    // Nothing behind this is about it but the checkpoint that the next segment begins with, and that is lost, too.
    let checkpoint = (0..1000).find_map(|group| {
        open.append("other", "p", group * 40 + 1..=group * 40 + 40);
        Some(open.batch()).filter(|batch| batch.file != lost.file)
    });
    let checkpoint = checkpoint.expect("a second segment");
    open.append("other", "q", 1..=3);
    open.batch();
    let whole = open.kill();
    lost.zero(&whole);
    checkpoint.zero(&whole);
    whole.remove("claims").expect("it is there");
    whole.sync_directory().expect("syncing");
    let would_lose = loss(&whole).expect("reading").expect("damage");
    assert_eq!(would_lose.gaps.len(), 2);
    for power in 1.. {
        let disk = whole.fork();
        disk.set_faults(Faults {
            power: Some(power),
            ..Faults::default()
        });
        let done = repair(&disk, &would_lose).is_ok();
        let disk = disk.crash();
        if let Some(again) = loss(&disk).expect("reading") {
            repair(&disk, &again).expect("repairing");
        }
        let open = Open::new(&disk);
        assert!(open.range("s").1 >= 11, "power {power}");
        let stream = open.log.stream("s").expect("known");
        let producer = open.log.producer(stream, "p").expect("known");
        let mark = open.log.mark(producer);
        assert!(
            mark.forgotten && mark.appended.is_none(),
            "power {power}: {mark:?}"
        );
        if done {
            assert!(power > 10, "it was broken off");
            return;
        }
    }
}

/// What followed it may be deleted again.
#[test]
fn an_old_stream_goes_on_behind_one_that_came_and_went() {
    let mut open = Open::administered();
    open.change(Change::Delete { stream: "s" });
    open.append("s", "p", 1..=3);
    let lost = open.batch();
    open.append("s", "p", 4..=6);
    open.change(Change::Delete { stream: "s" });
    open.batch();
    open.append("t", "p", 1..=1);
    open.batch();
    let disk = open.kill();
    // In the run that tells of the deletion: only records prove themselves.
    assert!(disk.flip(&lost.file, lost.offset + 80 + 8, 0));
    let (gap, open) = repaired(&disk);
    assert_eq!(gap.unsure, ["s"]);
    assert!(open.range("s").1 >= 11);
}

#[test]
fn a_stream_that_is_known_to_be_there_is_not_doubted() {
    let mut open = Open::administered();
    open.append("new", "p", 1..=3);
    let lost = open.batch();
    open.append("new", "p", 4..=6);
    open.log.set_cursor("s", "c", 4).expect("room");
    open.batch();
    let disk = open.kill();
    lost.zero(&disk);
    let (gap, open) = repaired(&disk);
    assert!(gap.unsure.is_empty() && gap.deleted.is_empty(), "{gap:?}");
    let stream = open.log.stream("s").expect("known");
    let producer = open.log.producer(stream, "p").expect("known");
    assert_eq!(open.log.mark(producer).appended, Some(5));
}

/// A stream whose first position is known not to be behind another one has not followed that.
#[test]
fn a_stream_that_began_before_another_one_ended_has_not_followed_it() {
    let mut open = Open::administered();
    open.change(Change::Create {
        stream: "new",
        settings: StreamSettings::default(),
    });
    let lost = open.batch();
    open.append("new", "p", 1..=3);
    open.batch();
    let disk = open.kill();
    lost.zero(&disk);
    let (gap, open) = repaired(&disk);
    assert_eq!(gap.unsure, Vec::<String>::new());
    let (_, next) = open.range("s");
    assert!(next > 5, "there may have been more of it");
}

#[test]
fn what_is_proven_to_be_deleted_is_told() {
    let mut open = Open::administered();
    open.change(Change::Delete { stream: "s" });
    open.append("s", "q", 1..=3);
    let lost = open.batch();
    open.append("s", "q", 4..=6);
    open.batch();
    let disk = open.kill();
    // In the frames: all heads are proven.
    assert!(disk.flip(&lost.file, lost.offset + u64::from(lost.length) - 12, 3));
    let (gap, mut open) = repaired(&disk);
    // The deletion stays in the log.
    assert_eq!((&gap.deleted[..], gap.kept), (&[][..], 0));
    assert!(gap.unsure.is_empty() && gap.skipped.is_empty(), "{gap:?}");
    assert_eq!(gap.positions, [("s".to_owned(), 5, 8)]);
    assert_eq!(open.range("s").1, 11);
    assert_eq!(open.beginning("x"), 0);
}

/// Seed 3 of journal 0038: the change was taken for senseless, and its batch was given up, too.
#[test]
fn a_later_change_names_a_stream_whose_making_is_lost() {
    let mut open = Open::administered();
    open.append("new", "p", 1..=3);
    let lost = open.batch();
    open.append("new", "p", 4..=6);
    open.batch();
    open.change(Change::Set {
        stream: "new",
        settings: StreamSettings {
            limit_bytes: Some(1 << 20),
            ..StreamSettings::default()
        },
    });
    open.batch();
    let disk = open.kill();
    lost.zero(&disk);
    let (gap, mut open) = repaired(&disk);
    assert_eq!(gap.batches.0, gap.batches.1);
    assert_eq!(gap.positions[0], ("new".to_owned(), 0, 3));
    assert_eq!(open.range("new"), (0, 6));
    // Other streams may have been made there, too.
    assert!(open.beginning("x") > 0);
}

/// A change of a stream looks like its making, where that is lost; what was made with it has a higher number.
#[test]
fn what_was_made_with_others_was_made_where_they_were() {
    let set = |limit| StreamSettings {
        limit_bytes: Some(limit),
        ..StreamSettings::default()
    };
    for is_one_batch in [false, true] {
        let mut open = Open::administered();
        open.append("a", "p", 1..=3);
        open.append("b", "p", 1..=3);
        let lost = open.batch();
        let (stream, settings) = ("a", set(1 << 20));
        open.change(Change::Set { stream, settings });
        open.append("a", "q", 1..=2);
        if !is_one_batch {
            open.batch();
        }
        open.append("b", "p", 4..=6);
        open.append("c", "p", 1..=1);
        open.batch();
        let (stream, settings) = ("b", set(2 << 20));
        open.change(Change::Set { stream, settings });
        open.batch();
        let disk = open.kill();
        lost.zero(&disk);
        let (gap, open) = repaired(&disk);
        assert_eq!(gap.batches.0, gap.batches.1, "{gap:?}");
        assert_eq!(open.range("a"), (0, 5));
        assert_eq!(open.range("b"), (0, 6));
        assert_eq!(open.range("c"), (0, 1));
        let status = open.log.stream_status("a").expect("known");
        assert_eq!(status.settings, set(1 << 20));
    }
}

/// What is said about a stream before what looks like its making shows that it is none.
#[test]
fn a_change_behind_records_makes_no_stream() {
    let mut open = Open::administered();
    open.append("a", "p", 1..=3);
    let lost = open.batch();
    open.append("a", "q", 4..=5);
    let (stream, settings) = ("a", StreamSettings::default());
    open.change(Change::Set { stream, settings });
    open.append("a", "q", 6..=6);
    open.batch();
    let disk = open.kill();
    lost.zero(&disk);
    let (gap, open) = repaired(&disk);
    assert_eq!(gap.batches.0, gap.batches.1, "{gap:?}");
    assert_eq!(open.range("a"), (0, 6));
}

/// Seed 80,374: a stream with a higher number is made first, so the change was taken for senseless, and its batch was given up, too.
#[test]
fn a_change_behind_the_making_of_another_makes_no_stream() {
    for is_told_by_a_change in [false, true] {
        let mut open = Open::administered();
        open.append("a", "p", 1..=3);
        let lost = open.batch();
        let settings = StreamSettings::default();
        match is_told_by_a_change {
            false => open.append("b", "p", 1..=2),
            true => open.change(Change::Create {
                stream: "b",
                settings,
            }),
        }
        let stream = "a";
        open.change(Change::Set { stream, settings });
        open.batch();
        open.append("a", "p", 4..=5);
        open.batch();
        let disk = open.kill();
        lost.zero(&disk);
        let (gap, open) = repaired(&disk);
        assert_eq!(gap.batches.0, gap.batches.1, "{gap:?}");
        assert_eq!(gap.positions[0], ("a".to_owned(), 0, 3));
        assert_eq!(open.range("a"), (0, 5));
    }
}

/// Seed 61,776 of journal 0038, and the same in a batch of its own: a producer that appends to a
/// stream that only seems to be made, and was not made with it, was there before.
#[test]
fn a_producer_of_before_shows_that_a_stream_was_there() {
    for is_one_batch in [true, false] {
        let mut open = Open::administered();
        open.append("a", "q", 1..=3);
        let lost = open.batch();
        let (stream, settings) = ("a", StreamSettings::default());
        open.change(Change::Set { stream, settings });
        if !is_one_batch {
            open.batch();
        }
        open.append("a", "q", 4..=5);
        open.batch();
        let disk = open.kill();
        lost.zero(&disk);
        let (gap, open) = repaired(&disk);
        assert_eq!(gap.batches.0, gap.batches.1, "{gap:?}");
        assert_eq!(gap.positions[0], ("a".to_owned(), 0, 3));
        assert_eq!(open.range("a"), (0, 5));
    }
}

/// Seed 86,790: the file of claims, said before a segment's first batch was committed, had an end of the stream that the batch
/// deletes; repair took that one to be there still, and it went on at positions of the one that followed.
#[test]
fn an_end_is_claimed_of_no_stream_that_is_deleted() {
    let mut open = Open::administered();
    // This record keeps the first segment; the removal of one would be written anew.
    open.append("kept", "p", 1..=1);
    let first = open.batch().file;
    // Each batch deletes the stream and makes the next one of its name, also the first batch of the next segment.
    let mut given = 5;
    let lost = loop {
        open.change(Change::Delete { stream: "s" });
        open.append("s", "p", 1..=3);
        given += 3;
        let batch = open.batch();
        if batch.file != first {
            break batch;
        }
        assert!(given < 10_000);
    };
    assert_eq!(lost.offset, SEGMENT_HEADER as u64);
    assert_eq!(open.range("s"), (given - 3, given));
    let disk = open.kill();
    let claimed = claims::read(&disk).expect("reading");
    let ends = claimed.ends.iter().map(|end| end.next);
    assert_eq!(
        (ends.collect::<Vec<_>>(), claimed.is_exact),
        (vec![1, given], true)
    );
    // In the checkpoint: what is left of the batch are its records.
    disk.flip(&lost.file, lost.offset + u64::from(lost.length) - 20, 1);
    let (_, mut open) = repaired(&disk);
    let next = match open.log.range("s") {
        Some(range) => range.next,
        None => open.beginning("s"),
    };
    assert!(next >= given, "{next}");
}

/// Up to version 0.2.0 ends stayed as they were said while more was claimed, and nothing says so.
#[test]
fn ends_that_may_be_of_before_tell_of_the_least_alone() {
    let mut open = Open::new(&SimDisk::new(1));
    open.append("s", "p", 1..=5);
    open.append("t", "p", 1..=5);
    open.batch();
    open.append("s", "p", 6..=7);
    let lost = open.batch();
    open.append("t", "p", 6..=6);
    open.batch();
    settle_at(&mut open.writer, 5);
    let whole = open.kill();
    // The ends of both streams are as of the end, or earlier, without saying of when they are.
    for (is_exact, end) in [(true, 7), (false, 7), (false, 5)] {
        let disk = whole.fork();
        lost.zero(&disk);
        say_end(&disk, 0, is_exact, end);
        let (_, open) = repaired(&disk);
        let (_, next) = open.range("s");
        match is_exact {
            true => assert_eq!(next, 7),
            false => assert!(next > 1 << 32, "{next}"),
        }
    }
}

/// Changes what `claims` says of a stream's end.
fn say_end(disk: &SimDisk, stream: u32, is_exact: bool, next: u64) {
    let claims = disk.contents("claims").expect("a file");
    let sequence =
        |slot: usize| u64::from_le_bytes(claims[slot + 16..][..8].try_into().expect("8"));
    let slot = if sequence(0) > sequence(4096) {
        0
    } else {
        4096
    };
    let mut bytes = claims[slot..][..4096].to_vec();
    let count = u32::from_le_bytes(bytes[64..68].try_into().expect("4")) & !(1 << 31);
    assert!(count > 0, "no ends are said");
    let exact = if is_exact { 1 << 31 } else { 0 };
    bytes[64..68].copy_from_slice(&(count | exact).to_le_bytes());
    let length = 72 + 12 * count as usize;
    for at in (72..length).step_by(12) {
        if bytes[at..at + 4] == stream.to_le_bytes() {
            bytes[at + 4..at + 12].copy_from_slice(&next.to_le_bytes());
        }
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..68]), &bytes[72..length]);
    bytes[68..72].copy_from_slice(&crc.to_le_bytes());
    overwrite(disk, "claims", slot, &bytes);
}

/// The first batch of a segment tells everything that was known after it.
#[test]
fn a_checkpoint_that_is_proven_is_kept_though_its_batch_is_lost() {
    let open = Open::administered();
    open.log.set_cursor("s", "c", 2).expect("room");
    let disk = open.close();
    let last = names(&disk).pop().expect("a segment");
    // In the header of its first batch.
    assert!(disk.flip(&last, 64 + 42, 3));
    let (gap, open) = repaired(&disk);
    assert!(gap.skipped.is_empty() && gap.unsure.is_empty(), "{gap:?}");
    let status = open.log.stream_status("s").expect("known");
    assert_eq!(status.settings.limit_bytes, Some(1 << 20));
    assert_eq!(
        (open.range("s"), open.log.cursor("s", "c")),
        ((0, 5), Some(2))
    );
}

/// Where nothing tells how far a stream went, its positions may have been given.
#[test]
fn a_stream_of_which_nothing_follows_goes_on_behind_what_it_may_have_had() {
    let mut open = Open::new(&SimDisk::new(1));
    open.append("s", "p", 1..=5);
    open.append("t", "p", 1..=5);
    open.batch();
    open.append("t", "p", 6..=9);
    open.append("s", "p", 6..=7);
    let lost = open.batch();
    open.append("s", "p", 8..=9);
    open.batch();
    let whole = open.kill();
    // All of it; the checksum of its body, so that nothing proves that these are all runs; frames, which are told to be.
    for flip in [None, Some(61), Some(80 + 60)] {
        let disk = whole.fork();
        match flip {
            None => lost.zero(&disk),
            Some(at) => assert!(disk.flip(&lost.file, lost.offset + at, 3)),
        }
        let (gap, mut open) = repaired(&disk);
        assert_eq!(open.range("s").1, 9);
        let (_, next) = open.range("t");
        assert!(next >= 9, "{flip:?}: {next}");
        if flip == Some(80 + 60) {
            assert_eq!((next, gap.skipped), (9, vec![]));
            continue;
        }
        let known = if flip.is_some() { 9 } else { 5 };
        assert_eq!(gap.skipped[0], ("t".to_owned(), known, next));
        // Other streams may have been made, too.
        assert!(open.beginning("x") > 0);
    }
}

/// Under its first number it was forgotten, which only memory knew: after a restart the log has both.
#[test]
fn a_producer_that_was_forgotten_and_came_again_is_one() {
    let settings = || Settings {
        producer_idle: Duration::from_secs(10),
        ..long()
    };
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk| {
        let (log, writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
        (log, writer)
    };
    let (log, mut writer) = open(&disk);
    let stream = log.stream("s").expect("room");
    let first = log.producer(stream, "p").expect("room");
    append(&log, stream, first, 1..=3).expect("room");
    settle(&mut writer);
    settle_at(&mut writer, 100);
    let again = log.producer(stream, "p").expect("room");
    assert!(again != first && log.mark(again).forgotten);
    append(&log, stream, again, 1..=2).expect("room");
    settle_at(&mut writer, 100);
    drop((log, writer));
    let (log, mut writer) = open(&disk.kill());
    let stream = log.stream("s").expect("known");
    // The first number goes, and not the name.
    settle_at(&mut writer, 5);
    let known = log.producer(stream, "p").expect("known");
    assert_eq!((known, log.mark(known).appended), (again, Some(2)));
    drop((log, writer));
    // The doubt does not stay when its stream goes.
    let (log, mut writer) = open(&disk.kill());
    for _ in 0..3 {
        let done = log.administer(Change::Delete { stream: "s" });
        settle(&mut writer);
        if done.is_ok() {
            break;
        }
    }
    settle_at(&mut writer, 100);
    let stream = log.stream("t").expect("room");
    append(&log, stream, ProducerId::ANONYMOUS, 1..=3).expect("room");
    settle_at(&mut writer, 100);
    assert_eq!((log.range("s"), log.progress().failure), (None, None));
}

/// Seed 46 of journal 0038: what was said before the last removal names a segment that is rightly gone.
#[test]
fn one_flipped_bit_of_the_file_of_claims_refuses_nothing() {
    let limits = || Settings {
        retention_bytes: Some(80 << 10),
        ..small()
    };
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), limits()).expect("the log");
    let stream = log.stream("s").expect("room");
    for group in 0..400 {
        let first = group * 40;
        append(&log, stream, ProducerId::ANONYMOUS, first + 1..=first + 40).expect("room");
        settle(&mut writer);
        let range = log.range("s").expect("a stream");
        if range.first > 0 && names(&disk).len() > 2 {
            for slot in [0, 4096] {
                for at in [9, 20, 28, 44, 60] {
                    let disk = disk.fork().kill();
                    assert!(disk.flip("claims", slot + at, 2));
                    assert_eq!(check(&disk).expect("reading").problems, []);
                    assert_eq!(loss(&disk).expect("reading"), None);
                    let (log, ..) = EmbeddedLog::open(disk, limits()).expect("nothing is lost");
                    assert_eq!(log.range("s"), Some(range));
                }
            }
        }
        if group > 10 && range.first > 3000 {
            return;
        }
    }
    panic!("nothing was removed");
}
