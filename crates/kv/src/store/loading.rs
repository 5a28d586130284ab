//! Putting the items of a snapshot into an empty store, from several threads.
//!
//! A key that is a single item goes straight into its shard. Blocks of lists and pieces of strings,
//! which come in any order, wait until all are there.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::Store;
use super::image::{Head, Part, each};
use super::memory::Entry;
use super::place::Place;
use super::unit::Malformed;
use super::value::{Collection, Value};
use crate::types::{End, Hash, List, Set, Stream, ZSet};

/// A load that is under way.
pub(crate) struct Loading<'s> {
    store: &'s Store,
    clock: u32,
    apart: Mutex<BTreeMap<Place, Apart>>,
}

/// A value of which not all is there.
struct Apart {
    deadline_ms: Option<u64>,
    /// How many blocks a list has, or bytes a string; and which it is.
    whole: usize,
    is_list: bool,
    /// By the number of the block, or the offset.
    parts: BTreeMap<usize, Vec<u8>>,
    blocks: BTreeMap<usize, List>,
}

const TWICE: Malformed = Malformed("a key that is there already");
const MIXED: Malformed = Malformed("items of two values for one key");

impl<'s> Loading<'s> {
    /// Into a store that is empty; keys count as used at `now_ms`.
    pub(crate) fn new(store: &'s Store, now_ms: u64) -> Loading<'s> {
        Loading {
            store,
            clock: store.clock_at(now_ms),
            apart: Mutex::default(),
        }
    }

    /// Puts items in. May be called by several threads at once.
    pub(crate) fn items(&self, bytes: &[u8]) -> Result<(), Malformed> {
        each(bytes, |head, part| {
            if head.db >= self.store.databases() {
                return Err(Malformed("a database that there is not"));
            }
            self.item(head, part)
        })
    }

    fn item(&self, head: Head<'_>, part: Part<'_>) -> Result<(), Malformed> {
        match part {
            Part::String(s) => self.insert(head, Entry::string(head.key, s)),
            Part::StringPiece { len, offset, bytes } => self.apart(head, len, false, |apart| {
                apart.parts.insert(offset, bytes.to_vec()).is_none()
            }),
            Part::List(elements) => {
                let list = self.list(&elements);
                if list.is_empty() {
                    return Err(Malformed("an empty list"));
                }
                self.insert(head, Entry::new(head.key, list.into_value()))
            }
            Part::ListBlock {
                blocks,
                number,
                elements,
            } => self.apart(head, blocks, true, |apart| {
                apart.blocks.insert(number, self.list(&elements)).is_none()
            }),
            Part::Set(members) => self.add(head, members.len(), |set: &mut Set| {
                members
                    .iter()
                    .all(|member| set.insert(member, self.store.limits.set()))
            }),
            Part::Hash(pairs) => self.add(head, pairs.len(), |hash: &mut Hash| {
                let mut pairs = pairs.chunks_exact(2);
                pairs.all(|pair| hash.set(pair[0], pair[1], self.store.limits.hash()))
            }),
            Part::ZSet(members) => self.add(head, members.len(), |zset: &mut ZSet| {
                let mut members = members.iter();
                members.all(|(score, member)| {
                    let fit = self.store.limits.zset();
                    zset.insert(member, *score, fit).is_none()
                })
            }),
            Part::Library(code) => {
                let libraries = &self.store.libraries;
                let put = libraries.load(head.key, code);
                put.map_err(|_| Malformed("more libraries of functions than there may be"))
            }
            Part::Stream(parts) => self.add(head, parts.len(), |stream: &mut Stream| {
                parts.iter().all(|part| stream.put_part(part))
            }),
        }
    }

    /// Adds a key.
    fn insert(&self, head: Head<'_>, mut entry: Entry) -> Result<(), Malformed> {
        self.store.begin_use(&mut entry, self.clock);
        entry.set_deadline_ms(head.deadline_ms);
        let hash = self.store.hash(head.key);
        let mut shard = self.store.lock(self.store.shard_of(hash));
        if shard.table(head.db).find(hash, head.key).is_some() {
            return Err(TWICE);
        }
        shard.insert(head.db, hash, entry);
        self.store.tell(&mut shard);
        Ok(())
    }

    /// Adds elements to what the key has; `add` says whether all are new.
    fn add<T: Collection>(
        &self,
        head: Head<'_>,
        elements: usize,
        add: impl FnOnce(&mut T) -> bool,
    ) -> Result<(), Malformed> {
        if elements == 0 {
            return Err(Malformed("a collection without elements"));
        }
        let hash = self.store.hash(head.key);
        let mut shard = self.store.lock(self.store.shard_of(hash));
        let mut add = Some(add);
        let altered = shard.alter(head.db, hash, head.key, |entry| {
            let same_time = entry.deadline_ms() == head.deadline_ms;
            let value = entry.value_mut().and_then(T::of_mut);
            match (value, add.take()) {
                (Some(value), Some(add)) if same_time => Some(add(value)),
                _ => None,
            }
        });
        let are_new = match (altered, add) {
            (Some(are_new), _) => are_new.ok_or(MIXED)?,
            (None, Some(add)) => {
                let mut value = T::default();
                let are_new = add(&mut value);
                let mut entry = Entry::new(head.key, value.into_value());
                self.store.begin_use(&mut entry, self.clock);
                entry.set_deadline_ms(head.deadline_ms);
                shard.insert(head.db, hash, entry);
                are_new
            }
            (None, None) => true,
        };
        self.store.tell(&mut shard);
        if are_new {
            Ok(())
        } else {
            Err(Malformed("an element that is there already, or is none"))
        }
    }

    fn apart(
        &self,
        head: Head<'_>,
        whole: usize,
        is_list: bool,
        put: impl FnOnce(&mut Apart) -> bool,
    ) -> Result<(), Malformed> {
        let mut all = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        let apart = all
            .entry((head.db, head.key.into()))
            .or_insert_with(|| Apart {
                deadline_ms: head.deadline_ms,
                whole,
                is_list,
                parts: BTreeMap::new(),
                blocks: BTreeMap::new(),
            });
        if (apart.whole, apart.is_list, apart.deadline_ms) != (whole, is_list, head.deadline_ms) {
            return Err(MIXED);
        }
        if put(apart) {
            Ok(())
        } else {
            Err(Malformed("a part of a value that is there already"))
        }
    }

    /// Puts collections together that came in parts.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        let all = std::mem::take(&mut *self.apart.lock().unwrap_or_else(PoisonError::into_inner));
        for ((db, key), apart) in all {
            let head = Head {
                db,
                deadline_ms: apart.deadline_ms,
                key: &key,
            };
            let value = if apart.is_list {
                self.joined_list(apart)?.into_value()
            } else {
                Value::Str(joined_string(apart)?)
            };
            self.insert(head, Entry::new(&key, value))?;
        }
        Ok(())
    }

    fn list(&self, elements: &[&[u8]]) -> List {
        let mut list = List::default();
        list.expect(elements, self.store.limits.list());
        for element in elements {
            list.push(End::Right, element);
        }
        list
    }

    fn joined_list(&self, apart: Apart) -> Result<List, Malformed> {
        if apart.blocks.len() != apart.whole {
            return Err(MISSING);
        }
        let mut whole = List::default();
        for block in apart.blocks.into_values() {
            for element in block.iter_from(0) {
                whole.expect(&[&element], self.store.limits.list());
                whole.push(End::Right, &element);
            }
        }
        Ok(whole)
    }
}

const MISSING: Malformed = Malformed("a value of which a part is missing");

fn joined_string(apart: Apart) -> Result<Vec<u8>, Malformed> {
    let mut whole = Vec::new();
    for (offset, bytes) in apart.parts {
        if offset != whole.len() {
            return Err(MISSING);
        }
        whole.extend_from_slice(&bytes);
    }
    if whole.len() == apart.whole {
        Ok(whole)
    } else {
        Err(MISSING)
    }
}
