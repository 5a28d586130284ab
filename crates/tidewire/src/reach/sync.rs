//! The locks and atomics of which shared state is made. Models of it are checked by loom, which
//! brings its own that try every order (`cfg(loom)`, see CONTRIBUTING.md). `Arc` stays the standard
//! library's: loom's knows neither `Weak` nor trait objects, and nothing here depends on the order
//! of its counts.

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
use std::sync::PoisonError;
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

/// Locks that outlive a panic of their holder: every structure behind them is consistent between
/// single operations.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
