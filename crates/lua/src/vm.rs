//! The interpreter: compiles scripts, runs them, and stops them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{
    ChunkMode, Either, Error, Function, HookTriggers, IntoLua, LightUserData, Lua, LuaOptions,
};
use mlua::{MultiValue, Result as LuaResult, StdLib, Table, Value as Lua51, VmState};
use sha1::{Digest, Sha1};

use crate::answer::{Answer, Taker, argument};
use crate::host::{self, Host, Stop};
use crate::random::Random;
use crate::room::{self, lifted};
use crate::{bit, effort, json, library, msgpack, pack, text};

/// Instructions between two times that the host is asked whether to go on.
const INSTRUCTIONS: u32 = 250;
/// Compiled scripts that are kept.
const COMPILED: usize = 1000;
/// The version of Redis that scripts are told of.
const VERSION: (&str, u32) = ("7.2.4", 0x0007_0204);
/// The same for a script with much memory, and what is much: joining two texts of 32 MiB takes some ten milliseconds.
const INSTRUCTIONS_DENSE: u32 = 20;
const MUCH: usize = 4 << 20;
/// Longest text: the parser counts what it reads in an int (CVE-2025-46819).
const CHUNK_MAX: usize = 1 << 30;
/// The names of scripts and of libraries in error texts.
const CHUNK: &str = "@user_script";
const LIBRARY: &str = "@user_function";
/// What functions may say of themselves.
pub const FLAGS: [&str; 5] = [
    "no-writes",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];

/// What is to become of a script that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Go,
    /// Its host is [told](Host::told), and it goes on unless that says otherwise.
    Tell,
    /// It stops.
    Stop(Stop),
}

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

/// A call of a function of a library.
#[derive(Clone, Copy, Debug)]
pub struct Fcall<'a> {
    /// What names the library: the same number is the same text.
    pub library: u64,
    /// Its text.
    pub text: &'a [u8],
    /// The function's name.
    pub function: &'a str,
    /// Its first argument.
    pub keys: &'a [&'a [u8]],
    /// Its second.
    pub args: &'a [&'a [u8]],
}

/// A function that a library has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its name, as it was given.
    pub name: Vec<u8>,
    /// What it says of itself.
    pub description: Option<Vec<u8>>,
    /// Its flags, in their order; what they mean is the host's.
    pub flags: Vec<Vec<u8>>,
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
pub(crate) struct State {
    /// What is to become of the script that runs.
    watch: Box<dyn Fn() -> Verdict>,
    pub(crate) stopped: RefCell<Option<Stop>>,
    pub(crate) resp3: Cell<bool>,
    /// Bytes that the interpreter may take.
    pub(crate) memory_max: Cell<usize>,
    /// It is looked at more often: it has so much memory that an instruction may take long.
    is_dense: Cell<bool>,
    random: Random,
    pub(crate) json: Rc<RefCell<json::Config>>,
}

impl State {
    /// Asks whether the script is to go on.
    pub(crate) fn look(&self) -> Result<(), effort::Stopped> {
        if self.stopped.borrow().is_none() {
            match (self.watch)() {
                Verdict::Go => {}
                Verdict::Stop(stop) => *self.stopped.borrow_mut() = Some(stop),
                Verdict::Tell => *self.stopped.borrow_mut() = host::tell(),
            }
        }
        match &*self.stopped.borrow() {
            Some(_) => Err(effort::Stopped),
            None => Ok(()),
        }
    }
}

/// A library that was loaded.
struct Library {
    /// The globals of its functions.
    env: Table,
    functions: HashMap<Vec<u8>, Function>,
}

/// An interpreter, of one thread.
pub struct Vm {
    lua: Lua,
    enter: Function,
    enter_library: Function,
    enter_function: Function,
    /// The globals of scripts.
    env: Table,
    state: Rc<State>,
    compiled: RefCell<HashMap<String, Rc<Function>>>,
    /// What was run last: it often is what is run next.
    last: RefCell<Option<(String, Rc<Function>)>>,
    libraries: RefCell<HashMap<u64, Rc<Library>>>,
    /// The names of chunks as strings of its own: the parser of Lua 5.1 holds the one it is given in a place where the
    /// collector does not look (CVE-2025-49844).
    _names: [mlua::String; 2],
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
    pub fn new(memory_max: usize, watch: impl Fn() -> Verdict + 'static) -> Result<Vm, String> {
        Vm::made(memory_max, watch).map_err(|error| error.to_string())
    }

    fn made(memory_max: usize, watch: impl Fn() -> Verdict + 'static) -> LuaResult<Vm> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(memory_max)?;
        let names = [lua.create_string(CHUNK)?, lua.create_string(LIBRARY)?];
        let state = Rc::new(State {
            watch: Box::new(watch),
            stopped: RefCell::default(),
            resp3: Cell::default(),
            memory_max: Cell::new(memory_max),
            is_dense: Cell::default(),
            random: Random::default(),
            json: Rc::default(),
        });
        let rust = functions(&lua, &state, memory_max)?;
        host::functions(&lua, &state, &rust)?;
        let (enter, enter_library, enter_function, env) = lua
            .load(include_str!("prelude.lua"))
            .set_name(library::PRELUDE)
            .set_mode(ChunkMode::Text)
            .call(rust)?;
        watch_instructions(&lua, &state, INSTRUCTIONS)?;
        Ok(Vm {
            lua,
            enter,
            enter_library,
            enter_function,
            env,
            state,
            compiled: RefCell::default(),
            last: RefCell::default(),
            libraries: RefCell::default(),
            _names: names,
        })
    }

    /// Compiles a script, or finds it compiled.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(&self, name: &str, text: &[u8]) -> Result<(), Vec<u8>> {
        self.function(name, text).map(|_| ())
    }

    fn function(&self, name: &str, text: &[u8]) -> Result<Rc<Function>, Vec<u8>> {
        if let Some((last, function)) = &*self.last.borrow()
            && last == name
        {
            return Ok(function.clone());
        }
        let known = self.compiled.borrow().get(name).cloned();
        let function = match known {
            Some(function) => function,
            None => {
                let function = Rc::new(self.chunk(CHUNK, text, Some(self.env.clone()))?);
                let mut compiled = self.compiled.borrow_mut();
                if compiled.len() >= COMPILED {
                    compiled.clear();
                }
                compiled.insert(name.to_owned(), function.clone());
                function
            }
        };
        self.last.replace(Some((name.to_owned(), function.clone())));
        Ok(function)
    }

    /// Compiles a text, which finds its globals there.
    fn chunk(&self, name: &str, text: &[u8], env: Option<Table>) -> Result<Function, Vec<u8>> {
        if text.first() == Some(&27) {
            return Err(b"a script has to be text".to_vec());
        }
        if text.len() > CHUNK_MAX {
            return Err(b"a script has at most a GiB".to_vec());
        }
        let mut chunk = self.lua.load(text);
        if let Some(env) = env {
            chunk = chunk.set_environment(env);
        }
        let chunk = chunk.set_name(name).set_mode(ChunkMode::Text);
        chunk
            .into_function()
            .map_err(|error| message(&error).into_bytes())
    }

    /// Loads a library, and keeps it: runs its text, which registers functions and can use no command.
    ///
    /// # Errors
    /// The error line: what is wrong with it.
    pub fn load(&self, library: u64, text: &[u8]) -> Result<Vec<Registered>, Vec<u8>> {
        let prefixed = |prefix: &str, text: &[u8]| [prefix.as_bytes(), text].concat();
        let chunk = self
            .chunk(LIBRARY, text, None)
            .map_err(|why| prefixed("ERR Error compiling function: ", &why))?;
        self.begin(0);
        let result: LuaResult<(bool, Lua51, Table)> = self.enter_library.call(chunk);
        if let Some(stop) = self.state.stopped.take() {
            return Err(stop.0.into_owned().into_bytes());
        }
        let failed = |why: &[u8]| prefixed("ERR Error registering functions: ", why);
        let (made, env) = match result {
            Ok((true, Lua51::Table(made), env)) => (made, env),
            Ok((_, error, _)) => return Err(failed(&error_of_library(&error))),
            Err(error) => return Err(failed(message(&error).as_bytes())),
        };
        let bad = |error: Error| failed(message(&error).as_bytes());
        let (mut all, mut functions) = (Vec::new(), HashMap::new());
        for one in made.sequence_values::<Table>() {
            let one = one.map_err(bad)?;
            let name: mlua::String = one.raw_get("name").map_err(bad)?;
            let name = name.as_bytes().to_vec();
            let description: Option<mlua::String> = one.raw_get("description").map_err(bad)?;
            let flags: Table = one.raw_get("flags").map_err(bad)?;
            let flags = flags.sequence_values::<mlua::String>();
            let flags: LuaResult<Vec<Vec<u8>>> = flags
                .map(|flag| flag.map(|flag| flag.as_bytes().to_vec()))
                .collect();
            functions.insert(name.clone(), one.raw_get("callback").map_err(bad)?);
            all.push(Registered {
                name,
                description: description.map(|text| text.as_bytes().to_vec()),
                flags: flags.map_err(bad)?,
            });
        }
        let loaded = Rc::new(Library { env, functions });
        self.libraries.borrow_mut().insert(library, loaded);
        Ok(all)
    }

    /// Forgets the libraries that are not to be kept.
    pub fn keep_libraries(&self, mut keep: impl FnMut(u64) -> bool) {
        self.libraries.borrow_mut().retain(|id, _| keep(*id));
    }

    /// Calls a function of a library, which is loaded if it is not there.
    pub fn call(&self, call: Fcall<'_>, host: &mut dyn Host) -> Ended {
        let known = self.libraries.borrow().contains_key(&call.library);
        if !known && let Err(line) = self.load(call.library, call.text) {
            return Ended::Failed(line);
        }
        let library = self.libraries.borrow().get(&call.library).cloned();
        let found = library.and_then(|library| {
            let function = library.functions.get(call.function.as_bytes())?.clone();
            Some((function, library.env.clone()))
        });
        let Some((function, env)) = found else {
            return Ended::Failed(b"ERR Function not found".to_vec());
        };
        self.begin(host.chance());
        let result = self.enter((&function, Some(env)), call.keys, call.args, host);
        self.ended(result, call.function)
    }

    /// Forgets all compiled scripts.
    pub fn forget(&self) {
        self.compiled.borrow_mut().clear();
        self.last.replace(None);
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
        self.begin(host.chance());
        let result = self.enter((&function, None), run.keys, run.args, host);
        self.ended(result, run.name)
    }

    /// Makes all as new for the next script.
    fn begin(&self, chance: u32) {
        self.state.stopped.replace(None);
        self.state.resp3.set(false);
        if self.state.is_dense.replace(false) {
            // It has been set before.
            let _ = watch_instructions(&self.lua, &self.state, INSTRUCTIONS);
        }
        self.state.random.seed(chance as i32);
        self.state.json.replace(json::Config::default());
    }

    /// How it ended, by what the prelude came back with.
    fn ended(&self, result: LuaResult<(bool, Lua51)>, name: &str) -> Ended {
        if let Some(stop) = self.state.stopped.take() {
            return Ended::Stopped(stop);
        }
        match result {
            Ok((true, value)) => {
                let mut taker = Taker {
                    left: self.state.memory_max.get(),
                    resp3: self.state.resp3.get(),
                };
                // It makes no more than the names of a few fields.
                let _lifted = lifted(&self.lua, taker.left, 0);
                match taker.take(&value) {
                    Ok(answer) => Ended::Done(answer),
                    Err(_) => Ended::Failed(b"ERR the script's answer is too large".to_vec()),
                }
            }
            Ok((false, error)) => Ended::Failed(failure(&error, name)),
            Err(error) => {
                let text = format!("ERR {} script: {name}.", message(&error));
                Ended::Failed(text.into_bytes())
            }
        }
    }

    /// Calls a script, or a function with the globals of its library.
    fn enter(
        &self,
        (function, env): (&Function, Option<Table>),
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> LuaResult<(bool, Lua51)> {
        let max = self.state.memory_max.get();
        let list = |all: &[&[u8]]| -> LuaResult<Table> {
            let bytes: usize = all.iter().map(|text| text.len()).sum();
            let _lifted = lifted(&self.lua, max, bytes + all.len() * room::EACH);
            self.lua
                .create_sequence_from(all.iter().map(|bytes| text(bytes)))
        };
        let (keys, args) = (list(keys)?, list(args)?);
        host::against(host, || match env {
            None => self.enter.call((function, &keys, &args)),
            Some(env) => self.enter_function.call((function, &env, &keys, &args)),
        })
    }
}

/// Has the script looked at every so many instructions.
fn watch_instructions(lua: &Lua, state: &Rc<State>, every: u32) -> LuaResult<()> {
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

/// A string to be. What is UTF-8 goes straight onto the stack.
fn text(bytes: &[u8]) -> Either<&str, Text<'_>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Either::Left(text),
        Err(_) => Either::Right(Text(bytes)),
    }
}

struct Text<'a>(&'a [u8]);

impl IntoLua for Text<'_> {
    fn into_lua(self, lua: &Lua) -> LuaResult<Lua51> {
        lua.create_string(self.0).map(Lua51::String)
    }
}

/// The error of a command, to be raised.
#[derive(Debug)]
pub(crate) struct Raised(pub(crate) Vec<u8>);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Raised {}

/// The functions that the prelude puts before scripts.
fn functions(lua: &Lua, state: &Rc<State>, most: usize) -> LuaResult<Table> {
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
    let is_short_of_memory =
        lua.create_function(move |lua, ()| Ok(lua.used_memory() > of.memory_max.get() / 2))?;
    rust.raw_set("is_short_of_memory", is_short_of_memory)?;
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

/// What a library has failed with.
fn error_of_library(error: &Lua51) -> Vec<u8> {
    match error {
        Lua51::Table(table) => {
            let text = table.raw_get::<Lua51>("err").ok();
            let text = text.as_ref().and_then(argument).unwrap_or_default();
            text.strip_prefix(b"ERR ")
                .map(<[u8]>::to_vec)
                .unwrap_or(text)
        }
        Lua51::Error(error) => plain(error),
        other => argument(other).unwrap_or_else(|| library::type_name(other).into()),
    }
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
