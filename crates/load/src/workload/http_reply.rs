//! Reads replies, and compares each with the expected one.
//!
//! The idea: where a reply ends is what RFC 9112, section 6.3 says, in its order; whatever is legal there is no fault
//! of the server, however seldom servers do it.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

use super::fault::{Fault, Wrong};
use super::http_body::{Body, Reading};

/// Header fields that most replies have at most; they are read without an allocation.
const FIELDS_FEW: usize = 64;
/// Header fields that a reply may have at all.
const FIELDS_MAX: usize = 4_096;
/// Bytes of a head, and of trailers.
const HEAD_MAX: usize = 1 << 20;
/// Interim replies (100, 103) in front of one reply.
const INTERIM_MAX: u32 = 64;

/// The properties that a reply must have.
pub(super) struct Expected {
    /// Replies have no bodies.
    pub(super) head: bool,
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    /// For each request, the first whole body that came, or the expected one.
    pub(super) bodies: Arc<[OnceLock<Body>]>,
}

/// Where in a reply a connection is.
pub(super) struct Replies {
    expected: Expected,
    at: At,
    /// The request that the present reply is to, by its number.
    to: usize,
    body: Reading,
    /// Interim replies that came in front of the present one.
    interim: u32,
    /// The input ends within the head of a reply; the rest is awaited.
    partial: bool,
    /// The present reply, or the one that has just ended, is the last one of its connection.
    last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    /// Bytes that are left of a body whose length is known.
    Known(u64),
    /// In a body that ends where the connection does.
    ToTheEnd,
    /// At a chunk's first line.
    Size,
    /// Bytes that are left of a chunk.
    Chunk(u64),
    /// At the line end behind a chunk.
    ChunkEnd,
    Trailers,
}

impl Replies {
    pub(super) fn new(expected: Expected) -> Replies {
        Replies {
            expected,
            at: At::Head,
            to: 0,
            body: Reading::default(),
            interim: 0,
            partial: false,
            last: false,
        }
    }

    /// Takes at most `owed` replies: how many bytes they are, and how many replies ended. `asked`
    /// has the numbers of the requests that are owed a reply, the first at the front, and loses the
    /// ended ones; empty where there is one request only.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        owed: u32,
        asked: &mut VecDeque<u8>,
    ) -> Result<(usize, u32), Wrong> {
        let (mut used, mut ended) = (0, 0);
        loop {
            let rest = &bytes[used..];
            if self.at == At::Head {
                self.to = asked.front().copied().unwrap_or(0).into();
            }
            if self.at == At::Head && (ended == owed || self.last) {
                self.partial = false;
                if rest.is_empty() {
                    return Ok((used, ended));
                }
                let n = rest.len();
                return Err(match self.last && ended < owed {
                    true => Wrong::from(format!(
                        "{n} bytes behind a reply that said it was the connection's last"
                    )),
                    false => Fault::ReplyBeforeRequest
                        .because(format!("{n} bytes that were not asked for")),
                });
            }
            let Some((n, end)) = self.step(rest)? else {
                self.partial = !rest.is_empty();
                return Ok((used, ended));
            };
            used += n;
            if end {
                self.whole()?;
                asked.pop_front();
                ended += 1;
            }
        }
    }

    /// The server has finished the connection: whether a reply ends with it.
    pub(super) fn finished(&mut self, asked: &mut VecDeque<u8>) -> Result<bool, Wrong> {
        if self.at != At::ToTheEnd {
            return Ok(false);
        }
        self.at = At::Head;
        self.whole()?;
        asked.pop_front();
        Ok(true)
    }

    /// Whether a part of a reply has come.
    pub(super) fn is_in_one(&self) -> bool {
        self.at != At::Head || self.partial || self.interim > 0
    }

    /// Whether the connection ends behind the reply that came last, or behind the one that is coming.
    pub(super) fn is_last(&self) -> bool {
        self.last
    }

    /// Whether the connection ends behind the reply that came last.
    pub(super) fn was_last(&self) -> bool {
        self.last && self.at == At::Head
    }

    /// Goes on at the beginning of another connection.
    pub(super) fn restart(&mut self) {
        self.at = At::Head;
        (self.partial, self.last, self.interim) = (false, false, 0);
    }

    /// Reads one part of a reply: returns its length, and whether the reply ends with it. `None` if
    /// more bytes are needed.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Wrong> {
        let took = match self.at {
            At::Head => return self.head(bytes),
            At::ToTheEnd if bytes.is_empty() => return Ok(None),
            At::ToTheEnd => {
                self.content(bytes)?;
                bytes.len()
            }
            At::Known(left) | At::Chunk(left) => {
                if bytes.is_empty() {
                    return Ok(None);
                }
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                self.content(&bytes[..n])?;
                let left = left - n as u64;
                self.at = match self.at {
                    At::Known(_) if left == 0 => At::Head,
                    At::Known(_) => At::Known(left),
                    _ if left == 0 => At::ChunkEnd,
                    _ => At::Chunk(left),
                };
                return Ok(Some((n, self.at == At::Head)));
            }
            At::Size => match httparse::parse_chunk_size(bytes) {
                Ok(httparse::Status::Complete((n, 0))) => {
                    self.at = At::Trailers;
                    n
                }
                Ok(httparse::Status::Complete((n, size))) => {
                    self.at = At::Chunk(size);
                    n
                }
                Ok(httparse::Status::Partial) => return partial(bytes, "the line of a chunk"),
                Err(_) => return Err(Wrong::from("a chunk without a size".to_owned())),
            },
            At::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.at = At::Size;
                    2
                }
                [] | [b'\r'] => return Ok(None),
                _ => {
                    return Err("a chunk that does not end where it should"
                        .to_owned()
                        .into());
                }
            },
            At::Trailers => return self.trailers(bytes),
        };
        Ok(Some((took, false)))
    }

    fn trailers(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Wrong> {
        let mut few = [httparse::EMPTY_HEADER; FIELDS_FEW];
        let mut many;
        let mut parsed = httparse::parse_headers(bytes, &mut few);
        if parsed == Err(httparse::Error::TooManyHeaders) {
            many = vec![httparse::EMPTY_HEADER; FIELDS_MAX];
            parsed = httparse::parse_headers(bytes, &mut many);
        }
        match parsed {
            Ok(httparse::Status::Complete((n, _))) => {
                self.at = At::Head;
                Ok(Some((n, true)))
            }
            Ok(httparse::Status::Partial) => partial(bytes, "trailers"),
            Err(e) => Err(format!("trailers: {e}").into()),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Wrong> {
        let mut few = [const { MaybeUninit::uninit() }; FIELDS_FEW];
        let mut reply = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        match config.parse_response_with_uninit_headers(&mut reply, bytes, &mut few) {
            Err(httparse::Error::TooManyHeaders) => {
                let mut many = vec![httparse::EMPTY_HEADER; FIELDS_MAX];
                let mut reply = httparse::Response::new(&mut many);
                let parsed = reply.parse(bytes);
                if parsed == Err(httparse::Error::TooManyHeaders) {
                    return Err(format!("a head of more than {FIELDS_MAX} fields").into());
                }
                self.parsed(parsed, &reply, bytes)
            }
            parsed => self.parsed(parsed, &reply, bytes),
        }
    }

    fn parsed(
        &mut self,
        parsed: httparse::Result<usize>,
        reply: &httparse::Response<'_, '_>,
        bytes: &[u8],
    ) -> Result<Option<(usize, bool)>, Wrong> {
        let n = match parsed {
            Ok(httparse::Status::Complete(n)) => n,
            Ok(httparse::Status::Partial) => return partial(bytes, "a head"),
            Err(e) => return Err(format!("no reply ({e}): {:?}", shown(bytes)).into()),
        };
        let status = reply.code.unwrap_or_default();
        let wanted = self.expected.status;
        // Interim replies come before the real one; 101 is not one, because no HTTP follows it.
        if (100..200).contains(&status) && status != 101 && status != wanted {
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(format!("{INTERIM_MAX} interim replies, and no other").into());
            }
            return Ok(Some((n, false)));
        }
        self.interim = 0;
        if status != wanted {
            return Err(format!("status {status} instead of {wanted}").into());
        }
        let framing = Framing::of(reply)?;
        self.last = framing.last;
        self.body = Reading::begin(self.expected.bodies[self.to].get());
        if self.expected.head || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Some((n, true)));
        }
        self.at = match (framing.chunked, framing.length) {
            (Some(true), _) => At::Size,
            (None, Some(0)) => At::Head,
            (None, Some(length)) => At::Known(length),
            (Some(false), _) | (None, None) => {
                self.last = true;
                At::ToTheEnd
            }
        };
        Ok(Some((n, self.at == At::Head)))
    }

    /// Compares a piece of a body.
    fn content(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let wanted = self.expected.bodies[self.to].get();
        self.body.take(bytes, wanted)
    }

    /// A reply has ended.
    fn whole(&mut self) -> Result<(), Wrong> {
        if self.expected.head {
            return Ok(());
        }
        let body = std::mem::take(&mut self.body);
        body.whole(&self.expected.bodies[self.to], self.expected.length)
    }
}

/// The head's statements about the end of its reply and of its connection.
struct Framing {
    /// Whether the last of the transfer codings is chunked; `None` without any.
    chunked: Option<bool>,
    length: Option<u64>,
    /// No further reply follows on this connection.
    last: bool,
}

impl Framing {
    fn of(reply: &httparse::Response<'_, '_>) -> Result<Framing, Wrong> {
        let (mut chunked, mut length) = (None, None);
        let (mut close, mut keep) = (false, false);
        for field in &*reply.headers {
            if field.name.eq_ignore_ascii_case("content-length") {
                // A list of equal lengths counts as one length.
                for text in field.value.split(|&b| b == b',') {
                    let text = text.trim_ascii();
                    let n = std::str::from_utf8(text).ok();
                    let n = n.filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
                    let n = n.and_then(|n| n.parse::<u64>().ok());
                    let n = n.ok_or_else(|| format!("content-length {:?}", shown(text)))?;
                    if length.is_some_and(|known| known != n) {
                        return Err("two lengths that differ".to_owned().into());
                    }
                    length = Some(n);
                }
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                // The last of several fields has the last coding.
                if let Some(last) = tokens(field.value).last() {
                    chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
                }
            } else if field.name.eq_ignore_ascii_case("connection") {
                for token in tokens(field.value) {
                    close |= token.eq_ignore_ascii_case(b"close");
                    keep |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
        }
        Ok(Framing {
            chunked,
            length,
            last: close || (reply.version == Some(0) && !keep),
        })
    }
}

/// The parts of a list, without empty ones, without parameters.
fn tokens(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = list.split(|&b| b == b',');
    let bare = parts.map(|part| {
        part.split(|&b| b == b';')
            .next()
            .unwrap_or(part)
            .trim_ascii()
    });
    bare.filter(|part| !part.is_empty())
}

/// More is needed, unless there is too much already.
fn partial(bytes: &[u8], what: &str) -> Result<Option<(usize, bool)>, Wrong> {
    match bytes.len() > HEAD_MAX {
        true => Err(format!("{what} of more than {HEAD_MAX} bytes").into()),
        false => Ok(None),
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(60)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(body: Option<&[u8]>) -> Replies {
        let cell = OnceLock::new();
        if let Some(body) = body {
            cell.set(Body::of(body)).unwrap();
        }
        Replies::new(Expected {
            head: false,
            status: 200,
            length: None,
            bodies: [cell].into(),
        })
    }

    /// Reads this stream in pieces of `piece` bytes; returns the number of replies, or the first
    /// fault.
    fn read(mut it: Replies, stream: &[u8], piece: usize) -> Result<u32, Wrong> {
        let (mut from, mut end, mut ended) = (0, 0, 0);
        while end < stream.len() {
            end = (end + piece).min(stream.len());
            let (used, more) = it.take(&stream[from..end], 100 - ended, &mut VecDeque::new())?;
            from += used;
            ended += more;
        }
        Ok(ended)
    }

    const KNOWN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\na: b\r\n\r\n";

    #[test]
    fn replies_that_say_the_same_are_good_however_they_come() {
        let stream = [KNOWN, CHUNKED, KNOWN].concat();
        for piece in 1..stream.len() {
            assert_eq!(read(replies(None), &stream, piece), Ok(3), "{piece}");
        }
    }

    #[test]
    fn each_request_has_a_body_of_its_own() {
        let reply = |body: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let stream = ["one", "other", "one", "one", "other"].map(reply).concat();
        let found = |asked: [u8; 5], piece: usize| {
            let mut it = Replies::new(Expected {
                head: false,
                status: 200,
                length: None,
                bodies: [OnceLock::new(), OnceLock::new()].into(),
            });
            let (mut from, mut end, mut ended) = (0, 0, 0);
            let mut asked = VecDeque::from(asked);
            while end < stream.len() {
                end = (end + piece).min(stream.len());
                let bytes = &stream.as_bytes()[from..end];
                let (used, more) = it.take(bytes, 5 - ended, &mut asked)?;
                from += used;
                ended += more;
            }
            assert!(asked.is_empty());
            Ok::<u32, Wrong>(ended)
        };
        for piece in 1..stream.len() {
            assert_eq!(found([0, 1, 0, 0, 1], piece), Ok(5), "{piece}");
            assert!(found([0, 1, 1, 0, 1], piece).is_err(), "{piece}");
        }
    }

    #[test]
    fn what_differs_is_said() {
        let wrong = |stream: &[u8], words: &str| {
            for piece in [1, 7, 1000] {
                let why = read(replies(Some(b"hello")), stream, piece)
                    .unwrap_err()
                    .what;
                assert!(why.contains(words), "{why}, not {words}");
            }
        };
        wrong(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "status 404",
        );
        wrong(
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhellx",
            "not the same",
        );
        wrong(
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhell",
            "4 bytes instead of 5",
        );
        wrong(
            b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello!",
            "not the same",
        );
        wrong(b"+OK redis\r\n", "no reply");
        wrong(&[KNOWN, b"x"].concat(), "no reply");
        let nobody = &mut VecDeque::new();
        assert!(
            replies(None).take(KNOWN, 0, nobody).is_err(),
            "nobody asked"
        );
        let other = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother";
        assert!(read(replies(None), &[KNOWN, other].concat(), 1).is_err());
    }

    /// Reads replies to 100 requests to the end of the connection; returns their number, and whether the
    /// end completes one more.
    fn to_the_end(it: Replies, stream: &[u8], piece: usize) -> (u32, Result<bool, Wrong>) {
        let mut it = it;
        let (mut from, mut end, mut ended) = (0, 0, 0);
        while end < stream.len() {
            end = (end + piece).min(stream.len());
            let (used, more) = it
                .take(&stream[from..end], 100 - ended, &mut VecDeque::new())
                .unwrap();
            from += used;
            ended += more;
        }
        assert_eq!(it.is_in_one(), it.at == At::ToTheEnd);
        (ended, it.finished(&mut VecDeque::new()))
    }

    #[test]
    fn interim_replies_are_none() {
        let early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let stream = [KNOWN, early, KNOWN, early, CHUNKED].concat();
        for piece in 1..stream.len() {
            assert_eq!(
                read(replies(Some(b"hello")), &stream, piece),
                Ok(3),
                "{piece}"
            );
        }
        let only = early.repeat(100);
        let why = read(replies(None), &only, 1000).unwrap_err().what;
        assert!(why.contains("interim"), "{why}");
    }

    #[test]
    fn the_last_coding_says_where_a_body_ends() {
        let body = "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        for codings in [
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: Chunked",
            "Content-Length: 99\r\nTransfer-Encoding: chunked",
        ] {
            let stream = format!("HTTP/1.1 200 OK\r\n{codings}\r\n\r\n{body}");
            for piece in [1, 1000] {
                let found = read(replies(Some(b"hello")), stream.as_bytes(), piece);
                assert_eq!(found, Ok(1), "{codings}");
            }
        }
    }

    #[test]
    fn a_body_may_end_where_the_connection_does() {
        for head in ["", "Transfer-Encoding: gzip\r\n", "Connection: close\r\n"] {
            for (body, good) in [("hello", true), ("hell", false), ("hello!", false)] {
                let stream = format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}");
                if body.len() > 5 {
                    assert!(read(replies(Some(b"hello")), stream.as_bytes(), 7).is_err());
                    continue;
                }
                let (ended, last) = to_the_end(replies(Some(b"hello")), stream.as_bytes(), 7);
                assert_eq!((ended, last.is_ok()), (0, good), "{head:?} {body}");
            }
        }
        assert_eq!(to_the_end(replies(None), KNOWN, 7), (1, Ok(false)));
    }

    #[test]
    fn a_connection_ends_where_the_reply_says_so() {
        let last = |head: &str| {
            let mut it = replies(None);
            let reply = format!("{head}\r\nContent-Length: 2\r\n\r\nok");
            it.take(reply.as_bytes(), 1, &mut VecDeque::new()).unwrap();
            it.was_last()
        };
        assert!(!last("HTTP/1.1 200 OK"));
        assert!(last("HTTP/1.1 200 OK\r\nConnection: close"));
        assert!(last("HTTP/1.1 200 OK\r\nConnection: x, Close"));
        assert!(last("HTTP/1.0 200 OK"));
        assert!(!last("HTTP/1.0 200 OK\r\nConnection: keep-alive"));
    }

    #[test]
    fn a_head_may_have_very_many_fields() {
        let reply = |fields: usize| {
            let fields = "X-Field: value\r\n".repeat(fields);
            format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 5\r\n\r\nhello")
        };
        for fields in [63, 64, 65, 500, 4_000] {
            let stream = reply(fields);
            assert_eq!(read(replies(None), stream.as_bytes(), 1 << 20), Ok(1));
        }
        let why = read(replies(None), reply(5_000).as_bytes(), 1 << 20).unwrap_err();
        assert!(why.what.contains("fields"), "{why:?}");
        let trailers = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n",
            "X: y\r\n".repeat(100)
        );
        assert_eq!(read(replies(None), trailers.as_bytes(), 1 << 20), Ok(1));
    }
}
