//! The reply to one request.

use std::fmt::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use tidewire::{Instant, Link, Peer};
use tidewire_pool::Pool;

use crate::exchange::Exchange;
use crate::fields::push_field;
use crate::kind::{Content, Length};
use crate::later::{Answer, Later};
use crate::status;
use crate::wire::{Asked, FIELDS_MAX, Wire};

/// A handler's way to answer a request. Each way to answer consumes the `Response` and gives the
/// [`Done`] that the handler returns, so there is exactly one reply for each request.
///
/// The status line, `date`, `content-length` or `transfer-encoding` and `connection` are written by
/// the service, straight into the output; nothing is allocated for a reply.
///
/// ```
/// use tidewire_http::{Http, Router, testing};
///
/// let router = Router::new().get("/old", |_, response| {
///     response.status(301).header("location", "/new").empty()
/// });
/// let got = testing::exchange(Http::new(router), b"GET /old HTTP/1.1\r\nHost: h\r\n\r\n");
/// assert_eq!((got.status, got.header("location")), (301, Some("/new")));
/// ```
pub struct Response<'r> {
    pub(crate) link: Link<'r>,
    pub(crate) wire: &'r mut Wire,
    pub(crate) asked: &'r mut Asked,
    pub(crate) status: u16,
    /// A field was given that may not be written.
    pub(crate) bad: bool,
    pub(crate) outcome: &'r mut Outcome,
}

/// Proof that a request was answered, or that its answer is on its way. Only a [`Response`] makes a
/// `Done`.
///
/// ```
/// use tidewire_http::{Done, Request, Response};
///
/// fn hello(_: &Request<'_>, response: Response<'_>) -> Done {
///     response.text("hello")
/// }
/// ```
#[derive(Debug)]
#[must_use = "a handler returns it"]
pub struct Done(());

impl Done {
    pub(crate) const fn new() -> Done {
        Done(())
    }
}

/// How a request ended.
#[derive(Default)]
pub(crate) enum Outcome {
    /// The reply is written.
    #[default]
    Sent,
    /// The response comes from elsewhere.
    Later(Box<dyn FnOnce(Later)>),
    /// The response is computed on a pool.
    Pooled(Pool, Work),
    /// The exchange writes the response. With a length, the head is written already; without one, the exchange
    /// writes the head, too.
    Streamed(Box<dyn Exchange>, Option<Length>),
}

/// Work that is computed on a pool.
pub(crate) type Work = Box<dyn FnOnce() -> Answer + Send>;

impl<'r> Response<'r> {
    pub(crate) fn new(
        link: Link<'r>,
        wire: &'r mut Wire,
        asked: &'r mut Asked,
        outcome: &'r mut Outcome,
    ) -> Response<'r> {
        wire.begin();
        Response {
            link,
            wire,
            asked,
            status: 200,
            bad: false,
            outcome,
        }
    }

    /// Answers with this status. Default 200. A status that is not final (200 to 599) makes the
    /// reply a 500.
    #[must_use]
    pub fn status(mut self, status: u16) -> Response<'r> {
        self.bad |= !(200..600).contains(&status);
        self.status = status;
        self
    }

    /// Adds a header field. These make the reply a 500: a name that is no token, a control character
    /// in the value, a field that the service writes itself (`connection`, `content-length`, `date`,
    /// `transfer-encoding`), and more than 32 KiB of fields. So bytes that a client sent cannot add a
    /// field or end the head.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Response<'r> {
        let fields = &mut self.wire.fields;
        match push_field(fields, name, value.as_ref()) {
            true => self.bad |= fields.len() > FIELDS_MAX,
            false => self.bad = true,
        }
        self
    }

    /// Sets the content of the response.
    fn content(self, content: Content) -> Response<'r> {
        self.wire.content = content;
        self
    }

    /// Closes the connection behind this reply.
    #[must_use]
    pub fn close(self) -> Response<'r> {
        self.asked.keep = false;
        self
    }

    /// Answers with these bytes. A HEAD request gets the head alone, with their length.
    pub fn body(mut self, body: &[u8]) -> Done {
        self.send(body)
    }

    /// Answers with shared bytes, which are not copied if they are many.
    pub fn shared(mut self, body: Bytes) -> Done {
        if self.bad || self.asked.head || body.len() < 4096 || status::is_bodiless(self.status) {
            return self.send(&body);
        }
        let length = Length::Known(body.len() as u64);
        self.head(length);
        self.link.write_shared(body);
        Done::new()
    }

    /// Answers with text, as `text/plain; charset=utf-8`.
    pub fn text(self, text: &str) -> Done {
        self.content(Content::Text).body(text.as_bytes())
    }

    /// Answers with a page, as `text/html; charset=utf-8`.
    pub fn html(self, page: &str) -> Done {
        self.content(Content::Html).body(page.as_bytes())
    }

    /// Answers with JSON that is already put together, as `application/json`.
    pub fn json(self, json: &str) -> Done {
        self.content(Content::Json).body(json.as_bytes())
    }

    /// Answers without a body.
    pub fn empty(self) -> Done {
        self.body(b"")
    }

    /// Answers an error: this status, and its name and `why` as text.
    pub fn error(self, status: u16, why: &str) -> Done {
        let mut text = String::new();
        let _ = writeln!(text, "{status} {}: {why}", status::words(status));
        self.status(status).text(&text)
    }

    /// Lets the answer come later, from whatever thread: `start` is given the place that is kept for
    /// it, and called at once. The connection waits, and with it what the client sends behind this
    /// request. The status and fields given so far are dropped. If too many answers are owed on this
    /// loop already, the reply is a 503, and `start` is not called.
    ///
    /// See [`Later`].
    pub fn later(self, start: impl FnOnce(Later) + 'static) -> Done {
        *self.outcome = Outcome::Later(Box::new(start));
        Done::new()
    }

    /// Has the answer computed on `pool`, for work that would keep the loop too long. As with
    /// [`later`](Response::later) the connection waits; if the pool is busy, answers of other
    /// connections wait too. If the pool is full the reply is a 503; if `work` panics, a 500.
    ///
    /// ```
    /// use tidewire_http::{Answer, Http, Router, testing};
    /// use tidewire_pool::Pool;
    ///
    /// let pool = Pool::inline(); // in a program: Pool::new
    /// let router = Router::new().get("/sum", move |_, response| {
    ///     response.pooled(&pool, || {
    ///         let sum: u64 = (1..=1_000_000).sum();
    ///         Answer::new(200).text(sum.to_string())
    ///     })
    /// });
    /// let got = testing::exchange(Http::new(router), b"GET /sum HTTP/1.1\r\nHost: h\r\n\r\n");
    /// assert_eq!(got.text(), "500000500000");
    /// ```
    pub fn pooled(self, pool: &Pool, work: impl FnOnce() -> Answer + Send + 'static) -> Done {
        *self.outcome = Outcome::Pooled(pool.clone(), Box::new(work));
        Done::new()
    }

    /// Writes the head now, for a body of `length` bytes, or chunked if that is not known; `exchange`
    /// writes the body. To a client of HTTP/1.0 a body of unknown length ends with the connection.
    pub fn stream(mut self, length: Option<u64>, exchange: impl Exchange) -> Done {
        if self.bad {
            return self.send(b"");
        }
        let length = match length {
            _ if status::is_bodiless(self.status) => Length::Never,
            Some(n) => Length::Known(n),
            None if self.asked.http11 => Length::Chunked,
            None => Length::Closing,
        };
        self.asked.keep &= length != Length::Closing;
        self.head(length);
        if !self.asked.head && length != Length::Never {
            *self.outcome = Outcome::Streamed(Box::new(exchange), Some(length));
        }
        Done::new()
    }

    /// Leaves the whole reply to `exchange`: its status and fields may depend on the request's
    /// body, as the body comes. The status and fields given so far are dropped.
    ///
    /// See [`Exchange`].
    pub fn exchange(self, exchange: impl Exchange) -> Done {
        *self.outcome = Outcome::Streamed(Box::new(exchange), None);
        Done::new()
    }

    /// The client's end of the connection.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.link.peer()
    }

    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.link.now()
    }

    /// The time now, read from the clock.
    #[must_use]
    pub fn clock(&self) -> Instant {
        self.link.clock()
    }

    /// Time since 1970-01-01T00:00:00Z by the wall clock, which may jump.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.link.wall()
    }

    fn head(&mut self, length: Length) {
        let link = &mut self.link;
        self.wire.write(link, *self.asked, self.status, length, b"");
    }

    pub(crate) fn send(&mut self, body: &[u8]) -> Done {
        let mut body = body;
        if self.bad {
            self.wire.begin();
            (self.status, body) = (500, b"");
            tracing::warn!("a handler gave a reply a status or a field that cannot be sent");
        }
        let length = match self.status {
            200 => Length::Known(body.len() as u64),
            205 => Length::Known(0),
            status if status::is_bodiless(status) => Length::Never,
            _ => Length::Known(body.len() as u64),
        };
        if self.asked.head || length == Length::Never || self.status == 205 {
            body = b"";
        }
        self.wire
            .write(&mut self.link, *self.asked, self.status, length, body);
        Done::new()
    }
}

impl fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Response({})", self.status)
    }
}
