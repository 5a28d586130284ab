//! Bits that flip: never a wrong byte, never a committed record skipped in silence.

use tidewire_log::Policy;

use crate::seeds::{Verdict, all, ensure};
use crate::settings;
use crate::world::{End, World};

#[test]
fn damage_below_a_claimed_position_is_refused_with_file_and_offset() {
    all(
        "decay::damage_below_a_claimed_position_is_refused_with_file_and_offset",
        700,
        closed,
    );
}

#[test]
fn damage_under_an_open_log_is_never_read() {
    all("decay::damage_under_an_open_log_is_never_read", 400, open);
}

/// Bits flip while the log is closed.
fn closed(seed: u64) -> Verdict {
    let mut world = aged(seed)?;
    let end = *world
        .random
        .choice(&[End::Close, End::Kill, End::Crash])
        .expect("three");
    world.end(end)?;
    let Some(flip) = world.flip() else {
        return Ok(());
    };
    match world.try_open() {
        // What nothing on the disk claims may be cut back as a torn tail.
        Ok(_) => world.verify_damaged(&flip.file),
        Err(text) => {
            ensure(text.contains(&flip.file) && text.contains("byte"), || {
                format!("{flip:?}, the log says: {text}")
            })?;
            // It has changed nothing: with the bit turned back everything is there.
            world.turn(&flip);
            world.reopen()
        }
    }
}

/// Bits flip while the log is open.
fn open(seed: u64) -> Verdict {
    let mut world = aged(seed)?;
    match world.flip() {
        Some(flip) => world.verify_damaged(&flip.file),
        None => Ok(()),
    }
}

/// A log with a past, with everything in it committed.
fn aged(seed: u64) -> Verdict<World> {
    let mut world = World::new(seed, |random| settings::draw(random, Policy::Sync))?;
    if world.random.bool() {
        world.grow()?;
    }
    for _ in 0..world.random.u8(0..4) {
        world.live()?;
        let end = if world.random.bool() {
            End::Close
        } else {
            End::Crash
        };
        world.end(end)?;
        world.reopen()?;
    }
    world.live()?;
    world.settle()?;
    Ok(world)
}
