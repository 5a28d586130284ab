//! Heads of replies, written straight into the output.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidewire::{Instant, Link};

use crate::counters::Counts;
use crate::kind::{Content, FIXED, Kind, Last, Length};
use crate::status;

/// Bytes that are written with their head in one piece.
const TOGETHER: usize = 60 << 10;
/// Header fields that a handler may give a reply, in all.
pub(crate) const FIELDS_MAX: usize = 32 << 10;

/// The properties of a request on which the reply depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// HTTP/1.1, where chunks are understood.
    pub(crate) http11: bool,
    /// By HEAD: the reply has no body.
    pub(crate) head: bool,
    /// The connection goes on behind the reply.
    pub(crate) keep: bool,
    /// The client has said that it sends nothing behind this request, which has no body: behind one, old
    /// clients send an empty line.
    pub(crate) last: bool,
}

/// The memory in which a loop writes heads.
#[derive(Debug)]
pub(crate) struct Wire {
    date: Date,
    /// Header fields of the reply that is being made.
    pub(crate) fields: Vec<u8>,
    /// The reply's statement about its content.
    pub(crate) content: Content,
    last: Last,
    counts: Arc<Counts>,
}

/// The Date field, made once a second, behind the status line that nearly all replies have.
#[derive(Debug)]
struct Date {
    lines: [u8; OK.len() + DATE],
    good_until: Instant,
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
/// Bytes of the date field with its line end.
const DATE: usize = 37;

impl Default for Date {
    fn default() -> Date {
        Date {
            lines: *b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
            good_until: Instant::default(),
        }
    }
}

impl Date {
    /// Formats the date again, because its second is over.
    #[cold]
    fn make(&mut self, link: &Link<'_>) {
        let wall = link.wall();
        let date = httpdate::HttpDate::from(UNIX_EPOCH + wall).to_string();
        // A date has 29 characters up to the year 9999; after that year the old date stays.
        let place = &mut self.lines[OK.len() + "date: ".len()..][..29];
        if let Some(place) = place.get_mut(..date.len()) {
            place.copy_from_slice(date.as_bytes());
        }
        let left = 1_000_000_000 - wall.subsec_nanos();
        self.good_until = link.now() + Duration::from_nanos(left.into());
    }
}

impl Wire {
    pub(crate) fn new(counts: Arc<Counts>) -> Wire {
        Wire {
            date: Date::default(),
            fields: Vec::new(),
            content: Content::Unsaid,
            last: Last::default(),
            counts,
        }
    }

    /// Begins a reply: it has no fields yet.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.fields.clear();
        self.content = Content::Unsaid;
    }

    /// Writes a head with the fields that were gathered, and behind it `body`.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        link: &mut Link<'_>,
        asked: Asked,
        status: u16,
        length: Length,
        body: &[u8],
    ) {
        self.counts.replied(status);
        // Before the closure, which has the link.
        if link.now() >= self.date.good_until {
            self.date.make(link);
            self.last = Last::default();
        }
        let kind = Kind {
            status,
            keep: asked.keep,
            http11: asked.http11,
            content: self.content,
            length,
        };
        let is_plain = self.fields.is_empty() && body.len() <= TOGETHER - FIXED;
        if is_plain && let Some(head) = self.last.head(&kind) {
            link.write_with(head.len() + body.len(), |out| {
                let (place, behind) = out.split_at_mut(head.len());
                place.copy_from_slice(head);
                behind.copy_from_slice(body);
                head.len() + body.len()
            });
            return;
        }
        let most = FIXED + self.fields.len();
        let (date, fields) = (&self.date, &self.fields);
        let together = most + body.len() <= TOGETHER;
        let (first, rest) = body.split_at(if together { body.len() } else { 0 });
        let last = &mut self.last;
        link.write_with(most + first.len(), |out| {
            let head = fill(date, fields, kind, out);
            if fields.is_empty() {
                last.made(kind, &out[..head]);
            }
            out[head..][..first.len()].copy_from_slice(first);
            head + first.len()
        });
        if !rest.is_empty() {
            link.write(rest);
        }
    }
}

/// Writes a head, and returns its length.
fn fill(date: &Date, fields: &[u8], kind: Kind, out: &mut [u8]) -> usize {
    let most = out.len();
    let mut out = Out { rest: out };
    if kind.status == 200 {
        out.put(&date.lines);
    } else {
        match status::line(kind.status) {
            Some(line) => out.put(line.as_bytes()),
            None => {
                out.put(b"HTTP/1.1 ");
                out.number(kind.status.into());
                out.put(b" \r\n");
            }
        }
        out.put(&date.lines[OK.len()..]);
    }
    if !kind.keep {
        out.put(b"connection: close\r\n");
    } else if !kind.http11 {
        out.put(b"connection: keep-alive\r\n");
    }
    match kind.length {
        Length::Known(n) => {
            out.put(b"content-length: ");
            out.number(n);
            out.put(b"\r\n");
        }
        Length::Chunked => out.put(b"transfer-encoding: chunked\r\n"),
        Length::Closing | Length::Never => {}
    }
    if !fields.is_empty() {
        out.put(fields);
    }
    out.put(kind.content.line());
    out.put(b"\r\n");
    most - out.rest.len()
}

/// The rest of the memory that a head is written into.
struct Out<'a> {
    rest: &'a mut [u8],
}

impl Out<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (place, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.rest = rest;
    }

    fn number(&mut self, mut n: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.put(&digits[at..]);
    }
}

/// Writes a piece of a chunked body. An empty one would be the end, so nothing is written for it.
pub(crate) fn write_chunk(link: &mut Link<'_>, bytes: &[u8]) {
    if !bytes.is_empty() {
        write_size(link, bytes.len());
        link.write(bytes);
        link.write(b"\r\n");
    }
}

/// The line in front of a chunk.
pub(crate) fn write_size(link: &mut Link<'_>, size: usize) {
    link.write_with(18, |out| {
        let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1) as usize;
        for (at, place) in out[..digits].iter_mut().enumerate() {
            let digit = size >> (4 * (digits - 1 - at)) & 0xf;
            *place = b"0123456789abcdef"[digit];
        }
        out[digits..digits + 2].copy_from_slice(b"\r\n");
        digits + 2
    });
}
