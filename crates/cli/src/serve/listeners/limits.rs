//! The limits of the connections of each service: the service's own limits, changed where the settings say so.

use std::time::Duration;

use serde_json::{Value, json};
use tidewire::Limits;
use tidewire::admission::Rules;

use crate::serve::listeners::kind::Kind;
use crate::serve::settings::frame::Settings;

/// Descriptors that are held back from connections for the logs, snapshots, the admin interface, control and what else a server opens.
const HELD_BACK: u64 = 64;
/// Descriptors held back for each loop, beside one for each of its listeners.
const HELD_BACK_A_LOOP: u64 = 6;

impl Settings {
    /// Connections of all services together that the limit of descriptors allows; `None` if descriptors are not
    /// the limit.
    pub(crate) fn connections_by_descriptors(&self) -> Option<usize> {
        if self.direct_descriptors {
            // The limits of this service are in tables of their own.
            return None;
        }
        let descriptors = self.descriptors?;
        let a_loop = HELD_BACK_A_LOOP + self.endpoints.len() as u64;
        let held = HELD_BACK + a_loop * self.workers as u64;
        let left = descriptors.saturating_sub(held).max(descriptors / 4);
        Some(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// The rules of all services together: no more connections than there are descriptors for.
    pub(crate) fn rules_of_all(&self) -> Rules {
        let said = self.admission.rules_of_all();
        let connections = [said.connections, self.connections_by_descriptors()];
        Rules {
            connections: connections.into_iter().flatten().min(),
            ..said
        }
    }

    /// The limits of a service, changed where the settings say so.
    pub(crate) fn changed(&self, kind: Kind, own: Limits) -> Limits {
        let said = &self.deadlines;
        let most = self.connections_by_descriptors().unwrap_or(usize::MAX);
        Limits {
            connections: (self.admission.connections(kind))
                .unwrap_or_else(|| own.connections.min(most)),
            linger: self.linger.0,
            idle: said.idle(kind, own.idle),
            first_byte: said.first_byte(kind, own.first_byte),
            request: said.whole_request(kind, own.request),
            write: said.write_stall(kind, own.write),
            lifetime: said.lifetime(kind, own.lifetime),
            ..own
        }
    }
}

/// Limits as `/config` shows them, by the names of their flags: times in seconds, 0 is never.
pub(crate) fn shown(limits: &Limits) -> Value {
    json!({
        "max-connections": limits.connections,
        "idle": never_is_0(limits.idle),
        "first-byte": never_is_0(limits.first_byte),
        "whole-request": never_is_0(limits.request),
        "write-stall": never_is_0(limits.write),
        "lifetime": never_is_0(limits.lifetime),
        "linger": limits.linger.as_secs_f64(),
        "output-max": limits.output_hard,
    })
}

/// A limit in seconds, in the form that flags take and pages show.
pub(crate) fn never_is_0(limit: Option<Duration>) -> f64 {
    limit.map_or(0.0, |time| time.as_secs_f64())
}
