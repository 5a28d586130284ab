//! The marks at home; see docs/howto/replicate.md.

use tidewire_replicate::{Claim, Held, Owner, Place, Share, Transaction};

/// The version of the format.
const VERSION: u8 = 1;

const OWNER: &str = "owner";
const STREAM: &str = "stream\0";
const PRODUCER: &str = "producer\0";
const CLAIM: &str = "claim";
const PLACE: &str = "place\0";
const LOG: &str = "log\0";
const NOTE: &str = "note\0";
/// Follows [`LOG`] and its number, because cursors belong to a log: programs that do not know cursors ignore
/// the mark there.
const CURSOR: &str = "cursor\0";

/// Bytes that are no valid record or mark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// A mark: its key, and its value unless it is gone.
pub(crate) type Mark = (Vec<u8>, Option<Vec<u8>>);

/// The marks of a transaction of a share.
pub(crate) fn marks(of: &Transaction, share: Share) -> Vec<Mark> {
    let (log, claim) = (of.owner.log, of.claim);
    // Records of a log stand in a partition that other logs use too.
    let own = match share {
        Share::Own { .. } => format!("{LOG}{log:016x}\0"),
        Share::Whole | Share::Partition { .. } => String::new(),
    };
    let mut marks = vec![(
        format!("{own}{OWNER}").into_bytes(),
        Some(two(of.owner.log, of.owner.session)),
    )];
    if let Some(Claim { tenure, partitions }) = claim {
        marks.push((CLAIM.into(), Some(two(tenure, partitions.into()))));
    }
    for (name, place) in &of.streams {
        let key = match claim {
            Some(Claim { tenure, .. }) => format!("{PLACE}{log:016x}\0{tenure}\0{name}"),
            None => format!("{own}{STREAM}{name}"),
        };
        marks.push((key.into_bytes(), Some(two(place.next, place.print))));
    }
    for (name, word) in &of.notes {
        let value = [&[VERSION], &word[..]].concat();
        marks.push((format!("{NOTE}{name}").into_bytes(), Some(value)));
    }
    for ((stream, name), position) in &of.cursors {
        let key = format!("{LOG}{log:016x}\0{CURSOR}{stream}\0{name}");
        marks.push((key.into_bytes(), position.map(|position| two(position, 0))));
    }
    for ((stream, name), last) in &of.producers {
        let mut value = vec![VERSION];
        value.extend_from_slice(&last.to_le_bytes());
        let key = format!("{PRODUCER}{stream}\0{name}");
        marks.push((key.into_bytes(), Some(value)));
    }
    marks
}

fn two(one: u64, other: u64) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend_from_slice(&one.to_le_bytes());
    value.extend_from_slice(&other.to_le_bytes());
    value
}

/// Takes the mark of a producer; returns whether it was one.
pub(crate) fn take_producer(
    key: &[u8],
    value: Option<&[u8]>,
    held: &mut Held,
) -> Result<bool, Malformed> {
    let name = std::str::from_utf8(key).ok();
    let Some(name) = name.and_then(|key| key.strip_prefix(PRODUCER)) else {
        return Ok(false);
    };
    if let Some((stream, producer)) = name.split_once('\0') {
        let of = (stream.into(), producer.into());
        match value {
            Some(value) => held.producers.insert(of, number(value)?),
            None => held.producers.remove(&of),
        };
    }
    Ok(true)
}

/// Applies a mark to the known marks of a share. Marks of producers are of use to a partition of a
/// fleet: otherwise the log has them.
///
/// `Ok(false)`: the bytes are a record of another program, and no mark. A later version marks indispensable changes by the
/// version of known marks.
pub(crate) fn take(
    key: &[u8],
    value: Option<&[u8]>,
    share: Share,
    held: &mut Held,
) -> Result<bool, Malformed> {
    let Ok(key) = std::str::from_utf8(key) else {
        return Ok(false);
    };
    let kinds = [PRODUCER, NOTE, LOG, STREAM, PLACE];
    if !kinds.iter().any(|kind| key.starts_with(kind)) && key != OWNER && key != CLAIM {
        return Ok(false);
    }
    if key.starts_with(PRODUCER) {
        if matches!(share, Share::Partition { .. }) {
            take_producer(key.as_bytes(), value, held)?;
        }
        return Ok(true);
    }
    if let Some(name) = key.strip_prefix(NOTE) {
        match value.map(|value| value.split_first()) {
            Some(Some((&VERSION, word))) => held.notes.insert(name.into(), word.into()),
            Some(_) => return Err(OTHER_VERSION),
            None => held.notes.remove(name),
        };
        return Ok(true);
    }
    let numbers = match value {
        None => None,
        Some(value) => Some(numbers(value).ok_or(OTHER_VERSION)?),
    };
    let (key, is_own) = match (key.strip_prefix(LOG), share) {
        (Some(of_log), Share::Own { log, .. }) => {
            match of_log.strip_prefix(&format!("{log:016x}\0")) {
                Some(key) => (key, true),
                None => return Ok(true),
            }
        }
        (Some(of_log), Share::Whole) => {
            take_cursor(of_log, numbers, held);
            return Ok(true);
        }
        (Some(_), Share::Partition { .. }) => return Ok(true),
        (None, _) => (key, false),
    };
    if is_own != matches!(share, Share::Own { .. }) {
        return Ok(true);
    }
    if let Some(stream) = key.strip_prefix(STREAM) {
        match numbers {
            Some((next, print)) => held.streams.insert(stream.into(), Place { next, print }),
            None => held.streams.remove(stream),
        };
    } else if let Some(place) = key.strip_prefix(PLACE) {
        return Ok(take_place(place, numbers, held).is_some());
    } else if key == OWNER {
        held.owner = numbers.map(|(log, session)| Owner { log, session });
    } else if key == CLAIM {
        held.claim = match numbers {
            None => None,
            Some((tenure, partitions)) => Some(Claim {
                tenure,
                partitions: u32::try_from(partitions).map_err(|_| OTHER_VERSION)?,
            }),
        };
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Notes the offset of the last transaction of the owner, if this was the mark of one: each transaction has such a mark.
pub(crate) fn note_proof(key: &[u8], offset: i64, held: &mut Held) {
    if key == OWNER.as_bytes()
        && let Some(owner) = held.owner
    {
        held.proofs
            .insert(owner, u64::try_from(offset).unwrap_or(0));
    }
}

/// A mark of the share that says up to which offset of its topic there were records: a topic that ends before is another one.
pub(crate) fn reached(offset: u64) -> Mark {
    let value = [&[VERSION], &offset.to_le_bytes()[..]].concat();
    (format!("{NOTE}{REACHED}").into_bytes(), Some(value))
}

/// The value of that mark. The mark is removed from the notes, so no other reader sees it.
pub(crate) fn take_reached(held: &mut Held) -> u64 {
    let word = held.notes.remove(REACHED);
    let word = word.as_deref().and_then(|word| word.first_chunk());
    word.copied().map_or(0, u64::from_le_bytes)
}

/// The name of that mark.
const REACHED: &str = "reached";

const OTHER_VERSION: Malformed = Malformed("a mark that is not of version 1");

/// The position of a reader in the log of one server; a fleet has its own form.
fn take_cursor(of_log: &str, numbers: Option<(u64, u64)>, held: &mut Held) {
    let of = of_log
        .split_once('\0')
        .and_then(|(_, of)| of.strip_prefix(CURSOR));
    let Some((stream, name)) = of.and_then(|of| of.split_once('\0')) else {
        return;
    };
    let of = (stream.into(), name.into());
    match numbers {
        Some((position, _)) => held.cursors.insert(of, position),
        None => held.cursors.remove(&of),
    };
}

/// How far a log is in a tenure, in one stream; `None` if the bytes are no such mark.
fn take_place(of: &str, numbers: Option<(u64, u64)>, held: &mut Held) -> Option<()> {
    let mut parts = of.splitn(3, '\0');
    let log = parts
        .next()
        .and_then(|log| u64::from_str_radix(log, 16).ok());
    let tenure = parts.next().and_then(|tenure| tenure.parse().ok());
    let of = log.zip(tenure)?;
    let stream = parts.next()?;
    let places = held.places.entry(of).or_default();
    match numbers {
        Some((next, print)) => places.insert(stream.into(), Place { next, print }),
        None => places.remove(stream),
    };
    Some(())
}

fn number(value: &[u8]) -> Result<u64, Malformed> {
    match value.split_first() {
        Some((&VERSION, number)) => {
            let number = <[u8; 8]>::try_from(number).map_err(|_| OTHER_VERSION)?;
            Ok(u64::from_le_bytes(number))
        }
        _ => Err(OTHER_VERSION),
    }
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

    /// Everything that `of` leaves behind, as a share sees it.
    fn held(of: &Transaction, share: Share) -> Held {
        let mut held = Held::default();
        for (key, value) in marks(of, share) {
            take(&key, value.as_deref(), share, &mut held).unwrap();
        }
        held
    }

    fn transaction() -> Transaction {
        let mut of = Transaction::new(Owner { log: 4, session: 5 });
        of.streams.insert("s".into(), Place { next: 2, print: 3 });
        of.producers.insert(("s".into(), "p".into()), 7);
        of
    }

    /// Marks stand at home for years, so their bytes may not change.
    #[test]
    fn marks_are_these_bytes() {
        let of = transaction();
        let two = |key: &[u8], one: u8, other: u8| {
            let value = [1, one, 0, 0, 0, 0, 0, 0, 0, other, 0, 0, 0, 0, 0, 0, 0];
            (key.to_vec(), Some(value.to_vec()))
        };
        let producer = (
            b"producer\0s\0p".to_vec(),
            Some(b"\x01\x07\0\0\0\0\0\0\0".to_vec()),
        );
        let whole = marks(&of, Share::Whole);
        let expected = [
            two(b"owner", 4, 5),
            two(b"stream\0s", 2, 3),
            producer.clone(),
        ];
        assert_eq!(whole, expected);
        let fleet = Transaction {
            claim: Some(Claim {
                tenure: 6,
                partitions: 12,
            }),
            ..transaction()
        };
        let share = Share::Partition {
            number: 1,
            count: 12,
        };
        assert_eq!(
            marks(&fleet, share),
            [
                two(b"owner", 4, 5),
                two(b"claim", 6, 12),
                two(b"place\x000000000000000004\x006\0s", 2, 3),
                producer
            ]
        );
        let own = Transaction {
            producers: Default::default(),
            ..of
        };
        let share = Share::Own { log: 4, count: 12 };
        assert_eq!(
            marks(&own, share),
            [
                two(b"log\x000000000000000004\0owner", 4, 5),
                two(b"log\x000000000000000004\0stream\0s", 2, 3)
            ]
        );
    }

    #[test]
    fn words_go_both_ways() {
        let mut of = transaction();
        of.notes.insert("snapshot".into(), b"\x01\x02"[..].into());
        let found = held(&of, Share::Whole);
        assert_eq!(found.notes, of.notes);
        let (key, value) = (b"note\0snapshot".to_vec(), b"\x01\x01\x02".to_vec());
        assert!(marks(&of, Share::Whole).contains(&(key.clone(), Some(value))));
        let mut found = found;
        take(&key, None, Share::Whole, &mut found).unwrap();
        assert!(found.notes.is_empty());
        assert!(take(&key, Some(b"\x02"), Share::Whole, &mut found).is_err());
    }

    #[test]
    fn marks_are_taken_only_by_their_owner() {
        let of = transaction();
        let place = Place { next: 2, print: 3 };
        let whole = held(&of, Share::Whole);
        assert_eq!(whole.owner, Some(of.owner));
        assert_eq!(whole.streams.get("s"), Some(&place));
        assert!(whole.producers.is_empty());
        let mut all = Held::default();
        for (key, value) in marks(&of, Share::Whole) {
            let is_one = take_producer(&key, value.as_deref(), &mut all);
            assert_eq!(is_one, Ok(key.starts_with(b"producer")));
        }
        assert_eq!(all.producers, of.producers);
        let share = Share::Partition {
            number: 1,
            count: 3,
        };
        let claim = Claim {
            tenure: 6,
            partitions: 3,
        };
        let fleet = Transaction {
            claim: Some(claim),
            ..transaction()
        };
        let found = held(&fleet, share);
        assert_eq!((found.owner, found.claim), (Some(of.owner), Some(claim)));
        assert_eq!(found.places[&(4, 6)].get("s"), Some(&place));
        assert_eq!(found.producers, of.producers);
        assert!(found.streams.is_empty());

        // A log's marks and the marks of other shares do not get in each other's way.
        let own = Share::Own { log: 4, count: 3 };
        let other = Share::Own { log: 9, count: 3 };
        assert_eq!(held(&of, own).streams.get("s"), Some(&place));
        let mut held = Held::default();
        for (key, value) in marks(&of, own).iter().chain(&marks(&fleet, share)) {
            take(key, value.as_deref(), other, &mut held).unwrap();
        }
        assert_eq!(held, Held::default());
        for (key, value) in marks(&of, own) {
            if !key.starts_with(b"producer") {
                take(&key, value.as_deref(), share, &mut held).unwrap();
            }
        }
        assert_eq!(held, Held::default());
    }

    #[test]
    fn cursors_go_both_ways_and_programs_that_know_none_pass_over_them() {
        let mut of = transaction();
        of.cursors.insert(("s".into(), "c".into()), Some(2));
        let found = held(&of, Share::Whole);
        assert_eq!(found.cursors, [(("s".into(), "c".into()), 2)].into());
        // Older versions look at the beginning of the key, and expect a value of two numbers of
        // version 1.
        let key = b"log\x000000000000000004\0cursor\0s\0c";
        let value = b"\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let mark = (key.to_vec(), Some(value.to_vec()));
        assert!(marks(&of, Share::Whole).contains(&mark));

        of.cursors.insert(("s".into(), "c".into()), None);
        assert!(marks(&of, Share::Whole).contains(&(key.to_vec(), None)));
        assert!(held(&of, Share::Whole).cursors.is_empty());
        let (mut gone, mut fleets) = (found, Held::default());
        take(key, None, Share::Whole, &mut gone).unwrap();
        assert!(gone.cursors.is_empty());
        let partition = Share::Partition {
            number: 1,
            count: 3,
        };
        for share in [partition, Share::Own { log: 9, count: 3 }] {
            take(key, Some(value), share, &mut fleets).unwrap();
        }
        assert_eq!(fleets, Held::default());
        for bad in [
            "log\0",
            "log\x004",
            "log\x004\0cursor\0s",
            "log\x004\0else\0s\0c",
        ] {
            take(bad.as_bytes(), Some(value), Share::Whole, &mut gone).unwrap();
        }
        assert!(gone.cursors.is_empty() && gone.streams.contains_key("s"));
        assert!(take(key, Some(&value[..9]), Share::Whole, &mut gone).is_err());
    }

    #[test]
    fn marks_are_removed_and_others_are_refused() {
        let share = Share::Partition {
            number: 1,
            count: 3,
        };
        let claim = Claim {
            tenure: 6,
            partitions: 3,
        };
        let fleet = Transaction {
            claim: Some(claim),
            ..transaction()
        };
        let mut found = held(&fleet, share);
        for (key, value) in marks(&fleet, share) {
            let value = value.unwrap();
            assert!(take(&key, Some(&value[1..]), share, &mut found).is_err());
            take(&key, None, share, &mut found).unwrap();
        }
        assert_eq!((found.owner, found.claim), (None, None));
        assert!(found.producers.is_empty() && found.places[&(4, 6)].is_empty());
    }

    #[test]
    fn records_of_other_programs_are_passed_over_and_marks_of_another_version_are_not() {
        let share = Share::Partition {
            number: 1,
            count: 3,
        };
        let mut found = Held::default();
        let value = two(1, 2);
        for other in [
            "else",
            "",
            "place\0x\x001\0s",
            "place\x004\0x\0s",
            "place\x004\x001",
        ] {
            let taken = take(other.as_bytes(), Some(&value), share, &mut found);
            assert_eq!(taken, Ok(false), "{other}");
        }
        for value in [None, Some(&b"hello"[..])] {
            for other in ["else", ""] {
                assert_eq!(take(other.as_bytes(), value, share, &mut found), Ok(false));
            }
            assert_eq!(take(b"\xff", value, share, &mut found), Ok(false));
        }
        assert_eq!(found.owner, None);
        for known in ["owner", "claim", "stream\0s", "note\0x"] {
            let later = [&[2][..], &value[1..]].concat();
            assert!(take(known.as_bytes(), Some(&later), Share::Whole, &mut found).is_err());
        }
    }

    #[test]
    fn how_far_its_topic_reached_goes_both_ways() {
        let (key, value) = reached(7);
        let mut held = Held::default();
        assert_eq!(take_reached(&mut held), 0);
        assert_eq!(
            take(&key, value.as_deref(), Share::Whole, &mut held),
            Ok(true)
        );
        assert_eq!(take_reached(&mut held), 7);
        assert_eq!(held, Held::default());
    }
}
