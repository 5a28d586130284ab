//! The effective settings, for whoever wants to know what a server runs with. No secret is in them: of secrets only
//! whether there is one.

use std::time::Duration;

use serde_json::{Value, json};
use tidewire::Limits;

use super::admission::shown;
use super::endpoint::{Kind, Named};
use super::http;
use super::kv::Durability;
use super::settings::Settings;

impl Settings {
    /// The settings by the names of their flags; `null` where each service has its own default.
    pub(crate) fn shown(&self) -> Value {
        json!({
            "listen": self.endpoints.iter().map(|endpoint| json!({
                "service": Named(vec![endpoint.kind]).to_string(),
                "at": endpoint.place.to_string(),
                "tls": endpoint.front.tls.is_some(),
                "proxy-from": endpoint.front.proxy_from.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "open": self.is_open(endpoint.kind),
                "access": endpoint.shield.access.is_some().then(|| endpoint.shield.access.to_string()),
                "max-connections": self.limits(endpoint.kind, Limits::default()).connections,
                "admission": shown(&self.admission.rules_at(&endpoint.shield.rules)),
                "admission-of-service": shown(&self.admission.rules_of(endpoint.kind)),
            })).collect::<Vec<_>>(),
            "engine": self.engine.to_string(),
            "workers": self.workers,
            "placement": self.placement.to_string(),
            "cpus": self.cpus,
            "busy-poll": self.busy_poll.as_micros() as u64,
            "direct-descriptors": self.direct_descriptors,
            "memory": self.memory,
            "admission": shown(&self.admission.rules_of_all()),
            "idle": self.idle.map(|span| span.0.as_secs_f64()),
            "first-byte": self.first_byte.map(|span| span.0.as_secs_f64()),
            "whole-request": self.whole_request.map(|span| span.0.as_secs_f64()),
            "write-stall": self.write_stall.map(|span| span.0.as_secs_f64()),
            "lifetime": self.lifetime.map(|span| span.0.as_secs_f64()),
            "linger": seconds(self.linger),
            "handshake": seconds(self.handshake),
            "max-payload": self.max_payload,
            "congestion": self.tcp.congestion,
            "tcp-keepalive": seconds(self.tcp.keepalive),
            "stall-threshold": seconds(self.stall_threshold),
            "stop-deadline": self.stop_deadline.as_secs_f64(),
            "stats-interval": seconds(self.stats_interval),
            "log-format": self.log_format.map(|format| format.name()),
            "log-connections": self.log_connections,
            "control": self.control.as_ref().map(ToString::to_string),
            "admin": self.admin.shown(),
            "admin-tls": self.admin_front.tls.is_some(),
            "admin-token": self.admin.has_token(),
            "log": self.need_log().then(|| self.shown_log()),
            "ingest": json!({
                "level": format!("{:?}", self.ingest.level).to_lowercase(),
                "payload-max": self.ingest.payload_max,
                "window-messages": self.ingest.window_messages,
                "window-bytes": self.ingest.window_bytes,
                "readers": self.ingest.readers,
                "reader-memory": self.ingest.reader_memory,
                "tokens": self.ingest.tokens.len(),
                "streams": if self.ingest.declared { "declared" } else { "auto" },
            }),
            "http": self.serves(Kind::Http).then(|| http::shown(&self.http)),
            "ack": json!({
                "level": self.ack_level.to_string(),
                "stream": self.ack_stream,
            }),
            "kv": self.serves_kv().then(|| json!({
                "maxmemory": self.kv.maxmemory.map_or(0, |size| size.0),
                "policy": self.kv.policy.as_deref().unwrap_or("noeviction"),
                "databases": self.kv.databases.unwrap_or(16),
                "password": self.kv.has_password(),
                "durability": Durability(self.kv_durability()).to_string(),
                "timeout": self.kv.timeout.map(|span| span.0.as_secs_f64()),
            })),
        })
    }

    fn shown_log(&self) -> Value {
        let log = &self.durable;
        json!({
            "dir": log.dir.clone().unwrap_or_else(|| super::DIRECTORY.into()),
            "policy": log.policy.as_ref().map_or("sync".into(), ToString::to_string),
            "segment": log.segment.map(|size| size.0),
            "payload-max": log.payload_max.map(|size| size.0),
            "retention-bytes": log.retention_bytes.map(|size| size.0),
            "retention-age": log.retention_age.map(|span| span.0.as_secs_f64()),
            "on-failure": format!("{:?}", self.on_log_failure).to_lowercase(),
        })
    }
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}
