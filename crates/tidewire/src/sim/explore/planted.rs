//! Whether the exploration finds mistakes that are planted in drivers and loops.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mistakes::{ALL, Mistake, planted};
use crate::sim::explore::run::run;
use crate::sim::machine::Shape;

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
fn seeds_to_find(mistake: Mistake, within: u64) -> Option<(u64, String)> {
    let shapes = shapes(mistake);
    (0..within).find_map(|seed| {
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
        // What is wrong without the mistake as well says nothing about it.
        let without = run(seed, shape, false).wrongs;
        without.is_empty().then_some((seed + 1, found))
    })
}

/// Looks for all of them, and says how soon each was found; those that were not.
fn look_for(within: u64) -> (Vec<u64>, Vec<Mistake>) {
    // They panic by the dozen, which is one way to be found.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut found, mut missed) = (Vec::new(), Vec::new());
    for mistake in ALL {
        match seeds_to_find(mistake, within) {
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
fn thirty_planted_mistakes_are_found() {
    let (found, missed) = look_for(400);
    println!("not found within 400 seeds: {missed:?}");
    let soon = found.iter().filter(|seeds| **seeds <= 100).count();
    assert!(soon >= 24, "{soon} within 100 seeds; missed: {missed:?}");
    assert!(
        found.len() >= 30,
        "{} found; missed: {missed:?}",
        found.len()
    );
}

/// For those who want to know of the others.
#[test]
#[ignore = "takes many minutes: each that is seldom found has 10,000 seeds"]
fn how_seldom_the_others_are_found() {
    let (_, missed) = look_for(10_000);
    println!("not found within 10,000 seeds: {missed:?}");
}
