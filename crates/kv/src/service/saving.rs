//! SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE and SHUTDOWN: snapshots, and the end of the server.

use std::sync::atomic::Ordering::Relaxed;

use super::call::{Call, Flow};
use super::ownership;
use super::session::Replies;
use super::shared::Shared;
use crate::durable::snapshot::{Snapshots, Status};

const NOTHING_TO_SAVE_TO: &str = "ERR there is nothing to save to: durability is none. Start the server \
     with --durability sync, interval:TIME or os, and --data DIR";
const IN_PROGRESS: &str = "ERR Background save already in progress";

/// The snapshots of the store; an error reply if there are none.
fn snapshots(call: &mut Call<'_, '_>) -> Option<std::sync::Arc<Snapshots>> {
    if ownership::is_slave(&call.shared) {
        call.reply
            .error("ERR this server follows another one's store: snapshots are made there");
        return None;
    }
    let snapshots = call
        .shared
        .durable
        .get()
        .map(|durable| durable.log.snapshots().clone());
    if snapshots.is_none() {
        call.reply.error(NOTHING_TO_SAVE_TO);
    }
    snapshots
}

/// Makes a snapshot, and answers when the snapshot is complete. Other commands of this client wait,
/// other clients do not.
pub(super) fn save(call: &mut Call<'_, '_>) -> Flow {
    let Some(snapshots) = snapshots(call) else {
        return Flow::Done;
    };
    if call.session.waits_for_snapshot.is_none() && snapshots.status().in_progress() {
        call.reply.error(IN_PROGRESS);
        return Flow::Done;
    }
    match outcome(call, &snapshots) {
        None => Flow::Later,
        Some(Ok(())) => {
            call.reply.ok();
            Flow::Done
        }
        Some(Err(why)) => {
            call.reply.error(format!("ERR {why}"));
            Flow::Done
        }
    }
}

/// The first call asks for a snapshot; later calls return its result once there is one.
fn outcome(call: &mut Call<'_, '_>, snapshots: &Snapshots) -> Option<Result<(), String>> {
    let Some(asked) = call.session.waits_for_snapshot else {
        call.session.waits_for_snapshot = Some(snapshots.ask());
        return None;
    };
    let status = snapshots.status();
    let counts = status.outcome(asked)?;
    call.session.waits_for_snapshot = None;
    Some(if counts { Ok(()) } else { Err(why(&status)) })
}

fn why(status: &Status) -> String {
    let why = status.failure.as_deref();
    why.unwrap_or("the snapshot has failed")
        .replace(['\r', '\n'], " ")
}

/// Begins a snapshot, or schedules one after the one in progress.
pub(super) fn bgsave(call: &mut Call<'_, '_>) -> Flow {
    let schedule = match call.args {
        [_] => false,
        [_, word] if word.eq_ignore_ascii_case(b"schedule") => true,
        _ => {
            call.reply.error("ERR syntax error");
            return Flow::Done;
        }
    };
    let Some(snapshots) = snapshots(call) else {
        return Flow::Done;
    };
    let busy = snapshots.status().in_progress();
    if busy && !schedule {
        call.reply.error(IN_PROGRESS);
        return Flow::Done;
    }
    snapshots.ask();
    // Within a transaction, the snapshot begins behind the transaction.
    call.reply.simple(if busy || call.in_transaction {
        "Background saving scheduled"
    } else {
        "Background saving started"
    });
    Flow::Done
}

/// BGREWRITEAOF is as BGSAVE: the log is cut behind a snapshot.
pub(super) fn bgrewriteaof(call: &mut Call<'_, '_>) -> Flow {
    let Some(snapshots) = snapshots(call) else {
        return Flow::Done;
    };
    let busy = snapshots.status().in_progress();
    snapshots.ask();
    call.reply.simple(if busy || call.in_transaction {
        "Background append only file rewriting scheduled"
    } else {
        "Background append only file rewriting started"
    });
    Flow::Done
}

/// When the last snapshot was made; the time of the start if there is none, like a server that has
/// never saved.
pub(super) fn lastsave(call: &mut Call<'_, '_>) -> Flow {
    let at_ms = last_save_ms(&call.shared);
    call.reply.integer((at_ms / 1000) as i64);
    Flow::Done
}

pub(super) fn last_save_ms(shared: &Shared) -> u64 {
    let durable = shared.durable.get();
    let last = durable.map_or(0, |durable| durable.log.snapshots().status().last_ms);
    match last {
        0 => shared.started_wall_ms.load(Relaxed),
        last => last,
    }
}

/// Stops the server in order, after a snapshot if the client asks for one. Changes that are in the
/// log need no snapshot.
pub(super) fn shutdown(call: &mut Call<'_, '_>) -> Flow {
    let (mut save, mut abort) = (None, false);
    for word in &call.args[1..] {
        match &word.to_ascii_lowercase()[..] {
            b"save" if save != Some(false) => save = Some(true),
            b"nosave" if save != Some(true) => save = Some(false),
            // No event is waited for, and nothing delays the end.
            b"now" | b"force" => {}
            b"abort" => abort = true,
            _ => {
                call.reply.error("ERR syntax error");
                return Flow::Done;
            }
        }
    }
    if abort {
        let why = if call.args.len() > 2 {
            "ERR syntax error"
        } else {
            "ERR No shutdown in progress."
        };
        call.reply.error(why);
        return Flow::Done;
    }
    let Some(stop) = call.shared.stop.get().cloned() else {
        call.reply
            .error("ERR this server is not ended by its clients");
        return Flow::Done;
    };
    if save == Some(true) {
        let Some(snapshots) = snapshots(call) else {
            return Flow::Done;
        };
        match outcome(call, &snapshots) {
            None => return Flow::Later,
            Some(Ok(())) => {}
            Some(Err(why)) => {
                tracing::error!(%why, "SHUTDOWN SAVE: the server goes on, because the snapshot has failed");
                call.reply
                    .error("ERR Errors trying to SHUTDOWN. Check logs.");
                return Flow::Done;
            }
        }
    }
    call.shared.scripts.end_slow();
    tracing::warn!(peer = %call.link.peer().client(), "a client has asked for the end: SHUTDOWN");
    // As Redis: the end of the connection is the answer.
    call.session.closing = true;
    call.session.replies = Replies::On;
    stop();
    Flow::Done
}
