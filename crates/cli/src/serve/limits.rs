//! What the connections of each service are held to: the service's own limits, changed where the settings say so.

use std::time::Duration;

use serde_json::{Value, json};
use tidewire::Limits;
use tidewire::admission::Rules;
use tidewire_ingest::Level;
use tidewire_ingest::classic::{Classic, Mode};
use tidewire_kv::service::BinaryService;

use super::http;
use super::kind::{Kind, KvMode};
use super::settings::Settings;

/// Descriptors that are held back from connections for the logs, snapshots, the admin interface, control and what else a server opens.
const HELD_BACK: u64 = 64;
/// Descriptors held back for each loop, beside one for each of its listeners.
const HELD_BACK_A_LOOP: u64 = 6;

impl Settings {
    /// Connections of all services together that the limit of descriptors allows; `None` if it does not matter.
    pub(crate) fn connections_by_descriptors(&self) -> Option<usize> {
        if self.direct_descriptors {
            // These limits are in tables of their own.
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

    /// The limits in force for the connections of this service.
    pub(crate) fn limits(&self, kind: Kind) -> Limits {
        match kind {
            Kind::Echo | Kind::Discard => self.changed(kind, Limits::default()),
            Kind::Ack(mode) => self.changed(kind, self.classic(mode).limits()),
            Kind::Ingest => {
                let own = self.ingest.limits();
                Limits {
                    // A producer may have nothing to say.
                    idle: own.idle,
                    ..self.changed(kind, own)
                }
            }
            Kind::Http => Limits {
                // HTTP has times of its own for heads and bodies, and a reply for late clients.
                request: None,
                ..self.changed(kind, self.http.limits())
            },
            Kind::Kv(KvMode::Resp) => {
                let own = self.kv.bounds(self).limits();
                Limits {
                    // The service itself looks whether a command is half there, or --kv-timeout has
                    // passed.
                    idle: own.idle,
                    ..self.changed(kind, own)
                }
            }
            Kind::Kv(KvMode::Binary) => self.changed(kind, BinaryService::limits()),
        }
    }

    /// What a classic port speaks.
    pub(crate) fn classic(&self, mode: Mode) -> Classic {
        let own = Classic::preset(mode);
        Classic {
            payload_max: self.max_payload.unwrap_or(own.payload_max),
            protected: self.ack_level != Level::None && !self.is_open(Kind::Ack(mode)),
            ..own
        }
    }

    fn changed(&self, kind: Kind, own: Limits) -> Limits {
        let said = &self.deadlines;
        let most = self.connections_by_descriptors().unwrap_or(usize::MAX);
        Limits {
            connections: (self.admission.connections(kind))
                .unwrap_or_else(|| own.connections.min(most)),
            linger: self.linger.unwrap_or(own.linger),
            idle: said.idle(kind, own.idle),
            first_byte: said.first_byte(kind, own.first_byte),
            request: said.whole_request(kind, own.request),
            write: said.write_stall(kind, own.write),
            lifetime: said.lifetime(kind, own.lifetime),
            ..own
        }
    }

    /// The limits of this service as `/config` shows them, by the names of their flags: times in seconds, 0 is never.
    pub(super) fn shown_limits(&self, kind: Kind) -> Value {
        let limits = self.limits(kind);
        let mut shown = json!({
            "max-connections": limits.connections,
            "idle": never_is_0(limits.idle),
            "first-byte": never_is_0(limits.first_byte),
            "whole-request": never_is_0(limits.request),
            "write-stall": never_is_0(limits.write),
            "lifetime": never_is_0(limits.lifetime),
            "linger": limits.linger.as_secs_f64(),
            "output-max": limits.output_hard,
        });
        match kind {
            Kind::Http => {
                let [head, body] = http::times(&self.http).map(never_is_0);
                shown["whole-request"] = json!({ "head": head, "body": body });
            }
            Kind::Ingest => shown["hello"] = self.ingest.hello_within.as_secs_f64().into(),
            Kind::Kv(KvMode::Resp) => {
                // Not --kv-timeout, which is for silence between commands.
                shown["idle"] = never_is_0(self.kv.bounds(self).stall).into();
            }
            Kind::Ack(mode) => shown["payload-max"] = self.classic(mode).payload_max.into(),
            Kind::Echo | Kind::Discard | Kind::Kv(KvMode::Binary) => {}
        }
        shown
    }
}

/// A limit as it is shown, and as flags take it; seconds.
pub(super) fn never_is_0(limit: Option<Duration>) -> f64 {
    limit.map_or(0.0, |time| time.as_secs_f64())
}
