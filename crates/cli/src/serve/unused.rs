//! Flags that would have no effect: the user who gives one expects something, and is told that it
//! would not happen. What the file says is left alone, as it may be that of several servers.

use super::admission::ListenerRules;
use super::args::Options;
use super::deadlines::Deadlines;
use super::given::{For, Given, of};
use super::kind::{Kind, Named};
use super::schema::Setting;
use super::settings::Settings;
use crate::exit::Failure;

impl Given {
    /// Looks at flags alone, before the file and the environment.
    pub(crate) fn among<'a>(names: impl Iterator<Item = &'a Setting>, flags: &Options) -> Given {
        let open = flags.open.iter().filter_map(|open| open.named());
        Given {
            flags: names
                .filter_map(|setting| Some((setting.name.clone(), of(setting)?)))
                .collect(),
            scopes: flags
                .admission
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
            For::KvHome => (
                settings.kv.has_home(),
                "the store has no home here: see --kv-replicate and --follow",
            ),
            For::Home => (
                settings.durable.replicate.is_some() || settings.kv.has_home(),
                "nothing is replicated here: see --replicate, and for keys --kv-replicate and --follow",
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
            For::LogKeys => (
                settings.kv.log_keys.is_some(),
                "no keys show the log here: see --kv-log-keys",
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
                    "--{flag} would have no effect: {why}"
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
