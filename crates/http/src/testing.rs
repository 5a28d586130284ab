//! Trying handlers without a socket, and reading replies.

use std::fmt;

use tidewire::sim::chunking;

use crate::handler::Handler;
use crate::service::Http;

/// A reply, taken apart.
///
/// ```
/// use tidewire_http::testing;
///
/// let bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx: y\r\n\r\n";
/// let got = &testing::replies(bytes, &["GET"]).unwrap()[0];
/// assert_eq!((got.status, got.text(), got.trailer("x")), (200, "hi", Some("y")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// Status of the reply.
    pub status: u16,
    /// Names, in lower case, and values of its header fields.
    pub headers: Vec<(String, String)>,
    /// Body of the reply, without chunks.
    pub body: Vec<u8>,
    /// Trailers of the reply, by name and value.
    pub trailers: Vec<(String, String)>,
    /// Whether its body ended as it should.
    pub whole: bool,
}

impl Got {
    /// The value of the first header field of that name (in lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }

    /// The value of the first trailer of that name (in lower case).
    #[must_use]
    pub fn trailer(&self, name: &str) -> Option<&str> {
        value(&self.trailers, name)
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

fn value<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
    let mut all = fields.iter();
    let (_, value) = all.find(|(known, _)| known == name)?;
    Some(value)
}

/// Sends `request` over a connection of `app` that exists in memory, and returns the final reply.
///
/// ```
/// use tidewire_http::{Http, Router, testing};
///
/// let app = Http::new(Router::new().get("/", |_, response| response.text("hi")));
/// assert_eq!(testing::exchange(app, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").text(), "hi");
/// ```
///
/// # Panics
/// If there is no reply, or one that is not in order.
#[must_use]
pub fn exchange<H: Handler>(app: Http<H>, request: &[u8]) -> Got {
    let method = request.split(|&b| b == b' ').next().unwrap_or_default();
    let method = String::from_utf8_lossy(method);
    let got = chunking::collect(app, request, &[], true);
    let replies = replies(&got.output, &[&method]).expect("a reply in order");
    let last = replies.into_iter().find(|got| got.status >= 200);
    last.expect("a reply")
}

/// Takes apart the replies to requests with these methods, interim ones (1xx) included; further
/// replies are replies to GET.
///
/// # Errors
/// What is wrong, if a reply is not in order. One whose body is cut short is, but not
/// [whole](Got::whole).
pub fn replies(bytes: &[u8], methods: &[&str]) -> Result<Vec<Got>, Malformed> {
    let mut methods = methods.iter();
    let mut method = *methods.next().unwrap_or(&"GET");
    let (mut all, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (got, after) = reply(rest, method)?;
        if got.status >= 200 {
            method = methods.next().unwrap_or(&"GET");
        }
        all.push(got);
        rest = after;
    }
    Ok(all)
}

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a reply that is not in order: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

fn malformed<T>(what: impl fmt::Display) -> Result<T, Malformed> {
    Err(Malformed(what.to_string()))
}

fn reply<'a>(bytes: &'a [u8], method: &str) -> Result<(Got, &'a [u8]), Malformed> {
    let mut places = [httparse::EMPTY_HEADER; 128];
    let mut parsed = httparse::Response::new(&mut places);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return malformed("a head that does not end"),
        Err(error) => return malformed(error),
    };
    let mut got = Got {
        status: parsed.code.unwrap_or_default(),
        headers: owned(parsed.headers),
        body: Vec::new(),
        trailers: Vec::new(),
        whole: true,
    };
    let rest = &bytes[len..];
    if method == "HEAD" || got.status < 200 || matches!(got.status, 204 | 304) {
        return Ok((got, rest));
    }
    if got.header("transfer-encoding") == Some("chunked") {
        let rest = chunks(rest, &mut got)?;
        return Ok((got, rest));
    }
    let length = match got.header("content-length").map(str::parse::<usize>) {
        Some(Ok(n)) => n,
        Some(Err(error)) => return malformed(error),
        None => rest.len(),
    };
    got.whole = length <= rest.len();
    let (body, rest) = rest.split_at(length.min(rest.len()));
    got.body = body.to_vec();
    Ok((got, rest))
}

fn chunks<'a>(mut rest: &'a [u8], got: &mut Got) -> Result<&'a [u8], Malformed> {
    loop {
        let (skip, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete((skip, size))) => (skip, size as usize),
            Ok(httparse::Status::Partial) => break,
            Err(_) => return malformed("a chunk without a size"),
        };
        if size == 0 {
            let mut places = [httparse::EMPTY_HEADER; 128];
            return match httparse::parse_headers(&rest[skip..], &mut places) {
                Ok(httparse::Status::Complete((len, fields))) => {
                    got.trailers = owned(fields);
                    Ok(&rest[skip + len..])
                }
                Ok(httparse::Status::Partial) => break,
                Err(error) => malformed(error),
            };
        }
        let Some((chunk, after)) = rest[skip..].split_at_checked(size) else {
            got.body.extend_from_slice(&rest[skip..]);
            break;
        };
        got.body.extend_from_slice(chunk);
        rest = match after.strip_prefix(b"\r\n") {
            Some(after) => after,
            None if b"\r\n".starts_with(after) => break,
            None => return malformed("a chunk that does not end"),
        };
    }
    got.whole = false;
    Ok(b"")
}

fn owned(fields: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    let owned = |field: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(field.value).into_owned();
        (field.name.to_ascii_lowercase(), value)
    };
    fields.iter().map(owned).collect()
}
