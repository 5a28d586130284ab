//! What is not at home is kept, and bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{append, ids, settle_at, small};
use crate::disk::sim::SimDisk;
use crate::{
    Carried, Change, ChangeRefused, EmbeddedLog, Log, ProducerId, Refused, Selection, Settings,
    StreamSettings, Ticket, Writer,
};

const NOBODY: ProducerId = ProducerId::ANONYMOUS;

fn home(streams: &[(&str, u64)]) -> Carried {
    let home: BTreeMap<_, _> = streams
        .iter()
        .map(|&(name, at)| (name.into(), at))
        .collect();
    Carried {
        home,
        ..Carried::default()
    }
}

#[test]
fn retention_stops_at_what_is_not_at_home() {
    let settings = Settings {
        retention_bytes: Some(1),
        retention_age: Some(Duration::from_secs(1)),
        backlog: Some(u64::MAX),
        ..small()
    };
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk, settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let other = log.stream("other").expect("a stream");
    append(&log, other, NOBODY, 1..=1).expect("room");
    for n in 0..200u64 {
        append(&log, stream, NOBODY, 1 + 10 * n..=10 + 10 * n).expect("room");
        settle_at(&mut writer, 100 + n);
    }
    assert!(log.usage().segments > 2);
    assert_eq!(log.range("s").expect("it is there").first, 0);
    // The other stream's only record is in the oldest segment.
    log.carried(home(&[("s", 1500)]));
    settle_at(&mut writer, 1000);
    assert_eq!(log.range("s").expect("it is there").first, 0);
    log.carried(home(&[("other", 1)]));
    settle_at(&mut writer, 2000);
    let first = log.range("s").expect("it is there").first;
    assert!(first > 0 && first <= 1500, "{first}");
    // A lower position at home brings nothing back.
    log.carried(home(&[("s", 10)]));
    assert_eq!(ids(&log, "s", first, 1 << 20).len() as u64, 2000 - first);
}

#[test]
fn a_stream_is_not_trimmed_behind_its_home() {
    let settings = Settings {
        backlog: Some(u64::MAX),
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    append(&log, stream, NOBODY, 1..=10).expect("room");
    settle_at(&mut writer, 1);
    log.carried(home(&[("s", 5)]));
    let trim = |before| {
        let change = Change::Trim {
            stream: "s",
            before,
        };
        log.administer(change)
    };
    assert_eq!(trim(6), Err(ChangeRefused::NotHome));
    while trim(5) == Err(ChangeRefused::Log(Refused::Busy)) {
        settle_at(&mut writer, 2);
    }
    settle_at(&mut writer, 3);
    assert_eq!(log.range("s").expect("it is there").first, 5);
}

#[test]
fn retention_of_a_stream_stops_there_too() {
    let settings = Settings {
        backlog: Some(u64::MAX),
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    let retains = StreamSettings {
        retain_bytes: Some(1),
        retain_age: Some(Duration::from_secs(1)),
        ..StreamSettings::default()
    };
    let change = Change::Create {
        stream: "s",
        settings: retains,
    };
    for n in 0.. {
        match log.administer(change) {
            Ok(_) => break,
            Err(_) => settle_at(&mut writer, n),
        }
    }
    let stream = log.stream("s").expect("a stream");
    for n in 0..100u64 {
        append(&log, stream, NOBODY, 1 + 10 * n..=10 + 10 * n).expect("room");
        settle_at(&mut writer, 100 + n);
    }
    settle_at(&mut writer, 10_000);
    assert_eq!(log.range("s").expect("it is there").first, 0);
    log.carried(home(&[("s", 1000)]));
    settle_at(&mut writer, 20_000);
    assert_eq!(log.range("s").expect("it is there").first, 1000);
}

#[test]
fn a_full_backlog_takes_nothing_until_some_is_at_home() {
    let settings = Settings {
        backlog: Some(3000),
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let mut last = 0;
    let refused = loop {
        match append(&log, stream, NOBODY, last + 1..=last + 10) {
            Ok(_) => last += 10,
            Err(refused) => break refused,
        }
        settle_at(&mut writer, 1);
        assert!(last < 10_000, "there is no limit");
    };
    assert_eq!(refused, Refused::Busy);
    assert!((3000..3000 + 2048).contains(&log.backlog_bytes()));
    // A caller that reserves room gets none either.
    assert_eq!(log.reserve(1), Err(Refused::Busy));
    assert_eq!(log.begin_growing(0), Err(Refused::Busy));
    // A cursor is no message.
    log.set_cursor("s", "c", 1).expect("room");
    log.carried(home(&[("s", last)]));
    assert_eq!(log.backlog_bytes(), 0);
    append(&log, stream, NOBODY, last + 1..=last + 10).expect("room");
}

#[test]
fn a_log_without_a_home_keeps_and_bounds_nothing_for_it() {
    let (log, _, _) = EmbeddedLog::open(SimDisk::new(1), small()).expect("the log");
    let told = Carried {
        replicated: Some(Ticket(5)),
        replicates: true,
        ..Carried::default()
    };
    log.carried(told.clone());
    let earlier = Carried {
        replicated: Some(Ticket(3)),
        ..told
    };
    log.carried(earlier);
    // Records at home stay there.
    assert_eq!(log.progress().replicated, Some(Ticket(5)));
    assert_eq!(log.backlog_bytes(), 0);
}

#[test]
fn a_stream_may_begin_where_another_has_ended() {
    let settings = || Settings {
        begins: Some(("s".into(), 1000)),
        ..small()
    };
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let other = log.stream("t").expect("a stream");
    settle_at(&mut writer, 1);
    let range = |log: &EmbeddedLog<SimDisk>| log.range("s").map(|range| (range.first, range.next));
    assert_eq!(range(&log), Some((1000, 1000)));
    append(&log, stream, NOBODY, 1..=10).expect("room");
    append(&log, other, NOBODY, 1..=10).expect("room");
    settle_at(&mut writer, 2);
    drop((log, writer));
    // Only a log that is made heeds it.
    let settings = Settings {
        begins: Some(("s".into(), 5000)),
        ..small()
    };
    let (log, _, _) = EmbeddedLog::open(disk, settings).expect("the log");
    assert_eq!(range(&log), Some((1000, 1010)));
    assert_eq!(log.range("t").expect("a stream").first, 0);
}

#[test]
fn streams_that_are_not_carried_are_neither_kept_nor_bounded_for_a_home() {
    let settings = || Settings {
        retention_bytes: Some(1),
        backlog: Some(3000),
        carries: Selection::of(["home-*"]).expect("a selection"),
        ..small()
    };
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
    let fill = |log: &EmbeddedLog<SimDisk>, writer: &mut Writer<SimDisk>, from: u64| {
        let stream = log.stream("local").expect("a stream");
        for n in from..from + 200 {
            append(log, stream, NOBODY, 1 + 10 * n..=10 + 10 * n).expect("room");
            settle_at(writer, 100 + n);
        }
    };
    assert!(log.comes_home("home-1") && !log.comes_home("local"));
    // No replicator has said anything yet.
    fill(&log, &mut writer, 0);
    assert_eq!(log.backlog_bytes(), 0);
    let first = log.range("local").expect("it is there").first;
    assert!(first > 0, "nothing was removed");
    // When carried streams are at the limit, the others go on.
    let carried = log.stream("home-1").expect("a stream");
    let mut last = 0;
    while append(&log, carried, NOBODY, last + 1..=last + 10).is_ok() {
        last += 10;
        settle_at(&mut writer, 1000);
        assert!(last < 10_000, "there is no limit");
    }
    let full = log.backlog_bytes();
    fill(&log, &mut writer, 200);
    assert_eq!(log.backlog_bytes(), full);
    // Opened again it is the same.
    drop((log, writer));
    let (log, mut writer, _) = EmbeddedLog::open(disk, settings()).expect("the log");
    log.carried(home(&[("home-1", last)]));
    assert_eq!(log.backlog_bytes(), 0);
    let before = log.range("local").expect("it is there").first;
    fill(&log, &mut writer, 400);
    assert_eq!(log.backlog_bytes(), 0);
    assert!(log.range("local").expect("it is there").first > before);
}

#[test]
fn a_number_that_another_stream_had_is_carried_as_its_own_name_says() {
    let settings = Settings {
        backlog: Some(3000),
        carries: Selection::of(["home"]).expect("a selection"),
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), settings).expect("the log");
    for (name, bytes) in [("local", false), ("home", true), ("local", false)] {
        let stream = log.stream(name).expect("a stream");
        append(&log, stream, NOBODY, 1..=10).expect("room");
        settle_at(&mut writer, 1);
        assert_eq!(log.backlog_bytes() > 0, bytes, "{name}");
        let mut now = 2;
        while log.administer(Change::Delete { stream: name }).is_err() {
            settle_at(&mut writer, now);
            now += 1;
            assert!(now < 100, "it cannot be deleted");
        }
        settle_at(&mut writer, 200);
        log.carried(home(&[]));
        assert_eq!(log.backlog_bytes(), 0);
    }
}
