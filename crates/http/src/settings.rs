//! Limits of one request.

use std::time::Duration;

/// Places for header fields: the most that [`Settings::headers`] may be.
pub(crate) const HEADERS_MAX: usize = 128;

use tidewire::Limits;

/// Limits of requests. Sizes are bytes. A request beyond a limit is answered with the status named
/// here, counted ([`Counters`](crate::Counters)) and logged, and its connection is closed.
///
/// ```
/// use tidewire_http::{Http, Router, Settings, testing};
///
/// let settings = Settings { body: 4, ..Settings::default() };
/// let router = Router::new().post("/", |_, response| response.text("fine"));
/// let app = Http::with(settings, router);
/// let got = testing::exchange(app, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
/// assert_eq!(got.status, 413);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The request line: 414. Default 8 KiB.
    pub request_line: usize,
    /// Request line and header fields together: 431. Default 16 KiB.
    pub head_bytes: usize,
    /// Number of header fields, at most 128: 431. Default 64.
    pub headers: usize,
    /// A body that is gathered before the handler is called: 413. Default 1 MiB.
    pub body: u64,
    /// A body that is streamed to its handler: 413. Default 1 GiB.
    pub streamed: u64,
    /// Bodies that are being gathered, together: 503. Default 64 MiB.
    pub gathered: usize,
    /// Trailer fields of a chunked body: 431. Default 4 KiB.
    pub trailers: usize,
    /// From the first byte of a head to its last: 408. Default 10 s.
    pub head_timeout: Duration,
    /// For a body, beside what [`body_rate`](Settings::body_rate) gives: 408. Time in which this
    /// side does not read does not count. Default 20 s.
    pub body_timeout: Duration,
    /// Bytes of a body that earn its sender another second. Default 1024; at least 1.
    pub body_rate: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            request_line: 8 << 10,
            head_bytes: 16 << 10,
            headers: 64,
            body: 1 << 20,
            streamed: 1 << 30,
            gathered: 64 << 20,
            trailers: 4 << 10,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(20),
            body_rate: 1024,
        }
    }
}

impl Settings {
    /// The limits to give the builder: connections without a request under way are closed after 60 s;
    /// a connection carries at most a head, or the requests of one chunk that it has not got to.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            carried: self.head_bytes + (1 << 20),
            output_hard: 16 << 20,
            // The time-outs above answer 408.
            request: None,
            ..Limits::default()
        }
    }

    /// The settings, limited to values that make sense.
    pub(crate) fn checked(mut self) -> Settings {
        self.headers = self.headers.clamp(1, HEADERS_MAX);
        self.head_bytes = self.head_bytes.clamp(64, 1 << 20);
        self.request_line = self.request_line.clamp(16, self.head_bytes);
        self.trailers = self.trailers.clamp(2, 1 << 20);
        self.body_rate = self.body_rate.max(1);
        self
    }
}
