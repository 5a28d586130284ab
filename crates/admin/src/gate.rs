//! Which clients may ask the admin listener for what.
//!
//! On loopback the danger is a browser on the operator's machine: any web page can have it send requests to this
//! listener. So the `Host` of a request must be an address, `localhost` or a configured name: a page that resolves
//! its own name to this machine ("DNS rebinding") sends another `Host`. An `Origin` must be this listener's own.
//! In addition a token may be required.

use std::net::Ipv6Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use tidewire_http::{Method, Request};

/// The secret that clients must show. Compared in constant time, never displayed.
///
/// ```
/// let token = tidewire_admin::Token::new("s3cret");
/// assert_eq!(format!("{token:?}"), "Token(...)");
/// ```
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// A token with this text.
    #[must_use]
    pub fn new(text: &str) -> Token {
        Token(text.as_bytes().into())
    }

    fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(...)")
    }
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    pub(crate) status: u16,
    pub(crate) why: &'static str,
}

/// Decides.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) token: Option<Token>,
    /// Names, beside addresses and `localhost`, under which it is reached; in lower case.
    pub(crate) names: Vec<String>,
}

const HOST: &str = "the Host is neither an address nor localhost nor a name given by --admin-host";
const ORIGIN: &str = "a web page of another site may not use this listener";
const TOKEN: &str =
    "show the admin token: Authorization: Bearer TOKEN (or as the password of a browser's prompt)";
const NO_TOKEN: &str = "changes need a token: start the server with --admin-token-file FILE";
const BEARER: &str = "changes need Authorization: Bearer TOKEN";

/// Paths that need no token: they only say whether the server is there.
const OPEN: [&str; 2] = ["/health", "/ready"];

impl Gate {
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Turned> {
        let forbidden = |why| Err(Turned { status: 403, why });
        let host = request.host();
        if !(self.knows(host) || host.is_empty() && !request.is_http11()) {
            return forbidden(HOST);
        }
        if let Some(origin) = request.header("origin")
            && !is_own(origin, host)
        {
            return forbidden(ORIGIN);
        }
        let reads = matches!(request.method(), Method::Get | Method::Head);
        let shown = request.header("authorization").and_then(shown);
        match (&self.token, shown) {
            (None, _) if reads => Ok(()),
            (None, _) => forbidden(NO_TOKEN),
            (Some(_), _) if reads && OPEN.contains(&request.path()) => Ok(()),
            // A browser adds a password by itself to requests that another site caused; only a
            // program sends a bearer token.
            (Some(token), Some((text, bearer))) if token.is(&text) => match reads || bearer {
                true => Ok(()),
                false => forbidden(BEARER),
            },
            (Some(_), _) => Err(Turned {
                status: 401,
                why: TOKEN,
            }),
        }
    }

    fn knows(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        let is_address = name.parse::<std::net::Ipv4Addr>().is_ok()
            || name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'))
                .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
        is_address
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.names.contains(&name)
    }
}

fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    };
    port.bytes().all(|b| b.is_ascii_digit()).then_some(name)
}

/// Whether this is the origin of pages of this listener, as the client calls it.
fn is_own(origin: &str, host: &str) -> bool {
    let rest = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

/// The token in an `Authorization` header, and whether it is a bearer's.
fn shown(header: &str) -> Option<(Vec<u8>, bool)> {
    let (scheme, rest) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((rest.trim().as_bytes().to_vec(), true));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = STANDARD.decode(rest.trim()).ok()?;
    let colon = pair.iter().position(|&b| b == b':')?;
    Some((pair[colon + 1..].to_vec(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_localhost_or_names_that_were_given() {
        let names = vec!["metrics.example".to_owned()];
        let gate = Gate { token: None, names };
        for host in [
            "127.0.0.1:7480",
            "127.0.0.1",
            "10.1.2.3:80",
            "[::1]:7480",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:7480",
            "a.localhost:1",
            "metrics.example",
            "Metrics.Example:7480",
        ] {
            assert!(gate.knows(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7480",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "metrics.example.evil",
            "127.0.0.1:7480@evil.example",
            "[::1",
            "::1",
            "evil.example:80:127.0.0.1",
            "[::1].evil",
        ] {
            assert!(!gate.knows(host), "{host}");
        }
    }

    #[test]
    fn an_origin_is_its_own_or_foreign() {
        for (origin, host, own) in [
            ("http://127.0.0.1:7480", "127.0.0.1:7480", true),
            ("https://localhost:7480", "localhost:7480", true),
            ("http://127.0.0.1:8080", "127.0.0.1:7480", false),
            ("null", "127.0.0.1:7480", false),
            ("http://evil.example", "127.0.0.1:7480", false),
            ("", "", false),
        ] {
            assert_eq!(is_own(origin, host), own, "{origin} {host}");
        }
    }

    #[test]
    fn tokens_come_as_bearers_or_as_passwords() {
        assert_eq!(shown("Bearer abc"), Some((b"abc".to_vec(), true)));
        let basic = format!("basic {}", STANDARD.encode("me:a:b"));
        assert_eq!(shown(&basic), Some((b"a:b".to_vec(), false)));
        for wrong in ["", "abc", "Bearer", "Digest abc", "Basic ???", "Basic YWJj"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
        let token = Token::new("abc");
        assert!(token.is(b"abc") && !token.is(b"ab") && !token.is(b"abd") && !token.is(b""));
    }
}
