//! Makes the store and its services from the settings of the key-value store.

use std::path::Path;

use tidewire::{EngineChoice, Limits};
use tidewire_kv::service::{LogKeys, RespService, Settings as KvSettings};
use tidewire_kv::store::{self, Policy, SHARDS_MAX};
use tidewire_pool::Pool;

use super::log::disk_size;
use super::names::resp;
use super::settings::KvOptions;
use crate::exit::Failure;
use crate::serve::logs::open::OpenLog;
use crate::serve::settings::frame::Settings;
use crate::size::Size;

/// Shards for each of several loops: so few wait for one that another has that it is no matter how many loops there are.
const SHARDS_A_LOOP: usize = 4;
/// Shards for any number of loops: what takes all of their locks, as scripts do, is to stay cheap.
const SHARDS_OF_ALL_LOOPS: usize = 1024;

/// Threads that read the log of messages for clients of the store.
const LOG_READERS: usize = 2;

/// The growth of the log, in bytes, that leads to a new snapshot.
const GROWTH: u64 = 256 << 20;

/// A disk has room for so many of these at least, by default.
const GROWTHS_OF_A_DISK: u64 = 8;

impl KvOptions {
    pub(super) fn store(&self, settings: &Settings) -> Result<store::Settings, Failure> {
        let mut own = store::Settings::default();
        own.shards = match settings.workers {
            // Taking locks in turn is a good part of what a pipelined command costs.
            1 if settings.engine != EngineChoice::Threads => 1,
            loops => (SHARDS_A_LOOP * loops).clamp(own.shards, SHARDS_OF_ALL_LOOPS),
        };
        let policy = Policy::from_name(&self.policy).ok_or_else(|| {
            let all = Policy::ALL.map(Policy::name).join(", ");
            let name = &self.policy;
            Failure::usage(format!(
                "--kv-policy {name}: there is no such policy: {all}"
            ))
        })?;
        let databases = self.databases;
        if !(1..=256).contains(&databases) {
            return Err(Failure::usage(format!(
                "--kv-databases {databases}: 1 to 256"
            )));
        }
        let shards = self.shards.unwrap_or(own.shards);
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(Failure::usage(format!(
                "--kv-shards {shards}: 1 to {SHARDS_MAX}"
            )));
        }
        Ok(store::Settings {
            databases,
            shards,
            maxmemory: self.maxmemory.0,
            policy,
            ..own
        })
    }

    pub(super) fn services(&self, settings: &Settings) -> Result<KvSettings, Failure> {
        let bounds = self.bounds(settings);
        // No client could ask for more, and a smaller buffer serves none.
        let query_buffers = KvSettings::QUERY_BUFFER_MIN..=u32::MAX as usize;
        if !query_buffers.contains(&bounds.query_buffer) {
            return Err(Failure::usage(format!(
                "--kv-query-buffer {}: 1 MiB to less than 4 GiB",
                bounds.query_buffer
            )));
        }
        for (flag, bytes) in [
            ("--kv-client-output", bounds.client_output),
            ("--kv-subscriber-output", bounds.subscriber_output),
        ] {
            if bytes < KvSettings::OUTPUT_MIN {
                return Err(Failure::usage(format!(
                    "{flag} {bytes}: 16 KiB at least, or 0 for none of its own"
                )));
            }
        }
        Ok(KvSettings {
            password: self.password()?,
            protected: !settings.is_open(resp()),
            clients_max: self.resp_limits(settings).connections,
            keepalive: settings.tcp.keepalive,
            ..bounds
        })
    }

    /// Limits for a client of the Redis protocol.
    pub(super) fn bounds(&self, settings: &Settings) -> KvSettings {
        let own = KvSettings::default();
        let output = |size: Size| match size.0 as usize {
            0 => usize::MAX,
            bytes => bytes,
        };
        KvSettings {
            query_buffer: self.query_buffer.0 as usize,
            client_output: output(self.client_output),
            subscriber_output: output(self.subscriber_output),
            clients_memory: self
                .maxmemory_clients
                .map_or(own.clients_memory, |size| size.0),
            stall: settings.deadlines.idle(resp(), own.stall),
            idle: self.timeout.limit(),
            login_within: self.login.limit(),
            ..own
        }
    }

    /// The limits of this service's connections.
    pub(super) fn resp_limits(&self, settings: &Settings) -> Limits {
        let own = self.bounds(settings).limits();
        Limits {
            // The service itself looks whether a command is half there, or --kv-timeout has passed.
            idle: own.idle,
            ..settings.changed(resp(), own)
        }
    }

    /// The growth of the log in this directory, in bytes, that leads to a new snapshot.
    pub(super) fn growth(&self, directory: &Path) -> u64 {
        self.snapshot_growth.map_or_else(
            || GROWTH.min(disk_size(directory).unwrap_or(u64::MAX) / GROWTHS_OF_A_DISK),
            |size| size.0,
        )
    }

    /// How the log is shown as keys, if it is.
    pub(super) fn log_keys(&self, log: Option<&OpenLog>) -> Result<Option<LogKeys>, Failure> {
        if self.log_reply.0 == 0 {
            return Err(Failure::usage(
                "--kv-log-reply 0: no client could read anything of the log; at least 1, or leave --kv-log-keys out",
            ));
        }
        let (Some(prefix), Some(log)) = (&self.log_keys, log) else {
            return Ok(None);
        };
        let pool = Pool::new(&tidewire_pool::Settings {
            threads: LOG_READERS,
            places: tidewire::RESERVED_MAX,
            nice: 0,
        });
        let pool = pool.map_err(|error| {
            Failure::failed(format!(
                "cannot start the threads of --kv-log-keys: {error}"
            ))
        })?;
        Ok(Some(LogKeys {
            prefix: prefix.clone().into_bytes(),
            log: log.shared(),
            pool,
            reply_max: usize::try_from(self.log_reply.0).unwrap_or(usize::MAX),
        }))
    }

    pub(super) fn use_acl_file(&self, resp: &RespService) -> Result<(), Failure> {
        let Some(file) = &self.acl_file else {
            return Ok(());
        };
        resp.use_acl_file(file)
            .map_err(|error| Failure::usage(error.to_string()))
    }
}
