//! Code that is not the loop's own runs under guard: a panic in it ends one connection, or is counted,
//! and the loop goes on.

use crate::contained::contained;
use crate::reactor::counters::LoopCounters;
use crate::reactor::env::Env;
use crate::reactor::state::State;
use crate::vocabulary::closed::Closed;

/// Runs a callback; a panic in it ends the connection and nothing else.
pub(crate) fn guarded<R>(
    state: &mut State,
    env: &mut Env,
    f: impl FnOnce(&mut State, &mut Env) -> R,
) -> Option<R> {
    let result = contained(|| f(&mut *state, &mut *env));
    if result.is_none() {
        env.counters.panics.add(1);
        state.kill(Closed::Panicked);
        env.touch(state);
        tracing::error!(peer = %state.peer.endpoint, "a protocol panicked; its connection is aborted");
    }
    result
}

/// Runs code of a service that belongs to no connection; a panic in it is counted.
pub(crate) fn counted<R>(counters: &LoopCounters, what: &str, f: impl FnOnce() -> R) -> Option<R> {
    let result = contained(f);
    if result.is_none() {
        counters.panics.add(1);
        tracing::error!("{what} panicked");
    }
    result
}

/// Drops a value of a protocol: a message that was not delivered, or the state of a loop that has
/// ended.
pub(crate) fn discard<T>(what: &str, value: T, counters: &LoopCounters) {
    counted(counters, what, || drop(value));
}
