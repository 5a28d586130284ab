//! How functions in Rust are put before scripts: with the arguments that Lua has, and errors that say where
//! the script called them.

use mlua::{Error, Lua, MultiValue, Result as LuaResult, Table, Value};

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

    /// The bytes of a string; numbers become text.
    pub(crate) fn bytes(&self, at: usize, function: &str) -> Result<Vec<u8>, Box<str>> {
        match self.get(at) {
            Value::String(text) => Ok(text.as_bytes().to_vec()),
            Value::Integer(n) => Ok(n.to_string().into_bytes()),
            Value::Number(x) => Ok(crate::number::general(x, 14).into_bytes()),
            _ => Err(self.expected(at, function, "string")),
        }
    }

    fn expected(&self, at: usize, function: &str, what: &str) -> Box<str> {
        let got = match self.0.get(at) {
            None => "no value",
            Some(value) => type_name(value),
        };
        let at = at + 1;
        format!("bad argument #{at} to '{function}' ({what} expected, got {got})").into()
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
pub(crate) fn table(lua: &Lua, functions: &[(&str, Function)]) -> LuaResult<Table> {
    let table = lua.create_table()?;
    for &(name, function) in functions {
        table.raw_set(name, wrapped(lua, function)?)?;
    }
    Ok(table)
}

/// One function.
pub(crate) fn wrapped(
    lua: &Lua,
    function: impl Fn(&Lua, &Args) -> Outcome + 'static,
) -> LuaResult<mlua::Function> {
    lua.create_function(move |lua, args: MultiValue| {
        let args = Args(args.into_vec());
        match function(lua, &args) {
            Ok(values) => Ok(MultiValue::from_vec(values)),
            Err(text) => Err(Error::runtime(format!("{}{text}", place(lua)))),
        }
    })
}

/// Where the running function was called, as error texts begin; nothing if not by Lua.
fn place(lua: &Lua) -> String {
    let line = lua.inspect_stack(1, |caller| {
        let name = caller.source().short_src?.into_owned();
        caller.current_line().map(|line| format!("{name}:{line}: "))
    });
    line.flatten().unwrap_or_default()
}

/// The error of a value that could not be made, for lack of memory.
pub(crate) fn no_memory(_: mlua::Error) -> Box<str> {
    "not enough memory".into()
}
