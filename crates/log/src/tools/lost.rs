//! Batches that are lost, and what is known of streams that were made, deleted or went on in them.

use std::collections::{BTreeMap, BTreeSet};

use super::rescue::Rescued;
use crate::format::Missing;
use crate::state::{NAMELESS, State};
use crate::{Damage, StreamSettings};

/// Batches that are lost.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) damage: Damage,
    pub(super) first: u64,
    pub(super) through: u64,
    pub(super) positions: Vec<Missing>,
    /// Streams and producers that were defined in it.
    pub(super) streams: BTreeMap<u32, Made>,
    pub(super) producers: BTreeSet<u32>,
    /// Streams that must have been deleted in the gap, with their names: other streams have these names, or
    /// the gap itself says so.
    pub(super) deleted: BTreeMap<u32, String>,
    /// The whole state after the first of the lost batches, if it is known.
    pub(super) checkpoint: Option<State>,
    /// Positions that were missing before that.
    pub(super) before: Vec<Missing>,
    /// How many records of it nothing tells of, at most, as far as its own batches do.
    pub(super) unseen: u64,
    /// Streams that go on behind where they are known to have ended, with that position.
    pub(super) certain: BTreeMap<u32, u64>,
    /// Streams that may have been deleted in it, and others of their names made.
    pub(super) unsure: BTreeSet<u32>,
    /// Runs of records that are whole in it, in order.
    pub(super) rescued: Vec<Rescued>,
}

/// A stream that was made in a gap.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) name: String,
    /// Where the stream begins: behind deleted ones of its name.
    pub(super) first: u64,
}

/// Names of streams that were made in a gap, by number, as later batches tell them.
pub(super) type Names = BTreeMap<u32, String>;
/// Streams and names of producers, by number.
pub(super) type Producers = BTreeMap<u32, (u32, String)>;

/// More streams than a log can have had: a higher number is not a stream's.
pub(super) const STREAMS_MAX: usize = 1 << 20;

impl Lost {
    /// Whether what stands in its place says more of streams than that they were made.
    pub(super) fn is_administered(&self) -> bool {
        !self.deleted.is_empty() || self.streams.values().any(|made| made.first > 0)
    }

    /// How many records of it are whole, and stay.
    pub(super) fn kept(&self) -> u64 {
        let kept = self.rescued.iter().map(|run| run.records().count);
        kept.map(u64::from).sum()
    }

    /// Has the state know that a stream was deleted in the gap.
    pub(super) fn delete(&mut self, state: &mut State, stream: u32) {
        if let Some(known) = state.streams.get(stream) {
            self.deleted.insert(stream, known.name.to_string());
            state.delete_stream(stream);
        }
    }

    /// Adds a stream to the state that was made in the gap as the next one; the former stream of
    /// its name was deleted there.
    pub(super) fn make(&mut self, state: &mut State, name: String) {
        let id = state.streams.next_number();
        if let Some(before) = state.stream(&name) {
            self.delete(state, before);
        }
        let first = state.first_of(&name);
        match first {
            0 => {
                state.add_stream(&name);
            }
            first => state.set_stream(id, first, StreamSettings::default(), &name),
        }
        self.streams.insert(id, Made { name, first });
    }
}

/// Has the state know a stream that was defined in the gap.
pub(super) fn know(state: &mut State, gap: &mut Lost, names: &Names, stream: u32) {
    while state.streams.next_number() <= stream {
        let id = state.streams.next_number();
        let name = names.get(&id).cloned().unwrap_or_else(|| {
            let mut name = format!("{NAMELESS}{id}");
            // The made-up name must not be the name of another stream.
            while state.stream(&name).is_some() {
                name.push('-');
            }
            name
        });
        gap.make(state, name);
    }
}

/// Has a stream go on at a position; the positions before it are missing.
pub(super) fn pass(state: &mut State, gap: &mut Lost, names: &Names, stream: u32, first: u64) {
    if stream as usize > STREAMS_MAX {
        return;
    }
    know(state, gap, names, stream);
    let Some(known) = state.streams.get_mut(stream) else {
        return;
    };
    if first > known.next {
        let before = gap.positions.iter_mut().rev();
        let mut before = before.filter(|lost| lost.stream == stream && lost.next == known.next);
        match before.next() {
            Some(lost) => lost.next = first,
            None => gap.positions.push(Missing {
                stream,
                first: known.next,
                next: first,
            }),
        }
        known.next = first;
    }
}
