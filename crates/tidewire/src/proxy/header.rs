//! The header of the PROXY protocol, versions 1 and 2
//! (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>, "the specification" below).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use crate::vocabulary::endpoint::Endpoint;

/// The twelve bytes that begin a header of version 2 (section 2.2).
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, its end included (section 2.1).
const LINE_MAX: usize = 107;
/// Most bytes behind the fixed part of version 2: addresses (216 at most) and additions, which are
/// skipped. The field could say 65,535.
const REST_MAX: usize = 4096;
/// Bytes of one path of a Unix socket in version 2.
const PATH: usize = 108;

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The proxy speaks for itself, such as when it looks whether the server is there.
    Local,
    /// The proxy speaks for a client of a kind that is not known here.
    Unknown,
    Proxied {
        source: Endpoint,
        destination: Endpoint,
    },
}

/// The result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A header of this length.
    Header(Said, usize),
    /// The header needs at least this many bytes in all.
    Partial(usize),
    Wrong(&'static str),
}

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let n = bytes.len().min(SIGNATURE.len());
    if bytes[..n] == SIGNATURE[..n] && n > 0 {
        return binary(bytes);
    }
    let n = bytes.len().min(6);
    if bytes[..n] == b"PROXY "[..n] {
        return line(bytes);
    }
    Parsed::Wrong("no PROXY protocol header, which this listener requires")
}

fn line(bytes: &[u8]) -> Parsed {
    let head = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = head.windows(2).position(|pair| pair == b"\r\n") else {
        return if head.len() == LINE_MAX {
            Parsed::Wrong("a PROXY protocol line of more than 107 bytes")
        } else {
            Parsed::Partial(bytes.len() + 1)
        };
    };
    const WRONG: Parsed = Parsed::Wrong("a PROXY protocol line that is not understood");
    let Ok(text) = std::str::from_utf8(&head[..end]) else {
        return WRONG;
    };
    let words: Vec<&str> = text.split(' ').collect();
    let said = match words[..] {
        // "the receiver must ignore anything presented before the CRLF" (section 2.1)
        [_, "UNKNOWN", ..] => Said::Unknown,
        [_, family @ ("TCP4" | "TCP6"), source, destination, from, to] => {
            let addr = |ip: &str, port: &str| {
                let addr = SocketAddr::new(ip.parse().ok()?, decimal(port)?);
                (addr.is_ipv4() == (family == "TCP4")).then(|| Endpoint::from(addr))
            };
            match (addr(source, from), addr(destination, to)) {
                (Some(source), Some(destination)) => Said::Proxied {
                    source,
                    destination,
                },
                _ => return WRONG,
            }
        }
        _ => return WRONG,
    };
    Parsed::Header(said, end + 2)
}

/// A port as the specification wants it: digits, no leading zero.
fn decimal(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let plain = text.len() == 1 || !text.starts_with('0');
    (digits && plain).then(|| text.parse().ok())?
}

fn binary(bytes: &[u8]) -> Parsed {
    let Some(fixed) = bytes.first_chunk::<16>() else {
        return Parsed::Partial(16);
    };
    let (version, command) = (fixed[12] >> 4, fixed[12] & 15);
    let rest = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if version != 2 || command > 1 {
        return Parsed::Wrong("a PROXY protocol version or command that is not known");
    }
    if rest > REST_MAX {
        return Parsed::Wrong("a PROXY protocol header of more than 4,112 bytes");
    }
    let Some(body) = bytes.get(16..16 + rest) else {
        return Parsed::Partial(16 + rest);
    };
    let said = match (command, fixed[13]) {
        (0, _) => Some(Said::Local),
        (_, 0x11) => inet(body),
        (_, 0x21) => inet6(body),
        (_, 0x31) => unix(body),
        // Datagrams and what is not specified: "the receiver should ignore the addresses".
        _ => Some(Said::Unknown),
    };
    match said {
        Some(said) => Parsed::Header(said, 16 + rest),
        None => Parsed::Wrong("a PROXY protocol header too short for its addresses"),
    }
}

fn inet(body: &[u8]) -> Option<Said> {
    let b = body.first_chunk::<12>()?;
    let ip = |at: usize| Ipv4Addr::new(b[at], b[at + 1], b[at + 2], b[at + 3]);
    Some(Said::Proxied {
        source: (ip(0), u16::from_be_bytes([b[8], b[9]])).into(),
        destination: (ip(4), u16::from_be_bytes([b[10], b[11]])).into(),
    })
}

fn inet6(body: &[u8]) -> Option<Said> {
    let b = body.first_chunk::<36>()?;
    let ip = |at: usize| {
        let octets: [u8; 16] = b[at..at + 16].try_into().expect("sixteen");
        Ipv6Addr::from(octets)
    };
    Some(Said::Proxied {
        source: (ip(0), u16::from_be_bytes([b[32], b[33]])).into(),
        destination: (ip(16), u16::from_be_bytes([b[34], b[35]])).into(),
    })
}

fn unix(body: &[u8]) -> Option<Said> {
    let b = body.first_chunk::<{ 2 * PATH }>()?;
    Some(Said::Proxied {
        source: unix_name(&b[..PATH]),
        destination: unix_name(&b[PATH..]),
    })
}

/// A name as the kernel writes it: an abstract one begins with a zero byte, and all are padded with
/// them.
fn unix_name(bytes: &[u8]) -> Endpoint {
    use std::os::unix::ffi::OsStrExt;
    let upto = |bytes: &[u8]| bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    match bytes {
        [0, name @ ..] if name[0] != 0 => Endpoint::Abstract(Arc::from(&name[..upto(name)])),
        [0, ..] | [] => Endpoint::Unnamed,
        path => {
            let path = std::ffi::OsStr::from_bytes(&path[..upto(path)]);
            Endpoint::from(Path::new(path))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn proxied(source: &str, destination: &str) -> Said {
        Said::Proxied {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    /// A header of version 2.
    pub(crate) fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([0x20 | command, family]);
        header.extend((body.len() as u16).to_be_bytes());
        header.extend(body);
        header
    }

    #[test]
    fn lines() {
        for (text, said) in [
            (
                "PROXY TCP4 192.0.2.1 192.0.2.2 5000 80\r\n",
                proxied("192.0.2.1:5000", "192.0.2.2:80"),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 1 65535\r\n",
                proxied("[2001:db8::1]:1", "[::1]:65535"),
            ),
            ("PROXY UNKNOWN\r\n", Said::Unknown),
            ("PROXY UNKNOWN whatever is there\r\n", Said::Unknown),
        ] {
            let with_more = [text.as_bytes(), b"GET"].concat();
            assert_eq!(parse(&with_more), Parsed::Header(said, text.len()));
        }
        for text in [
            "GET / HTTP/1.1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 5000\r\n",
            "PROXY TCP4 ::1 ::1 5000 80\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 5000 80\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 80\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 080 80\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +80 80\r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 80 80\r\n",
        ] {
            assert!(matches!(parse(text.as_bytes()), Parsed::Wrong(_)), "{text}");
        }
        let endless = format!("PROXY UNKNOWN {}", "x".repeat(100));
        assert!(matches!(parse(endless.as_bytes()), Parsed::Wrong(_)));
    }

    #[test]
    fn binary_headers() {
        let mut inet = vec![192, 0, 2, 1, 192, 0, 2, 2, 0x13, 0x88, 0, 80];
        let said = proxied("192.0.2.1:5000", "192.0.2.2:80");
        assert_eq!(parse(&v2(1, 0x11, &inet)), Parsed::Header(said.clone(), 28));
        // Additions behind the addresses are skipped.
        inet.extend([4, 0, 1, 0]);
        assert_eq!(parse(&v2(1, 0x11, &inet)), Parsed::Header(said, 32));
        let mut unix = [0; 216];
        unix[..2].copy_from_slice(b"/a");
        unix[109..111].copy_from_slice(b"it");
        let said = proxied("unix:/a", "unix:@it");
        assert_eq!(parse(&v2(1, 0x31, &unix)), Parsed::Header(said, 232));
        assert_eq!(parse(&v2(0, 0, b"")), Parsed::Header(Said::Local, 16));
        assert_eq!(parse(&v2(1, 0, b"")), Parsed::Header(Said::Unknown, 16));
        for wrong in [v2(1, 0x11, &[0; 11]), v2(1, 0x21, &[0; 35]), v2(2, 0, b"")] {
            assert!(matches!(parse(&wrong), Parsed::Wrong(_)));
        }
        assert!(matches!(
            parse(&v2(1, 0, &[0; REST_MAX + 1])),
            Parsed::Wrong(_)
        ));
    }

    proptest! {
        /// Whatever comes: no panic, and a part of a header asks for more than there is.
        #[test]
        fn any_bytes(version in 0u8..3, mut bytes: Vec<u8>, cut in 0usize..300) {
            let begin = match version {
                1 => b"PROXY TCP4 ".to_vec(),
                2 => v2(1, 0x11, &[1; 12]),
                _ => Vec::new(),
            };
            bytes.splice(0..0, begin);
            bytes.truncate(cut);
            match parse(&bytes) {
                Parsed::Header(_, len) => prop_assert!(len <= bytes.len()),
                Parsed::Partial(n) => prop_assert!(n > bytes.len()),
                Parsed::Wrong(_) => {}
            }
        }
    }
}
