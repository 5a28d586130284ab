//! How far each stream is read, and how far it is at home.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_log::{Log, Ticket};

use crate::home::Place;

/// One stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    /// The end of the stream in the home.
    pub(crate) home: u64,
    /// The end of the stream in transactions.
    pub(crate) read: u64,
    /// The position after the last record that is in transactions.
    put: u64,
    /// The committed end of the stream at the last look.
    end: u64,
}

/// All streams, and the log's ticket at one moment.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: BTreeMap<Arc<str>, Lane>,
    /// Everything up to this ticket is below the ends of the lanes.
    moment: Option<Ticket>,
    /// The stream that is read next is the one behind this.
    turn: Option<Arc<str>>,
}

impl Lanes {
    /// Begins where the marks at home say.
    pub(crate) fn begin(&mut self, held: &BTreeMap<Arc<str>, Place>) {
        let lane = |place: &Place| Lane {
            home: place.next,
            read: place.next,
            put: place.next,
            end: place.next,
        };
        let lanes = held.iter();
        self.lanes = lanes
            .map(|(name, place)| (name.clone(), lane(place)))
            .collect();
        self.moment = None;
    }

    /// Goes on where the marks at home say, or behind that where there was nothing to carry, by what is known.
    pub(crate) fn go_on(&mut self, held: &BTreeMap<Arc<str>, Place>) {
        let mut from = self.homes();
        for (name, place) in held {
            let next = from.entry(name.clone()).or_default();
            *next = place.next.max(*next);
        }
        let places = from.into_iter().map(|(name, next)| {
            let place = Place { next, print: 0 };
            (name, place)
        });
        self.begin(&places.collect());
    }

    /// Begins with the records that are committed from now on.
    pub(crate) fn begin_now(&mut self, log: &dyn Log) {
        let ends = log.streams("", usize::MAX).into_iter().map(|status| {
            let next = status.range.next;
            (status.name, Place { next, print: 0 })
        });
        self.begin(&ends.collect());
    }

    /// Says up to where a stream is at home by what was known earlier.
    pub(crate) fn remember(&mut self, stream: Arc<str>, home: u64) {
        self.lanes.entry(stream).or_default().home = home;
    }

    /// Takes note of newly committed records, if there are any.
    pub(crate) fn look(&mut self, log: &dyn Log) -> bool {
        // First the ticket: the ends may be later, never earlier.
        let committed = log.progress().committed;
        if self.moment.is_some_and(|moment| committed <= moment) {
            return false;
        }
        for status in log.streams("", usize::MAX) {
            if log.comes_home(&status.name) {
                self.lanes.entry(status.name).or_default().end = status.range.next;
            }
        }
        self.moment = Some(committed);
        true
    }

    /// All records up to this ticket are in transactions; `None` if there are more to read.
    pub(crate) fn covered(&self) -> Option<Ticket> {
        let is_read = self.lanes.values().all(|lane| lane.read >= lane.end);
        self.moment.filter(|_| is_read)
    }

    /// The next stream with something to read, and from where on; they take turns.
    pub(crate) fn next(&mut self) -> Option<(Arc<str>, u64)> {
        let is_behind = |&(_, lane): &(&Arc<str>, &Lane)| lane.read < lane.end;
        let after = self.turn.take();
        let later = after.as_deref().and_then(|turn| {
            let behind = (std::ops::Bound::Excluded(turn), std::ops::Bound::Unbounded);
            self.lanes.range::<str, _>(behind).find(is_behind)
        });
        let (name, lane) = later.or_else(|| self.lanes.iter().find(is_behind))?;
        self.turn = Some(name.clone());
        Some((name.clone(), lane.read))
    }

    /// Records of a stream up to there are in a transaction.
    pub(crate) fn put(&mut self, stream: &str, next: u64) {
        if let Some(lane) = self.lanes.get_mut(stream) {
            lane.put = next.max(lane.put);
        }
    }

    /// A stream was read so far.
    pub(crate) fn read(&mut self, stream: &str, next: u64) {
        if let Some(lane) = self.lanes.get_mut(stream) {
            lane.read = next.max(lane.read);
        }
    }

    /// A transaction is committed. Positions before its records are in the home, or were lost before.
    pub(crate) fn arrived(&mut self, places: &BTreeMap<Arc<str>, Place>) {
        for (name, place) in places {
            if let Some(lane) = self.lanes.get_mut(name) {
                lane.home = place.next.max(lane.home);
            }
        }
    }

    /// The stream has no record to read now. A stream of the same name may come later, and go on
    /// behind its positions.
    pub(crate) fn ends(&mut self, stream: &str) {
        if let Some(lane) = self.lanes.get_mut(stream) {
            lane.end = lane.read;
        }
    }

    /// Up to where the records of each are at home.
    pub(crate) fn record_ends(&self) -> BTreeMap<Arc<str>, u64> {
        let lanes = self.lanes.iter();
        lanes
            .map(|(name, lane)| (name.clone(), lane.home))
            .collect()
    }

    /// The end of one stream, including what a transaction brings home.
    pub(crate) fn end_with(&self, stream: &str, places: &BTreeMap<Arc<str>, Place>) -> u64 {
        let home = self.lanes.get(stream).map_or(0, |lane| lane.home);
        places
            .get(stream)
            .map_or(home, |place| place.next.max(home))
    }

    /// Up to where each is at home, with what was passed over behind that.
    pub(crate) fn homes(&self) -> BTreeMap<Arc<str>, u64> {
        let home = |lane: &Lane| match lane.home >= lane.put {
            true => lane.home.max(lane.read),
            false => lane.home,
        };
        let lanes = self.lanes.iter();
        lanes
            .map(|(name, lane)| (name.clone(), home(lane)))
            .collect()
    }
}
