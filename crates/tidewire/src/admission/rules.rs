//! The rules of admission, as they are set.

use super::rate::Rate;
use crate::vocabulary::network::Network;

/// Which clients may come in, how many, and how fast. A rule that is not set limits nothing.
///
/// An *address* is one of IPv4, or the first [64 bits](Rules::address_v6) of one of IPv6, because
/// one host has all addresses that begin so. A *prefix* is a network of 256 addresses of IPv4
/// ([`prefix_v4`](Rules::prefix_v4)), or a site of IPv6 ([`prefix_v6`](Rules::prefix_v6)). Unix
/// sockets have neither.
///
/// ```
/// use tidewire::admission::Rules;
///
/// let rules = Rules { connections: Some(10_000), per_address: Some(20), ..Rules::default() };
/// assert_eq!(rules.check(), Ok(()));
/// let none = Rules { per_address: Some(0), ..Rules::default() };
/// assert!(none.check().unwrap_err().contains("per_address"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Connections open at once. A connection beyond the limit:
    /// [`Refusal::ConnectionLimit`](crate::Refusal::ConnectionLimit).
    pub connections: Option<usize>,
    /// Connections of one address open at once. A connection beyond the limit:
    /// [`Refusal::AddressLimit`](crate::Refusal::AddressLimit).
    pub per_address: Option<u32>,
    /// Connections of one prefix open at once. A connection beyond the limit:
    /// [`Refusal::PrefixLimit`](crate::Refusal::PrefixLimit).
    pub per_prefix: Option<u32>,
    /// How many may come in a time. Faster: [`Refusal::AcceptRate`](crate::Refusal::AcceptRate).
    pub rate: Option<Rate>,
    /// How many may come from one address in a time. Faster: [`Refusal::AddressRate`](crate::Refusal::AddressRate).
    pub rate_per_address: Option<Rate>,
    /// If there are any, only clients in one of these may come in; others:
    /// [`Refusal::Denied`](crate::Refusal::Denied).
    pub allow: Vec<Network>,
    /// Clients in one of these networks are refused. If a client is in several networks of both
    /// lists, the smallest network decides; if both lists have that network, the client is refused.
    pub deny: Vec<Network>,
    /// Bits of an IPv6 address that count as one address. Default 64: a host is given no less. 128 where hosts
    /// that share a network of 64 bits are to be told apart.
    pub address_v6: u8,
    /// Bits of an IPv4 address that are its prefix. Default 24.
    pub prefix_v4: u8,
    /// Bits of an IPv6 address that are its prefix. Default 48: what a site is given.
    pub prefix_v6: u8,
    /// Addresses without a connection whose rate is remembered, 2 to 2^24; about 80 bytes each. If more
    /// addresses come, the used-up rate of the oldest half is forgotten. Default 65,536.
    pub remembered: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            connections: None,
            per_address: None,
            per_prefix: None,
            rate: None,
            rate_per_address: None,
            allow: Vec::new(),
            deny: Vec::new(),
            address_v6: 64,
            prefix_v4: 24,
            prefix_v6: 48,
            remembered: 1 << 16,
        }
    }
}

impl Rules {
    /// Checks that the rules make sense together.
    ///
    /// # Errors
    /// Why the rules are invalid, in words.
    pub fn check(&self) -> Result<(), String> {
        let zero = [
            ("connections", self.connections == Some(0)),
            ("per_address", self.per_address == Some(0)),
            ("per_prefix", self.per_prefix == Some(0)),
        ];
        if let Some((name, _)) = zero.into_iter().find(|(_, is)| *is) {
            return Err(format!(
                "`{name}` is 0, so no client could connect; give at least 1"
            ));
        }
        let long = [
            ("address_v6", self.address_v6, 128),
            ("prefix_v4", self.prefix_v4, 32),
            ("prefix_v6", self.prefix_v6, 128),
        ];
        if let Some((name, bits, most)) = long.into_iter().find(|(_, bits, most)| bits > most) {
            return Err(format!(
                "`{name}` is {bits} bits, and an address has {most}"
            ));
        }
        if !(2..=1 << 24).contains(&self.remembered) {
            return Err(format!("`remembered` is {}: 2 to 2^24", self.remembered));
        }
        Ok(())
    }

    /// Whether no limit is set.
    ///
    /// ```
    /// use tidewire::admission::Rules;
    ///
    /// assert!(Rules::default().is_empty());
    /// assert!(!Rules { connections: Some(10), ..Rules::default() }.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = self.allow.is_empty() && self.deny.is_empty();
        let rates = self.rate.is_none() && self.rate_per_address.is_none();
        lists && rates && self.connections.is_none() && !self.counts_addresses()
    }

    /// Whether a client's address matters, beside the lists.
    pub(super) fn counts_addresses(&self) -> bool {
        self.per_address.is_some() || self.per_prefix.is_some() || self.rate_per_address.is_some()
    }
}
