//! The durable store on simulated disks: what was acknowledged or seen is there after any crash, no
//! unit is torn, and replay gives the same store. Every accident comes from a seed; each planted
//! mistake is found.
//!
//! `TIDEWIRE_SEEDS=100000 cargo test -p tidewire-kv --test durable` tries more.

#![expect(
    clippy::disallowed_methods,
    reason = "what the tests of real servers have in common waits and connects"
)]

#[path = "../common/wire.rs"]
mod wire;

mod attacks;
mod disk;
mod facts;
mod mistakes;
mod replay;
mod scene;

use std::ops::Range;

/// The seeds to try: `usual`, or as many as the environment says.
pub(crate) fn seeds(usual: u64) -> Range<u64> {
    let asked = std::env::var("TIDEWIRE_SEEDS").ok();
    0..asked.and_then(|n| n.parse().ok()).unwrap_or(usual)
}
