//! The target of a request, and the host it is for.

use crate::fault::Fault;
use crate::grammar::alphanumeric_and;
use crate::method::Method;

/// A request target, taken apart (RFC 9112, 3.2). The parts are not percent-decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// `*` for the asterisk form, else begins with `/`.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// Authority of the absolute form, without the scheme's default port.
    pub(crate) authority: Option<&'a str>,
}

impl<'a> Target<'a> {
    pub(crate) fn parse(method: Method<'_>, raw: &'a str) -> Result<Target<'a>, Fault> {
        if raw == "*" {
            return match method {
                Method::Options => Ok(Target {
                    path: "*",
                    query: None,
                    authority: None,
                }),
                _ => Err(Fault::bad("the target * is for OPTIONS alone")),
            };
        }
        let (authority, rest) = match raw.starts_with('/') {
            true => (None, raw),
            false => absolute(raw)?,
        };
        const BAD: Fault = Fault::bad("a character that is not allowed in a target");
        let is_path = |b: u8| PATH[usize::from(b)];
        let (path, query) = match rest.bytes().position(|b| !is_path(b)) {
            None => (rest, None),
            Some(end) => match rest.split_at(end) {
                (path, query) if query.starts_with('?') => (path, Some(&query[1..])),
                _ => return Err(BAD),
            },
        };
        // Browsers send backslashes there.
        let is_query = |b: u8| is_path(b) || matches!(b, b'?' | b'\\');
        if query.is_some_and(|query| !query.bytes().all(is_query)) {
            return Err(BAD);
        }
        Ok(Target {
            path: if path.is_empty() { "/" } else { path },
            query,
            authority,
        })
    }
}

/// Bytes that a path may contain: visible characters, except the ones that end a path and the ones that
/// other servers read as something else.
static PATH: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0x21;
    while b <= 0x7e {
        table[b] = !matches!(b as u8, b'?' | b'#' | b'"' | b'<' | b'>' | b'\\');
        b += 1;
    }
    table
};

/// The authority of an absolute form, and what follows it.
fn absolute(raw: &str) -> Result<(Option<&str>, &str), Fault> {
    const BAD: Fault = Fault::bad("a target that is neither a path nor an http address");
    let (scheme, rest) = raw.split_once("://").ok_or(BAD)?;
    let port = match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => ":80",
        _ if scheme.eq_ignore_ascii_case("https") => ":443",
        _ => return Err(BAD),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    // An empty one would be no address, one with a user in it is a way to deceive.
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(BAD);
    }
    Ok((Some(without_port(authority, port)), rest))
}

fn without_port<'a>(authority: &'a str, default: &str) -> &'a str {
    authority.strip_suffix(default).unwrap_or(authority)
}

/// Whether the host of an absolute form and that of the field say the same.
pub(crate) fn is_same(authority: &str, host: &str, https: bool) -> bool {
    let host = without_port(host, if https { ":443" } else { ":80" });
    authority.eq_ignore_ascii_case(host)
}

/// Whether this may stand in a Host field: a name or an address, and perhaps a port. Empty is
/// allowed, for targets that have no authority.
pub(crate) fn is_host(host: &[u8]) -> bool {
    let port = match host.first() {
        Some(b'[') => {
            let Some(end) = host.iter().position(|&b| b == b']') else {
                return false;
            };
            let (name, rest) = host.split_at(end + 1);
            let inner = &name[1..end];
            let legal = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
            if inner.is_empty() || !inner.iter().all(legal) {
                return false;
            }
            match rest {
                [] => return true,
                [b':', port @ ..] => port,
                _ => return false,
            }
        }
        _ => match host.iter().position(|&b| !REG_NAME[usize::from(b)]) {
            Some(at) if host[at] == b':' => &host[at + 1..],
            Some(_) => return false,
            None => return true,
        },
    };
    port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
}

/// The characters of RFC 3986's reg-name, less the comma, which is how two hosts become one.
static REG_NAME: [bool; 256] = alphanumeric_and(b"-._~%!$&'()*+;=");

#[cfg(test)]
mod tests {
    use super::*;

    fn target(raw: &str) -> Result<Target<'_>, Fault> {
        Target::parse(Method::Get, raw)
    }

    #[test]
    fn each_form_is_taken_apart() {
        let plain = target("/a/b?c=d?e").unwrap();
        assert_eq!((plain.path, plain.query), ("/a/b", Some("c=d?e")));
        let absolute = target("HTTP://h.example:80?q").unwrap();
        assert_eq!(absolute.path, "/");
        assert_eq!(absolute.authority, Some("h.example"));
        assert_eq!(absolute.query, Some("q"));
        assert_eq!(Target::parse(Method::Options, "*").unwrap().path, "*");
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for wrong in [
            "*",
            "a",
            "",
            "//",
            "ftp://h/",
            "http://",
            "http:///p",
            "http://u@h/",
            "h:80",
            "/a#b",
            "/a\\b",
            "/\"",
            "/<",
            "/a?>",
            "/\u{e9}",
            "/a\u{7f}",
        ] {
            // `//` is a path with an empty first segment.
            assert_eq!(target(wrong).is_err(), wrong != "//", "{wrong:?}");
        }
        assert!(target("/a?b\\c|{}^").is_ok(), "browsers send these");
    }

    #[test]
    fn hosts() {
        for right in [
            "",
            "h",
            "h:80",
            "h:",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "a_b.c",
        ] {
            assert!(is_host(right.as_bytes()), "{right:?}");
        }
        for wrong in [
            "a b", "a,b", "a/b", "u@h", "h:8a", "h:123456", "[::1", "[]", "[g]", "[::1]x", "a:b:c",
            "h#", "h?", "h\\", "[::1]:x",
        ] {
            assert!(!is_host(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(is_same("H.example", "h.EXAMPLE:80", false));
        assert!(!is_same("h.example", "g.example", false));
    }
}
