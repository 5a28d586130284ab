//! The commands SENTINEL, with which clients of Redis ask a server for the other servers of its
//! store.
//!
//! One idea: each server of a store answers as a Sentinel does, on the store's own port. The server decides nothing here: its
//! answers were read from the home, where the owner leaves its address beside its lease, and from the group of the servers.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where clients find a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// A name, or an address without brackets.
    pub host: String,
    /// The port there.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The error that a text is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address of a server is HOST:PORT, with brackets around an IPv6 address")]
pub struct BadAddress;

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(BadAddress)?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let is_named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_host = match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.len() <= 253 && host.chars().all(is_named),
        };
        match (is_host, port) {
            (true, Some(port)) => Ok(Address {
                host: inner.unwrap_or(host).to_owned(),
                port,
            }),
            _ => Err(BadAddress),
        }
    }
}

impl Address {
    /// The 40 hexadecimal digits by which Sentinels call each other: all servers of a store give the same ones for this address.
    pub(super) fn run_id(&self) -> String {
        let mut text = String::with_capacity(48);
        for salt in 0_u64..3 {
            // FNV-1a.
            let mut hash = 0xcbf2_9ce4_8422_2325 ^ salt;
            for byte in self.to_string().bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            let _ = write!(text, "{hash:016x}");
        }
        text.truncate(40);
        text
    }
}

/// The known servers of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Where the owner is, by what it has left at home; `None` if that is not known.
    pub owner: Option<Address>,
    /// The owner has proved nothing for too long, or the home is not reached.
    pub is_owner_down: bool,
    /// Members of the group, but this server.
    pub others: Vec<Address>,
    /// Owners that this server has seen.
    pub epoch: u64,
    /// How long the owner's lease lasts, and the session of the group; milliseconds, the longer of them.
    pub down_after_ms: u64,
}

/// The servers of a store, as one of them sees them. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Sentinel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    own: Address,
    now: Mutex<Servers>,
}

impl Sentinel {
    /// For a store that clients know by this name, of a server at this address.
    #[must_use]
    pub fn new(name: String, own: Address) -> Sentinel {
        Sentinel(Arc::new(Inner {
            name,
            own,
            now: Mutex::default(),
        }))
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The address at which clients find this server.
    #[must_use]
    pub fn own(&self) -> &Address {
        &self.0.own
    }

    /// The known servers.
    #[must_use]
    pub fn servers(&self) -> Servers {
        self.lock().clone()
    }

    /// The owner, unless this server is the owner.
    pub(super) fn other_owner(&self) -> Option<Address> {
        let owner = self.lock().owner.clone();
        owner.filter(|owner| *owner != self.0.own)
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known; the events that tell of it, each with its channel.
    pub(super) fn change(&self, next: Servers) -> Vec<(&'static str, String)> {
        let mut now = self.lock();
        let events = self.events(&now, &next);
        *now = next;
        events
    }

    fn events(&self, before: &Servers, next: &Servers) -> Vec<(&'static str, String)> {
        let mut events = Vec::new();
        let name = &self.0.name;
        let pair = |at: &Address| format!("{} {}", at.host, at.port);
        let of = |owner: &Address| format!("master {name} {}", pair(owner));
        if let (Some(owner), false, true) =
            (&before.owner, before.is_owner_down, next.is_owner_down)
        {
            events.push(("+sdown", of(owner)));
            events.push(("+odown", format!("{} #quorum 1/1", of(owner))));
        }
        if let Some(owner) = &next.owner {
            match &before.owner {
                Some(former) if former != owner => {
                    let switch = format!("{name} {} {}", pair(former), pair(owner));
                    events.push(("+switch-master", switch));
                }
                Some(_) if before.is_owner_down && !next.is_owner_down => {
                    events.push(("-sdown", of(owner)));
                    events.push(("-odown", of(owner)));
                }
                None => events.push(("+monitor", format!("{} quorum 1", of(owner)))),
                Some(_) => {}
            }
            let about = |what: &str, at: &Address| {
                format!("{what} {at} {} @ {name} {}", pair(at), pair(owner))
            };
            let replicas = |of: &Servers| -> Vec<Address> {
                let others = of.others.iter();
                others.filter(|at| *at != owner).cloned().collect()
            };
            let (were, are) = (replicas(before), replicas(next));
            for at in are.iter().filter(|at| !were.contains(at)) {
                events.push(("+slave", about("slave", at)));
                let id = at.run_id();
                let sentinel = format!("sentinel {id} {} @ {name} {}", pair(at), pair(owner));
                events.push(("+sentinel", sentinel));
            }
            for at in were.iter().filter(|at| !next.others.contains(at)) {
                events.push(("+sdown", about("slave", at)));
            }
        }
        events
    }

    /// The servers that are no owner, this one among them.
    pub(super) fn replicas(&self) -> Vec<Address> {
        let servers = self.lock();
        let all = servers.others.iter().chain([&self.0.own]);
        let mut all: Vec<Address> = all
            .filter(|at| Some(*at) != servers.owner.as_ref())
            .cloned()
            .collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Address {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_go_both_ways_and_others_are_none() {
        for good in ["a:1", "10.0.0.1:6380", "[::1]:65535", "db-1.example:6380"] {
            assert_eq!(at(good).to_string(), good);
        }
        for bad in [
            "", "a", "a:", "a:0", "a:65536", ":1", "::1:1", "[a]:1", "a b:1", "a,b:1",
        ] {
            assert_eq!(bad.parse::<Address>(), Err(BadAddress), "{bad}");
        }
        assert_eq!(at("a:1").run_id().len(), 40);
        assert_ne!(at("a:1").run_id(), at("a:2").run_id());
    }

    #[test]
    fn changes_are_told_as_a_sentinel_tells_them() {
        let sentinel = Sentinel::new("mymaster".into(), at("10.0.0.3:1"));
        let both = Servers {
            owner: Some(at("10.0.0.1:1")),
            others: vec![at("10.0.0.1:1"), at("10.0.0.2:1")],
            ..Servers::default()
        };
        let told = |next: &Servers| -> Vec<String> {
            let events = sentinel.change(next.clone()).into_iter();
            events
                .map(|(what, text)| format!("{what} {text}"))
                .collect()
        };
        let first = told(&both);
        assert_eq!(first[0], "+monitor master mymaster 10.0.0.1 1 quorum 1");
        assert_eq!(
            first[1],
            "+slave slave 10.0.0.2:1 10.0.0.2 1 @ mymaster 10.0.0.1 1"
        );
        assert_eq!(told(&both), Vec::<String>::new());
        let down = Servers {
            is_owner_down: true,
            ..both.clone()
        };
        assert_eq!(
            told(&down),
            [
                "+sdown master mymaster 10.0.0.1 1",
                "+odown master mymaster 10.0.0.1 1 #quorum 1/1"
            ]
        );
        let next = Servers {
            owner: Some(at("10.0.0.2:1")),
            others: vec![at("10.0.0.2:1")],
            ..Servers::default()
        };
        assert_eq!(
            told(&next),
            [
                "+switch-master mymaster 10.0.0.1 1 10.0.0.2 1",
                "+sdown slave 10.0.0.1:1 10.0.0.1 1 @ mymaster 10.0.0.2 1"
            ]
        );
        assert_eq!(sentinel.replicas(), [at("10.0.0.3:1")]);
        assert_eq!(sentinel.other_owner(), Some(at("10.0.0.2:1")));
    }
}
