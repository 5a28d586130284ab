//! Sets of peers: networks of IP addresses, and Unix sockets.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::vocabulary::endpoint::Endpoint;

/// A set of peers: `10.0.0.0/8`, `::1`, or `unix` for all Unix sockets.
///
/// ```
/// use tidewire::Network;
///
/// let office: Network = "192.0.2.0/24".parse()?;
/// assert!(office.contains(&"192.0.2.7:5000".parse()?));
/// assert!(office.contains(&"[::ffff:192.0.2.7]:5000".parse()?)); // an IPv4 address in IPv6's clothes is IPv4
/// assert!(!office.contains(&"unix:".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub(crate) Members);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    Ip { first: IpAddr, bits: u8 },
    Unix,
}

/// Text that names no [`Network`].
///
/// ```
/// use tidewire::{Network, NetworkError};
///
/// let error: NetworkError = "10.0.0.0/33".parse::<Network>().unwrap_err();
/// assert!(error.to_string().contains("write it like 10.0.0.0/8"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: write it like 10.0.0.0/8, 192.0.2.1, fd00::/8 or unix")]
pub struct NetworkError(String);

impl Network {
    /// Whether the peer at `endpoint` belongs to the network. An IPv4 address in IPv6's clothes is
    /// IPv4.
    #[must_use]
    pub fn contains(&self, endpoint: &Endpoint) -> bool {
        match (self.0, endpoint.ip().map(|ip| ip.to_canonical())) {
            (Members::Unix, None) => true,
            (Members::Ip { first, bits }, Some(ip)) => {
                first.is_ipv4() == ip.is_ipv4() && masked(first, bits) == masked(ip, bits)
            }
            _ => false,
        }
    }
}

/// The first `bits` bits of a canonical address; the others are zero.
pub(crate) fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    let kept = |width: u32| u32::from(bits).min(width);
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - kept(32)).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - kept(128)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

/// Written in the form in which it is parsed.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Members::Ip { first, bits } => write!(f, "{first}/{bits}"),
            Members::Unix => f.write_str("unix"),
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        if text == "unix" {
            return Ok(Network(Members::Unix));
        }
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let first: IpAddr = ip.parse().map_err(|_| wrong())?;
        let width = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        // An IPv4 address in IPv6's clothes is IPv4, here as in `contains`.
        let (most, plain) = (width(first), first.to_canonical());
        let bits = bits.unwrap_or(most);
        if bits > most || bits < most - width(plain) {
            return Err(wrong());
        }
        let (first, bits) = (plain, bits - (most - width(plain)));
        Ok(Network(Members::Ip { first, bits }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_their_networks() {
        for (network, member, inside) in [
            ("10.0.0.0/8", "10.255.0.1:1", true),
            ("10.0.0.0/8", "11.0.0.1:1", false),
            ("10.0.0.0/8", "[::ffff:10.1.2.3]:1", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3:1", true),
            ("::ffff:10.0.0.0/104", "[::ffff:11.1.2.3]:1", false),
            ("::ffff:10.1.2.3", "10.1.2.3:1", true),
            ("0.0.0.0/0", "203.0.113.1:1", true),
            ("0.0.0.0/0", "[::1]:1", false),
            ("::/0", "[::1]:1", true),
            ("fd00::/8", "[fd12::1]:1", true),
            ("192.0.2.1", "192.0.2.1:9", true),
            ("192.0.2.1", "192.0.2.2:9", false),
            ("unix", "unix:", true),
            ("unix", "127.0.0.1:1", false),
            ("127.0.0.1", "unix:/x", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.contains(&member.parse().unwrap()),
                inside,
                "{network:?} {member}"
            );
        }
        for wrong in [
            "",
            "10.0.0.0/33",
            "::ffff:10.0.0.0/95",
            "::/129",
            "10/8",
            "localhost",
            "10.0.0.0/x",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
