//! Values in the form in which dumps have them, and back.

use std::collections::HashSet;

use tidewire_rdb as rdb;

use crate::store::{Limits, Value, ValueRef};
use crate::types::{End, Hash, List, Pending, Set, Stream, StreamId, ZSet};

/// Converts a value to the form that a dump has.
#[must_use]
pub fn to_dump(value: ValueRef<'_>) -> rdb::Value {
    match value {
        ValueRef::Str(s) => rdb::Value::String(s.to_vec()),
        ValueRef::List(x) => {
            rdb::Value::List(x.iter_from(0).map(|element| element.to_vec()).collect())
        }
        ValueRef::Set(x) => rdb::Value::Set(x.members()),
        ValueRef::Hash(x) => {
            let mut pairs = Vec::with_capacity(x.len());
            x.each(|field, value| pairs.push((field.to_vec(), value.to_vec())));
            rdb::Value::Hash(pairs)
        }
        ValueRef::Stream(x) => rdb::Value::Stream(Box::new(stream_to_dump(x))),
        ValueRef::ZSet(x) => {
            let scored = x
                .iter()
                .map(|scored| (scored.member.to_vec(), scored.score));
            rdb::Value::ZSet(scored.collect())
        }
    }
}

fn stream_to_dump(stream: &Stream) -> rdb::Stream {
    let pair = |id: StreamId| (id.ms, id.seq);
    let entries = &stream.entries;
    let groups = stream.groups().map(|(name, group)| rdb::Group {
        name: name.to_vec(),
        last: pair(group.last()),
        read: group.read(),
        consumers: group
            .consumers()
            .map(|consumer| rdb::Consumer {
                name: consumer.name().to_vec(),
                seen_ms: consumer.seen_ms(),
                active_ms: consumer.active_ms(),
                pending: consumer
                    .pending_from(StreamId::MIN)
                    .filter_map(|id| group.pending_of(id))
                    .map(|pending| (pair(pending.id), pending.delivered_ms, pending.count))
                    .collect(),
            })
            .collect(),
    });
    rdb::Stream {
        entries: entries
            .range(StreamId::MIN, StreamId::MAX)
            .map(|item| {
                let texts = item.pairs().flat_map(|(field, value)| [field, value]);
                (pair(item.id), texts.map(<[u8]>::to_vec).collect())
            })
            .collect(),
        last: pair(entries.last_id()),
        max_deleted: pair(entries.max_deleted()),
        added: entries.added(),
        groups: groups.collect(),
    }
}

/// The value of a dump file as a value of the store; `None` if the value is empty, or has a member
/// twice.
#[must_use]
pub fn from_dump(value: rdb::Value, limits: &Limits) -> Option<Value> {
    let value = match value {
        rdb::Value::String(s) => Value::Str(s),
        rdb::Value::List(elements) => {
            let elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
            let (mut list, fit) = (List::default(), limits.list());
            list.expect(&elements, fit);
            elements.iter().for_each(|x| list.push(End::Right, x));
            list.settle(fit);
            Value::List(list)
        }
        rdb::Value::Set(members) => {
            let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
            let (mut set, fit) = (Set::default(), limits.set());
            set.reserve(&members, fit);
            let all_new = members.iter().all(|member| set.insert(member, fit));
            Value::Set(all_new.then_some(set)?)
        }
        rdb::Value::Hash(pairs) => {
            let texts: Vec<&[u8]> = pairs.iter().flat_map(|(f, v)| [&f[..], &v[..]]).collect();
            let (mut hash, fit) = (Hash::default(), limits.hash());
            hash.reserve(&texts, fit);
            for pair in texts.chunks_exact(2) {
                hash.set(pair[0], pair[1], fit);
            }
            Value::Hash((hash.len() == pairs.len()).then_some(hash)?)
        }
        rdb::Value::ZSet(members) => {
            let scored: Vec<(f64, &[u8])> = members.iter().map(|(m, s)| (*s, &m[..])).collect();
            let (mut set, fit) = (ZSet::default(), limits.zset());
            set.reserve(&scored, fit);
            let insert = |(score, member): &(f64, &[u8])| set.insert(member, *score, fit).is_none();
            let all_new = scored.iter().all(insert);
            Value::ZSet(all_new.then_some(set)?)
        }
        rdb::Value::Stream(stream) => Value::Stream(Box::new(stream_from_dump(&stream)?)),
    };
    (!value.is_void()).then_some(value)
}

/// The greatest number that commands can say.
const MOST: u64 = i64::MAX as u64;

fn stream_from_dump(dumped: &rdb::Stream) -> Option<Stream> {
    let id = |(ms, seq): rdb::Id| StreamId { ms, seq };
    let mut stream = Stream::default();
    for (at, pairs) in &dumped.entries {
        let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
        if id(*at) <= stream.entries.last_id() {
            return None;
        }
        stream.entries.append(id(*at), &pairs);
    }
    // As with XSETID, impossible counters are refused: more entries than were added, or a deleted id
    // above the last one.
    let is_told = id(dumped.last) >= stream.entries.last_id()
        && id(dumped.max_deleted) <= id(dumped.last)
        && (stream.entries.len()..=MOST).contains(&dumped.added);
    if !is_told {
        return None;
    }
    stream.set(
        id(dumped.last),
        Some(dumped.added),
        Some(id(dumped.max_deleted)),
    );
    for group in &dumped.groups {
        let pending = group.consumers.iter().flat_map(|c| &c.pending);
        let mut numbers = pending.flat_map(|(_, ms, count)| [*ms, *count]);
        let times = |c: &rdb::Consumer| [Some(c.seen_ms), c.active_ms];
        let times = group.consumers.iter().flat_map(times).flatten();
        if numbers.any(|n| n > MOST) || times.chain(group.read).any(|n| n > MOST) {
            return None;
        }
        if !stream.create_group(&group.name, id(group.last), group.read) {
            return None;
        }
        let names: HashSet<&[u8]> = group.consumers.iter().map(|c| &c.name[..]).collect();
        if names.len() != group.consumers.len() {
            return None;
        }
        stream.change_group(&group.name, |_, made| {
            for consumer in &group.consumers {
                let (number, _) = made.enter(&consumer.name, consumer.seen_ms);
                made.set_active(number, consumer.active_ms);
                for &(at, delivered_ms, count) in &consumer.pending {
                    made.assign(Pending {
                        id: id(at),
                        delivered_ms,
                        count,
                        consumer: number,
                    });
                }
            }
        });
    }
    Some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    /// A stream with a group, in which one entry waits.
    fn stream() -> rdb::Stream {
        rdb::Stream {
            entries: vec![((5, 1), texts(&["a", "b"])), ((5, 2), texts(&["c", "d"]))],
            last: (7, 0),
            max_deleted: (6, 0),
            added: 9,
            groups: vec![rdb::Group {
                name: b"g".to_vec(),
                last: (5, 1),
                read: Some(1),
                consumers: vec![rdb::Consumer {
                    name: b"c".to_vec(),
                    seen_ms: 70,
                    active_ms: Some(70),
                    pending: vec![((5, 1), 60, 2)],
                }],
            }],
        }
    }

    #[test]
    fn values_come_back_as_they_were() {
        let limits = Limits::default();
        for value in [
            rdb::Value::String(b"s\0".to_vec()),
            rdb::Value::List(texts(&["a", "", "a"])),
            rdb::Value::Set(texts(&["1", "2"])),
            rdb::Value::Hash(vec![(b"f".to_vec(), b"v".to_vec())]),
            rdb::Value::ZSet(vec![(b"m".to_vec(), -1.5), (b"a".to_vec(), 2.0)]),
            rdb::Value::Stream(Box::new(stream())),
        ] {
            let payload = rdb::dump(&value);
            let read = rdb::restore(&payload, 1 << 20).unwrap();
            let made = from_dump(read, &limits).expect("a value");
            assert_eq!(to_dump(made.as_ref()), value);
        }
    }

    #[test]
    fn what_no_command_could_have_made_is_refused() {
        let limits = Limits::default();
        let pair = |f: &str| (f.as_bytes().to_vec(), b"v".to_vec());
        for value in [
            rdb::Value::List(Vec::new()),
            rdb::Value::Set(texts(&["a", "a"])),
            rdb::Value::Set(Vec::new()),
            rdb::Value::Hash(vec![pair("f"), pair("f")]),
            rdb::Value::ZSet(vec![(b"m".to_vec(), 1.0), (b"m".to_vec(), 2.0)]),
        ] {
            assert!(from_dump(value.clone(), &limits).is_none(), "{value:?}");
        }
        type Spoil = fn(&mut rdb::Stream);
        let spoilt: [Spoil; 10] = [
            |s| s.entries[0].0 = (0, 0),
            |s| s.entries[1].0 = (5, 1),
            |s| s.last = (5, 1),
            |s| s.max_deleted = (7, 1),
            |s| s.added = 1,
            |s| s.added = u64::MAX,
            |s| s.groups.push(s.groups[0].clone()),
            |s| s.groups[0].consumers[0].seen_ms = u64::MAX,
            |s| s.groups[0].consumers[0].pending[0].2 = u64::MAX,
            |s| {
                let again = s.groups[0].consumers[0].clone();
                s.groups[0].consumers.push(again);
            },
        ];
        for (at, spoil) in spoilt.iter().enumerate() {
            let mut stream = stream();
            spoil(&mut stream);
            let value = rdb::Value::Stream(Box::new(stream));
            assert!(from_dump(value, &limits).is_none(), "{at}");
        }
    }
}
