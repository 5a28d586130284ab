//! A request as its handler sees it.

use std::borrow::Cow;
use std::fmt;

use crate::head::Head;
use crate::headers::Headers;
use crate::method::Method;
use crate::route;

/// A request whose head has come, borrowed from the connection's input: nothing was copied for it,
/// unless its body came in pieces.
///
/// ```
/// use tidewire_http::{Router, Http, testing};
///
/// let router = Router::new().post("/users/{name}", |request, response| {
///     let name = request.param("name").unwrap_or_default();
///     let greeting = request.query_value("greeting").unwrap_or_default();
///     let said = request.text().unwrap_or("nothing one could read");
///     response.text(&format!("{greeting} {name}, you said {said}"))
/// });
/// let asked = b"POST /users/eve?greeting=Good+day HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
/// assert_eq!(testing::exchange(Http::new(router), asked).text(), "Good day eve, you said hi");
/// ```
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) body: &'a [u8],
    pub(crate) trailers: Headers<'a>,
    /// The pattern of the router that the request matched.
    pub(crate) pattern: Option<&'a str>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(head: Head<'a>, body: &'a [u8]) -> Request<'a> {
        Request {
            head,
            body,
            trailers: Headers::NONE,
            pattern: None,
        }
    }

    /// The request's method.
    #[must_use]
    pub fn method(&self) -> Method<'a> {
        self.head.method
    }

    /// The path as it was sent, not decoded: begins with `/`, or is `*` for `OPTIONS *`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.head.target.path
    }

    /// The query behind the question mark, not decoded.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        self.head.target.query
    }

    /// The first value of that name in the query, decoded: `+` is a blank, `%41` is `A`. `None` if
    /// there is none, or one that cannot be decoded to text.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<Cow<'a, str>> {
        let pairs = self.query()?.split('&');
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = pairs.find(|(key, _)| decoded(key).as_deref() == Some(name))?;
        decoded(value)
    }

    /// The part of the path that the router's pattern calls `{name}`, not decoded.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'a str> {
        route::param(self.pattern?, self.path(), name)
    }

    /// The value of the first header field of that name, in whatever case, if it is valid UTF-8.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.head.headers.get(name)
    }

    /// All header fields.
    #[must_use]
    pub fn headers(&self) -> Headers<'a> {
        self.head.headers
    }

    /// The requested host: the authority of the target, else the Host field; empty if there is
    /// neither.
    #[must_use]
    pub fn host(&self) -> &'a str {
        let authority = self.head.target.authority;
        authority
            .or_else(|| self.header("host"))
            .unwrap_or_default()
    }

    /// Whether the request is HTTP/1.1 rather than HTTP/1.0.
    #[must_use]
    pub fn is_http11(&self) -> bool {
        self.head.minor == 1
    }

    /// The body. Empty where the handler asked to have it streamed.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The body as text, if it is valid UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.body).ok()
    }

    /// The length of the body, if it was said before it: a chunked one says nothing.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        match self.head.framing.body {
            crate::framing::Length::Known(n) => Some(n),
            crate::framing::Length::Chunked => None,
        }
    }

    /// The trailers of a chunked body.
    #[must_use]
    pub fn trailers(&self) -> Headers<'a> {
        self.trailers
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = self.query().map(|query| format!("?{query}"));
        let (method, path) = (self.method(), self.path());
        let query = query.unwrap_or_default();
        write!(f, "{method} {path}{query} ({} bytes)", self.body.len())
    }
}

/// Decodes `+` and `%xx`; `None` if the result is not UTF-8.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| matches!(b, b'+' | b'%')) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [b, after @ ..] = rest {
        rest = after;
        match b {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, after) = after.split_at_checked(2)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            b => bytes.push(*b),
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_or_it_is_none() {
        assert_eq!(decoded("a+b%2Bc").as_deref(), Some("a b+c"));
        assert_eq!(decoded("%c3%a9").as_deref(), Some("é"));
        for wrong in ["%", "%4", "%+1", "%zz", "%ff"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
