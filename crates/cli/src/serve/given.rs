//! The given flags of features that may be absent.

use super::kind::Named;
use super::schema::Setting;

/// What a flag is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Kv,
    Http,
    Ingest,
    Ack,
    AckOrIngest,
    /// Whatever writes to the log of messages, or to that of keys.
    Log,
    /// Keys that have a home.
    KvHome,
    /// Anything that has one.
    Home,
    /// A log of messages that has one.
    Replicated,
    /// A log that is synced before any client is answered.
    SyncedLog,
    DurableKv,
    /// Keys that show the log of messages.
    LogKeys,
    Tls,
    Admin,
    /// A limit that counts addresses, or networks.
    Addresses,
    Prefixes,
}

/// The given flags of features that may be absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(super) flags: Vec<(String, For)>,
    /// Flags that name a service.
    pub(super) scopes: Vec<(&'static str, Named)>,
}

/// What a flag is for, if that may be missing. A flag of a service's own heading is for that service.
pub(super) fn of(setting: &Setting) -> Option<For> {
    let of = match &*setting.name {
        // These flags say that there is to be one, or where.
        "data" | "admin" | "tls-key" | "tls-client-ca" => return None,
        "kv-snapshot-growth" | "kv-accept-loss" => For::DurableKv,
        "kv-home-growth" | "kv-lease" => For::KvHome,
        "kv-log-reply" | "kv-log-past-tokens" => For::LogKeys,
        "max-payload" | "replicate" => For::AckOrIngest,
        "replicate-config" | "replicate-unsafe" | "backlog-bytes" => For::Home,
        "fleet" | "fleet-address" | "fleet-hand-over" | "replicate-record" | "replicate-stream" => {
            For::Replicated
        }
        "group-wait" => For::SyncedLog,
        "address-v6" => For::Addresses,
        "prefix-v4" | "prefix-v6" => For::Prefixes,
        _ => match setting.table.as_deref()? {
            "kv" => For::Kv,
            "http" => For::Http,
            "ingest" => For::Ingest,
            "ack" => For::Ack,
            "durable-log" => For::Log,
            "tls" => For::Tls,
            "admin" => For::Admin,
            _ => return None,
        },
    };
    Some(of)
}
