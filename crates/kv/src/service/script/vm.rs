//! The interpreter of a loop: made for its first script, and anew where one has left it large.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidewire_lua::{Stop, Vm};

use crate::service::shared::Shared;

/// What the running script is watched by.
pub(super) struct Running {
    pub(super) begun: Cell<Option<Instant>>,
    shared: Arc<Shared>,
    /// A line was logged about it.
    warned: Cell<bool>,
}

/// An interpreter and what it may take.
pub(crate) struct Interpreter {
    pub(super) vm: Vm,
    pub(super) running: Rc<Running>,
    memory_max: usize,
    flushes: u64,
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
    pub(super) fn begin(&self) {
        self.begun.set(Some(now()));
        self.warned.set(false);
    }

    /// Whether the script is to stop. One that has written is not: half of what it does would stay.
    fn watch(&self) -> Option<Stop> {
        let scripts = &self.shared.scripts;
        if scripts.wrote.load(Relaxed) {
            if self.is_slow() && !self.warned.replace(true) {
                tracing::warn!(
                    "a script that has written takes long; it cannot be ended without leaving it half done"
                );
            }
            return None;
        }
        if scripts.kill.load(Relaxed) {
            scripts.stopped.fetch_add(1, Relaxed);
            return Some(Stop(
                "ERR Error running script: Script killed by user with SCRIPT KILL.".into(),
            ));
        }
        if self.is_slow() {
            scripts.stopped.fetch_add(1, Relaxed);
            return Some(Stop(
                "ERR Error running script: it took longer than busy-reply-threshold and had written nothing".into(),
            ));
        }
        None
    }

    fn is_slow(&self) -> bool {
        let limit_ms = self.shared.config.script_ms.load(Relaxed);
        limit_ms > 0
            && self
                .begun
                .get()
                .is_some_and(|begun| now() - begun > Duration::from_millis(limit_ms))
    }
}

impl Interpreter {
    /// A new one.
    ///
    /// # Errors
    /// It does not fit into the limit of memory.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Interpreter, String> {
        let running = Rc::new(Running {
            begun: Cell::new(None),
            shared: shared.clone(),
            warned: Cell::new(false),
        });
        let memory_max = shared.config.script_memory.load(Relaxed);
        let watched = running.clone();
        let vm = Vm::new(memory_max, move || watched.watch())?;
        Ok(Interpreter {
            vm,
            running,
            memory_max,
            flushes: shared.scripts.flushes.load(Relaxed),
            told: 0,
        })
    }

    /// Whether it can be used for another script: those that are kept, of all loops, take no more together than one may.
    pub(super) fn is_fresh(&mut self, shared: &Shared) -> bool {
        let flushes = shared.scripts.flushes.load(Relaxed);
        if std::mem::replace(&mut self.flushes, flushes) != flushes {
            self.vm.forget();
        }
        self.memory_max == shared.config.script_memory.load(Relaxed)
            && self.vm.used_memory() < self.memory_max / 2
            && shared.scripts.vm_bytes.load(Relaxed) <= self.memory_max
    }

    /// Tells how much memory it takes.
    pub(super) fn tell(&mut self) {
        let used = self.vm.used_memory();
        let all = &self.running.shared.scripts.vm_bytes;
        all.fetch_add(used, Relaxed);
        all.fetch_sub(self.told, Relaxed);
        self.told = used;
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        let all = &self.running.shared.scripts.vm_bytes;
        all.fetch_sub(self.told, Relaxed);
    }
}
