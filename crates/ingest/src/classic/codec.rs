//! Requests: `id[8] | size: u32 | payload[size]`.
//!
//! The start of a message is known only when the size of the previous one has been loaded. So a
//! plain loop takes the latency of a load and an addition for each message. But most floods consist
//! of messages of one size. So, after a few equal sizes, the parser *speculates* that the next four
//! messages have this size too, and loads four sizes at once, independently of each other.

/// Bytes in front of a payload: the id and the size.
pub const HEADER: usize = ID + 4;

/// Bytes of an id.
pub(crate) const ID: usize = 8;

/// Messages looked at together when speculating.
const AHEAD: usize = 4;

/// How the size of a payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Sizes are written with the most significant byte first.
    Big,
    /// Sizes are written with the least significant byte first.
    Little,
}

impl ByteOrder {
    /// The number that four bytes stand for in this order.
    #[inline]
    #[must_use]
    pub fn decode(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Big => u32::from_be_bytes(bytes),
            ByteOrder::Little => u32::from_le_bytes(bytes),
        }
    }

    /// The bytes that stand for `n`.
    #[inline]
    #[must_use]
    pub fn encode(self, n: u32) -> [u8; 4] {
        match self {
            ByteOrder::Big => n.to_be_bytes(),
            ByteOrder::Little => n.to_le_bytes(),
        }
    }
}

/// The header of a request; the payload of `size` bytes follows.
#[must_use]
pub fn header(order: ByteOrder, id: [u8; 8], size: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..ID].copy_from_slice(&id);
    header[ID..].copy_from_slice(&order.encode(size));
    header
}

/// Cuts received bytes into messages. The parser holds settings only: unconsumed bytes stay with
/// the caller.
///
/// ```
/// use tidewire_ingest::classic::{ByteOrder, Parser, Then};
///
/// let parser = Parser { order: ByteOrder::Little, payload_max: 1000 };
/// let batch = parser.parse(b"message1\x02\0\0\0himessage2\x09\0\0\0not");
/// assert_eq!(batch.messages(), 1);
/// assert_eq!(batch.bytes(), b"message1\x02\0\0\0hi");
/// assert_eq!(batch.last_id(), Some(*b"message1"));
/// assert_eq!(batch.then(), Then::Partial { needed: 21 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parser {
    /// How sizes are written.
    pub order: ByteOrder,
    /// Largest payload, in bytes; 0 allows empty ones only.
    pub payload_max: u32,
}

impl Parser {
    /// All whole messages at the start of `bytes`.
    #[inline]
    #[must_use]
    pub fn parse<'a>(&self, bytes: &'a [u8]) -> Batch<'a> {
        self.parse_with(bytes, usize::MAX, |_| {})
    }

    /// The whole messages at the start of `bytes`, at most `most` of them; `each` is called with
    /// every one in turn, header included.
    #[inline]
    #[must_use]
    pub fn parse_with<'a>(
        &self,
        bytes: &'a [u8],
        most: usize,
        mut each: impl FnMut(&'a [u8]),
    ) -> Batch<'a> {
        let mut rest = bytes;
        let mut messages = 0;
        let mut stride = 0;
        // Messages of the present size seen since the size last changed.
        let mut streak = 0;
        let then = loop {
            if messages == most {
                break Then::Limit;
            }
            let Some((head, _)) = rest.split_first_chunk::<HEADER>() else {
                break Then::Partial { needed: HEADER };
            };
            let word = size_word(head);
            let size = self.order.decode(word);
            if size > self.payload_max {
                break Then::Oversized { size };
            }
            let len = HEADER + size as usize;
            let Some((frame, after)) = rest.split_at_checked(len) else {
                break Then::Partial { needed: len };
            };
            each(frame);
            rest = after;
            messages += 1;
            streak = if len == stride { streak + 1 } else { 0 };
            stride = len;
            if streak >= AHEAD {
                let run = equal_sizes(rest, word, stride, most - messages, &mut each);
                rest = &rest[run * stride..];
                messages += run;
                streak = 0;
            }
        };
        Batch {
            bytes: &bytes[..bytes.len() - rest.len()],
            messages,
            last_len: stride,
            order: self.order,
            then,
        }
    }
}

/// How many whole messages at the start of `rest` have a size written as `word`, `stride` bytes
/// each with their headers; a multiple of [`AHEAD`], and at most `most`. The caller goes on from
/// there one by one.
#[inline(always)]
fn equal_sizes<'a>(
    mut rest: &'a [u8],
    word: [u8; 4],
    stride: usize,
    most: usize,
    each: &mut impl FnMut(&'a [u8]),
) -> usize {
    let mut messages = 0;
    while most - messages >= AHEAD
        && let Some((block, after)) = rest.split_at_checked(AHEAD * stride)
    {
        let mut differing = 0;
        for frame in cut(block, stride) {
            differing |= u32::from_ne_bytes(size_word(frame)) ^ u32::from_ne_bytes(word);
        }
        if differing != 0 {
            break;
        }
        for frame in cut(block, stride) {
            each(frame);
        }
        rest = after;
        messages += AHEAD;
    }
    messages
}

/// The messages of a block of [`AHEAD`].
#[inline(always)]
fn cut(mut block: &[u8], stride: usize) -> [&[u8]; AHEAD] {
    std::array::from_fn(|_| {
        let (frame, after) = block.split_at(stride);
        block = after;
        frame
    })
}

#[inline(always)]
fn size_word(frame: &[u8]) -> [u8; 4] {
    [frame[8], frame[9], frame[10], frame[11]]
}

/// Whole messages, in the bytes in which they were received.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    bytes: &'a [u8],
    messages: usize,
    last_len: usize,
    order: ByteOrder,
    then: Then,
}

/// What follows the messages of a batch in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next message is not whole: it takes this many bytes, as far as is known ([`HEADER`]
    /// where not even its header is there, also after the last byte).
    Partial {
        /// Bytes from the start of that message.
        needed: usize,
    },
    /// The next message is larger than allowed. The parser cannot go on behind such a message.
    Oversized {
        /// The size of the message's payload in bytes.
        size: u32,
    },
    /// The batch has as many messages as were asked for; more may follow.
    Limit,
}

impl<'a> Batch<'a> {
    /// The bytes of the messages with their headers.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many messages there are.
    #[inline]
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Payload bytes of all messages together.
    #[inline]
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len() - self.messages * HEADER
    }

    /// The id of the last message, if there is one.
    #[inline]
    #[must_use]
    pub fn last_id(&self) -> Option<[u8; 8]> {
        let last = &self.bytes[self.bytes.len() - self.last_len..];
        last.first_chunk().copied()
    }

    /// The byte order in which the sizes of the payloads are written.
    #[inline]
    #[must_use]
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// What follows the messages of this batch in the input.
    #[inline]
    #[must_use]
    pub fn then(&self) -> Then {
        self.then
    }

    /// The messages one by one.
    #[must_use]
    pub fn frames(&self) -> Frames<'a> {
        Frames {
            rest: self.bytes,
            order: self.order,
        }
    }
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Id of the message, opaque.
    pub id: [u8; 8],
    /// Payload of the message, perhaps empty.
    pub payload: &'a [u8],
}

/// The messages of a [`Batch`].
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let (id, rest) = self.rest.split_first_chunk::<ID>()?;
        let (size, rest) = rest.split_first_chunk()?;
        let size = self.order.decode(*size) as usize;
        let (payload, rest) = rest.split_at_checked(size)?;
        self.rest = rest;
        Some(Frame { id: *id, payload })
    }
}
