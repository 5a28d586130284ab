//! The functions that are known, as all loops see them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::text::Script;

/// A function and what it says of itself.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) script: Arc<Script>,
    pub(super) description: Option<Vec<u8>>,
    pub(super) flags: Vec<Vec<u8>>,
}

/// A library whose functions are known.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) id: u64,
    pub(super) name: Arc<[u8]>,
    pub(super) code: Arc<[u8]>,
    pub(super) functions: Vec<Function>,
}

/// All of them, as they were at some time.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) changes: u64,
    pub(super) libraries: Vec<Arc<Library>>,
    /// By their names in lower case: as commands they are found whatever the case.
    pub(super) by_name: HashMap<Vec<u8>, Arc<Script>>,
}

impl Known {
    /// The library that has a function of this name, and is another than the one of `but`.
    pub(super) fn has(&self, name: &[u8], but: &[u8]) -> bool {
        let others = self
            .libraries
            .iter()
            .filter(|library| *library.name != *but);
        let mut functions = others.flat_map(|library| &library.functions);
        functions.any(|function| function.script.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What all loops know of functions; made anew by the first that looks after a change. The
/// committed ones, and the ones of the last unit that has looked at what it had changed itself.
#[derive(Debug, Default)]
pub(super) struct Functions(Mutex<[Arc<Known>; 2]>);

impl Functions {
    pub(super) fn both(&self) -> MutexGuard<'_, [Arc<Known>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The committed functions, as they were at the last look.
    pub(super) fn known(&self) -> Arc<Known> {
        self.both()[0].clone()
    }
}
