//! The state that the functions of an interpreter share; watches and stops the running script.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{HookTriggers, Lua, Result as LuaResult, VmState};

use crate::host::{self, Stop, Verdict};
use crate::json::config::JsonConfig;
use crate::leash::Leash;
use crate::random::Random;

/// Instructions between two times that the host is asked whether to go on.
pub(crate) const INSTRUCTIONS: u32 = 250;
/// Instructions between two looks at a script with much memory, and what is much: joining two texts of 32 MiB takes some ten milliseconds.
const INSTRUCTIONS_DENSE: u32 = 20;
const MUCH: usize = 4 << 20;

/// The script is to stop; why stands in the [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

impl From<Stopped> for Box<str> {
    fn from(_: Stopped) -> Box<str> {
        "stopped".into()
    }
}

impl From<Stopped> for mlua::Error {
    fn from(_: Stopped) -> mlua::Error {
        mlua::Error::runtime("stopped")
    }
}

/// The state that the interpreter's functions share.
pub(crate) struct State {
    /// The function that decides whether the running script goes on.
    pub(crate) watch: Box<dyn Fn() -> Verdict>,
    pub(crate) stopped: RefCell<Option<Stop>>,
    pub(crate) resp3: Cell<bool>,
    /// Bytes that the interpreter may take.
    pub(crate) memory_max: Cell<usize>,
    /// Bytes that the script may take now: fewer while the script is held by the leash.
    pub(crate) limit: Cell<usize>,
    pub(crate) leash: Leash,
    /// The collector stands still while the leash holds: so what was there before makes no room for the script.
    pub(crate) is_uncollected: Cell<bool>,
    /// The script is looked at more often: it has so much memory that an instruction may
    /// take long.
    pub(crate) is_dense: Cell<bool>,
    pub(crate) random: Random,
    pub(crate) json: Rc<RefCell<JsonConfig>>,
}

impl State {
    /// Asks whether the script is to go on.
    pub(crate) fn look(&self) -> Result<(), Stopped> {
        if self.stopped.borrow().is_none() {
            match (self.watch)() {
                Verdict::Go => {}
                Verdict::Stop(stop) => *self.stopped.borrow_mut() = Some(stop),
                Verdict::Tell => *self.stopped.borrow_mut() = host::tell(),
            }
        }
        match &*self.stopped.borrow() {
            Some(_) => Err(Stopped),
            None => Ok(()),
        }
    }
}

impl State {
    /// Sets how many bytes the interpreter may take from now on.
    pub(crate) fn set_limit(&self, lua: &Lua, limit: usize) {
        self.limit.set(limit);
        // A limit was set before, so this cannot fail.
        let _ = lua.set_memory_limit(limit);
    }

    /// Lets a script whose leash was released take what the interpreter may.
    pub(crate) fn heed_leash(&self, lua: &Lua) {
        if self.leash.holds() {
            return;
        }
        let max = self.memory_max.get();
        if self.limit.get() != max {
            self.set_limit(lua, max);
        }
        if self.is_uncollected.replace(false) {
            lua.gc_restart();
        }
    }

    /// Lets a script that is held by the leash take more.
    pub(crate) fn lengthen(&self, lua: &Lua, more: usize) {
        let max = self.memory_max.get();
        let limit = self.limit.get();
        if limit != max {
            self.set_limit(lua, limit.saturating_add(more).min(max));
        }
    }
}

/// Looks at the script between the values that are made for it: one of many takes long where their texts collide.
pub(crate) struct Looks<'s> {
    state: &'s State,
    left: u32,
}

impl<'s> Looks<'s> {
    /// Values between two looks.
    const EVERY: u32 = 16;

    pub(crate) fn of(state: &'s State) -> Looks<'s> {
        Looks {
            state,
            left: Looks::EVERY,
        }
    }

    /// Whether the script is to be looked at before the next value.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.left = Looks::EVERY;
            return true;
        }
        false
    }

    /// Before each value.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<(), Stopped> {
        match self.is_due() {
            true => self.state.look(),
            false => Ok(()),
        }
    }
}

/// Has the script looked at every so many instructions.
pub(crate) fn watch_instructions(lua: &Lua, state: &Rc<State>, every: u32) -> LuaResult<()> {
    let watched = state.clone();
    let triggers = HookTriggers::new().every_nth_instruction(every);
    lua.set_global_hook(triggers, move |lua, _| {
        look_closely(lua, &watched)?;
        Ok(VmState::Continue)
    })
}

/// Looks at the script; more often from now on if it has much memory.
pub(crate) fn look_closely(lua: &Lua, state: &Rc<State>) -> LuaResult<()> {
    state.look()?;
    if !state.is_dense.get() && lua.used_memory() > MUCH {
        state.is_dense.set(true);
        watch_instructions(lua, state, INSTRUCTIONS_DENSE)?;
    }
    Ok(())
}
