//! Power losses and kills at any operation, also while the log is being opened.

use fastrand::Rng;
use tidewire_log::disk::sim::Faults;
use tidewire_log::{Policy, Settings};

use crate::seeds::{Verdict, all};
use crate::settings::{draw, draw_with_retention, interval};
use crate::world::{End, World};

#[test]
fn nothing_committed_is_lost_when_power_is() {
    all(
        "crashes::nothing_committed_is_lost_when_power_is",
        1500,
        |seed| run(seed, |random| draw(random, Policy::Sync)),
    );
}

#[test]
fn nor_with_syncs_at_intervals() {
    all("crashes::nor_with_syncs_at_intervals", 500, |seed| {
        run(seed, |random| draw(random, interval()))
    });
}

#[test]
fn without_syncs_what_is_left_is_a_prefix() {
    all(
        "crashes::without_syncs_what_is_left_is_a_prefix",
        500,
        |seed| run(seed, |random| draw(random, Policy::Os)),
    );
}

#[test]
fn what_retention_leaves_is_whole() {
    all("crashes::what_retention_leaves_is_whole", 500, |seed| {
        run(seed, |random| draw_with_retention(random, Policy::Sync))
    });
}

#[test]
fn nor_is_what_was_set_about_streams() {
    all("crashes::nor_is_what_was_set_about_streams", 1000, |seed| {
        administered(seed, |random| match random.u8(0..4) {
            0 => draw_with_retention(random, Policy::Sync),
            1 => draw(random, interval()),
            _ => draw(random, Policy::Sync),
        })
    });
}

/// As [`run`], while streams are made, set and deleted.
pub(crate) fn administered(seed: u64, settings: impl FnOnce(&mut Rng) -> Settings) -> Verdict {
    let mut world = World::new(seed, settings)?;
    world.administered = true;
    lives(world)
}

/// Several lives of one log, each ended by a kill or a crash, mostly in the midst of something.
pub(crate) fn run(seed: u64, settings: impl FnOnce(&mut Rng) -> Settings) -> Verdict {
    lives(World::new(seed, settings)?)
}

fn lives(mut world: World) -> Verdict {
    if world.random.bool() {
        world.grow()?;
    }
    for _ in 0..world.random.u8(1..5) {
        if world.random.u8(0..4) > 0 {
            let power = Some(world.random.u64(1..100));
            world.disk.set_faults(Faults {
                power,
                ..Faults::default()
            });
        }
        world.live()?;
        if world.random.u8(0..4) == 0 {
            world.settle()?;
        }
        let end = match world.random.u8(0..6) {
            0 => End::Close,
            1 => End::Kill,
            _ => End::Crash,
        };
        world.end(end)?;
        if world.random.bool() {
            world.reopen_with_crashes()?;
        } else {
            world.reopen()?;
        }
        if world.random.u8(0..3) == 0 {
            world.opens_the_same_again()?;
        }
    }
    world.settle()
}
