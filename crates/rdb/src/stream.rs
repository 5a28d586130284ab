//! Streams: entries in listpacks behind the id of the first of each, then counters of removed
//! entries, and groups. Each version of the form knows more than the one before.

use crate::cursor::{Cursor, Fault};
use crate::packed::{ListpackWriter, listpack};
use crate::write::{length, string};

/// The id of an entry: milliseconds, and a number within them.
pub type Id = (u64, u64);

/// Entries, and groups that read them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Entries: their ids, and fields and values in turn; ids rise.
    pub entries: Vec<(Id, Vec<Vec<u8>>)>,
    /// The id of the last one that ever was.
    pub last: Id,
    /// The greatest id that was deleted.
    pub max_deleted: Id,
    /// How many entries were ever added.
    pub added: u64,
    /// The groups by name.
    pub groups: Vec<Group>,
}

/// A group of consumers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Name of the group.
    pub name: Vec<u8>,
    /// The last entry that was delivered to a consumer.
    pub last: Id,
    /// How many entries had been added then, if it is known.
    pub read: Option<u64>,
    /// The consumers by name.
    pub consumers: Vec<Consumer>,
}

/// A consumer that reads. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumer {
    /// Name of the consumer.
    pub name: Vec<u8>,
    /// The time of the consumer's last request.
    pub seen_ms: u64,
    /// When the consumer was last given an entry, `None` for never. Streams of before Redis 7.2 do not say; as there, it is
    /// taken to be when the consumer last asked.
    pub active_ms: Option<u64>,
    /// Entries that the consumer was given and has not acknowledged: the id, the time of the last
    /// delivery, and the number of deliveries.
    pub pending: Vec<(Id, u64, u64)>,
}

/// The type of a stream in the form that is written, that of Redis 7.0.
pub(crate) const KIND: u8 = 19;
/// The type of Redis 5, which counts nothing, and of Redis 7.2, which knows when consumers were
/// given something.
const FIRST: u8 = 15;
const WITH_ACTIVITY: u8 = 21;

/// Entries, and bytes, of a listpack that is written.
const ENTRIES: usize = 100;
const BYTES: usize = 4096;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

const BAD: Fault = Fault::Bad("a stream whose entries cannot be read");

/// Whether a type is that of a stream.
pub(crate) fn is_stream(kind: u8) -> bool {
    [FIRST, KIND, WITH_ACTIVITY].contains(&kind)
}

/// The elements of a listpack, one after another.
struct Elements(std::vec::IntoIter<Vec<u8>>);

impl Elements {
    fn text(&mut self) -> Result<Vec<u8>, Fault> {
        self.0.next().ok_or(BAD)
    }

    fn number(&mut self) -> Result<i64, Fault> {
        let text = self.text()?;
        let text = std::str::from_utf8(&text).ok();
        text.and_then(|text| text.parse().ok()).ok_or(BAD)
    }

    fn count(&mut self) -> Result<usize, Fault> {
        let n = usize::try_from(self.number()?).map_err(|_| BAD)?;
        // Each list has at least one element.
        Some(n).filter(|n| *n <= self.0.len()).ok_or(BAD)
    }

    fn texts(&mut self, n: usize) -> Result<Vec<Vec<u8>>, Fault> {
        (0..n).map(|_| self.text()).collect()
    }
}

fn take_id(cursor: &mut Cursor<'_>) -> Result<Id, Fault> {
    Ok((cursor.length()? as u64, cursor.length()? as u64))
}

fn take_raw_id(cursor: &mut Cursor<'_>) -> Result<Id, Fault> {
    let ms = u64::from_be_bytes(cursor.array()?);
    Ok((ms, u64::from_be_bytes(cursor.array()?)))
}

/// The entries of one listpack.
fn take_entries(cursor: &mut Cursor<'_>, to: &mut Stream) -> Result<(), Fault> {
    let first = cursor.string()?;
    let first: [u8; 16] = first.try_into().map_err(|_| BAD)?;
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&first[at..at + 8]);
        u64::from_be_bytes(bytes)
    };
    let (ms, seq) = (half(0), half(8));
    let mut elements = Elements(cursor.packed(listpack)?.into_iter());
    let (live, deleted) = (elements.count()?, elements.count()?);
    let names = elements.count()?;
    let names = elements.texts(names)?;
    elements.text()?;
    for _ in 0..live.checked_add(deleted).ok_or(BAD)? {
        let flags = elements.number()?;
        let id = (
            ms.wrapping_add(elements.number()? as u64),
            seq.wrapping_add(elements.number()? as u64),
        );
        let pairs = if flags & SAME_FIELDS != 0 {
            let values = elements.texts(names.len())?;
            let bytes: usize = names.iter().map(|name| name.len() + 32).sum();
            cursor.charge(bytes)?;
            names
                .iter()
                .cloned()
                .zip(values)
                .flat_map(|(a, b)| [a, b])
                .collect()
        } else {
            let n = elements.count()?.checked_mul(2).ok_or(BAD)?;
            elements.texts(n)?
        };
        elements.number()?;
        if flags & DELETED != 0 {
            continue;
        }
        if pairs.is_empty() || to.entries.last().is_some_and(|(last, _)| *last >= id) {
            return Err(BAD);
        }
        to.entries.push((id, pairs));
    }
    Ok(())
}

/// Reads a stream of a type.
pub(crate) fn take(kind: u8, cursor: &mut Cursor<'_>) -> Result<Stream, Fault> {
    let mut stream = Stream::default();
    for _ in 0..cursor.length()? {
        take_entries(cursor, &mut stream)?;
    }
    if cursor.length()? != stream.entries.len() {
        return Err(Fault::Bad("a stream of another length than it says"));
    }
    stream.last = take_id(cursor)?;
    stream.added = stream.entries.len() as u64;
    if kind >= KIND {
        take_id(cursor)?;
        stream.max_deleted = take_id(cursor)?;
        stream.added = cursor.length()? as u64;
    }
    if stream
        .entries
        .last()
        .is_some_and(|(id, _)| *id > stream.last)
    {
        return Err(BAD);
    }
    for _ in 0..cursor.length()? {
        let mut group = take_group(kind, cursor)?;
        if kind < KIND {
            group.read = read_before(&stream, group.last);
        }
        stream.groups.push(group);
    }
    Ok(stream)
}

/// How many entries a group has read whose last id is `last`. Streams from before 7.0 do not store the number;
/// `None` if it cannot be known. The present entries count as all entries that ever were.
fn read_before(stream: &Stream, last: Id) -> Option<u64> {
    let first = stream.entries.first().map(|(id, _)| *id);
    match first {
        _ if last == stream.last => Some(stream.added),
        None if last < stream.last => Some(stream.added),
        Some(first) if last < first => Some(0),
        Some(first) if last == first => Some(1),
        _ => None,
    }
}

fn take_group(kind: u8, cursor: &mut Cursor<'_>) -> Result<Group, Fault> {
    let mut group = Group {
        name: cursor.string()?,
        last: take_id(cursor)?,
        ..Group::default()
    };
    if kind >= KIND {
        let read = cursor.length()? as u64;
        group.read = (read != u64::MAX).then_some(read);
    }
    let mut given = std::collections::BTreeMap::new();
    for _ in 0..cursor.length()? {
        let id = take_raw_id(cursor)?;
        let ms = u64::from_le_bytes(cursor.array()?);
        cursor.charge(32)?;
        given.insert(id, (ms, cursor.length()? as u64));
    }
    for _ in 0..cursor.length()? {
        let mut consumer = Consumer {
            name: cursor.string()?,
            seen_ms: u64::from_le_bytes(cursor.array()?),
            ..Consumer::default()
        };
        consumer.active_ms = match kind {
            WITH_ACTIVITY.. => u64::try_from(i64::from_le_bytes(cursor.array()?)).ok(),
            _ => Some(consumer.seen_ms),
        };
        for _ in 0..cursor.length()? {
            let id = take_raw_id(cursor)?;
            // Each pending entry belongs to one consumer.
            let (ms, count) = given
                .remove(&id)
                .ok_or(Fault::Bad("an entry that a group has not given"))?;
            consumer.pending.push((id, ms, count));
        }
        group.consumers.push(consumer);
    }
    Ok(group)
}

fn put_id(to: &mut Vec<u8>, (ms, seq): Id) {
    length(to, ms as usize);
    length(to, seq as usize);
}

fn put_raw_id(to: &mut Vec<u8>, (ms, seq): Id) {
    to.extend_from_slice(&ms.to_be_bytes());
    to.extend_from_slice(&seq.to_be_bytes());
}

/// How many of the first entries go into one listpack.
fn block(entries: &[(Id, Vec<Vec<u8>>)]) -> usize {
    let mut bytes = 0;
    let fit = entries.iter().take(ENTRIES).take_while(|(_, pairs)| {
        let fits = bytes < BYTES;
        bytes += pairs.iter().map(|text| text.len() + 2).sum::<usize>();
        fits
    });
    fit.count()
}

fn put_entries(to: &mut Vec<u8>, entries: &[(Id, Vec<Vec<u8>>)]) {
    let (first, pairs) = &entries[0];
    let names: Vec<&Vec<u8>> = pairs.iter().step_by(2).collect();
    let mut all = ListpackWriter::default();
    all.number(entries.len() as i64);
    all.number(0);
    all.number(names.len() as i64);
    names.iter().for_each(|name| all.text(name));
    all.number(0);
    for ((ms, seq), pairs) in entries {
        let same = pairs.iter().step_by(2).eq(names.iter().copied());
        all.number(if same { SAME_FIELDS } else { 0 });
        all.number(ms.wrapping_sub(first.0) as i64);
        all.number(seq.wrapping_sub(first.1) as i64);
        let mut elements = 3;
        if same {
            pairs
                .iter()
                .skip(1)
                .step_by(2)
                .for_each(|text| all.text(text));
            elements += pairs.len() / 2;
        } else {
            all.number((pairs.len() / 2) as i64);
            pairs.iter().for_each(|text| all.text(text));
            elements += pairs.len() + 1;
        }
        all.number(elements as i64);
    }
    let mut id = Vec::with_capacity(16);
    put_raw_id(&mut id, *first);
    string(to, &id);
    string(to, &all.end());
}

/// Writes a stream.
pub(crate) fn put(to: &mut Vec<u8>, stream: &Stream) {
    let (mut rest, mut blocks) = (&stream.entries[..], Vec::new());
    while !rest.is_empty() {
        let (these, others) = rest.split_at(block(rest));
        blocks.push(these);
        rest = others;
    }
    length(to, blocks.len());
    blocks.iter().for_each(|entries| put_entries(to, entries));
    length(to, stream.entries.len());
    put_id(to, stream.last);
    put_id(to, stream.entries.first().map_or((0, 0), |(id, _)| *id));
    put_id(to, stream.max_deleted);
    length(to, stream.added as usize);
    length(to, stream.groups.len());
    for group in &stream.groups {
        string(to, &group.name);
        put_id(to, group.last);
        length(to, group.read.unwrap_or(u64::MAX) as usize);
        let mut pending: Vec<_> = group.consumers.iter().flat_map(|c| &c.pending).collect();
        pending.sort_unstable();
        length(to, pending.len());
        for (id, ms, count) in pending {
            put_raw_id(to, *id);
            to.extend_from_slice(&ms.to_le_bytes());
            length(to, *count as usize);
        }
        length(to, group.consumers.len());
        for consumer in &group.consumers {
            string(to, &consumer.name);
            to.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            length(to, consumer.pending.len());
            for (id, ..) in &consumer.pending {
                put_raw_id(to, *id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_group_of_an_old_stream_has_read_is_told_where_it_can_be() {
        let entry = |ms| ((ms, 0), vec![b"a".to_vec(), b"1".to_vec()]);
        let stream = Stream {
            entries: vec![entry(5), entry(6), entry(8)],
            last: (9, 0),
            added: 3,
            ..Stream::default()
        };
        let read = |ms| read_before(&stream, (ms, 0));
        let told = [0, 4, 5, 6, 8, 9, 10].map(read);
        let known = [Some(0), Some(0), Some(1), None, None, Some(3), None];
        assert_eq!(told, known);
        let empty = Stream {
            last: (9, 0),
            ..Stream::default()
        };
        assert_eq!(
            [3, 9, 10].map(|ms| read_before(&empty, (ms, 0))),
            [Some(0), Some(0), None]
        );
    }
}
