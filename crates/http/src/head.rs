//! The head of a request: what httparse finds, and what it lets pass and this crate does not.
//!
//! Only whole lines are parsed. So the result does not depend on how the input was cut. The head of a
//! peer that sends a byte at a time is parsed once a line, and a head has few lines.

use std::mem::MaybeUninit;

use crate::fault::Fault;
use crate::framing::Framing;
use crate::grammar::is_token;
use crate::headers::Headers;
use crate::method::Method;
use crate::settings::{HEADERS_MAX, Settings};
use crate::target::{self, Target};

/// Where httparse puts the fields. Not initialised, because that would cost more than parsing.
pub(crate) type Places<'a> = [MaybeUninit<httparse::Header<'a>>; HEADERS_MAX];

pub(crate) const fn places<'a>() -> Places<'a> {
    [const { MaybeUninit::uninit() }; HEADERS_MAX]
}

/// A whole head that may be obeyed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method<'a>,
    pub(crate) target: Target<'a>,
    /// HTTP/1.0 or HTTP/1.1.
    pub(crate) minor: u8,
    pub(crate) headers: Headers<'a>,
    pub(crate) framing: Framing,
}

/// The kind of data at the front of the input.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    /// A head of so many bytes.
    Whole(Head<'a>, usize),
    /// A part of one.
    Part,
}

/// Whether [`parse`] may find something else than it did when `looked` of these bytes were there: another
/// line, or that a limit is passed.
pub(crate) fn has_news(bytes: &[u8], looked: usize, settings: &Settings) -> bool {
    let passes = |limit: usize| looked <= limit && bytes.len() > limit;
    looked == 0
        || passes(settings.request_line)
        || passes(settings.head_bytes)
        || bytes[looked..].contains(&b'\n')
}

/// Parses the head that `bytes` begin with.
pub(crate) fn parse<'a>(
    bytes: &'a [u8],
    places: &'a mut Places<'a>,
    settings: &Settings,
) -> Result<Parsed<'a>, Fault> {
    // Bytes that are no text, a TLS handshake for example, need not be waited for.
    if bytes.first().is_some_and(|&b| !is_token(b)) {
        return Err(Fault::bad("this is not the beginning of an HTTP request"));
    }
    let line = settings.request_line;
    if bytes.len() > line && !bytes[..line].contains(&b'\n') {
        return Err(Fault::new(414, "the request line is too long"));
    }
    let most = settings.head_bytes.min(bytes.len());
    let Some(end) = bytes[..most].iter().rposition(|&b| b == b'\n') else {
        return Ok(Parsed::Part);
    };
    let lines = &bytes[..=end];
    let mut request = httparse::Request::new(&mut []);
    let room = settings.headers.min(HEADERS_MAX);
    let status = request
        .parse_with_uninit_headers(lines, &mut places[..room])
        .map_err(|error| fault(error, lines))?;
    let httparse::Status::Complete(len) = status else {
        return match bytes.len() > settings.head_bytes {
            true => Err(Fault::new(431, "the head is too long")),
            false => Ok(Parsed::Part),
        };
    };
    check_ends(&bytes[..len])?;
    let (Some(name), Some(raw), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(Fault::bad("no request line"));
    };
    let headers = Headers(request.headers);
    let method = Method::from_name(name);
    let framing = Framing::of(minor, headers)?;
    if method == Method::Connect {
        return Err(Fault::new(501, "this server is no proxy"));
    }
    let has_body = matches!(method, Method::Post | Method::Put | Method::Patch);
    if minor == 0 && has_body && headers.get_bytes("content-length").is_none() {
        // Only the end of the connection could end this body, and a reply cannot wait
        // for that.
        return Err(Fault::new(411, "a body without a length"));
    }
    let target = Target::parse(method, raw)?;
    if let Some(authority) = target.authority
        && let Some(host) = headers.get("host")
    {
        let https = raw.as_bytes()[4] != b':';
        if !target::is_same(authority, host, https) {
            return Err(Fault::bad("the target and Host name different hosts"));
        }
    }
    let head = Head {
        method,
        target,
        minor,
        headers,
        framing,
    };
    Ok(Parsed::Whole(head, len))
}

/// Every line ends with both: httparse is content with a line feed, other servers are not, and where
/// two disagree on where a head ends, requests are smuggled.
pub(crate) fn check_ends(head: &[u8]) -> Result<(), Fault> {
    let pairs = head.iter().zip(&head[1..]);
    // Without an early end, so that it is done many bytes at a time.
    let bare = pairs.fold(head[0] == b'\n', |bare, (&before, &b)| {
        bare | ((b == b'\n') & (before != b'\r'))
    });
    match bare {
        true => Err(Fault::bad("a line feed without a carriage return")),
        false => Ok(()),
    }
}

/// Translates the error of httparse into our fault.
fn fault(error: httparse::Error, lines: &[u8]) -> Fault {
    match error {
        httparse::Error::HeaderName => Fault::bad("a malformed header name"),
        httparse::Error::HeaderValue => Fault::bad("a character that is not allowed in a header"),
        httparse::Error::NewLine => Fault::bad("a carriage return without a line feed"),
        httparse::Error::Token => Fault::bad("a malformed request line"),
        httparse::Error::TooManyHeaders => Fault::new(431, "too many header fields"),
        httparse::Error::Version if names_a_version(lines) => {
            Fault::new(505, "only HTTP/1.1 and HTTP/1.0 are supported")
        }
        httparse::Error::Version => Fault::bad("a request line without a version"),
        _ => Fault::bad("a malformed request"),
    }
}

/// Whether the request line ends with a version, though an unknown one.
fn names_a_version(lines: &[u8]) -> bool {
    let line = lines.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|&b| b == b' ');
    let (Some(_), Some(_), Some(word), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    let version = word.strip_prefix(b"HTTP/").unwrap_or_default();
    match version {
        [major, b'.', minor] => major.is_ascii_digit() && minor.is_ascii_digit(),
        [major] => major.is_ascii_digit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_drips_is_parsed_once_a_line() {
        let settings = Settings::default();
        let head =
            b"GET / HTTP/1.1\r\nHost: h\r\nX: 0123456789012345678901234567890123456789\r\n\r\n";
        let mut parsed = 0;
        for end in 1..=head.len() {
            parsed += usize::from(has_news(&head[..end], end - 1, &settings));
        }
        // The head is also parsed once for the first byte.
        assert_eq!(parsed, 1 + 4);
        let long = vec![b'a'; settings.head_bytes + 1];
        for limit in [settings.request_line, settings.head_bytes] {
            assert!(has_news(&long[..=limit], limit, &settings));
            assert!(!has_news(&long[..limit], limit - 1, &settings));
        }
    }
}
