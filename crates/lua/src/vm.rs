//! The interpreter: compiles scripts, runs them, and stops them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{ChunkMode, Either, Error, Function, IntoLua, Lua, LuaOptions};
use mlua::{Result as LuaResult, StdLib, Table, Value as Lua51};

use crate::answer::{Answer, NoAnswer, Taker, argument};
use crate::args::{self, NO_MEMORY};
use crate::functions::{CHUNK, LIBRARY, functions};
use crate::growth::Growth;
use crate::host::{self, Host, Stop, Verdict};
use crate::json::config::JsonConfig;
use crate::leash::Leash;
use crate::library;
use crate::raised::{message, plain};
use crate::random::Random;
use crate::room::{self, lifted};
use crate::state::{INSTRUCTIONS, Looks, State, watch_instructions};

/// Compiled scripts that are kept.
const COMPILED: usize = 1000;
/// What the taking of an answer may cost while the script is on a leash, where it begins elsewhere if that is too much, and
/// where the leash was released: there it gets an error. A table costs eight, a KiB one.
const EFFORT_HELD: usize = 8 << 10;
const EFFORT_RELEASED: usize = 64 << 10;
/// Longest text: the parser counts what it reads in an int (CVE-2025-46819).
const CHUNK_MAX: usize = 1 << 30;

/// A script and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The name of the text: equal names mean equal texts.
    pub name: &'a str,
    /// Text of the script.
    pub text: &'a [u8],
    /// `KEYS`.
    pub keys: &'a [&'a [u8]],
    /// `ARGV`.
    pub args: &'a [&'a [u8]],
    /// Bytes that it may take beside what the interpreter has, until the [leash](Vm::leash) is released; beyond that it
    /// ends as [outgrown](Ended::Outgrown).
    pub leash: Option<usize>,
}

/// A call of a function of a library.
#[derive(Clone, Copy, Debug)]
pub struct Fcall<'a> {
    /// The number of the library's text: equal numbers mean equal texts.
    pub library: u64,
    /// Text of the library.
    pub text: &'a [u8],
    /// The function's name.
    pub function: &'a str,
    /// First argument of the function: the keys.
    pub keys: &'a [&'a [u8]],
    /// Second argument of the function: the other arguments.
    pub args: &'a [&'a [u8]],
    /// The leash, as in a [`Run`].
    pub leash: Option<usize>,
}

/// A function that a library has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Name of the function, as it was given.
    pub name: Vec<u8>,
    /// The description that the function gives of itself.
    pub description: Option<Vec<u8>>,
    /// Flags of the function, in their order; the host gives them meaning.
    pub flags: Vec<Vec<u8>>,
}

/// How a script ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// The script has ended with an answer.
    Done(Answer),
    /// With an error: its code and text.
    Failed(Vec<u8>),
    /// The script was stopped.
    Stopped(Stop),
    /// The script has needed more memory than its leash allows.
    Outgrown,
}

/// Why a library was not loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum NotLoaded {
    /// The error line with the fault of the library.
    Failed(Vec<u8>),
    /// The library was stopped.
    Stopped(Stop),
    /// The library has needed more memory than its leash allows.
    Outgrown,
}

impl NotLoaded {
    fn into_ended(self) -> Ended {
        match self {
            NotLoaded::Failed(line) => Ended::Failed(line),
            NotLoaded::Stopped(stop) => Ended::Stopped(stop),
            NotLoaded::Outgrown => Ended::Outgrown,
        }
    }
}

/// A library that was loaded.
struct Library {
    /// The globals of the library's functions.
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
    /// The script that runs began on a leash.
    is_leashed: Cell<bool>,
    /// Bytes in use when the collector was stopped, and bytes for which it still has to work.
    used_before: Cell<usize>,
    to_collect: Cell<usize>,
    compiled: RefCell<HashMap<String, Rc<Function>>>,
    /// The last function that was run, which is often the next one.
    last: RefCell<Option<(String, Rc<Function>)>>,
    libraries: RefCell<HashMap<u64, Rc<Library>>>,
    growth: Growth,
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
            limit: Cell::new(memory_max),
            leash: Leash::default(),
            is_uncollected: Cell::default(),
            is_dense: Cell::default(),
            random: Random::default(),
            json: Rc::default(),
        });
        let rust = functions(&lua, &state, memory_max)?;
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
            is_leashed: Cell::default(),
            used_before: Cell::default(),
            to_collect: Cell::default(),
            compiled: RefCell::default(),
            last: RefCell::default(),
            libraries: RefCell::default(),
            growth: Growth::default(),
            _names: names,
        })
    }

    /// Compiles a script, or finds it compiled.
    ///
    /// # Errors
    /// The fault of the script, in words.
    pub fn compile(&self, name: &str, text: &[u8]) -> Result<(), Vec<u8>> {
        self.function(name, text).map(|_| ())
    }

    /// Whether a script compiles. The compiled script is not kept.
    ///
    /// # Errors
    /// The fault of the script, in words.
    pub fn check(&self, text: &[u8]) -> Result<(), Vec<u8>> {
        self.chunk(CHUNK, text, None).map(|_| ())
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
                self.close_growth();
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
    /// The fault of the library, or that it was stopped, or has needed more memory than `leash` allows beside the
    /// interpreter's own.
    pub fn load(
        &self,
        library: u64,
        text: &[u8],
        leash: Option<usize>,
    ) -> Result<Vec<Registered>, NotLoaded> {
        let prefixed = |prefix: &str, text: &[u8]| [prefix.as_bytes(), text].concat();
        self.close_growth();
        self.begin(0, leash);
        let before = self.used_memory();
        let loaded = self.load_now(library, text, &prefixed);
        let took = self.used_memory().saturating_sub(before);
        let is_held = self.state.leash.holds();
        self.end();
        if leash.is_some() {
            self.growth.loaded(text.len(), took);
        }
        if let Some(stop) = self.state.stopped.take() {
            return Err(NotLoaded::Stopped(stop));
        }
        loaded.map_err(|line| match is_held && tells_of_memory(&line) {
            true => NotLoaded::Outgrown,
            false => NotLoaded::Failed(line),
        })
    }

    fn load_now(
        &self,
        library: u64,
        text: &[u8],
        prefixed: &dyn Fn(&str, &[u8]) -> Vec<u8>,
    ) -> Result<Vec<Registered>, Vec<u8>> {
        let chunk = self
            .chunk(LIBRARY, text, None)
            .map_err(|why| prefixed("ERR Error compiling function: ", &why))?;
        let result: LuaResult<(bool, Lua51, Table)> = self.enter_library.call(chunk);
        let failed = |why: &[u8]| prefixed("ERR Error registering functions: ", why);
        let (made, env) = match result {
            _ if self.state.stopped.borrow().is_some() => return Err(Vec::new()),
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

    /// Whether a library is loaded.
    #[must_use]
    pub fn has_library(&self, library: u64) -> bool {
        self.libraries.borrow().contains_key(&library)
    }

    /// Forgets a library, if it is there.
    pub fn forget_library(&self, library: u64) {
        self.close_growth();
        self.libraries.borrow_mut().remove(&library);
    }

    /// Forgets the libraries that are not to be kept.
    pub fn keep_libraries(&self, mut keep: impl FnMut(u64) -> bool) {
        self.close_growth();
        self.libraries.borrow_mut().retain(|id, _| keep(*id));
    }

    /// Calls a function of a library, which is loaded if it is not there.
    pub fn call(&self, call: Fcall<'_>, host: &mut dyn Host) -> Ended {
        if !self.has_library(call.library)
            && let Err(why) = self.load(call.library, call.text, call.leash)
        {
            return why.into_ended();
        }
        let library = self.libraries.borrow().get(&call.library).cloned();
        let found = library.and_then(|library| {
            let function = library.functions.get(call.function.as_bytes())?.clone();
            Some((function, library.env.clone()))
        });
        let Some((function, env)) = found else {
            return Ended::Failed(b"ERR Function not found".to_vec());
        };
        if call.leash.is_some() {
            // The collector refuses nothing.
            let _ = self.growth.begin(&self.lua);
        }
        self.begin(host.chance(), call.leash);
        let before = self.used_memory();
        let result = self.enter((&function, Some(env)), call.keys, call.args, host);
        let took = self.used_memory().saturating_sub(before);
        let was_released = !self.state.leash.holds();
        let ended = self.ended(result, call.function);
        if call.leash.is_some() {
            let _ = self.growth.called(&self.lua, took, was_released);
        }
        ended
    }

    fn close_growth(&self) {
        if !self.libraries.borrow().is_empty() {
            let _ = self.growth.close(&self.lua);
        }
    }

    /// Whether libraries have kept more in the interpreter, from calls on a leash, than is little: what the next call does with
    /// it may take long.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        self.growth.is_much()
    }

    /// Forgets all compiled scripts.
    pub fn forget(&self) {
        self.close_growth();
        self.compiled.borrow_mut().clear();
        self.last.replace(None);
    }

    /// Bytes that the interpreter takes.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// The globals of scripts.
    #[cfg(test)]
    pub(crate) fn globals(&self) -> &Table {
        &self.env
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
        self.begin(host.chance(), run.leash);
        let result = self.enter((&function, None), run.keys, run.args, host);
        self.ended(result, run.name)
    }

    /// The leash of the script that runs.
    #[must_use]
    pub fn leash(&self) -> Leash {
        self.state.leash.clone()
    }

    /// Makes all as new for the next script.
    fn begin(&self, chance: u32, leash: Option<usize>) {
        self.is_leashed.set(leash.is_some());
        if let Some(more) = leash {
            let limit = self.used_memory().saturating_add(more);
            self.state.leash.hold();
            if !self.state.is_uncollected.replace(true) {
                self.lua.gc_stop();
                self.used_before.set(self.used_memory());
            }
            self.state
                .set_limit(&self.lua, limit.min(self.state.memory_max.get()));
        }
        self.state.stopped.replace(None);
        self.state.resp3.set(false);
        if self.state.is_dense.replace(false) {
            // The hook was set before, so this cannot fail.
            let _ = watch_instructions(&self.lua, &self.state, INSTRUCTIONS);
        }
        self.state.random.seed(chance as i32);
        self.state.json.replace(JsonConfig::default());
    }

    /// The script has come to its end.
    fn end(&self) {
        let is_uncollected = self.state.is_uncollected.get();
        self.state.leash.release();
        self.state.heed_leash(&self.lua);
        if is_uncollected {
            self.collect();
        }
    }

    /// Has the collector do what it would have done while it stood still; much of that is left to later scripts.
    fn collect(&self) {
        const LEAST: usize = 64 << 10;
        const MOST: usize = 256 << 10;
        let took = self.used_memory().saturating_sub(self.used_before.get());
        let due = self.to_collect.get().saturating_add(took);
        self.to_collect.set(due);
        if due >= LEAST {
            let now = due.min(MOST);
            let is_done = self.lua.gc_step_kbytes((now >> 10) as i32);
            let left = if is_done.unwrap_or(true) {
                0
            } else {
                due - now
            };
            self.to_collect.set(left);
        }
    }

    /// How the script ended, according to the prelude's result.
    fn ended(&self, result: LuaResult<(bool, Lua51)>, name: &str) -> Ended {
        let is_held = self.state.leash.holds();
        let effort = match (is_held, self.is_leashed.get()) {
            (true, _) => EFFORT_HELD,
            (false, true) => EFFORT_RELEASED,
            (false, false) => usize::MAX,
        };
        self.end();
        if let Some(stop) = self.state.stopped.take() {
            return Ended::Stopped(stop);
        }
        let ended = self.ended_alone(result, name, effort, is_held);
        if let Some(stop) = self.state.stopped.take() {
            return Ended::Stopped(stop);
        }
        match ended {
            Ended::Failed(line) if is_held && tells_of_memory(&line) => Ended::Outgrown,
            ended => ended,
        }
    }

    fn ended_alone(
        &self,
        result: LuaResult<(bool, Lua51)>,
        name: &str,
        effort: usize,
        is_held: bool,
    ) -> Ended {
        match result {
            Ok((true, value)) => {
                let mut taker = Taker {
                    effort,
                    looks: Looks::of(&self.state),
                    left: self.state.memory_max.get(),
                    resp3: self.state.resp3.get(),
                };
                // The decoder makes the names of a few fields at most.
                let _lifted = lifted(&self.lua, taker.left, 0);
                match taker.take(&value) {
                    Ok(answer) => Ended::Done(answer),
                    Err(NoAnswer::Effort) if is_held => Ended::Outgrown,
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
        let list = |all: &[&[u8]]| -> LuaResult<Table> {
            let bytes: usize = all.iter().map(|text| text.len()).sum();
            let (limit, is_held) = (self.state.limit.get(), self.state.leash.holds());
            let before = self.used_memory();
            if is_held {
                // The bytes of the values do no harm; their number does.
                self.state.lengthen(&self.lua, bytes);
            }
            let most = self.state.limit.get();
            let lifted = lifted(&self.lua, most, bytes + all.len() * room::EACH);
            let mut looks = Looks::of(&self.state);
            let text = |bytes| text(bytes, looks.is_due().then_some(&*self.state));
            let made = self.lua.create_sequence_from(all.iter().copied().map(text));
            drop(lifted);
            if is_held {
                // Texts that the interpreter has take nothing.
                let taken = self.used_memory().saturating_sub(before);
                self.state.set_limit(&self.lua, limit);
                self.state.lengthen(&self.lua, bytes.min(taken));
            }
            made
        };
        let (keys, args) = (list(keys)?, list(args)?);
        host::against(host, || match env {
            None => self.enter.call((function, &keys, &args)),
            Some(env) => self.enter_function.call((function, &env, &keys, &args)),
        })
    }
}

/// A string to be. What is UTF-8 goes straight onto the stack, unless the script is to be looked at before.
fn text<'a>(bytes: &'a [u8], look: Option<&'a State>) -> Either<&'a str, Text<'a>> {
    match std::str::from_utf8(bytes) {
        Ok(text) if look.is_none() => Either::Left(text),
        _ => Either::Right(Text(bytes, look)),
    }
}

struct Text<'a>(&'a [u8], Option<&'a State>);

impl IntoLua for Text<'_> {
    fn into_lua(self, lua: &Lua) -> LuaResult<Lua51> {
        if let Some(state) = self.1 {
            state.look()?;
        }
        lua.create_string(self.0).map(Lua51::String)
    }
}

/// Whether an error line is about a lack of memory.
fn tells_of_memory(line: &[u8]) -> bool {
    memchr::memmem::find(line, NO_MEMORY.as_bytes()).is_some()
}

/// The error of a library.
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
        other => argument(other).unwrap_or_else(|| args::type_name(other).into()),
    }
}

/// The error line of a script that has failed.
fn failure(error: &Lua51, name: &str) -> Vec<u8> {
    let Lua51::Table(table) = error else {
        let text = match error {
            Lua51::Error(error) => plain(error),
            other => argument(other).unwrap_or_else(|| args::type_name(other).into()),
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
