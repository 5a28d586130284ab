//! Building a store again from the units in its log.
//!
//! The one idea: units are replayed at the beginning of time, so nothing expires but what a unit says
//! has: what they find is what was there when they ran first.

use std::collections::HashMap;
use std::sync::Arc;

use tidewire_log::disk::Disk;
use tidewire_log::{Credit, EmbeddedLog, Log, Range, ReadError, Refused};

use super::snapshot::{Found, SnapshotError, load};
use super::{KvLog, STREAM};
use crate::commands::{self, Spec};
use crate::reply::{Proto, Reply};
use crate::store::{Effect, Malformed, Mistakes, Ran, Reader, Store, split_frame};

/// Bytes of records that are read at once.
const READ_AT_ONCE: usize = 4 << 20;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Units that were replayed.
    pub units: u64,
    /// Records that they were in.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Records at the end of a unit that was never closed; they count for nothing.
    pub unclosed: u64,
    /// The snapshot that they go on from, once it is read.
    pub snapshot: Option<Found>,
}

/// Why a store cannot be built from its log.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log does not have the stream, and cannot make it now.
    #[error("making the stream `{STREAM}` of the log: {0}")]
    Stream(#[from] Refused),
    /// It could not be read.
    #[error("reading the log: {0}")]
    Read(#[from] ReadError),
    /// There is no whole snapshot to begin with.
    #[error("the snapshot {0}")]
    Snapshot(#[from] SnapshotError),
    /// The first records are gone, so what they have changed is not known.
    #[error(
        "the log begins at position {first} and not at {needed}{}: what was between is not known",
        if *.needed == 0 { ", and there is no snapshot" } else { ", where the snapshot ends" }
    )]
    Shortened {
        /// The first that is left.
        first: u64,
        /// Where it should begin.
        needed: u64,
    },
    /// The end of the log is gone.
    #[error(
        "the snapshot is of position {position}, and the log ends at {next}: its end is lost. Put it \
         back, or move the log away to go on with what the snapshot has"
    )]
    Behind {
        /// Of the snapshot.
        position: u64,
        /// Of the next record.
        next: u64,
    },
    /// A record is none of the store's.
    #[error("the record at position {position} of the stream `{STREAM}`: {what}")]
    Malformed {
        /// Where.
        position: u64,
        /// What is wrong.
        what: Malformed,
    },
    /// A command cannot be run.
    #[error(
        "the record at position {position} of the stream `{STREAM}` has a command that does not run \
         here: {command}: {why}"
    )]
    Command {
        /// Where.
        position: u64,
        /// Its name.
        command: String,
        /// The reason.
        why: String,
    },
}

/// Builds `store`, which is empty, from the newest snapshot beside the log and the log behind it, and has
/// the store commit to it from then on. `now_ms` is milliseconds since 1970; `progress` is called now and
/// then: with bytes of the snapshot and how many there are, then with positions of the log and its end.
///
/// # Errors
/// See [`ReplayError`]; the store is of no use then.
pub fn open<D: Disk>(
    log: Arc<EmbeddedLog<D>>,
    store: &mut Store,
    now_ms: u64,
    progress: impl FnMut(&Replayed, u64, u64),
) -> Result<(Arc<KvLog>, Replayed), ReplayError> {
    open_with(log, store, now_ms, progress, Mistakes::default())
}

/// [`open`] with mistakes.
#[doc(hidden)]
pub fn open_with<D: Disk>(
    log: Arc<EmbeddedLog<D>>,
    store: &mut Store,
    now_ms: u64,
    mut progress: impl FnMut(&Replayed, u64, u64),
    mistakes: Mistakes,
) -> Result<(Arc<KvLog>, Replayed), ReplayError> {
    let most = store.maxmemory();
    store.set_maxmemory(0);
    let range = log.range(STREAM).unwrap_or(Range { first: 0, next: 0 });
    let mut replayed = Replayed::default();
    let mut reading = |done, of| progress(&replayed, done, of);
    replayed.snapshot = load(
        log.disk(),
        log.identity(),
        range.first,
        store,
        now_ms,
        &mut reading,
    )?;
    let late = mistakes.makes(|mistakes| mistakes.replay_late);
    let mut player = Player::new(store, now_ms);
    player.at_ms = if late { now_ms } else { 0 };
    replay(&*log, range, player, &mut replayed, &mut progress)?;
    store.set_maxmemory(most);
    let stream = log.stream(STREAM)?;
    let kv_log = KvLog::new(log.clone(), stream)
        .at(range.next, replayed.bytes)
        .with_segments(log.segment_bytes())
        .with_mistakes(mistakes);
    let kv_log = Arc::new(kv_log);
    kv_log.update();
    store.set_effects(kv_log.clone());
    Ok((kv_log, replayed))
}

fn replay(
    log: &dyn Log,
    range: Range,
    mut player: Player<'_>,
    replayed: &mut Replayed,
    progress: &mut dyn FnMut(&Replayed, u64, u64),
) -> Result<(), ReplayError> {
    let mut position = replayed.snapshot.map_or(0, |found| found.header.position);
    if range.first > position {
        return Err(ReplayError::Shortened {
            first: range.first,
            needed: position,
        });
    }
    if range.next < position {
        return Err(ReplayError::Behind {
            position,
            next: range.next,
        });
    }
    while position < range.next {
        let read = log.read(STREAM, position, Credit(READ_AT_ONCE))?;
        for run in &read.runs {
            let (mut rest, mut at) = (&run.bytes[..], run.first);
            while let Some((payload, behind)) = split_frame(rest) {
                replayed.bytes += payload.len() as u64;
                replayed.records += 1;
                player.record(payload, at, replayed)?;
                (rest, at) = (behind, at + 1);
            }
        }
        position = read.next;
        progress(replayed, position, range.next);
    }
    replayed.unclosed = player.unclosed;
    Ok(())
}

/// Runs units on a store.
struct Player<'s> {
    store: &'s Store,
    now_ms: u64,
    /// The time at which units run: the beginning of all.
    at_ms: u64,
    specs: HashMap<&'static [u8], &'static Spec>,
    reader: Reader,
    reply: Reply,
    /// Records of the unit that is not closed yet.
    unclosed: u64,
}

impl<'s> Player<'s> {
    fn new(store: &'s Store, now_ms: u64) -> Player<'s> {
        Player {
            store,
            now_ms,
            at_ms: 0,
            specs: commands::all()
                .map(|spec| (spec.name.as_bytes(), spec))
                .collect(),
            reader: Reader::default(),
            reply: Reply::new(Proto::Resp2),
            unclosed: 0,
        }
    }

    fn record(
        &mut self,
        payload: &[u8],
        position: u64,
        replayed: &mut Replayed,
    ) -> Result<(), ReplayError> {
        let malformed = |what| ReplayError::Malformed { position, what };
        if !self.reader.record(payload).map_err(malformed)? {
            self.unclosed += 1;
            return Ok(());
        }
        self.unclosed = 0;
        replayed.units += 1;
        let effects = self.reader.effects().map_err(malformed)?;
        let mut runner = self.store.replayer(self.at_ms, self.now_ms);
        for (db, effect) in effects {
            let args = match effect {
                Effect::Command(args) => args,
                Effect::Removed(key, _) => vec![&b"del"[..], key],
            };
            let name = args.first().copied().unwrap_or_default();
            let wrong = |why: String| ReplayError::Command {
                position,
                command: name.escape_ascii().to_string(),
                why,
            };
            let spec = self.specs.get(&name.to_ascii_lowercase()[..]);
            let spec = spec.filter(|spec| spec.takes(args.len()));
            let Some(spec) = spec else {
                return Err(wrong("there is no such command".into()));
            };
            if db >= self.store.databases() {
                return Err(wrong(format!("there is no database {db}")));
            }
            self.reply.clear();
            let ran = runner.run(spec, db, &args, &mut self.reply);
            let answer = self.reply.bytes();
            if !matches!(ran, Ran::Done) || answer.first() == Some(&b'-') {
                return Err(wrong(answer.escape_ascii().to_string()));
            }
        }
        Ok(())
    }
}
