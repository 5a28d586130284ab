//! The settings of the key-value services, and the services.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use tidewire::{Builder, EngineChoice, Limits, Listen};
use tidewire_kv::service::{BinaryService, RespService, Settings as KvSettings};
use tidewire_kv::store::{self, Policy, Store};

use super::door::Door;
use super::endpoint::{Endpoint, Kind, KvMode};
use super::settings::Settings;
use super::tls::Fronts;
use crate::exit::Failure;
use crate::secret::Secret;
use crate::size::Size;
use crate::span::Span;

/// Settings of the key-value store; in the file the table `[kv]`, without `kv-`.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct KvOptions {
    /// Memory for keys and values; at the limit the policy decides. 0 is no limit [default: 0]
    #[arg(id = "kv-maxmemory", long = "kv-maxmemory", value_name = "SIZE")]
    pub(crate) maxmemory: Option<Size>,

    /// What goes when memory is short: noeviction, allkeys-lru, volatile-lru, volatile-ttl,
    /// allkeys-random, volatile-random [default: noeviction]
    #[arg(id = "kv-policy", long = "kv-policy", value_name = "POLICY")]
    pub(crate) policy: Option<String>,

    /// Numbered databases [default: 16]
    #[arg(id = "kv-databases", long = "kv-databases", value_name = "N")]
    pub(crate) databases: Option<u16>,

    /// A file whose one line clients must say with AUTH or HELLO first; the environment's
    /// TIDEWIRE_KV_PASSWORD does too [default: none, and only this host is served]
    #[arg(
        id = "kv-password-file",
        long = "kv-password-file",
        value_name = "FILE"
    )]
    pub(crate) password_file: Option<PathBuf>,

    /// The same in the configuration file or the environment; no flag, which others could see.
    #[arg(skip)]
    pub(crate) password: Option<Secret>,

    /// Parts of the store with a lock each, rounded up to a power of two [default: 1 if a single loop
    /// has it to itself, else 64]
    #[arg(id = "kv-shards", long = "kv-shards", value_name = "N")]
    pub(crate) shards: Option<usize>,

    /// Queued output beyond which a client is cut; replies are paced, so only a single larger one
    /// gets there [default: 1GiB]
    #[arg(
        id = "kv-client-output",
        long = "kv-client-output",
        value_name = "SIZE"
    )]
    pub(crate) client_output: Option<Size>,

    /// Queued output beyond which a subscriber is cut that does not take its messages
    /// [default: 32MiB]
    #[arg(
        id = "kv-subscriber-output",
        long = "kv-subscriber-output",
        value_name = "SIZE"
    )]
    pub(crate) subscriber_output: Option<Size>,

    /// Largest command of a client, less than 4 GiB [default: 1GiB]
    #[arg(id = "kv-query-buffer", long = "kv-query-buffer", value_name = "SIZE")]
    pub(crate) query_buffer: Option<Size>,

    /// Closes clients of the Redis protocol that are silent between commands for this long; 0 is
    /// never [default: 0]. Silence within a command is --idle
    #[arg(id = "kv-timeout", long = "kv-timeout", value_name = "SECS")]
    pub(crate) timeout: Option<Span>,
}

impl KvOptions {
    fn store(&self, settings: &Settings) -> Result<store::Settings, Failure> {
        let mut own = store::Settings::default();
        // Taking locks in turn is a good part of what a pipelined command costs.
        if settings.workers == 1 && settings.engine != EngineChoice::Threads {
            own.shards = 1;
        }
        let policy = match &self.policy {
            None => own.policy,
            Some(name) => Policy::from_name(name).ok_or_else(|| {
                let all = Policy::ALL.map(Policy::name).join(", ");
                Failure::usage(format!(
                    "--kv-policy {name}: there is no such policy: {all}"
                ))
            })?,
        };
        let databases = self.databases.unwrap_or(own.databases);
        if !(1..=256).contains(&databases) {
            return Err(Failure::usage(format!(
                "--kv-databases {databases}: 1 to 256"
            )));
        }
        let shards = self.shards.unwrap_or(own.shards);
        if !(1..=64).contains(&shards) {
            return Err(Failure::usage(format!("--kv-shards {shards}: 1 to 64")));
        }
        Ok(store::Settings {
            databases,
            shards,
            maxmemory: self.maxmemory.map_or(own.maxmemory, |size| size.0),
            policy,
            ..own
        })
    }

    fn services(&self, settings: &Settings) -> Result<KvSettings, Failure> {
        let own = KvSettings::default();
        let bytes = |size: Option<Size>, own: usize| size.map_or(own, |size| size.0 as usize);
        let query_buffer = bytes(self.query_buffer, own.query_buffer);
        if query_buffer > u32::MAX as usize {
            return Err(Failure::usage("--kv-query-buffer: less than 4 GiB"));
        }
        Ok(KvSettings {
            password: self.password()?,
            protected: !settings.is_open(Kind::Kv(KvMode::Resp)),
            query_buffer,
            client_output: bytes(self.client_output, own.client_output),
            subscriber_output: bytes(self.subscriber_output, own.subscriber_output),
            stall: settings.idle(own.stall),
            idle: self.timeout.and_then(Span::limit),
            ..own
        })
    }

    /// Takes the password that the environment holds, if no flag says where it is.
    pub(crate) fn take_secret(&mut self) -> Result<(), Failure> {
        if self.password_file.is_none() {
            self.password = Secret::from_environment("TIDEWIRE_KV_PASSWORD")?;
        }
        Ok(())
    }

    pub(crate) fn has_password(&self) -> bool {
        self.password_file.is_some() || self.password.is_some()
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let secret = match (&self.password_file, &self.password) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage(
                    "kv: password and password-file are two secrets: name one of them",
                ));
            }
            (Some(path), None) => Some(Secret::from_file(path)?),
            (None, password) => password.clone(),
        };
        match secret.map(Secret::into_text) {
            Some(text) if text.is_empty() => Err(Failure::usage("kv: the password is empty")),
            text => Ok(text),
        }
    }

    /// These, and where one is absent, that of `base`.
    pub(crate) fn over(self, base: KvOptions) -> KvOptions {
        // One secret, whichever way it is given.
        let secret = if self.has_password() {
            (self.password_file, self.password)
        } else {
            (base.password_file, base.password)
        };
        KvOptions {
            maxmemory: self.maxmemory.or(base.maxmemory),
            policy: self.policy.or(base.policy),
            databases: self.databases.or(base.databases),
            password_file: secret.0,
            password: secret.1,
            shards: self.shards.or(base.shards),
            client_output: self.client_output.or(base.client_output),
            subscriber_output: self.subscriber_output.or(base.subscriber_output),
            query_buffer: self.query_buffer.or(base.query_buffer),
            timeout: self.timeout.or(base.timeout),
        }
    }
}

/// The store and the services on it.
pub(crate) struct Kv {
    resp: (RespService, Door<RespService>),
    binary: (BinaryService, Door<BinaryService>),
}

impl Kv {
    /// Adds both services to the loops.
    pub(crate) fn add(
        builder: &mut Builder,
        settings: &Settings,
        fronts: &Fronts,
    ) -> Result<Kv, Failure> {
        let options = &settings.kv;
        let store = Arc::new(Store::new(options.store(settings)?));
        let own = options.services(settings)?;
        let limits = own.limits();
        let resp_limits = Limits {
            idle: limits.idle,
            ..settings.limits(limits)
        };
        let resp = RespService::new(store.clone(), own);
        let binary = if settings.is_binary_open() {
            BinaryService::open(store)
        } else {
            BinaryService::guarded(&resp)
        };
        let mine = |mode| move |endpoint: &Endpoint| endpoint.kind == Kind::Kv(mode);
        let resp_door = Door::add(
            builder,
            settings,
            fronts,
            mine(KvMode::Resp),
            resp.clone(),
            resp_limits,
        );
        let binary_door = Door::add(
            builder,
            settings,
            fronts,
            mine(KvMode::Binary),
            binary.clone(),
            settings.limits(BinaryService::limits()),
        );
        Ok(Kv {
            resp: (resp, resp_door),
            binary: (binary, binary_door),
        })
    }

    pub(crate) fn listen(
        &self,
        builder: &mut Builder,
        fronts: &Fronts,
        endpoint: &Endpoint,
        listen: Listen,
    ) -> Result<(), Failure> {
        match endpoint.kind {
            Kind::Kv(KvMode::Binary) => self.binary.1.listen(builder, fronts, endpoint, listen),
            _ => self.resp.1.listen(builder, fronts, endpoint, listen),
        }
    }

    pub(crate) fn listening(&self, kind: Kind, at: &tidewire::Endpoint) {
        if kind == Kind::Kv(KvMode::Resp) {
            self.resp.0.listens_at(at);
        }
    }

    /// Logs what was counted, if anything.
    pub(crate) fn log(&self) {
        let commands = self.resp.0.commands();
        if commands > 0 {
            let slow_subscribers = self.resp.0.slow_subscribers();
            let large_replies = self.resp.0.large_replies();
            tracing::info!(commands, slow_subscribers, large_replies, "kv/resp");
        }
        let counters = self.binary.0.counters();
        if counters != Default::default() {
            tracing::info!(%counters, "kv/binary");
        }
    }
}
