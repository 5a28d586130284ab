//! A reply that is written in pieces.

use std::fmt;

use bytes::Bytes;
use tidewire::{Instant, Link};

use crate::data::Data;
use crate::fields::push_field;
use crate::kind;
use crate::status;
use crate::wire::{self, Asked, Wire};

/// The length of a streamed reply.
///
/// ```
/// use tidewire_http::{Length, Reply};
///
/// fn begin(reply: &mut Reply<'_>, size: Option<u64>) {
///     let length = size.map_or(Length::Unknown, Length::Known);
///     reply.head(200, &[("content-type", "application/octet-stream")], length);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Exactly this number of bytes.
    Known(u64),
    /// Not known yet: chunked, or for a client of HTTP/1.0 up to the end of the connection.
    Unknown,
}

/// How far a streamed reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The head is not written.
    Unstarted,
    /// The reply is in its body, whose length the kind tells; with
    /// [`Length::Known`](kind::Length::Known), so many bytes are left.
    Body(kind::Length),
    /// In a body that is not sent: the reply to HEAD.
    Unseen,
    Ended,
}

/// The place to which an [`Exchange`](crate::Exchange) writes its reply: the head, unless
/// [`Response::stream`](crate::Response::stream) has written it, then pieces of the body, then the
/// end. A body that is not as long as was said is the handler's mistake: the connection is aborted,
/// so that the client does not take a part for the whole.
///
/// ```
/// use tidewire_http::{Exchange, Http, Reply, Router, testing};
///
/// /// Counts down, as fast as the client takes it.
/// struct Countdown(u32);
///
/// impl Exchange for Countdown {
///     fn room(&mut self, reply: &mut Reply<'_>) {
///         while self.0 > 0 && !reply.full() {
///             reply.write(format!("{}\n", self.0).as_bytes());
///             self.0 -= 1;
///         }
///         if self.0 == 0 {
///             reply.end();
///         }
///     }
/// }
///
/// let router = Router::new().get("/", |_, response| response.stream(None, Countdown(3)));
/// let got = testing::exchange(Http::new(router), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
/// assert_eq!(got.text(), "3\n2\n1\n");
/// ```
pub struct Reply<'r> {
    pub(crate) link: Link<'r>,
    pub(crate) wire: &'r mut Wire,
    pub(crate) asked: &'r mut Asked,
    pub(crate) progress: &'r mut Progress,
}

impl Reply<'_> {
    /// Writes the head: status, header fields, and how long the body will be. The rules for fields
    /// are those of [`Response::header`](crate::Response::header); a field or status that is not
    /// allowed makes the reply a 500 without a body. A second call has no effect.
    pub fn head(&mut self, status: u16, fields: &[(&str, &str)], length: Length) {
        if *self.progress != Progress::Unstarted {
            return;
        }
        self.wire.begin();
        let mut good = (200..600).contains(&status);
        for (name, value) in fields {
            good &= push_field(&mut self.wire.fields, name, value.as_bytes());
        }
        if !good || self.wire.fields.len() > wire::FIELDS_MAX {
            tracing::warn!("a handler gave a reply a status or a field that cannot be sent");
            self.wire.begin();
            self.write_head(500, kind::Length::Known(0));
            *self.progress = Progress::Ended;
            return;
        }
        let length = match length {
            _ if status::is_bodiless(status) => kind::Length::Never,
            Length::Known(n) => kind::Length::Known(n),
            Length::Unknown if self.asked.http11 => kind::Length::Chunked,
            Length::Unknown => {
                self.asked.keep = false;
                kind::Length::Closing
            }
        };
        self.write_head(status, length);
        *self.progress = match self.asked.head || length == kind::Length::Never {
            true => Progress::Unseen,
            false => Progress::Body(length),
        };
    }

    fn write_head(&mut self, status: u16, length: kind::Length) {
        let link = &mut self.link;
        self.wire.write(link, *self.asked, status, length, b"");
    }

    /// Writes a piece of the body. Never fails: ask [`full`](Reply::full) first.
    pub fn write(&mut self, bytes: &[u8]) {
        match self.account(bytes.len()) {
            Some(kind::Length::Chunked) => wire::write_chunk(&mut self.link, bytes),
            Some(_) => self.link.write(bytes),
            None => {}
        }
    }

    /// Writes shared bytes, which are not copied if they are many.
    pub fn write_shared(&mut self, bytes: Bytes) {
        match self.account(bytes.len()) {
            Some(kind::Length::Chunked) => {
                wire::write_size(&mut self.link, bytes.len());
                self.link.write_shared(bytes);
                self.link.write(b"\r\n");
            }
            Some(_) => self.link.write_shared(bytes),
            None => {}
        }
    }

    /// Consumes the first `n` bytes of a piece of the request's body and writes them, without a copy
    /// where that pays.
    ///
    /// # Panics
    /// Panics if fewer than `n` bytes of the data are left.
    pub fn forward(&mut self, data: &mut Data<'_, '_>, n: usize) {
        assert!(n <= data.len, "forwarded {n} of {} bytes", data.len);
        let length = self.account(n);
        match length {
            Some(kind::Length::Chunked) => {
                wire::write_size(&mut self.link, n);
                self.link.forward(data.input, n);
                self.link.write(b"\r\n");
            }
            Some(_) => self.link.forward(data.input, n),
            None => data.input.consume(n),
        }
        data.len -= n;
    }

    /// Ends the body. Without a head so far, that is an empty 200.
    pub fn end(&mut self) {
        self.end_with(&[]);
    }

    /// Ends the body with trailers, which a chunked one carries and others leave out. Fields that may
    /// not be written are left out too.
    pub fn end_with(&mut self, trailers: &[(&str, &str)]) {
        match *self.progress {
            Progress::Ended => return,
            Progress::Unstarted => {
                self.head(200, &[], Length::Known(0));
            }
            Progress::Body(kind::Length::Known(1..)) => {
                self.link.abort_because("a reply shorter than was said");
            }
            Progress::Body(kind::Length::Chunked) => {
                self.wire.fields.clear();
                for (name, value) in trailers {
                    push_field(&mut self.wire.fields, name, value.as_bytes());
                }
                self.link.write(b"0\r\n");
                self.link.write(&self.wire.fields);
                self.link.write(b"\r\n");
            }
            Progress::Body(_) | Progress::Unseen => {}
        }
        *self.progress = Progress::Ended;
    }

    /// Cuts the reply: the client sees that it is not whole.
    pub fn abort(&mut self) {
        self.link.abort_because("a handler gave a reply up");
    }

    /// Whether as much output is queued as may be: write no more before
    /// [`Exchange::room`](crate::Exchange::room) is called.
    #[must_use]
    pub fn full(&self) -> bool {
        self.link.full()
    }

    /// Whether the reply has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        *self.progress == Progress::Ended
    }

    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.link.now()
    }

    /// How `n` bytes of the body are to be written, if they are.
    fn account(&mut self, n: usize) -> Option<kind::Length> {
        if n == 0 {
            return None;
        }
        if *self.progress == Progress::Unstarted {
            self.head(200, &[], Length::Unknown);
        }
        match self.progress {
            Progress::Body(length) => {
                if let kind::Length::Known(left) = length {
                    let Some(rest) = left.checked_sub(n as u64) else {
                        self.link.abort_because("a reply longer than was said");
                        return None;
                    };
                    *left = rest;
                }
                Some(*length)
            }
            Progress::Unseen | Progress::Unstarted | Progress::Ended => None,
        }
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({:?})", self.progress)
    }
}
