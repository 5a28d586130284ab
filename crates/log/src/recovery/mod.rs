//! Opening a log: reading what is there, telling a torn tail from damage, and making the one good
//! beginning of the other.
//!
//! The one idea: every batch says up to which batch the log was durable when it was written. What
//! is bad and at or below such a claim was acknowledged, so it is damage and the log does not open.
//! What is bad and above every claim was under way when the power went: it is cut off, with
//! everything behind it.

mod cut;
mod later;
mod load;
mod walk;
mod window;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::Kind;
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
pub(crate) use later::{refuse_later, refuse_later_file};
pub use load::Opening;
pub(crate) use load::{Found, Loaded, Manner, Watcher, contents, load, load_watched, unreadable};
pub(crate) use walk::{
    Claims, Walked, batch_at, last_of, scan_claims, seek_batch, take_batch, unread,
};
pub(crate) use window::{Bytes, Window};

/// What was found when the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// How many segments there are.
    pub segments: u64,
    /// How many batches were read; with [`Verify::Tail`](crate::Verify::Tail) not all.
    pub batches: u64,
    /// How many records were read; with [`Verify::Tail`](crate::Verify::Tail) not all.
    pub records: u64,
    /// The last batch that another one says was durable.
    pub durable_through: u64,
    /// What was cut off as a torn tail, if anything.
    pub cut: Option<Cut>,
    /// The newest segment was made shorter since it was written: nothing says how much is missing, if anything.
    pub short: Option<Short>,
    /// The file of claims was unreadable: what it said of the end of the log is not known.
    pub claims_lost: bool,
    /// Room that was reserved may be gone when it is written, as the file system copies blocks: a
    /// disk that runs full can make the log fail, instead of refuse in time.
    pub room_not_held: bool,
}

/// A torn tail: what was being written when the process or the power went.
///
/// Nothing on the disk says that it was acknowledged as durable. It may have been all the same, if
/// the process was killed less than a second after its last group and the disk has damaged it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first thing that is wrong; what is cut off begins with its batch.
    pub at: Damage,
    /// Bytes that were not zero behind it, in all segments.
    pub bytes: u64,
    /// Batches behind it that were whole, but follow one that is not.
    pub whole_batches: u64,
    /// The files in which what was cut off is kept, as far as there was room for it; `tidewire log
    /// dump FILE` shows one.
    pub kept_in: Vec<String>,
}

/// A newest segment that ends as no crash leaves it: without the room that is reserved behind the last batch, though the log was not closed.
/// What was cut off had no claim on it but its own, if it was of the last half second or came without a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The file.
    pub file: String,
    /// Its length; bytes.
    pub length: u64,
    /// The last batch that is whole.
    pub last: u64,
    /// The last batch of which something says that it was durable. What came behind `last` may have been acknowledged.
    pub durable_through: u64,
}

/// Something that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Bytes from its beginning.
    pub offset: u64,
    /// The number of the batch that should be there.
    pub batch: u64,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage {
            file,
            offset,
            batch,
            expected,
            found,
        } = self;
        write!(
            f,
            "{file}: at byte {offset} (batch {batch}): expected {expected}, found {found}"
        )
    }
}

/// Why a log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system says so.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Records that were acknowledged as durable are not there any more.
    #[error(
        "{damage}; batches up to {claimed} were durable, so this is damage and not a torn tail. \
         Nothing was changed. `tidewire log check` shows everything that is wrong, `tidewire log \
         repair` keeps all that is not"
    )]
    Damaged {
        /// Where, and what.
        damage: Damage,
        /// The last batch that another one says was durable.
        claimed: u64,
    },
    /// A later version has written it, or what its readers must know is not known here.
    #[error(
        "{file}: at byte {offset}: {found}, which a later version of Tidewire has written and this one does not know. \
         Nothing was changed; use that version, or one that is newer still"
    )]
    Later {
        /// The file.
        file: String,
        /// Bytes from its beginning.
        offset: u64,
        /// What is there.
        found: String,
    },
    /// It is of something else than what it was to be opened as.
    #[error(
        "this is a log of {found}, and not of {wanted}. Nothing was changed; --data is the directory of a server's data, in \
         which messages are, and keys in `kv`"
    )]
    Kind {
        /// What it is of.
        found: Kind,
        /// What it was to be of.
        wanted: Kind,
    },
    /// A setting is out of its range.
    #[error("{0}")]
    Settings(&'static str),
}

impl OpenError {
    pub(crate) fn io(what: impl fmt::Display, source: io::Error) -> OpenError {
        OpenError::Io {
            what: what.to_string(),
            source,
        }
    }
}

/// A segment on its way through recovery: a name for the time that its directory entry is written
/// anew.
pub(crate) const MOVED: &str = "moved";

/// A segment that a repair has found under the name of another one, until it has its own.
pub(crate) const FOUND: &str = "found";

/// What a repair is about to put in the place of a segment.
pub(crate) const REPAIR: &str = "repair.new";

fn unreadable_file(file: &str, error: io::Error) -> OpenError {
    OpenError::io(format!("reading {file}"), error)
}

/// The numbers of all segments, in order.
pub(crate) fn segments<D: Disk>(disk: &D) -> io::Result<Vec<u64>> {
    let names = disk.list()?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| number_of(name, "seg"))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

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

    let catalog = Catalog::of(&loaded.state, loaded.segments);
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

/// Makes a segment's name durable even if the system has forgotten that it is not: by changing it.
fn rename_anew<D: Disk>(disk: &D, number: u64) -> io::Result<()> {
    let (name, moved) = (segment_name(number), format!("{number:020}.{MOVED}"));
    disk.rename(&name, &moved)?;
    disk.rename(&moved, &name)
}

/// A name that no file has: what was kept earlier stays.
pub(crate) fn free_name(names: &[String], wanted: &str) -> String {
    let candidates = (2..).map(|count| format!("{wanted}.{count}"));
    std::iter::once(wanted.to_owned())
        .chain(candidates)
        .find(|name| !names.contains(name))
        .expect("there are more numbers than files")
}
