//! The whole system in one simulation: producers, readers and classic clients on a simulated network, the
//! production server on loops of every shape, its production log on a disk that may lose what was not synced.
//! The server dies at any step, by itself or with the power, and another takes its place on the same disk;
//! clients connect again. What was acknowledged is there, once, in order; what a reader has seen stays.
//!
//! `TIDEWIRE_SEEDS=20000 cargo test --release -p tidewire-ingest --test system` tries more,
//! `TIDEWIRE_SEED=7` only that one.

mod classic;
mod producers;
mod reader;
mod server;
mod world;

use tidewire::sim::{for_each_seed, try_seed};
use tidewire_log::Mistakes;

use world::run;

#[test]
fn what_was_acknowledged_survives_whatever_becomes_of_the_server() {
    let sum = std::cell::Cell::new(world::Summary::default());
    for_each_seed(2_000, |seed| {
        let summary = run(seed, Mistakes::default())?;
        sum.set(sum.get() + summary);
        Ok::<(), String>(())
    });
    println!("{:?}", sum.get());
}

/// A check that cannot fail proves nothing.
#[test]
fn planted_mistakes_are_found() {
    let none = Mistakes::default();
    for mistakes in [
        Mistakes {
            ack_before_sync: true,
            ..none
        },
        Mistakes {
            retry_sync: true,
            ..none
        },
    ] {
        let mistaken = |seed| run(seed, mistakes).map(drop);
        let found = (0..500).find_map(|seed| Some((seed, try_seed(seed, mistaken).err()?)));
        println!("{mistakes:?}: {found:?}");
        assert!(found.is_some(), "{mistakes:?} was not found");
    }
}
