//! MULTI, DISCARD, WATCH, UNWATCH. EXEC runs where commands about keys do.

use std::sync::atomic::Ordering::Relaxed;

use super::call::{Call, Flow};
use super::holdings::Holding;

/// Bytes that a watched key takes beside its name, which stands in the transaction, in its watch and in the shard.
const WATCH_BYTES: usize = 256;

pub(super) fn multi(call: &mut Call<'_, '_>) -> Flow {
    let transaction = call.session.transaction.get_or_insert_default();
    if transaction.open {
        call.reply.error("ERR MULTI calls can not be nested");
    } else {
        transaction.open = true;
        call.card.queued.store(1, Relaxed);
        call.reply.ok();
    }
    Flow::Done
}

pub(super) fn discard(call: &mut Call<'_, '_>) -> Flow {
    if call.session.is_queuing() {
        forget(call);
        call.reply.ok();
    } else {
        call.reply.error("ERR DISCARD without MULTI");
    }
    Flow::Done
}

pub(super) fn watch(call: &mut Call<'_, '_>) -> Flow {
    if call.session.is_queuing() {
        call.reply.error("ERR WATCH inside MULTI is not allowed");
        return Flow::Done;
    }
    let now_ms = call.link.wall().as_millis() as u64;
    let db = call.session.db;
    let transaction = call.session.transaction.get_or_insert_default();
    for key in &call.args[1..] {
        let more = 3 * key.len() + WATCH_BYTES;
        let limit = call.shared.config.query_buffer.load(Relaxed);
        if call.card.holdings.sum() + more as u64 > limit as u64 {
            call.reply
                .error("ERR more keys are watched than the query buffer limit allows");
            call.local.note_refused(limit, call.link);
            return Flow::Done;
        }
        if transaction.watched.insert((db, Box::from(*key))) {
            let watch = call.shared.store.watch(db, key, now_ms);
            transaction.watches.push(watch);
            transaction.held += more;
            call.card
                .holdings
                .set(Holding::Transaction, transaction.held);
        }
    }
    call.card
        .watching
        .store(transaction.watches.len() as u32, Relaxed);
    call.reply.ok();
    Flow::Done
}

pub(super) fn unwatch(call: &mut Call<'_, '_>) -> Flow {
    if !call.in_transaction {
        forget(call);
    }
    call.reply.ok();
    Flow::Done
}

/// Forgets the queued commands and the watched keys.
pub(super) fn forget(call: &mut Call<'_, '_>) {
    if let Some(transaction) = call.session.transaction.take() {
        transaction.forget(&call.shared.store);
    }
    call.card.queued.store(0, Relaxed);
    call.card.watching.store(0, Relaxed);
    call.card.holdings.set(Holding::Transaction, 0);
}
