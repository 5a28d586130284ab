//! How much more memory a script may take where others wait for it.
//!
//! Lua 5.1 hashes without a seed, so a script can choose keys that collide: growing a table of n of them takes n * n / 2
//! steps in C, which no hook reaches. How large such a table can be is bounded by the memory that it takes.

use std::cell::Cell;
use std::rc::Rc;

/// Says whether the script that runs is held to little memory. A clone is another handle.
#[derive(Clone, Debug, Default)]
pub struct Leash(Rc<Hold>);

#[derive(Debug, Default)]
struct Hold {
    holds: Cell<bool>,
    /// Bytes of long texts that the script was given by commands.
    given: Cell<usize>,
}

impl Leash {
    /// Releases the leash: the script stays where it is to its end, and may take as much memory as
    /// the interpreter may.
    pub fn release(&self) {
        self.0.holds.set(false);
    }

    /// Whether the script is held to little memory.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.holds.get()
    }

    /// Bytes of long texts that the script was given by its commands: what it does with them may take long.
    #[must_use]
    pub fn given(&self) -> usize {
        self.0.given.get()
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.0.given.set(self.0.given.get().saturating_add(bytes));
    }

    pub(crate) fn hold(&self) {
        self.0.holds.set(true);
        self.0.given.set(0);
    }
}
