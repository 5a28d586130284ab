//! How functions in Rust are put before scripts: with the arguments that Lua has, and errors that say where
//! the script called them.

use std::rc::Rc;

use mlua::{Error, Lua, MultiValue, Result as LuaResult, Table, Value};

use crate::args::{Args, NO_MEMORY, Outcome};
use crate::state::{State, look_closely};

/// Bytes of an argument from which on its function may take so long that the script is looked at.
pub(crate) const LONG: usize = 32 << 10;
/// The name of the prelude's chunk: its lines are none of the script's.
pub(crate) const PRELUDE: &str = "=prelude";

/// Whether a value is so large that what is done with it may take long.
fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.as_bytes().len() > LONG,
        _ => false,
    }
}

/// A function of a library.
pub(crate) type Function = fn(&Lua, &Args) -> Outcome;

/// A table of functions.
pub(crate) fn table(
    lua: &Lua,
    state: &Rc<State>,
    functions: &[(&str, Function)],
) -> LuaResult<Table> {
    let table = lua.create_table()?;
    for &(name, function) in functions {
        table.raw_set(name, wrapped(lua, state, function)?)?;
    }
    Ok(table)
}

/// One function. Behind one that has had much to do the script is looked at: a few instructions may be many such calls.
pub(crate) fn wrapped(
    lua: &Lua,
    state: &Rc<State>,
    function: impl Fn(&Lua, &Args) -> Outcome + 'static,
) -> LuaResult<mlua::Function> {
    let state = state.clone();
    lua.create_function(move |lua, args: MultiValue| {
        let args = Args::new(args.into_vec());
        let result = function(lua, &args);
        let any_long = |values: &[Value]| values.iter().any(is_long);
        if any_long(args.all()) || result.as_ref().is_ok_and(|values| any_long(values)) {
            look_closely(lua, &state)?;
        }
        match result {
            Ok(values) => Ok(MultiValue::from_vec(values)),
            // The text is Lua's own, without a place.
            Err(text) if &*text == NO_MEMORY => Err(Error::runtime(NO_MEMORY)),
            Err(text) => Err(Error::runtime(format!("{}{text}", place(lua)))),
        }
    })
}

/// Where the running function was called, as error texts begin; nothing if not by Lua. What the prelude has called for a
/// script was called by that.
fn place(lua: &Lua) -> String {
    for level in 1..4 {
        let line = lua.inspect_stack(level, |caller| {
            let source = caller.source();
            if source.source.as_deref() == Some(PRELUDE) {
                return None;
            }
            let name = source.short_src.unwrap_or_default().into_owned();
            let line = caller.current_line();
            Some(
                line.map(|line| format!("{name}:{line}: "))
                    .unwrap_or_default(),
            )
        });
        match line {
            None => break,
            Some(None) => {}
            Some(Some(place)) => return place,
        }
    }
    String::new()
}
