//! Reading a file, a key at a time.

use crate::crc;
use crate::cursor::{Cursor, Fault, score};
use crate::packed::{intset, listpack, ziplist};
use crate::stream;
use crate::value::Value;
use crate::write::LIBRARY;

/// Newest version that is read.
pub(crate) const VERSION: u32 = 12;
/// Newest version of Valkey's own format that can be read. Valkey's numbers continue from version 11; types that
/// Redis and Valkey have added since then share numbers with different meanings.
pub(crate) const VALKEY_VERSION: u32 = 80;
/// Bytes that one key may take in memory. Default.
const KEY_MAX: usize = 4 << 30;

/// A key of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The number of its database.
    pub database: u32,
    /// Name of the key.
    pub key: Vec<u8>,
    /// The key's deadline: milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// The value of the key.
    pub value: Value,
}

/// The next item of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A key.
    Key(Key),
    /// The text of a library of functions.
    Library(Vec<u8>),
    /// An item that is no key and is skipped: its kind.
    Skipped(&'static str),
    /// The end, and the checksum was right if there was one.
    End,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file is no dump, or damaged.
    #[error("at byte {offset}: {what}")]
    Bad {
        /// The offset of the fault, about.
        offset: u64,
        /// The fault, in words.
        what: &'static str,
    },
    /// The dump has a value that is not supported.
    #[error("at byte {offset}: the key {key:?} is {what}, which is not supported")]
    Unsupported {
        /// The offset of the fault.
        offset: u64,
        /// The unsupported kind of data.
        what: &'static str,
        /// Name of the key, as far as it is text.
        key: String,
    },
    /// The dump is of a later version.
    #[error(
        "it is of version {0}; this reads versions up to {VERSION}, and {VALKEY_VERSION} of Valkey"
    )]
    Version(u32),
}

/// Reads a file.
#[derive(Debug)]
pub struct Decoder {
    key_max: usize,
    version: u32,
    is_valkey: bool,
    database: u32,
    deadline_ms: Option<u64>,
    crc: u64,
    offset: u64,
    ended: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            key_max: KEY_MAX,
            version: 0,
            is_valkey: false,
            database: 0,
            deadline_ms: None,
            crc: 0,
            offset: 0,
            ended: false,
        }
    }
}

impl Decoder {
    /// Refuses keys that take more than about this many bytes in memory: a few bytes of a file may
    /// announce a thousand times as many. The default is 4 GiB.
    #[must_use]
    pub fn with_key_max(self, bytes: usize) -> Decoder {
        Decoder {
            key_max: bytes,
            ..self
        }
    }

    /// The item at the start of `input`, and how many bytes it took. `None` if more bytes are needed: call
    /// again with more bytes behind these, best with twice as many. A key is given as a whole, so the caller
    /// has to buffer as much as the longest key.
    ///
    /// # Errors
    /// See [`Error`]. After the [end](Item::End) no byte may follow.
    pub fn next(&mut self, input: &[u8]) -> Result<Option<(usize, Item)>, Error> {
        let mut cursor = Cursor::of_some(input, self.key_max);
        let offset = self.offset;
        let item = match self.item(&mut cursor) {
            Ok(item) => item,
            Err(Fault::Short) => return Ok(None),
            Err(Fault::Bad(what)) => {
                let offset = offset + cursor.at() as u64;
                return Err(Error::Bad { offset, what });
            }
            Err(Fault::Unsupported(what, key)) => {
                let key = key.escape_ascii().to_string();
                return Err(Error::Unsupported { offset, what, key });
            }
            Err(Fault::Version(version)) => return Err(Error::Version(version)),
        };
        self.offset += cursor.at() as u64;
        // The checksum at the end is not part of itself.
        if !self.ended {
            self.crc = crc::append(self.crc, &input[..cursor.at()]);
        }
        Ok(Some((cursor.at(), item)))
    }

    fn item(&mut self, cursor: &mut Cursor<'_>) -> Result<Item, Fault> {
        if self.ended {
            cursor.byte()?;
            return Err(Fault::Bad("something behind the end"));
        }
        if self.version == 0 {
            return self.begin(cursor);
        }
        let kind = cursor.byte()?;
        Ok(match kind {
            0xff => {
                // Only versions from 5 on have a checksum, and it is 0 if the writer has switched
                // it off.
                if self.version >= 5 {
                    let crc = u64::from_le_bytes(cursor.array()?);
                    let found = crc::append(self.crc, &[kind]);
                    if crc != 0 && crc != found {
                        return Err(Fault::Bad("another checksum than the file has at its end"));
                    }
                }
                self.ended = true;
                Item::End
            }
            0xfe => {
                let database = u32::try_from(cursor.length()?);
                self.database = database.map_err(|_| Fault::Bad("a database without bounds"))?;
                Item::Skipped("the number of a database")
            }
            0xfd => {
                let seconds = cursor.u32_le()?;
                self.deadline_ms = Some(u64::from(seconds) * 1000);
                Item::Skipped("a deadline")
            }
            0xfc => {
                self.deadline_ms = Some(u64::from_le_bytes(cursor.array()?));
                Item::Skipped("a deadline")
            }
            0xfb => {
                cursor.length()?;
                cursor.length()?;
                Item::Skipped("sizes")
            }
            0xfa => {
                cursor.string()?;
                cursor.string()?;
                Item::Skipped("a note")
            }
            0xf9 => {
                cursor.byte()?;
                Item::Skipped("how often a key was used")
            }
            0xf8 => {
                cursor.length()?;
                Item::Skipped("how long a key was idle")
            }
            LIBRARY => Item::Library(cursor.string()?),
            0xf4 => {
                for _ in 0..3 {
                    cursor.length()?;
                }
                Item::Skipped("a slot")
            }
            0xf6 | 0xf7 => {
                return Err(Fault::Unsupported("data of a module", Vec::new()));
            }
            kind => {
                let key = cursor.string()?;
                let value = value(kind, self.is_valkey, cursor, &key)?;
                Item::Key(Key {
                    database: self.database,
                    key,
                    deadline_ms: self.deadline_ms.take(),
                    value,
                })
            }
        })
    }

    fn begin(&mut self, cursor: &mut Cursor<'_>) -> Result<Item, Fault> {
        let head = cursor.take(9)?;
        let digits = head.strip_prefix(b"REDIS").or(head.strip_prefix(b"VALKEY"));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let version = digits.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        if version == 0 {
            return Err(Fault::Bad("not the beginning of a dump of Redis or Valkey"));
        }
        self.is_valkey = head.starts_with(b"VALKEY");
        let newest = if self.is_valkey {
            VALKEY_VERSION
        } else {
            VERSION
        };
        if version > newest {
            return Err(Fault::Version(version));
        }
        self.version = version;
        Ok(Item::Skipped("the version"))
    }
}

const EXPIRING_FIELDS: &str = "a hash whose fields expire";

pub(crate) fn value(
    kind: u8,
    is_valkey: bool,
    cursor: &mut Cursor<'_>,
    key: &[u8],
) -> Result<Value, Fault> {
    let unsupported = |what| Err(Fault::Unsupported(what, key.to_vec()));
    Ok(match kind {
        22 if is_valkey => lasting_fields(cursor, key)?,
        0 => Value::String(cursor.string()?),
        1 => {
            let count = cursor.length()?;
            Value::List(cursor.strings(count)?)
        }
        2 => {
            let count = cursor.length()?;
            Value::Set(cursor.strings(count)?)
        }
        3 | 5 => {
            let count = cursor.length()?;
            let mut members = Vec::new();
            for _ in 0..count {
                let member = cursor.string()?;
                let score = if kind == 3 {
                    cursor.score_text()?
                } else {
                    f64::from_le_bytes(cursor.array()?)
                };
                if score.is_nan() {
                    return Err(Fault::Bad("a score that is no number"));
                }
                members.push((member, score));
            }
            Value::ZSet(members)
        }
        4 => {
            let count = cursor.length()?;
            let twice = count.checked_mul(2);
            let twice = twice.ok_or(Fault::Bad("a length without bounds"))?;
            pairs(cursor.strings(twice)?)?
        }
        10 => Value::List(cursor.packed(ziplist)?),
        11 => Value::Set(cursor.packed(intset)?),
        12 => scores(cursor.packed(ziplist)?)?,
        13 => pairs(cursor.packed(ziplist)?)?,
        14 => {
            let mut all = Vec::new();
            for _ in 0..cursor.length()? {
                all.extend(cursor.packed(ziplist)?);
            }
            Value::List(all)
        }
        16 => pairs(cursor.packed(listpack)?)?,
        17 => scores(cursor.packed(listpack)?)?,
        18 => {
            let mut all = Vec::new();
            for _ in 0..cursor.length()? {
                match cursor.length()? {
                    1 => all.push(cursor.string()?),
                    2 => all.extend(cursor.packed(listpack)?),
                    _ => return Err(Fault::Bad("a part of a list of an unknown kind")),
                }
            }
            Value::List(all)
        }
        20 => Value::Set(cursor.packed(listpack)?),
        6 | 7 => return unsupported("of a module"),
        9 => return unsupported("a hash in the form of Redis before 2.6"),
        kind if stream::is_stream(kind) => Value::Stream(Box::new(stream::take(kind, cursor)?)),
        22..=25 => return unsupported(EXPIRING_FIELDS),
        _ => return Err(Fault::Bad("a value of an unknown type")),
    })
}

/// A hash of Valkey whose fields may expire; here none of them may.
fn lasting_fields(cursor: &mut Cursor<'_>, key: &[u8]) -> Result<Value, Fault> {
    let mut fields = Vec::new();
    for _ in 0..cursor.length()? {
        let pair = (cursor.string()?, cursor.string()?);
        if i64::from_le_bytes(cursor.array()?) != -1 {
            return Err(Fault::Unsupported(EXPIRING_FIELDS, key.to_vec()));
        }
        fields.push(pair);
    }
    Ok(Value::Hash(fields))
}

fn pairs(all: Vec<Vec<u8>>) -> Result<Value, Fault> {
    let mut pairs = Vec::with_capacity(all.len() / 2);
    let mut all = all.into_iter();
    while let Some(field) = all.next() {
        let value = all.next().ok_or(Fault::Bad("a field without a value"))?;
        pairs.push((field, value));
    }
    Ok(Value::Hash(pairs))
}

fn scores(all: Vec<Vec<u8>>) -> Result<Value, Fault> {
    let Value::Hash(pairs) = pairs(all)? else {
        return Err(Fault::Bad("a member without a score"));
    };
    let scored = pairs
        .into_iter()
        .map(|(member, text)| Ok((member, score(&text)?)));
    Ok(Value::ZSet(scored.collect::<Result<_, Fault>>()?))
}
