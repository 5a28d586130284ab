//! The scripts that clients may call by their hash, and the one that runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Instant;

use sha1::{Digest, Sha1};

use tidewire::LoopHandle;
use tidewire_lua::Stop;

use super::known::Functions;
use super::phase::Phase;
use super::shebang;
use super::text::Script;
use super::thread::Thread;
use crate::commands::Error;
use crate::service::message::Message;

/// Scripts that EVAL leaves behind, at most; the ones used longest ago go first.
const EVAL_MAX: usize = 500;
/// Bytes of all scripts together, at most.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// A script in the cache.
#[derive(Debug)]
struct Kept {
    script: Arc<Script>,
    /// Whether SCRIPT LOAD has added the script, which then stays until SCRIPT FLUSH.
    loaded: bool,
    used: u64,
}

#[derive(Debug, Default)]
struct Cache {
    all: HashMap<String, Kept>,
    bytes: usize,
    /// How many scripts are cached only because they were run.
    evaluated: usize,
    uses: u64,
}

/// The scripts that all loops know.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    cache: Mutex<Cache>,
    /// How many SCRIPT FLUSH there were.
    pub(super) flushes: AtomicU64,
    pub(super) evicted: AtomicU64,
    /// Scripts that were ended for the time they took or by SCRIPT KILL, and scripts that ran into
    /// the limit of memory.
    pub(super) stopped: AtomicU64,
    pub(super) out_of_memory: AtomicU64,
    /// Threads of scripts that were given up, and how many of them have not come back.
    pub(super) given_up: AtomicU64,
    pub(super) stuck: AtomicUsize,
    /// Bytes that the interpreters of all loops take, as of the last script of each.
    pub(super) vm_bytes: AtomicUsize,
    pub(super) phase: Phase,
    /// The one that runs is a function.
    pub(super) is_function: AtomicBool,
    /// Whether the server ends: scripts that take long are ended then, even after a write.
    ends: AtomicBool,
    /// The script that takes long.
    pub(super) long: Mutex<Option<Long>>,
    /// The loops, which have connections that wait for what a script keeps.
    loops: Mutex<BTreeMap<u64, LoopHandle<Message>>>,
    loops_begun: AtomicU64,
    /// Whether there may be a thread for scripts, and the way to it.
    pub(super) apart: AtomicBool,
    pub(super) thread: Thread,
    pub(super) functions: Functions,
}

/// The facts that FUNCTION STATS shows of a script that takes long.
#[derive(Debug)]
pub(super) struct Long {
    pub(super) name: String,
    pub(super) command: Vec<Vec<u8>>,
    pub(super) begun: Instant,
}

/// The hash of a script in hexadecimal digits.
pub(super) fn name_of(text: &[u8]) -> String {
    use std::fmt::Write;
    let mut name = String::with_capacity(40);
    for byte in Sha1::digest(text) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

impl Scripts {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script of this hash, whatever the case of its digits.
    pub(super) fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        let mut cache = self.cache();
        cache.uses += 1;
        let uses = cache.uses;
        let kept = cache.all.get_mut(&name)?;
        kept.used = uses;
        Some(kept.script.clone())
    }

    /// The script of a text.
    ///
    /// # Errors
    /// The script's first line is for the server and wrong.
    pub(super) fn of(&self, text: &[u8]) -> Result<Arc<Script>, Error> {
        let name = name_of(text);
        if let Some(script) = self.find(name.as_bytes()) {
            return Ok(script);
        }
        let (flags, text) = shebang::read(text)?;
        Ok(Arc::new(Script::new(name, text.into(), flags, None)))
    }

    /// Keeps a script that compiles.
    ///
    /// # Errors
    /// There is no room for one more that is to stay.
    pub(super) fn keep(&self, script: &Arc<Script>, loaded: bool) -> Result<(), Error> {
        let mut cache = self.cache();
        let cache = &mut *cache;
        cache.uses += 1;
        if let Some(kept) = cache.all.get_mut(&script.name) {
            if loaded && !kept.loaded {
                kept.loaded = true;
                cache.evaluated -= 1;
            }
            return Ok(());
        }
        while cache.bytes + script.bytes() > BYTES_MAX || (!loaded && cache.evaluated >= EVAL_MAX) {
            if !cache.evict() {
                return match loaded {
                    true => Err(Error::new(
                        "ERR the script cache is full; SCRIPT FLUSH empties it",
                    )),
                    false => Ok(()),
                };
            }
            self.evicted.fetch_add(1, Relaxed);
        }
        cache.bytes += script.bytes();
        cache.evaluated += usize::from(!loaded);
        let kept = Kept {
            script: script.clone(),
            loaded,
            used: cache.uses,
        };
        cache.all.insert(script.name.clone(), kept);
        Ok(())
    }

    /// Why the script ends that was killed.
    pub(super) fn killed(&self) -> Stop {
        Stop(
            match self.is_function.load(Relaxed) {
                true => "ERR Error running script: Script killed by user with FUNCTION KILL.",
                false => "ERR Error running script: Script killed by user with SCRIPT KILL.",
            }
            .into(),
        )
    }

    /// Whether the script that has just run has written.
    pub(in crate::service) fn wrote(&self) -> bool {
        self.phase.wrote()
    }

    pub(super) fn flush(&self) {
        *self.cache() = Cache::default();
        self.flushes.fetch_add(1, Relaxed);
    }

    /// Ends scripts that take long, now or later, because the server ends.
    pub(crate) fn end_slow(&self) {
        self.ends.store(true, Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ends.load(Relaxed)
    }

    /// Has scripts that may take long run on a thread of their own.
    pub(crate) fn use_thread(&self) {
        self.apart.store(true, Relaxed);
    }

    /// A loop begins, whose connections may have to wait for a script; its name here.
    pub(crate) fn add_loop(&self, at: LoopHandle<Message>) -> u64 {
        let name = self.loops_begun.fetch_add(1, Relaxed);
        self.loops().insert(name, at);
        name
    }

    pub(crate) fn remove_loop(&self, name: u64) {
        self.loops().remove(&name);
    }

    /// Lets connections look again that wait for keys of a script.
    pub(crate) fn wake_parked(&self) {
        self.loops().values().for_each(LoopHandle::signal);
    }

    fn loops(&self) -> MutexGuard<'_, BTreeMap<u64, LoopHandle<Message>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script that takes long.
    pub(super) fn long(&self) -> MutexGuard<'_, Option<Long>> {
        self.long.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many scripts there are, and the bytes they take.
    pub(super) fn size(&self) -> (usize, usize) {
        let cache = self.cache();
        (cache.all.len(), cache.bytes)
    }
}

impl Cache {
    /// Forgets the script that was not used for the longest time; false if all are to stay.
    fn evict(&mut self) -> bool {
        #[expect(clippy::disallowed_methods, reason = "no two were used at one time")]
        let old = self.all.iter().filter(|(_, kept)| !kept.loaded);
        let Some(name) = old
            .min_by_key(|(_, kept)| kept.used)
            .map(|(name, _)| name.clone())
        else {
            return false;
        };
        if let Some(kept) = self.all.remove(&name) {
            self.bytes -= kept.script.bytes();
            self.evaluated -= 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_eval_leaves_behind_goes_and_what_was_loaded_stays() {
        let scripts = Scripts::default();
        let loaded = scripts.of(b"return 'loaded'").unwrap();
        scripts.keep(&loaded, true).unwrap();
        let name = |n: usize| format!("return {n}");
        for n in 0..2 * EVAL_MAX {
            let script = scripts.of(name(n).as_bytes()).unwrap();
            scripts.keep(&script, false).unwrap();
        }
        assert_eq!(scripts.size().0, EVAL_MAX + 1);
        assert_eq!(scripts.evicted.load(Relaxed), EVAL_MAX as u64);
        assert!(
            scripts
                .find(loaded.name.to_uppercase().as_bytes())
                .is_some()
        );
        assert!(
            scripts
                .find(name_of(name(0).as_bytes()).as_bytes())
                .is_none()
        );
        assert!(
            scripts
                .find(name_of(name(2 * EVAL_MAX - 1).as_bytes()).as_bytes())
                .is_some()
        );
        scripts.flush();
        assert_eq!(scripts.size(), (0, 0));
    }

    #[test]
    fn loaded_scripts_are_bounded() {
        let scripts = Scripts::default();
        let large = |n: u8| [b"--", &vec![n; BYTES_MAX / 3][..]].concat();
        for n in 0..2 {
            let script = scripts.of(&large(b'a' + n)).unwrap();
            scripts.keep(&script, true).unwrap();
        }
        let script = scripts.of(&large(b'c')).unwrap();
        assert!(scripts.keep(&script, true).is_err());
        scripts.keep(&script, false).unwrap();
        assert_eq!(scripts.size().0, 2);
    }
}
