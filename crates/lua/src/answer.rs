//! The value that a script returns, taken from its value of Lua.

use mlua::{Table, Value};

use crate::number::{cast, shortest, whole};
use crate::state::{Looks, Stopped};

/// Deepest nesting of an answer.
const DEPTH: usize = 100;
/// Bytes that an answer takes beside its text, about.
const EACH: usize = 64;
/// What a table costs beside its values, whose fields are looked for; and bytes of a text that cost as much as a value.
const TABLE: usize = 8;
const BYTES: usize = 1024;

/// The value that a script returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A null.
    Nil,
    /// A whole number; of one with a fraction the part before it.
    Integer(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// `{ok = text}`.
    Status(Vec<u8>),
    /// `{err = text}`.
    Error(Vec<u8>),
    /// True or false; only of scripts that speak the third version of the protocol.
    Bool(bool),
    /// `{double = number}`.
    Double(f64),
    /// `{big_number = text}`.
    Big(Vec<u8>),
    /// `{verbatim_string = {format = text, string = text}}`.
    Verbatim(Vec<u8>, Vec<u8>),
    /// A table, up to the first nil.
    Array(Vec<Answer>),
    /// `{map = table}`.
    Map(Vec<(Answer, Answer)>),
    /// `{set = table}`, its keys.
    Set(Vec<Answer>),
}

/// Takes an answer that is not too large.
pub(crate) struct Taker<'s> {
    /// What taking it may still cost.
    pub(crate) effort: usize,
    /// It may take long: the script is looked at on the way.
    pub(crate) looks: Looks<'s>,
    /// Bytes that the answer may still take.
    pub(crate) left: usize,
    /// Whether true and false stay booleans.
    pub(crate) resp3: bool,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It takes too many bytes.
    Bytes,
    /// It takes too long.
    Effort,
    /// The script is to stop.
    Stopped,
}

impl From<Stopped> for NoAnswer {
    fn from(_: Stopped) -> NoAnswer {
        NoAnswer::Stopped
    }
}

impl Taker<'_> {
    pub(crate) fn take(&mut self, value: &Value) -> Result<Answer, NoAnswer> {
        self.at(value, 0)
    }

    fn at(&mut self, value: &Value, depth: usize) -> Result<Answer, NoAnswer> {
        self.spend(EACH)?;
        self.looks.next()?;
        let cost = match value {
            Value::Table(_) => TABLE,
            _ => 1,
        };
        self.work(cost)?;
        match value {
            Value::Boolean(yes) if self.resp3 => Ok(Answer::Bool(*yes)),
            Value::Boolean(true) => Ok(Answer::Integer(1)),
            Value::Integer(n) => Ok(Answer::Integer(*n)),
            Value::Number(x) => Ok(Answer::Integer(cast(*x))),
            Value::String(text) => Ok(Answer::Bulk(self.bytes(&text.as_bytes())?)),
            Value::Table(table) => self.table(table, depth),
            _ => Ok(Answer::Nil),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Answer, NoAnswer> {
        if depth >= DEPTH {
            return Ok(Answer::Error(b"ERR reached lua stack limit".to_vec()));
        }
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            return Ok(Answer::Error(self.bytes(&text.as_bytes())?));
        }
        if let Value::String(text) = field("ok") {
            return Ok(Answer::Status(self.bytes(&text.as_bytes())?));
        }
        match field("double") {
            Value::Integer(n) => return Ok(Answer::Double(n as f64)),
            Value::Number(x) => return Ok(Answer::Double(x)),
            _ => {}
        }
        if let Value::Table(map) = field("map") {
            let mut pairs = Vec::new();
            for pair in map.pairs::<Value, Value>() {
                let Ok((key, value)) = pair else { break };
                pairs.push((self.at(&key, depth + 1)?, self.at(&value, depth + 1)?));
            }
            return Ok(Answer::Map(pairs));
        }
        if let Value::Table(set) = field("set") {
            let mut all = Vec::new();
            for pair in set.pairs::<Value, Value>() {
                let Ok((key, _)) = pair else { break };
                all.push(self.at(&key, depth + 1)?);
            }
            return Ok(Answer::Set(all));
        }
        if let Value::String(text) = field("big_number") {
            let clean = |b: &u8| if matches!(b, b'\r' | b'\n') { b' ' } else { *b };
            self.spend(text.as_bytes().len())?;
            return Ok(Answer::Big(text.as_bytes().iter().map(clean).collect()));
        }
        if let Value::Table(verbatim) = field("verbatim_string") {
            let field = |name: &str| verbatim.raw_get::<Value>(name).unwrap_or(Value::Nil);
            if let (Value::String(format), Value::String(text)) = (field("format"), field("string"))
            {
                // The format has three letters; Redis cuts and fills it.
                let mut letters = format.as_bytes().to_vec();
                letters.resize(3, b' ');
                return Ok(Answer::Verbatim(letters, self.bytes(&text.as_bytes())?));
            }
        }
        let mut all = Vec::new();
        for at in 1.. {
            match table.raw_get::<Value>(at) {
                Ok(Value::Nil) | Err(_) => break,
                Ok(value) => all.push(self.at(&value, depth + 1)?),
            }
        }
        Ok(Answer::Array(all))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<Vec<u8>, NoAnswer> {
        self.spend(bytes.len())?;
        Ok(bytes.to_vec())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), NoAnswer> {
        self.work(bytes / BYTES)?;
        self.left = self.left.checked_sub(bytes).ok_or(NoAnswer::Bytes)?;
        Ok(())
    }

    fn work(&mut self, cost: usize) -> Result<(), NoAnswer> {
        self.effort = self.effort.checked_sub(cost).ok_or(NoAnswer::Effort)?;
        Ok(())
    }
}

/// An argument of a command: strings as they are, numbers as text.
pub(crate) fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(n) => Some(n.to_string().into_bytes()),
        Value::Number(x) => Some(match whole(*x) {
            Some(n) => n.to_string().into_bytes(),
            None => shortest(*x).into_bytes(),
        }),
        _ => None,
    }
}
