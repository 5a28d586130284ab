//! Flags that would have no effect: whoever gives one means something by it, and is told that it would not happen.
//! What the file says is left alone, as it may be that of several servers.

use super::admission::ListenerRules;
use super::args::Options;
use super::deadlines::Deadlines;
use super::endpoint::{Kind, Named};
use super::settings::Settings;
use crate::exit::Failure;

/// What a flag is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Kv,
    Http,
    Ingest,
    Ack,
    AckOrIngest,
    /// Whatever writes to the log of messages, or to that of keys.
    Log,
    /// A log of messages that has a home.
    Replicated,
    /// One that is synced before anybody is answered.
    SyncedLog,
    DurableKv,
    Tls,
    Admin,
    /// A limit that counts addresses, or networks.
    Addresses,
    Prefixes,
}

/// The flags that were given, of those that are for something that may not be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    flags: Vec<(&'static str, For)>,
    /// Flags that name a service.
    scopes: Vec<(&'static str, Named)>,
}

impl Given {
    /// Of flags alone, before the file and the environment are looked at.
    pub(crate) fn among(flags: &Options) -> Given {
        let Options {
            kv,
            http,
            ingest,
            ack,
            durable,
            tls,
            admin,
            admission,
            ..
        } = flags;
        let all = [
            (kv.maxmemory.is_some(), "--kv-maxmemory", For::Kv),
            (kv.policy.is_some(), "--kv-policy", For::Kv),
            (kv.databases.is_some(), "--kv-databases", For::Kv),
            (kv.durability.is_some(), "--durability", For::Kv),
            (
                kv.snapshot_growth.is_some(),
                "--kv-snapshot-growth",
                For::DurableKv,
            ),
            (kv.accept_loss, "--kv-accept-loss", For::DurableKv),
            (kv.password_file.is_some(), "--kv-password-file", For::Kv),
            (kv.acl_file.is_some(), "--kv-acl-file", For::Kv),
            (kv.shards.is_some(), "--kv-shards", For::Kv),
            (kv.client_output.is_some(), "--kv-client-output", For::Kv),
            (
                kv.subscriber_output.is_some(),
                "--kv-subscriber-output",
                For::Kv,
            ),
            (kv.query_buffer.is_some(), "--kv-query-buffer", For::Kv),
            (kv.timeout.is_some(), "--kv-timeout", For::Kv),
            (
                http.request_line.is_some(),
                "--http-request-line",
                For::Http,
            ),
            (http.head.is_some(), "--http-head", For::Http),
            (http.headers.is_some(), "--http-headers", For::Http),
            (http.body.is_some(), "--http-body", For::Http),
            (http.bodies.is_some(), "--http-bodies", For::Http),
            (http.streamed.is_some(), "--http-streamed", For::Http),
            (ingest.level.is_some(), "--ingest-level", For::Ingest),
            (
                ingest.quota_messages.is_some(),
                "--quota-messages",
                For::Ingest,
            ),
            (ingest.quota_bytes.is_some(), "--quota-bytes", For::Ingest),
            (
                ingest.window_messages.is_some(),
                "--window-messages",
                For::Ingest,
            ),
            (ingest.window_bytes.is_some(), "--window-bytes", For::Ingest),
            (ingest.readers.is_some(), "--readers", For::Ingest),
            (
                ingest.reader_memory.is_some(),
                "--reader-memory",
                For::Ingest,
            ),
            (
                ingest.token_file.is_some(),
                "--ingest-token-file",
                For::Ingest,
            ),
            (
                ingest.admin_token_file.is_some(),
                "--ingest-admin-token-file",
                For::Ingest,
            ),
            (ingest.streams.is_some(), "--streams", For::Ingest),
            (ack.level.is_some(), "--ack-level", For::Ack),
            (ack.stream.is_some(), "--ack-stream", For::Ack),
            (
                flags.max_payload.is_some(),
                "--max-payload",
                For::AckOrIngest,
            ),
            (durable.policy.is_some(), "--sync", For::Log),
            (durable.group_wait.is_some(), "--group-wait", For::SyncedLog),
            (durable.segment.is_some(), "--segment", For::Log),
            (durable.payload_max.is_some(), "--log-payload", For::Log),
            (
                durable.retention_bytes.is_some(),
                "--retain-bytes",
                For::Log,
            ),
            (durable.retention_age.is_some(), "--retain-age", For::Log),
            (durable.remember.is_some(), "--remember-producers", For::Log),
            (durable.verify.is_some(), "--verify", For::Log),
            (durable.on_failure.is_some(), "--on-log-failure", For::Log),
            (durable.replicate.is_some(), "--replicate", For::AckOrIngest),
            (
                durable.replicate_config.is_some(),
                "--replicate-config",
                For::Replicated,
            ),
            (
                durable.replicate_unsafe,
                "--replicate-unsafe",
                For::Replicated,
            ),
            (
                durable.backlog_bytes.is_some(),
                "--backlog-bytes",
                For::Replicated,
            ),
            (
                admission.address_v6.is_some(),
                "--address-v6",
                For::Addresses,
            ),
            (admission.prefix_v4.is_some(), "--prefix-v4", For::Prefixes),
            (admission.prefix_v6.is_some(), "--prefix-v6", For::Prefixes),
            (tls.is_some(), "--tls-cert", For::Tls),
            (
                admin.admin_token_file.is_some(),
                "--admin-token-file",
                For::Admin,
            ),
            (!admin.admin_host.is_empty(), "--admin-host", For::Admin),
        ];
        let given = all.into_iter().filter(|(given, ..)| *given);
        let open = flags.open.iter().filter_map(|open| open.named());
        Given {
            flags: given.map(|(_, flag, of)| (flag, of)).collect(),
            scopes: admission
                .scopes()
                .into_iter()
                .chain(Deadlines::of(flags).scopes())
                .chain(open.map(|named| ("--open", named.clone())))
                .collect(),
        }
    }

    /// Refuses the first that has nothing to act on.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let serves = |is: fn(Kind) -> bool| settings.endpoints.iter().any(|e| is(e.kind));
        let limits = |own: fn(&ListenerRules) -> bool| {
            let mut rules = settings.endpoints.iter().map(|e| &e.shield.rules);
            rules.any(own)
        };
        let admission = &settings.admission;
        let look = |of: For| match of {
            For::Kv => (
                serves(|k| matches!(k, Kind::Kv(_))),
                "kv is not served here",
            ),
            For::Http => (serves(|k| k == Kind::Http), "http is not served here"),
            For::Ingest => (serves(|k| k == Kind::Ingest), "ingest is not served here"),
            For::Ack => (
                serves(|k| matches!(k, Kind::Ack(_))),
                "ack is not served here",
            ),
            For::AckOrIngest => (
                serves(|k| matches!(k, Kind::Ack(_) | Kind::Ingest)),
                "neither ack nor ingest is served here",
            ),
            For::Log => (
                !settings.log_directories().is_empty(),
                "no service here writes to a log: ingest does, ack with --ack-level, kv with --durability",
            ),
            For::Replicated => (
                settings.durable.replicate.is_some(),
                "nothing is replicated here: see --replicate",
            ),
            For::SyncedLog => (
                settings.awaits_syncs(),
                "no log here is synced before it answers: that is --sync sync, for kv --durability sync",
            ),
            For::DurableKv => (
                settings.kv_durability().is_some(),
                "there is no log of keys here: see --durability",
            ),
            For::Tls => (
                settings.endpoints.iter().any(|e| e.front.tls.is_some())
                    || settings.admin_front.tls.is_some(),
                "no listener here speaks TLS: on a Unix socket it is SERVICE=tls:unix:/PATH",
            ),
            For::Admin => (!settings.admin.is_off(), "there is no admin listener"),
            For::Addresses => (
                admission.counts_addresses() || limits(ListenerRules::counts_addresses),
                "it is for --max-per-address and --accept-rate-per-address",
            ),
            For::Prefixes => (
                admission.counts_prefixes() || limits(ListenerRules::counts_prefixes),
                "it is for --max-per-prefix",
            ),
        };
        for (flag, of) in &self.flags {
            let (acts, why) = look(*of);
            if !acts {
                return Err(Failure::usage(format!(
                    "{flag} would have no effect: {why}"
                )));
            }
        }
        let served = |named: &Named| settings.endpoints.iter().any(|e| named.0.contains(&e.kind));
        match self.scopes.iter().find(|(_, named)| !served(named)) {
            Some((flag, named)) => Err(Failure::usage(format!(
                "{flag} {named}: {named} is not served here"
            ))),
            None => Ok(()),
        }
    }
}
