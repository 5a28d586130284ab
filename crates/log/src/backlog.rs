//! Records that a replicator has not carried home yet: they are kept, and bounded.
//!
//! The one idea: only the positions in the home are remembered. The bytes behind these positions are counted from
//! the index when the positions move, and appended bytes are added until then.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::{Catalog, Segment};

/// The backlog of a log that has a replicator.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The limit of the backlog; bytes of records in their stored form.
    limit: u64,
    /// For each stream, the position up to which its records are in the home.
    home: BTreeMap<u32, u64>,
    /// Streams that are not carried.
    stay: BTreeSet<u32>,
    bytes: u64,
}

impl Backlog {
    pub(crate) fn new(limit: u64) -> Backlog {
        Backlog {
            limit,
            home: BTreeMap::new(),
            stay: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// A stream exists now. The number of the stream may have belonged to a stream that is deleted.
    pub(crate) fn made(&mut self, stream: u32, stays: bool) {
        match stays {
            true => self.stay.insert(stream),
            false => self.stay.remove(&stream),
        };
    }

    /// Whether the backlog takes no more records of a stream; if no stream is named, of the carried
    /// streams.
    pub(crate) fn is_full_for(&self, stream: Option<u32>) -> bool {
        self.bytes >= self.limit && !stream.is_some_and(|stream| self.stay.contains(&stream))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn appended(&mut self, stream: u32, bytes: u64) {
        if !self.stay.contains(&stream) {
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    /// More records are in the home; positions in the home never go back.
    pub(crate) fn carried(&mut self, home: BTreeMap<u32, u64>, catalog: &Catalog) {
        for (stream, position) in home {
            let of_stream = self.home.entry(stream).or_default();
            *of_stream = position.max(*of_stream);
        }
        self.home
            .retain(|&stream, _| catalog.streams.get(stream).is_some());
        self.bytes = catalog.bytes_from(|stream| self.home_of(stream));
    }

    /// Up to where a stream is at home, or needs not be.
    pub(crate) fn home_of(&self, stream: u32) -> u64 {
        if self.stay.contains(&stream) {
            return u64::MAX;
        }
        self.home.get(&stream).copied().unwrap_or(0)
    }

    /// Whether a segment holds records that are neither at home nor of a stream that was deleted or cut off
    /// behind them.
    pub(crate) fn holds(&self, segment: &Segment, catalog: &Catalog) -> bool {
        let mut extents = segment.index.extents();
        extents.any(|(id, extent)| {
            let stream = catalog.streams.get(id);
            stream.is_some_and(|stream| extent.next > self.home_of(id).max(stream.trimmed))
        })
    }
}
