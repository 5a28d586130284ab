//! What the functions of an interpreter share, and how a running script is looked at and stopped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{HookTriggers, Lua, Result as LuaResult, VmState};

use crate::host::{self, Stop, Verdict};
use crate::json::config::JsonConfig;
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

/// What the interpreter's functions share.
pub(crate) struct State {
    /// What is to become of the script that runs.
    pub(crate) watch: Box<dyn Fn() -> Verdict>,
    pub(crate) stopped: RefCell<Option<Stop>>,
    pub(crate) resp3: Cell<bool>,
    /// Bytes that the interpreter may take.
    pub(crate) memory_max: Cell<usize>,
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
