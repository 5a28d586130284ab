//! The partitions that a group has assigned to a member, in the encoding of Kafka's own assignors.
//!
//! Big-endian: `version: i16`, then a list of topics, each a name (`i16` and so many bytes) and a list of partitions (`i32`
//! each); a list begins with its `i32` length. The bytes behind the list are for the assignors.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The prefix of a node's address in the client id of its member.
const PREFIX: &str = "tidewire-";

/// The client id of the member of a node.
pub(crate) fn client_id(place: &str) -> String {
    format!("{PREFIX}{place}")
}

/// The place of a node, from that.
pub(crate) fn place(client_id: &str) -> Option<&str> {
    client_id.strip_prefix(PREFIX)
}

/// The partitions of one topic in an assignment; empty if the bytes are no assignment.
pub(crate) fn partitions(bytes: &[u8], topic: &str) -> BTreeSet<u32> {
    read(bytes, topic).unwrap_or_default()
}

/// Groups the partitions of members by address: all partitions of an address, and the addresses with
/// more than one member.
pub(crate) fn by_place(
    members: Vec<(String, BTreeSet<u32>)>,
) -> (BTreeMap<String, BTreeSet<u32>>, BTreeSet<String>) {
    let (mut all, mut twice) = (BTreeMap::new(), BTreeSet::new());
    for (place, mut partitions) in members {
        match all.entry(place) {
            Entry::Vacant(entry) => {
                entry.insert(partitions);
            }
            Entry::Occupied(mut entry) => {
                twice.insert(entry.key().clone());
                entry.get_mut().append(&mut partitions);
            }
        }
    }
    (all, twice)
}

fn read(bytes: &[u8], topic: &str) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    let mut rest = bytes;
    let _version = take::<2>(&mut rest)?;
    let topics = i32::from_be_bytes(take(&mut rest)?);
    for _ in 0..topics {
        let len = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        let name = rest.get(..len)?;
        rest = &rest[len..];
        let count = i32::from_be_bytes(take(&mut rest)?);
        for _ in 0..count {
            let partition = i32::from_be_bytes(take(&mut rest)?);
            if name == topic.as_bytes() {
                found.insert(u32::try_from(partition).ok()?);
            }
        }
    }
    Some(found)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_at_one_place_have_what_each_has_and_are_told_of() {
        let member = |place: &str, partition: u32| (place.to_owned(), [partition].into());
        let (all, twice) = by_place(vec![member("a:1", 1), member("b:1", 2), member("a:1", 3)]);
        assert_eq!(
            all,
            [
                ("a:1".to_owned(), [1, 3].into()),
                ("b:1".to_owned(), [2].into())
            ]
            .into()
        );
        assert_eq!(twice, ["a:1".to_owned()].into());
    }

    #[test]
    fn assignments_are_read_and_what_is_cut_off_is_none() {
        let bytes = b"\0\x01\0\0\0\x02\0\x01a\0\0\0\x01\0\0\0\x07\0\x01b\0\0\0\x02\0\0\0\x01\0\0\x01\0\xff\xff\xff\xff";
        assert_eq!(partitions(bytes, "a"), [7].into());
        assert_eq!(partitions(bytes, "b"), [1, 256].into());
        assert_eq!(partitions(bytes, "c"), [].into());
        for len in 0..bytes.len() - 4 {
            assert_eq!(partitions(&bytes[..len], "b"), [].into(), "{len}");
        }
        // The list is shorter than its announced length.
        assert_eq!(partitions(b"\0\0\x7f\xff\xff\xff", "a"), [].into());
        assert_eq!(partitions(b"\0\0\0\0\0\x01\xff\xff", "a"), [].into());
    }

    #[test]
    fn places_go_both_ways() {
        assert_eq!(place(&client_id("[::1]:7400")), Some("[::1]:7400"));
        assert_eq!(place("rdkafka"), None);
    }
}
