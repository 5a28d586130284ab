//! The present readers and their positions, to show how far behind they are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A reader that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderStatus {
    /// The stream that the client reads.
    pub stream: Arc<str>,
    /// The named cursor that the reader may move, if any.
    pub cursor: Option<Arc<str>>,
    /// The address from which the reader is connected.
    pub peer: Arc<str>,
    /// The position of the next record that the reader is sent.
    pub position: u64,
}

/// All readers, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Readers {
    list: Mutex<(u64, BTreeMap<u64, Arc<Place>>)>,
}

/// The place of one reader.
#[derive(Debug)]
pub(super) struct Place {
    number: AtomicU64,
    stream: Arc<str>,
    cursor: Option<Arc<str>>,
    peer: Arc<str>,
    position: AtomicU64,
}

impl Place {
    pub(super) fn new(stream: Arc<str>, cursor: Option<Arc<str>>, peer: Arc<str>) -> Arc<Place> {
        Arc::new(Place {
            number: AtomicU64::new(0),
            stream,
            cursor,
            peer,
            position: AtomicU64::new(0),
        })
    }

    /// Notes the position at which the reader goes on.
    pub(super) fn at(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Place>>)> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader was welcomed.
    pub(super) fn add(&self, place: &Arc<Place>) {
        let (last, list) = &mut *self.lock();
        *last += 1;
        place.number.store(*last, Ordering::Relaxed);
        list.insert(*last, place.clone());
    }

    /// A reader has gone.
    pub(super) fn remove(&self, place: &Place) {
        self.lock().1.remove(&place.number.load(Ordering::Relaxed));
    }

    /// Readers of a stream; of all streams, if none is named.
    pub(super) fn of(&self, stream: Option<&str>) -> Vec<ReaderStatus> {
        let list = self.lock();
        let places = list.1.values();
        let places = places.filter(|place| stream.is_none_or(|stream| *place.stream == *stream));
        let status = places.map(|place| ReaderStatus {
            stream: place.stream.clone(),
            cursor: place.cursor.clone(),
            peer: place.peer.clone(),
            position: place.position.load(Ordering::Relaxed),
        });
        status.collect()
    }
}
