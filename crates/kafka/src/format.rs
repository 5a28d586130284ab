//! The records at home, as any Kafka client reads them; see docs/replication.md.

use tidewire_replicate::{Held, Owner, Place, Record};

/// The version of the format.
const VERSION: u8 = 1;

const OWNER: &str = "owner";
const STREAM: &str = "stream\0";
const PRODUCER: &str = "producer\0";

/// The headers of a record of messages: the version, who sent them, the position of the first in the owner's
/// log, how many there are, when they were received in microseconds since the Unix epoch.
pub(crate) const HEADERS: [&str; 5] = [
    "tidewire",
    "tidewire-producer",
    "tidewire-position",
    "tidewire-count",
    "tidewire-received-us",
];

/// A record of messages, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its offset in the partition.
    pub offset: u64,
    /// What it says.
    pub record: Record,
}

/// What is no record of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The values of the headers of a record.
pub(crate) fn headers(record: &Record) -> [String; 5] {
    [
        VERSION.to_string(),
        record.producer.to_string(),
        record.first.to_string(),
        record.count.to_string(),
        record.timestamp_us.to_string(),
    ]
}

/// A record, from its key, its headers by name and its value.
pub(crate) fn record<'a>(
    key: &[u8],
    header: impl Fn(&str) -> Option<&'a [u8]>,
    value: &[u8],
) -> Result<Record, Malformed> {
    let text = |name: &str| header(name).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
    if number(HEADERS[0]) != Some(VERSION.into()) {
        return Err(Malformed("it has no header tidewire, or not version 1"));
    }
    let count = number(HEADERS[3]).and_then(|count| u32::try_from(count).ok());
    let record = Record {
        stream: std::str::from_utf8(key)
            .map_err(|_| Malformed("its key names no stream"))?
            .into(),
        producer: text(HEADERS[1])
            .ok_or(Malformed("it names no producer"))?
            .into(),
        first: number(HEADERS[2]).ok_or(Malformed("it has no position"))?,
        count: count.ok_or(Malformed("it has no count"))?,
        timestamp_us: number(HEADERS[4]).ok_or(Malformed("it has no time"))?,
        frames: value.to_vec(),
    };
    match frames(value) {
        Some(count) if count == record.count && count > 0 => Ok(record),
        _ => Err(Malformed(
            "its messages are not as many as it says, or cut off",
        )),
    }
}

/// How many messages there are, if there is nothing else.
fn frames(mut bytes: &[u8]) -> Option<u32> {
    let mut count = 0u32;
    while !bytes.is_empty() {
        let header = bytes.first_chunk::<12>()?;
        let size = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        bytes = bytes.get(12 + size..)?;
        count = count.checked_add(1)?;
    }
    Some(count)
}

/// The mark of an owner: key and value.
pub(crate) fn owner(owner: Owner) -> (Vec<u8>, Vec<u8>) {
    (OWNER.into(), two(owner.log, owner.session))
}

/// The mark of a stream.
pub(crate) fn stream(name: &str, place: Place) -> (Vec<u8>, Vec<u8>) {
    (
        format!("{STREAM}{name}").into(),
        two(place.next, place.print),
    )
}

/// The mark of a producer: its last id.
pub(crate) fn producer(stream: &str, name: &str, last: u64) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![VERSION];
    value.extend_from_slice(&last.to_le_bytes());
    (format!("{PRODUCER}{stream}\0{name}").into(), value)
}

fn two(one: u64, other: u64) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend_from_slice(&one.to_le_bytes());
    value.extend_from_slice(&other.to_le_bytes());
    value
}

/// Takes a mark over into what is held. Those of producers are passed over: the log has them.
pub(crate) fn take(key: &[u8], value: Option<&[u8]>, held: &mut Held) -> Result<(), Malformed> {
    let key = std::str::from_utf8(key).map_err(|_| Malformed("a mark whose key is no text"))?;
    if key.starts_with(PRODUCER) {
        return Ok(());
    }
    let numbers = match value {
        None => None,
        Some(value) => Some(numbers(value).ok_or(Malformed("a mark that is not of version 1"))?),
    };
    match (key.strip_prefix(STREAM), numbers) {
        (Some(stream), Some((next, print))) => {
            held.streams.insert(stream.into(), Place { next, print });
        }
        (Some(stream), None) => {
            held.streams.remove(stream);
        }
        (None, numbers) if key == OWNER => {
            held.owner = numbers.map(|(log, session)| Owner { log, session });
        }
        (None, _) => return Err(Malformed("a mark of an unknown kind")),
    }
    Ok(())
}

fn numbers(value: &[u8]) -> Option<(u64, u64)> {
    let (&VERSION, numbers) = value.split_first()? else {
        return None;
    };
    let (one, other) = numbers.split_first_chunk::<8>()?;
    let other = <[u8; 8]>::try_from(other).ok()?;
    Some((u64::from_le_bytes(*one), u64::from_le_bytes(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            stream: "s".into(),
            producer: "p".into(),
            first: 5,
            count: 1,
            timestamp_us: 9,
            frames: b"\x01\0\0\0\0\0\0\0\x02\0\0\0hi".to_vec(),
        }
    }

    fn decoded(of: &Record, value: &[u8]) -> Result<Record, Malformed> {
        let values = headers(of);
        let header = |name: &str| {
            let at = HEADERS.iter().position(|header| *header == name)?;
            Some(values[at].as_bytes())
        };
        record(of.stream.as_bytes(), header, value)
    }

    #[test]
    fn records_go_both_ways_and_others_are_refused() {
        let record = sample();
        assert_eq!(decoded(&record, &record.frames), Ok(record.clone()));
        for len in 0..record.frames.len() {
            assert!(decoded(&record, &record.frames[..len]).is_err());
        }
        let twice = [&record.frames[..], &record.frames[..]].concat();
        assert!(decoded(&record, &twice).is_err());
        assert!(super::record(b"s", |_| None, &record.frames).is_err());
    }

    /// They stand at home for years.
    #[test]
    fn marks_are_these_bytes() {
        let place = Place { next: 2, print: 3 };
        let (key, value) = stream("s", place);
        assert_eq!(key, b"stream\0s");
        assert_eq!(value, b"\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(
            producer("s", "p", 7),
            (
                b"producer\0s\0p".to_vec(),
                b"\x01\x07\0\0\0\0\0\0\0".to_vec()
            )
        );
        let mut held = Held::default();
        take(&key, Some(&value), &mut held).unwrap();
        let mine = Owner { log: 4, session: 5 };
        let (owned, by) = owner(mine);
        take(&owned, Some(&by), &mut held).unwrap();
        take(b"producer\0s\0p", Some(b""), &mut held).unwrap();
        assert_eq!(
            (held.owner, held.streams.get("s")),
            (Some(mine), Some(&place))
        );
        take(&key, None, &mut held).unwrap();
        assert!(held.streams.is_empty());
        assert!(take(b"else", Some(b""), &mut held).is_err());
        assert!(take(&key, Some(&value[1..]), &mut held).is_err());
    }
}
