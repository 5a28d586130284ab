//! Dials that end with the connection that made them.

use std::collections::BTreeMap;

use crate::vocabulary::conn_id::ConnId;

/// Ids of dials under way, by the connection that each is tied to.
#[derive(Default)]
pub(crate) struct Tied(BTreeMap<ConnId, Vec<ConnId>>);

impl Tied {
    pub(crate) fn tie(&mut self, dial: ConnId, to: ConnId) {
        self.0.entry(to).or_default().push(dial);
    }

    /// The dial is no longer under way.
    pub(crate) fn release(&mut self, dial: ConnId, from: ConnId) {
        if let Some(dials) = self.0.get_mut(&from) {
            dials.retain(|&other| other != dial);
            if dials.is_empty() {
                self.0.remove(&from);
            }
        }
    }

    /// Whether dials are tied to this connection.
    #[inline]
    pub(crate) fn has(&self, to: ConnId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&to)
    }

    /// Dials that are tied to this connection.
    pub(crate) fn of(&self, to: ConnId) -> Vec<ConnId> {
        self.0.get(&to).cloned().unwrap_or_default()
    }
}
