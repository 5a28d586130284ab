//! Finds where a request's body ends, and what else the head says about the connection.
//!
//! Any form that has ever made two servers see different requests in the same bytes is refused,
//! even where the standard allows it (RFC 9112, 6.3 and 11.2).

use crate::fault::Fault;
use crate::headers::{Headers, trimmed};
use crate::target::is_host;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// After so many bytes; without a body, after none.
    Known(u64),
    /// The body ends with a chunk of length 0.
    Chunked,
}

/// The head's statements about the message's length and the connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    pub(crate) body: Length,
    /// Whether the client wants to go on with this connection.
    pub(crate) keep: bool,
    /// Whether the client waits for a `100 Continue`.
    pub(crate) expects_continue: bool,
}

impl Framing {
    pub(crate) fn of(minor: u8, headers: Headers<'_>) -> Result<Framing, Fault> {
        let (mut length, mut coding, mut hosts) = (None, None, 0);
        let mut connection = Connection::default();
        let mut expects_continue = false;
        for field in headers.0 {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                4 if is("host") => {
                    hosts += 1;
                    if !is_host(trimmed(field.value)) {
                        return Err(Fault::bad("a malformed Host"));
                    }
                }
                6 if is("expect") => {
                    if !trimmed(field.value).eq_ignore_ascii_case(b"100-continue") {
                        return Err(Fault::new(417, "an unknown expectation"));
                    }
                    // A client of HTTP/1.0 would not understand the answer.
                    expects_continue = minor == 1;
                }
                10 if is("connection") => connection.add(field.value),
                14 if is("content-length") => {
                    let before = length.replace(number(field.value)?);
                    alone(before, "more than one Content-Length")?;
                }
                17 if is("transfer-encoding") => {
                    let before = coding.replace(field.value);
                    alone(before, "more than one Transfer-Encoding")?;
                }
                _ => {}
            }
        }
        match hosts {
            1 => {}
            0 if minor == 0 => {}
            0 => return Err(Fault::bad("no Host")),
            _ => return Err(Fault::bad("more than one Host")),
        }
        let body = match (coding, length) {
            (None, length) => Length::Known(length.unwrap_or(0)),
            (Some(_), Some(_)) => {
                return Err(Fault::bad("both Transfer-Encoding and Content-Length"));
            }
            (Some(_), None) if minor == 0 => {
                return Err(Fault::bad("Transfer-Encoding in HTTP/1.0"));
            }
            (Some(coding), None) => chunked(coding)?,
        };
        Ok(Framing {
            body,
            keep: connection.keeps(minor),
            expects_continue,
        })
    }
}

/// Checks that a field was not there before.
fn alone<T>(before: Option<T>, reason: &'static str) -> Result<(), Fault> {
    match before {
        None => Ok(()),
        Some(_) => Err(Fault::bad(reason)),
    }
}

/// The only coding known, alone: `gzip, chunked` is understood to be something else (501), what does
/// not end with it says nothing about where the body ends (400).
fn chunked(value: &[u8]) -> Result<Length, Fault> {
    let value = trimmed(value);
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Length::Chunked);
    }
    let mut codings = value.split(|&b| b == b',').map(trimmed);
    let last = codings.next_back().unwrap_or_default();
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let is_name =
        |coding: &[u8]| !coding.is_empty() && coding.iter().all(u8::is_ascii_alphanumeric);
    match is_chunked(last) && codings.all(|coding| is_name(coding) && !is_chunked(coding)) {
        true => Err(Fault::new(501, "an unknown transfer coding")),
        false => Err(Fault::bad(
            "a Transfer-Encoding that does not end with chunked",
        )),
    }
}

/// Digits, and nothing else: no sign, no list, no blank within.
fn number(value: &[u8]) -> Result<u64, Fault> {
    let value = trimmed(value);
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Fault::bad("a Content-Length that is no number"));
    }
    let append = |n: u64, b: &u8| n.checked_mul(10)?.checked_add(u64::from(b - b'0'));
    let number = value.iter().try_fold(0, append);
    number.ok_or(Fault::bad("a Content-Length beyond all bounds"))
}

/// The options of all Connection fields of a head together: the fields form one list, in any order.
#[derive(Clone, Copy, Default)]
struct Connection {
    close: bool,
    keep_alive: bool,
}

impl Connection {
    fn add(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(trimmed) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// A close outweighs all else (RFC 9112, 9.3).
    fn keeps(self, minor: u8) -> bool {
        !self.close && (minor == 1 || self.keep_alive)
    }
}
