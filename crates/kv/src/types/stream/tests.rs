//! Streams against plain vectors, and written down while they change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fastrand::Rng;

use super::*;

/// An entry as plain data.
type Plain = (StreamId, Vec<Vec<u8>>);

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

fn plain(item: Item<'_>) -> Plain {
    let texts = item.pairs().flat_map(|(field, value)| [field, value]);
    (item.id, texts.map(<[u8]>::to_vec).collect())
}

fn all(stream: &Stream) -> Vec<Plain> {
    let entries = &stream.entries;
    entries
        .range(StreamId::MIN, StreamId::MAX)
        .map(plain)
        .collect()
}

fn append(stream: &mut Stream, id: StreamId, texts: &[Vec<u8>]) {
    let texts: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
    stream.entries.append(id, &texts);
}

fn any_pairs(rng: &mut Rng) -> Vec<Vec<u8>> {
    let long = [1, 30, 3000][rng.usize(..40).saturating_sub(37)];
    (0..rng.usize(1..4))
        .flat_map(|at| {
            let name = [b'a' + at as u8 + u8::from(rng.u8(..10) == 0)].to_vec();
            [name, vec![b'v'; rng.usize(..long + 1)]]
        })
        .collect()
}

/// Changes both in the same way.
fn change(stream: &mut Stream, model: &mut Vec<Plain>, rng: &mut Rng) {
    let some = |rng: &mut Rng, model: &[Plain]| match model.len() {
        0 => id(5, 5),
        n => model[rng.usize(..n)].0,
    };
    match rng.u8(..40) {
        0 => {
            let least = some(rng, model);
            let before = model.len();
            model.retain(|(id, _)| *id >= least);
            let gone = stream.entries.trim(Trim::MinId(least), false, 0);
            assert_eq!(gone as usize, before - model.len());
        }
        1 => {
            let most = rng.usize(..model.len() + 2);
            let gone = model.len().saturating_sub(most);
            model.drain(..gone);
            let trimmed = stream.entries.trim(Trim::MaxLen(most as u64), false, 0);
            assert_eq!(trimmed as usize, gone);
        }
        2 => {
            let most = rng.usize(..model.len() + 2);
            let limit = rng.u64(..300);
            let gone = stream.entries.trim(Trim::MaxLen(most as u64), true, limit);
            assert!(gone as usize <= model.len().saturating_sub(most));
            assert!(limit == 0 || gone <= limit);
            model.drain(..gone as usize);
        }
        3..12 => {
            let gone = some(rng, model);
            let at = model.iter().position(|(id, _)| *id == gone);
            assert_eq!(stream.entries.delete(gone), at.is_some());
            at.map(|at| model.remove(at));
        }
        _ => {
            let last = stream.entries.last_id();
            let next = match rng.u8(..3) {
                0 => id(last.ms + rng.u64(1..5000), rng.u64(..3)),
                _ => id(last.ms, last.seq + rng.u64(1..4)),
            };
            let pairs = any_pairs(rng);
            append(stream, next, &pairs);
            model.push((next, pairs));
        }
    }
}

#[test]
fn does_what_a_plain_vector_does() {
    for seed in 0..40 {
        let rng = &mut Rng::with_seed(seed);
        let (mut stream, mut model) = (Stream::default(), Vec::new());
        for _ in 0..800 {
            change(&mut stream, &mut model, rng);
            let entries = &stream.entries;
            assert_eq!(entries.len() as usize, model.len());
            let ends = (model.first(), model.last());
            let ends = (ends.0.map(|e| e.0), ends.1.map(|e| e.0));
            assert_eq!(entries.first_id(), ends.0.unwrap_or_default());
            assert_eq!(entries.top(), ends.1.unwrap_or_default());
        }
        assert_eq!(all(&stream), model);
        let entries = &stream.entries;
        for _ in 0..50 {
            let (from, to) = (id(rng.u64(..2_000_000), 0), id(rng.u64(..2_000_000), 1));
            let within = || {
                model
                    .iter()
                    .filter(|(id, _)| (from..=to).contains(id))
                    .cloned()
            };
            if from <= to {
                assert!(entries.range(from, to).map(plain).eq(within()));
                let back: Vec<_> = entries.range_back(from, to).map(plain).collect();
                assert!(back.into_iter().rev().eq(within()));
            }
        }
        let heap: &mut usize = &mut 0;
        entries.each_block(|block| *heap += block.heap());
        assert!(entries.heap() >= *heap && entries.heap() < *heap + 20_000);
    }
}

/// Gives, acknowledges and moves entries.
fn change_groups(stream: &mut Stream, rng: &mut Rng) {
    let name = [b'g', rng.u8(..3)];
    let consumer = [b'c', rng.u8(..3)];
    match rng.u8(..20) {
        0 => drop(stream.create_group(&name, StreamId::MIN, Some(0))),
        1 if rng.u8(..4) == 0 => drop(stream.destroy_group(&name)),
        2 => drop(stream.change_group(&name, |_, group| group.dismiss(&consumer))),
        act => {
            let ms = rng.u64(..1000);
            stream.change_group(&name, |entries, group| {
                let (number, _) = group.enter(&consumer, ms);
                group.note(number, ms, act % 2 == 0);
                let from = if act < 10 {
                    group.last()
                } else {
                    StreamId::MIN
                };
                let items = entries.range(from, StreamId::MAX).step_by(rng.usize(1..4));
                for item in items.take(rng.usize(..9)) {
                    group.advance(entries, item.id);
                    group.assign(Pending {
                        id: item.id,
                        delivered_ms: ms,
                        count: rng.u64(1..9),
                        consumer: number,
                    });
                }
                for item in entries
                    .range(StreamId::MIN, StreamId::MAX)
                    .take(rng.usize(..6))
                {
                    group.acknowledge(item.id);
                }
            });
        }
    }
}

/// All of a stream, as it is written down.
fn written(stream: &Stream) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let count = stream.put_parts(&mut bytes);
    let parts = split(&bytes);
    assert_eq!(parts.len(), count);
    parts
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<_> = std::iter::from_fn(|| number::take_text(&mut bytes))
        .map(<[u8]>::to_vec)
        .collect();
    parts.sort();
    parts
}

fn read(parts: &[Vec<u8>]) -> Stream {
    let mut stream = Stream::default();
    for part in parts {
        assert!(stream.put_part(part), "{}", part.escape_ascii());
    }
    stream
}

#[test]
fn what_is_written_down_in_any_order_is_read() {
    for seed in 0..30 {
        let rng = &mut Rng::with_seed(seed);
        let (mut stream, mut model) = (Stream::default(), Vec::new());
        for _ in 0..600 {
            change(&mut stream, &mut model, rng);
            change_groups(&mut stream, rng);
        }
        let mut parts = written(&stream);
        let sorted = parts.clone();
        rng.shuffle(&mut parts);
        let copy = read(&parts);
        assert_eq!(written(&copy), sorted, "seed {seed}");
        assert_eq!(all(&copy), model);
        assert_eq!(written(&stream.clone()), sorted);
        // A part that comes twice, or is damaged, is refused or is another one; nothing panics.
        for _ in 0..200 {
            let mut part = parts[rng.usize(..parts.len())].clone();
            let at = rng.usize(..part.len());
            part[at] ^= 1 << rng.u8(..8);
            let mut other = Stream::default();
            if other.put_part(&part) {
                written(&other);
                all(&other);
            }
        }
    }
}

#[test]
fn it_is_written_down_as_it_was_while_it_changes() {
    for seed in 0..60 {
        let rng = &mut Rng::with_seed(seed);
        let (mut stream, mut model) = (Stream::default(), Vec::new());
        for _ in 0..rng.usize(1..900) {
            change(&mut stream, &mut model, rng);
            change_groups(&mut stream, rng);
        }
        let before = written(&stream);
        let queued = Arc::new(AtomicUsize::new(0));
        stream.freeze(7, &queued);
        let mut pieces = Vec::new();
        assert_eq!(stream.frozen_id(), Some(7));
        while !stream.thaw(rng.usize(1..3000), &mut pieces) {
            for _ in 0..rng.usize(..30) {
                change(&mut stream, &mut model, rng);
                change_groups(&mut stream, rng);
            }
        }
        assert_eq!((stream.frozen_id(), queued.load(Relaxed)), (None, 0));
        let mut bytes = Vec::new();
        pieces
            .iter()
            .for_each(|piece| bytes.extend_from_slice(&piece.bytes));
        let parts = split(&bytes);
        assert_eq!(parts.len(), pieces.iter().map(|piece| piece.count).sum());
        let groups = stream
            .groups()
            .map(|(name, group)| block(name.len()) + group.heap());
        assert_eq!(stream.groups_heap, groups.sum());
        let after = read(&parts);
        assert_eq!(written(&after), before, "seed {seed}");
        assert_eq!(all(&stream), model);
    }
}

#[test]
fn it_is_freed_in_steps_and_counts_down_to_nothing() {
    let mut stream = Stream::default();
    stream.create_group(b"g", StreamId::MIN, None);
    for ms in 1..=20_000 {
        append(&mut stream, id(ms, 0), &[b"f".to_vec(), b"v".to_vec()]);
    }
    stream.change_group(b"g", |entries, group| {
        let (number, _) = group.enter(b"c", 1);
        for item in entries.range(StreamId::MIN, StreamId::MAX) {
            group.assign(Pending {
                id: item.id,
                delivered_ms: 1,
                count: 1,
                consumer: number,
            });
        }
    });
    // What is counted is what is there, also of a copy.
    for copy in [stream.clone(), stream.clone()] {
        let held = copy.bytes();
        let (blocks, groups) = (copy.entries.heap(), copy.groups_heap);
        drop(copy);
        assert!(held > blocks + groups && held <= stream.bytes());
    }
    let before = stream.bytes();
    let mut steps = 0;
    loop {
        let freed = stream.free_some(1024);
        assert!(freed <= 1024 + 200);
        steps += 1;
        if freed < 1024 {
            break;
        }
    }
    assert!((50..80).contains(&steps), "{steps}");
    assert!(
        stream.bytes() < before / 50,
        "{} of {before}",
        stream.bytes()
    );
    assert_eq!(stream.groups_heap, 0);
}

/// Small entries with the same fields take little beside their values.
#[test]
fn entries_are_compact() {
    let mut stream = Stream::default();
    let pairs = ["sensor", "1234", "temperature", "19.5"].map(|text| text.as_bytes().to_vec());
    for n in 0..10_000 {
        append(&mut stream, id(1_700_000_000_000 + n * 3, 0), &pairs);
    }
    let each = stream.bytes() / 10_000;
    assert!(each < 20, "{each} bytes for 8 of values");
}
