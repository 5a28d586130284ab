//! The offline tools.

use std::ops::ControlFlow;

use super::recovery::{FIRST, batches, segments};
use super::{append, settle, small};
use crate::disk::Disk;
use crate::disk::sim::{Faults, SimDisk};
use crate::tools::{Item, RepairError, check, dump, dump_file, info, loss, repair};
use crate::{Credit, EmbeddedLog, Log, Now, ProducerId, ReadError, Settings, Verify};

#[test]
fn a_whole_log_has_no_problem_and_shows_everything() {
    let disk = segments();
    let found = info(&disk).expect("reading");
    assert_eq!(found.problem, None);
    assert_eq!(
        (
            found.records,
            found.streams[0].next,
            &*found.streams[0].name
        ),
        (1500, 1500, "s")
    );
    assert!(found.segments.len() > 2);
    let report = check(&disk).expect("reading");
    assert_eq!(report.problems, []);
    assert_eq!((report.records, report.batches), (1500, found.batches));
    assert_eq!(report.durable_through, found.batches - 1);
    let (mut records, mut batches) = (0, 0);
    dump(&disk, 0, |item| {
        match item {
            Item::Records { first, count, .. } => {
                assert_eq!(first, records);
                records += u64::from(count);
            }
            Item::Batch { number, .. } => {
                batches += 1;
                assert_eq!(number, batches);
            }
            Item::Problem(damage) => panic!("{damage}"),
            _ => {}
        }
        ControlFlow::Continue(())
    })
    .expect("reading");
    assert_eq!((records, batches), (1500, found.batches));
    assert_eq!(loss(&disk).expect("reading"), None);
    // From a batch on, and broken off.
    let mut numbers = Vec::new();
    dump(&disk, 40, |item| {
        if let Item::Batch { number, .. } = item {
            numbers.push(number);
        }
        if numbers.len() < 3 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .expect("reading");
    assert_eq!(numbers, [40, 41, 42]);
}

#[test]
fn check_lists_every_problem() {
    let (disk, ends) = batches(6);
    disk.flip(FIRST, ends[0] as u64 + 100, 0);
    disk.flip(FIRST, ends[2] as u64 + 100, 0);
    disk.flip(FIRST, ends[4] as u64 + 100, 0);
    let report = check(&disk).expect("reading");
    let found = report.problems.iter().map(|problem| {
        assert_eq!(problem.damage.file, FIRST);
        (
            problem.damage.batch,
            problem.next_good,
            problem.acknowledged,
        )
    });
    let found: Vec<_> = found.collect();
    assert_eq!(
        found,
        [(2, Some(3), true), (4, Some(5), true), (6, None, false)]
    );
    assert_eq!((report.batches, report.durable_through), (3, 5));
    let mut problems = 0;
    dump(&disk, 0, |item| {
        problems += u32::from(matches!(item, Item::Problem(_)));
        ControlFlow::Continue(())
    })
    .expect("reading");
    assert_eq!(problems, 3);
    assert_eq!(
        info(&disk)
            .expect("reading")
            .problem
            .expect("a problem")
            .batch,
        2
    );
}

/// The ids of a stream, passing over what a repair has marked as missing, and that.
fn ids_and_gaps(log: &EmbeddedLog<SimDisk>, stream: &str) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut ids, mut gaps) = (Vec::new(), Vec::new());
    let range = log.range(stream).expect("a stream");
    let mut next = range.first;
    while next < range.next {
        match log.read(stream, next, Credit(1000)) {
            Ok(read) => {
                for run in &read.runs {
                    assert_eq!(run.first, next);
                    next += u64::from(run.count);
                    let mut rest = &run.bytes[..];
                    while !rest.is_empty() {
                        let id = u64::from_le_bytes(rest[..8].try_into().expect("an id"));
                        rest = &rest[super::frames([id]).len()..];
                        ids.push(id);
                    }
                }
                assert_eq!(next, read.next);
            }
            Err(ReadError::Missing { asked, next: to }) => {
                assert!(asked == next && to > next);
                gaps.push((next, to));
                next = to;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(log.records(stream), Some(ids.len() as u64), "{gaps:?}");
    (ids, gaps)
}

/// Zeros where batches were durable are damage that begins where the log ends now, not at byte 0.
#[test]
fn a_missing_end_is_told_where_the_log_ends() {
    let disk = segments();
    // In order, so that all of it is known to be durable.
    let (log, writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("the log");
    writer.close(Now::default());
    drop(log);
    let name = super::recovery::names(&disk).pop().expect("a segment");
    let mut starts = Vec::new();
    dump_file(&disk, &name, |item| {
        if let Item::Batch { offset, .. } = item {
            starts.push(offset);
        }
        ControlFlow::Continue(())
    })
    .expect("reading");
    let last = *starts.last().expect("a batch");
    let bytes = disk.contents(&name).expect("a segment");
    let zeros = vec![0; bytes.len() - last as usize];
    super::recovery::overwrite(&disk, &name, last as usize, &zeros);
    let problems = check(&disk).expect("reading").problems;
    let would_lose = loss(&disk).expect("reading").expect("damage");
    for damage in [&problems[0].damage, &would_lose.gaps[0].damage] {
        assert_eq!((&damage.file, damage.offset), (&name, last), "{damage}");
    }
}

/// The bug of the issue: one flipped bit cost 91 % of a log.
#[test]
fn a_flipped_bit_costs_the_run_it_is_in_and_nothing_else() {
    let whole = segments();
    let names = super::recovery::names(&whole);
    let cases = [
        (0, 80, 0),
        (0, 3000, 1),
        (1, 20, 0),
        (1, 100, 0),
        (1, 9000, 1),
        (2, 5000, 1),
    ];
    for (which, at, costs) in cases {
        let disk = whole.fork();
        let before = disk.contents(&names[which]).expect("a segment");
        assert!(disk.flip(&names[which], at, 5));
        assert!(EmbeddedLog::open(disk.clone(), small()).is_err());
        let would_lose = loss(&disk).expect("reading").expect("damage");
        let [gap] = &would_lose.gaps[..] else {
            assert!(would_lose.gaps.is_empty() && at == 20, "{would_lose:?}");
            continue;
        };
        assert_eq!(gap.damage.file, names[which]);
        assert_eq!(gap.batches.0, gap.batches.1, "one batch");
        assert!(gap.acknowledged);
        let mut other = would_lose.clone();
        other.batches -= 1;
        assert!(matches!(repair(&disk, &other), Err(RepairError::Changed)));

        let repaired = repair(&disk, &would_lose).expect("repairing");
        assert_eq!(repaired.kept_in, would_lose.kept_in);
        let kept = disk.contents(&repaired.kept_in[0]).expect("the copy");
        assert_eq!(kept.len(), before.len(), "the whole file is kept");
        assert_eq!(loss(&disk).expect("reading"), None);
        assert_eq!(check(&disk).expect("reading").problems, []);
        let (log, mut writer, recovery) =
            EmbeddedLog::open(disk.clone(), small()).expect("the log");
        assert_eq!(recovery.cut, None);
        let (ids, gaps) = ids_and_gaps(&log, "s");
        let expected: Vec<(String, u64, u64)> = gaps
            .iter()
            .map(|&(first, next)| ("s".to_owned(), first, next))
            .collect();
        assert_eq!(gap.positions, expected);
        let lost = gaps.iter().map(|(first, next)| next - first);
        assert_eq!(lost.sum::<u64>(), costs, "{which} {at}: {gaps:?}");
        let is_lost = |position: u64| {
            let mut gaps = gaps.iter();
            gaps.any(|(first, next)| (*first..*next).contains(&position))
        };
        let left = (1..=1500).filter(|id| !is_lost(id - 1));
        assert_eq!(ids, left.collect::<Vec<_>>());
        // The log goes on, over the next opening too, with the index or without.
        let stream = log.stream("s").expect("known");
        append(&log, stream, ProducerId::ANONYMOUS, 1501..=1501).expect("room");
        settle(&mut writer);
        drop((log, writer));
        for verify in [Verify::All, Verify::Tail] {
            let settings = Settings { verify, ..small() };
            let (log, _writer, _) = EmbeddedLog::open(disk.fork(), settings).expect("the log");
            let (again, gaps) = ids_and_gaps(&log, "s");
            assert_eq!((again.len(), gaps.len()), (ids.len() + 1, costs as usize));
        }
    }
}

#[test]
fn segments_that_are_gone_are_a_gap_and_what_they_defined_is_learned_from_what_follows() {
    let whole = segments();
    let names = super::recovery::names(&whole);
    for gone in [
        &names[0..1],
        &names[1..2],
        &names[1..3],
        &names[names.len() - 1..],
    ] {
        let disk = whole.fork();
        gone.iter()
            .for_each(|name| disk.remove(name).expect("removing"));
        let would_lose = loss(&disk).expect("reading").expect("damage");
        assert_ne!(check(&disk).expect("reading").problems, []);
        repair(&disk, &would_lose).expect("repairing");
        assert_eq!(check(&disk).expect("reading").problems, []);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("the log");
        let (ids, gaps) = ids_and_gaps(&log, "s");
        assert!(
            ids.len() > 500 && ids.is_sorted(),
            "{gone:?}: {}",
            ids.len()
        );
        let lost: u64 = gaps.iter().map(|(first, next)| next - first).sum();
        // At the end the number is unknown: at least what was durable when the segment was first
        // heard of, which the file of claims says. It goes on behind all that there can have been.
        let end = ids.len() as u64 + lost;
        match gone == &names[names.len() - 1..] {
            true => {
                let [first, next] = would_lose.gaps[0]
                    .skipped
                    .iter()
                    .map(|it| [it.1, it.2])
                    .next()
                    .expect("a doubt");
                assert!(
                    first == 1480 && next == end && end > 1 << 40,
                    "{first} {next}"
                );
            }
            false => assert_eq!(end, 1500, "{gone:?}"),
        }
        let stream = log.stream("s").expect("known");
        append(&log, stream, ProducerId::ANONYMOUS, 1501..=1501).expect("room");
        settle(&mut writer);
        drop((log, writer));
        EmbeddedLog::open(disk.kill(), small()).expect("the log");
    }
}

/// The last batch of a stream that nothing follows: its own heads tell where the stream ended, unless they are
/// what is damaged; then the file of claims does.
#[test]
fn where_a_stream_ended_is_known_after_its_last_batch_is_lost() {
    let disk = SimDisk::new(3);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("a new log");
    for name in ["s", "t"] {
        let stream = log.stream(name).expect("room");
        append(&log, stream, ProducerId::ANONYMOUS, 1..=7).expect("room");
        settle(&mut writer);
    }
    writer.close(Now::default());
    drop(log);
    let names = super::recovery::names(&disk);
    // What tells all is enough for all to be kept; what tells less is lost, and known to be.
    for (at, no_claims, is_lost) in [
        (8, true, false),
        (50, true, false),
        (62, true, false),
        (110, false, true),
        (170, true, true),
    ] {
        let disk = disk.fork();
        if no_claims {
            disk.remove("claims").expect("removing");
        }
        assert!(disk.flip(&names[0], 64 + at, 5));
        let would_lose = loss(&disk).expect("reading").expect("damage");
        repair(&disk, &would_lose).expect("repairing");
        let lost = would_lose.gaps[0]
            .positions
            .iter()
            .map(|lost| (lost.1, lost.2));
        let expected = if is_lost { &[(0, 7)][..] } else { &[] };
        assert_eq!(lost.collect::<Vec<_>>(), expected, "{at}");
        EmbeddedLog::open(disk.kill(), small()).expect("the log");
    }
}

#[test]
fn what_a_repair_has_kept_and_what_was_cut_off_can_be_read() {
    let disk = segments();
    let names = super::recovery::names(&disk);
    disk.flip(&names[1], 9000, 5);
    let would_lose = loss(&disk).expect("reading").expect("damage");
    let repaired = repair(&disk, &would_lose).expect("repairing");
    let (mut batches, mut problems) = (0, 0);
    dump_file(&disk, &repaired.kept_in[0], |item| {
        batches += u32::from(matches!(item, Item::Batch { .. }));
        problems += u32::from(matches!(item, Item::Problem(_)));
        ControlFlow::Continue(())
    })
    .expect("reading");
    assert!(batches >= 20 && problems == 1, "{batches} {problems}");
}

#[test]
fn a_repair_that_loses_power_is_begun_again() {
    let whole = segments();
    let names = super::recovery::names(&whole);
    whole.flip(&names[0], 80, 1);
    whole.flip(&names[1], 5000, 1);
    whole.remove(&names[2]).expect("removing");
    let would_lose = loss(&whole).expect("reading").expect("damage");
    for power in 1..40 {
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
        let (log, _writer, _) = EmbeddedLog::open(disk, small()).expect("the log");
        let (ids, gaps) = ids_and_gaps(&log, "s");
        let lost: u64 = gaps.iter().map(|(first, next)| next - first).sum();
        assert_eq!(ids.len() as u64 + lost, 1500, "power {power}");
        if done {
            return;
        }
    }
    panic!("never done");
}
