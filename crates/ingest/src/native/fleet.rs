//! Several servers that share the producers out among them, by their names.

use std::sync::Arc;

use tidewire_replicate::{Hold, Owners, Whose};

/// Servers that share the named producers; anonymous messages are taken by all. Which server has
/// which partition is fixed, or changes.
///
/// ```
/// use tidewire_ingest::native::Fleet;
///
/// let nodes = ["a.example:7400".to_owned(), "b.example:7400".to_owned()];
/// let fleet = Fleet::new(nodes, 0).unwrap();
/// assert_eq!(Fleet::place("web-7", 2), 1);
/// assert_eq!(fleet.elsewhere("web-7").as_deref(), Some("b.example:7400"));
/// assert_eq!(fleet.elsewhere("web-8"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Servers in a fixed order, and the index of this server.
    Fixed { nodes: Arc<[String]>, own: usize },
    /// A table that changes, and how many partitions there are.
    Shared { owners: Owners, partitions: u32 },
}

/// Where a producer is to be taken.
#[derive(Clone, Debug)]
pub(super) enum At {
    /// Here, bound to a partition where partitions move.
    Here(Option<Arc<Hold>>),
    There(Arc<str>),
    /// No server has the producer's partition for now.
    Nowhere,
}

impl Fleet {
    /// Bytes of the longest place that a refusal can name.
    pub const NODE_MAX: usize = 255;

    /// The addresses where clients find each server, `HOST:PORT` of at most [`NODE_MAX`](Fleet::NODE_MAX) bytes;
    /// `own` is the index of this server, counted from 0. `None` if `own` is out of range, or an address is too
    /// long.
    pub fn new(nodes: impl Into<Arc<[String]>>, own: usize) -> Option<Fleet> {
        let nodes = nodes.into();
        let are_short = nodes.iter().all(|node| node.len() <= Fleet::NODE_MAX);
        (own < nodes.len() && are_short).then_some(Fleet(Kind::Fixed { nodes, own }))
    }

    /// Servers between which so many partitions move (0 is taken for 1); the table says which
    /// server has which.
    #[must_use]
    pub fn shared(owners: Owners, partitions: u32) -> Fleet {
        let partitions = partitions.max(1);
        Fleet(Kind::Shared { owners, partitions })
    }

    /// The index of the server, of `count` servers, to which a producer belongs: the 64-bit FNV-1a hash of its
    /// name, modulo `count`. The hash is part of the protocol and never changes.
    ///
    /// # Panics
    /// Panics if `count` is 0.
    #[must_use]
    pub fn place(producer: &str, count: usize) -> usize {
        let hash = producer.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        (hash % count as u64) as usize
    }

    /// The server to which a producer must go, if it is not this one.
    #[must_use]
    pub fn elsewhere(&self, producer: &str) -> Option<Arc<str>> {
        match self.at(producer) {
            At::There(place) => Some(place),
            At::Here(_) | At::Nowhere => None,
        }
    }

    pub(super) fn at(&self, producer: &str) -> At {
        if producer.is_empty() {
            return At::Here(None);
        }
        match &self.0 {
            Kind::Fixed { nodes, own } => match Fleet::place(producer, nodes.len()) {
                place if place == *own => At::Here(None),
                place => At::There(nodes[place].as_str().into()),
            },
            Kind::Shared { owners, partitions } => {
                let partition = Fleet::place(producer, *partitions as usize);
                // Below a number of 32 bits.
                match owners.of(partition as u32) {
                    Whose::Held(hold) => At::Here(Some(hold)),
                    Whose::At(place) if place.len() <= Fleet::NODE_MAX => At::There(place),
                    Whose::At(_) | Whose::Nobody => At::Nowhere,
                }
            }
        }
    }

    /// The table, where partitions move.
    #[must_use]
    pub fn owners(&self) -> Option<&Owners> {
        match &self.0 {
            Kind::Fixed { .. } => None,
            Kind::Shared { owners, .. } => Some(owners),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients in other languages may compute it, and what servers have stored rests on it.
    #[test]
    fn places_are_these() {
        for (producer, of_two, of_three, of_seven) in [
            ("a", 0, 1, 5),
            ("web-7", 1, 2, 3),
            ("web-8", 0, 2, 2),
            ("\u{fc}", 0, 0, 5),
        ] {
            let places = [2, 3, 7].map(|count| Fleet::place(producer, count));
            assert_eq!(places, [of_two, of_three, of_seven], "{producer}");
        }
        assert_eq!(Fleet::place("any", 1), 0);
    }

    #[test]
    fn a_server_outside_has_no_fleet() {
        assert_eq!(Fleet::new([], 0), None);
        assert_eq!(Fleet::new(["a:1".to_owned()], 1), None);
        assert_eq!(Fleet::new(["a".repeat(Fleet::NODE_MAX + 1)], 0), None);
        let alone = Fleet::new(["a:1".to_owned()], 0).unwrap();
        assert_eq!(alone.elsewhere("any"), None);
    }
}
