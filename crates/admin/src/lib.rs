//! The state that a running server shows, and the listener that shows it.
//!
//! The one idea: everything visible is in a [`Snapshot`], taken at the moment of a request. The
//! metrics of a snapshot stand in one list with their meanings ([`catalogue`]). The Prometheus
//! page, the dashboard, `tidewire info` and `tidewire top` are four ways of writing the same
//! snapshot, under the same names.
//!
//! A [`Panel`] gathers snapshots; an [`Admin`] serves them over HTTP, on a loop of its own. So the admin listener
//! answers while the server recovers, while it drains, and while its loops are stuck.
//!
//! ```
//! use tidewire::{Builder, on_input};
//! use tidewire_admin::{Admin, Panel, Stage};
//!
//! let panel = Panel::new(serde_json::json!({ "workers": 1 })); // what /config shows
//! let admin = Admin::start("127.0.0.1:0", &panel, None, Vec::new())?;
//!
//! let echo = on_input(|input, link| link.forward_all(input));
//! let running = Builder::new().loops(1).serve("127.0.0.1:0", echo).start()?;
//! panel.show(running.observer(), Vec::new()); // its loops, and the places where it listens
//! panel.set_stage(Stage::Serving);
//! println!("http://{}/", admin.addr());
//!
//! assert!(panel.is_ready());
//! # drop(admin);
//! # running.stop(std::time::Duration::from_secs(1));
//! # Ok::<(), tidewire::StartError>(())
//! ```
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
