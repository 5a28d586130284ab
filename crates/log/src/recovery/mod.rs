//! Opening a log: reads the segments, tells a torn tail from damage, cuts off the tail, and refuses
//! damage.
//!
//! The one idea: every batch says up to which batch the log was durable when it was written. A bad
//! batch at or below such a claim was acknowledged, so it is damage, and the log does not open. A
//! bad batch above every claim was being written when the power failed: it is cut off, with
//! everything behind it.

mod cut;
mod error;
mod later;
mod load;
mod names;
mod report;
mod walk;
mod window;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::ahead;
use crate::catalog::Catalog;
use crate::claims::{CLAIMS, CLAIMS_MOVED};
use crate::disk::Disk;
use crate::format::{number_of, segment_name};
use crate::gather::Gather;
use crate::reserve::RESERVE;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::writer::{Recovered, SPARE, Writer};

pub(crate) use cut::prove_late;
pub use error::{Damage, OpenError};
pub(crate) use later::{refuse_later, refuse_later_file};
pub use load::Opening;
pub(crate) use load::{Found, Loaded, Manner, Watcher, load, load_watched, unreadable};
pub(crate) use names::{FOUND, MOVED, REPAIR, free_name, segments};
pub use report::{Cut, Recovery, Short};
pub(crate) use walk::{Walked, batch_at, last_of, scan_claims, seek_batch, take_batch, unread};
pub(crate) use window::{Bytes, Window};

pub(crate) fn open<D: Disk>(
    disk: D,
    settings: Settings,
    watch: Watcher<'_>,
) -> Result<(Writer<D>, Recovery), OpenError> {
    if let Some(fault) = settings.fault() {
        return Err(OpenError::Settings(fault));
    }
    let kind = refuse_later(&disk)?;
    if let (Some(found), Some(wanted)) = (kind, settings.kind)
        && found != wanted
    {
        return Err(OpenError::Kind { found, wanted });
    }
    let kind = settings.kind.or(kind);
    tidy(&disk, &settings).map_err(|error| OpenError::io("tidying the log's directory", error))?;
    let loaded = load_watched(&disk, settings.verify, Manner::Strict, watch)?;
    let (mut loaded, cut) = cut::settle(&disk, &settings, loaded)?;
    if settings.mistakes.makes(|mistakes| mistakes.trust_index)
        && let Some(state) = ahead::load(&disk, loaded.next_batch)
    {
        loaded.state = state;
    }

    let catalog = Catalog::of(
        &loaded.state,
        loaded
            .segments
            .into_iter()
            .map(|found| (found.number, found.view)),
    );
    let recovery = Recovery {
        segments: catalog.segments.len() as u64,
        batches: loaded.batches,
        records: loaded.records,
        durable_through: loaded.claims.through,
        cut,
        short: loaded.short.take(),
        claims_lost: loaded.claimed.is_damaged,
        room_not_held: !disk.holds_room(),
    };
    let said = loaded.claimed.said.unwrap_or_default();
    let log = loaded
        .log
        .or(loaded.claimed.said.map(|said| said.log))
        .or(settings.identity)
        .unwrap_or_else(|| fastrand::u64(..));
    let lived_us = loaded.lived_us.max(said.lived_us);
    if let Some((stream, first)) = &settings.begins
        && loaded.log.is_none()
    {
        loaded.state.begin_at(stream, *first);
    }
    let gather = Gather::new(loaded.state, &settings, lived_us);
    let shared = Arc::new(Shared::new(disk, settings, log, gather, catalog));
    let mut writer = Writer::new(Recovered {
        shared,
        log,
        kind,
        epoch: loaded.epoch.max(said.epoch).saturating_add(1),
        lived_us,
        claims: loaded.claims_file,
        active: loaded.active,
        next_batch: loaded.next_batch,
        durable: loaded.durable,
        unsynced: loaded.unsynced,
        unproven: loaded.unproven,
    });
    writer.claim_recovered()?;
    writer.keep_room(Duration::ZERO);
    Ok((writer, recovery))
}

/// Finishes what an earlier opening had begun, and removes what is of no use any more.
fn tidy<D: Disk>(disk: &D, settings: &Settings) -> io::Result<()> {
    let names = disk.list()?;
    let has = |number| names.contains(&segment_name(number));
    for name in &names {
        if let Some(number) = number_of(name, MOVED) {
            disk.rename(name, &segment_name(number))?;
        }
        if let Some(number) = number_of(name, FOUND).filter(|&number| !has(number)) {
            disk.rename(name, &segment_name(number))?;
        }
        if name == CLAIMS_MOVED {
            disk.rename(name, CLAIMS)?;
        }
        let is_orphan = |number| !has(number);
        let is_reserve = name == RESERVE && !settings.holds_reserve;
        let is_index = number_of(name, "idx").is_some_and(is_orphan);
        if is_reserve || is_index || [SPARE, REPAIR].contains(&&**name) {
            disk.remove(name)?;
        }
    }
    Ok(())
}
