//! Whether the exploration finds mistakes that are planted in drivers and loops.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mistakes::{ALL, Mistake, planted};
use crate::sim::explore::run::run;
use crate::sim::machine::Shape;

/// Seeds within which each is to be found.
const WITHIN: u64 = 10_000;

/// The shapes in which a mistake can be made.
fn shapes(mistake: Mistake) -> &'static [Shape] {
    let at = ALL.iter().position(|m| *m == mistake);
    match at.expect("all are in the list") {
        0..16 => &[Shape::Completion],
        _ if mistake == Mistake::RoomNotAwaited => &[Shape::Threads],
        _ if mistake == Mistake::EndReportedForEver => &[Shape::Threads],
        16..25 => &[Shape::Readiness, Shape::Threads],
        _ => &[Shape::Readiness, Shape::Completion, Shape::Threads],
    }
}

/// How many seeds it takes, and what is found wrong.
fn seeds_to_find(mistake: Mistake) -> Option<(u64, String)> {
    let shapes = shapes(mistake);
    (0..WITHIN).find_map(|seed| {
        let shape = shapes[(seed % shapes.len() as u64) as usize];
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            planted(mistake, || run(seed, shape, false).wrongs)
        }));
        let found = match outcome {
            Ok(wrongs) => wrongs.into_iter().next()?,
            Err(panic) => match panic.downcast_ref::<String>() {
                Some(said) => format!("panic: {said}"),
                None => format!("panic: {:?}", panic.downcast_ref::<&str>()),
            },
        };
        let without = run(seed, shape, false).wrongs;
        assert!(
            without.is_empty(),
            "{seed}, {shape:?}: {without:?} without a mistake"
        );
        Some((seed + 1, found))
    })
}

/// Those that the exploration has not the means to reach, or reaches too seldom for a test.
const SELDOM: [Mistake; 6] = [
    Mistake::SlicesReused,
    Mistake::LateAcceptDropped,
    Mistake::ConnectNotTakenBack,
    Mistake::HandOverDropped,
    Mistake::BacklogForgotten,
    Mistake::NewsOfConnectedIgnored,
];

/// Looks for these, and says how soon each was found; those that were not.
fn look_for(mistakes: impl Iterator<Item = Mistake>) -> (Vec<u64>, Vec<Mistake>) {
    // They panic by the dozen, which is one way to be found.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut found, mut missed) = (Vec::new(), Vec::new());
    for mistake in mistakes {
        match seeds_to_find(mistake) {
            None => missed.push(mistake),
            Some((seeds, how)) => {
                found.push(seeds);
                println!("| {mistake:?} | {seeds} | {} |", how.replace('\n', " "));
            }
        }
    }
    std::panic::set_hook(before);
    (found, missed)
}

#[test]
fn planted_mistakes_are_found() {
    let often = ALL.into_iter().filter(|m| !SELDOM.contains(m));
    let (found, missed) = look_for(often);
    assert!(missed.is_empty(), "not found: {missed:?}");
    assert!(found.len() >= 30, "{} were looked for", found.len());
    let soon = found.iter().filter(|seeds| **seeds <= 100).count();
    assert!(soon * 4 >= found.len() * 3, "{soon} within 100 seeds");
}

#[test]
#[ignore = "takes minutes, and finds some of them at best"]
fn mistakes_that_are_seldom_found() {
    let (_, missed) = look_for(SELDOM.into_iter());
    println!("not found within {WITHIN} seeds: {missed:?}");
}
