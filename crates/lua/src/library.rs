//! How functions in Rust are put before scripts: with the arguments that Lua has, and errors that say where
//! the script called them.

use std::ops::Deref;
use std::rc::Rc;

use mlua::{BorrowedBytes, Error, Lua, MultiValue, Result as LuaResult, Table, Value};

use crate::vm::{State, look_closely};

/// Bytes of an argument from which on its function may take so long that the script is looked at.
const LONG: usize = 32 << 10;
/// The error of what does not fit into the memory of scripts.
pub(crate) const NO_MEMORY: &str = "not enough memory";
/// The name of the prelude's chunk: its lines are none of the script's.
pub(crate) const PRELUDE: &str = "=prelude";

/// What a function answers, or the text of its error.
pub(crate) type Outcome = Result<Vec<Value>, Box<str>>;

/// The arguments of a call.
pub(crate) struct Args(Vec<Value>);

impl Args {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, at: usize) -> Value {
        self.0.get(at).cloned().unwrap_or(Value::Nil)
    }

    /// A number, or a text that reads as one.
    pub(crate) fn number(&self, at: usize, function: &str) -> Result<f64, Box<str>> {
        let value = self.get(at);
        as_number(&value).ok_or_else(|| self.expected(at, function, "number"))
    }

    /// A number cut to 64 bits, or what stands for it where there is none.
    pub(crate) fn integer_or(
        &self,
        at: usize,
        function: &str,
        default: i64,
    ) -> Result<i64, Box<str>> {
        match self.get(at) {
            Value::Nil => Ok(default),
            _ => self.number(at, function).map(|x| x as i64),
        }
    }

    /// The bytes of a string, as a copy; numbers become text.
    pub(crate) fn bytes(&self, at: usize, function: &str) -> Result<Vec<u8>, Box<str>> {
        self.text(at, function).map(|text| text.to_vec())
    }

    /// The bytes of a string, where they stand in Lua; numbers become text.
    pub(crate) fn text(&self, at: usize, function: &str) -> Result<Text<'_>, Box<str>> {
        let text = match self.0.get(at) {
            Some(Value::String(text)) => Some(Text::Here(text.as_bytes())),
            Some(value) => as_text(value).map(Text::Made),
            None => None,
        };
        text.ok_or_else(|| self.expected(at, function, "string"))
    }

    pub(crate) fn expected(&self, at: usize, function: &str, what: &str) -> Box<str> {
        let got = match self.0.get(at) {
            None => "no value",
            Some(value) => type_name(value),
        };
        let at = at + 1;
        format!("bad argument #{at} to '{function}' ({what} expected, got {got})").into()
    }
}

/// Whether a value is so large that what is done with it may take long.
fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.as_bytes().len() > LONG,
        _ => false,
    }
}

/// The bytes of an argument.
pub(crate) enum Text<'a> {
    /// Those of a string of Lua.
    Here(BorrowedBytes<'a>),
    /// Those that a number is written with.
    Made(Vec<u8>),
}

impl Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Text::Here(bytes) => bytes,
            Text::Made(bytes) => bytes,
        }
    }
}

/// A number as Lua writes it, for what is a text or a number.
pub(crate) fn as_text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        // Lua knows no other numbers than those with a fraction.
        Value::Integer(n) if n.unsigned_abs() < 100_000_000_000_000 => {
            Some(n.to_string().into_bytes())
        }
        Value::Integer(n) => Some(crate::number::general(*n as f64, 14).into_bytes()),
        Value::Number(x) => Some(crate::number::general(*x, 14).into_bytes()),
        _ => None,
    }
}

/// The name of a value's type, as Lua says it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) => "userdata",
        value => value.type_name(),
    }
}

/// A number, or a text that reads as one.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(x) => Some(*x),
        Value::String(text) => {
            let text = text.to_str().ok()?;
            let text = text.trim();
            match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                Some(digits) => u64::from_str_radix(digits, 16).ok().map(|n| n as f64),
                // Rust reads words that Lua does not.
                None if text.contains(['n', 'N', 'i', 'I']) => None,
                None => text.parse().ok(),
            }
        }
        _ => None,
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
        let args = Args(args.into_vec());
        let result = function(lua, &args);
        let any_long = |values: &Vec<Value>| values.iter().any(is_long);
        if any_long(&args.0) || result.as_ref().is_ok_and(any_long) {
            look_closely(lua, &state)?;
        }
        match result {
            Ok(values) => Ok(MultiValue::from_vec(values)),
            // As Lua says it itself, without a place.
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

/// The error of a value that could not be made, for lack of memory.
pub(crate) fn no_memory(_: mlua::Error) -> Box<str> {
    NO_MEMORY.into()
}
