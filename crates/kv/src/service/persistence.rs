//! Commands that tell how durable the keys are: WAIT, WAITAOF, and a section of INFO.

use std::sync::atomic::Ordering::Relaxed;

use tidewire_log::Policy;

use super::blocking::UNBLOCKED;
use super::call::{Asked, Call, Flow};
use super::section::line;
use super::shared::Shared;
use super::{ownership, saving};
use crate::number::parse_integer;

const NO_WAIT: &str = "ERR WAIT cannot be used with replica instances. Please also note that if a replica is configured to be \
    writable (which is not the default) writes to replicas are just local and are not propagated.";
const NO_WAITAOF: &str = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local \
    and are not propagated.";

/// Waits until what this client has written is on the disk.
pub(super) fn waitaof(call: &mut Call<'_, '_>) -> Flow {
    let (local, replicas, timeout_ms) = match numbers(call.args) {
        Ok(numbers) => numbers,
        Err(why) => {
            call.reply.error(why);
            return Flow::Done;
        }
    };
    let shared = call.shared.clone();
    // Before a wait that began on the owner goes on: what it waits for is never to be.
    if ownership::is_slave(&shared) {
        show_wait(call, 0);
        call.reply.error(NO_WAITAOF);
        return Flow::Done;
    }
    let synced = match synced(&shared, local, call.session.written) {
        Ok(synced) => synced,
        Err(why) => {
            show_wait(call, 0);
            call.reply.error(why);
            return Flow::Done;
        }
    };
    // No replica could ever acknowledge.
    let is_done = replicas == 0 && (synced || local == 0);
    match goes_on(call, is_done, timeout_ms) {
        Ok(true) => return Flow::Later,
        Ok(false) => {
            call.reply.array(2);
            call.reply.integer(synced.into());
            call.reply.integer(0);
        }
        Err(why) => call.reply.error(why),
    }
    Flow::Done
}

/// Whether the client's writes are on the disk; `local` says that the client waits for that.
fn synced(shared: &Shared, local: i64, written: u64) -> Result<bool, &'static str> {
    let Some(durable) = shared.durable.get() else {
        return match local {
            0 => Ok(false),
            _ => Err("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."),
        };
    };
    let synced = match durable.log.policy() {
        Policy::Sync => written <= durable.log.committed() || written <= durable.log.update(),
        // The waiting client need not wait until a sync is due.
        _ if local > 0 => durable.log.sync(written),
        _ => durable.log.is_synced(written),
    };
    if !synced && local > 0 && durable.log.never_settles() {
        return Err("MISCONF the log has failed; what is on the disk is unknown");
    }
    Ok(synced)
}

/// Answers WAIT in a script, where nothing waits.
pub(super) fn wait_for_none(call: &mut Asked<'_>) {
    if ownership::is_slave(call.shared) {
        return call.reply.error(NO_WAIT);
    }
    let asked = parse_integer(call.args[1]).ok_or("ERR value is not an integer or out of range");
    match asked.and_then(|_| timeout(call.args[2])) {
        Ok(_) => call.reply.integer(0),
        Err(why) => call.reply.error(why),
    }
}

/// Answers WAITAOF in a script, where nothing waits.
pub(super) fn waitaof_for_none(call: &mut Asked<'_>, written: u64) {
    if ownership::is_slave(call.shared) {
        return call.reply.error(NO_WAITAOF);
    }
    let synced = numbers(call.args).and_then(|(local, ..)| synced(call.shared, local, written));
    match synced {
        Ok(synced) => {
            call.reply.array(2);
            call.reply.integer(synced.into());
            call.reply.integer(0);
        }
        Err(why) => call.reply.error(why),
    }
}

/// WAIT: waits until enough replicas have this client's writes. There are no replicas, so the command waits
/// until its time-out, if a client asks for any.
pub(super) fn wait(call: &mut Call<'_, '_>) -> Flow {
    if ownership::is_slave(&call.shared) {
        show_wait(call, 0);
        call.reply.error(NO_WAIT);
        return Flow::Done;
    }
    let asked = parse_integer(call.args[1]).ok_or("ERR value is not an integer or out of range");
    let asked = asked.and_then(|replicas| Ok((replicas, timeout(call.args[2])?)));
    let goes_on = asked.and_then(|(replicas, timeout_ms)| goes_on(call, replicas <= 0, timeout_ms));
    match goes_on {
        Err(why) => call.reply.error(why),
        Ok(true) => return Flow::Later,
        Ok(false) => call.reply.integer(0),
    }
    Flow::Done
}

/// Whether a wait goes on, which is not done, until its time is over, 0 for never, or CLIENT UNBLOCK ends it.
fn goes_on(call: &mut Call<'_, '_>, is_done: bool, timeout_ms: u64) -> Result<bool, &'static str> {
    let unblocked = call.session.unblocked.take();
    let now_ms = call.now_ms().max(1);
    let since_ms = match call.session.waits_since_ms {
        0 => now_ms,
        since_ms => since_ms,
    };
    let is_over = timeout_ms > 0 && now_ms - since_ms >= timeout_ms;
    let goes_on = !is_done && !is_over && unblocked.is_none() && !call.in_transaction;
    show_wait(call, if goes_on { since_ms } else { 0 });
    match unblocked {
        Some(true) => Err(UNBLOCKED),
        _ => Ok(goes_on),
    }
}

/// Says since when this client waits, 0 for not, so that others can see it and end that.
fn show_wait(call: &mut Call<'_, '_>, since_ms: u64) {
    call.session.waits_since_ms = since_ms;
    let wait = &call.card.wait;
    if since_ms == 0 {
        wait.store(0, Relaxed);
    } else if wait.load(Relaxed) == 0 {
        call.session.waits += 1;
        wait.store(call.session.waits, Relaxed);
    }
}

/// How many are to have it on their disks, this server and replicas, and how long that is waited for.
fn numbers(args: &[&[u8]]) -> Result<(i64, i64, u64), &'static str> {
    let local = parse_integer(args[1]).ok_or("ERR value is not an integer or out of range")?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, value must between 0 and 1");
    }
    let replicas = parse_integer(args[2]).ok_or("ERR value is not an integer or out of range")?;
    if replicas < 0 {
        return Err("ERR value is out of range, must be positive");
    }
    Ok((local, replicas, timeout(args[3])?))
}

/// Milliseconds.
fn timeout(arg: &[u8]) -> Result<u64, &'static str> {
    let ms = parse_integer(arg).ok_or("ERR timeout is not an integer or out of range")?;
    u64::try_from(ms).map_err(|_| "ERR timeout is negative")
}

/// Writes the section of INFO.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let now_ms = call.link.wall().as_millis() as u64;
    let last_ms = saving::last_save_ms(&call.shared);
    let shared = call.shared.clone();
    let durable = shared.durable.get();
    let writes = durable.is_none_or(|durable| !durable.log.has_failed() && !durable.log.is_full());
    let status = durable.map(|durable| durable.log.snapshots().status());
    let status = status.unwrap_or_default();
    let ok = |ok: bool| if ok { "ok" } else { "err" };
    let seconds = |time: Option<u64>| time.map_or(-1, |ms| (ms / 1000) as i64);
    let current = status
        .in_progress()
        .then(|| now_ms.saturating_sub(status.began_ms));
    let last = status.last_took.map(|took| took.as_millis() as u64);
    let busy = u8::from(status.in_progress());
    let saved = ok(status.failure.is_none());
    loading(call, text);
    line(
        text,
        "rdb_changes_since_last_save",
        durable.map_or(0, |durable| durable.log.units()),
    );
    line(text, "rdb_bgsave_in_progress", busy);
    line(text, "rdb_last_save_time", last_ms / 1000);
    line(text, "rdb_last_bgsave_status", saved);
    line(text, "rdb_last_bgsave_time_sec", seconds(last));
    line(text, "rdb_current_bgsave_time_sec", seconds(current));
    line(text, "rdb_saves", status.made);
    line(text, "rdb_last_cow_size", 0);
    line(text, "aof_enabled", u8::from(shared.promised.is_some()));
    line(text, "aof_rewrite_in_progress", busy);
    line(
        text,
        "aof_rewrite_scheduled",
        u8::from(status.is_scheduled()),
    );
    line(text, "aof_last_rewrite_time_sec", seconds(last));
    line(text, "aof_current_rewrite_time_sec", seconds(current));
    line(text, "aof_last_bgrewrite_status", saved);
    line(text, "aof_rewrites", status.made);
    line(text, "aof_last_write_status", ok(writes));
    line(text, "aof_last_cow_size", 0);
    match shared.promised {
        None => line(text, "durability", "none"),
        Some(Policy::Sync) => line(text, "durability", "sync"),
        Some(Policy::Interval(time)) => line(text, "durability", format!("interval:{time:?}")),
        Some(Policy::Os) => line(text, "durability", "os"),
    }
    let Some(durable) = durable else {
        return;
    };
    let log = &durable.log;
    line(text, "aof_current_size", status.size + log.logged());
    line(text, "aof_base_size", status.size);
    let (last, committed) = (call.shared.store.last_ticket(), log.update());
    line(text, "log_units_pending", last.saturating_sub(committed));
    line(text, "log_refused_disk_full", log.refused_full());
    line(text, "log_waits_disk_full", log.snapshots().waits());
    line(text, "log_bytes_since_snapshot", log.logged());
    line(text, "snapshot_bytes", status.size);
    line(text, "snapshot_written", status.written);
    line(text, "snapshot_handed_out", call.shared.store.handed_out());
    if let Some(why) = &status.failure {
        line(
            text,
            "snapshot_last_failure",
            why.replace(['\r', '\n'], " "),
        );
    }
}

/// Writes INFO's lines about loading.
fn loading(call: &mut Call<'_, '_>, text: &mut String) {
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
