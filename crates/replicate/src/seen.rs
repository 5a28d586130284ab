//! The tenures whose records are in the log, and what is left of tenures that are over.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_log::{Frames, Tenure};

use crate::home::{Held, Place};

/// Where records of a tenure were met in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// No earlier position is kept for this tenure.
    first: u64,
    /// The position after the last one.
    next: u64,
}

/// The module's comment describes the type. The size of the map is the number of tenures whose records are
/// not known to be at home, times the streams.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<Tenure, BTreeMap<Arc<str>, Span>>);

impl Seen {
    /// A record was met.
    pub(crate) fn note(&mut self, tenure: Tenure, stream: &Arc<str>, run: &Frames) {
        let next = run.first + u64::from(run.count);
        let streams = self.0.entry(tenure).or_default();
        let span = streams.entry(stream.clone()).or_insert(Span {
            first: run.first,
            next,
        });
        span.next = next.max(span.next);
    }

    /// Tenures that are not held.
    pub(crate) fn others(&self, held: impl Fn(Tenure) -> bool) -> Vec<Tenure> {
        let tenures = self.0.keys().copied();
        tenures.filter(|tenure| !held(*tenure)).collect()
    }

    /// The home's contents of an ended tenure: records that are there, and released ones, need not be kept; the result
    /// has the positions before them, by stream. Returns whether records are left.
    pub(crate) fn settle(
        &mut self,
        tenure: Tenure,
        log: u64,
        held: &Held,
        released: &BTreeMap<Arc<str>, u64>,
    ) -> bool {
        let places = held.places.get(&(log, tenure.number));
        let Some(streams) = self.0.get_mut(&tenure) else {
            return false;
        };
        streams.retain(|name, span| {
            let Place { next, .. } = places
                .and_then(|places| places.get(name))
                .copied()
                .unwrap_or_default();
            let released = released.get(name).copied().unwrap_or(0);
            span.first = next.max(released).max(span.first);
            span.first < span.next
        });
        let is_empty = streams.is_empty();
        if is_empty {
            self.0.remove(&tenure);
        }
        !is_empty
    }

    /// A tenure with a replicator of its own has progressed; that replicator knows which of its records must
    /// be kept.
    pub(crate) fn carried(&mut self, tenure: Tenure, homes: &BTreeMap<Arc<str>, u64>) {
        if let Some(streams) = self.0.get_mut(&tenure) {
            streams.retain(|name, span| {
                let home = homes.get(name).copied().unwrap_or(0);
                span.first = home.max(span.first);
                span.first < span.next
            });
        }
    }

    /// Lowers positions of streams to where something is to be kept.
    pub(crate) fn keep(&self, homes: &mut BTreeMap<Arc<str>, u64>) {
        for streams in self.0.values() {
            for (name, span) in streams {
                if let Some(home) = homes.get_mut(name) {
                    *home = span.first.min(*home);
                }
            }
        }
    }

    /// How many records there are at most of these tenures, in the positions that they span.
    pub(crate) fn records(&self, tenures: impl Iterator<Item = Tenure>) -> u64 {
        let spans = tenures.filter_map(|tenure| self.0.get(&tenure));
        let spans = spans.flat_map(BTreeMap::values);
        spans.map(|span| span.next - span.first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_or_at_home_is_not_left() {
        let tenure = Tenure {
            partition: 3,
            number: 5,
        };
        let stream: Arc<str> = "s".into();
        let run = |first, count| Frames {
            first,
            count,
            timestamp_us: 0,
            producer: "p".into(),
            bytes: Vec::new(),
        };
        let left = |place: u64, released: u64| {
            let mut seen = Seen::default();
            seen.note(tenure, &stream, &run(10, 5));
            seen.note(tenure, &stream, &run(20, 5));
            let mut held = Held::default();
            let place = Place {
                next: place,
                print: 0,
            };
            held.places.insert((7, 5), [(stream.clone(), place)].into());
            let released = [(stream.clone(), released)].into();
            let is_left = seen.settle(tenure, 7, &held, &released);
            let mut homes = [(stream.clone(), 100)].into();
            seen.keep(&mut homes);
            (is_left, homes[&stream])
        };
        assert_eq!(left(0, 0), (true, 10));
        assert_eq!(left(15, 0), (true, 15));
        assert_eq!(left(0, 20), (true, 20));
        assert_eq!(left(22, 20), (true, 22));
        assert_eq!(left(25, 0), (false, 100));
        assert_eq!(left(15, 25), (false, 100));
    }
}
