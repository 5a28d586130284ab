//! What clients were told, and what must be so after a crash because of that.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_kv::store::Store;

use crate::disk::line;
use crate::wire::Value;

/// Lists that only grow, counters, and pairs of lists that transactions keep the same.
pub(crate) const LISTS: [&str; 3] = ["l0", "l1", "told"];
pub(crate) const COUNTERS: usize = 2;

/// What is known of all lives of a server.
#[derive(Default)]
pub(crate) struct Facts {
    /// Elements that were acknowledged or seen, of each of [`LISTS`].
    pub(crate) seen: [BTreeSet<String>; 3],
    /// The highest value of each counter that a client has heard of.
    pub(crate) counted: [i64; COUNTERS],
    /// Elements put into the queue, and taken out of it, as far as that was acknowledged.
    pub(crate) queued: BTreeSet<String>,
    pub(crate) taken: BTreeSet<String>,
    /// Takings that were never answered.
    pub(crate) unanswered: usize,
    /// Elements that a pair was seen to have.
    pub(crate) paired: BTreeSet<String>,
    /// Entries of the stream `e` that were acknowledged or seen, by id.
    pub(crate) entries: BTreeMap<String, String>,
    /// Ids that the group has delivered, ids that a client wanted to acknowledge, and ids that are
    /// reported as acknowledged.
    pub(crate) given: BTreeSet<String>,
    pub(crate) acking: BTreeSet<String>,
    pub(crate) acked: BTreeSet<String>,
}

impl Facts {
    /// What is wrong with a store that was recovered, if anything.
    pub(crate) fn check(&self, store: &Store, now_ms: u64) -> Result<(), String> {
        let read = |key: &str| -> Vec<String> {
            let list = line(store, now_ms, &format!("LRANGE {key} 0 -1")).array();
            list.into_iter().map(|element| element.text()).collect()
        };
        for (key, seen) in LISTS.iter().zip(&self.seen) {
            let there: BTreeSet<String> = read(key).into_iter().collect();
            if let Some(lost) = seen.iter().find(|element| !there.contains(*element)) {
                return Err(format!("{key}: {lost} was seen and is lost"));
            }
        }
        for (at, counted) in self.counted.iter().enumerate() {
            let found = line(store, now_ms, &format!("INCRBY c{at} 0")).number();
            if found < *counted {
                return Err(format!("c{at}: {counted} was seen, {found} is there"));
            }
        }
        let queue: BTreeSet<String> = read("q").into_iter().collect();
        if let Some(twice) = self.taken.iter().find(|element| queue.contains(*element)) {
            return Err(format!("q: {twice} was taken and is there again"));
        }
        let there = |element: &&String| !queue.contains(*element) && !self.taken.contains(*element);
        let missing = self.queued.iter().filter(there).count();
        if missing > self.unanswered {
            return Err(format!("q: {missing} elements are lost"));
        }
        let (x, y) = (read("x"), read("y"));
        if x != y {
            return Err(format!("a transaction is torn: {x:?} {y:?}"));
        }
        if let Some(lost) = self.paired.iter().find(|element| !x.contains(element)) {
            return Err(format!("x: {lost} was seen and is lost"));
        }
        let sum: i64 = (0..3)
            .map(|at| line(store, now_ms, &format!("HINCRBY acc {at} 0")).number())
            .sum();
        if sum != 0 {
            return Err(format!("a transfer is torn: {sum}"));
        }
        self.check_stream(store, now_ms)
    }

    fn check_stream(&self, store: &Store, now_ms: u64) -> Result<(), String> {
        let there: BTreeMap<String, String> = line(store, now_ms, "XRANGE e - +")
            .array()
            .into_iter()
            .map(entry)
            .collect();
        for (id, value) in &self.entries {
            if there.get(id) != Some(value) {
                return Err(format!("e: {id} {value} was seen and is lost"));
            }
        }
        if self.given.is_empty() {
            return Ok(());
        }
        let pending: BTreeSet<String> = line(store, now_ms, "XPENDING e g - + 1000000")
            .array()
            .into_iter()
            .map(|row| row.array().swap_remove(0).text())
            .collect();
        if let Some(id) = self.acked.iter().find(|id| pending.contains(*id)) {
            return Err(format!("e: {id} was acknowledged and is pending again"));
        }
        let known = |id: &&String| pending.contains(*id) || self.acking.contains(*id);
        if let Some(id) = self.given.iter().find(|id| !known(id)) {
            return Err(format!("e: {id} was given to somebody and nobody has it"));
        }
        Ok(())
    }
}

/// The id of an entry, and the value of its one field.
pub(crate) fn entry(entry: Value) -> (String, String) {
    let mut entry = entry.array();
    let value = entry.swap_remove(1).array().swap_remove(1);
    (entry.swap_remove(0).text(), value.text())
}
