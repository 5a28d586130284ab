//! The offline tools.

use std::ops::ControlFlow;

use super::recovery::{FIRST, batches, segments};
use super::{ids, small};
use crate::EmbeddedLog;
use crate::tools::{Item, RepairError, check, dump, info, loss, repair};

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
    assert_eq!(problems, 1);
    assert_eq!(
        info(&disk)
            .expect("reading")
            .problem
            .expect("a problem")
            .batch,
        2
    );
}

#[test]
fn repair_cuts_what_was_agreed_to_and_keeps_it() {
    let disk = segments();
    let names = super::recovery::names(&disk);
    let middle = disk.contents(&names[1]).expect("a segment");
    disk.flip(&names[1], middle.len() as u64 / 2, 5);
    assert!(EmbeddedLog::open(disk.clone(), small()).is_err());
    let would_lose = loss(&disk).expect("reading").expect("damage");
    assert_eq!(would_lose.damage.file, names[1]);
    assert!(would_lose.durable_through > would_lose.damage.batch);
    assert!(
        would_lose.whole_batches > 20 && would_lose.bytes > 10_000,
        "{would_lose:?}"
    );
    let mut other = would_lose.clone();
    other.whole_batches -= 1;
    assert!(matches!(repair(&disk, &other), Err(RepairError::Changed)));
    assert!(
        EmbeddedLog::open(disk.clone(), small()).is_err(),
        "nothing was changed"
    );

    let repaired = repair(&disk, &would_lose).expect("repairing");
    assert_eq!(repaired.kept_in, would_lose.kept_in);
    let kept = disk.contents(&repaired.kept_in[0]).expect("the tail");
    let rest = disk.contents(&names[1]).expect("the segment").len();
    assert!(
        (0..8).contains(&(middle.len() - kept.len() - rest)),
        "all but padding is kept"
    );
    assert_eq!(repaired.kept_in.len(), names.len() - 1);
    assert_eq!(loss(&disk).expect("reading"), None);
    let (log, _writer, recovery) = EmbeddedLog::open(disk, small()).expect("the log");
    assert_eq!(recovery.cut, None);
    let left = ids(&log, "s", 0, 1000);
    assert!(left.len() > 200 && left.len() < 1000, "{}", left.len());
    assert!(left.iter().copied().eq(1..=left.len() as u64));
}
