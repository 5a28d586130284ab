//! The whole system in one simulation: producers, clients that take over from each other, readers and classic clients on a simulated network, the
//! production server on loops of every shape, its production log on a disk that may lose what was not synced.
//! The server dies at any step, by itself or with the power, and another takes its place on the same disk;
//! clients connect again. What was acknowledged is there, once, in order; what a reader has seen stays.
//!
//! `TIDEWIRE_SEEDS=20000 cargo test --release -p tidewire-ingest --test system` tries more,
//! `TIDEWIRE_SEED=7` only that one.

mod classic;
mod cursors;
mod producers;
mod reader;
mod server;
mod takers;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
mod world;

use tidewire::sim::{for_each_seed, try_seed};

use server::Mistakes;
use world::run;

#[test]
fn what_was_acknowledged_survives_whatever_becomes_of_the_server() {
    let sum = std::sync::Mutex::new(world::Summary::default());
    for_each_seed(2_000, |seed| {
        let summary = run(seed, Mistakes::default())?;
        let mut sum = sum.lock().unwrap();
        *sum = *sum + summary;
        Ok::<(), String>(())
    });
    println!("{:?}", sum.into_inner().unwrap());
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let test = "what_was_acknowledged_survives_whatever_becomes_of_the_server";
    (0..12).for_each(|seed| twice::says_the_same(test, seed, "trace: "));
}

/// A check that cannot fail proves nothing. The table of the journal is what this prints.
#[test]
fn planted_mistakes_are_found() {
    let log = tidewire_log::Mistakes::default();
    let native = tidewire_ingest::Mistakes::default();
    let of_log = |log| Mistakes {
        log,
        ..Mistakes::default()
    };
    let of_native = |native| Mistakes {
        native,
        ..Mistakes::default()
    };
    let all = [
        (
            "log: acknowledged before the sync",
            of_log(tidewire_log::Mistakes {
                ack_before_sync: true,
                ..log
            }),
        ),
        (
            "log: a failed sync is tried again",
            of_log(tidewire_log::Mistakes {
                retry_sync: true,
                ..log
            }),
        ),
        (
            "ingest: acknowledged when written",
            of_native(tidewire_ingest::Mistakes {
                ack_written: true,
                ..native
            }),
        ),
        (
            "ingest: an older session is not fenced",
            of_native(tidewire_ingest::Mistakes {
                fence_nobody: true,
                ..native
            }),
        ),
        (
            "ingest: the bell is not armed for a welcome that waits",
            of_native(tidewire_ingest::Mistakes {
                welcome_unarmed: true,
                ..native
            }),
        ),
        (
            "ingest: welcomed before the mark is committed",
            of_native(tidewire_ingest::Mistakes {
                welcome_early: true,
                ..native
            }),
        ),
        (
            "ingest, classic: acknowledged when appended",
            Mistakes {
                classic_early: true,
                ..Mistakes::default()
            },
        ),
    ];
    for (name, mistakes) in all {
        let mistaken = |seed| run(seed, mistakes).map(drop);
        let found = (0..500).find_map(|seed| Some((seed, try_seed(seed, mistaken).err()?)));
        match found {
            Some((seed, how)) => println!("| {name} | {} | {how:.100} |", seed + 1),
            None => panic!("not found: {name}"),
        }
    }
}
