//! One live session for each producer: a newer session fences the older.
//!
//! The lock of a session is held while the session appends. So once a session is fenced, none of
//! its messages can reach the log any more, and the producer's mark is final. The lock is taken
//! once a chunk, and no other connection wants it unless the producer connects twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire::Handle;
use tidewire_log::ProducerId;
use tidewire_replicate::{Ending, Hold};

use super::message::Message;
use crate::mistakes::Mistakes;

/// Shards, so that hellos on different loops seldom meet.
const SHARDS: usize = 16;

/// All live sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    shards: [Mutex<BTreeMap<ProducerId, Arc<Session>>>; SHARDS],
    mistakes: Mistakes,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    producer: ProducerId,
    /// The partition that the session is bound to, where partitions move.
    hold: Option<Arc<Hold>>,
    handle: Handle<Message>,
    live: Mutex<bool>,
}

impl Sessions {
    pub(super) fn new(mistakes: Mistakes) -> Sessions {
        Sessions {
            shards: Default::default(),
            mistakes,
        }
    }

    /// Begins the session of `producer` on the connection of `handle`, and fences the older one.
    pub(super) fn begin(
        &self,
        producer: ProducerId,
        hold: Option<Arc<Hold>>,
        handle: Handle<Message>,
    ) -> Arc<Session> {
        let session = Arc::new(Session {
            producer,
            hold,
            handle,
            live: Mutex::new(true),
        });
        // Under the shard's lock, so that of three hellos at once the last waits for the first.
        let mut shard = self.shard(producer);
        if let Some(older) = shard.insert(producer, session.clone())
            && !self.mistakes.makes(|mistakes| mistakes.fence_nobody)
        {
            *older.lock() = false;
            if older.handle.try_post(Message::Fenced).is_err() {
                older.handle.finish();
            }
        }
        session
    }

    /// The connection of this session has gone.
    pub(super) fn end(&self, session: &Arc<Session>) {
        let mut shard = self.shard(session.producer);
        if let Some(newest) = shard.get(&session.producer)
            && Arc::ptr_eq(newest, session)
        {
            shard.remove(&session.producer);
        }
    }

    /// Tells producers whose partition is handed over, or belongs to another server.
    pub(super) fn unbind(&self) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for session in shard.values() {
                let hold = session.hold.as_ref();
                if hold.is_some_and(|hold| hold.ending() != Ending::No)
                    && session.handle.try_post(Message::Unbound).is_err()
                {
                    session.handle.finish();
                }
            }
        }
    }

    fn shard(&self, producer: ProducerId) -> MutexGuard<'_, BTreeMap<ProducerId, Arc<Session>>> {
        let shard = &self.shards[producer.0 as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        let len = |shard: &Mutex<BTreeMap<_, _>>| {
            let shard = shard.lock();
            shard.unwrap_or_else(PoisonError::into_inner).len()
        };
        self.shards.iter().map(len).sum()
    }
}

impl Session {
    /// Does something unless the session is fenced, and keeps it from being fenced meanwhile.
    #[inline]
    pub(super) fn unless_fenced<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let live = self.lock();
        live.then(f)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
