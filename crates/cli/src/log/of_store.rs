//! Telling the home of a key-value store, which is not restored: a follower takes the store over.

use std::path::Path;

use tidewire_kafka::{Found, SNAPSHOT, Target};
use tidewire_kv::durable::{STREAM, begins_with_unit, is_of_store};
use tidewire_replicate::{Held, begins};

/// Whether a home is that of a store, by its marks and the first record that is left. A log of messages may have a stream
/// of the same name, with something else in it.
pub(super) fn is_store(held: &Held, first: Option<&Found>) -> bool {
    // Only the owner of a store leaves these notes.
    if held.notes.contains_key(SNAPSHOT) || begins(&held.notes) > 0 {
        return true;
    }
    let mut streams = held.streams.keys();
    let are_its = streams.all(|name| is_of_store(name));
    let record = first.map(|found| &found.record);
    are_its
        && record.is_some_and(|record| {
            let is_unit = begins_with_unit(&record.frames);
            is_unit && record.producer.is_empty() && &*record.stream == STREAM
        })
}

/// Advice to the operator: the commands for the log of a key-value store.
pub(super) fn advice(target: &Target, to: &Path) -> String {
    format!(
        "{target} is the home of a key-value store. To restore the store, have a new server follow the home and promote it:\n  \
         tidewire serve kv --data {} --durability replicated --follow '{target}'\n  \
         tidewire kv promote --to HOST:PORT      # of that server",
        to.display()
    )
}

#[cfg(test)]
mod tests {
    use tidewire_replicate::{Place, Record};

    use super::*;

    fn held(streams: &[&str]) -> Held {
        let places = streams.iter().map(|&name| (name.into(), Place::default()));
        Held {
            streams: places.collect(),
            ..Held::default()
        }
    }

    fn found(stream: &str, producer: &str, payload: &[u8]) -> Found {
        let mut frames = 1_u64.to_le_bytes().to_vec();
        frames.extend((payload.len() as u32).to_le_bytes());
        frames.extend(payload);
        Found {
            offset: 0,
            record: Record {
                stream: stream.into(),
                producer: producer.into(),
                first: 0,
                count: 1,
                timestamp_us: 1,
                frames,
            },
        }
    }

    #[test]
    fn homes_of_stores_are_told_from_homes_of_logs() {
        let unit = b"\x02\x01\0\x03\x03SET\x01k\x01v";
        let store = found("kv", "", unit);
        let former = "kv@0123456789abcdef";
        for payload in [&unit[..], b"\x01\x01\0", b"\x03"] {
            assert!(is_store(
                &held(&["kv", former]),
                Some(&found("kv", "", payload))
            ));
        }
        let mut cut = held(&["kv"]);
        cut.notes.insert(SNAPSHOT.into(), b""[..].into());
        assert!(is_store(&cut, None));
        // The store was given its home a moment ago, and no record has arrived there yet.
        let mut part = held(&["kv"]);
        let first = 401_u64.to_le_bytes();
        part.notes.insert("begins".into(), first[..].into());
        assert!(is_store(&part, None));

        for streams in [&["kv", "s"][..], &["kv", "kv@here"]] {
            assert!(!is_store(&held(streams), Some(&store)));
        }
        for (stream, producer, payload) in [
            ("kv", "", &b"hello"[..]),
            ("kv", "", b""),
            ("kv", "", b"\x02hello"),
            ("kv", "p", unit),
            ("s", "", unit),
        ] {
            let first = found(stream, producer, payload);
            assert!(!is_store(&held(&["kv"]), Some(&first)), "{payload:?}");
        }
        assert!(!is_store(&held(&["kv"]), None));
    }

    #[test]
    fn the_two_commands_are_told() {
        let target: Target = "kafka://k1,k2/keys?partition=3".parse().expect("a target");
        let advice = advice(&target, Path::new("/var/lib/tidewire"));
        for part in [
            "tidewire serve kv --data /var/lib/tidewire --durability replicated --follow 'kafka://k1",
            "/keys?partition=3'",
            "tidewire kv promote --to HOST:PORT",
        ] {
            assert!(advice.contains(part), "{part}: {advice}");
        }
    }
}
