//! Acknowledges small messages, in the dialects that clients in the field speak.

use std::sync::Arc;

use serde_json::Value;
use tidewire::Limits;
use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::ack as metrics;
use tidewire_ingest::classic::{Classic, ClassicService, Counters, Mode as Dialect};
use tidewire_ingest::{Counted, Level, LogSink};

use crate::exit::Failure;
use crate::serve::listeners::kind::{Kind, Mode, Service};
use crate::serve::product::{Entry, Frame, Plan, Product, Serving};
use crate::serve::settings::defaults::secs;
use crate::serve::settings::frame::Settings;

/// The dialects; 8000 is where an older variant of request-reply listened.
static DIALECTS: [(Dialect, &[u16]); 5] = [
    (
        Dialect::RequestReply,
        &[8000, Dialect::RequestReply.default_port()],
    ),
    (Dialect::Throttled, &[Dialect::Throttled.default_port()]),
    (Dialect::HeadRest, &[Dialect::HeadRest.default_port()]),
    (Dialect::Sync, &[Dialect::Sync.default_port()]),
    (Dialect::Async, &[Dialect::Async.default_port()]),
];

static MODES: [Mode; 5] = {
    let mut modes = [const {
        Mode {
            name: None,
            ports: &[],
        }
    }; 5];
    let mut i = 0;
    while i < modes.len() {
        modes[i] = Mode {
            name: Some(DIALECTS[i].0.name()),
            ports: DIALECTS[i].1,
        };
        i += 1;
    }
    modes
};

static SERVICE: Service = Service {
    takes_messages: true,
    ..Service::new("ack", &MODES)
};

pub(super) static ENTRY: Entry = Entry {
    defaults: || {
        let own = Classic::preset(Dialect::Sync);
        let idle = secs(own.limits().idle.unwrap_or_default());
        vec![
            ("idle", format!("ack {idle}")),
            ("max_payload", own.payload_max.to_string()),
        ]
    },
    ..Entry::of::<AckOptions>(&SERVICE, "Ack")
};

fn dialect(kind: Kind) -> Dialect {
    let found = DIALECTS
        .iter()
        .find(|(of, _)| Some(of.name()) == kind.mode());
    found.expect("its modes are the dialects").0
}

/// The classic services.
#[derive(Debug, clap::Args)]
struct AckOptions {
    /// What an acknowledgement of the ack service means: none (the message was read and dropped),
    /// received (it is in the queue of the log) or durable (it is synced)
    #[arg(long = "ack-level", value_name = "LEVEL", id = "ack_level", default_value_t = Level::None)]
    level: Level,

    /// The stream that messages of the ack service go to
    #[arg(
        long = "ack-stream",
        value_name = "NAME",
        id = "ack_stream",
        default_value = "default"
    )]
    stream: String,
}

impl AckOptions {
    /// The protocol of a port of this kind.
    fn classic(&self, kind: Kind, settings: &Settings) -> Classic {
        let own = Classic::preset(dialect(kind));
        Classic {
            payload_max: settings.max_payload.unwrap_or(own.payload_max),
            protected: self.level != Level::None && !settings.is_open(kind),
            ..own
        }
    }
}

impl Product for AckOptions {
    fn check(&self, plan: &Plan) -> Result<(), Failure> {
        let leads_past = |kind: Kind| {
            let mut own = plan.endpoints.iter().filter(|e| e.kind == kind);
            own.any(|e| !e.front.asks_for_certificates() && !plan.is_open(kind))
        };
        let guarded = plan.guards_messages();
        if self.level != Level::None
            && let Some(other) = guarded
            && SERVICE.kinds().any(leads_past)
        {
            return Err(Failure::usage(format!(
                "{other} has tokens, and the protocol of ack has none: with --ack-level {} any \
                 client that reaches ack could write to the log. Leave one of them out, or add \
                 --open=ack to allow it",
                self.level
            )));
        }
        Ok(())
    }

    fn limits(&self, kind: Kind, settings: &Settings) -> Limits {
        settings.changed(kind, self.classic(kind, settings).limits())
    }

    fn show_limits(&self, kind: Kind, settings: &Settings, shown: &mut Value) {
        shown["payload-max"] = self.classic(kind, settings).payload_max.into();
    }

    fn is_harmless(&self) -> bool {
        self.level == Level::None
    }

    fn needs_messages(&self) -> bool {
        self.level != Level::None
    }

    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure> {
        let mut acks = Acks(Vec::new());
        for kind in frame.plan.kinds_of(&SERVICE) {
            let classic = self.classic(kind, frame.plan);
            let level = self.level;
            let counters: Count = if level == Level::None {
                let service = Arc::new(ClassicService::new(classic, Counted::default()));
                frame.add(kind, service.clone());
                Box::new(move || service.counters())
            } else {
                let sink = LogSink::new(frame.messages(), &self.stream, level)
                    .map_err(|e| Failure::usage(format!("{kind} at level {level}: {e}")))?;
                let service = Arc::new(ClassicService::new(classic, sink));
                frame.add(kind, service.clone());
                Box::new(move || service.counters())
            };
            acks.0.push((dialect(kind).name(), counters));
        }
        Ok(Box::new(acks))
    }
}

/// The dialects that are served, each with what asks for its counters.
struct Acks(Vec<(&'static str, Count)>);

type Count = Box<dyn Fn() -> Counters + Send + Sync>;

impl Serving for Acks {
    fn collect(&self, to: &mut Snapshot) {
        for (mode, counters) in &self.0 {
            counters().each(|name, n| {
                to.count(metrics::of_counter(name), &[mode], n);
            });
        }
    }

    fn log(&self) {
        for (mode, counters) in &self.0 {
            let counters = counters();
            if counters != Default::default() {
                tracing::info!(mode, %counters, "ack");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_metric() {
        let mut to = Snapshot::default();
        Counters::default().each(|name, n| {
            assert!(to.count(metrics::of_counter(name), &["sync"], n), "{name}");
        });
        assert_eq!(to.families().count(), metrics::ALL.len());
    }
}
