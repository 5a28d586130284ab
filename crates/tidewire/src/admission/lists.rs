//! Which clients may come at all: networks that are let in, and networks that are not.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::network::{Members, Network, masked};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Denied,
}

/// Networks by the length of their prefix, longest first: the smallest network that an address
/// belongs to decides, found by one look for each length however many networks there are.
#[derive(Debug)]
pub(super) struct Lists {
    by_length: Vec<(u8, HashMap<IpAddr, Verdict>)>,
    unix: Option<Verdict>,
    /// The verdict on an address that is in no list.
    others: Verdict,
}

impl Lists {
    pub(super) fn new(allow: &[Network], deny: &[Network]) -> Lists {
        let mut lists = Lists {
            by_length: Vec::new(),
            unix: None,
            others: match allow {
                [] => Verdict::Allowed,
                _ => Verdict::Denied,
            },
        };
        // The second word on a network counts: where both lists have it, it is denied.
        let allow = allow.iter().map(|network| (network, Verdict::Allowed));
        let deny = deny.iter().map(|network| (network, Verdict::Denied));
        for (network, verdict) in allow.chain(deny) {
            lists.add(*network, verdict);
        }
        lists.by_length.sort_by_key(|(bits, _)| u8::MAX - bits);
        lists
    }

    fn add(&mut self, network: Network, verdict: Verdict) {
        let (first, bits) = match network.0 {
            Members::Unix => {
                self.unix = Some(verdict);
                return;
            }
            Members::Ip { first, bits } => (first, bits),
        };
        let at = self.by_length.iter().position(|(known, _)| *known == bits);
        let at = at.unwrap_or_else(|| {
            self.by_length.push((bits, HashMap::new()));
            self.by_length.len() - 1
        });
        // IPv4 and IPv6 are different addresses, so both may share a length.
        self.by_length[at].1.insert(masked(first, bits), verdict);
    }

    pub(super) fn allows(&self, from: &Endpoint) -> bool {
        let listed = match from.ip() {
            None => self.unix,
            Some(ip) => {
                let ip = ip.to_canonical();
                let mut found = self.by_length.iter().filter_map(|(bits, networks)| {
                    // An address has no prefix longer than its own width.
                    let fits = ip.is_ipv6() || *bits <= 32;
                    networks.get(&masked(ip, *bits)).filter(|_| fits)
                });
                found.next().copied()
            }
        };
        listed.unwrap_or(self.others) == Verdict::Allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allow: &str, deny: &str) -> Lists {
        let read = |text: &str| -> Vec<Network> {
            let words = text.split_whitespace();
            words.map(|word| word.parse().unwrap()).collect()
        };
        Lists::new(&read(allow), &read(deny))
    }

    #[test]
    fn the_smallest_network_decides() {
        for (allow, deny, from, let_in) in [
            ("", "", "192.0.2.1:1", true),
            ("", "", "unix:", true),
            ("", "192.0.2.0/24", "192.0.2.1:1", false),
            ("", "192.0.2.0/24", "192.0.3.1:1", true),
            ("", "192.0.2.0/24", "[::ffff:192.0.2.1]:1", false),
            ("", "::ffff:192.0.2.0/120", "192.0.2.1:1", false),
            ("10.0.0.0/8", "", "10.1.2.3:1", true),
            ("10.0.0.0/8", "", "11.1.2.3:1", false),
            ("10.0.0.0/8", "", "[fd00::1]:1", false),
            ("10.0.0.0/8", "", "unix:", false),
            ("10.0.0.0/8 unix", "", "unix:/x", true),
            ("0.0.0.0/0 10.1.2.3", "10.0.0.0/8", "10.1.2.3:1", true),
            ("0.0.0.0/0 10.1.2.3", "10.0.0.0/8", "10.1.2.4:1", false),
            ("0.0.0.0/0 10.1.2.3", "10.0.0.0/8", "12.1.2.4:1", true),
            ("0.0.0.0/0", "", "[2001:db8::1]:1", false),
            ("::/0", "2001:db8::/32", "[2001:db8::1]:1", false),
            ("::/0", "2001:db8::/32", "[2001:db9::1]:1", true),
            ("::/0", "", "10.0.0.1:1", false),
            ("10.0.0.0/8", "10.0.0.0/8", "10.0.0.1:1", false),
            // Address bits behind the prefix of a network are ignored.
            ("", "10.1.2.3/8", "10.9.9.9:1", false),
            ("", "unix", "unix:", false),
            ("", "unix", "127.0.0.1:1", true),
        ] {
            let got = lists(allow, deny).allows(&from.parse().unwrap());
            assert_eq!(got, let_in, "allow {allow:?} deny {deny:?} {from}");
        }
    }
}
