//! The replies of `redis.call`, and their conversion to values of Lua.

use std::borrow::Cow;
use std::cell::Cell;

use mlua::{Lua, Result, Value as Lua51};

use crate::room::EACH;

/// Deepest nesting of replies that is read.
const DEPTH: usize = 64;
/// A longer text is measured when it is made; bytes.
const SHORT: usize = 64;

/// A reply to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A string; `bulk` in the protocol.
    Bulk(&'a [u8]),
    /// A status such as `OK`.
    Status(&'a [u8]),
    /// An error: its code and text.
    Error(Cow<'a, [u8]>),
    /// A whole number.
    Integer(i64),
    /// The null of RESP2.
    Nil,
    /// The null of RESP3.
    Null,
    /// True or false, in the third version.
    Bool(bool),
    /// A number with a fraction, in the third version.
    Double(f64),
    /// A number of any length, as text.
    Big(&'a [u8]),
    /// Text for people: its format of three letters, and itself.
    Verbatim(&'a [u8], &'a [u8]),
    /// Several in order.
    Array(Vec<Value<'a>>),
    /// Pairs.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// Several in no order.
    Set(Vec<Value<'a>>),
}

impl<'a> Value<'a> {
    /// The reply that `bytes` begin with, in either version of the protocol, and what is behind it; `None`
    /// if they do not begin with a whole one, or it nests more than 64 deep.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<(Value<'a>, &'a [u8])> {
        parse(bytes, DEPTH)
    }

    /// Bytes that the value takes at most as a value of Lua.
    pub(crate) fn room(&self) -> usize {
        let sum = |all: &[Value<'_>]| all.iter().map(Value::room).sum::<usize>();
        let inside = match self {
            Value::Bulk(text) | Value::Status(text) | Value::Big(text) => text.len(),
            Value::Error(text) => text.len(),
            Value::Verbatim(format, text) => format.len() + text.len(),
            Value::Array(all) | Value::Set(all) => sum(all),
            Value::Map(pairs) => pairs.iter().map(|(a, b)| a.room() + b.room()).sum(),
            Value::Integer(_) | Value::Double(_) | Value::Bool(_) | Value::Nil | Value::Null => 0,
        };
        inside + EACH
    }

    /// How many values the reply is made of.
    pub(crate) fn parts(&self) -> usize {
        let sum = |all: &[Value<'_>]| all.iter().map(Value::parts).sum::<usize>();
        1 + match self {
            Value::Array(all) | Value::Set(all) => sum(all),
            Value::Map(pairs) => pairs.iter().map(|(a, b)| a.parts() + b.parts()).sum(),
            _ => 0,
        }
    }

    /// Converts the reply to a value of Lua. `next` is called before each value that it is made of. The memory that long
    /// texts take is added to `taken`: one that the interpreter has already takes none.
    pub(crate) fn to_lua(
        &self,
        lua: &Lua,
        taken: &Cell<usize>,
        next: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Lua51> {
        next()?;
        let string = |bytes: &[u8]| {
            if bytes.len() <= SHORT {
                return lua.create_string(bytes).map(Lua51::String);
            }
            let before = lua.used_memory();
            let text = lua.create_string(bytes)?;
            taken.set(taken.get() + lua.used_memory().saturating_sub(before));
            Ok(Lua51::String(text))
        };
        let single = |name: &str, value: Lua51| -> Result<Lua51> {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set(name, value)?;
            Ok(Lua51::Table(table))
        };
        match self {
            Value::Bulk(bytes) => string(bytes),
            Value::Status(text) => single("ok", string(text)?),
            Value::Error(text) => single("err", string(text)?),
            Value::Integer(n) => Ok(Lua51::Number(*n as f64)),
            Value::Nil => Ok(Lua51::Boolean(false)),
            Value::Null => Ok(Lua51::Nil),
            Value::Bool(yes) => Ok(Lua51::Boolean(*yes)),
            Value::Double(x) => single("double", Lua51::Number(*x)),
            Value::Big(text) => single("big_number", string(text)?),
            Value::Verbatim(format, text) => {
                let table = lua.create_table_with_capacity(0, 2)?;
                table.raw_set("string", string(text)?)?;
                table.raw_set("format", string(format)?)?;
                single("verbatim_string", Lua51::Table(table))
            }
            Value::Array(all) => {
                let table = lua.create_table_with_capacity(all.len(), 0)?;
                for (at, value) in all.iter().enumerate() {
                    table.raw_set(at + 1, value.to_lua(lua, taken, next)?)?;
                }
                Ok(Lua51::Table(table))
            }
            Value::Map(pairs) => {
                let table = lua.create_table_with_capacity(0, pairs.len())?;
                for (key, value) in pairs {
                    let (key, value) = (
                        key.to_lua(lua, taken, next)?,
                        value.to_lua(lua, taken, next)?,
                    );
                    if is_key(&key) {
                        table.raw_set(key, value)?;
                    }
                }
                single("map", Lua51::Table(table))
            }
            Value::Set(all) => {
                let table = lua.create_table_with_capacity(0, all.len())?;
                for key in all {
                    let key = key.to_lua(lua, taken, next)?;
                    if is_key(&key) {
                        table.raw_set(key, true)?;
                    }
                }
                single("set", Lua51::Table(table))
            }
        }
    }
}

/// Whether a table can have the value as a key.
fn is_key(value: &Lua51) -> bool {
    match value {
        Lua51::Nil => false,
        Lua51::Number(x) => !x.is_nan(),
        _ => true,
    }
}

/// Where the line ends that `bytes` begin with.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|b| *b == b'\r')?;
        if *bytes.get(at + 1)? == b'\n' {
            return Some(at);
        }
        from = at + 1;
    }
}

fn parse(bytes: &[u8], depth: usize) -> Option<(Value<'_>, &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let end = line_end(rest)?;
    let (line, rest) = (&rest[..end], &rest[end + 2..]);
    let text = || std::str::from_utf8(line).ok();
    let number = || text()?.parse::<i64>().ok();
    let value = match kind {
        b'+' => Value::Status(line),
        b'-' => Value::Error(line.into()),
        b':' => Value::Integer(number()?),
        b'_' => Value::Null,
        b'#' => Value::Bool(line == b"t"),
        b',' => Value::Double(text()?.parse().ok()?),
        b'(' => Value::Big(line),
        b'$' | b'=' => {
            let Ok(len) = usize::try_from(number()?) else {
                return Some((Value::Nil, rest));
            };
            let (bytes, rest) = rest.split_at_checked(len)?;
            let rest = rest.strip_prefix(b"\r\n")?;
            let value = match kind {
                b'$' => Value::Bulk(bytes),
                _ if bytes.get(3) != Some(&b':') => return None,
                _ => Value::Verbatim(&bytes[..3], &bytes[4..]),
            };
            return Some((value, rest));
        }
        b'*' | b'~' | b'>' | b'%' => {
            let depth = depth.checked_sub(1)?;
            let Ok(n) = usize::try_from(number()?) else {
                return Some((Value::Nil, rest));
            };
            // Each element takes three bytes at least.
            let room = n.min(rest.len() / 3 + 1);
            let mut rest = rest;
            let mut next = || {
                let (value, behind) = parse(rest, depth)?;
                rest = behind;
                Some(value)
            };
            let value = if kind == b'%' {
                let mut pairs = Vec::with_capacity(room);
                for _ in 0..n {
                    pairs.push((next()?, next()?));
                }
                Value::Map(pairs)
            } else {
                let mut all = Vec::with_capacity(room);
                for _ in 0..n {
                    all.push(next()?);
                }
                if kind == b'~' {
                    Value::Set(all)
                } else {
                    Value::Array(all)
                }
            };
            return Some((value, rest));
        }
        _ => return None,
    };
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_whole_or_not_at_all() {
        let all: &[u8] = b"*9\r\n+OK\r\n-E x\r\n:-5\r\n$-1\r\n_\r\n#t\r\n,1.5\r\n=5\r\ntxt:a\r\n\
                           %1\r\n$1\r\nk\r\n~1\r\n(12\r\n";
        let (value, rest) = Value::parse(all).unwrap();
        assert!(rest.is_empty());
        let Value::Array(parts) = value else {
            panic!("an array");
        };
        assert_eq!(parts.len(), 9);
        assert_eq!(parts[7], Value::Verbatim(b"txt", b"a"));
        for cut in 0..all.len() {
            assert!(Value::parse(&all[..cut]).is_none(), "{cut}");
        }
        let deep = "*1\r\n".repeat(100_000) + ":1\r\n";
        assert!(Value::parse(deep.as_bytes()).is_none());
        assert!(Value::parse(b"*4000000000\r\n:1\r\n").is_none());
    }
}
