//! The interpreter of a loop: made for its first script, and anew where one has left it large.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidewire_lua::{Stop, Verdict, Vm};

use super::stops::{BOUND, CUT, ELSEWHERE, ENDING, LOAD_MAX};
use super::watched::Watched;
use crate::service::shared::Shared;
use crate::store::Seen;

/// The watch on the running script.
pub(super) struct Running {
    begun: Cell<Option<Instant>>,
    /// Not to keep the server: the thread for scripts has an interpreter between them.
    shared: Weak<Shared>,
    what: Cell<What>,
    /// How often the script was looked at since it takes too long.
    looks: Cell<u32>,
    /// Whether the script has published a message, which must not be published twice.
    pub(super) said: Cell<bool>,
    /// The watch that ends a script which the hook does not reach; on the thread for scripts, while
    /// one runs.
    watched: RefCell<Option<Arc<Watched>>>,
}

/// The kind of code that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A script that no client could end: it is ended when it takes too long and has written
    /// nothing.
    Alone,
    /// A script on a loop that begins anew on the thread for scripts when it takes longer than
    /// others of the loop may wait.
    Here,
    /// A script on that thread, which other clients can end.
    Apart,
    /// A script of a transaction on a loop that has commands which only the loop can run: it cannot go elsewhere.
    Bound,
    /// A library that is being loaded.
    Library,
    /// A library that is loaded on a loop: that goes elsewhere like a script if it takes long.
    LibraryHere,
}

/// A script on a loop goes to the thread for scripts after this time, if it has written nothing.
const MOVE_AFTER: Duration = Duration::from_millis(2);
/// A script that only its loop can run may take so long, and in any case as long as so many looks: the thread may not have
/// had the processor.
const BOUND_MAX: Duration = Duration::from_millis(20);
const BOUND_LOOKS: u32 = 400;
/// Bytes that a script on a loop may take beside its arguments. A table of numbers that fills them has 4,096 places: if all
/// of its keys collide when it grows, that takes some fifteen milliseconds.
pub(super) const LEASH: usize = 512 << 10;
/// Looks between two times that others are told of a script that takes long: some ten milliseconds.
const LOOKS: u32 = 1 << 10;

/// An interpreter and its limits.
pub(crate) struct Interpreter {
    pub(super) vm: Vm,
    pub(super) running: Rc<Running>,
    memory_max: usize,
    flushes: u64,
    /// The number of the last change of libraries that the interpreter knows.
    functions: u64,
    told: usize,
}

#[expect(
    clippy::disallowed_methods,
    reason = "it interrupts what the loop's clock stands still for"
)]
fn now() -> Instant {
    Instant::now()
}

impl Running {
    pub(super) fn begin(&self, what: What, watched: Option<&Arc<Watched>>) {
        self.watched.replace(watched.cloned());
        self.begun.set(Some(now()));
        self.what.set(what);
        self.looks.set(0);
        self.said.set(false);
    }

    /// The running code has come to its end.
    pub(super) fn end(&self) {
        self.begun.set(None);
        self.watched.replace(None);
    }

    /// Whether another thread has ended the running script.
    fn is_cut(&self) -> bool {
        let watched = self.watched.borrow();
        watched
            .as_ref()
            .is_some_and(|watched| watched.fence.is_cut())
    }

    /// Whether the script goes on, or how it ends. One that has written is not ended: half of what it does
    /// would stay.
    fn watch(&self) -> Verdict {
        let Some(shared) = self.shared.upgrade() else {
            return Verdict::Go;
        };
        if self.is_cut() {
            return Verdict::Stop(Stop(CUT.into()));
        }
        let scripts = &shared.scripts;
        let took = self
            .begun
            .get()
            .map_or(Duration::ZERO, |begun| now() - begun);
        if self.what.get() == What::Library {
            return if took > LOAD_MAX {
                Verdict::Stop(Stop("ERR FUNCTION LOAD timeout".into()))
            } else {
                Verdict::Go
            };
        }
        let elsewhere = Verdict::Stop(Stop(ELSEWHERE.into()));
        if self.what.get() == What::LibraryHere {
            return if took > MOVE_AFTER {
                elsewhere
            } else {
                Verdict::Go
            };
        }
        let wrote = scripts.phase.wrote();
        if scripts.phase.is_killed() {
            // A killed script is counted when it ends.
            return Verdict::Stop(scripts.killed());
        }
        let has_done = wrote || self.said.get();
        if !has_done && self.what.get() == What::Here && took > MOVE_AFTER {
            return elsewhere;
        }
        if !has_done && self.what.get() == What::Bound {
            let looks = self.looks.get().saturating_add(1);
            self.looks.set(looks);
            if took > BOUND_MAX && looks > BOUND_LOOKS {
                return Verdict::Stop(Stop(BOUND.into()));
            }
        }
        if scripts.is_ending() && took > ENDING {
            scripts.stopped.fetch_add(1, Relaxed);
            return Verdict::Stop(Stop(
                "ERR Error running script: the server ends, and it takes long".into(),
            ));
        }
        let limit_ms = shared.config.script_ms.load(Relaxed);
        if limit_ms == 0 || took <= Duration::from_millis(limit_ms) {
            return Verdict::Go;
        }
        if !wrote && self.what.get() == What::Alone {
            scripts.stopped.fetch_add(1, Relaxed);
            return Verdict::Stop(Stop(
                "ERR Error running script: it took longer than busy-reply-threshold and had written nothing".into(),
            ));
        }
        let looks = self.looks.get();
        self.looks.set(looks.wrapping_add(1));
        if looks.is_multiple_of(LOOKS) {
            Verdict::Tell
        } else {
            Verdict::Go
        }
    }
}

impl Interpreter {
    /// A new one.
    ///
    /// # Errors
    /// The interpreter does not fit into the limit of memory.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Interpreter, String> {
        let running = Rc::new(Running {
            begun: Cell::new(None),
            shared: Arc::downgrade(shared),
            what: Cell::new(What::Alone),
            looks: Cell::new(0),
            said: Cell::new(false),
            watched: RefCell::default(),
        });
        let memory_max = shared.config.script_memory.load(Relaxed);
        let watched = running.clone();
        let vm = Vm::new(memory_max, move || watched.watch())?;
        Ok(Interpreter {
            vm,
            running,
            memory_max,
            flushes: shared.scripts.flushes.load(Relaxed),
            functions: shared.store.library_changes(Seen::Committed),
            told: 0,
        })
    }

    /// Whether the interpreter can be used for another script: kept interpreters of all loops
    /// together take no more memory than one may.
    pub(super) fn is_fresh(&mut self, shared: &Shared) -> bool {
        let flushes = shared.scripts.flushes.load(Relaxed);
        if std::mem::replace(&mut self.flushes, flushes) != flushes {
            self.vm.forget();
        }
        let functions = shared.store.library_changes(Seen::Committed);
        let before = std::mem::replace(&mut self.functions, functions);
        if before != functions {
            match shared.store.libraries_gone(before..functions) {
                Some(gone) => gone.into_iter().for_each(|id| self.vm.forget_library(id)),
                None => {
                    // Libraries of a unit under way, too, which this loop may be running.
                    let mut known = shared.store.libraries_as(Seen::Committed);
                    known.extend(shared.store.libraries_as(Seen::Newest));
                    let known: HashSet<u64> = known.iter().map(|library| library.id).collect();
                    self.vm.keep_libraries(|id| known.contains(&id));
                }
            }
        }
        self.memory_max == shared.config.script_memory.load(Relaxed)
            && self.vm.used_memory() < self.memory_max / 2
            && shared.scripts.vm_bytes.load(Relaxed) <= self.memory_max
    }

    /// Reports how much memory the interpreter takes.
    pub(super) fn tell(&mut self) {
        let used = self.vm.used_memory();
        if let Some(shared) = self.running.shared.upgrade() {
            let all = &shared.scripts.vm_bytes;
            all.fetch_add(used, Relaxed);
            all.fetch_sub(self.told, Relaxed);
            self.told = used;
        }
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        if let Some(shared) = self.running.shared.upgrade() {
            shared.scripts.vm_bytes.fetch_sub(self.told, Relaxed);
        }
    }
}
