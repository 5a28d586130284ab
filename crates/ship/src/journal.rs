//! journald's export format: entries of fields, read from bytes however they come, and told as JSON.
//!
//! The journal has no offsets. Its entries are counted instead: the state says which entry (by its
//! cursor) has which id, and the server's mark says up to which id it has them; see `docs/howto/ship.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest entry, with all its fields.
pub const ENTRY_MAX: usize = 16 << 20;

/// Where the counting begins: the entry with this cursor has this id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The producer's name at the servers.
    pub producer: String,
    /// What is asked of the journal: with another question the count would be another.
    pub matches: Vec<String>,
    /// The entry.
    pub cursor: String,
    /// Id of the entry.
    pub id: u64,
    /// The server that was in use.
    #[serde(default)]
    pub server: Option<String>,
    /// Up to which id each server had acknowledged entries when it was in use.
    #[serde(default)]
    pub servers: BTreeMap<String, u64>,
}

impl Origin {
    /// Up to which id a server had acknowledged entries. A state that names none is that of a version that knew one
    /// server.
    #[must_use]
    pub fn had(&self, server: &str) -> u64 {
        match &self.server {
            None => self.id.saturating_sub(1),
            Some(_) => self.servers.get(server).copied().unwrap_or(0),
        }
    }
}

/// One entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    fields: Vec<(String, Vec<u8>)>,
}

/// The fault of bytes that are not the export format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field without a name.
    #[error("a field has no name that could be one")]
    Name,
    /// A binary field without its end.
    #[error("a binary field does not end where it says")]
    Binary,
    /// An entry above [`ENTRY_MAX`].
    #[error("an entry is longer than {ENTRY_MAX} bytes")]
    TooLong,
}

impl Entry {
    /// The first value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| &**value)
    }

    /// The journal's name for this entry.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.field("__CURSOR")
            .and_then(|cursor| str::from_utf8(cursor).ok())
    }

    /// As `journalctl -o json` tells it: text as strings, other bytes as numbers, fields that come
    /// several times as arrays.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut told = Map::new();
        for (name, value) in &self.fields {
            let value = match str::from_utf8(value) {
                Ok(text) => Value::from(text),
                Err(_) => Value::from(value.clone()),
            };
            match told.get_mut(name) {
                None => {
                    told.insert(name.clone(), value);
                }
                // The bytes of a repeated binary field are one element.
                Some(Value::Array(all)) if !all.iter().all(Value::is_number) => all.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
            }
        }
        Value::Object(told).to_string()
    }
}

/// Takes entries out of bytes.
#[derive(Debug, Default)]
pub struct Parser {
    bytes: Vec<u8>,
    done: usize,
    begun: Entry,
    len: usize,
}

impl Parser {
    /// Takes in more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next entry that is whole.
    ///
    /// # Errors
    /// [`Malformed`]; no later entry can be read.
    pub fn entry(&mut self) -> Result<Option<Entry>, Malformed> {
        while let Some((field, len)) = field(&self.bytes[self.done..])? {
            self.done += len;
            self.len += len;
            if self.len > ENTRY_MAX {
                return Err(Malformed::TooLong);
            }
            match field {
                Some((name, value)) => self.begun.fields.push((name, value)),
                None => {
                    self.len = 0;
                    let entry = std::mem::take(&mut self.begun);
                    // Several empty lines are one end.
                    if !entry.fields.is_empty() {
                        return Ok(Some(entry));
                    }
                }
            }
        }
        if self.bytes.len() - self.done > ENTRY_MAX {
            return Err(Malformed::TooLong);
        }
        Ok(None)
    }

    /// The last entry, when nothing follows: the format puts an empty line behind each, but a file
    /// may end without.
    pub fn end(&mut self) -> Option<Entry> {
        let is_whole = self.done == self.bytes.len() && !self.begun.fields.is_empty();
        is_whole.then(|| std::mem::take(&mut self.begun))
    }
}

type Field = Option<(String, Vec<u8>)>;

/// The field that begins `bytes` and its length; none is the end of an entry.
fn field(bytes: &[u8]) -> Result<Option<(Field, usize)>, Malformed> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return Ok(None);
    };
    let line = &bytes[..end];
    if line.is_empty() {
        return Ok(Some((None, 1)));
    }
    let (name, value) = match memchr::memchr(b'=', line) {
        Some(at) => (&line[..at], Some(&line[at + 1..])),
        None => (line, None),
    };
    let is_name = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    if name.is_empty() || name.len() > 256 || !name.iter().all(is_name) {
        return Err(Malformed::Name);
    }
    let name = String::from_utf8(name.to_vec()).map_err(|_| Malformed::Name)?;
    if let Some(value) = value {
        return Ok(Some((Some((name, value.to_vec())), end + 1)));
    }
    let rest = &bytes[end + 1..];
    let Some((len, rest)) = rest.split_first_chunk::<8>() else {
        return Ok(None);
    };
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| Malformed::TooLong)?;
    if len > ENTRY_MAX {
        return Err(Malformed::TooLong);
    }
    match rest.get(len) {
        None => Ok(None),
        Some(b'\n') => {
            let value = rest[..len].to_vec();
            Ok(Some((Some((name, value)), end + 1 + 8 + len + 1)))
        }
        Some(_) => Err(Malformed::Binary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"__CURSOR=s=1;i=1\nMESSAGE=hello\nTAG=a\nTAG=b\n\n\
        __CURSOR=s=1;i=2\nMESSAGE\n\x07\0\0\0\0\0\0\0two\nles\nRAW\n\x02\0\0\0\0\0\0\0\xff\x00\n\n";

    fn all(bytes: &[u8], piece: usize) -> Vec<Entry> {
        let mut parser = Parser::default();
        let mut entries = Vec::new();
        for piece in bytes.chunks(piece) {
            parser.push(piece);
            while let Some(entry) = parser.entry().unwrap() {
                entries.push(entry);
            }
        }
        entries.extend(parser.end());
        entries
    }

    #[test]
    fn entries_are_the_same_however_they_come() {
        let entries = all(TWO, 1000);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].cursor(), Some("s=1;i=2"));
        assert_eq!(entries[1].field("MESSAGE"), Some(&b"two\nles"[..]));
        for piece in [1, 2, 3, 7] {
            assert_eq!(all(TWO, piece), entries);
        }
        // Without the empty line at the end.
        assert_eq!(all(&TWO[..TWO.len() - 1], 5), entries);
        // A field that is cut short is none.
        assert_eq!(all(&TWO[..TWO.len() - 3], 5).len(), 1);
    }

    #[test]
    fn json_tells_what_journalctl_tells() {
        let entries = all(TWO, 1000);
        let told = r#"{"MESSAGE":"hello","TAG":["a","b"],"__CURSOR":"s=1;i=1"}"#;
        assert_eq!(entries[0].to_json(), told);
        let told = r#"{"MESSAGE":"two\nles","RAW":[255,0],"__CURSOR":"s=1;i=2"}"#;
        assert_eq!(entries[1].to_json(), told);
    }

    #[test]
    fn what_is_no_export_is_refused() {
        for bytes in [
            &b"=x\n"[..],
            b"lower=x\n",
            b"MESSAGE\n\x01\0\0\0\0\0\0\0xy\n",
            b"MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            let mut parser = Parser::default();
            parser.push(bytes);
            assert!(parser.entry().is_err(), "{bytes:?}");
        }
    }
}
