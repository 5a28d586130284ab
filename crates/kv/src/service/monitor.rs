//! MONITOR: a client that is shown every command as it is run.
//!
//! While a client monitors, every connection looks twice before each command (see
//! [`Attention`](super::attention::Attention)); otherwise monitoring costs nothing. The commands
//! that wait to be shown to a monitor are bounded, and beyond the bound the monitor is cut: a
//! command never waits for a monitor.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::Cx;

use super::acl::Place;
use super::acl::category;
use super::call::{Call, Flow};
use super::conn::RespConn;
use super::secrets;
use super::table::Entry;

/// Runs MONITOR.
pub(super) fn monitor(call: &mut Call<'_, '_>) -> Flow {
    if call.session.monitor.is_none() {
        let shared = &call.shared;
        let monitor = shared.monitors.add(call.card, &shared.attention);
        call.session.monitor = Some(monitor);
        call.card.monitors.store(true, Relaxed);
    }
    call.reply.ok();
    Flow::Done
}

/// Ends what MONITOR has begun.
pub(super) fn end(call: &mut Call<'_, '_>) {
    if call.session.monitor.take().is_some() {
        call.shared
            .monitors
            .remove(call.card.id, &call.shared.attention);
        call.card.monitors.store(false, Relaxed);
    }
}

impl RespConn {
    /// Shows a command to the monitors, unless it is one of administration, which may bring
    /// secrets.
    #[cold]
    pub(super) fn show_to_monitors(
        &self,
        entry: &Entry,
        args: &[&[u8]],
        from: &str,
        here: &dyn Place,
    ) {
        let admin = category::named(b"admin").unwrap_or_default();
        let leaf = super::acl::categories_of_call(entry, args);
        if leaf & admin != 0 {
            return;
        }
        let args = secrets::shown(entry, args);
        let line = line(here.wall(), self.session.db, from, &args);
        for (id, monitor) in &*here.shared().monitors.all() {
            if *id != self.card().id {
                monitor.show(&line);
            }
        }
    }

    /// Writes what this client was to be shown.
    pub(super) fn monitored(&mut self, cx: &mut Cx<'_, RespConn>) {
        if let Some(monitor) = self.session.monitor.clone() {
            let lines = monitor.take();
            if !lines.is_empty() {
                let most = cx.local.shared.config.subscriber_output.load(Relaxed);
                self.hand_out(&bytes::Bytes::from(lines), most, cx);
            }
        }
    }
}

/// A command as MONITOR shows it.
fn line(at: Duration, db: u16, from: &str, args: &[&[u8]]) -> Vec<u8> {
    let mut line =
        format!("+{}.{:06} [{db} {from}]", at.as_secs(), at.subsec_micros()).into_bytes();
    for arg in args {
        line.extend_from_slice(b" \"");
        quote(arg, &mut line);
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

fn quote(arg: &[u8], line: &mut Vec<u8>) {
    for &byte in arg {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}
