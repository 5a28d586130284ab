//! The services: Redis's protocol and the small binary one, on one store.
//!
//! A connection's input is parsed a chunk at a time, the commands are run in order, and the replies
//! are written together. Commands about keys come from [`crate::commands`]; commands about
//! connections and the server are here, with publish and subscribe, transactions and waiting.

mod acl;
mod attention;
mod batch;
mod binary_service;
mod blocking;
mod call;
mod client;
mod clients;
mod cluster;
mod command;
mod config;
mod conn;
mod count;
mod durable;
mod eviction;
mod following;
mod held;
mod hello;
mod holdings;
mod info;
mod key_flags;
mod key_specs;
mod latency;
mod loading;
mod local;
mod log_keys;
mod memory;
mod message;
mod misc;
mod monitor;
mod monitors;
mod multi;
mod outcome;
mod ownership;
mod persistence;
mod pubsub;
mod pubsub_commands;
mod records;
mod registry;
mod replication;
mod replication_commands;
mod resp_service;
mod run;
mod saving;
mod script;
mod secrets;
mod section;
mod sentinel;
mod sentinel_commands;
mod session;
mod settings;
mod shared;
mod slowlog;
mod spikes;
mod stats;
mod table;
mod thresholds;
mod times;
mod tracking;
mod transaction;
mod transaction_commands;
mod tuning;
mod values;
mod wait;

pub use acl::AclFileError;
pub use binary_service::{BinaryConn, BinaryCounters, BinaryLocal, BinaryService};
pub use conn::RespConn;
pub use local::RespLocal;
#[doc(hidden)]
pub use log_keys::WasRead;
pub use log_keys::{LogCounters, LogKeys};
pub use message::Message;
pub use replication::{LeaseShown, Replicated, Replication, Role};
pub use resp_service::{RespCounters, RespService};
pub use script::library_name;
pub use sentinel::{Address, BadAddress, Sentinel, Servers};
pub use settings::Settings;
