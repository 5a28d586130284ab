//! A URL of HTTP: where a server is, and what it is asked for.

use std::str::FromStr;

/// A URL with the scheme http or https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The URL is of the scheme https.
    pub tls: bool,
    /// The host without its port, without brackets.
    pub host: String,
    /// `HOST:PORT`, with the port that the scheme has if none is given.
    pub server: String,
    /// The authority as written in the URL, for the field Host.
    pub authority: String,
    /// Path and query, at least `/`.
    pub target: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let wrong = |why: &str| format!("{text:?} is no URL such as http://localhost:8080/: {why}");
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("it has no scheme"))?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("the scheme is http or https")),
        };
        // The part behind # is never sent.
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong(
                "names and passwords are not taken (see --header Authorization)",
            ));
        }
        let bracketed = authority.starts_with('[');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !bracketed || host.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(if tls { 443 } else { 80 })),
        };
        let port: u16 = port.ok_or_else(|| wrong("its port is no number"))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.is_empty() {
            return Err(wrong("it has no host"));
        }
        Ok(Url {
            tls,
            host: bare.to_owned(),
            server: format!("{host}:{port}"),
            authority: authority.to_owned(),
            target: match target.starts_with('/') {
                true => target.to_owned(),
                false => format!("/{target}"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |text: &str| {
            let url: Url = text.parse().unwrap();
            (url.tls, url.server, url.authority, url.target)
        };
        let of = |tls, server: &str, authority: &str, target: &str| {
            (tls, server.into(), authority.into(), target.into())
        };
        assert_eq!(
            parts("http://localhost:8080/a?b=1#c"),
            of(false, "localhost:8080", "localhost:8080", "/a?b=1")
        );
        assert_eq!(parts("HTTPS://host"), of(true, "host:443", "host", "/"));
        assert_eq!(parts("http://h?q"), of(false, "h:80", "h", "/?q"));
        assert_eq!(
            parts("http://[::1]:81/x"),
            of(false, "[::1]:81", "[::1]:81", "/x")
        );
        assert_eq!(parts("http://[::1]"), of(false, "[::1]:80", "[::1]", "/"));
        for bad in [
            "localhost:80",
            "ftp://h/",
            "http://",
            "http://:80/",
            "http://h:x/",
            "http://u:p@h/",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
    }
}
