//! Request methods.

use std::fmt;

/// The method of a request (RFC 9110, 9.3). Names are case-sensitive: `get` is another method than
/// `GET`.
///
/// ```
/// use tidewire_http::Method;
///
/// assert_eq!(Method::from_name("GET"), Method::Get);
/// assert_eq!(Method::from_name("get"), Method::Other("get"));
/// assert_eq!(Method::Delete.to_string(), "DELETE");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say all")]
pub enum Method<'a> {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// A method that the standard does not name.
    Other(&'a str),
}

impl<'a> Method<'a> {
    /// The method of that name.
    #[must_use]
    pub fn from_name(name: &'a str) -> Method<'a> {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "CONNECT" => Method::Connect,
            "OPTIONS" => Method::Options,
            "TRACE" => Method::Trace,
            "PATCH" => Method::Patch,
            other => Method::Other(other),
        }
    }

    /// Name of the method on the wire.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other(name) => name,
        }
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
