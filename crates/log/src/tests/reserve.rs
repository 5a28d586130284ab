//! On a full disk what makes room is taken, from what is held for that and from nothing else, and nothing taken is lost.

use fastrand::Rng;

use super::{append, frames, ids, settle_at, small};
use crate::disk::Disk;
use crate::disk::sim::{SimDisk, Survival};
use crate::{
    EmbeddedLog, Log, Now, ProducerId, RUN_BYTES, Refused, Room, Run, Settings, StreamId, Writer,
};
use std::time::Duration;

fn settings() -> Settings {
    Settings {
        holds_reserve: true,
        ..small()
    }
}

/// Appends one record of what makes room.
fn make_room(log: &EmbeddedLog<SimDisk>, stream: StreamId, id: u64) -> Result<(), Refused> {
    let frames = frames([id]);
    let bytes = RUN_BYTES + frames.len();
    log.reserve_to_make_room(bytes)?;
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: 1,
        last_id: id,
        timestamp_us: 0,
    };
    log.append_reserved(run, bytes).expect("it was promised");
    Ok(())
}

/// Fills the segment in use on a disk that has no room; the last id that was taken.
fn fill(log: &EmbeddedLog<SimDisk>, writer: &mut Writer<SimDisk>, stream: StreamId) -> u64 {
    fill_from(log, writer, stream, 1)
}

/// As `fill`, from an id on.
fn fill_from(
    log: &EmbeddedLog<SimDisk>,
    writer: &mut Writer<SimDisk>,
    stream: StreamId,
    first: u64,
) -> u64 {
    for id in first..100_000 {
        match append(log, stream, ProducerId::ANONYMOUS, id..=id) {
            Ok(_) => settle_at(writer, 1),
            Err(Refused::DiskFull { .. }) => return id - 1,
            Err(refused) => panic!("{refused:?}"),
        }
    }
    panic!("the disk takes everything");
}

#[test]
fn what_makes_room_is_taken_on_a_full_disk_and_nothing_else_is() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    settle_at(&mut writer, 1);
    disk.set_capacity(disk.used());
    let mut last = fill(&log, &mut writer, stream);
    assert_eq!(log.room(), Room::Short);
    let mut made = 0;
    let refused = loop {
        match make_room(&log, stream, last + 1) {
            Ok(()) => (last, made) = (last + 1, made + 1),
            Err(refused) => break refused,
        }
        settle_at(&mut writer, 1);
        let other = append(&log, stream, ProducerId::ANONYMOUS, last + 1..=last + 1);
        assert!(matches!(other, Err(Refused::DiskFull { .. })), "{other:?}");
    };
    assert!(matches!(refused, Refused::DiskFull { .. }), "{refused:?}");
    assert!(made > 80, "{made} groups in a segment of 16 KiB");
    assert_eq!(log.reserve_bytes(), 0);
    // With room again the reserve is held first, and everything is taken.
    disk.set_capacity(u64::MAX);
    settle_at(&mut writer, 3);
    assert_eq!(log.room(), Room::Enough);
    assert!(log.reserve_bytes() > 0);
    append(&log, stream, ProducerId::ANONYMOUS, last + 1..=last + 1).expect("room");
    settle_at(&mut writer, 3);
    assert_eq!(
        ids(&log, "s", 0, 1000),
        (1..=last + 1).collect::<Vec<u64>>()
    );
}

/// A log opened again on a full disk must be able to make room as well.
#[test]
fn what_is_held_is_found_by_the_next_opening() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    settle_at(&mut writer, 1);
    disk.set_capacity(disk.used());
    let mut last = fill(&log, &mut writer, stream);
    drop((log, writer));
    for is_killed in [true, false] {
        let disk = if is_killed {
            disk.kill()
        } else {
            disk.crash_with(Survival::Nothing)
        };
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        settle_at(&mut writer, 1);
        disk.set_capacity(disk.used());
        let other = append(&log, stream, ProducerId::ANONYMOUS, last + 1..=last + 1);
        assert!(matches!(other, Err(Refused::DiskFull { .. })), "{other:?}");
        make_room(&log, stream, last + 1).expect("what is held");
        settle_at(&mut writer, 1);
        if is_killed {
            continue;
        }
        last += 1;
        assert_eq!(ids(&log, "s", 0, 1000), (1..=last).collect::<Vec<u64>>());
    }
}

/// A caller makes room with it: a snapshot, say, behind which the log is cut.
#[test]
fn what_is_held_can_be_lent() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    log.stream("s").expect("a stream");
    settle_at(&mut writer, 1);
    disk.set_capacity(disk.used());
    let held = log.reserve_bytes();
    log.lend_reserve();
    assert_eq!(disk.free(), Some(held));
    settle_at(&mut writer, 3);
    assert_eq!((log.reserve_bytes(), disk.free()), (0, Some(held)));
    log.hold_reserve();
    settle_at(&mut writer, 3);
    assert_eq!((log.reserve_bytes(), disk.free()), (held, Some(0)));
}

/// On a full disk the reserve is already the next segment, and is lent as well, but for what was
/// promised of it.
#[test]
fn what_is_held_can_be_lent_when_it_is_the_spare() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    settle_at(&mut writer, 1);
    disk.set_capacity(disk.used());
    let last = fill(&log, &mut writer, stream);
    assert!(!disk.names().iter().any(|name| name == "reserve"));
    let held = log.reserve_bytes();
    assert!(held > 0);
    log.reserve_to_make_room(100).expect("room");
    log.lend_reserve();
    settle_at(&mut writer, 1);
    assert_eq!(
        (log.reserve_bytes(), disk.free()),
        (held, Some(0)),
        "it was promised"
    );
    log.give_back(100);
    log.look_for_room();
    settle_at(&mut writer, 1);
    assert_eq!((log.reserve_bytes(), disk.free()), (0, Some(held)));
    assert_eq!(log.room(), Room::Short);
    assert!(make_room(&log, stream, last + 1).is_err());
    log.hold_reserve();
    settle_at(&mut writer, 3);
    make_room(&log, stream, last + 1).expect("what is held again");
    settle_at(&mut writer, 3);
    assert_eq!(
        ids(&log, "s", 0, 1000),
        (1..=last + 1).collect::<Vec<u64>>()
    );
}

/// An orderly end leaves nothing of it where there is room.
#[test]
fn nothing_is_left_of_it_where_there_is_room() {
    for is_full in [false, true] {
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        settle_at(&mut writer, 1);
        assert!(disk.names().iter().any(|name| name == "reserve"));
        if is_full {
            disk.set_capacity(disk.used());
            fill(&log, &mut writer, stream);
        }
        writer.close(Now::default());
        let is_there = disk.names().iter().any(|name| name == "reserve");
        assert_eq!(is_there, is_full, "{:?}", disk.names());
    }
}

/// The room that a caller wants for files of its own is left, though the disk has it.
#[test]
fn so_many_bytes_are_left_free() {
    const LEFT: u64 = 100 << 10;
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    disk.set_capacity(400 << 10);
    log.leave_free(|| LEFT);
    let last = fill(&log, &mut writer, stream);
    let free = disk.free().expect("a disk that says it");
    assert!((LEFT..LEFT + (64 << 10)).contains(&free), "{free} bytes");
    // What makes room has its own, and that is not left free once more.
    make_room(&log, stream, last + 1).expect("what is held");
}

/// A caller has borrowed the reserve, and needs more room than before: the reserve is held again all the same, for removals are what
/// makes less of it.
#[test]
fn what_was_lent_is_held_again_whatever_is_left_free() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    disk.set_capacity(400 << 10);
    let left = Arc::new(AtomicU64::new(100 << 10));
    let theirs = left.clone();
    log.leave_free(move || theirs.load(Relaxed));
    let mut last = fill(&log, &mut writer, stream);
    let held = log.reserve_bytes();
    assert!(held > 0);
    for seconds in [10, 20] {
        log.lend_reserve();
        settle_at(&mut writer, seconds);
        assert!(log.is_reserve_owed());
        assert_eq!(log.reserve_bytes(), 0);
        // More than there is.
        left.store(1 << 30, Relaxed);
        log.hold_reserve();
        settle_at(&mut writer, seconds + 5);
        assert!(!log.is_reserve_owed());
        assert_eq!(log.reserve_bytes(), held);
    }
    last += 1;
    make_room(&log, stream, last).expect("what is held");
}

/// Whatever becomes of the disk, nothing that was promised is refused and nothing that was taken is lost.
#[test]
fn what_was_taken_from_the_reserve_is_there_whatever_happens() {
    let (mut made, mut refused) = (0, 0);
    for seed in 0..150 {
        let mut rng = Rng::with_seed(seed);
        let mut disk = SimDisk::new(seed);
        let mut taken = 0;
        for _ in 0..4 {
            let (log, mut writer, _) =
                EmbeddedLog::open(disk.clone(), settings()).expect("the log");
            let stream = log.stream("s").expect("a stream");
            settle_at(&mut writer, 1);
            let mut seconds = 1;
            for _ in 0..rng.usize(10..200) {
                match rng.u8(..10) {
                    0 => disk.set_capacity(disk.used() + rng.u64(..40 << 10)),
                    1 if rng.u8(..4) == 0 => disk.set_capacity(u64::MAX),
                    2..5 => match make_room(&log, stream, taken + 1) {
                        Ok(()) => (taken, made) = (taken + 1, made + 1),
                        Err(_) => refused += 1,
                    },
                    5..9 => {
                        let last = taken + rng.u64(1..40);
                        let ids = taken + 1..=last;
                        if append(&log, stream, ProducerId::ANONYMOUS, ids).is_ok() {
                            taken = last;
                        }
                    }
                    _ => {
                        seconds += rng.u64(..2);
                        writer.step(Now {
                            monotonic: Duration::from_secs(seconds),
                            unix_us: 1_000_000 * seconds,
                        });
                    }
                }
                assert_eq!(log.progress().failure, None, "seed {seed}");
            }
            settle_at(&mut writer, seconds);
            let all: Vec<u64> = (1..=taken).collect();
            assert_eq!(ids(&log, "s", 0, 1000), all, "seed {seed}");
            disk = if rng.bool() {
                disk.kill()
            } else {
                disk.crash_with(Survival::Nothing)
            };
            if rng.bool() {
                disk.set_capacity(u64::MAX);
            }
        }
    }
    assert!(
        made > 5_000 && refused > 500,
        "{made} made, {refused} refused"
    );
}

/// What a caller has made while the writer looked is not passed over: until it has looked again, nothing is said.
#[test]
fn room_that_was_made_while_the_writer_looked_is_looked_for_again() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::{Arc, Mutex, Weak};
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let log = Arc::new(log);
    disk.set_capacity(1 << 20);
    let stream = log.stream("s").expect("a stream");
    let is_made = Arc::new(AtomicBool::new(false));
    let asks: Arc<Mutex<Weak<EmbeddedLog<SimDisk>>>> = Arc::default();
    let (made, theirs) = (is_made.clone(), asks.clone());
    // The writer asks how much is to be left free while it looks: a caller asks it to look at that moment.
    log.leave_free(move || {
        if made.load(SeqCst) {
            return 0;
        }
        if let Some(log) = theirs.lock().expect("a lock").upgrade() {
            made.store(true, SeqCst);
            log.look_for_room();
        }
        u64::MAX / 4
    });
    fill(&log, &mut writer, stream);
    assert_eq!(log.room(), Room::Short);
    *asks.lock().expect("a lock") = Arc::downgrade(&log);
    assert!(make_room(&log, stream, 100_000).is_ok());
    let mut unknown = 0;
    for _ in 0..100 {
        writer.step(Now {
            monotonic: Duration::from_secs(1),
            unix_us: 1,
        });
        unknown += u32::from(log.room() == Room::Unknown);
        let is_short = log.room() == Room::Short;
        assert!(
            !(is_made.load(SeqCst) && is_short),
            "it was asked to look again"
        );
    }
    assert!(
        unknown > 0 && log.room() == Room::Enough,
        "{:?}",
        log.room()
    );
}

/// The writer looks for room at several places. Before it has removed what a caller has no use for, nothing is said of room:
/// a caller that was told that the disk is full would give up what the removal makes room for.
#[test]
fn room_is_looked_for_behind_what_is_to_be_removed() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    settle_at(&mut writer, 1);
    for id in 1..2_000 {
        append(&log, stream, ProducerId::ANONYMOUS, id..=id).expect("there is room");
        settle_at(&mut writer, 1);
    }
    disk.set_capacity(disk.used());
    let last = fill_from(&log, &mut writer, stream, 2_000);
    assert_eq!(log.room(), Room::Short);
    log.discard(stream, last);
    log.look_for_room();
    for second in 1..100 {
        writer.step(Now {
            monotonic: Duration::from_secs(1_000 + second),
            unix_us: 1,
        });
        assert!(
            matches!(log.room(), Room::Unknown | Room::Enough),
            "step {second}: {:?}",
            log.room()
        );
    }
    assert_eq!(log.room(), Room::Enough);
}

/// The writer moves what it has reserved each time it looks for room on a full disk. A removal at that moment waits: it is
/// not told that the disk is full.
#[test]
fn what_makes_room_is_not_refused_while_the_writer_looks() {
    use std::sync::{Arc, Mutex, Weak};
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let log = Arc::new(log);
    let stream = log.stream("s").expect("a stream");
    settle_at(&mut writer, 1);
    disk.set_capacity(disk.used());
    let asks: Arc<Mutex<Weak<EmbeddedLog<SimDisk>>>> = Arc::default();
    let answers: Arc<Mutex<Vec<Result<(), Refused>>>> = Arc::default();
    let (theirs, told) = (asks.clone(), answers.clone());
    // The writer asks how much is to be left free while it looks.
    log.leave_free(move || {
        if let Some(log) = theirs.lock().expect("a lock").upgrade() {
            let answer = log.reserve_to_make_room(100);
            if answer.is_ok() {
                log.give_back(100);
            }
            assert_ne!(log.room(), Room::Enough);
            told.lock().expect("a lock").push(answer);
        }
        0
    });
    fill(&log, &mut writer, stream);
    *asks.lock().expect("a lock") = Arc::downgrade(&log);
    for seconds in 2..20 {
        settle_at(&mut writer, seconds);
        log.reserve_to_make_room(100).expect("what is held");
        log.give_back(100);
    }
    let answers = answers.lock().expect("a lock");
    assert!(answers.contains(&Err(Refused::Busy)), "it never looked");
    for answer in &*answers {
        assert!(
            !matches!(answer, Err(Refused::DiskFull { .. })),
            "{answers:?}"
        );
    }
}

/// Readers keep files open: files of removed segments would take their room, and a descriptor each.
#[test]
fn the_file_of_a_removed_segment_is_closed() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk, settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut last = 0;
    while log.usage().segments < 5 {
        append(&log, stream, ProducerId::ANONYMOUS, last + 1..=last + 40).expect("room");
        last += 40;
        settle_at(&mut writer, 1);
    }
    assert_eq!(ids(&log, "s", 0, 1000).len() as u64, last);
    assert!(log.shared().readers.open().len() > 3);
    log.discard(stream, last - 1);
    settle_at(&mut writer, 2);
    let newest = log.shared().readers.open();
    assert!(newest.len() <= log.usage().segments, "{newest:?} are open");
    assert!(log.usage().segments < 3);
}
