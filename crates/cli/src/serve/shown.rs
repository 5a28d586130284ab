//! The effective settings, to show what a server runs with. No secret is in them: of secrets only
//! whether there is one.

use serde_json::{Value, json};
use tidewire::{Endpoint, Observer};

use super::admission::shown;
use super::durable::PolicyName;
use super::http;
use super::kind::{Kind, Named};
use super::limits::never_is_0;
use super::settings::Settings;
use crate::span::Span;

/// What is known only once it is there.
#[derive(Default)]
pub(crate) struct Found<'a> {
    /// Where the admin listener is; `None` if there is none.
    pub(crate) admin: Option<&'a Endpoint>,
    /// The loops, and where they listen.
    pub(crate) loops: Option<(&'a Observer, &'a [Endpoint])>,
}

impl Settings {
    /// The settings by the names of their flags; `null` is the system's choice, or that there is nothing. Before the
    /// loops run, engine, memory and addresses are what was asked for.
    pub(crate) fn shown(&self, found: &Found<'_>) -> Value {
        let (observer, addrs) = match found.loops {
            Some((observer, addrs)) => (Some(observer), addrs),
            None => (None, &[][..]),
        };
        let at = |i: usize| addrs.get(i).unwrap_or(&self.endpoints[i].place);
        json!({
            "listen": self.endpoints.iter().enumerate().map(|(i, endpoint)| json!({
                "service": Named(vec![endpoint.kind]).to_string(),
                "at": at(i).to_string(),
                "tls": endpoint.front.tls.is_some(),
                "proxy-from": endpoint.front.proxy_from.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "open": self.is_open(endpoint.kind),
                "access": endpoint.shield.access.is_some().then(|| endpoint.shield.access.to_string()),
                "admission": shown(&self.admission.rules_at(&endpoint.shield.rules)),
                "admission-of-service": shown(&self.admission.rules_of(endpoint.kind)),
            })).collect::<Vec<_>>(),
            "limits": self.limits_of_all(),
            "engine": observer.map_or(self.engine.to_string(), |o| o.engine().to_string()),
            "engine-asked": self.engine.to_string(),
            "engine-reason": observer.map(Observer::engine_reason),
            "workers": self.workers,
            "placement": self.placement.to_string(),
            "cpus": self.cpus,
            "busy-poll": self.busy_poll.as_micros() as u64,
            "direct-descriptors": self.direct_descriptors,
            "memory": observer.map_or(self.memory, |o| Some(o.memory_max())),
            "turn-output": self.turn_output,
            "turn-send": self.turn_send,
            "turn-receive": self.turn_receive,
            "admission": shown(&self.rules_of_all()),
            "handshake": json!({
                "tls": self.handshake.tls.as_secs_f64(),
                "proxy": self.handshake.proxy.as_secs_f64(),
            }),
            "congestion": self.tcp.congestion,
            "tcp-keepalive": never_is_0(self.tcp.keepalive),
            "stall-threshold": never_is_0(self.stall_threshold),
            "stop-deadline": self.stop_deadline.as_secs_f64(),
            "stats-interval": never_is_0(self.stats_interval),
            "log-format": self.log_format.map(|format| format.name()),
            "log-connections": self.log_connections,
            "control": self.control_path.as_ref().map(|path| path.display().to_string()),
            "admin": found.admin.map(ToString::to_string),
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
            "kv": self.serves_kv().then(|| self.shown_kv()),
        })
    }

    /// Limits of each service that is served, by its name.
    fn limits_of_all(&self) -> Value {
        let kinds = self.endpoints.iter().map(|endpoint| endpoint.kind);
        let each = kinds.map(|kind| (Named(vec![kind]).to_string(), self.shown_limits(kind)));
        Value::Object(each.collect())
    }

    /// Settings of the key-value store.
    fn shown_kv(&self) -> Value {
        json!({
                "maxmemory": self.kv.maxmemory.map_or(0, |size| size.0),
                "policy": self.kv.policy.as_deref().unwrap_or("noeviction"),
                "databases": self.kv.databases.unwrap_or(16),
                "password": self.kv.has_password(),
                "acl-file": self.kv.acl_file,
                "durability": self.kv.durability().to_string(),
                "replicate": self.kv.replicate,
                "follow": self.kv.follow,
                "timeout": never_is_0(self.kv.timeout.and_then(Span::limit)),
        })
    }

    /// Settings of the log of messages.
    fn shown_log(&self) -> Value {
        // What is wrong with them has ended the start before.
        let log = self.durable.settings().unwrap_or_default();
        json!({
            "dir": self.durable.directory(),
            "policy": PolicyName(log.policy).to_string(),
            "group-wait": log.group_wait.as_secs_f64(),
            "segment": log.segment_bytes,
            "payload-max": log.payload_max,
            "retention-bytes": log.retention_bytes,
            "retention-age": never_is_0(log.retention_age),
            "replicate": self.durable.replicate,
            "replicate-record": format!("{:?}", self.durable.replicate_record.unwrap_or_default()).to_lowercase(),
            "replicate-stream": self.durable.replicate_stream,
            "fleet": self.durable.fleet,
            "fleet-address": self.durable.fleet_address,
            "fleet-hand-over": self.durable.hand_over().as_secs_f64(),
            "backlog-bytes": log.backlog.filter(|&limit| limit < u64::MAX),
            "on-failure": format!("{:?}", self.on_log_failure).to_lowercase(),
        })
    }
}
