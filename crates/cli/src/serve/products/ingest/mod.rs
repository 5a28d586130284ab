//! The ingest service: stores messages, and gives them back to readers.

mod settings;
mod tokens;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tidewire::Limits;
use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::ingest as metrics;
use tidewire_ingest::native::{self, IngestService};

use self::settings::IngestOptions;
use self::tokens::TokenEntry;
use crate::exit::Failure;
use crate::serve::listeners::kind::{Kind, Mode, Service};
use crate::serve::logs::open::{Logs, STREAMS_SHOWN};
use crate::serve::product::{Entry, FileKey, Frame, Plan, Product, Refused, Serving, read_key};
use crate::serve::running::word::word;
use crate::serve::settings::defaults::secs;
use crate::serve::settings::frame::Settings;

static SERVICE: Service = Service {
    is_default: true,
    takes_messages: true,
    secret: Some("ingest-token"),
    ..Service::new(
        "ingest",
        &[Mode {
            name: Some("native"),
            ports: &[7400],
        }],
    )
};

pub(super) static ENTRY: Entry = Entry {
    keys: &[FileKey {
        name: "ingest-tokens",
        is_secret: false,
        read: read_key::<Vec<TokenEntry>>,
        example: "\
# A token of ingest, by its hash (`printf %s SECRET | sha256sum`); streams: all if there are none; rights: read, write,
# admin, the first two if nothing is said. SIGHUP has them read again.
#[[ingest-tokens]]
#name = \"shipper\"
#sha256 = \"...\"
#streams = [\"logs\"]
#rights = [\"write\"]
",
    }],
    defaults: || {
        let hello = secs(native::Settings::default().hello_within);
        vec![("first_byte", format!("ingest awaits its hello for {hello} s"))]
    },
    ..Entry::of::<IngestOptions>(&SERVICE, "Ingest")
};

impl Product for IngestOptions {
    fn take_secret(&mut self) -> Result<(), Failure> {
        self.take_token()
    }

    fn take(&mut self, value: Box<dyn Any>) {
        if let Ok(tokens) = value.downcast() {
            self.tokens = *tokens;
        }
    }

    fn complete(&mut self, settings: &Settings) -> Result<(), Failure> {
        let mut plan = self.settings(settings.max_payload)?;
        plan.fleet = settings.fleet.clone();
        plan.replicated = settings.durable.replicate.is_some();
        plan.protected = !settings.is_open(SERVICE.kind(0));
        self.plan = plan;
        Ok(())
    }

    fn check(&self, plan: &Plan) -> Result<(), Failure> {
        match plan.deadlines.limits_silence_of(&SERVICE) {
            true => Err(Failure::usage(
                "--idle ingest= would have no effect: a producer may have nothing to send; \
                 --tcp-keepalive finds hosts that have disappeared",
            )),
            false => Ok(()),
        }
    }

    fn limits(&self, kind: Kind, settings: &Settings) -> Limits {
        let own = self.plan.limits();
        Limits {
            // A producer may have nothing to say.
            idle: own.idle,
            ..settings.changed(kind, own)
        }
    }

    fn show_limits(&self, _: Kind, _: &Settings, shown: &mut Value) {
        shown["hello"] = self.plan.hello_within.as_secs_f64().into();
    }

    fn shown(&self, _: &Plan) -> Value {
        let plan = &self.plan;
        json!({
            "payload-max": plan.payload_max,
            "tokens": plan.tokens.len(),
        })
    }

    fn asks_for_secret(&self, _: Kind) -> bool {
        !self.plan.tokens.is_empty()
    }

    fn secret_flag(&self, _: Kind) -> Option<&'static str> {
        Some("--ingest-token-file")
    }

    fn secret_files(&self) -> Vec<&Path> {
        self.token_file.as_deref().into_iter().collect()
    }

    fn is_harmless(&self) -> bool {
        false
    }

    fn shows_messages(&self) -> bool {
        true
    }

    fn needs_messages(&self) -> bool {
        true
    }

    fn described(&self, logs: &Logs) -> String {
        let log = logs.messages.as_ref();
        log.map_or(String::new(), |log| {
            let directory = word(&log.directory.to_string_lossy());
            format!(" dir={directory} policy={}", log.policy())
        })
    }

    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure> {
        let service = Arc::new(IngestService::new(frame.messages(), self.plan.clone()));
        frame.add(SERVICE.kind(0), service.clone());
        Ok(Box::new(Ingest {
            service,
            had_tokens: !self.plan.tokens.is_empty(),
        }))
    }
}

struct Ingest {
    service: Arc<IngestService>,
    /// Whether the service had tokens when it started.
    had_tokens: bool,
}

impl Serving for Ingest {
    /// Reads the tokens again. Files that now hold none are taken for a mistake: without tokens
    /// every client on this host would be let in.
    fn reload(&self, again: &dyn Product, guarded: &dyn Fn(bool)) {
        let Some(options) = (again as &dyn Any).downcast_ref::<IngestOptions>() else {
            return;
        };
        match options.accepted() {
            Ok(tokens) if self.had_tokens && tokens.is_empty() => {
                tracing::error!("SIGHUP: the files hold no token any more: the old tokens stay");
            }
            Ok(tokens) if self.had_tokens || !tokens.is_empty() => {
                // This comes before any client relies on the tokens.
                guarded(!tokens.is_empty());
                let count = tokens.len();
                self.service.change_tokens(tokens);
                tracing::info!(
                    tokens = count,
                    "SIGHUP: the tokens of ingest were read again"
                );
            }
            Ok(_) => {}
            Err(Failure { message, .. }) => {
                tracing::error!(
                    why = message,
                    "SIGHUP: the tokens of ingest have not changed"
                );
            }
        }
    }

    fn refused(&self) -> Refused {
        let counters = self.service.counters();
        Refused {
            by_disk: counters.refused_disk_full,
            by_streams: counters.refused_stream_full,
        }
    }

    fn collect(&self, to: &mut Snapshot) {
        self.service.counters().each(|name, n| {
            to.count(metrics::of_counter(name), &[], n);
        });
        // How far behind the connected readers are.
        let mut farthest = BTreeMap::new();
        for reader in self.service.reading() {
            let least = farthest.entry(reader.stream).or_insert(reader.position);
            *least = reader.position.min(*least);
        }
        for (stream, position) in farthest.iter().take(STREAMS_SHOWN) {
            let next = self.service.range(stream).map_or(0, |range| range.next);
            let lag = next.saturating_sub(*position);
            to.add(&metrics::READER_LAG, &[stream], lag);
        }
    }

    fn log(&self) {
        let counters = self.service.counters();
        if counters != Default::default() {
            tracing::info!(%counters, "ingest");
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_ingest::native::Counters;

    use super::*;

    #[test]
    fn every_counter_has_a_metric() {
        let mut to = Snapshot::default();
        Counters::default().each(|name, n| {
            assert!(to.count(metrics::of_counter(name), &[], n), "{name}");
        });
        let counted = to.families().count();
        let all: usize = to.families().map(|(_, samples)| samples.len()).sum();
        assert!(
            all > counted && counted == metrics::ALL.len() - 1,
            "{}",
            to.to_prometheus()
        );
    }
}
