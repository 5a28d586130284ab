//! The limit of memory, lifted where what is made is known to fit: with a limit each value is made within a protected call of
//! its own, which costs several times what making it does.

use mlua::Lua;

/// More than a value takes beside its bytes, with its place in a table that grows.
pub(crate) const EACH: usize = 256;

/// As long as this value exists, no allocation is refused.
pub(crate) struct Lifted<'l> {
    lua: &'l Lua,
    memory_max: usize,
}

/// Lifts the limit for the making of values that take at most `room` bytes, if they fit.
pub(crate) fn lifted(lua: &Lua, memory_max: usize, room: usize) -> Option<Lifted<'_>> {
    if lua.used_memory().saturating_add(room) > memory_max {
        return None;
    }
    lua.set_memory_limit(0).ok()?;
    Some(Lifted { lua, memory_max })
}

impl Drop for Lifted<'_> {
    fn drop(&mut self) {
        // The limit was set before, so this cannot fail.
        let _ = self.lua.set_memory_limit(self.memory_max);
    }
}
