//! What a running server shows of itself, and where it shows it.
//!
//! The one idea: everything that can be seen is a [`Snapshot`], taken at the moment somebody asks, of metrics that
//! stand in one list with what they mean ([`catalogue`]). The Prometheus page, the dashboard, `tidewire info` and
//! `tidewire top` are four ways of writing the same snapshot, under the same names.
//!
//! A [`Panel`] gathers snapshots; an [`Admin`] serves it over HTTP, on a loop of its own: it answers while the server
//! recovers, while it drains, and while its loops are stuck.
#![forbid(unsafe_code)]

mod admin;
pub mod catalogue;
mod desk;
mod gate;
mod json;
mod loops;
mod metric;
mod page_of_turn;
mod panel;
mod process;
mod prometheus;
mod room;
mod snapshot;

pub use admin::Admin;
pub use gate::Token;
pub use json::{Bucket, Listener, Page, Point};
pub use metric::{Kind, Metric};
pub use panel::{Levels, Panel, Stage};
pub use snapshot::{Sample, Snapshot, Value};
