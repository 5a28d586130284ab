//! A job of the thread for scripts, as the thread that watches it sees it.
//!
//! A hook looks at each script every some instructions. One instruction can take minutes, though: Lua 5.1 hashes without
//! a seed, so a script can choose keys that collide when their table grows. Code that the hook does not reach is watched
//! from here, and ended by its [`Fence`].

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewire::Permit;

use super::cache::Long;
use super::fence::Fence;
use super::stops::{ENDING, LOAD_MAX};
use super::text::Script;
use crate::service::batch::Batch;
use crate::service::message::Message;
use crate::service::shared::Shared;
use crate::service::slowlog::shortened;

/// How often is looked.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// How long a script that is to end may take to do so, before it is ended from outside.
const GRACE: Duration = Duration::from_millis(400);

/// The kind of code that runs within the interpreter.
#[derive(Debug)]
enum Within {
    /// A library or a text is loaded.
    Load,
    Script {
        script: Arc<Script>,
        /// The command that FUNCTION STATS shows.
        command: Vec<Vec<u8>>,
    },
}

/// The progress of the script.
#[derive(Debug, Default)]
struct Stage {
    within: Option<Within>,
    begun: Option<Instant>,
    /// When the watch first saw that the script is to end.
    to_end: Option<Instant>,
    /// Whether other clients were told that the script takes long.
    busy: bool,
}

/// A job that runs.
pub(super) struct Watched {
    pub(super) fence: Fence,
    pub(super) shared: Arc<Shared>,
    /// Taken by the thread that answers the client.
    permit: Mutex<Option<Permit<Message>>>,
    is_transaction: bool,
    stage: Mutex<Stage>,
    /// The answer of a command that is committed, which is the client's however the rest of the job ends.
    done: Mutex<Option<(Vec<u8>, u64)>>,
    /// Whether shards are kept from other threads.
    pub(super) keeps: AtomicBool,
    /// Whether the transaction has changed a key: it cannot be ended half way.
    pub(super) wrote: AtomicBool,
}

/// Why a script is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Killed,
    Load,
    ServerEnds,
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is about a thread beside the loops, whose clock is not its own"
)]
fn now() -> Instant {
    Instant::now()
}

/// Time since the epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "it is beside the loops, and brings the clock"
)]
pub(super) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

impl Watched {
    pub(super) fn new(
        shared: Arc<Shared>,
        permit: Permit<Message>,
        is_transaction: bool,
    ) -> Watched {
        Watched {
            fence: Fence::new(),
            shared,
            permit: Mutex::new(Some(permit)),
            is_transaction,
            stage: Mutex::default(),
            done: Mutex::default(),
            keeps: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A script begins.
    pub(super) fn begin_script(&self, script: &Arc<Script>, args: &[&[u8]]) {
        self.begin(Within::Script {
            script: script.clone(),
            command: shortened(args),
        });
    }

    /// A library or a text is loaded.
    pub(super) fn begin_load(&self) {
        self.begin(Within::Load);
    }

    fn begin(&self, within: Within) {
        let mut stage = self.stage();
        stage.within = Some(within);
        stage.begun = Some(now());
        stage.to_end = None;
    }

    /// The script has come to its end: other clients are not told of it any more.
    pub(super) fn end(&self) {
        let mut stage = self.stage();
        self.end_stage(&mut stage);
    }

    fn end_stage(&self, stage: &mut Stage) {
        (stage.within, stage.begun, stage.to_end) = (None, None, None);
        if std::mem::take(&mut stage.busy) {
            self.shared.set_busy(false);
            *self.shared.scripts.long() = None;
        }
    }

    /// Other clients are told from now on that the script takes long.
    pub(super) fn tell_busy(&self) {
        self.tell_busy_at(&mut self.stage());
    }

    fn tell_busy_at(&self, stage: &mut Stage) {
        let Some(Within::Script { script, command }) = &stage.within else {
            return;
        };
        if stage.busy {
            return;
        }
        tracing::warn!(
            script = script.name,
            "a script takes long: others are told BUSY until it ends, or SCRIPT KILL ends it"
        );
        *self.shared.scripts.long() = Some(Long {
            name: script.name.clone(),
            command: command.clone(),
            begun: now(),
        });
        stage.busy = true;
        self.shared.set_busy(true);
    }

    /// The command is committed, with this answer.
    pub(super) fn is_done(&self, reply: &[u8], ticket: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done = Some((reply.to_vec(), ticket));
    }

    /// Answers the client, unless that was done.
    pub(super) fn answer(&self, reply: Vec<u8>, ticket: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let (reply, ticket) = done.take().unwrap_or((reply, ticket));
        drop(done);
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = permit.take();
        drop(permit);
        if let Some(permit) = taken {
            permit.post(Message::Served(reply, ticket));
        }
    }

    /// Looks at what runs. Why it was ended, if it was; whether others are told that it takes long.
    pub(super) fn look(&self) -> (Option<Why>, bool) {
        let mut stage = self.stage();
        let Some(begun) = stage.begun else {
            return (None, false);
        };
        let now = now();
        let took = now - begun;
        let limit = Duration::from_millis(self.shared.config.script_ms.load(Relaxed));
        // The hook is the first to tell, where it is reached.
        if !limit.is_zero() && took > limit + LOOK && self.keeps.load(Relaxed) {
            self.tell_busy_at(&mut stage);
        }
        let busy = stage.busy;
        let Some(why) = self.why(&stage, took) else {
            return (None, busy);
        };
        let since = *stage.to_end.get_or_insert(now);
        if now - since < GRACE || !self.fence.cut() {
            return (None, busy);
        }
        self.end_cut(&mut stage, why);
        (Some(why), busy)
    }

    /// Why what runs is to end.
    fn why(&self, stage: &Stage, took: Duration) -> Option<Why> {
        let scripts = &self.shared.scripts;
        if scripts.is_ending() && took > ENDING {
            return Some(Why::ServerEnds);
        }
        if self.wrote.load(Relaxed) {
            return None;
        }
        match stage.within.as_ref()? {
            Within::Script { .. } => {
                let is_killed = scripts.phase.runs() && scripts.phase.is_killed();
                is_killed.then_some(Why::Killed)
            }
            Within::Load => (took > LOAD_MAX).then_some(Why::Load),
        }
    }

    /// Gives back the script's locks and keys, and answers for it. The script's thread holds no
    /// part of the store any more.
    fn end_cut(&self, stage: &mut Stage, why: Why) {
        let shared = &self.shared;
        let scripts = &shared.scripts;
        scripts.stopped.fetch_add(1, Relaxed);
        let (name, is_script) = match &stage.within {
            Some(Within::Script { script, .. }) => (script.name.clone(), true),
            _ => (String::new(), false),
        };
        let has_written = self.wrote.load(Relaxed) || is_script && scripts.phase.wrote();
        let text = match why {
            Why::Killed => scripts.killed().0.into_owned(),
            Why::Load => "ERR Error loading: it takes too long (FUNCTION LOAD timeout)".to_owned(),
            Why::ServerEnds => {
                "ERR Error running script: the server ends, and it takes long".to_owned()
            }
        };
        tracing::warn!(
            script = name,
            ?why,
            "a script is ended whose thread does not come back from one instruction: the thread is given up"
        );
        if is_script {
            scripts.phase.end();
        }
        // Changes of the script that are in no unit stay out of reach: the server ends.
        if self.keeps.load(Relaxed) && !has_written {
            shared.store.open_kept();
        }
        if !has_written {
            self.end_stage(stage);
        }
        stage.begun = None;
        let line = match self.is_transaction {
            true => format!("-EXECABORT Transaction discarded because of: {text}\r\n"),
            false if is_script => format!("-{text} script: {name}.\r\n"),
            false => format!("-{text}\r\n"),
        };
        self.answer(line.into_bytes(), 0);
        if !has_written {
            // Keys that became ready meanwhile were left to the end of the script.
            let now_ms = wall().as_millis() as u64;
            let seed = scripts.given_up.load(Relaxed);
            let mut batch = Batch::new(shared, 0, now_ms, seed);
            batch.end();
            batch.commit();
        }
        scripts.wake_parked();
    }
}
