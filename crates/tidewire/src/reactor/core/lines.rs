//! A line for each connection: see [`Builder::log_connections`](crate::Builder::log_connections).

use tracing::Level;

use crate::reactor::env::Env;
use crate::reactor::state::{State, Tally};
use crate::vocabulary::closed::Closed;

/// Target of the log lines about connections, so that they can be chosen and left out.
const TARGET: &str = "tidewire::connection";

/// A connection is opened. From here on it is known whether a line will be logged at its end.
pub(super) fn opened(state: &mut State, env: &Env) {
    if !tracing::enabled!(target: TARGET, Level::INFO) {
        return;
    }
    state.tally = Some(Box::new(Tally {
        opened: env.now,
        received: 0,
        sent: 0,
    }));
    let service = env.door(state.service).service();
    tracing::debug!(target: TARGET, service, peer = %state.peer.endpoint, "connection opened");
}

/// Logs that a connection is closed.
#[inline]
pub(super) fn closed(state: &State, why: Closed, env: &Env) {
    if let Some(tally) = &state.tally {
        log_closed(state, tally, why, env);
    }
}

#[cold]
fn log_closed(state: &State, tally: &Tally, why: Closed, env: &Env) {
    let service = env.door(state.service).service();
    let client = state.peer.original().map(tracing::field::display);
    tracing::info!(
        target: TARGET,
        service,
        peer = %state.peer.endpoint,
        client,
        reason = %why,
        received = tally.received,
        sent = tally.sent,
        seconds = env.now.since(tally.opened).as_secs_f64(),
        "connection closed"
    );
}
