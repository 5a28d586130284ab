//! A disk that runs full: what was accepted is committed, the rest refused, and with room the log
//! goes on.

use tidewire_log::Policy;
use tidewire_log::disk::sim::{BLOCK, Faults};

use crate::seeds::{Verdict, Violation, all, ensure};
use crate::settings;
use crate::world::{End, World};

#[test]
fn a_full_disk_refuses_and_the_log_goes_on_when_there_is_room() {
    all(
        "full::a_full_disk_refuses_and_the_log_goes_on_when_there_is_room",
        400,
        run,
    );
}

fn run(seed: u64) -> Verdict {
    let mut world = World::new(seed, |random| settings::draw(random, Policy::Sync))?;
    for _ in 0..world.random.u8(1..4) {
        let room = world.random.u64(0..40) * BLOCK;
        world.disk.set_capacity(world.disk.used() + room);
        world.may_be_full = true;
        fill(&mut world)?;
        match world.random.u8(0..4) {
            0 => restart_on_a_full_disk(&mut world, End::Kill)?,
            1 => restart_on_a_full_disk(&mut world, End::Crash)?,
            _ => {}
        }
        world.disk.set_capacity(u64::MAX);
        resume(&mut world)?;
    }
    world.end(End::Crash)?;
    world.reopen()
}

/// Appends until the log says that the disk is full; what it has accepted then is committed.
fn fill(world: &mut World) -> Verdict {
    for _ in 0..2000 {
        world.act()?;
        if world.full {
            world.settle()?;
            return ensure(!world.model.failed(), || {
                "a full disk made the log fail".to_owned()
            });
        }
    }
    // Small messages may leave room for more than this test likes to write.
    world.settle()
}

/// The log opens without one free block, and reading goes on.
fn restart_on_a_full_disk(world: &mut World, end: End) -> Verdict {
    world.end(end)?;
    world.disk.set_capacity(world.disk.used());
    if world.random.bool() {
        let power = Some(world.random.u64(1..12));
        world.disk.set_faults(Faults {
            power,
            ..Faults::default()
        });
        world.reopen_with_crashes()
    } else {
        world.reopen()
    }
}

fn resume(world: &mut World) -> Verdict {
    world.may_be_full = true;
    for _ in 0..100 {
        world.pass_time();
        world.step()?;
        if world.append()?.is_some() {
            world.settle()?;
            world.may_be_full = false;
            world.full = false;
            return ensure(world.model.settled(), || "not committed".to_owned());
        }
    }
    Err(Violation("refuses although there is room".to_owned()))
}
