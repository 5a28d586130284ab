//! What a dial is to reach: an endpoint, or a host by its name.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::vocabulary::endpoint::{Endpoint, EndpointError};

/// The longest name of a host and of one of its labels, in bytes (RFC 1035).
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// What a [`Dial`](crate::Dial) is to reach. Made from whatever an [`Endpoint`] is made from, or from `name:port`.
///
/// ```
/// use tidewire::{Endpoint, Target};
///
/// let target: Target = "Example.org:443".parse()?;
/// assert_eq!(target.to_string(), "example.org:443");
/// assert_eq!(Target::host("example.org", 443)?, target);
///
/// // Addresses are never names.
/// let address: Target = "[::1]:80".parse()?;
/// assert_eq!(address, Target::Endpoint(Endpoint::from((std::net::Ipv6Addr::LOCALHOST, 80))));
/// assert!("127.1:80".parse::<Target>().is_err());
/// # Ok::<(), tidewire::EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// An address, or a Unix socket.
    Endpoint(Endpoint),
    /// A host by its name: at least one address of it is to be found first.
    Host {
        /// In lower case; letters, digits, `-` and `_` between dots.
        name: Arc<str>,
        /// The TCP port.
        port: u16,
    },
}

impl Target {
    /// This port of a host, which may be given by an IP address too.
    ///
    /// # Errors
    /// The text is no name of a host: see [`EndpointError`]. Names with letters beyond ASCII are to be given in
    /// their encoded form (`xn--...`).
    pub fn host(name: &str, port: u16) -> Result<Target, EndpointError> {
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(name).parse::<IpAddr>() {
            return Ok(Target::Endpoint((ip, port).into()));
        }
        if let Some(why) = not_a_name(name) {
            let what = format!("{name:?} is no name of a host: {why}; example: example.org");
            return Err(EndpointError::new(what));
        }
        let name = name.to_ascii_lowercase().into();
        Ok(Target::Host { name, port })
    }
}

/// Why this is not the name of a host.
fn not_a_name(name: &str) -> Option<&'static str> {
    let whole = name.strip_suffix('.').unwrap_or(name);
    if whole.is_empty() {
        return Some("it is empty");
    }
    if whole.len() > NAME_MAX {
        return Some("it is longer than 253 bytes");
    }
    let labels = || whole.split('.');
    if labels().any(|label| label.is_empty() || label.len() > LABEL_MAX) {
        return Some("what stands between dots has 1 to 63 bytes");
    }
    let is_fit = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !whole.bytes().all(|b| is_fit(b) || b == b'.') {
        return Some("only letters, digits, `-` and `_` are allowed in it");
    }
    // The system's resolver would take it for an address in an old form.
    let last = labels().next_back().unwrap_or(whole);
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(is_hex)
        || last.strip_prefix("0X").is_some_and(is_hex);
    is_number.then_some("it ends with a number, and is no address")
}

/// Whether this name is the machine itself (RFC 6761): no resolver is asked.
pub(crate) fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Endpoint(endpoint) => endpoint.fmt(f),
            Target::Host { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

impl FromStr for Target {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Target, EndpointError> {
        let no_endpoint = match text.parse() {
            Ok(endpoint) => return Ok(Target::Endpoint(endpoint)),
            Err(e) => e,
        };
        let split = text.rsplit_once(':').and_then(|(name, port)| {
            let is_plain = port.bytes().all(|b| b.is_ascii_digit());
            let port = port.parse().ok().filter(|_| is_plain)?;
            Some((name, port))
        });
        match split {
            Some((name, port)) if !text.starts_with("unix:") && !name.contains(['[', ':', '/']) => {
                Target::host(name, port)
            }
            _ => Err(no_endpoint.of_target()),
        }
    }
}

macro_rules! from_endpoints {
    ($($of:ty),* $(,)?) => {
        $(impl From<$of> for Target {
            fn from(endpoint: $of) -> Target {
                Target::Endpoint(endpoint.into())
            }
        })*
    };
}

from_endpoints!(
    Endpoint,
    &Endpoint,
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    &Path,
    PathBuf,
    &PathBuf
);

/// An IP address, in any of its forms, and a port.
impl<I: Into<IpAddr>> From<(I, u16)> for Target {
    fn from(addr: (I, u16)) -> Target {
        Target::Endpoint(addr.into())
    }
}

impl From<&Target> for Target {
    fn from(target: &Target) -> Target {
        target.clone()
    }
}

impl TryFrom<&str> for Target {
    type Error = EndpointError;

    fn try_from(text: &str) -> Result<Target, EndpointError> {
        text.parse()
    }
}

impl TryFrom<String> for Target {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Target, EndpointError> {
        text.parse()
    }
}

impl TryFrom<&String> for Target {
    type Error = EndpointError;

    fn try_from(text: &String) -> Result<Target, EndpointError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_addresses() {
        let name = |text: &str| match text.parse() {
            Ok(Target::Host { name, port }) => Some((name.to_string(), port)),
            _ => None,
        };
        for (text, is) in [
            ("example.org:443", "example.org"),
            ("LOCALHOST:443", "localhost"),
            ("a_b-c.x1.:443", "a_b-c.x1."),
            ("xn--bcher-kva.example:443", "xn--bcher-kva.example"),
        ] {
            assert_eq!(name(text), Some((is.into(), 443)), "{text}");
        }
        for text in ["127.0.0.1:80", "[::1]:80", "unix:/run/a:80", "unix:@a:80"] {
            assert!(matches!(text.parse(), Ok(Target::Endpoint(_))), "{text}");
        }
        for text in [
            "127.1:80",
            "2130706433:80",
            "0x7f.0X1:80",
            "1.2.3.4.5:80",
            "example.org",
            "example.org:",
            "example.org:+80",
            "example.org:65536",
            "::1:80",
            "[example.org]:80",
            "a..b:80",
            ".a:80",
            ":80",
            "b\u{fc}cher.example:80",
            "a b:80",
            "a/b:80",
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("example.org"), "{text}: {error}");
        }
        let long = |n: usize| format!("{}a:1", "a.".repeat(n)).parse::<Target>().is_ok();
        assert!(long(126) && !long(127));
        assert!(Target::host(&"a".repeat(64), 1).is_err());
        assert!(matches!(Target::host("[::1]", 1), Ok(Target::Endpoint(_))));
    }

    #[test]
    fn what_is_below_localhost_is_this_machine() {
        for (name, is) in [
            ("localhost", true),
            ("localhost.", true),
            ("a.localhost", true),
            ("mylocalhost", false),
            ("localhost.example", false),
        ] {
            assert_eq!(is_localhost(name), is, "{name}");
        }
    }
}
