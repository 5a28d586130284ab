//! The effective settings, to show what a server runs with. No secret is in them: of secrets only
//! whether there is one.

use serde_json::{Value, json};
use tidewire::{Endpoint, Observer};

use crate::span::Span;

use crate::serve::listeners::admission::shown;
use crate::serve::listeners::limits::{self, never_is_0};
use crate::serve::logs::options::PolicyName;
use crate::serve::product::Plan;
use crate::serve::settings::schema::Shown;

/// Facts that are known only when the server runs.
#[derive(Default)]
pub(crate) struct Found<'a> {
    /// The address of the admin listener; `None` if there is none.
    pub(crate) admin: Option<&'a Endpoint>,
    /// The observer of the loops, and the addresses on which the loops listen.
    pub(crate) loops: Option<(&'a Observer, &'a [Endpoint])>,
}

impl Plan {
    /// The settings by the names of their flags; `null` is the system's choice, or that there is nothing. Before the
    /// loops run, engine, memory and addresses are what was asked for.
    pub(crate) fn shown(&self, found: &Found<'_>) -> Value {
        let (observer, addrs) = match found.loops {
            Some((observer, addrs)) => (Some(observer), addrs),
            None => (None, &[][..]),
        };
        let at = |i: usize| addrs.get(i).unwrap_or(&self.endpoints[i].place);
        let in_force = json!({
            "listen": self.endpoints.iter().enumerate().map(|(i, endpoint)| json!({
                "service": endpoint.kind.to_string(),
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
            "memory": observer.map_or(self.memory, |o| Some(o.memory_max())),
            "admission": shown(&self.rules_of_all()),
            "handshake": json!({
                "tls": self.handshake.tls.as_secs_f64(),
                "proxy": self.handshake.proxy.as_secs_f64(),
            }),
            "stats-interval": never_is_0(self.stats_interval.and_then(Span::limit)),
            "control": self.control_path.as_ref().map(|path| path.display().to_string()),
            "admin": found.admin.map(ToString::to_string),
            "admin-tls": self.admin_front.tls.is_some(),
            "admin-token": self.admin.has_token(),
            "log": self.need_log().then(|| self.shown_log()),
        });
        let mut shown = self.said(None);
        over(&mut shown, in_force);
        for (service, product) in self.all() {
            let mut own = self.said(Some(service.name));
            over(&mut own, product.shown(self));
            shown[service.name] = own;
        }
        shown
    }

    /// The values of flags: flags of a product's table by their keys, flags of the frame by their
    /// names.
    fn said(&self, product: Option<&str>) -> Value {
        let is_own = |said: &&Shown| {
            let own = self
                .all()
                .map(|(of, _)| of.name)
                .find(|of| Some(*of) == said.table.as_deref());
            own == product
        };
        let said = self.values.iter().filter(is_own);
        let said = said.map(|said| match product {
            Some(_) => (said.key.clone(), said.value.clone()),
            None => (said.name.clone(), said.value.clone()),
        });
        Value::Object(said.collect())
    }

    /// Limits of each service that is served, by its name.
    fn limits_of_all(&self) -> Value {
        let kinds = self.endpoints.iter().map(|endpoint| endpoint.kind);
        let each = kinds.map(|kind| {
            let product = self.of(kind.service);
            let mut shown = limits::shown(&product.limits(kind, self));
            product.show_limits(kind, self, &mut shown);
            (kind.to_string(), shown)
        });
        Value::Object(each.collect())
    }

    /// Settings of the log of messages.
    fn shown_log(&self) -> Value {
        // Wrong settings have ended the start before.
        let log = self.durable.settings().unwrap_or_default();
        json!({
            "dir": self.durable.dir,
            "policy": PolicyName(log.policy).to_string(),
            "group-wait": log.group_wait.as_secs_f64(),
            "segment": log.segment_bytes,
            "payload-max": log.payload_max,
            "retention-bytes": log.retention_bytes,
            "retention-age": never_is_0(log.retention_age),
            "replicate": self.durable.replicate,
            "replicate-record": format!("{:?}", self.durable.replicate_record).to_lowercase(),
            "replicate-stream": self.durable.replicate_stream,
            "fleet": self.durable.fleet,
            "fleet-address": self.durable.fleet_address,
            "fleet-hand-over": self.durable.hand_over.0.as_secs_f64(),
            "backlog-bytes": log.backlog.filter(|&limit| limit < u64::MAX),
            "on-failure": format!("{:?}", self.durable.on_failure).to_lowercase(),
        })
    }
}

/// Replaces given values by the values in force; null removes all of them.
fn over(said: &mut Value, in_force: Value) {
    match (said, in_force) {
        (Value::Object(said), Value::Object(in_force)) => said.extend(in_force),
        (said, in_force) => *said = in_force,
    }
}
