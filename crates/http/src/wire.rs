//! Heads of replies, written straight into the output.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidewire::{Instant, Link};

use crate::counters::Counts;
use crate::status;

/// Bytes that are written with their head in one piece.
const TOGETHER: usize = 60 << 10;
/// Header fields that a handler may give a reply, in all.
pub(crate) const FIELDS_MAX: usize = 32 << 10;
/// What the fixed parts of a head take at most: the status line, the date, the connection, the length.
const FIXED: usize = 256;

/// What the reply depends on in the request.
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

/// How the end of a reply's body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(u64),
    Chunked,
    /// By closing.
    Closing,
    /// There is none, and nothing is said of it.
    Never,
}

/// What a loop keeps for writing heads.
#[derive(Debug)]
pub(crate) struct Wire {
    date: Date,
    /// Header fields of the reply that is being made.
    pub(crate) fields: Vec<u8>,
    counts: Arc<Counts>,
}

/// The Date field, made once a second, behind the status line that nearly all replies have.
#[derive(Debug)]
struct Date {
    lines: [u8; OK.len() + DATE],
    good_until: Instant,
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
/// Bytes of the field with its line end.
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
    /// Makes it anew if its second is over.
    fn look(&mut self, link: &Link<'_>) {
        if link.now() >= self.good_until {
            let wall = link.wall();
            let date = httpdate::HttpDate::from(UNIX_EPOCH + wall).to_string();
            // 29 characters up to the year 9999, behind which it stays what it was.
            let place = &mut self.lines[OK.len() + "date: ".len()..][..29];
            if let Some(place) = place.get_mut(..date.len()) {
                place.copy_from_slice(date.as_bytes());
            }
            let left = 1_000_000_000 - wall.subsec_nanos();
            self.good_until = link.now() + Duration::from_nanos(left.into());
        }
    }
}

impl Wire {
    pub(crate) fn new(counts: Arc<Counts>) -> Wire {
        Wire {
            date: Date::default(),
            fields: Vec::new(),
            counts,
        }
    }

    /// Writes a head with the fields that were gathered, and behind it `body`.
    pub(crate) fn write(
        &mut self,
        link: &mut Link<'_>,
        asked: Asked,
        status: u16,
        length: Length,
        body: &[u8],
    ) {
        self.counts.replied(status);
        let most = FIXED + self.fields.len();
        let together = most + body.len() <= TOGETHER;
        let (first, rest) = body.split_at(if together { body.len() } else { 0 });
        // Before the closure, which has the link.
        self.date.look(link);
        let (date, fields) = (&self.date.lines, &self.fields);
        link.write_with(most + first.len(), |out| {
            fill(date, fields, asked, status, length, first, out)
        });
        if !rest.is_empty() {
            link.write(rest);
        }
    }
}

fn fill(
    ok_and_date: &[u8; OK.len() + DATE],
    fields: &[u8],
    asked: Asked,
    status: u16,
    length: Length,
    body: &[u8],
    out: &mut [u8],
) -> usize {
    let mut out = Out { out, len: 0 };
    if status == 200 {
        out.put(ok_and_date);
    } else {
        match status::line(status) {
            Some(line) => out.put(line.as_bytes()),
            None => {
                out.put(b"HTTP/1.1 ");
                out.number(status.into());
                out.put(b" \r\n");
            }
        }
        out.put(&ok_and_date[OK.len()..]);
    }
    if !asked.keep {
        out.put(b"connection: close\r\n");
    } else if !asked.http11 {
        out.put(b"connection: keep-alive\r\n");
    }
    match length {
        Length::Known(n) => {
            out.put(b"content-length: ");
            out.number(n);
            out.put(b"\r\n");
        }
        Length::Chunked => out.put(b"transfer-encoding: chunked\r\n"),
        Length::Closing | Length::Never => {}
    }
    out.put(fields);
    out.put(b"\r\n");
    out.put(body);
    out.len
}

struct Out<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Out<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn number(&mut self, mut n: u64) {
        if n < 100 {
            let digits = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
            return self.put(&digits[usize::from(n < 10)..]);
        }
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
