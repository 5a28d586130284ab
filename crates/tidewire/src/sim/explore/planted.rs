//! Whether the exploration finds mistakes that are planted in drivers and loops.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::mistakes::{Mistake, Place, is_any_made, planted};
use crate::sim::explore::run::run;
use crate::sim::node::Shape;

/// The shapes in which a mistake can be made.
fn shapes(mistake: Mistake) -> &'static [Shape] {
    match mistake.place() {
        Place::Completions => &[Shape::Completion],
        Place::Readiness => &[Shape::Readiness, Shape::Threads],
        // A level-triggered poller would report the lost event again.
        Place::Edges => &[Shape::Readiness],
        // Only poll(2) reports levels.
        Place::Levels => &[Shape::Threads],
        Place::Loop => &[Shape::Readiness, Shape::Completion, Shape::Threads],
    }
}

/// How many seeds are needed to find a mistake, and the fault that shows it.
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
        // A fault that also shows without the planted mistake says nothing about the mistake.
        let without = run(seed, shape, false).wrongs;
        without.is_empty().then_some((seed + 1, found))
    })
}

/// Asks for each mistake, on all processors: a mistake is its thread's own, and so is what simulates. In the order in which they stand.
fn find_all(within: u64) -> Vec<Option<(u64, String)>> {
    let next = AtomicUsize::new(0);
    let find = || {
        let mine = std::iter::repeat_with(|| next.fetch_add(1, Relaxed));
        let mine = mine.map_while(|at| Some((at, *Mistake::ALL.get(at)?)));
        mine.map(|(at, mistake)| (at, seeds_to_find(mistake, within)))
            .collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(find)).collect();
        let found = threads.into_iter().map(|t| t.join().expect("a search"));
        found.flatten().collect::<Vec<_>>()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, found)| found).collect()
}

/// The table of the journal is what this prints.
#[test]
fn every_planted_mistake_is_found() {
    // Planted mistakes panic by the dozen, which is one way to be found.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_any_made() {
            usual(info);
        }
    }));
    let (mut found, mut missed) = (Vec::new(), Vec::new());
    for (&mistake, searched) in Mistake::ALL.iter().zip(find_all(10_000)) {
        match searched {
            None => missed.push(mistake),
            Some((seeds, how)) => {
                found.push(seeds);
                let how = how.split(';').next().unwrap_or(&how).replace('\n', " ");
                println!("|{} | {seeds} | {how} |", mistake.said());
            }
        }
    }
    assert_eq!(found.len() + missed.len(), Mistake::ALL.len());
    assert!(
        missed.is_empty(),
        "not found within 10,000 seeds: {missed:?}"
    );
    let soon = found.iter().filter(|seeds| **seeds <= 100).count();
    assert!(soon >= 30, "only {soon} of {found:?} within 100 seeds");
}
