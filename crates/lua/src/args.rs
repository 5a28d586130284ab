//! The arguments of a function of a library, and its results.

use std::ops::Deref;

use mlua::{BorrowedBytes, Value};

/// The error for a value that does not fit into the memory of scripts.
pub(crate) const NO_MEMORY: &str = "not enough memory";

/// The results of a function, or the text of its error.
pub(crate) type Outcome = Result<Vec<Value>, Box<str>>;

/// The arguments of a call.
pub(crate) struct Args(Vec<Value>);

impl Args {
    pub(crate) fn new(args: Vec<Value>) -> Args {
        Args(args)
    }

    pub(crate) fn all(&self) -> &[Value] {
        &self.0
    }

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

/// The bytes of an argument.
pub(crate) enum Text<'a> {
    /// Bytes of a string of Lua.
    Here(BorrowedBytes<'a>),
    /// Digits of a number.
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
        // Lua has floating-point numbers only.
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

/// The error of a value that could not be made, for lack of memory.
pub(crate) fn no_memory(_: mlua::Error) -> Box<str> {
    NO_MEMORY.into()
}
