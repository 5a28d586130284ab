//! The load itself: clients that are protocols on the toolkit's own engines.
//!
//! The idea: every connection is a `Client` around a `Driver` that knows one kind of load. All
//! connections of a run share a `Stage`: no connection sends before all are connected, counts and
//! latencies are kept for each loop and added up at the end, and the first wrong reply ends the
//! run. Whatever is sent is checked: an echo byte for byte, acknowledgements as a chain without
//! gaps.

mod ack;
mod ack_fault;
mod arrivals;
mod client;
mod connect;
mod course;
mod crew;
mod discard;
mod echo;
mod failure;
mod fault;
mod findings;
mod flight;
mod http;
mod http_body;
mod http_reply;
mod kv;
mod kv_keys;
mod kv_mix;
mod kv_reply;
mod kv_template;
mod kv_values;
mod kv_wire;
mod member;
mod native;
mod null;
mod outcome;
mod pace;
mod part;
mod pattern;
mod preset;
mod rounds;
mod run;
mod stage;
#[cfg(test)]
mod truth;
#[cfg(test)]
mod truth_search;
mod turns;

use serde::Serialize;

pub use ack::{AckLoad, Checks, Rounds};
pub use arrivals::{Arrivals, Rate, Spacing};
pub use connect::ConnectLoad;
pub use crew::Crew;
pub use failure::Failure;
pub use fault::Fault;
pub use findings::{Reads, Reconnects};
pub use http::{HttpLoad, HttpRequest};
pub use kv::KvLoad;
pub use kv_keys::KeyChoice;
pub use kv_mix::Mix;
pub use kv_template::Template;
pub use kv_values::ValueSizes;
pub use kv_wire::Wire;
pub use member::serve_part;
pub use native::NativeLoad;
pub use null::null_server;
pub use outcome::{Histograms, Kernel, MemoryUse, Outcome, Schedule};
pub use part::Part;
pub use preset::Preset;
pub use rounds::{Play, Script};
pub use run::{Extent, Generator, Plan, Progress, Target, Watch, in_rounds, run};
pub use stage::Round;

/// What to send, on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Messages that come back.
    Echo(EchoLoad),
    /// Messages that are acknowledged.
    Ack(AckLoad),
    /// Messages to a log, over the native protocol.
    Native(NativeLoad),
    /// Commands on keys.
    Kv(KvLoad),
    /// Requests to a web server.
    Http(HttpLoad),
    /// Bytes without an answer.
    Discard(DiscardLoad),
    /// Connections that are held.
    Idle(IdleLoad),
    /// Connections that are opened and closed.
    Connect(ConnectLoad),
}

impl Workload {
    /// The service that it loads, as in the line by which a server says where it listens.
    pub fn service(&self) -> &'static str {
        match self {
            Workload::Echo(_) | Workload::Idle(_) | Workload::Connect(_) => "echo",
            Workload::Ack(_) => "ack",
            Workload::Native(_) => "ingest",
            Workload::Kv(_) => "kv",
            Workload::Http(_) => "http",
            Workload::Discard(_) => "discard",
        }
    }

    /// What the load is called: the service, unless several loads go to one.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Idle(_) => "idle",
            Workload::Connect(_) => "connect",
            other => other.service(),
        }
    }

    /// The service's mode, if it has several.
    pub fn mode(&self) -> Option<&'static str> {
        match self {
            Workload::Ack(load) => Some(load.mode.name()),
            Workload::Kv(load) => Some(load.wire.mode()),
            Workload::Echo(_)
            | Workload::Native(_)
            | Workload::Http(_)
            | Workload::Discard(_)
            | Workload::Idle(_)
            | Workload::Connect(_) => None,
        }
    }
}

/// Messages that come back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EchoLoad {
    /// Bytes of a message, at least 1.
    pub size: usize,
    /// Messages in flight on each connection, at least 1.
    pub pipeline: u32,
    /// Messages handed to the kernel at once; a write waits until the pipeline has room for so
    /// many. 0 writes whatever there is room for.
    pub batch: u32,
}

/// Connections that are held, some of which have messages echoed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleLoad {
    /// Bytes of a message, at least 1.
    pub size: usize,
    /// The share of connections that send anything, 0 to 1; at least one where it is not 0.
    pub active: f64,
}

impl IdleLoad {
    /// How many of so many connections send.
    pub fn active_of(&self, connections: usize) -> usize {
        let active = (connections as f64 * self.active.clamp(0.0, 1.0)).round() as usize;
        active.max(usize::from(self.active > 0.0)).min(connections)
    }
}

/// Bytes without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiscardLoad {
    /// Bytes of a message, at least 1. Messages exist only in the counting.
    pub size: usize,
    /// Messages handed to the kernel at once, at least 1.
    pub batch: u32,
}
