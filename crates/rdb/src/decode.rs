//! Reading a file, a key at a time.

use crate::libraries::LIBRARY;
use crate::packed::{intset, listpack, lzf, ziplist};
use crate::{Value, crc, stream};

/// Newest version that is read.
pub(crate) const VERSION: u32 = 12;
/// Newest version of the format of Valkey's own that is read; it goes on from version 11, and what both have since
/// added stands for different things.
pub(crate) const VALKEY_VERSION: u32 = 80;
/// Longest string: bytes.
const STRING_MAX: usize = 512 << 20;
/// Bytes that one key may take in memory. Default.
const KEY_MAX: usize = 4 << 30;
/// Bytes that an element takes besides its own.
const ELEMENT: usize = 32;

/// A key of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The number of its database.
    pub database: u32,
    /// Its name.
    pub key: Vec<u8>,
    /// When it expires: milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// What it holds.
    pub value: Value,
}

/// What comes next in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A key.
    Key(Key),
    /// The text of a library of functions.
    Library(Vec<u8>),
    /// Something that is no key, and is left out: what it is.
    Skipped(&'static str),
    /// The end, and the checksum was right if there was one.
    End,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no such file, or damaged.
    #[error("at byte {offset}: {what}")]
    Bad {
        /// Where, about.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// It has what cannot be given.
    #[error("at byte {offset}: the key {key:?} is {what}, which is not supported")]
    Unsupported {
        /// Where.
        offset: u64,
        /// What it is.
        what: &'static str,
        /// Of which key, as far as it is text.
        key: String,
    },
    /// It is of a later version.
    #[error(
        "it is of version {0}; this reads versions up to {VERSION}, and {VALKEY_VERSION} of Valkey"
    )]
    Version(u32),
}

/// Why nothing could be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// More bytes are needed.
    Short,
    Bad(&'static str),
    Unsupported(&'static str, Vec<u8>),
    Version(u32),
}

/// Bytes from which things are taken.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Nothing comes behind them.
    all: bool,
    /// Bytes that what is taken may still take in memory: a file of some megabytes can say gigabytes.
    left: usize,
}

impl<'a> Cursor<'a> {
    fn of_some(bytes: &'a [u8], left: usize) -> Cursor<'a> {
        Cursor {
            bytes,
            at: 0,
            all: false,
            left,
        }
    }

    pub(crate) fn of_all(bytes: &'a [u8], left: usize) -> Cursor<'a> {
        Cursor {
            all: true,
            ..Cursor::of_some(bytes, left)
        }
    }

    /// Counts a string of so many bytes.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        let left = self.left.checked_sub(bytes.saturating_add(ELEMENT));
        self.left = left.ok_or(Fault::Bad("a key that takes more memory than it may"))?;
        Ok(())
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        let taken = self.bytes[self.at..].get(..n).ok_or(if self.all {
            Fault::Bad("a packed collection that ends too early")
        } else {
            Fault::Short
        })?;
        self.at += n;
        Ok(taken)
    }

    /// `done`, if all was taken.
    pub(crate) fn end<T>(&self, done: T) -> Result<T, Fault> {
        if self.at == self.bytes.len() {
            Ok(done)
        } else {
            Err(Fault::Bad("bytes behind the end of a packed collection"))
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u32_le(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u32_be(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    /// An integer of so many bytes, at most eight.
    pub(crate) fn signed_le(&mut self, size: usize) -> Result<i64, Fault> {
        let mut wide = [0; 8];
        wide[8 - size..].copy_from_slice(self.take(size)?);
        Ok(i64::from_le_bytes(wide) >> (64 - 8 * size))
    }

    /// A length, or the number of a special encoding.
    fn length_or_special(&mut self) -> Result<Result<usize, u8>, Fault> {
        let head = self.byte()?;
        let low = usize::from(head & 0x3f);
        let wide = match head >> 6 {
            0 => return Ok(Ok(low)),
            1 => return Ok(Ok(low << 8 | usize::from(self.byte()?))),
            3 => return Ok(Err(head & 0x3f)),
            _ if head == 0x80 => u64::from(self.u32_be()?),
            _ if head == 0x81 => u64::from_be_bytes(self.array()?),
            _ => return Err(Fault::Bad("a length of an unknown kind")),
        };
        let length = usize::try_from(wide).map_err(|_| Fault::Bad("a length without bounds"))?;
        Ok(Ok(length))
    }

    pub(crate) fn length(&mut self) -> Result<usize, Fault> {
        self.length_or_special()?
            .map_err(|_| Fault::Bad("a string where a length should be"))
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>, Fault> {
        let bounded = |length: usize| {
            let too_long = Fault::Bad("a string of more than 512 MiB");
            Some(length).filter(|&n| n <= STRING_MAX).ok_or(too_long)
        };
        Ok(match self.length_or_special()? {
            Ok(length) => {
                self.charge(bounded(length)?)?;
                self.take(length)?.to_vec()
            }
            Err(power @ 0..3) => {
                self.charge(0)?;
                self.signed_le(1 << power)?.to_string().into()
            }
            Err(3) => {
                let (short, long) = (bounded(self.length()?)?, bounded(self.length()?)?);
                self.charge(long)?;
                lzf(self.take(short)?, long)?
            }
            Err(_) => return Err(Fault::Bad("a string of an unknown encoding")),
        })
    }

    fn strings(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Fault> {
        // Each has a byte at least.
        let most = (self.bytes.len() - self.at).min(self.left / ELEMENT);
        let mut all = Vec::with_capacity(count.min(most));
        for _ in 0..count {
            all.push(self.string()?);
        }
        Ok(all)
    }

    /// The elements of a string that is a packed collection, which `read` takes apart.
    pub(crate) fn packed(&mut self, read: Packed) -> Result<Vec<Vec<u8>>, Fault> {
        let before = self.left;
        let packed = self.string()?;
        let all = read(&packed, self.left)?;
        // It is gone when they are there.
        self.left = before;
        all.iter()
            .try_for_each(|element| self.charge(element.len()))?;
        Ok(all)
    }

    /// A score as text, the old way.
    fn score_text(&mut self) -> Result<f64, Fault> {
        let length = match self.byte()? {
            253 => return Err(Fault::Bad("a score that is no number")),
            254 => return Ok(f64::INFINITY),
            255 => return Ok(f64::NEG_INFINITY),
            length => length.into(),
        };
        score(self.take(length)?)
    }
}

/// Takes a packed collection apart, which may take so many bytes then.
type Packed = fn(&[u8], usize) -> Result<Vec<Vec<u8>>, Fault>;

fn score(text: &[u8]) -> Result<f64, Fault> {
    let text = std::str::from_utf8(text).ok();
    let score = text.and_then(|text| text.parse::<f64>().ok());
    score
        .filter(|score| !score.is_nan())
        .ok_or(Fault::Bad("a score that is no number"))
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
    /// Refuses keys that take more than about so many bytes in memory: some bytes of a file may say a
    /// thousand times as many. It is 4 GiB else.
    #[must_use]
    pub fn with_key_max(self, bytes: usize) -> Decoder {
        Decoder {
            key_max: bytes,
            ..self
        }
    }

    /// What `input` begins with, and how many bytes that was; `None` if more is needed: then it is to be called
    /// again with more behind the same bytes, best with twice as many. A key is given as a whole, so
    /// what has to be kept is as long as the longest one.
    ///
    /// # Errors
    /// See [`Error`]. After the [end](Item::End) nothing may come.
    pub fn next(&mut self, input: &[u8]) -> Result<Option<(usize, Item)>, Error> {
        let mut cursor = Cursor::of_some(input, self.key_max);
        let offset = self.offset;
        let item = match self.item(&mut cursor) {
            Ok(item) => item,
            Err(Fault::Short) => return Ok(None),
            Err(Fault::Bad(what)) => {
                let offset = offset + cursor.at as u64;
                return Err(Error::Bad { offset, what });
            }
            Err(Fault::Unsupported(what, key)) => {
                let key = key.escape_ascii().to_string();
                return Err(Error::Unsupported { offset, what, key });
            }
            Err(Fault::Version(version)) => return Err(Error::Version(version)),
        };
        self.offset += cursor.at as u64;
        // That of the end is not part of itself.
        if !self.ended {
            self.crc = crc::append(self.crc, &input[..cursor.at]);
        }
        Ok(Some((cursor.at, item)))
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
                // Only versions from 5 on have one, and it is 0 where it was not wanted.
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
        kind if stream::is_stream(kind) => stream::take(kind, cursor)?,
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
