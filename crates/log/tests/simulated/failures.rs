//! Writes and syncs that fail: final for the log, and nothing acknowledged is lost by it.

use fastrand::Rng;
use tidewire_log::disk::sim::Faults;
use tidewire_log::{Log, Policy, Settings};

use crate::seeds::{Verdict, all, ensure};
use crate::settings;
use crate::world::{End, World};

#[test]
fn a_failed_write_or_sync_is_final_and_loses_nothing_committed() {
    all(
        "failures::a_failed_write_or_sync_is_final_and_loses_nothing_committed",
        700,
        |seed| run(seed, |random| settings::draw(random, Policy::Sync)),
    );
}

#[test]
fn nor_does_one_while_old_segments_are_removed() {
    all(
        "failures::nor_does_one_while_old_segments_are_removed",
        500,
        |seed| {
            run(seed, |random| {
                settings::draw_with_retention(random, Policy::Sync)
            })
        },
    );
}

#[test]
fn what_a_failed_sync_of_the_directory_hides_is_made_durable_anew() {
    all(
        "failures::what_a_failed_sync_of_the_directory_hides_is_made_durable_anew",
        700,
        |seed| {
            directory(seed, |random| {
                settings::draw_with_retention(random, Policy::Sync)
            })
        },
    );
}

/// Several lives of one log, in each of which something fails.
pub(crate) fn run(seed: u64, settings: impl FnOnce(&mut Rng) -> Settings) -> Verdict {
    lives(seed, settings, 5)
}

/// As above, where it is always a sync of the directory.
pub(crate) fn directory(seed: u64, settings: impl FnOnce(&mut Rng) -> Settings) -> Verdict {
    lives(seed, settings, 0)
}

/// `kinds`: out of how many kinds of faults one is a failed write, one a failed sync of the
/// directory, and the rest failed syncs of files; 0 for syncs of the directory alone.
fn lives(seed: u64, settings: impl FnOnce(&mut Rng) -> Settings, kinds: u8) -> Verdict {
    let mut world = World::new(seed, settings)?;
    for _ in 0..world.random.u8(1..4) {
        let nth = Some(world.random.u64(1..20));
        let kind = match kinds {
            0 => 1,
            kinds => world.random.u8(0..kinds),
        };
        if kinds == 0 {
            // The log grows, so that segments come and go.
            world.grow()?;
        }
        let faults = match kind {
            0 => Faults {
                write: nth,
                ..Faults::default()
            },
            1 => Faults {
                sync_directory: nth.map(|nth| nth.min(3)),
                ..Faults::default()
            },
            _ => Faults {
                sync: nth,
                ..Faults::default()
            },
        };
        world.disk.set_faults(faults);
        world.live()?;
        world.live()?;
        world.settle()?;
        if world.model.failed() {
            // The model refuses any progress from here on.
            for _ in 0..10 {
                world.act()?;
            }
            ensure(world.append()?.is_none(), || {
                "appended to a failed log".to_owned()
            })?;
            let failure = world
                .log()
                .progress()
                .failure
                .expect("it has failed")
                .to_string();
            ensure(failure.contains("simulated"), || {
                format!("says no reason: {failure}")
            })?;
        }
        // Restarting after a failed sync without losing power: the page cache shows what the disk
        // never got.
        let end = if world.random.bool() {
            End::Kill
        } else {
            End::Crash
        };
        world.end(end)?;
        world.reopen()?;
    }
    world.live()?;
    world.end(End::Crash)?;
    world.reopen()
}
