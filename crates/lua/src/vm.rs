//! The interpreter: compiles scripts, runs them, and stops them.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{ChunkMode, Error, Function, HookTriggers, LightUserData, Lua, LuaOptions, MultiValue};
use mlua::{Result as LuaResult, StdLib, Table, Value as Lua51, VmState};
use sha1::{Digest, Sha1};

use crate::answer::{Answer, Taker, argument};
use crate::random::Random;
use crate::value::Value;
use crate::{bit, json, library, msgpack, pack};

/// Instructions between two times that the host is asked whether to go on.
const INSTRUCTIONS: u32 = 1_000;
/// Compiled scripts that are kept.
const COMPILED: usize = 1000;
/// The version of Redis that scripts are told of.
const VERSION: (&str, u32) = ("7.2.4", 0x0007_0204);
/// Bytes of the thread's stack from which on functions of C that call back are refused: loops' threads have 512 KiB at
/// least.
const DEEP: usize = 192 << 10;
/// The name of scripts in error texts.
const CHUNK: &str = "@user_script";

/// What a script asks its host for.
pub trait Host {
    /// Runs a command and gives its reply; an error of the command is a [`Value::Error`].
    ///
    /// # Errors
    /// The script is to stop, whatever it does.
    fn call(&mut self, call: Call<'_>) -> Result<Value, Stop>;

    /// `redis.log`: a level from 0, debugging, to 3, a warning.
    fn log(&mut self, level: u8, text: &[u8]);
}

/// A call of `redis.call` or `redis.pcall`.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The command's name, then its arguments; at least one.
    pub args: &'a [Vec<u8>],
    /// The script wants replies in the third version of the protocol.
    pub resp3: bool,
}

/// Why a script was ended: the error line for who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop(pub Cow<'static, str>);

/// A script and what it is given.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What names it: the same name is the same text.
    pub name: &'a str,
    /// Its text.
    pub text: &'a [u8],
    /// `KEYS`.
    pub keys: &'a [&'a [u8]],
    /// `ARGV`.
    pub args: &'a [&'a [u8]],
}

/// How a script ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// With an answer.
    Done(Answer),
    /// With an error: its code and text.
    Failed(Vec<u8>),
    /// It was stopped.
    Stopped(Stop),
}

/// What the interpreter's functions share.
#[derive(Default)]
struct State {
    stopped: RefCell<Option<Stop>>,
    resp3: Cell<bool>,
    /// Where the thread's stack was when the script began.
    stack: Cell<usize>,
    random: Random,
    json: Rc<RefCell<json::Config>>,
}

/// An interpreter, of one thread.
pub struct Vm {
    lua: Lua,
    enter: Function,
    state: Rc<State>,
    compiled: RefCell<HashMap<String, Function>>,
    memory_max: usize,
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm")
            .field("used", &self.used_memory())
            .finish_non_exhaustive()
    }
}

impl Vm {
    /// An interpreter that takes at most `memory_max` bytes. `watch` is asked every some thousand instructions
    /// whether the running script is to stop.
    ///
    /// # Errors
    /// The memory does not suffice for the interpreter itself, which takes some 200 KiB.
    pub fn new(
        memory_max: usize,
        watch: impl Fn() -> Option<Stop> + 'static,
    ) -> Result<Vm, String> {
        Vm::made(memory_max, watch).map_err(|error| error.to_string())
    }

    fn made(memory_max: usize, watch: impl Fn() -> Option<Stop> + 'static) -> LuaResult<Vm> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(memory_max)?;
        let state = Rc::new(State::default());
        let rust = functions(&lua, &state, memory_max)?;
        let enter = lua
            .load(include_str!("prelude.lua"))
            .set_name("=prelude")
            .set_mode(ChunkMode::Text)
            .call(rust)?;
        let watched = state.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, _| {
            if watched.stopped.borrow().is_none() {
                *watched.stopped.borrow_mut() = watch();
            }
            match &*watched.stopped.borrow() {
                Some(_) => Err(Error::runtime("stopped")),
                None => Ok(VmState::Continue),
            }
        })?;
        Ok(Vm {
            lua,
            enter,
            state,
            compiled: RefCell::default(),
            memory_max,
        })
    }

    /// Compiles a script, or finds it compiled.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(&self, name: &str, text: &[u8]) -> Result<(), Vec<u8>> {
        self.function(name, text).map(|_| ())
    }

    fn function(&self, name: &str, text: &[u8]) -> Result<Function, Vec<u8>> {
        if let Some(function) = self.compiled.borrow().get(name) {
            return Ok(function.clone());
        }
        if text.first() == Some(&27) {
            return Err(b"a script has to be text".to_vec());
        }
        let chunk = self.lua.load(text);
        let chunk = chunk.set_name(CHUNK).set_mode(ChunkMode::Text);
        let function = chunk
            .into_function()
            .map_err(|error| message(&error).into_bytes())?;
        let mut compiled = self.compiled.borrow_mut();
        if compiled.len() >= COMPILED {
            compiled.clear();
        }
        compiled.insert(name.to_owned(), function.clone());
        Ok(function)
    }

    /// Forgets all compiled scripts.
    pub fn forget(&self) {
        self.compiled.borrow_mut().clear();
    }

    /// Bytes that the interpreter takes.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// Runs a script.
    pub fn run(&self, run: Run<'_>, host: &mut dyn Host) -> Ended {
        let function = match self.function(run.name, run.text) {
            Ok(function) => function,
            Err(why) => {
                let mut text = b"ERR Error compiling script (new function): ".to_vec();
                text.extend_from_slice(&why);
                return Ended::Failed(text);
            }
        };
        self.state.stopped.replace(None);
        self.state.resp3.set(false);
        self.state.stack.set(stack_here());
        self.state.random.seed(0);
        self.state.json.replace(json::Config::default());
        let result = self.enter(&function, run, host);
        if let Some(stop) = self.state.stopped.take() {
            return Ended::Stopped(stop);
        }
        match result {
            Ok((true, value)) => {
                let mut taker = Taker {
                    left: self.memory_max,
                    resp3: self.state.resp3.get(),
                };
                match taker.take(&value) {
                    Ok(answer) => Ended::Done(answer),
                    Err(_) => Ended::Failed(b"ERR the script's answer is too large".to_vec()),
                }
            }
            Ok((false, error)) => Ended::Failed(failure(&error, run.name)),
            Err(error) => {
                let text = format!("ERR {} script: {}.", message(&error), run.name);
                Ended::Failed(text.into_bytes())
            }
        }
    }

    fn enter(
        &self,
        function: &Function,
        run: Run<'_>,
        host: &mut dyn Host,
    ) -> LuaResult<(bool, Lua51)> {
        let list = |all: &[&[u8]]| -> LuaResult<Table> {
            let table = self.lua.create_table_with_capacity(all.len(), 0)?;
            for (at, bytes) in all.iter().enumerate() {
                table.raw_set(at + 1, self.lua.create_string(bytes)?)?;
            }
            Ok(table)
        };
        let (keys, args) = (list(run.keys)?, list(run.args)?);
        let state = &self.state;
        let host = RefCell::new(host);
        self.lua.scope(|scope| {
            let call = scope.create_function(|lua, args: MultiValue| {
                match serve(state, &mut **host.borrow_mut(), &args)? {
                    Value::Error(text) => Err(Error::external(Raised(text))),
                    value => value.to_lua(lua),
                }
            })?;
            let protected = scope.create_function(|lua, args: MultiValue| {
                serve(state, &mut **host.borrow_mut(), &args)?.to_lua(lua)
            })?;
            let log = scope.create_function(|_, args: MultiValue| {
                let level = args.front().and_then(library::as_number);
                let words: Vec<Vec<u8>> = args.iter().skip(1).filter_map(argument).collect();
                host.borrow_mut()
                    .log(level.unwrap_or_default() as u8, &words.join(&b' '));
                Ok(())
            })?;
            self.enter
                .call((function, call, protected, log, keys, args))
        })
    }
}

/// The error of a command, to be raised.
#[derive(Debug)]
struct Raised(Vec<u8>);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Raised {}

/// Runs a command for a script.
fn serve(state: &State, host: &mut dyn Host, args: &MultiValue) -> LuaResult<Value> {
    let error = |text: &str| Ok(Value::Error(text.into()));
    let count = args.len();
    let args: Vec<Vec<u8>> = args.iter().map_while(argument).collect();
    if count == 0 {
        return error("ERR Please specify at least one argument for this redis lib call");
    }
    if args.len() < count {
        return error("ERR Lua redis lib command arguments must be strings or integers");
    }
    let call = Call {
        args: &args,
        resp3: state.resp3.get(),
    };
    host.call(call).map_err(|stop| {
        *state.stopped.borrow_mut() = Some(stop);
        Error::runtime("stopped")
    })
}

/// About where the thread's stack is.
#[inline(never)]
fn stack_here() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}

/// The functions that the prelude puts before scripts.
fn functions(lua: &Lua, state: &Rc<State>, most: usize) -> LuaResult<Table> {
    let rust = lua.create_table()?;
    rust.raw_set("memory_max", most)?;
    rust.raw_set("version", VERSION.0)?;
    rust.raw_set("version_number", VERSION.1)?;
    rust.raw_set("null", LightUserData(std::ptr::null_mut()))?;
    rust.raw_set("bit", library::table(lua, bit::FUNCTIONS)?)?;
    rust.raw_set("pack", library::table(lua, pack::FUNCTIONS)?)?;
    rust.raw_set("string", lua.create_table()?)?;
    rust.raw_set("json", json::functions(lua, &state.json, most)?)?;
    let msgpack = library::table(lua, msgpack::FUNCTIONS)?;
    let pack = library::wrapped(lua, move |lua, args| msgpack::pack(lua, args, most))?;
    msgpack.raw_set("pack", pack)?;
    rust.raw_set("msgpack", msgpack)?;
    let of = state.clone();
    let random = library::wrapped(lua, move |_, args| of.random.random(args))?;
    rust.raw_set("random", random)?;
    let of = state.clone();
    let seed = library::wrapped(lua, move |_, args| of.random.randomseed(args))?;
    rust.raw_set("randomseed", seed)?;
    let of = state.clone();
    let stopped = lua.create_function(move |_, ()| Ok(of.stopped.borrow().is_some()))?;
    rust.raw_set("stopped", stopped)?;
    let of = state.clone();
    let is_deep =
        lua.create_function(move |_, ()| Ok(of.stack.get().abs_diff(stack_here()) > DEEP))?;
    rust.raw_set("is_deep", is_deep)?;
    let of = state.clone();
    let setresp = lua.create_function(move |_, version: i64| {
        of.resp3.set(version == 3);
        Ok(())
    })?;
    rust.raw_set("setresp", setresp)?;
    rust.raw_set("handler", lua.create_function(handler)?)?;
    let told = lua.create_function(|lua, error: Lua51| match error {
        Lua51::Error(error) => Ok(Lua51::String(lua.create_string(plain(&error))?)),
        other => Ok(other),
    })?;
    rust.raw_set("message", told)?;
    let text = lua.create_function(|lua, value: Lua51| {
        let text = argument(&value).unwrap_or_else(|| library::type_name(&value).into());
        lua.create_string(text)
    })?;
    rust.raw_set("text", text)?;
    let sha1hex = lua.create_function(|lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(Error::external(Raised(
                b"ERR wrong number of arguments".into(),
            )));
        }
        let text = args.front().and_then(argument).unwrap_or_default();
        let hash = Sha1::digest(text);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        lua.create_string(hex)
    })?;
    rust.raw_set("sha1hex", sha1hex)?;
    let error_text = lua.create_function(|lua, text: mlua::String| {
        lua.create_string(error_text(&text.as_bytes()))
    })?;
    rust.raw_set("error_text", error_text)?;
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
        Lua51::Table(table) => table,
        other => {
            let text = match &other {
                Lua51::Error(error) => match raised(error) {
                    Some(text) => text.to_vec(),
                    None => [b"ERR ", &plain(error)[..]].concat(),
                },
                other => {
                    let text = argument(other);
                    let text = text.unwrap_or_else(|| library::type_name(other).into());
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
            let here = at.source().source.as_deref() == Some(CHUNK);
            here.then(|| at.current_line()).flatten()
        });
        match line {
            None => break,
            Some(None) => {}
            Some(Some(line)) => {
                table.raw_set("source", CHUNK)?;
                table.raw_set("line", line)?;
                break;
            }
        }
    }
    Ok(table)
}

/// The error line of a script that has failed.
fn failure(error: &Lua51, name: &str) -> Vec<u8> {
    let Lua51::Table(table) = error else {
        let text = match error {
            Lua51::Error(error) => plain(error),
            other => argument(other).unwrap_or_else(|| library::type_name(other).into()),
        };
        return [b"ERR ", &text[..], b" script: ", name.as_bytes(), b"."].concat();
    };
    let field = |name: &str| match table.raw_get::<Lua51>(name) {
        Ok(Lua51::Nil) | Err(_) => None,
        Ok(value) => argument(&value),
    };
    let text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    let mut line = [&text[..], b" script: ", name.as_bytes()].concat();
    if let (Some(source), Some(at)) = (field("source"), field("line")) {
        line.extend_from_slice(&[b", on ", &source[..], b":", &at].concat());
    }
    line.push(b'.');
    line
}

/// What a command has answered, if that is what the error is.
fn raised(error: &Error) -> Option<&[u8]> {
    match error {
        Error::CallbackError { cause, .. } => raised(cause),
        error => error.downcast_ref::<Raised>().map(|raised| &raised.0[..]),
    }
}

/// The text of an error, which may be any bytes.
fn plain(error: &Error) -> Vec<u8> {
    match raised(error) {
        Some(text) => text.to_vec(),
        None => message(error).into_bytes(),
    }
}

/// The text of an error, without what mlua tells of the way it took.
fn message(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. }
        | Error::RuntimeError(message)
        | Error::MemoryError(message) => {
            let first = message.split("\nstack traceback:").next();
            first.unwrap_or_default().to_owned()
        }
        Error::CallbackError { cause, .. } => message(cause),
        other => other.to_string(),
    }
}
