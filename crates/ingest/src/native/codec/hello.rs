//! The hello, with which every connection begins.

use super::field::{Fields, Malformed, Read, TooLong, check, put_string};

/// The version of the protocol that is spoken here.
pub const VERSION: u8 = 1;
/// Bytes in front of the body of a hello.
pub const HELLO_HEADER: usize = 8;
/// Largest body of a hello in bytes.
pub const HELLO_BODY_MAX: usize = 1024;

const MAGIC: [u8; 4] = *b"TIDE";
/// Magic, version and kind: each of these bytes is judged by itself.
const JUDGED: usize = 6;
const PRODUCE: u8 = 1;
const SUBSCRIBE: u8 = 2;
const ADMINISTER: u8 = 3;
const SPARSE: u8 = 1;
const ADOPT: u8 = 2;
const FOLLOW: u8 = 1;
const MAY_BE_ABSENT: u8 = 2;

/// The level of an acknowledgement: what the acknowledged message survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Handed to the bounded queue of the log, not yet written.
    Received = 1,
    /// Committed: synced.
    Durable = 2,
    /// At a home of many machines, where the server's log is replicated to.
    Replicated = 3,
}

impl Level {
    pub(super) fn of(byte: u8) -> Result<Level, Malformed> {
        match byte {
            1 => Ok(Level::Received),
            2 => Ok(Level::Durable),
            3 => Ok(Level::Replicated),
            _ => Err(Malformed("no such level")),
        }
    }
}

/// The request of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produce<'a> {
    /// The level wanted; `None` is the server's default.
    pub level: Option<Level>,
    /// Ids rise, with gaps.
    pub sparse: bool,
    /// A `first_id` beyond the mark is to be adopted; only at [`Level::Received`].
    pub adopt: bool,
    /// Messages that the client wants to have unacknowledged; 0 as the server likes.
    pub window_messages: u32,
    /// Bytes of messages, headers included, likewise.
    pub window_bytes: u64,
    /// The id of the first message that will be sent.
    pub first_id: u64,
    /// The stream; empty for `default`. Strings have at most 255 bytes.
    pub stream: &'a str,
    /// The producer; empty for anonymous messages.
    pub producer: &'a str,
    /// A secret, where the server asks for one.
    pub token: &'a str,
}

/// The request of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The place where reading begins.
    pub begin: Begin,
    /// Go on at the tail instead of ending.
    pub follow: bool,
    /// A stream that does not exist is waited for; only with `follow`.
    pub may_be_absent: bool,
    /// Bytes of batch frames that may be sent before more credit is given.
    pub credit: u64,
    /// The stream; empty for `default`. Strings have at most 255 bytes.
    pub stream: &'a str,
    /// A named cursor, for [`Begin::Cursor`] and for moving it; may be empty.
    pub cursor: &'a str,
    /// A secret, where the server asks for one.
    pub token: &'a str,
}

/// The place where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this position, or the oldest kept if that is later. The welcome says where that is.
    Position(u64),
    /// Reading begins behind the last record.
    Tail,
    /// At the first record received then or later: microseconds since the Unix epoch.
    Timestamp(u64),
    /// Where the named cursor stands, or at the oldest record if it stands nowhere.
    Cursor,
}

/// A request of an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Administer<'a> {
    /// A secret, where the server asks for one.
    pub token: &'a str,
}

/// The first frame that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello<'a> {
    /// The client will send messages.
    Produce(Produce<'a>),
    /// The client wants to read messages.
    Subscribe(Subscribe<'a>),
    /// The client wants to see and change streams.
    Administer(Administer<'a>),
}

impl<'a> Hello<'a> {
    /// Adds the frame to `out`.
    ///
    /// # Errors
    /// [`TooLong`] for one of the strings; no byte was added.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let (kind, strings) = match self {
            Hello::Produce(p) => (PRODUCE, &[p.stream, p.producer, p.token][..]),
            Hello::Subscribe(s) => (SUBSCRIBE, &[s.stream, s.cursor, s.token][..]),
            Hello::Administer(a) => (ADMINISTER, &[a.token][..]),
        };
        let names = ["the token", "the producer or cursor", "the stream"];
        for (name, text) in names.into_iter().zip(strings.iter().rev()) {
            check(name, text)?;
        }
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, kind, 0, 0]);
        let start = out.len();
        match self {
            Hello::Produce(p) => {
                let flags = if p.sparse { SPARSE } else { 0 } | if p.adopt { ADOPT } else { 0 };
                out.extend_from_slice(&[p.level.map_or(0, |level| level as u8), flags, 0, 0]);
                out.extend_from_slice(&p.window_messages.to_le_bytes());
                out.extend_from_slice(&p.window_bytes.to_le_bytes());
                out.extend_from_slice(&p.first_id.to_le_bytes());
            }
            Hello::Subscribe(s) => {
                let (begin, at) = match s.begin {
                    Begin::Position(at) => (1, at),
                    Begin::Tail => (2, 0),
                    Begin::Timestamp(at) => (3, at),
                    Begin::Cursor => (4, 0),
                };
                let flags = if s.follow { FOLLOW } else { 0 }
                    | if s.may_be_absent { MAY_BE_ABSENT } else { 0 };
                out.extend_from_slice(&[begin, flags, 0, 0]);
                out.extend_from_slice(&s.credit.to_le_bytes());
                out.extend_from_slice(&at.to_le_bytes());
            }
            Hello::Administer(_) => out.extend_from_slice(&[0; 4]),
        }
        for text in strings {
            put_string(text, out);
        }
        let len = (out.len() - start) as u16;
        out[start - 2..start].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }

    /// Reads the hello at the start of `bytes`. Bytes that cannot become a hello are refused as
    /// soon as they are there.
    ///
    /// # Errors
    /// A [`Malformed`] names the fault of the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Read<Hello<'a>>, Malformed> {
        let magic = &bytes[..bytes.len().min(4)];
        if magic != &MAGIC[..magic.len()] {
            return Err(Malformed("the bytes are not those of the native protocol"));
        }
        if bytes.get(4).is_some_and(|&version| version != VERSION) {
            return Err(Malformed("this server speaks only version 1"));
        }
        if bytes
            .get(5)
            .is_some_and(|kind| !(PRODUCE..=ADMINISTER).contains(kind))
        {
            return Err(Malformed("the hello is of an unknown kind"));
        }
        if bytes.len() < JUDGED {
            // The next byte alone may decide it, so the caller must not wait for more.
            return Ok(Read::Partial(bytes.len() + 1));
        }
        let Some(([_, _, _, _, _, kind, len @ ..], rest)) =
            bytes.split_first_chunk::<HELLO_HEADER>()
        else {
            return Ok(Read::Partial(HELLO_HEADER));
        };
        let len = usize::from(u16::from_le_bytes(*len));
        if len > HELLO_BODY_MAX {
            return Err(Malformed("the hello is too long"));
        }
        let Some(body) = rest.get(..len) else {
            return Ok(Read::Partial(HELLO_HEADER + len));
        };
        let mut fields = Fields(body);
        let hello = match *kind {
            PRODUCE => Hello::Produce(produce(&mut fields)?),
            SUBSCRIBE => Hello::Subscribe(subscribe(&mut fields)?),
            _ => Hello::Administer(administer(&mut fields)?),
        };
        if !fields.0.is_empty() {
            return Err(Malformed("the hello is longer than its fields"));
        }
        Ok(Read::Whole(hello, HELLO_HEADER + len))
    }
}

fn produce<'a>(fields: &mut Fields<'a>) -> Result<Produce<'a>, Malformed> {
    let level = match fields.u8()? {
        0 => None,
        level => Some(Level::of(level)?),
    };
    let flags = flags(fields, SPARSE | ADOPT)?;
    let produce = Produce {
        level,
        sparse: flags & SPARSE != 0,
        adopt: flags & ADOPT != 0,
        window_messages: fields.u32()?,
        window_bytes: fields.u64()?,
        first_id: fields.u64()?,
        stream: fields.name()?,
        producer: fields.name()?,
        token: fields.string()?,
    };
    if produce.adopt && level != Some(Level::Received) {
        return Err(Malformed("only at level received is an id adopted"));
    }
    Ok(produce)
}

fn subscribe<'a>(fields: &mut Fields<'a>) -> Result<Subscribe<'a>, Malformed> {
    let begin = fields.u8()?;
    let flags = flags(fields, FOLLOW | MAY_BE_ABSENT)?;
    let credit = fields.u64()?;
    let at = fields.u64()?;
    let begin = match begin {
        1 => Begin::Position(at),
        2 => Begin::Tail,
        3 => Begin::Timestamp(at),
        4 => Begin::Cursor,
        _ => {
            return Err(Malformed(
                "the reader's hello names an unknown place to begin",
            ));
        }
    };
    let subscribe = Subscribe {
        begin,
        follow: flags & FOLLOW != 0,
        may_be_absent: flags & MAY_BE_ABSENT != 0,
        credit,
        stream: fields.name()?,
        cursor: fields.name()?,
        token: fields.string()?,
    };
    if begin == Begin::Cursor && subscribe.cursor.is_empty() {
        return Err(Malformed("the cursor has no name"));
    }
    if subscribe.may_be_absent && !subscribe.follow {
        return Err(Malformed(
            "only a reader that follows can wait for a stream",
        ));
    }
    Ok(subscribe)
}

fn administer<'a>(fields: &mut Fields<'a>) -> Result<Administer<'a>, Malformed> {
    if fields.u32()? != 0 {
        return Err(Malformed("a reserved field is not 0"));
    }
    let token = fields.string()?;
    Ok(Administer { token })
}

/// The flags, none but the `known` ones, and the reserved field behind them.
fn flags(fields: &mut Fields<'_>, known: u8) -> Result<u8, Malformed> {
    let flags = fields.u8()?;
    if flags & !known != 0 {
        return Err(Malformed("no such flag"));
    }
    if fields.u16()? != 0 {
        return Err(Malformed("a reserved field is not 0"));
    }
    Ok(flags)
}
