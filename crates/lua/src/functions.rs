//! The functions that the prelude puts before scripts.

use std::rc::Rc;

use mlua::{Error, LightUserData, Lua, MultiValue, Result as LuaResult, Table, Value as Lua51};
use sha1::{Digest, Sha1};

use crate::answer::argument;
use crate::args::NO_MEMORY;
use crate::raised::{Raised, plain, raised};
use crate::state::{State, look_closely};
use crate::{args, bit, calls, json, library, msgpack, pack, text};

/// The version of Redis that scripts are told of.
const VERSION: (&str, u32) = ("7.2.4", 0x0007_0204);
/// Bytes of a text that are hashed between two looks; a longer one is hashed where no others wait.
const HASHED_AT_ONCE: usize = 256 << 10;
/// The names of scripts and of libraries in error texts.
pub(crate) const CHUNK: &str = "@user_script";
pub(crate) const LIBRARY: &str = "@user_function";
/// The flags that a function may have.
pub const FLAGS: [&str; 5] = [
    "no-writes",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];

/// The functions that the prelude puts before scripts.
pub(crate) fn functions(lua: &Lua, state: &Rc<State>, most: usize) -> LuaResult<Table> {
    let rust = lua.create_table()?;
    rust.raw_set("memory_max", most)?;
    rust.raw_set("version", VERSION.0)?;
    rust.raw_set("version_number", VERSION.1)?;
    rust.raw_set("null", LightUserData(std::ptr::null_mut()))?;
    rust.raw_set("bit", library::table(lua, state, bit::FUNCTIONS)?)?;
    rust.raw_set("pack", library::table(lua, state, pack::FUNCTIONS)?)?;
    rust.raw_set("string", text::functions(lua, state)?)?;
    rust.raw_set("json", json::functions(lua, state)?)?;
    rust.raw_set("msgpack", msgpack::functions(lua, state)?)?;
    let of = state.clone();
    let random = library::wrapped(lua, state, move |_, args| of.random.random(args))?;
    rust.raw_set("random", random)?;
    let of = state.clone();
    let is_short_of_memory = lua.create_function(move |lua, ()| {
        // A script that has outgrown the leash begins again elsewhere, even if its own code catches the error.
        Ok(of.leash.holds() || lua.used_memory() > of.memory_max.get() / 2)
    })?;
    rust.raw_set("is_short_of_memory", is_short_of_memory)?;
    let of = state.clone();
    let is_held = lua.create_function(move |_, ()| Ok(of.leash.holds()))?;
    rust.raw_set("is_held", is_held)?;
    let of = state.clone();
    let look = lua.create_function(move |lua, ()| look_closely(lua, &of))?;
    rust.raw_set("look", look)?;
    let of = state.clone();
    let seed = library::wrapped(lua, state, move |_, args| of.random.randomseed(args))?;
    rust.raw_set("randomseed", seed)?;
    let of = state.clone();
    let stopped = lua.create_function(move |_, ()| Ok(of.stopped.borrow().is_some()))?;
    rust.raw_set("stopped", stopped)?;
    let of = state.clone();
    let setresp = lua.create_function(move |_, version: i64| {
        of.resp3.set(version == 3);
        Ok(())
    })?;
    rust.raw_set("setresp", setresp)?;
    rust.raw_set("handler", lua.create_function(handler)?)?;
    let is_flag = lua.create_function(|_, flag: Lua51| {
        let flag = argument(&flag).unwrap_or_default();
        Ok(FLAGS.iter().any(|known| known.as_bytes() == flag))
    })?;
    rust.raw_set("is_flag", is_flag)?;
    let told = lua.create_function(|lua, error: Lua51| match error {
        Lua51::Error(error) => Ok(Lua51::String(lua.create_string(plain(&error))?)),
        other => Ok(other),
    })?;
    rust.raw_set("message", told)?;
    let text = lua.create_function(|lua, value: Lua51| {
        let text = argument(&value).unwrap_or_else(|| args::type_name(&value).into());
        lua.create_string(text)
    })?;
    rust.raw_set("text", text)?;
    let of = state.clone();
    let sha1hex = lua.create_function(move |lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(Error::external(Raised(
                b"ERR wrong number of arguments".into(),
            )));
        }
        let text = args.front().and_then(argument).unwrap_or_default();
        if text.len() > HASHED_AT_ONCE && of.leash.holds() {
            // The script begins again elsewhere.
            return Err(Error::runtime(NO_MEMORY));
        }
        let mut hash = Sha1::new();
        for part in text.chunks(HASHED_AT_ONCE) {
            hash.update(part);
            if text.len() > library::LONG {
                look_closely(lua, &of)?;
            }
        }
        let hash = hash.finalize();
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        lua.create_string(hex)
    })?;
    rust.raw_set("sha1hex", sha1hex)?;
    let error_text = lua.create_function(|lua, text: mlua::String| {
        lua.create_string(error_text(&text.as_bytes()))
    })?;
    rust.raw_set("error_text", error_text)?;
    calls::functions(lua, state, &rust)?;
    Ok(rust)
}

/// The code and text of what a script gives as an error: its first word is the code if another follows.
fn error_text(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let end = text.iter().rposition(|b| !matches!(b, b'\r' | b'\n'));
    let text = &text[..end.map_or(0, |end| end + 1)];
    if text.contains(&b' ') {
        text.to_vec()
    } else {
        [b"ERR ", text].concat()
    }
}

/// Notes where an error was raised; a script's error becomes a table with its text.
fn handler(lua: &Lua, error: Lua51) -> LuaResult<Table> {
    let table = match error {
        // One with a metatable may be what all scripts see: the place is told of a copy.
        Lua51::Table(raised) if raised.metatable().is_some() => {
            let table = lua.create_table()?;
            for name in ["err", "source", "line"] {
                table.raw_set(name, raised.raw_get::<Lua51>(name)?)?;
            }
            table
        }
        Lua51::Table(table) => table,
        other => {
            let text = match &other {
                Lua51::Error(error) => match raised(error) {
                    Some(text) => text.to_vec(),
                    None => [b"ERR ", &plain(error)[..]].concat(),
                },
                other => {
                    let text = argument(other);
                    let text = text.unwrap_or_else(|| args::type_name(other).into());
                    [b"ERR ", &text[..]].concat()
                }
            };
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
    };
    // From the function that has failed outwards, to the first line of the script.
    for level in 0..20 {
        let line = lua.inspect_stack(level, |at| {
            let source = at.source().source;
            let name = [CHUNK, LIBRARY]
                .into_iter()
                .find(|name| source.as_deref() == Some(name))?;
            at.current_line().map(|line| (name, line))
        });
        match line {
            None => break,
            Some(None) => {}
            Some(Some((name, line))) => {
                table.raw_set("source", name)?;
                table.raw_set("line", line)?;
                break;
            }
        }
    }
    Ok(table)
}
