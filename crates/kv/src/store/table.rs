//! The keys of one database in one shard: a hash table that grows and shrinks a bucket at a time.
//!
//! Linear hashing (Litwin, 1980). A bucket is one cache line: seven tagged entries, and the number of
//! a spill bucket if more keys hash to it; every bucket of a chain but the last is full. When the
//! load is too high, the next bucket in line is split in two; when it is low, the last one is merged
//! back. So the work for an operation is bounded, the load is equal at any size, and the table is
//! never copied as a whole. Buckets live in segments, which do not move.
//!
//! The scan cursor walks the hashes in the order of their reversed bits. In that order each bucket
//! is an interval, and to split or merge buckets cuts or joins intervals; so a scan that goes on at
//! the end of the interval it has shown misses nothing.

use super::memory::{Entry, prefetch};
use crate::allocator::block_of;
use crate::hash::HashKey;

const SLOTS: usize = 7;
const SEGMENT: usize = 64;
/// Entries for ten buckets above which the table grows, and below which it shrinks.
const FULL: usize = 56;
const SPARSE: usize = 20;
/// Set in the number of a spill bucket.
const SPILL: u32 = 1 << 31;
/// No bucket.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
#[repr(align(64))]
struct Bucket {
    slots: [Option<Entry>; SLOTS],
    /// The spill bucket of this bucket.
    next: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64, "a cache line");

type Segment = [Bucket; SEGMENT];

fn segment() -> Box<Segment> {
    Box::new(std::array::from_fn(|_| Bucket {
        slots: Default::default(),
        next: NONE,
    }))
}

/// A table of entries by key.
#[derive(Debug)]
pub(crate) struct Table {
    segments: Vec<Box<Segment>>,
    spill: Vec<Box<Segment>>,
    spill_free: Vec<u32>,
    len: usize,
    /// Buckets at the beginning of this round of splitting, less one; a power of two less one.
    mask: usize,
    /// The bucket that is split next: all earlier buckets have been split.
    split: usize,
    hasher: HashKey,
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash >> 32) as u16 & 0x7fff
}

impl Table {
    pub(crate) fn new(hasher: HashKey) -> Table {
        Table {
            segments: Vec::new(),
            spill: Vec::new(),
            spill_free: Vec::new(),
            len: 0,
            mask: 0,
            split: 0,
            hasher,
        }
    }

    /// An empty one that hashes alike.
    pub(crate) fn take(&mut self) -> Table {
        let empty = Table::new(self.hasher);
        std::mem::replace(self, empty)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Buckets, without spill buckets.
    #[inline]
    pub(crate) fn buckets(&self) -> usize {
        if self.segments.is_empty() {
            0
        } else {
            self.mask + 1 + self.split
        }
    }

    /// The hash of a key of this table.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    #[inline]
    fn home(&self, hash: u64) -> u32 {
        let hash = hash as usize;
        let at = hash & self.mask;
        (if at < self.split {
            hash & (2 * self.mask + 1)
        } else {
            at
        }) as u32
    }

    #[inline]
    fn segment(&self, at: u32) -> &Segment {
        let n = (at & !SPILL) as usize / SEGMENT;
        if at & SPILL == 0 {
            &self.segments[n]
        } else {
            &self.spill[n]
        }
    }

    #[inline]
    fn segment_mut(&mut self, at: u32) -> &mut Segment {
        let n = (at & !SPILL) as usize / SEGMENT;
        if at & SPILL == 0 {
            &mut self.segments[n]
        } else {
            &mut self.spill[n]
        }
    }

    #[inline]
    fn bucket(&self, at: u32) -> &Bucket {
        &self.segment(at)[at as usize % SEGMENT]
    }

    #[inline]
    fn bucket_mut(&mut self, at: u32) -> &mut Bucket {
        &mut self.segment_mut(at)[at as usize % SEGMENT]
    }

    #[inline]
    fn next(&self, at: u32) -> u32 {
        self.bucket(at).next
    }

    fn set_next(&mut self, at: u32, next: u32) {
        self.bucket_mut(at).next = next;
    }

    /// The bucket and slot of a key.
    #[inline]
    fn position(&self, hash: u64, key: &[u8]) -> Option<(u32, usize)> {
        if self.segments.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        let tag = tag(hash);
        loop {
            for (i, slot) in self.bucket(at).slots.iter().enumerate() {
                // Without holes: the first empty slot ends the chain.
                let entry = slot.as_ref()?;
                if entry.tag() == tag && entry.key() == key {
                    return Some((at, i));
                }
            }
            at = self.next(at);
            if at == NONE {
                return None;
            }
        }
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        let (at, i) = self.position(hash, key)?;
        self.bucket(at).slots[i].as_ref()
    }

    /// Finds an entry for changes; the caller must not change the key.
    #[inline]
    pub(crate) fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut Entry> {
        let (at, i) = self.position(hash, key)?;
        self.bucket_mut(at).slots[i].as_mut()
    }

    /// Adds an entry whose key is not there.
    pub(crate) fn insert(&mut self, hash: u64, mut entry: Entry) {
        debug_assert!(self.find(hash, entry.key()).is_none());
        if self.segments.is_empty() {
            self.segments.push(segment());
        }
        entry.set_tag(tag(hash));
        self.push(self.home(hash), entry);
        self.len += 1;
        if self.len * 10 > self.buckets() * FULL {
            self.grow();
        }
    }

    /// Puts an entry at the end of a bucket's chain.
    fn push(&mut self, mut at: u32, entry: Entry) {
        loop {
            if let Some(free) = self
                .bucket_mut(at)
                .slots
                .iter_mut()
                .find(|slot| slot.is_none())
            {
                *free = Some(entry);
                return;
            }
            let next = self.next(at);
            if next == NONE {
                break;
            }
            at = next;
        }
        let more = self.spill_bucket();
        self.set_next(at, more);
        self.bucket_mut(more).slots[0] = Some(entry);
    }

    fn spill_bucket(&mut self) -> u32 {
        if self.spill_free.is_empty() {
            let first = (self.spill.len() * SEGMENT) as u32 | SPILL;
            self.spill.push(segment());
            self.spill_free
                .extend((first..first + SEGMENT as u32).rev());
        }
        self.spill_free.pop().expect("there are some now")
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Entry> {
        let (at, i) = self.position(hash, key)?;
        let entry = self.bucket_mut(at).slots[i].take();
        // The last of the chain fills the hole.
        let (mut before, mut last) = (NONE, self.home(hash));
        while self.next(last) != NONE {
            (before, last) = (last, self.next(last));
        }
        let last_slot = self.bucket(last).slots.iter().rposition(Option::is_some);
        if let Some(from) = last_slot
            && (last != at || from > i)
        {
            let moved = self.bucket_mut(last).slots[from].take();
            self.bucket_mut(at).slots[i] = moved;
        }
        if before != NONE && self.bucket(last).slots[0].is_none() {
            self.set_next(before, NONE);
            self.spill_free.push(last);
        }
        self.len -= 1;
        if self.len * 10 < self.buckets() * SPARSE && self.buckets() > 1 {
            self.shrink();
        }
        entry
    }

    /// Splits one bucket.
    fn grow(&mut self) {
        let new = self.mask + 1 + self.split;
        if new / SEGMENT == self.segments.len() {
            self.segments.push(segment());
        }
        let entries = self.drain(self.split as u32);
        self.split += 1;
        if self.split > self.mask {
            (self.mask, self.split) = (2 * self.mask + 1, 0);
        }
        for entry in entries {
            let home = self.home(self.hasher.hash(entry.key()));
            self.push(home, entry);
        }
    }

    /// Merges the last bucket with the one it was split from.
    fn shrink(&mut self) {
        if self.split == 0 {
            self.mask /= 2;
            self.split = self.mask + 1;
        }
        self.split -= 1;
        let last = self.mask + 1 + self.split;
        for entry in self.drain(last as u32) {
            self.push(self.split as u32, entry);
        }
        if last.is_multiple_of(SEGMENT) {
            self.segments.pop();
        }
    }

    /// Takes all entries out of a chain.
    fn drain(&mut self, at: u32) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(2 * SLOTS);
        let mut part = at;
        while part != NONE {
            entries.extend(
                self.bucket_mut(part)
                    .slots
                    .iter_mut()
                    .filter_map(Option::take),
            );
            let next = self.next(part);
            self.set_next(part, NONE);
            if part != at {
                self.spill_free.push(part);
            }
            part = next;
        }
        entries
    }

    /// Shows the entries of the chain of a bucket below [`buckets`](Table::buckets).
    pub(crate) fn visit<'t>(&'t self, bucket: usize, visit: &mut dyn FnMut(&'t Entry)) {
        let mut at = bucket as u32;
        while at != NONE {
            self.bucket(at).slots.iter().flatten().for_each(&mut *visit);
            at = self.next(at);
        }
    }

    /// Shows the entries of one bucket at `cursor`; returns where to go on, 0 at the end.
    pub(crate) fn scan(&self, cursor: u64, visit: &mut dyn FnMut(&Entry)) -> u64 {
        if self.segments.is_empty() {
            return 0;
        }
        let at = self.home(cursor) as usize;
        self.visit(at, &mut |entry| visit(entry));
        self.after(at, cursor)
    }

    /// [`scan`](Table::scan) for a caller that changes entries and leaves their keys as they are.
    pub(crate) fn scan_mut(&mut self, cursor: u64, visit: &mut dyn FnMut(&mut Entry)) -> u64 {
        if self.segments.is_empty() {
            return 0;
        }
        let first = self.home(cursor);
        let mut at = first;
        while at != NONE {
            let bucket = self.bucket_mut(at);
            bucket.slots.iter_mut().flatten().for_each(&mut *visit);
            at = bucket.next;
        }
        self.after(first as usize, cursor)
    }

    /// The cursor behind the bucket that was scanned.
    fn after(&self, at: usize, cursor: u64) -> u64 {
        let is_split = at < self.split || at > self.mask;
        let mask = if is_split {
            2 * self.mask + 1
        } else {
            self.mask
        };
        (cursor | !(mask as u64))
            .reverse_bits()
            .wrapping_add(1)
            .reverse_bits()
    }

    #[cfg(test)]
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        for bucket in 0..self.buckets() {
            self.visit(bucket, &mut |entry| visit(entry));
        }
    }

    /// Any entry, by chance: nearly the same for all.
    pub(crate) fn random(&self, rng: &mut fastrand::Rng) -> Option<&Entry> {
        if self.len == 0 {
            return None;
        }
        let start = rng.usize(..self.buckets());
        for i in 0..self.buckets() {
            let mut found = Vec::new();
            self.visit((start + i) % self.buckets(), &mut |entry| found.push(entry));
            if !found.is_empty() {
                return Some(found[rng.usize(..found.len())]);
            }
        }
        None
    }

    /// Takes about `most` entries out of a removed table; returns how many, fewer if there are no
    /// more.
    pub(crate) fn free_some(&mut self, most: usize, take: &mut dyn FnMut(Entry)) -> usize {
        let mut taken = 0;
        while taken < most
            && let Some(mut segment) = self.segments.pop().or_else(|| self.spill.pop())
        {
            for slot in segment.iter_mut().flat_map(|bucket| &mut bucket.slots) {
                if let Some(entry) = slot.take() {
                    taken += 1;
                    take(entry);
                }
            }
        }
        self.len -= taken;
        taken
    }

    /// Begins to bring the bucket of a hash into the cache.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        if !self.segments.is_empty() {
            prefetch(self.bucket(self.home(hash)));
        }
    }

    /// Begins to bring the entries that may have this hash into the cache.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) {
        if self.segments.is_empty() {
            return;
        }
        let tag = tag(hash);
        let bucket = self.bucket(self.home(hash));
        let mut found = false;
        for entry in bucket.slots.iter().flatten() {
            if entry.tag() == tag {
                entry.prefetch();
                found = true;
            }
        }
        if !found && bucket.next != NONE {
            prefetch(self.bucket(bucket.next));
        }
    }

    /// Bytes of memory that the table takes without its entries.
    pub(crate) fn bytes(&self) -> usize {
        let lists = self.segments.capacity() + self.spill.capacity();
        (self.segments.len() + self.spill.len()) * block_of::<Segment>(1)
            + block_of::<Box<Segment>>(lists)
            + block_of::<u32>(self.spill_free.capacity())
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "what is in a set counts, not its order"
)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::super::value::ValueRef;
    use super::*;

    fn key(n: u32) -> Vec<u8> {
        n.to_string().into_bytes()
    }

    fn number(key: &[u8]) -> u32 {
        std::str::from_utf8(key).unwrap().parse().unwrap()
    }

    struct Model(Table);

    impl Model {
        fn new() -> Model {
            Model(Table::new(HashKey::from_seed(7)))
        }

        fn hash(&self, n: u32) -> u64 {
            self.0.hasher.hash(&key(n))
        }

        fn insert(&mut self, n: u32) {
            if self.0.find(self.hash(n), &key(n)).is_none() {
                self.0.insert(self.hash(n), Entry::string(&key(n), &key(n)));
            }
        }

        fn remove(&mut self, n: u32) -> bool {
            self.0.remove(self.hash(n), &key(n)).is_some()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        /// Many at once, so that the table grows and shrinks.
        Fill(u32, u32),
        Clear(u32, u32),
        Scan,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..2000u32).prop_map(Step::Insert),
            (0..2000u32).prop_map(Step::Remove),
            (0..1000u32, 0..1000u32).prop_map(|(a, n)| Step::Fill(a, a + n)),
            (0..1000u32, 0..1000u32).prop_map(|(a, n)| Step::Clear(a, a + n)),
            Just(Step::Scan),
            Just(Step::Scan),
        ];
        proptest::collection::vec(step, 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]

        /// The table has the contents of a map, and a scan in several calls shows every key that
        /// existed from its beginning to its end.
        #[test]
        fn is_a_map_and_scans_miss_nothing(steps in steps()) {
            let mut table = Model::new();
            let mut model: HashMap<u32, ()> = HashMap::new();
            let mut cursor = 0;
            let mut steady: BTreeSet<u32> = BTreeSet::new();
            let mut seen: BTreeSet<u32> = BTreeSet::new();
            for step in steps {
                let (add, from, to) = match step {
                    Step::Insert(n) => (true, n, n + 1),
                    Step::Remove(n) => (false, n, n + 1),
                    Step::Fill(a, b) => (true, a, b),
                    Step::Clear(a, b) => (false, a, b),
                    Step::Scan => {
                        for _ in 0..17 {
                            if cursor == 0 {
                                steady = model.keys().copied().collect();
                                seen.clear();
                            }
                            cursor = table.0.scan(cursor, &mut |e| { seen.insert(number(e.key())); });
                            if cursor == 0 {
                                prop_assert!(steady.is_subset(&seen));
                            }
                        }
                        continue;
                    }
                };
                for n in from..to {
                    if add {
                        table.insert(n);
                        model.insert(n, ());
                    } else {
                        prop_assert_eq!(table.remove(n), model.remove(&n).is_some());
                        steady.remove(&n);
                    }
                }
                prop_assert_eq!(table.0.len(), model.len());
            }
            for n in 0..3000 {
                let found = table.0.find(table.hash(n), &key(n));
                prop_assert_eq!(found.is_some(), model.contains_key(&n));
                if let Some(entry) = found {
                    prop_assert!(matches!(entry.value(), ValueRef::Str(s) if s == key(n)));
                }
            }
            let mut all = 0;
            table.0.for_each(&mut |_| all += 1);
            prop_assert_eq!(all, model.len());
        }
    }

    #[test]
    fn keys_made_to_collide_do_not() {
        for (family, keys) in crate::hash::tests::families() {
            let mut table = Table::new(HashKey::random());
            for key in &keys {
                let hash = table.hasher.hash(key);
                table.insert(hash, Entry::string(key, b""));
            }
            let mut longest = 0;
            for bucket in 0..table.buckets() {
                let mut n = 0;
                table.visit(bucket, &mut |_| n += 1);
                longest = longest.max(n);
            }
            // Five or six to a bucket, twice as many before it is split: by chance once in ten
            // thousand million runs.
            assert!(longest < 48, "{family}: {longest} in a bucket");
        }
    }

    #[test]
    fn the_load_stays_between_its_bounds() {
        let mut table = Model::new();
        for n in 0..50_000 {
            table.insert(n);
        }
        assert!(table.0.buckets() * FULL >= table.0.len() * 10);
        assert!(table.0.bytes() < 50_000 * 15, "{} bytes", table.0.bytes());
        for n in 0..49_990 {
            assert!(table.remove(n));
        }
        assert!(table.0.buckets() <= 5);
        assert_eq!(table.0.segments.len(), 1);
    }
}
