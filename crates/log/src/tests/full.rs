//! A full disk: what makes room is taken, also where nothing was ever set about a stream, and makes it at once.

use super::{append, ids, settle};
use crate::disk::sim::SimDisk;
use crate::{
    Change, ChangeRefused, EmbeddedLog, Kind, Log, ProducerId, Refused, Settings, StreamSettings,
    Writer,
};

type Open = (EmbeddedLog<SimDisk>, Writer<SimDisk>);

fn settings() -> Settings {
    Settings {
        segment_bytes: 128 << 10,
        group_bytes: 16 << 10,
        group_first: 4 << 10,
        kind: Some(Kind::Messages),
        holds_reserve: true,
        ..super::small()
    }
}

fn open(disk: &SimDisk) -> Open {
    let (log, writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    (log, writer)
}

/// Appends to a stream until the disk is full, and once more.
fn fill((log, writer): &mut Open, stream: &str) -> u64 {
    let id = log.stream(stream).expect("room");
    let mut stored = 0;
    for _ in 0..10_000 {
        match append(log, id, ProducerId::ANONYMOUS, stored + 1..=stored + 50) {
            Ok(_) => stored += 50,
            Err(Refused::Busy) => settle(writer),
            Err(Refused::DiskFull { .. }) => {
                settle(writer);
                assert!(log.progress().is_full);
                return stored;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("it is never full");
}

/// Asks as a client does, while no time passes.
fn change((log, writer): &mut Open, change: Change<'_>) {
    for _ in 0..5 {
        let done = log.administer(change);
        settle(writer);
        match done {
            Err(ChangeRefused::Log(Refused::Busy)) => {}
            done => {
                done.expect("it is taken");
                return;
            }
        }
    }
    panic!("there is never room");
}

fn keep(bytes: u64) -> StreamSettings {
    StreamSettings {
        retain_bytes: Some(bytes),
        ..StreamSettings::default()
    }
}

/// The disk is full, and the log was opened anew then, or was not; something was set before, or never.
fn full(is_administered: bool, is_reopened: bool) -> (SimDisk, Open) {
    let disk = SimDisk::new(1);
    let mut opened = open(&disk);
    opened.0.stream("s").expect("room");
    settle(&mut opened.1);
    if is_administered {
        let settings = keep(u64::MAX / 2);
        let stream = "s";
        change(&mut opened, Change::Set { stream, settings });
    }
    disk.set_capacity(1 << 20);
    fill(&mut opened, "s");
    if !is_reopened {
        return (disk, opened);
    }
    drop(opened);
    let disk = disk.kill();
    disk.set_capacity(disk.used());
    let opened = open(&disk);
    (disk, opened)
}

#[test]
fn what_makes_room_is_taken_on_a_full_disk_and_makes_it_at_once() {
    for case in 0..8 {
        let (is_administered, is_reopened, is_deleted) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let (disk, mut opened) = full(is_administered, is_reopened);
        let (before, used) = (disk.names().len(), disk.used());
        let stream = "s";
        match is_deleted {
            true => change(&mut opened, Change::Delete { stream }),
            false => {
                let settings = keep(20 << 10);
                change(&mut opened, Change::Set { stream, settings });
            }
        }
        // No time has passed.
        assert!(disk.names().len() < before, "{case}: {:?}", disk.names());
        assert!(disk.used() < used, "{case}");
        assert!(!opened.0.progress().is_full, "{case}");
        let (log, writer) = &mut opened;
        let id = loop {
            match log.stream("other") {
                Ok(id) => break id,
                Err(Refused::Busy) => settle(writer),
                Err(other) => panic!("{case}: {other}"),
            }
        };
        append(log, id, ProducerId::ANONYMOUS, 1..=50).expect("room");
        settle(writer);
        assert_eq!(ids(log, "other", 0, 1000).len(), 50, "{case}");
        // The log has made its reserve file again, for the next time that the disk is full.
        assert!(disk.names().iter().any(|name| name == "reserve"), "{case}");
    }
}

/// Message after message: a change that needs a segment of its own does not take one that messages have filled.
#[test]
fn messages_do_not_go_to_what_is_kept_for_changes() {
    for round in 0..20 {
        let (disk, mut opened) = full(false, false);
        let (log, writer) = &mut opened;
        let id = log.stream("s").expect("known");
        let settings = keep(20 << 10);
        let stream = "s";
        let mut is_taken = false;
        for step in 0..40 {
            let _ = append(log, id, ProducerId::ANONYMOUS, 1..=1);
            if step >= round && !is_taken {
                is_taken = log.administer(Change::Set { stream, settings }).is_ok();
            }
            if step % 3 == 0 {
                settle(writer);
            }
        }
        settle(writer);
        assert!(is_taken, "{round}");
        assert_eq!(log.progress().failure, None, "{round}");
        drop(opened);
        open(&disk.kill());
    }
}

/// Only a log that is asked to holds room back.
#[test]
fn a_log_that_is_not_asked_to_holds_no_reserve() {
    for holds_reserve in [false, true] {
        let disk = SimDisk::new(1);
        let settings = Settings {
            holds_reserve,
            ..settings()
        };
        let opened = EmbeddedLog::open(disk.clone(), settings).expect("the log");
        let is_held = disk.names().iter().any(|name| name == "reserve");
        assert_eq!(is_held, holds_reserve);
        drop(opened);
    }
}

/// The next segment is to hold large groups; what is held for changes of streams, which are small, is not.
#[test]
fn what_is_held_stays_small_where_groups_grow() {
    let disk = SimDisk::new(1);
    let mut opened = open(&disk);
    let id = opened.0.stream("s").expect("room");
    for _ in 0..100 {
        let _ = append(&opened.0, id, ProducerId::ANONYMOUS, 1..=500);
        settle(&mut opened.1);
    }
    let largest = opened.0.usage();
    assert!(largest.segments > 2, "{largest:?}");
    assert!(opened.0.reserve_bytes() < 64 << 10);
    assert!(opened.0.reserve_bytes() > 0);
}

/// The segment in use has room left and the disk has none for another one, which the first change of a log needs.
#[test]
fn the_first_change_is_taken_where_the_disk_is_nearly_full() {
    for taken in 0..40 {
        let disk = SimDisk::new(1);
        let mut opened = open(&disk);
        let id = opened.0.stream("s").expect("room");
        settle(&mut opened.1);
        disk.set_capacity(disk.used());
        for _ in 0..taken {
            let _ = append(&opened.0, id, ProducerId::ANONYMOUS, 1..=20);
            settle(&mut opened.1);
        }
        let settings = keep(20 << 10);
        let stream = "s";
        change(&mut opened, Change::Set { stream, settings });
        assert_eq!(opened.0.progress().failure, None);
        drop(opened);
        open(&disk.kill());
    }
}
