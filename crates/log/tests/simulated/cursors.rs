//! Named cursors: what each may stand at after a crash.

use std::collections::BTreeMap;

use tidewire_log::Log;

use crate::seeds::{Verdict, ensure};

#[derive(Debug, Default)]
pub(crate) struct Cursors {
    /// By stream and name: what it may stand at, the oldest first; empty if that is anything.
    places: BTreeMap<(String, String), Vec<Place>>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// `None`: never set.
    position: Option<u64>,
    /// The first batch appended after it was set: when that is committed, so is this.
    before: Option<u64>,
}

impl Cursors {
    pub(crate) fn set(&mut self, stream: String, name: String, position: u64) {
        let never = || {
            vec![Place {
                position: None,
                before: Some(0),
            }]
        };
        let places = self.places.entry((stream, name)).or_insert_with(never);
        places.push(Place {
            position: Some(position),
            before: None,
        });
    }

    /// A stream was deleted by this ticket, and its cursors with it.
    pub(crate) fn deleted(&mut self, stream: &str, ticket: u64) {
        let places = self.places.iter_mut();
        for (_, places) in places.filter(|((of, _), _)| of == stream) {
            places.push(Place {
                position: None,
                before: Some(ticket),
            });
        }
    }

    /// A cursor was deleted by this ticket.
    pub(crate) fn gone(&mut self, stream: &str, name: &str, ticket: u64) {
        let named = (stream.to_owned(), name.to_owned());
        if let Some(places) = self.places.get_mut(&named) {
            places.push(Place {
                position: None,
                before: Some(ticket),
            });
        }
    }

    /// A batch was appended.
    pub(crate) fn appended(&mut self, ticket: u64) {
        for place in self.places.values_mut().flatten() {
            place.before.get_or_insert(ticket);
        }
    }

    /// The batches up to this ticket are committed: what was replaced before is gone for good.
    pub(crate) fn committed(&mut self, ticket: u64) {
        for places in self.places.values_mut() {
            let settled = places
                .iter()
                .rposition(|place| place.before.is_some_and(|at| at <= ticket));
            places.drain(..settled.unwrap_or(0));
        }
    }

    /// The log was closed; with `all_lost` nothing of what was committed is promised any more.
    pub(crate) fn closed(&mut self, all_lost: bool) {
        if all_lost {
            // Any prefix may be left, and cursors are not what that is tested with.
            self.places.values_mut().for_each(Vec::clear);
        }
    }

    /// Each stands at one of its places, and from here on at no other.
    pub(crate) fn reopened(&mut self, log: &impl Log) -> Verdict {
        for ((stream, name), places) in &mut self.places {
            let position = log.cursor(stream, name);
            let is_one = places.is_empty() || places.iter().any(|place| place.position == position);
            ensure(is_one, || {
                format!("{stream}: {name} stands at {position:?}, not at one of {places:?}")
            })?;
            *places = vec![Place {
                position,
                before: Some(0),
            }];
        }
        Ok(())
    }
}
