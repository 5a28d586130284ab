//! A block: some entries of a stream, packed one after the other.
//!
//! The one idea: most entries of a stream have the same fields. The names of the first one's fields stand once
//! in front; an entry with the same fields has only its values, and its id as the difference from the first.

use super::id::StreamId;
use super::number::{put, put_text, size, take, take_text};
use crate::allocator::block;

/// Most bytes of a block, unless one entry alone has more.
const BYTES: usize = 4096;
/// Most entries, including ones removed since: as Redis has it, because trimming by whole blocks
/// shows.
pub(super) const ENTRIES: u32 = 100;

/// Entries with rising ids, at least one.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Id of the entry with which the block began.
    pub(super) first: StreamId,
    /// Id of the entry that was added last.
    pub(super) last: StreamId,
    /// The names of fields, then the entries: size of what follows, id, 0 or the number of fields, values or
    /// pairs.
    bytes: Vec<u8>,
    /// The end of the names.
    names_end: u32,
    /// The start of the first remaining entry.
    start: u32,
    /// How many names there are.
    names: u32,
    pub(super) live: u32,
    pub(super) removed: u32,
}

/// An entry and its place in the block.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Id of the entry.
    pub id: StreamId,
    /// The names of the entry's fields, if it shares them with the block.
    names: Option<&'a [u8]>,
    count: u32,
    rest: &'a [u8],
}

impl<'a> Item<'a> {
    /// How many fields the entry has.
    #[must_use]
    pub fn fields(&self) -> usize {
        self.count as usize
    }

    /// Fields of the entry and their values, in order.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (mut names, mut rest) = (self.names, self.rest);
        (0..self.count).map_while(move |_| {
            let field = match &mut names {
                Some(names) => take_text(names),
                None => take_text(&mut rest),
            };
            Some((field?, take_text(&mut rest)?))
        })
    }
}

/// How an entry would be written into a block.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    shares: bool,
    /// Size of what follows.
    size: usize,
}

impl Block {
    /// A block of one entry; `pairs` are fields and values in turn, `like` the block before it.
    pub(super) fn new(id: StreamId, pairs: &[&[u8]], like: Option<&Block>) -> Block {
        let mut bytes = Vec::new();
        if let Some(like) = like {
            bytes.reserve_exact(like.bytes.len().min(BYTES));
        }
        for pair in pairs.chunks_exact(2) {
            put_text(&mut bytes, pair[0]);
        }
        let names_end = bytes.len() as u32;
        let mut block = Block {
            first: id,
            last: id,
            bytes,
            names_end,
            start: names_end,
            names: (pairs.len() / 2) as u32,
            live: 0,
            removed: 0,
        };
        let measure = block.measure(id, pairs);
        block.push(id, pairs, measure);
        block
    }

    /// Bytes of memory.
    #[inline]
    pub(super) fn heap(&self) -> usize {
        block(self.bytes.capacity())
    }

    /// Marks the block as complete: no entry will be added.
    pub(super) fn close(&mut self) {
        self.bytes.shrink_to_fit();
    }

    fn names(&self) -> &[u8] {
        &self.bytes[..self.names_end as usize]
    }

    fn shares_names(&self, pairs: &[&[u8]]) -> bool {
        let mut names = self.names();
        pairs.len() == 2 * self.names as usize
            && pairs
                .chunks_exact(2)
                .all(|pair| take_text(&mut names) == Some(pair[0]))
    }

    /// The id of an entry as the two numbers that are written.
    fn difference(&self, id: StreamId) -> (u64, u64) {
        let ms = id.ms.wrapping_sub(self.first.ms);
        if ms == 0 {
            (0, id.seq.wrapping_sub(self.first.seq))
        } else {
            (ms, id.seq)
        }
    }

    #[inline]
    pub(super) fn measure(&self, id: StreamId, pairs: &[&[u8]]) -> Measure {
        let shares = self.shares_names(pairs);
        let (ms, seq) = self.difference(id);
        let text = |text: &&[u8]| size(text.len() as u64) + text.len();
        let (form, texts) = if shares {
            (0, pairs.chunks_exact(2).map(|pair| text(&pair[1])).sum())
        } else {
            (pairs.len() / 2, pairs.iter().map(text).sum::<usize>())
        };
        Measure {
            shares,
            size: size(ms) + size(seq) + size(form as u64) + texts,
        }
    }

    #[inline]
    pub(super) fn has_room(&self, measure: Measure) -> bool {
        let more = size(measure.size as u64) + measure.size;
        self.live + self.removed < ENTRIES && self.bytes.len() + more <= BYTES
    }

    #[inline]
    pub(super) fn push(&mut self, id: StreamId, pairs: &[&[u8]], measure: Measure) {
        let (ms, seq) = self.difference(id);
        let bytes = &mut self.bytes;
        let more = size(measure.size as u64) + measure.size;
        if bytes.capacity() - bytes.len() < more {
            // Doubles, as long as the block may still grow to its most.
            let grown = (2 * bytes.capacity()).min(BYTES).max(bytes.len() + more);
            bytes.reserve_exact(grown - bytes.len());
        }
        put(bytes, measure.size as u64);
        put(bytes, ms);
        put(bytes, seq);
        if measure.shares {
            put(bytes, 0);
            pairs
                .chunks_exact(2)
                .for_each(|pair| put_text(bytes, pair[1]));
        } else {
            put(bytes, (pairs.len() / 2) as u64);
            pairs.iter().for_each(|text| put_text(bytes, text));
        }
        self.last = id;
        self.live += 1;
    }

    /// The entry at an offset, and where the next one is.
    #[inline]
    fn entry(&self, at: usize) -> Option<(Item<'_>, usize)> {
        let mut rest = self.bytes.get(at..)?;
        let size = usize::try_from(take(&mut rest)?).ok()?;
        let mut rest = rest.get(..size)?;
        let end = rest.as_ptr_range().end as usize - self.bytes.as_ptr() as usize;
        let (ms, seq) = (take(&mut rest)?, take(&mut rest)?);
        let seq = if ms == 0 {
            self.first.seq.wrapping_add(seq)
        } else {
            seq
        };
        let form = take(&mut rest)? as u32;
        let item = Item {
            id: StreamId {
                ms: self.first.ms.wrapping_add(ms),
                seq,
            },
            names: (form == 0).then(|| self.names()),
            count: if form == 0 { self.names } else { form },
            rest,
        };
        Some((item, end))
    }

    /// The offset of the first entry whose id is at least this one, or behind all. Reads nothing
    /// else of the entries in front: a reader that goes on passes half a block each time.
    fn seek(&self, from: StreamId) -> usize {
        let mut at = self.start as usize;
        if from <= self.first {
            return at;
        }
        // The difference in the form in which the block stores it.
        let ms_from = from.ms.saturating_sub(self.first.ms);
        let seq_from = |ms: u64| match ms {
            0 => from.seq.saturating_sub(self.first.seq),
            _ => from.seq,
        };
        while let Some(mut rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let before = rest.len();
            let Some(size) = take(&mut rest) else { break };
            let next = at + (before - rest.len()) + size as usize;
            let (Some(ms), Some(seq)) = (take(&mut rest), take(&mut rest)) else {
                break;
            };
            if ms > ms_from || ms == ms_from && seq >= seq_from(ms) {
                break;
            }
            at = next;
        }
        at
    }

    /// The entries from this id on.
    pub(super) fn entries_from(&self, from: StreamId) -> impl Iterator<Item = Item<'_>> {
        let mut at = self.seek(from);
        std::iter::from_fn(move || {
            let (item, next) = self.entry(at)?;
            at = next;
            Some(item)
        })
    }

    /// All entries with their offsets.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, Item<'_>)> {
        let mut at = self.start as usize;
        std::iter::from_fn(move || {
            let (item, next) = self.entry(at)?;
            Some((std::mem::replace(&mut at, next), item))
        })
    }

    /// The entry at an offset that [`entries`](Block::entries) has given.
    pub(super) fn at(&self, offset: usize) -> Option<Item<'_>> {
        self.entry(offset).map(|(item, _)| item)
    }

    /// Removes the first entry.
    pub(super) fn pop_front(&mut self) {
        if let Some((_, next)) = self.entry(self.start as usize) {
            self.start = next as u32;
            self.live -= 1;
            self.removed += 1;
        }
    }

    /// Removes an entry; returns whether it was there.
    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let at = self.seek(id);
        if self.at(at).is_none_or(|item| item.id != id) {
            return false;
        }
        if at == self.start as usize {
            self.pop_front();
            return true;
        }
        if let Some((_, next)) = self.entry(at) {
            self.bytes.drain(at..next);
            self.live -= 1;
            self.removed += 1;
        }
        true
    }

    /// Gives memory back, if most of it is of entries that were removed.
    pub(super) fn compact(&mut self) {
        let dead = (self.start - self.names_end) as usize;
        let used = self.bytes.len() - dead;
        if used < self.bytes.capacity() / 4 {
            self.bytes
                .drain(self.names_end as usize..self.start as usize);
            self.start = self.names_end;
            self.bytes.shrink_to(2 * used);
        }
    }

    /// Writes the block for a snapshot.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        super::number::put_id(to, self.first);
        super::number::put_id(to, self.last);
        put(to, u64::from(self.removed));
        put(to, u64::from(self.names));
        put_text(to, self.names());
        put_text(to, &self.bytes[self.start as usize..]);
    }

    /// Reads what [`write`](Block::write) has written; `None` if it is no block.
    pub(super) fn read(from: &mut &[u8]) -> Option<Block> {
        let (first, last) = (super::number::take_id(from)?, super::number::take_id(from)?);
        let removed = u32::try_from(take(from)?).ok()?;
        let names = u32::try_from(take(from)?).ok()?;
        let (text, entries) = (take_text(from)?, take_text(from)?);
        let mut left = text;
        for _ in 0..names {
            take_text(&mut left)?;
        }
        let names_end = u32::try_from(text.len()).ok()?;
        u32::try_from(text.len() + entries.len()).ok()?;
        let mut block = Block {
            first,
            last,
            bytes: [text, entries].concat(),
            names_end,
            start: names_end,
            names,
            live: 0,
            removed,
        };
        let (mut at, mut before) = (names_end as usize, first.before());
        while at < block.bytes.len() {
            let (item, next) = block.entry(at)?;
            let rises = before.is_none_or(|before| before < item.id) && item.id <= last;
            let whole = item.pairs().count() == item.fields() && item.count > 0;
            if !rises || !whole {
                return None;
            }
            (at, before) = (next, Some(item.id));
            block.live += 1;
        }
        let is_block = left.is_empty() && block.live > 0 && block.removed <= ENTRIES;
        is_block.then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn push(block: &mut Block, at: StreamId, pairs: &[&[u8]]) -> bool {
        let measure = block.measure(at, pairs);
        let fits = block.has_room(measure);
        if fits {
            block.push(at, pairs, measure);
        }
        fits
    }

    fn pairs(item: Item<'_>) -> Vec<(&[u8], &[u8])> {
        item.pairs().collect()
    }

    #[test]
    fn names_are_shared_with_the_first_entry_and_only_with_it() {
        let mut block = Block::new(id(5, 9), &[b"a", b"1", b"b", b"2"], None);
        let before = block.bytes.len();
        assert!(push(&mut block, id(5, 10), &[b"a", b"x", b"b", b""]));
        assert_eq!(block.bytes.len() - before, 7, "size, id, form, two values");
        assert!(push(&mut block, id(6, 0), &[b"b", b"x", b"a", b"y"]));
        assert!(push(&mut block, id(6, u64::MAX), &[b"a", b"z"]));
        let all: Vec<_> = block.entries().map(|(_, item)| item).collect();
        let ids: Vec<_> = all.iter().map(|item| item.id).collect();
        assert_eq!(ids, [id(5, 9), id(5, 10), id(6, 0), id(6, u64::MAX)]);
        assert_eq!(pairs(all[1]), [(&b"a"[..], &b"x"[..]), (b"b", b"")]);
        assert_eq!(pairs(all[2]), [(&b"b"[..], &b"x"[..]), (b"a", b"y")]);
        assert_eq!(pairs(all[3]), [(&b"a"[..], &b"z"[..])]);
    }

    #[test]
    fn entries_are_removed_anywhere() {
        let mut block = Block::new(id(1, 0), &[b"f", b"0"], None);
        for n in 1..ENTRIES {
            let value = n.to_string();
            assert!(push(&mut block, id(1, n.into()), &[b"f", value.as_bytes()]));
        }
        assert!(!push(&mut block, id(2, 0), &[b"f", b"v"]), "it is full");
        assert!(block.remove(id(1, 50)) && !block.remove(id(1, 50)));
        assert!(block.remove(id(1, 0)) && block.remove(id(1, 99)));
        assert!(!block.remove(id(1, 99)) && !block.remove(id(3, 0)));
        assert!(
            !push(&mut block, id(2, 0), &[b"f", b"v"]),
            "removed ones count"
        );
        assert_eq!((block.live, block.removed), (ENTRIES - 3, 3));
        let mut written = Vec::new();
        block.write(&mut written);
        let read = Block::read(&mut &written[..]).unwrap();
        let ids = |block: &Block| block.entries().map(|(_, item)| item.id).collect::<Vec<_>>();
        assert_eq!(ids(&read), ids(&block));
        assert_eq!((read.live, read.removed), (block.live, block.removed));
        while block.live > 3 {
            block.pop_front();
        }
        let held = block.heap();
        block.compact();
        assert!(block.heap() < held);
        assert_eq!(ids(&block), [id(1, 96), id(1, 97), id(1, 98)]);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut block = Block::new(id(1, 0), &[b"f", b"0"], None);
        assert!(push(&mut block, id(1, 7), &[b"g", b"0"]));
        let mut good = Vec::new();
        block.write(&mut good);
        for cut in 0..good.len() {
            assert!(Block::read(&mut &good[..cut]).is_none(), "{cut}");
        }
        // Whatever bytes are read, the result can be walked.
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                if let Some(block) = Block::read(&mut &bad[..]) {
                    let shown = block.entries().map(|(_, item)| item.pairs().count());
                    assert!(shown.sum::<usize>() > 0);
                }
            }
        }
    }
}
