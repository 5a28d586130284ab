//! A store that is being recovered: which clients are told so, and how far it is.
//!
//! The one idea: whether a store loads is looked at when a connection is accepted, and by
//! connections that were accepted then, when they send something. A server that has loaded asks
//! none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::call::Call;
use super::info::line;
use crate::commands::Error;

/// What clients are told that need the keys.
pub(super) fn error() -> Error {
    Error::new("LOADING Tidewire is loading the dataset in memory")
}

/// How much of a snapshot is in the store, or of the log behind it.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    done: AtomicU64,
    of: AtomicU64,
}

impl Loaded {
    pub(crate) fn set(&self, done: u64, of: u64) {
        self.done.store(done, Relaxed);
        self.of.store(of, Relaxed);
    }
}

/// Writes what INFO says of it.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let shared = call.shared.clone();
    let is_loading = shared.store.is_loading();
    line(text, "loading", u8::from(is_loading));
    line(text, "async_loading", 0);
    if !is_loading {
        return;
    }
    let (done, of) = (
        shared.loaded.done.load(Relaxed),
        shared.loaded.of.load(Relaxed),
    );
    let started_ms = shared.started_wall_ms.load(Relaxed);
    line(text, "loading_start_time", started_ms / 1000);
    let part = if of == 0 {
        0.0
    } else {
        done as f64 / of as f64
    };
    line(text, "loading_loaded_perc", format!("{:.2}", part * 100.0));
    let took_ms = call
        .now_ms()
        .saturating_sub(shared.started_ms.load(Relaxed));
    let left_ms = if part == 0.0 {
        0.0
    } else {
        took_ms as f64 * (1.0 - part) / part
    };
    line(
        text,
        "loading_eta_seconds",
        (left_ms / 1000.0).ceil().max(1.0) as u64,
    );
}
