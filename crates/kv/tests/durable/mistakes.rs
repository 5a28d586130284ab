//! Each of the classic mistakes is found.

use tidewire_kv::store::Mistakes;

use crate::replay::{same, torn};
use crate::scene::lives;

/// Seeds that may be needed to find one.
const SEEDS: std::ops::Range<u64> = 0..400;

fn is_found(test: fn(u64, Mistakes) -> Result<(), String>, mistakes: Mistakes) {
    let found = SEEDS.clone().find_map(|seed| test(seed, mistakes).err());
    let found = found.unwrap_or_else(|| panic!("not found: {mistakes:?}"));
    println!("{mistakes:?}: {found:.200}");
}

#[test]
fn a_reply_before_the_commit_is_found() {
    let reply_early = true;
    is_found(
        lives,
        Mistakes {
            reply_early,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_dirty_read_is_found() {
    let read_dirty = true;
    is_found(
        lives,
        Mistakes {
            read_dirty,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_transaction_in_several_units_is_found() {
    let split_units = true;
    is_found(
        torn,
        Mistakes {
            split_units,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_message_before_what_it_follows_is_found() {
    let publish_early = true;
    is_found(
        lives,
        Mistakes {
            publish_early,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_replay_by_the_clock_is_found() {
    let replay_late = true;
    is_found(
        same,
        Mistakes {
            replay_late,
            ..Mistakes::default()
        },
    );
}
