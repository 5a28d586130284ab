//! The load itself: clients that are protocols on the toolkit's own engines.
//!
//! The idea: every connection is a `Client` around a `Driver` that knows one kind of load. All
//! connections of a run share a `Stage`: no connection sends before all are connected, counts and
//! latencies are kept for each loop and added up at the end, and the first wrong reply ends the
//! run. Whatever is sent is checked: an echo byte for byte, acknowledgements as a chain without
//! gaps.

mod ack;
mod ack_args;
mod ack_fault;
mod arrivals;
mod client;
mod connect;
mod course;
mod crew;
mod discard;
mod echo;
mod execution;
mod extent;
mod failure;
mod fault;
mod findings;
mod flight;
mod generator;
mod http;
mod http_args;
mod http_body;
mod http_reply;
mod idle;
mod kv;
mod kv_args;
mod kv_growth;
mod kv_keys;
mod kv_load;
mod kv_mix;
mod kv_null;
mod kv_reply;
mod kv_template;
mod kv_values;
mod kv_wire;
mod load;
mod member;
mod native;
mod null;
#[cfg(test)]
mod null_tests;
mod options;
mod outcome;
mod pace;
mod part;
mod pattern;
mod plan;
mod play;
mod preset;
mod rounds;
mod run;
mod stage;
#[cfg(test)]
mod truth;
#[cfg(test)]
mod truth_search;
mod turns;
mod url;

pub use ack::{AckLoad, Checks, Rounds};
pub use arrivals::{Arrivals, Rate, Spacing};
pub use connect::ConnectLoad;
pub use crew::Crew;
pub use discard::DiscardLoad;
pub use echo::EchoLoad;
pub use extent::Extent;
pub use failure::Failure;
pub use fault::Fault;
pub use findings::{Reads, Reconnects, Work};
pub use generator::{Generator, Progress, Target, Watch};
pub use http::{HttpLoad, HttpRequest};
pub use idle::IdleLoad;
pub use kv_keys::KeyChoice;
pub use kv_load::KvLoad;
pub use kv_mix::Mix;
pub use kv_template::Template;
pub use kv_values::ValueSizes;
pub use kv_wire::Wire;
pub use load::{Baseline, Instead, Load, Scripted, Workload};
pub use member::serve_part;
pub use native::NativeLoad;
pub use null::{Answers, Replies, null_server};
pub use options::{Chosen, First, Kind, Options, Purpose, Unfit};
pub use outcome::{Histograms, Kernel, MemoryUse, Outcome, Schedule};
pub use part::Part;
pub use plan::Plan;
pub use play::{Play, Script};
pub use preset::Preset;
pub use run::{in_rounds, run};
pub use stage::Round;
pub use url::Url;

/// All kinds of load, in the order of the help.
pub static KINDS: &[Kind] = &[
    echo::KIND,
    ack_args::KIND,
    kv_args::KIND,
    http_args::KIND,
    discard::KIND,
    idle::KIND,
    connect::KIND,
];
