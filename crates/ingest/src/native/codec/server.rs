//! Frames from the server to the client.

use super::admin::{PlaceFrame, StreamFrame};
use super::field::{Fields, Malformed, Read, put_string};
use super::hello::Level;
use super::reason::Reason;

/// Bytes in front of the body of a frame.
pub const FRAME_HEADER: usize = 8;

const WELCOME: u8 = 1;
const ACK: u8 = 2;
const REFUSAL: u8 = 3;
const READER_WELCOME: u8 = 4;
const BATCH: u8 = 5;
const END: u8 = 6;
const ADMIN_WELCOME: u8 = 7;
const STREAM: u8 = 8;
const PLACE: u8 = 9;
const DONE: u8 = 10;

/// The flag bit of a frame; its meaning depends on the kind of the frame.
const FLAG: u8 = 1;
/// Flag of a welcome to a producer that was known once.
const FORGOTTEN: u8 = 2;

/// A frame from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// To a producer: it may send.
    Welcome(Welcome),
    /// Every message up to `id` is at the level granted.
    Ack {
        /// The last message acknowledged.
        id: u64,
        /// Whether the frame only keeps the connection alive: a commit is still under way.
        keep_alive: bool,
        /// The reason why the server waits, as a text for people; only in a keep-alive, and empty if
        /// there is none. At most 255 bytes; a longer text is cut.
        why: &'a str,
    },
    /// The server has refused a message or a request.
    Refusal(Refusal<'a>),
    /// To a reader: reading begins.
    ReaderWelcome(ReaderWelcome),
    /// Records.
    Batch(Batch<'a>),
    /// The tail was reached without following; the connection closes.
    End {
        /// The position at which reading would go on.
        next: u64,
        /// Set where this is not the tail: the reader has finished sending, and its credit is used
        /// up.
        short: bool,
    },
    /// To an administrator: it may send requests.
    AdminWelcome,
    /// To an administrator: the state of a stream.
    Stream(StreamFrame<'a>),
    /// To an administrator: a cursor or a reader of a stream.
    Place(PlaceFrame<'a>),
    /// To an administrator: the request is carried out, and durable.
    Done {
        /// The number of the answered request, counted from 1.
        id: u64,
        /// More entries follow: ask again behind the last.
        more: bool,
    },
    /// A kind that this version does not know; to be skipped.
    Unknown(u8),
}

/// The server's answer to a producer's hello: the granted level and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The level of the acknowledgements.
    pub level: Level,
    /// Largest payload in bytes.
    pub payload_max: u32,
    /// Most messages that may be unacknowledged.
    pub window_messages: u32,
    /// Silence, in milliseconds, after which an acknowledgement is repeated while one is owed.
    pub keepalive_ms: u32,
    /// Most bytes of messages, headers included, unacknowledged.
    pub window_bytes: u64,
    /// The producer's mark; `None` if the server has no mark for this producer.
    pub last_id: Option<u64>,
    /// The server has no mark because the producer was away for longer than producers are
    /// remembered: messages that it sends again are stored again.
    pub forgotten: bool,
}

/// A refused message or request, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The first message refused; for a reader, a position.
    pub id: u64,
    /// Why.
    pub reason: Reason,
    /// When to try again, in milliseconds; 0 where that makes no sense.
    pub retry_after_ms: u32,
    /// A text for people; at most 255 bytes, a longer text is cut.
    pub text: &'a str,
    /// The connection closes after this.
    pub closes: bool,
}

/// The position of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderWelcome {
    /// The oldest position kept.
    pub first: u64,
    /// The position after the last record.
    pub next: u64,
    /// The position at which reading begins.
    pub start: u64,
    /// Largest body of a batch frame, in bytes.
    pub body_max: u32,
    /// The requested records begin earlier: the records before `start` have been removed.
    pub skipped: bool,
}

/// Consecutive records of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The position of the first.
    pub first: u64,
    /// The time at which the server received the messages: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// How many there are.
    pub count: u32,
    /// Producer of the messages; empty for anonymous messages.
    pub producer: &'a str,
    /// The messages with their headers, in the form that [`parser`](super::parser) takes.
    pub messages: &'a [u8],
}

/// Bytes of a batch frame besides the messages.
#[must_use]
pub const fn batch_overhead(producer: &str) -> usize {
    FRAME_HEADER + 8 + 8 + 4 + 1 + producer.len()
}

/// Adds the part of a batch frame that comes before its messages, `messages_len` bytes of them.
///
/// # Panics
/// If the name has more than 255 bytes, or the frame 2^32 or more.
pub fn encode_batch_head(
    first: u64,
    timestamp_us: u64,
    count: u32,
    producer: &str,
    messages_len: usize,
    out: &mut Vec<u8>,
) {
    let body = batch_overhead(producer) - FRAME_HEADER + messages_len;
    put_header(BATCH, 0, body, out);
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&timestamp_us.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    put_string(producer, out);
}

impl<'a> ServerFrame<'a> {
    /// Adds the frame to `out`. [`ServerFrame::Unknown`] adds a frame with an empty body.
    ///
    /// # Panics
    /// As [`encode_batch_head`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ServerFrame::Welcome(welcome) => {
                let flags =
                    flag(welcome.last_id.is_some()) | if welcome.forgotten { FORGOTTEN } else { 0 };
                put_header(WELCOME, flags, 32, out);
                out.extend_from_slice(&[welcome.level as u8, 0, 0, 0]);
                out.extend_from_slice(&welcome.payload_max.to_le_bytes());
                out.extend_from_slice(&welcome.window_messages.to_le_bytes());
                out.extend_from_slice(&welcome.keepalive_ms.to_le_bytes());
                out.extend_from_slice(&welcome.window_bytes.to_le_bytes());
                out.extend_from_slice(&welcome.last_id.unwrap_or(0).to_le_bytes());
            }
            ServerFrame::Ack {
                id,
                keep_alive,
                why,
            } => {
                let why = cut(why);
                let said = match *keep_alive && !why.is_empty() {
                    true => 1 + why.len(),
                    false => 0,
                };
                put_header(ACK, flag(*keep_alive), 8 + said, out);
                out.extend_from_slice(&id.to_le_bytes());
                if said > 0 {
                    put_string(why, out);
                }
            }
            ServerFrame::Refusal(refusal) => {
                let text = cut(refusal.text);
                put_header(REFUSAL, flag(refusal.closes), 17 + text.len(), out);
                out.extend_from_slice(&refusal.id.to_le_bytes());
                out.extend_from_slice(&refusal.reason.code().to_le_bytes());
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(&refusal.retry_after_ms.to_le_bytes());
                put_string(text, out);
            }
            ServerFrame::ReaderWelcome(welcome) => {
                put_header(READER_WELCOME, flag(welcome.skipped), 32, out);
                for position in [welcome.first, welcome.next, welcome.start] {
                    out.extend_from_slice(&position.to_le_bytes());
                }
                out.extend_from_slice(&welcome.body_max.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
            }
            ServerFrame::Batch(batch) => {
                encode_batch_head(
                    batch.first,
                    batch.timestamp_us,
                    batch.count,
                    batch.producer,
                    batch.messages.len(),
                    out,
                );
                out.extend_from_slice(batch.messages);
            }
            ServerFrame::End { next, short } => {
                put_header(END, flag(*short), 8, out);
                out.extend_from_slice(&next.to_le_bytes());
            }
            ServerFrame::AdminWelcome => {
                put_header(ADMIN_WELCOME, 0, 4, out);
                out.extend_from_slice(&[0; 4]);
            }
            ServerFrame::Stream(stream) => {
                put_header(STREAM, 0, stream.len(), out);
                stream.put(out);
            }
            ServerFrame::Place(place) => {
                put_header(PLACE, 0, place.len(), out);
                place.put(out);
            }
            ServerFrame::Done { id, more } => {
                put_header(DONE, flag(*more), 8, out);
                out.extend_from_slice(&id.to_le_bytes());
            }
            ServerFrame::Unknown(kind) => put_header(*kind, 0, 0, out),
        }
    }

    /// Reads the frame at the start of `bytes`, with a body of at most `body_max` bytes. Fields
    /// that later versions add at the end are skipped.
    ///
    /// # Errors
    /// A [`Malformed`] names the fault of the bytes.
    pub fn decode(bytes: &'a [u8], body_max: usize) -> Result<Read<ServerFrame<'a>>, Malformed> {
        let Some(([kind, flags, _, _, len @ ..], rest)) = bytes.split_first_chunk::<FRAME_HEADER>()
        else {
            return Ok(Read::Partial(FRAME_HEADER));
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > body_max {
            return Err(Malformed("a frame is too long"));
        }
        let Some(body) = rest.get(..len) else {
            return Ok(Read::Partial(FRAME_HEADER + len));
        };
        let frame = body_of(*kind, *flags, Fields(body))?;
        Ok(Read::Whole(frame, FRAME_HEADER + len))
    }
}

fn body_of(kind: u8, flags: u8, mut fields: Fields<'_>) -> Result<ServerFrame<'_>, Malformed> {
    let flag = flags & FLAG != 0;
    Ok(match kind {
        WELCOME => {
            let [level, _, _, _] = fields.array()?;
            ServerFrame::Welcome(Welcome {
                level: Level::of(level)?,
                payload_max: fields.u32()?,
                window_messages: fields.u32()?,
                keepalive_ms: fields.u32()?,
                window_bytes: fields.u64()?,
                last_id: Some(fields.u64()?).filter(|_| flag),
                forgotten: flags & FORGOTTEN != 0,
            })
        }
        ACK => ServerFrame::Ack {
            id: fields.u64()?,
            keep_alive: flag,
            why: match flag && !fields.0.is_empty() {
                true => fields.string()?,
                false => "",
            },
        },
        REFUSAL => {
            let (id, reason, _) = (fields.u64()?, fields.u16()?, fields.u16()?);
            ServerFrame::Refusal(Refusal {
                id,
                reason: Reason::of(reason),
                retry_after_ms: fields.u32()?,
                text: fields.string()?,
                closes: flag,
            })
        }
        READER_WELCOME => {
            let welcome = ReaderWelcome {
                first: fields.u64()?,
                next: fields.u64()?,
                start: fields.u64()?,
                body_max: fields.u32()?,
                skipped: flag,
            };
            // The reserved field may have any value, but it is there.
            fields.u32()?;
            ServerFrame::ReaderWelcome(welcome)
        }
        BATCH => ServerFrame::Batch(Batch {
            first: fields.u64()?,
            timestamp_us: fields.u64()?,
            count: fields.u32()?,
            producer: fields.string()?,
            messages: fields.0,
        }),
        END => ServerFrame::End {
            next: fields.u64()?,
            short: flag,
        },
        ADMIN_WELCOME => {
            // As above.
            fields.u32()?;
            ServerFrame::AdminWelcome
        }
        STREAM => ServerFrame::Stream(StreamFrame::take(&mut fields)?),
        PLACE => ServerFrame::Place(PlaceFrame::take(&mut fields)?),
        DONE => ServerFrame::Done {
            id: fields.u64()?,
            more: flag,
        },
        _ => ServerFrame::Unknown(kind),
    })
}

fn flag(yes: bool) -> u8 {
    if yes { FLAG } else { 0 }
}

fn put_header(kind: u8, flags: u8, body: usize, out: &mut Vec<u8>) {
    let len = u32::try_from(body).expect("a frame below 4 GiB");
    out.extend_from_slice(&[kind, flags, 0, 0]);
    out.extend_from_slice(&len.to_le_bytes());
}

/// The first 255 bytes of a text, or a few fewer so as not to cut a character.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(u8::MAX.into());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
