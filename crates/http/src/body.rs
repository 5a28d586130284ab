//! Taking a request's body out of the input.

use tidewire::Input;

use crate::fault::Fault;
use crate::framing::Length;
use crate::head::check_ends;
use crate::headers::Headers;
use crate::settings::HEADERS_MAX;

/// Bytes of chunk extensions that a body may have in all. Extensions have no meaning here, and have
/// been used to make a body cost more than its bytes.
const EXTENSIONS_MAX: usize = 4 << 10;
/// Hexadecimal digits of a chunk's length.
const DIGITS_MAX: u8 = 16;
/// Fields that must not come in trailers, because the server has decided by them before the body.
const NOT_BEHIND: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// The place of a request in its body.
#[derive(Debug)]
pub(crate) struct Body {
    at: At,
    /// Bytes of content that may still come.
    left: u64,
    /// Bytes of chunk extensions so far.
    extensions: usize,
    trailers_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Bytes that are left of a body whose length is known.
    Known(u64),
    /// In the length of a chunk, behind so many digits.
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
        at: Extension,
    },
    /// Behind the carriage return of a chunk's first line.
    SizeEnd {
        size: u64,
    },
    /// Bytes that are left of a chunk.
    Chunk(u64),
    /// The parser is behind a chunk's bytes.
    ChunkEnd,
    /// The parser is behind the carriage return that follows a chunk's bytes.
    ChunkEnded,
    Trailers,
    End,
}

/// Where in the extensions of a chunk: `*( BWS ";" BWS name [ BWS "=" BWS value ] )` (RFC 9112, 7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// The parser is before a name, which must come.
    Start,
    Name,
    /// White space behind a name.
    Named,
    /// Behind the equals sign, before a value, which must come.
    Equals,
    Token,
    Quoted,
    /// Behind a backslash in a quoted value.
    Escaped,
    /// The parser is behind a complete value.
    Valued,
}

impl Extension {
    /// Takes the next byte of a chunk extension; `None` if the byte is not allowed there.
    fn step(self, b: u8) -> Option<Extension> {
        let is_space = matches!(b, b' ' | b'\t');
        Some(match (self, b) {
            (Extension::Start | Extension::Equals, _) if is_space => self,
            (Extension::Start | Extension::Name, _) if is_token(b) => Extension::Name,
            (Extension::Name | Extension::Named, _) if is_space => Extension::Named,
            (Extension::Name | Extension::Named, b'=') => Extension::Equals,
            (Extension::Equals, b'"') => Extension::Quoted,
            (Extension::Equals | Extension::Token, _) if is_token(b) => Extension::Token,
            (Extension::Quoted, b'\\') => Extension::Escaped,
            (Extension::Quoted, b'"') => Extension::Valued,
            (Extension::Quoted | Extension::Escaped, b'\t' | b' '..=0x7e | 0x80..) => {
                Extension::Quoted
            }
            (Extension::Token | Extension::Valued, _) if is_space => Extension::Valued,
            (Extension::Name | Extension::Named | Extension::Token | Extension::Valued, b';') => {
                Extension::Start
            }
            _ => return None,
        })
    }

    /// Whether the line may end here.
    fn may_end(self) -> bool {
        match self {
            Extension::Name | Extension::Named | Extension::Token | Extension::Valued => true,
            Extension::Start | Extension::Equals | Extension::Quoted | Extension::Escaped => false,
        }
    }
}

/// Whether a byte may stand in a token (RFC 9110, 5.6.2).
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// The kind of data at the front of the input.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// Number of bytes of content, not yet consumed: see [`Body::took`].
    Content(usize),
    /// The input has no complete piece yet.
    Wait,
    /// The end of the body, with its trailers as they were received.
    End(&'a [u8]),
}

impl Body {
    /// A body of at most `max` bytes.
    pub(crate) fn new(length: Length, max: u64, trailers_max: usize) -> Result<Body, Fault> {
        let at = match length {
            Length::Known(n) if n > max => return Err(TOO_LARGE),
            Length::Known(0) => At::End,
            Length::Known(n) => At::Known(n),
            Length::Chunked => At::Size { size: 0, digits: 0 },
        };
        Ok(Body {
            at,
            left: max,
            extensions: 0,
            trailers_max,
        })
    }

    /// Whether the whole body was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.at == At::End
    }

    /// Parses the next piece.
    pub(crate) fn next<'a>(&mut self, input: &mut Input<'a>) -> Result<Piece<'a>, Fault> {
        loop {
            let bytes = input.bytes();
            match self.at {
                At::End => return Ok(Piece::End(b"")),
                At::Trailers => return self.trailers(input),
                _ if bytes.is_empty() => return Ok(Piece::Wait),
                At::Known(n) | At::Chunk(n) => {
                    let there = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    return Ok(Piece::Content(n.min(there) as usize));
                }
                _ => {
                    self.step(bytes[0])?;
                    input.consume(1);
                }
            }
        }
    }

    /// Notes that `n` bytes of content were consumed.
    pub(crate) fn took(&mut self, n: usize) {
        let n = n as u64;
        match &mut self.at {
            At::Known(rest) | At::Chunk(rest) => *rest -= n,
            _ => debug_assert_eq!(n, 0),
        }
        match self.at {
            At::Known(0) => self.at = At::End,
            At::Chunk(0) => self.at = At::ChunkEnd,
            _ => {}
        }
    }

    /// Takes one byte of the lines around the chunks.
    fn step(&mut self, b: u8) -> Result<(), Fault> {
        self.at = match (self.at, b) {
            (At::Size { size, digits }, _) if b.is_ascii_hexdigit() => {
                if digits == DIGITS_MAX {
                    return Err(Fault::bad("a chunk beyond all bounds"));
                }
                let digit = (b as char).to_digit(16).unwrap_or_default();
                At::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (At::Size { size, digits: 1.. }, b'\r') => At::SizeEnd { size },
            (At::Size { size, digits: 1.. }, b';') => At::Extension {
                size,
                at: Extension::Start,
            },
            (At::Size { .. }, _) => return Err(Fault::bad("the length of a chunk is no number")),
            (At::Extension { size, at }, b'\r') if at.may_end() => At::SizeEnd { size },
            (At::Extension { size, at }, _) => {
                self.extensions += 1;
                if self.extensions > EXTENSIONS_MAX {
                    return Err(Fault::bad("too much in chunk extensions"));
                }
                let at = at
                    .step(b)
                    .ok_or(Fault::bad("a malformed chunk extension"))?;
                At::Extension { size, at }
            }
            (At::SizeEnd { size: 0 }, b'\n') => At::Trailers,
            (At::SizeEnd { size }, b'\n') => {
                self.left = self.left.checked_sub(size).ok_or(TOO_LARGE)?;
                At::Chunk(size)
            }
            (At::ChunkEnd, b'\r') => At::ChunkEnded,
            (At::ChunkEnded, b'\n') => At::Size { size: 0, digits: 0 },
            _ => return Err(Fault::bad("a chunk that does not end where it should")),
        };
        Ok(())
    }

    /// Reads the trailers behind the last chunk: as in a head, only whole lines are parsed.
    fn trailers<'a>(&mut self, input: &mut Input<'a>) -> Result<Piece<'a>, Fault> {
        let bytes = input.bytes();
        let most = self.trailers_max.min(bytes.len());
        let lines = match bytes[..most].iter().rposition(|&b| b == b'\n') {
            Some(end) => &bytes[..=end],
            None => b"",
        };
        let len = with_fields(lines, |_| ())?.map(|((), len)| len);
        match len {
            Some(len) => {
                self.at = At::End;
                input.consume(len);
                Ok(Piece::End(&bytes[..len]))
            }
            None if bytes.len() > self.trailers_max => {
                Err(Fault::new(431, "trailers that are too long"))
            }
            None => Ok(Piece::Wait),
        }
    }
}

const TOO_LARGE: Fault = Fault::new(413, "the body is too large");

/// Calls `f` with the trailers that `lines` are, if they are whole, and says how long they are.
pub(crate) fn with_fields<R>(
    lines: &[u8],
    f: impl FnOnce(Headers<'_>) -> R,
) -> Result<Option<(R, usize)>, Fault> {
    let mut places = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let parsed = httparse::parse_headers(lines, &mut places);
    let parsed = parsed.map_err(|error| match error {
        httparse::Error::TooManyHeaders => Fault::new(431, "too many trailers"),
        _ => Fault::bad("malformed trailers"),
    })?;
    let httparse::Status::Complete((len, fields)) = parsed else {
        return Ok(None);
    };
    check_ends(&lines[..len])?;
    let is_early = |name: &str| NOT_BEHIND.iter().any(|n| n.eq_ignore_ascii_case(name));
    if fields.iter().any(|field| is_early(field.name)) {
        return Err(Fault::bad("a trailer that is only allowed in the head"));
    }
    Ok(Some((f(Headers(fields)), len)))
}
