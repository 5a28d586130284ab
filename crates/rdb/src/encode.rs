//! Writing a file.

use crate::crc;
use crate::stream;
use crate::value::Value;
use crate::write::{LIBRARY, length, string};

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
const ZSET: u8 = 5;
const EXPIRES_MS: u8 = 0xfc;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;

/// Writes a file of version 9, key by key; each call appends bytes to `to`.
#[derive(Debug)]
pub struct Encoder {
    crc: u64,
    database: Option<u32>,
}

impl Encoder {
    /// Writes the beginning of a file.
    #[must_use]
    pub fn new(to: &mut Vec<u8>) -> Encoder {
        let mut encoder = Encoder {
            crc: 0,
            database: None,
        };
        encoder.put(to, |to| to.extend_from_slice(b"REDIS0009"));
        encoder
    }

    fn put(&mut self, to: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
        let from = to.len();
        put(to);
        self.crc = crc::append(self.crc, &to[from..]);
    }

    /// Writes a key. `deadline_ms` is when it expires, in milliseconds since 1970. All keys of a
    /// database come together.
    pub fn key(
        &mut self,
        database: u32,
        key: &[u8],
        deadline_ms: Option<u64>,
        value: &Value,
        to: &mut Vec<u8>,
    ) {
        let changes = self.database.replace(database) != Some(database);
        self.put(to, |to| {
            if changes {
                to.push(DATABASE);
                length(to, database as usize);
            }
            if let Some(at) = deadline_ms {
                to.push(EXPIRES_MS);
                to.extend_from_slice(&at.to_le_bytes());
            }
            to.push(kind(value));
            string(to, key);
            put_value(to, value);
        });
    }

    /// Writes a library of functions. Libraries come before all keys, and only Redis 7 and later loads
    /// them.
    pub fn library(&mut self, text: &[u8], to: &mut Vec<u8>) {
        self.put(to, |to| {
            to.push(LIBRARY);
            string(to, text);
        });
    }

    /// Writes the end, with the checksum of all written bytes.
    pub fn end(mut self, to: &mut Vec<u8>) {
        self.put(to, |to| to.push(END));
        to.extend_from_slice(&self.crc.to_le_bytes());
    }
}

/// The number of a type in the form that is written.
pub(crate) fn kind(value: &Value) -> u8 {
    match value {
        Value::String(_) => STRING,
        Value::List(_) => LIST,
        Value::Set(_) => SET,
        Value::Hash(_) => HASH,
        Value::ZSet(_) => ZSET,
        Value::Stream(_) => stream::KIND,
    }
}

pub(crate) fn put_value(to: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(s) => string(to, s),
        Value::List(all) | Value::Set(all) => {
            length(to, all.len());
            all.iter().for_each(|element| string(to, element));
        }
        Value::Hash(pairs) => {
            length(to, pairs.len());
            for (field, value) in pairs {
                string(to, field);
                string(to, value);
            }
        }
        Value::ZSet(members) => {
            length(to, members.len());
            for (member, score) in members {
                string(to, member);
                to.extend_from_slice(&score.to_le_bytes());
            }
        }
        Value::Stream(stream) => stream::put(to, stream),
    }
}
