//! Values of Lua as JSON.

use mlua::{Table, Value};

use super::config::{Invalid, JsonConfig};
use crate::args::{NO_MEMORY, as_number, type_name};
use crate::effort::Effort;
use crate::number::general;

/// The text of a value, of at most `most` bytes.
pub(super) fn encode(
    value: &Value,
    config: &JsonConfig,
    most: usize,
    effort: Effort<'_>,
) -> Result<Vec<u8>, Box<str>> {
    let mut encoder = Encoder {
        text: Vec::new(),
        most,
        config,
        effort,
    };
    encoder.value(value, 0)?;
    Ok(encoder.text)
}

/// Steps that a value costs.
const EACH: u64 = 20;

struct Encoder<'a> {
    text: Vec<u8>,
    most: usize,
    config: &'a JsonConfig,
    effort: Effort<'a>,
}

impl Encoder<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Box<str>> {
        if self.text.len() + bytes.len() > self.most {
            return Err(NO_MEMORY.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: i64) -> Result<(), Box<str>> {
        self.effort.spend(EACH)?;
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.number(as_number(value).unwrap_or_default())
            }
            Value::Boolean(true) => self.put(b"true"),
            Value::Boolean(false) => self.put(b"false"),
            Value::Nil => self.put(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.put(b"null"),
            Value::Table(table) => self.table(table, depth + 1),
            other => Err(unsupported(other, "type not supported")),
        }
    }

    fn number(&mut self, x: f64) -> Result<(), Box<str>> {
        if x.is_finite() {
            return self.put(general(x, self.config.precision as usize).as_bytes());
        }
        match self.config.encode_invalid {
            Invalid::Null => self.put(b"null"),
            Invalid::Written => self.put(general(x, 14).as_bytes()),
            Invalid::Refused => Err("Cannot serialise number: must not be NaN or Inf".into()),
        }
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), Box<str>> {
        self.effort.spend(bytes.len() as u64 / 8)?;
        self.put(b"\"")?;
        let mut plain = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let hexadecimal;
            let escaped: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                8 => b"\\b",
                12 => b"\\f",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                0..32 | 127 => {
                    hexadecimal = format!("\\u{byte:04x}");
                    hexadecimal.as_bytes()
                }
                _ => continue,
            };
            self.put(&bytes[plain..at])?;
            self.put(escaped)?;
            plain = at + 1;
        }
        self.put(&bytes[plain..])?;
        self.put(b"\"")
    }

    fn table(&mut self, table: &Table, depth: i64) -> Result<(), Box<str>> {
        if depth > self.config.encode_depth {
            return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
        }
        match self.length(table)? {
            Some(n) if n > 0 => self.array(table, n, depth),
            _ => self.object(table, depth),
        }
    }

    fn array(&mut self, table: &Table, n: i64, depth: i64) -> Result<(), Box<str>> {
        self.put(b"[")?;
        for at in 1..=n {
            if at > 1 {
                self.put(b",")?;
            }
            let value = table.raw_get::<Value>(at).unwrap_or(Value::Nil);
            self.value(&value, depth)?;
        }
        self.put(b"]")
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<(), Box<str>> {
        self.put(b"{")?;
        let mut first = true;
        for pair in table.pairs::<Value, Value>() {
            let Ok((key, value)) = pair else { break };
            if !first {
                self.put(b",")?;
            }
            first = false;
            match &key {
                Value::String(text) => self.string(&text.as_bytes())?,
                Value::Integer(_) | Value::Number(_) => {
                    self.put(b"\"")?;
                    self.number(as_number(&key).unwrap_or_default())?;
                    self.put(b"\"")?;
                }
                _ => {
                    return Err(unsupported(
                        &Value::Table(table.clone()),
                        "table key must be a number or string",
                    ));
                }
            }
            self.put(b":")?;
            self.value(&value, depth)?;
        }
        self.put(b"}")
    }

    /// The largest index of a table that is an array.
    fn length(&mut self, table: &Table) -> Result<Option<i64>, Box<str>> {
        let (mut most, mut count) = (0.0_f64, 0_i64);
        for pair in table.pairs::<Value, Value>() {
            self.effort.spend(EACH)?;
            let Ok((key, _)) = pair else { break };
            let index = match key {
                Value::Integer(_) | Value::Number(_) => as_number(&key),
                _ => None,
            };
            match index {
                Some(x) if x >= 1.0 && x.fract() == 0.0 => most = most.max(x),
                _ => return Ok(None),
            }
            count += 1;
        }
        let config = self.config;
        let most = most as i64;
        if config.sparse_ratio > 0
            && most > count.saturating_mul(config.sparse_ratio)
            && most > config.sparse_safe
        {
            if !config.sparse_convert {
                return Err("Cannot serialise table: excessively sparse array".into());
            }
            return Ok(None);
        }
        Ok(Some(most))
    }
}

fn unsupported(value: &Value, why: &str) -> Box<str> {
    format!("Cannot serialise {}: {why}", type_name(value)).into()
}
