//! Flags that would have no effect: a user who gives one expects an effect, and is told that there
//! would be none. Settings in the file are not checked for this, because several servers may share
//! a file.

use crate::exit::Failure;
use crate::serve::admin::options::AdminOptions;
use crate::serve::listeners::admission::{AdmissionOptions, ListenerRules};
use crate::serve::listeners::kind::{Named, in_words, services};
use crate::serve::listeners::tls::TlsOptions;
use crate::serve::logs::options::LogOptions;
use crate::serve::product::Plan;
use crate::serve::settings::args::Options;
use crate::serve::settings::given::{Given, Need};
use crate::serve::settings::schema::Setting;

impl Given {
    /// Looks at flags alone, before the file and the environment.
    pub(crate) fn among<'a>(names: impl Iterator<Item = &'a Setting>, flags: &Options) -> Given {
        let open = flags.open.iter().filter_map(|open| open.named());
        Given {
            flags: names
                .map(|setting| (setting.name.clone(), setting.table.clone()))
                .collect(),
            scopes: flags
                .admission
                .scopes()
                .into_iter()
                .chain(flags.deadlines.scopes())
                .chain(open.map(|named| ("--open", named.clone())))
                .collect(),
        }
    }

    /// Refuses the first flag that would have no effect.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Failure> {
        for (flag, table) in &self.flags {
            if let Some(why) = plan.is_unused(flag, table.as_deref()) {
                return Err(Failure::usage(format!(
                    "--{flag} would have no effect: {why}"
                )));
            }
        }
        let served = |named: &Named| named.0.iter().any(|kind| plan.serves_kind(*kind));
        match self.scopes.iter().find(|(_, named)| !served(named)) {
            Some((flag, named)) => Err(Failure::usage(format!(
                "{flag} {named}: {named} is not served here"
            ))),
            None => Ok(()),
        }
    }
}

impl Plan {
    /// Why a flag would have no effect, if so.
    fn is_unused(&self, flag: &str, table: Option<&str>) -> Option<String> {
        if let Some((service, product)) = self.all().find(|(of, _)| Some(of.name) == table) {
            return match product.unused(flag, self) {
                Some(why) => Some(why.into()),
                None if self.serves(service) => None,
                None => Some(format!("{} is not served here", service.name)),
            };
        }
        let need = match (flag, table) {
            ("max-payload", _) => Some(Need::Messages),
            (_, Some("durable-log")) => LogOptions::need(flag),
            (_, Some("tls")) => TlsOptions::need(flag),
            (_, Some("admin")) => AdminOptions::need(flag),
            (_, Some("admission")) => AdmissionOptions::need(flag),
            _ => None,
        };
        need.and_then(|need| self.lacks(need))
    }

    fn lacks(&self, need: Need) -> Option<String> {
        let limits = |own: fn(&ListenerRules) -> bool| {
            let mut rules = self.endpoints.iter().map(|e| &e.shield.rules);
            rules.any(own)
        };
        let admission = &self.admission;
        let (is_there, why) = match need {
            Need::Messages => {
                let takes = || services().filter(|service| service.takes_messages);
                let mut names: Vec<&str> = takes().map(|service| service.name).collect();
                names.sort_unstable();
                let names = in_words(names.into_iter(), "nor");
                let why = format!("neither {names} is served here");
                return (!takes().any(|service| self.serves(service))).then_some(why);
            }
            Need::Log => (
                !self.log_directories().is_empty(),
                "no service that is served writes to a log: ingest does, ack with --ack-level, kv with --durability",
            ),
            Need::Home => (
                self.durable.replicate.is_some()
                    || self.all().any(|(_, product)| product.has_home()),
                "no log is replicated: see --replicate, and for keys --kv-replicate and --follow",
            ),
            Need::Replicated => (
                self.durable.replicate.is_some(),
                "no log is replicated: see --replicate",
            ),
            Need::SyncedLog => (
                self.awaits_syncs(),
                "no log is synced before replies: add --sync sync, or for kv --durability sync",
            ),
            Need::Tls => (
                self.endpoints.iter().any(|e| e.front.tls.is_some())
                    || self.admin_front.tls.is_some(),
                "no listener speaks TLS: for a Unix socket write SERVICE=tls:unix:/PATH",
            ),
            Need::Admin => (
                !self.admin.is_off(),
                "the server has no admin listener (see --admin)",
            ),
            Need::Addresses => (
                admission.counts_addresses() || limits(ListenerRules::counts_addresses),
                "it needs --max-per-address or --accept-rate-per-address",
            ),
            Need::Prefixes => (
                admission.counts_prefixes() || limits(ListenerRules::counts_prefixes),
                "it needs --max-per-prefix",
            ),
        };
        (!is_there).then(|| why.into())
    }
}
