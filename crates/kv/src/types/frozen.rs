//! A collection at one instant, handed out in pieces while the collection goes on changing.
//!
//! The one idea: elements are numbered in groups. A command that changes a group for the first time
//! puts the old content aside; the walk that writes the collection down takes what was put aside,
//! and the untouched groups. So neither ever copies more than a group at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Elements in the form of an image, and how many they are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the block of a list; nothing for others, whose elements have no order.
    pub(crate) number: u32,
    pub(crate) count: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Piece {
    pub(super) fn new(number: u32) -> Piece {
        Piece {
            number,
            count: 0,
            bytes: Vec::new(),
        }
    }
}

/// Bytes after which a piece ends: an element that is longer is one by itself.
const PIECE: usize = 64 << 10;

/// The state of a collection that is being snapshotted.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// By which the walk knows it, whatever key it is under by then.
    pub(super) id: u64,
    /// Groups there were.
    pub(super) groups: usize,
    /// Groups below this one were taken by the walk.
    pub(super) next: usize,
    /// A bit for each group that was put aside.
    aside: Vec<u64>,
    pieces: Vec<Piece>,
    /// Bytes that were put aside and not taken, everywhere.
    queued: Arc<AtomicUsize>,
}

impl Frozen {
    pub(super) fn new(id: u64, groups: usize, queued: Arc<AtomicUsize>) -> Frozen {
        Frozen {
            id,
            groups,
            next: 0,
            aside: vec![0; groups.div_ceil(64)],
            pieces: Vec::new(),
            queued,
        }
    }

    /// Whether only the collection has what is in a group, as it was.
    pub(super) fn is_owed(&self, group: usize) -> bool {
        group >= self.next && group < self.groups && self.aside[group / 64] & 1 << (group % 64) == 0
    }

    /// A group is put aside, because it is about to change.
    pub(super) fn put_aside(&mut self, group: usize, pieces: Vec<Piece>) {
        self.aside[group / 64] |= 1 << (group % 64);
        let bytes: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        self.queued.fetch_add(bytes, Relaxed);
        self.pieces.extend(pieces);
    }

    /// Takes the elements that were put aside; returns their bytes.
    pub(super) fn take(&mut self, to: &mut Vec<Piece>) -> usize {
        let bytes = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        self.queued.fetch_sub(bytes, Relaxed);
        to.append(&mut self.pieces);
        bytes
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.take(&mut Vec::new());
    }
}

/// Elements as pieces, none much longer than it has to be.
pub(super) fn pieces<E>(
    number: u32,
    elements: impl Iterator<Item = E>,
    mut put: impl FnMut(E, &mut Vec<u8>),
) -> Vec<Piece> {
    let mut pieces = vec![Piece::new(number)];
    for element in elements {
        if pieces.last().is_some_and(|last| last.bytes.len() >= PIECE) {
            pieces.push(Piece::new(number));
        }
        if let Some(last) = pieces.last_mut() {
            put(element, &mut last.bytes);
            last.count += 1;
        }
    }
    pieces
}
