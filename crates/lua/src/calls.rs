//! The functions by which a script reaches its host.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{BorrowedBytes, Error, Lua, MultiValue, Result as LuaResult, Table, Value as Lua51};
use smallvec::SmallVec;

use crate::answer::argument;
use crate::args;
use crate::host::{self, Call};
use crate::library::LONG;
use crate::raised::Raised;
use crate::room::lifted;
use crate::state::{Looks, State};
use crate::value::Value;

/// `redis.call`, `redis.pcall`, and what stands behind `redis.log` and `redis.acl_check_cmd`.
pub(crate) fn functions(lua: &Lua, state: &Rc<State>, rust: &Table) -> LuaResult<()> {
    let of = state.clone();
    let call = lua.create_function(move |lua, args: MultiValue| serve(&of, lua, &args, true))?;
    rust.raw_set("call", call)?;
    let of = state.clone();
    let pcall = lua.create_function(move |lua, args: MultiValue| serve(&of, lua, &args, false))?;
    rust.raw_set("pcall", pcall)?;
    let may_call = lua.create_function(|_, args: MultiValue| {
        let Some(words) = Words::of(&args) else {
            return Ok(None);
        };
        Ok(host::with(|host| host.may_call(&words.all())).flatten())
    })?;
    rust.raw_set("may_call", may_call)?;
    let log = lua.create_function(|_, args: MultiValue| {
        let level = args.front().and_then(args::as_number);
        let words: Vec<Vec<u8>> = args.iter().skip(1).filter_map(argument).collect();
        // A library that is being loaded has no host.
        let _ = host::with(|host| host.log(level.unwrap_or_default() as u8, &words.join(&b' ')));
        Ok(())
    })?;
    rust.raw_set("log", log)
}

/// Values of a reply that a script which is held by the leash is given for nothing.
const FEW_PARTS: usize = 256;

/// Words of most commands.
const FEW: usize = 6;

/// The words of a command, where they stand in Lua.
struct Words<'a>(SmallVec<[Word<'a>; FEW]>);

enum Word<'a> {
    Text(BorrowedBytes<'a>),
    Number(Vec<u8>),
}

impl Word<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Word::Text(text) => text,
            Word::Number(text) => text,
        }
    }
}

impl<'a> Words<'a> {
    /// `None` if one is neither a string nor a number.
    fn of(args: &'a MultiValue) -> Option<Words<'a>> {
        let word = |arg: &'a Lua51| match arg {
            Lua51::String(text) => Some(Word::Text(text.as_bytes())),
            other => argument(other).map(Word::Number),
        };
        args.iter().map(word).collect::<Option<_>>().map(Words)
    }

    fn all(&self) -> SmallVec<[&[u8]; FEW]> {
        self.0.iter().map(Word::bytes).collect()
    }
}

/// Runs a command for a script; its error is raised, or given to the script.
fn serve(state: &State, lua: &Lua, args: &MultiValue, raise: bool) -> LuaResult<Lua51> {
    let answer = |value: Value<'_>| match value {
        Value::Error(text) if raise => Err(Error::external(Raised(text.into_owned()))),
        value => {
            state.heed_leash(lua);
            let room = value.room();
            if room > LONG {
                state.look()?;
            }
            let (limit, taken) = (state.limit.get(), Cell::new(0));
            let is_given = state.leash.holds() && value.parts() <= FEW_PARTS;
            if is_given {
                // The bytes of a few texts do no harm.
                state.lengthen(lua, room);
            }
            let lifted = lifted(lua, state.limit.get(), room);
            let mut looks = Looks::of(state);
            let made = value.to_lua(lua, &taken, &mut || Ok(looks.next()?));
            drop(lifted);
            if is_given {
                // No more than they take: a text that the interpreter has takes nothing.
                state.set_limit(lua, limit);
                state.lengthen(lua, taken.get());
                state.leash.give(taken.get());
            }
            made
        }
    };
    let error = |text: &'static str| answer(Value::Error(text.as_bytes().into()));
    if args.is_empty() {
        return error("ERR Please specify at least one argument for this redis lib call");
    }
    let Some(words) = Words::of(args) else {
        return error("ERR Lua redis lib command arguments must be strings or integers");
    };
    let called = host::with(|host| {
        let call = Call {
            args: &words.all(),
            resp3: state.resp3.get(),
        };
        match host.call(call) {
            Ok(value) => answer(value),
            Err(stop) => {
                *state.stopped.borrow_mut() = Some(stop);
                Err(Error::runtime("stopped"))
            }
        }
    });
    called.unwrap_or_else(|| error("ERR no command can be called outside a script or function"))
}
