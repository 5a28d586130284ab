//! What the server says about how durable its keys are: WAITAOF, and a section of INFO.

use tidewire_log::Policy;

use super::call::{Call, Flow};
use super::info::line;
use crate::number::parse_integer;

/// Waits until what this client has written is on the disk.
pub(super) fn waitaof(call: &mut Call<'_, '_>) -> Flow {
    let [local, replicas, timeout_ms] = [1, 2, 3].map(|at| parse_integer(call.args[at]));
    let (Some(local), Some(_), Some(timeout_ms)) = (local, replicas, timeout_ms) else {
        call.reply
            .error("ERR value is not an integer or out of range");
        return Flow::Done;
    };
    if !(0..=1).contains(&local) {
        call.reply
            .error("ERR value is out of range, value must between 0 and 1");
        return Flow::Done;
    }
    let Ok(timeout_ms) = u64::try_from(timeout_ms) else {
        call.reply.error("ERR timeout is negative");
        return Flow::Done;
    };
    let shared = call.shared.clone();
    let synced = match &shared.durable {
        None if local > 0 => {
            call.reply.error(
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            );
            return Flow::Done;
        }
        Some(durable) if durable.log.policy() == Policy::Os && local > 0 => {
            call.reply.error(
                "ERR WAITAOF cannot be used with durability os: nothing says when that has synced",
            );
            return Flow::Done;
        }
        None => false,
        Some(durable) => {
            let written = call.session.written;
            let synced = written <= durable.log.committed() || written <= durable.log.update();
            if !synced && local > 0 && durable.log.has_failed() {
                call.session.waits_since_ms = 0;
                call.reply
                    .error("MISCONF the log has failed; nobody can say what is on the disk");
                return Flow::Done;
            }
            synced
        }
    };
    let now_ms = call.now_ms().max(1);
    let since_ms = match call.session.waits_since_ms {
        0 => now_ms,
        since_ms => since_ms,
    };
    let is_over = timeout_ms > 0 && now_ms - since_ms >= timeout_ms;
    if synced || local == 0 || is_over || call.in_transaction {
        call.session.waits_since_ms = 0;
        call.reply.array(2);
        call.reply.integer(synced.into());
        call.reply.integer(0);
        return Flow::Done;
    }
    call.session.waits_since_ms = since_ms;
    Flow::Later
}

/// Writes the section of INFO.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let durable = call.shared.durable.as_ref();
    let failed = durable.is_some_and(|durable| durable.log.has_failed());
    line(text, "loading", 0);
    line(text, "async_loading", 0);
    line(text, "rdb_changes_since_last_save", 0);
    line(text, "rdb_bgsave_in_progress", 0);
    line(text, "rdb_last_bgsave_status", "ok");
    line(text, "aof_enabled", u8::from(durable.is_some()));
    line(text, "aof_rewrite_in_progress", 0);
    let status = if failed { "err" } else { "ok" };
    line(text, "aof_last_write_status", status);
    let Some(durable) = durable else {
        return line(text, "durability", "none");
    };
    let log = &durable.log;
    match log.policy() {
        Policy::Sync => line(text, "durability", "sync"),
        Policy::Interval(time) => line(text, "durability", format!("interval:{time:?}")),
        Policy::Os => line(text, "durability", "os"),
    }
    let (last, committed) = (call.shared.store.last_ticket(), log.update());
    line(text, "log_units_pending", last.saturating_sub(committed));
    line(text, "log_refused_disk_full", log.refused_full());
}
