//! Building a store again from the units in its log.
//!
//! The one idea: units are replayed at time 0, so a key expires only where a unit says so. So each
//! unit finds the keys that were there when it ran first.

use std::ops::ControlFlow;
use std::sync::Arc;

use tidewire_log::disk::Disk;
use tidewire_log::{Credit, EmbeddedLog, Log, NAMELESS, Range, ReadError, Refused};

use super::player::Player;
use super::snapshot::{Found, SnapshotError, load};
use super::{KvLog, STREAM};
use crate::store::{Malformed, Mistakes, Reader, Store};

/// Bytes of records that are read at once; what was read is played while the next is.
const READ_AT_ONCE: usize = 1 << 20;

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Units that were replayed.
    pub units: u64,
    /// Records in which the units were.
    pub records: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Records of a last unit that was never completed; they do not count.
    pub unclosed: u64,
    /// Positions that damage took, and that were passed over: see [`Accept::Gaps`].
    pub lost: u64,
    /// The log ends before the snapshot, which is all that there is: see [`Accept::GapsAndEnd`].
    pub end_is_lost: bool,
    /// The snapshot before the replayed units, once it is read.
    pub snapshot: Option<Found>,
}

/// Why a store cannot be built from its log.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log does not have the stream, and cannot make it now.
    #[error("making the stream `{STREAM}` of the log: {0}")]
    Stream(#[from] Refused),
    /// The log could not be read.
    #[error("reading the log: {0}")]
    Read(#[from] ReadError),
    /// No whole snapshot is there to begin with.
    #[error("the snapshot {0}")]
    Snapshot(#[source] SnapshotError),
    /// The first records are gone, so what they have changed is not known.
    #[error(
        "the log begins at position {first} and not at {needed}{}: the changes between are missing",
        if *.needed == 0 { ", and there is no snapshot" } else { ", where the snapshot ends" }
    )]
    Shortened {
        /// The first position that is left.
        first: u64,
        /// The position where the log should begin.
        needed: u64,
    },
    /// The end of the log is gone.
    #[error(
        "the snapshot is of position {position}, and the log ends at {next}: its end is lost. Put it back, or a backup of \
         both; `tidewire kv export --accept-loss` writes a dump of what the snapshot has"
    )]
    Behind {
        /// Position of the snapshot.
        position: u64,
        /// Position of the next record.
        next: u64,
    },
    /// The stream of the store may be one whose name is lost.
    #[error(
        "the log has no stream `{STREAM}`, and {stream:?}, whose name damage took, may be it: put a backup of the \
         log back, or begin in another directory; `tidewire read` shows what is in it"
    )]
    Nameless {
        /// The present name of the stream.
        stream: String,
    },
    /// A record is none of the store's.
    #[error("the record at position {position} of the stream `{STREAM}`: {what}")]
    Malformed {
        /// The position of the record.
        position: u64,
        /// The fault, in words.
        what: Malformed,
    },
    /// A command cannot be run.
    #[error(
        "the record at position {position} of the stream `{STREAM}` has a command that does not run \
         here: {command}: {why}"
    )]
    Command {
        /// The position of the record.
        position: u64,
        /// Name of the command.
        command: String,
        /// The reason.
        why: String,
    },
    /// The progress callback stopped the replay.
    #[error("the progress callback stopped the replay")]
    Stopped,
}

/// The losses behind which a start goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// No loss: nothing may be missing.
    #[default]
    Nothing,
    /// Accept the gaps that a repair of the log has marked. Units in a gap stay lost, and the store is made of the
    /// remaining units. Each unit is whole, because a unit is in one batch. A unit that does not run without the lost
    /// ones is refused all the same.
    Gaps,
    /// Accept gaps, and a log that ends before the snapshot: then the store holds what the snapshot
    /// holds. Use this only for reading: later changes would have positions below the snapshot's,
    /// and the next start would not find them.
    GapsAndEnd,
}

/// Builds `store`, which is empty, from the newest snapshot beside the log and the log behind it,
/// and has the store commit to it from then on. `now_ms` is milliseconds since 1970; `progress` is
/// called now and then: with bytes of the snapshot and how many there are, then with positions of
/// the log and its end; it says whether to go on. No other code may use the store meanwhile, see
/// [`Store::begin_loading`].
///
/// # Errors
/// See [`ReplayError`]; the store is of no use then.
pub fn open<D: Disk>(
    log: Arc<EmbeddedLog<D>>,
    store: &Store,
    now_ms: u64,
    accept: Accept,
    progress: impl FnMut(&Replayed, u64, u64) -> ControlFlow<()>,
) -> Result<(Arc<KvLog>, Replayed), ReplayError> {
    open_with(log, store, now_ms, accept, progress, Mistakes::default())
}

/// [`open`] with mistakes.
#[doc(hidden)]
pub fn open_with<D: Disk>(
    log: Arc<EmbeddedLog<D>>,
    store: &Store,
    now_ms: u64,
    accept: Accept,
    mut progress: impl FnMut(&Replayed, u64, u64) -> ControlFlow<()>,
    mistakes: Mistakes,
) -> Result<(Arc<KvLog>, Replayed), ReplayError> {
    let range = log.range(STREAM);
    if range.is_none()
        && let Some(nameless) = log.streams(NAMELESS, 1).first()
        && nameless.name.starts_with(NAMELESS)
    {
        let stream = nameless.name.to_string();
        return Err(ReplayError::Nameless { stream });
    }
    let range = range.unwrap_or(Range { first: 0, next: 0 });
    let mut replayed = Replayed::default();
    let mut reading = |done, of| progress(&replayed, done, of);
    replayed.snapshot = load(
        log.disk(),
        log.identity(),
        range,
        store,
        now_ms,
        &mut reading,
    )
    .map_err(|error| match error {
        SnapshotError::Stopped => ReplayError::Stopped,
        error => ReplayError::Snapshot(error),
    })?;
    let late = mistakes.makes(|mistakes| mistakes.replay_late);
    let player = Player::new(store, if late { now_ms } else { 0 }, now_ms);
    replay(
        &*log,
        range,
        &player,
        &mut replayed,
        &mut progress,
        mistakes,
        accept,
    )?;
    let stream = log.stream(STREAM)?;
    let kv_log = KvLog::new(log.clone(), stream)
        .at(range.next, replayed.units, replayed.bytes)
        .with_segments(log.segment_bytes())
        .with_units(log.group_bytes())
        .with_mistakes(mistakes);
    let kv_log = Arc::new(kv_log);
    kv_log.update();
    store.set_effects(kv_log.clone());
    Ok((kv_log, replayed))
}

/// Plays what the log has behind the snapshot: a stretch by several threads, while the next one is read.
fn replay(
    log: &dyn Log,
    range: Range,
    player: &Player<'_>,
    replayed: &mut Replayed,
    progress: &mut dyn FnMut(&Replayed, u64, u64) -> ControlFlow<()>,
    mistakes: Mistakes,
    accept: Accept,
) -> Result<(), ReplayError> {
    let position = replayed.snapshot.map_or(0, |found| found.header.position);
    if range.first > position {
        return Err(ReplayError::Shortened {
            first: range.first,
            needed: position,
        });
    }
    if range.next < position {
        if accept == Accept::GapsAndEnd {
            replayed.end_is_lost = true;
            return Ok(());
        }
        return Err(ReplayError::Behind {
            position,
            next: range.next,
        });
    }
    let mut reader = Reader::with_mistakes(mistakes);
    let mut next = |mut from: u64, replayed: &mut Replayed| {
        while from < range.next {
            match log.read(STREAM, from, Credit(READ_AT_ONCE)) {
                Ok(read) => return player.prepare(read, &mut reader, replayed).map(Some),
                Err(ReadError::Missing { asked, next }) if accept != Accept::Nothing => {
                    // A unit that was begun before the gap was never completed.
                    reader = Reader::with_mistakes(mistakes);
                    replayed.unclosed = 0;
                    replayed.lost += next - asked;
                    from = next;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    };
    let mut stretch = next(position, replayed)?;
    while let Some(now) = stretch {
        let told = *replayed;
        stretch = player.play(&now, || next(now.next, replayed))?;
        if progress(&told, now.next, range.next).is_break() {
            return Err(ReplayError::Stopped);
        }
    }
    Ok(())
}
