//! Which clients are let in: limits in all, for each address and each network, rates, and lists of
//! networks.
//!
//! [`Admission`] is asked when a connection has been accepted and told when it is gone; it knows no
//! socket and no clock. Established connections stay: new ones are refused.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::admission::{Admission, Rules};
//! use tidewire::{Endpoint, Instant, Refusal};
//!
//! let door = Admission::new(Rules { per_address: Some(2), ..Rules::default() });
//! let from: Endpoint = "192.0.2.7:5000".parse()?;
//! let now = Instant::from_nanos(0);
//! assert_eq!(door.admit(&from, now), Ok(()));
//! assert_eq!(door.admit(&from, now), Ok(()));
//! assert_eq!(door.admit(&from, now), Err(Refusal::AddressLimit));
//! door.leave(&from);
//! assert_eq!(door.admit(&from, now), Ok(()));
//! # Ok::<(), tidewire::EndpointError>(())
//! ```
//!
//! [`Builder::admission`](crate::Builder::admission) sets one for all that a server accepts,
//! [`Builder::admission_of`](crate::Builder::admission_of) for a service, and
//! [`Listen::admission`](crate::Listen::admission) for a listener. A connection passes all that stand in its way.

pub(crate) mod door;
mod lists;
mod rate;
mod rules;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::reach::sync::{Mutex, lock};
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;
use lists::Lists;
pub use rate::{Rate, RateError};
pub use rules::Rules;
use table::Table;

/// The rules of admission, and the counts of the admitted clients. A clone is another hold of the same: what
/// passes two listeners that share one is counted together.
///
/// Asking takes a lock, once for a connection that comes and once when it has gone, and a fraction of a
/// microsecond.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

struct Inner {
    rules: Rules,
    lists: Lists,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    full_at_ns: u64,
    /// The time at which the latest client came.
    now_ns: u64,
    table: Table,
}

/// The part of a client's address that counts as one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A connection from this address.
    Whole,
    /// A connection from a proxy: its client is not known yet, and its own address says nothing.
    Nameless,
    /// The address of a client that a proxy has named. The connection counts already.
    Named,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admission({:?}, {} open)", self.0.rules, self.open())
    }
}

impl Admission {
    /// Admission by these rules, with no client admitted yet. Rules that cannot be meant
    /// ([`Rules::check`]) are an error of [`Builder::start`](crate::Builder::start).
    #[must_use]
    pub fn new(rules: Rules) -> Admission {
        Admission(Arc::new(Inner {
            lists: Lists::new(&rules.allow, &rules.deny),
            rules,
            counts: Mutex::default(),
        }))
    }

    /// Lets a client in, or says why not. Time may not go back; if it does, it stands still.
    ///
    /// # Errors
    /// The reason of the refusal; no count has changed then.
    ///
    /// ```
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::{Endpoint, Instant, Refusal};
    ///
    /// // For a door of one's own: what a builder does for its listeners.
    /// let door = Admission::new(Rules { per_address: Some(1), ..Rules::default() });
    /// let (one, other) = (Endpoint::from(([192, 0, 2, 1], 4000)), Endpoint::from(([192, 0, 2, 2], 4000)));
    /// let now = Instant::from_nanos(0);
    /// assert_eq!(door.admit(&one, now), Ok(()));
    /// assert_eq!(door.admit(&one, now), Err(Refusal::AddressLimit));
    /// assert_eq!(door.admit(&other, now), Ok(()));
    /// assert_eq!((door.open(), door.sources(), door.rules().per_address), (2, 2, Some(1)));
    /// door.leave(&one);
    /// assert_eq!(door.admit(&one, now), Ok(()));
    /// ```
    pub fn admit(&self, from: &Endpoint, now: Instant) -> Result<(), Refusal> {
        if !self.allows(from) {
            return Err(Refusal::Denied);
        }
        self.count(Part::Whole, from, now)
    }

    /// Notes that an admitted client has gone.
    pub fn leave(&self, from: &Endpoint) {
        self.discount(Part::Whole, from, false);
    }

    /// Connections that were let in and have not gone.
    #[must_use]
    pub fn open(&self) -> usize {
        lock(&self.0.counts).open
    }

    /// Addresses and prefixes of which anything is known now: what they take in memory is about 80 bytes each.
    #[must_use]
    pub fn sources(&self) -> usize {
        lock(&self.0.counts).table.len()
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Whether the lists let this address in.
    pub(crate) fn allows(&self, from: &Endpoint) -> bool {
        self.0.lists.allows(from)
    }

    /// Counts a client that the lists let in.
    pub(crate) fn count(&self, part: Part, from: &Endpoint, now: Instant) -> Result<(), Refusal> {
        let rules = &self.0.rules;
        let counts = &mut *lock(&self.0.counts);
        counts.now_ns = counts.now_ns.max(now.as_nanos());
        let now_ns = counts.now_ns;
        let mut after = counts.full_at_ns;
        if part != Part::Named {
            if rules.connections.is_some_and(|most| counts.open >= most) {
                return Err(Refusal::ConnectionLimit);
            }
            if let Some(rate) = rules.rate {
                let taken = rate.take(counts.full_at_ns, now_ns);
                after = taken.ok_or(Refusal::AcceptRate)?;
            }
        }
        if let Some(ip) = self.counted(part, from) {
            counts.table.admit(rules, ip, now_ns)?;
        }
        counts.full_at_ns = after;
        counts.open += usize::from(part != Part::Named);
        Ok(())
    }

    /// `undone` is for a client that was let in here and refused elsewhere.
    pub(crate) fn discount(&self, part: Part, from: &Endpoint, undone: bool) {
        let rules = &self.0.rules;
        let counts = &mut *lock(&self.0.counts);
        if part != Part::Named {
            counts.open = counts.open.saturating_sub(1);
            if let Some(rate) = rules.rate.filter(|_| undone) {
                counts.full_at_ns = rate.put_back(counts.full_at_ns);
            }
        }
        if let Some(ip) = self.counted(part, from) {
            let refund = rules.rate_per_address.filter(|_| undone);
            counts.table.leave(rules, ip, counts.now_ns, refund);
        }
    }

    fn counted(&self, part: Part, from: &Endpoint) -> Option<IpAddr> {
        let counts = part != Part::Nameless && self.0.rules.counts_addresses();
        from.ip().filter(|_| counts)
    }
}
