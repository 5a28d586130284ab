//! What libraries have kept in an interpreter since they were loaded.
//!
//! A function may leave something in its library at each call. Each call is held by a leash of its own, so what many calls
//! have left together is counted here.

use std::cell::Cell;

use mlua::{Lua, Result};

/// Bytes that libraries may keep in an interpreter whose scripts others wait for.
const MOST: usize = 192 << 10;
/// Bytes that calls may take together until it is found out what of that is kept.
const UNKNOWN: usize = 128 << 10;
/// What a call counts at least that was released: the collector ran meanwhile.
const RELEASED: usize = 2 << 10;
/// Bytes that loading a library takes for each byte of its text, and for the library, if it keeps nothing but code.
const CODE: usize = 8;
const LIBRARY: usize = 32 << 10;

/// Counts what libraries keep.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Bytes that libraries have kept since they were loaded.
    kept: Cell<usize>,
    /// Bytes in use when there was no garbage; none if something was compiled since.
    base: Cell<Option<usize>>,
    /// Bytes that calls have taken since.
    taken: Cell<usize>,
}

impl Growth {
    /// Something is about to be compiled or loaded, which is not kept by a call.
    pub(crate) fn close(&self, lua: &Lua) -> Result<()> {
        if self.taken.get() > 0 {
            self.settle(lua)?;
        }
        self.base.set(None);
        Ok(())
    }

    /// A library was loaded, which took so many bytes.
    pub(crate) fn loaded(&self, text: usize, took: usize) {
        let code = text.saturating_mul(CODE).saturating_add(LIBRARY);
        let more = took.saturating_sub(code);
        self.kept.set(self.kept.get().saturating_add(more));
    }

    /// A function is about to be called.
    pub(crate) fn begin(&self, lua: &Lua) -> Result<()> {
        if self.base.get().is_none() {
            lua.gc_collect()?;
            self.base.set(Some(lua.used_memory()));
        }
        Ok(())
    }

    /// A function has been called, which took so many bytes.
    pub(crate) fn called(&self, lua: &Lua, took: usize, was_released: bool) -> Result<()> {
        let took = if was_released {
            took.max(RELEASED)
        } else {
            took
        };
        self.taken.set(self.taken.get().saturating_add(took));
        match self.taken.get() > UNKNOWN {
            true => self.settle(lua),
            false => Ok(()),
        }
    }

    /// Finds out what is kept of what calls took.
    fn settle(&self, lua: &Lua) -> Result<()> {
        lua.gc_collect()?;
        let used = lua.used_memory();
        if let Some(base) = self.base.replace(Some(used)) {
            let kept = self.kept.get().saturating_add(used);
            self.kept.set(kept.saturating_sub(base));
        }
        self.taken.set(0);
        Ok(())
    }

    /// Whether libraries keep more than they may where others wait.
    pub(crate) fn is_much(&self) -> bool {
        self.kept.get() > MOST
    }
}
