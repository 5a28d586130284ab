//! The thread that sends snapshots of a store to its home, so that a later follower need not read
//! all changes ever made, and that removes the replaced data there.
//!
//! The one idea: pieces of a snapshot do not count until the owner commits the note about them in a
//! transaction. So an interrupted upload does no harm, and a former owner may send pieces without
//! effect.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidewire_kafka::{AtHome, Reader, SNAPSHOT, SNAPSHOT_CARRIED, Settings as Home, Target};
use tidewire_kv::durable::{KvLog, STREAM, snapshot};
use tidewire_replicate::{Bell, Notes, Share, Shown, Words};

/// How often the thread checks whether a snapshot is to be sent.
const LOOK: Duration = Duration::from_millis(500);
/// The pause before a failed upload is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// The parts that the thread works with.
pub(super) struct Needs {
    pub(super) kv_log: Arc<KvLog>,
    pub(super) identity: u64,
    /// Directory of the log, where its snapshots are.
    pub(super) directory: PathBuf,
    pub(super) target: Target,
    pub(super) home: Home,
    pub(super) notes: Notes,
    pub(super) bell: Bell,
    pub(super) shown: Shown,
    /// Bytes of changes after which a new snapshot is replicated; 0 for never.
    pub(super) growth: u64,
}

/// The thread, until this is dropped.
pub(super) struct Archive {
    stops: Arc<Stops>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stops {
    stops: AtomicBool,
    waits: Mutex<()>,
    rung: Condvar,
}

impl Stops {
    fn goes_on(&self) -> bool {
        !self.stops.load(SeqCst)
    }

    /// Waits so long; whether to go on.
    fn wait(&self, most: Duration) -> bool {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |(): &mut ()| self.goes_on();
        drop(self.rung.wait_timeout_while(waits, most, stays));
        self.goes_on()
    }
}

impl Archive {
    pub(super) fn start(needs: Needs) -> io::Result<Archive> {
        let stops = Arc::new(Stops::default());
        let theirs = stops.clone();
        let thread = thread::Builder::new().name("tidewire-archive".into());
        let thread = thread.spawn(move || {
            let mut last = None;
            while theirs.wait(LOOK) {
                if let Err(why) = needs.step(&mut last, &theirs)
                    && theirs.goes_on()
                {
                    tracing::warn!(
                        why,
                        "snapshots of the key-value store cannot be sent to the home at present"
                    );
                    theirs.wait(AGAIN);
                }
            }
        })?;
        Ok(Archive {
            stops,
            thread: Some(thread),
        })
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        {
            let _waits = self
                .stops
                .waits
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.stops.stops.store(true, SeqCst);
            self.stops.rung.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic.
            let _ = thread.join();
        }
    }
}

/// The last snapshot in the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    snapshot: Option<AtHome>,
    /// Bytes that had ever gone home when it was sent, by any owner.
    carried: u64,
}

impl Last {
    /// Finds the last snapshot from the notes in the home.
    fn of(words: &Words) -> Last {
        let snapshot = words.get(SNAPSHOT).and_then(|word| AtHome::decode(word));
        let carried = words.get(SNAPSHOT_CARRIED);
        let carried = carried.and_then(|word| word.first_chunk().copied());
        Last {
            snapshot,
            carried: carried.map_or(0, u64::from_le_bytes),
        }
    }

    /// Whether so much has gone home since that another one is to.
    fn is_due(&self, carried: u64, growth: u64) -> bool {
        carried.saturating_sub(self.carried) >= growth
    }
}

impl Needs {
    /// Sends the newest snapshot to the home if a snapshot is due. `last` is the snapshot in the
    /// home, once it is known.
    fn step(&self, last: &mut Option<Last>, stops: &Stops) -> Result<(), String> {
        let status = self.shown.status();
        let position = self.kv_log.snapshots().status().position;
        let is_ours = status.home.contains_key(STREAM) && self.kv_log.lost().is_none();
        let is_asked_for = self.growth > 0 || status.needs_snapshot;
        if !is_asked_for || position == 0 || !is_ours {
            return Ok(());
        }
        let before = match last {
            Some(before) => *before,
            None => {
                let held = tidewire_kafka::held(&self.target, Share::Whole, &self.home);
                *last.insert(Last::of(&held.map_err(|e| e.to_string())?.notes))
            }
        };
        if !status.needs_snapshot && !before.is_due(status.carried, self.growth) {
            return Ok(());
        }
        if status.needs_snapshot {
            tracing::info!(
                position,
                "the key-value store is older than its home: its snapshot is sent first, and level replicated is promised after that"
            );
        }
        let before = before.snapshot;
        if before.is_some_and(|before| before.position >= position) {
            return Ok(());
        }
        let path = self.directory.join(snapshot::name(position));
        // The snapshot may have been replaced by a newer one, which is seen the next time.
        let mut file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let what = (fastrand::u64(..), self.identity, position);
        let mut goes_on = || stops.goes_on() && self.kv_log.lost().is_none();
        let (target, home) = (&self.target, &self.home);
        let sent = tidewire_kafka::send_snapshot(target, home, what, &mut file, &mut goes_on);
        let sent = sent.map_err(|e| e.to_string())?;
        // The changes in the snapshot have to be at home before it, or a takeover would find more
        // than the home has.
        let is_home = || {
            let home = self.shown.status().home;
            home.get(STREAM).is_some_and(|&home| home >= position)
        };
        while !is_home() {
            if !stops.wait(LOOK) || self.kv_log.lost().is_some() {
                return Ok(());
            }
        }
        let word = sent.encode();
        let carried = status.carried.to_le_bytes();
        self.notes.put(SNAPSHOT_CARRIED, &carried);
        self.notes.put(SNAPSHOT, &word);
        self.bell.ring();
        while self.notes.at_home(SNAPSHOT).as_deref() != Some(&word[..]) {
            if !stops.wait(LOOK) || self.kv_log.lost().is_some() {
                return Ok(());
            }
        }
        tracing::info!(
            position,
            bytes = sent.bytes,
            "a snapshot of the key-value store is at home"
        );
        *last = Some(Last {
            snapshot: Some(sent),
            carried: status.carried,
        });
        // The one before stays, for followers that have begun with it.
        if let Some(before) = before {
            let records = Reader::find(target, home, before.position);
            let records = records.map_err(|e| e.to_string())?;
            tidewire_kafka::forget(target, home, records, before.from).map_err(|e| {
                format!("old changes and snapshots were not removed from the home: {e}")
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often the process has begun anew since: what it counts is what the home says.
    #[test]
    fn what_went_home_since_the_last_snapshot_is_counted_across_starts() {
        let mut words = Words::new();
        assert!(!Last::of(&words).is_due(99, 100));
        assert!(Last::of(&words).is_due(100, 100));
        let sent = AtHome {
            id: 1,
            log: 2,
            position: 3,
            from: 4,
            pieces: 5,
            bytes: 6,
        };
        words.insert(SNAPSHOT.into(), sent.encode().into());
        words.insert(SNAPSHOT_CARRIED.into(), 100_u64.to_le_bytes()[..].into());
        let last = Last::of(&words);
        assert_eq!((last.snapshot, last.carried), (Some(sent), 100));
        assert!(!last.is_due(199, 100));
        assert!(last.is_due(200, 100));
        // A home that counts from less on, such as one that was made anew.
        assert!(!last.is_due(50, 100));
    }
}
