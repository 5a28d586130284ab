//! Accounts of client addresses: how many connections each address has, and how much of its rate is
//! left.
//!
//! Memory is bounded by what is open: two places for each connection, and a fixed number for
//! addresses that have none and have used up some of their rate. The entries stand in two
//! generations. An entry that is used moves to the young generation. When the young generation is
//! full, or every bucket of the old generation has had time to fill up, the old generation is
//! forgotten and the young one becomes old. So a client with very many addresses takes no extra
//! memory: only its own entries are forgotten early.

use std::collections::HashMap;
use std::net::IpAddr;

use super::rate::Rate;
use super::rules::Rules;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::network::masked;

/// An address, or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source {
    first: IpAddr,
    is_prefix: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    open: u32,
    full_at_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    open: HashMap<Source, Entry>,
    /// When the bucket of an address without a connection is full again.
    young: HashMap<Source, u64>,
    old: HashMap<Source, u64>,
    turned_at_ns: u64,
}

impl Table {
    /// Counts one more connection from this address, if the rules allow it.
    pub(super) fn admit(&mut self, rules: &Rules, ip: IpAddr, now_ns: u64) -> Result<(), Refusal> {
        let (address, prefix) = (rules.address(ip), rules.prefix(ip));
        let mut after = None;
        if let Some(source) = address {
            let entry = self.look(source);
            if rules.per_address.is_some_and(|most| entry.open >= most) {
                return Err(Refusal::AddressLimit);
            }
            if let Some(rate) = rules.rate_per_address {
                after = rate.take(entry.full_at_ns, now_ns);
                if after.is_none() {
                    return Err(Refusal::AddressRate);
                }
            }
        }
        if let Some(source) = prefix
            && rules
                .per_prefix
                .is_some_and(|most| self.look(source).open >= most)
        {
            return Err(Refusal::PrefixLimit);
        }
        for source in [address, prefix].into_iter().flatten() {
            let known = self.look(source);
            let entry = self.open.entry(source).or_insert(known);
            entry.open += 1;
            if !source.is_prefix {
                entry.full_at_ns = after.unwrap_or(0);
            }
            self.young.remove(&source);
            self.old.remove(&source);
        }
        Ok(())
    }

    /// One less. `refund` is the rate of which one was taken for nothing.
    pub(super) fn leave(&mut self, rules: &Rules, ip: IpAddr, now_ns: u64, refund: Option<Rate>) {
        for source in [rules.address(ip), rules.prefix(ip)].into_iter().flatten() {
            let Some(entry) = self.open.get_mut(&source) else {
                continue;
            };
            if let Some(rate) = refund.filter(|_| !source.is_prefix) {
                entry.full_at_ns = rate.put_back(entry.full_at_ns);
            }
            entry.open -= 1;
            let Entry { open, full_at_ns } = *entry;
            if open == 0 {
                self.open.remove(&source);
                if full_at_ns > now_ns {
                    self.remember(rules, source, full_at_ns, now_ns);
                }
            }
        }
        // A crowd that has gone leaves no room behind.
        if self.open.capacity() > 4096 && self.open.len() < self.open.capacity() / 8 {
            self.open.shrink_to(self.open.len() * 2);
        }
    }

    /// Sources that take memory.
    pub(super) fn len(&self) -> usize {
        self.open.len() + self.young.len() + self.old.len()
    }

    fn look(&self, source: Source) -> Entry {
        if let Some(entry) = self.open.get(&source) {
            return *entry;
        }
        let known = self.young.get(&source).or_else(|| self.old.get(&source));
        Entry {
            open: 0,
            full_at_ns: known.copied().unwrap_or(0),
        }
    }

    fn remember(&mut self, rules: &Rules, source: Source, full_at_ns: u64, now_ns: u64) {
        let window = rules.rate_per_address.map_or(0, Rate::window_ns);
        let full = self.young.len() >= rules.remembered.max(2) / 2;
        if full || now_ns.saturating_sub(self.turned_at_ns) >= window {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            self.turned_at_ns = now_ns;
        }
        self.young.insert(source, full_at_ns);
    }
}

impl Rules {
    /// The address under which connections from `ip` are counted; `None` if addresses are not
    /// counted.
    fn address(&self, ip: IpAddr) -> Option<Source> {
        let counted = self.per_address.is_some() || self.rate_per_address.is_some();
        counted.then(|| Source {
            first: masked_by(ip, 32, self.address_v6),
            is_prefix: false,
        })
    }

    fn prefix(&self, ip: IpAddr) -> Option<Source> {
        self.per_prefix.is_some().then(|| Source {
            first: masked_by(ip, self.prefix_v4, self.prefix_v6),
            is_prefix: true,
        })
    }
}

/// The part of an address that is counted; the other bits are zero.
pub(super) fn masked_by(ip: IpAddr, v4: u8, v6: u8) -> IpAddr {
    match ip.to_canonical() {
        ip @ IpAddr::V4(_) => masked(ip, v4),
        ip @ IpAddr::V6(_) => masked(ip, v6),
    }
}
