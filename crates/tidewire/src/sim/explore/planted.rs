//! Whether the exploration finds mistakes that are planted in drivers and loops.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mistakes::{Mistake, Place, is_any_made, planted};
use crate::sim::explore::run::run;
use crate::sim::node::Shape;

/// The shapes in which a mistake can be made.
fn shapes(mistake: Mistake) -> &'static [Shape] {
    match mistake.place() {
        Place::Completions => &[Shape::Completion],
        Place::Readiness => &[Shape::Readiness, Shape::Threads],
        // What is still so is reported again where levels are.
        Place::Edges => &[Shape::Readiness],
        // Only poll(2) reports those.
        Place::Levels => &[Shape::Threads],
        Place::Loop => &[Shape::Readiness, Shape::Completion, Shape::Threads],
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
                Some(said) => said.clone(),
                None => (*panic.downcast_ref::<&str>().unwrap_or(&"a panic")).into(),
            },
        };
        // What is wrong without the mistake as well says nothing about it.
        let without = run(seed, shape, false).wrongs;
        without.is_empty().then_some((seed + 1, found))
    })
}

/// The table of the journal is what this prints.
#[test]
fn every_planted_mistake_is_found() {
    // They panic by the dozen, which is one way to be found.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_any_made() {
            usual(info);
        }
    }));
    let (mut found, mut missed) = (Vec::new(), Vec::new());
    for &mistake in Mistake::ALL {
        match seeds_to_find(mistake, 10_000) {
            None => missed.push(mistake),
            Some((seeds, how)) => {
                found.push(seeds);
                let how = how.split(';').next().unwrap_or(&how).replace('\n', " ");
                println!("|{} | {seeds} | {how} |", mistake.said());
            }
        }
    }
    assert!(
        missed.is_empty(),
        "not found within 10,000 seeds: {missed:?}"
    );
    let soon = found.iter().filter(|seeds| **seeds <= 100).count();
    assert!(soon >= 30, "only {soon} of {found:?} within 100 seeds");
}
