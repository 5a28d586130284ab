//! The log of a store that was at its age before it was given a home: what it had first is in a snapshot alone.

use std::collections::BTreeSet;

use fastrand::Rng;
use tidewire_kv::store::Mistakes;
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{Log, Settings};

use crate::disk::{now, open_with_log, settings, settle};
use crate::home::{LATE, put_pair};

/// The server's disk, after it was ended, and the elements that are in it.
pub(crate) fn aged(
    seed: u64,
    log: Settings,
    random: &mut Rng,
) -> Result<(SimDisk, BTreeSet<String>), String> {
    let disk = SimDisk::new(random.u64(..));
    let opened = open_with_log(log, &disk, settings(seed), Mistakes::default(), LATE)?;
    let embedded = opened.embedded.clone();
    let (store, kv_log, mut writer, mut keeper) = opened.keep();
    let mut elements = BTreeSet::new();
    // Some more than it takes.
    let mut more = random.usize(0..5);
    for count in 1..2000 {
        let id = format!("early-{count}");
        // Now and then there is no room for it.
        if put_pair(&store, &id, random.usize(1..12_000))?.is_some() {
            elements.insert(id);
        }
        settle(&mut writer, count);
        if count % 20 == 0 {
            kv_log.snapshots().ask();
        }
        keeper.step(now(count));
        let first = embedded.range("kv").map_or(0, |range| range.first);
        if first > 0 && !kv_log.snapshots().status().in_progress() {
            if more == 0 {
                return Ok((disk.kill(), elements));
            }
            more -= 1;
        }
    }
    Err("its log is never cut".into())
}
