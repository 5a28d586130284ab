//! `tidewire kv`: keys in and out of the key-value server, as dumps of Redis; and whose a replicated store is.

mod export;
mod import;
mod login;
mod promote;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use tidewire_kv::durable::{self, Accept, KvLog, ReplayError, Replayed};
use tidewire_kv::store::{Settings, Store};
use tidewire_log::{EmbeddedLog, Kind, Policy, ReadError};

use crate::data::{keys_in, parts, refuse_other};
use crate::exit::Failure;
use crate::serve::kv_settings;

/// Moves keys in and out, and stores from server to server.
#[derive(Debug, Subcommand)]
pub(crate) enum Kv {
    /// Puts the keys of a dump of Redis (RDB) into a running server, or into the directory of one that is not
    /// running and has no keys.
    Import(import::Args),
    /// Writes the keys in the directory of a server, which is not running, as a dump that Redis and Valkey
    /// load.
    Export(export::Args),
    /// Has a server that follows another one's store (serve kv --follow) take it over: the other one is fenced, the rest of
    /// what is at home is read, and changes are taken from then on.
    Promote(promote::Args),
}

impl Kv {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Kv::Import(args) => import::run(args),
            Kv::Export(args) => export::run(args),
            Kv::Promote(args) => promote::run(args),
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_millis() as u64
}

/// A store with its log, while no server has it.
struct Opened {
    log: Arc<EmbeddedLog>,
    kv_log: Arc<KvLog>,
    store: Store,
    found: Replayed,
}

/// Opens the keys in the data directory `data` of a server, or in a backup of it. With `accept_loss`, opens also a store
/// that has lost records in damage, for reading only.
fn open(data: &Path, accept_loss: bool) -> Result<Opened, Failure> {
    let directory = keys_in(data);
    refuse_other(&directory, Kind::Keys)?;
    let settings = kv_settings(&directory, None, Policy::Os)?;
    let cannot = |why: String| {
        Failure::failed(format!(
            "cannot open the key-value store in {}: {why}",
            directory.display()
        ))
    };
    let (log, _) = EmbeddedLog::start(&directory, settings).map_err(|why| {
        cannot(format!(
            "{why}; only one process can have it open: stop the server, or copy the log with \
             `tidewire log backup` and use the copy"
        ))
    })?;
    let log = Arc::new(log);
    let store = Store::new(Settings {
        databases: 256,
        ..Settings::default()
    });
    let progress = |_: &Replayed, _, _| ControlFlow::Continue(());
    let accept = match accept_loss {
        true => Accept::GapsAndEnd,
        false => Accept::Nothing,
    };
    let opened = durable::open(log.clone(), &store, now_ms(), accept, progress);
    let (kv_log, found) = opened.map_err(|why| {
        let way_on = match &why {
            ReplayError::Read(ReadError::Missing { .. }) => {
                "; `export --accept-loss` exports the rest"
            }
            _ => "",
        };
        cannot(format!("{why}{way_on}"))
    })?;
    Ok(Opened {
        log,
        kv_log,
        store,
        found,
    })
}

/// Whether there is a store to open.
fn is_there(data: &Path) -> bool {
    let parts = parts(data);
    parts.iter().any(|part| part.kind == Kind::Keys)
}
