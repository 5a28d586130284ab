//! What a script runs against, and the functions by which it reaches that.

use std::borrow::Cow;
use std::rc::Rc;

use mlua::{BorrowedBytes, Error, Lua, MultiValue, Result as LuaResult, Table, Value as Lua51};
use smallvec::SmallVec;

use crate::answer::argument;
use crate::library;
use crate::room::lifted;
use crate::value::Value;
use crate::vm::{Raised, State};

/// What a script asks its host for.
pub trait Host {
    /// Runs a command and gives its reply; an error of the command is a [`Value::Error`].
    ///
    /// # Errors
    /// The script is to stop, whatever it does.
    fn call(&mut self, call: Call<'_>) -> Result<Value<'_>, Stop>;

    /// `redis.log`: a level from 0, debugging, to 3, a warning.
    fn log(&mut self, level: u8, text: &[u8]);

    /// `redis.acl_check_cmd`: whether who runs the script may run a command; `None` if there is no such command.
    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        let _ = args;
        Some(true)
    }

    /// What `math.random` begins with in this run.
    fn chance(&mut self) -> u32 {
        0
    }

    /// The watch has said [`Verdict::Tell`](crate::Verdict::Tell): between two of the script's commands. Gives why it is to
    /// stop, if it is.
    fn told(&mut self) -> Option<Stop> {
        None
    }
}

/// A call of `redis.call` or `redis.pcall`.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The command's name, then its arguments; at least one.
    pub args: &'a [&'a [u8]],
    /// The script wants replies in the third version of the protocol.
    pub resp3: bool,
}

/// Why a script was ended: the error line for who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop(pub Cow<'static, str>);

scoped_tls_hkt::scoped_thread_local!(
    /// The host of the script that runs on this thread.
    static mut HOST: for<'a> &'a mut (dyn Host + 'a)
);

/// Runs `script` against a host.
pub(crate) fn against<R>(host: &mut dyn Host, script: impl FnOnce() -> R) -> R {
    HOST.set(host, script)
}

/// The host of what runs on this thread is told that it takes long; a library that is loaded has none.
pub(crate) fn tell() -> Option<Stop> {
    HOST.is_set().then(|| HOST.with(|host| host.told()))?
}

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
        Ok(HOST.with(|host| host.may_call(&words.all())))
    })?;
    rust.raw_set("may_call", may_call)?;
    let log = lua.create_function(|_, args: MultiValue| {
        // Nobody has run a library yet while it is loaded.
        if HOST.is_set() {
            let level = args.front().and_then(library::as_number);
            let words: Vec<Vec<u8>> = args.iter().skip(1).filter_map(argument).collect();
            HOST.with(|host| host.log(level.unwrap_or_default() as u8, &words.join(&b' ')));
        }
        Ok(())
    })?;
    rust.raw_set("log", log)
}

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
            let _lifted = lifted(lua, state.memory_max.get(), value.room());
            value.to_lua(lua)
        }
    };
    let error = |text: &'static str| answer(Value::Error(text.as_bytes().into()));
    if args.is_empty() {
        return error("ERR Please specify at least one argument for this redis lib call");
    }
    let Some(words) = Words::of(args) else {
        return error("ERR Lua redis lib command arguments must be strings or integers");
    };
    if !HOST.is_set() {
        return error("ERR there is nobody to run a command for");
    }
    HOST.with(|host| {
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
    })
}
