//! Frames to a client: replies, and refusals with their texts.

use std::time::Duration;

use tidewire::Cx;
use tidewire_log::Refused;

use super::codec::{self, Reason, ServerFrame};
use super::counters::Count;
use super::local::Native;

/// The reason given to clients of other hosts while the server has no tokens.
pub(super) const PROTECTED: &str =
    "this server has no tokens, so it serves only clients on its own host";

/// The stream of clients that name none.
pub(super) const DEFAULT_STREAM: &str = "default";

/// The reason given to clients that name a cursor of the server's own.
pub(super) const RESERVED: &str = "cursors whose names begin with @ are the server's own";

/// Whether a cursor is one of the server's own, which clients neither read from nor move.
pub(super) fn is_reserved(cursor: &str) -> bool {
    cursor.starts_with('@')
}

/// The text for a producer while no server has its partition.
pub(super) const NOWHERE: &str = "the producer's partition is between two servers: connect again";

/// The reason for trailing bytes that are no whole frame.
pub(super) const CUT_SHORT: &str = "the connection ended in the middle of a frame";

/// The reason to send when the log does not take a batch.
pub(super) fn reason_of(refused: Refused) -> Reason {
    match refused {
        Refused::TooMany | Refused::Forgotten => Reason::TooMany,
        Refused::TooLarge => Reason::TooLarge,
        Refused::Beyond => Reason::BeyondEnd,
        Refused::NoStream => Reason::NoStream,
        Refused::StreamFull { .. } => Reason::StreamFull,
        Refused::Failed => Reason::LogFailed,
        Refused::Busy | Refused::DiskFull { .. } => Reason::DiskFull,
    }
}

/// Sends a frame.
pub(super) fn send(cx: &mut Cx<'_, impl Native>, frame: &ServerFrame<'_>) {
    let mut bytes = std::mem::take(&mut cx.local.scratch);
    frame.encode(&mut bytes);
    cx.link.write(&bytes);
    bytes.clear();
    cx.local.scratch = bytes;
}

/// Sends a refusal, and finishes if it is one that ends the connection.
pub(super) fn refuse(
    cx: &mut Cx<'_, impl Native>,
    id: u64,
    reason: Reason,
    retry_after_ms: u32,
    text: &str,
) {
    if reason.closes() {
        return refuse_and_close(cx, id, reason, retry_after_ms, text);
    }
    send_refusal(cx, id, reason, retry_after_ms, text, false);
}

/// Sends a refusal, and goes on whatever its reason is.
pub(super) fn tell(
    cx: &mut Cx<'_, impl Native>,
    id: u64,
    reason: Reason,
    retry_after_ms: u32,
    text: &str,
) {
    send_refusal(cx, id, reason, retry_after_ms, text, false);
}

/// Sends a refusal and finishes.
pub(super) fn refuse_and_close(
    cx: &mut Cx<'_, impl Native>,
    id: u64,
    reason: Reason,
    retry_after_ms: u32,
    text: &str,
) {
    send_refusal(cx, id, reason, retry_after_ms, text, true);
    cx.link.finish_because(reason.name());
}

fn send_refusal(
    cx: &mut Cx<'_, impl Native>,
    id: u64,
    reason: Reason,
    retry_after_ms: u32,
    text: &str,
    closes: bool,
) {
    let (conn, peer, now) = (cx.link.id(), &cx.link.peer().endpoint, cx.link.now());
    match cx.local.refused.pass(reason, now) {
        // The reason for a missing secret has a log line of its own.
        Some(held_back) if text != PROTECTED => {
            let token = cx.local.refused.token(conn);
            tracing::warn!(%peer, token, id, %reason, text, held_back, "refused");
        }
        _ => tracing::debug!(%peer, id, %reason, text, "refused"),
    }
    cx.local.tally.add(Count::of(reason), 1);
    let refusal = codec::Refusal {
        id,
        reason,
        retry_after_ms,
        text,
        closes,
    };
    send(cx, &ServerFrame::Refusal(refusal));
}

/// Milliseconds, rounded up, as many as a frame can say.
pub(super) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
