//! Reading replies, and comparing each with what it has to be.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

use super::fault::{Fault, Wrong};

/// Header fields that a reply may have.
const FIELDS_MAX: usize = 64;
/// Largest body that is compared byte by byte; of larger ones so much of their beginning.
const COMPARED_MAX: usize = 4 << 20;

/// What a reply has to be.
pub(super) struct Expected {
    /// Replies have no bodies.
    pub(super) head: bool,
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    /// For each request there is, the first whole body that came, or what it has to be.
    pub(super) bodies: Arc<[OnceLock<Vec<u8>>]>,
}

/// Where in a reply a connection is.
pub(super) struct Replies {
    expected: Expected,
    at: At,
    /// The request that the present reply is to, by its number.
    to: usize,
    /// Bytes of the present body so far.
    seen: u64,
    /// The body, while there is none to compare it with.
    first: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    /// So many bytes of a body whose length is known.
    Known(u64),
    /// At a chunk's first line.
    Size,
    /// So many bytes of a chunk.
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
            seen: 0,
            first: Vec::new(),
        }
    }

    /// Takes at most `owed` replies: how many bytes they are, and how many replies ended. `asked` has the numbers of
    /// the requests that are owed a reply, the first at the front, and loses those that ended; empty where there is
    /// one request only.
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
            if self.at == At::Head && ended == owed {
                return match rest.is_empty() {
                    true => Ok((used, ended)),
                    false => {
                        let what = format!("{} bytes that nobody asked for", rest.len());
                        Err(Fault::ReplyBeforeRequest.because(what))
                    }
                };
            }
            let Some((n, end)) = self.step(rest)? else {
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

    /// Whether a part of a reply has come. A part of a head is left in the input.
    pub(super) fn is_in_one(&self) -> bool {
        self.at != At::Head
    }

    /// One part of a reply: its length, and whether the reply ends with it. `None` if more is needed.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Wrong> {
        let took = match self.at {
            At::Head => return self.head(bytes),
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
                Ok(httparse::Status::Partial) => return Ok(None),
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
            At::Trailers => {
                let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
                match httparse::parse_headers(bytes, &mut fields) {
                    Ok(httparse::Status::Complete((n, _))) => {
                        self.at = At::Head;
                        return Ok(Some((n, true)));
                    }
                    Ok(httparse::Status::Partial) => return Ok(None),
                    Err(e) => return Err(format!("trailers: {e}").into()),
                }
            }
        };
        Ok(Some((took, false)))
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Wrong> {
        let mut places = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut reply = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut reply, bytes, &mut places);
        let n = match parsed {
            Ok(httparse::Status::Complete(n)) => n,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(e) => return Err(format!("no reply ({e}): {:?}", shown(bytes)).into()),
        };
        let status = reply.code.unwrap_or_default();
        if status != self.expected.status {
            let wanted = self.expected.status;
            return Err(format!("status {status} instead of {wanted}").into());
        }
        self.seen = 0;
        self.first.clear();
        let (mut length, mut chunked) = (None, false);
        for field in &*reply.headers {
            if field.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(field.value).unwrap_or_default();
                let n = text.trim().parse::<u64>();
                length = Some(n.map_err(|_| format!("content-length {text:?}"))?);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = field.value.eq_ignore_ascii_case(b"chunked");
            }
        }
        if self.expected.head || matches!(status, 204 | 304) {
            return Ok(Some((n, true)));
        }
        self.at = match (chunked, length) {
            (true, _) => At::Size,
            (false, Some(0)) => At::Head,
            (false, Some(length)) => At::Known(length),
            (false, None) => return Err("a reply that does not say its length".to_owned().into()),
        };
        Ok(Some((n, self.at == At::Head)))
    }

    /// Compares a piece of a body.
    fn content(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let from = usize::try_from(self.seen).unwrap_or(usize::MAX);
        self.seen += bytes.len() as u64;
        if from >= COMPARED_MAX {
            return Ok(());
        }
        let bytes = &bytes[..bytes.len().min(COMPARED_MAX - from)];
        let Some(wanted) = self.expected.bodies[self.to].get() else {
            self.first.extend_from_slice(bytes);
            return Ok(());
        };
        // What came before there was anything to compare with is compared at the end.
        let wanted = wanted.get(from..from + bytes.len());
        if wanted == Some(bytes) {
            return Ok(());
        }
        let what = format!(
            "a body that is not the same from byte {from} on: {:?}",
            shown(bytes)
        );
        Err(match wanted {
            Some(wanted) => Fault::of_difference(bytes, wanted).because(what),
            None => what.into(),
        })
    }

    /// A reply has ended.
    fn whole(&mut self) -> Result<(), Wrong> {
        if self.expected.head {
            return Ok(());
        }
        let first = std::mem::take(&mut self.first);
        let body = self.expected.bodies[self.to].get_or_init(|| first.clone());
        if !body.starts_with(&first) {
            return Err("a body that is not the same as the first".to_owned().into());
        }
        let wanted = self.expected.length.unwrap_or(body.len() as u64);
        let cut = body.len() == COMPARED_MAX && self.expected.length.is_none();
        if self.seen == wanted || (cut && self.seen >= wanted) {
            return Ok(());
        }
        let fault = match self.seen < wanted {
            true => Fault::ShortReply,
            false => Fault::WrongReply,
        };
        Err(fault.because(format!("a body of {} bytes instead of {wanted}", self.seen)))
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
            cell.set(body.to_vec()).unwrap();
        }
        Replies::new(Expected {
            head: false,
            status: 200,
            length: None,
            bodies: [cell].into(),
        })
    }

    /// What comes of this stream in pieces of `piece` bytes: replies, or the first thing wrong.
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
        wrong(b"HTTP/1.1 200 OK\r\n\r\n", "does not say its length");
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
}
