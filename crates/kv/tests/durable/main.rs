//! The durable store on simulated disks: what was acknowledged or seen is there after any crash, no
//! unit is torn, and replay gives the same store. Every accident comes from a seed; each planted
//! mistake is found.
//!
//! `TIDEWIRE_SEEDS=100000 cargo test -p tidewire-kv --test durable` tries more, `TIDEWIRE_SEED=7` only that one.

#![expect(
    clippy::disallowed_methods,
    reason = "what the tests of real servers have in common waits and connects"
)]

#[path = "../concurrent/asks.rs"]
mod asks;
#[path = "../../../../golden/check.rs"]
mod golden_check;
#[path = "../concurrent/history.rs"]
#[allow(dead_code, reason = "a part of it is for the other test")]
mod history;
#[path = "../concurrent/porcupine.rs"]
mod porcupine;
#[path = "../../../replicate/tests/simulated/home.rs"]
#[allow(dead_code, reason = "a part of it is for the other test")]
mod sim_home;
#[path = "../common/wire.rs"]
mod wire;

mod aged;
mod attacks;
mod by_hand;
mod disk;
mod events;
mod facts;
mod following;
mod full_disk;
mod golden;
mod home;
mod midway;
mod mistakes;
mod proof;
mod replay;
mod scene;
mod served;
mod snapshots;
mod takeover;
