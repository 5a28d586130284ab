//! The smaller commands about the server: TIME, WAIT, DEBUG, SLOWLOG, LATENCY.

use std::time::Duration;

use super::call::{Call, Flow};
use crate::commands::subcommands::Subcommands;
use crate::number::parse_integer;
use crate::reply::Reply;

pub(super) fn time(call: &mut Call<'_, '_>) -> Flow {
    tell_time(call.link.wall(), call.reply);
    Flow::Done
}

/// Answers TIME.
pub(super) fn tell_time(wall: Duration, reply: &mut Reply) {
    reply.array(2);
    reply.bulk(wall.as_secs().to_string().as_bytes());
    reply.bulk(wall.subsec_micros().to_string().as_bytes());
}

/// The subcommands of MODULE.
pub(super) const MODULE: Subcommands = &[
    ("help", 2),
    ("list", 2),
    ("load", -3),
    ("loadex", -3),
    ("unload", 3),
];

/// MODULE: there are no modules, and none can be loaded; the replies are those of a Redis that does
/// not enable the command.
pub(super) fn module(call: &mut Call<'_, '_>) -> Flow {
    match &call.args[1].to_ascii_lowercase()[..] {
        b"list" => call.reply.array(0),
        b"help" => call.help(&[
            "MODULE <subcommand>. Subcommands are:",
            "LIST",
            "    Return the loaded modules: there are none.",
        ]),
        _ => call.reply.error(
            "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run \
             it from a local connection, otherwise you need to set this option in the configuration file, and \
             then restart the server.",
        ),
    }
    Flow::Done
}

pub(super) fn debug(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    match (&sub[..], &call.args[2..]) {
        (b"set-active-expire", [on]) => match parse_integer(on) {
            Some(on @ (0 | 1)) => {
                call.shared.store.set_active_expire(on == 1);
                call.reply.ok();
            }
            _ => call
                .reply
                .error("ERR value is not an integer or out of range"),
        },
        // A loop never waits: the connection does.
        (b"sleep", [seconds]) => {
            let seconds = std::str::from_utf8(seconds)
                .ok()
                .and_then(|s| s.parse::<f64>().ok());
            match seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
                Some(time) => {
                    call.local.sleep = Some(time);
                    call.reply.ok();
                }
                None => call.reply.error("ERR value is not a valid float"),
            }
        }
        (b"jmap" | b"change-repl-id" | b"quicklist-packed-threshold", _) => call.reply.ok(),
        (b"help", []) => call.help(&[
            "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    Setting it to 0 disables expiring keys that no command reads.",
            "SLEEP <seconds>",
            "    Hold this connection's next command back.",
        ]),
        _ => call.subcommand_error("debug"),
    }
    Flow::Done
}

/// The subcommands of SLOWLOG.
pub(super) const SLOWLOG: Subcommands = &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)];

pub(super) fn slowlog(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    let shared = call.shared.clone();
    match (&sub[..], &call.args[2..]) {
        (b"get", count @ ([] | [_])) => {
            let most = match count.first().map(|n| parse_integer(n)) {
                None => 10,
                Some(Some(-1)) => usize::MAX,
                Some(Some(n)) if n >= 0 => n as usize,
                Some(_) => {
                    call.reply
                        .error("ERR count should be greater than or equal to -1");
                    return Flow::Done;
                }
            };
            let kept = shared.slowlog.kept();
            call.reply.array(kept.entries.len().min(most));
            for slow in kept.entries.iter().take(most) {
                call.reply.array(6);
                call.reply.integer(slow.id as i64);
                call.reply.integer(slow.at_s as i64);
                call.reply.integer(slow.took_us as i64);
                call.reply.array(slow.args.len());
                for arg in &slow.args {
                    call.reply.bulk(arg);
                }
                call.reply.bulk(slow.addr.as_bytes());
                call.reply.bulk(&slow.name);
            }
        }
        (b"len", []) => {
            let len = shared.slowlog.kept().entries.len();
            call.reply.integer(len as i64);
        }
        (b"reset", []) => {
            shared.slowlog.kept().entries.clear();
            call.reply.ok();
        }
        (b"help", []) => call.help(&[
            "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "GET [<count>]",
            "    Return the newest entries of the slow log (default: 10, -1 is all).",
            "LEN",
            "    Return the length of the slow log.",
            "RESET",
            "    Empty the slow log.",
        ]),
        _ => call.subcommand_error("slowlog"),
    }
    Flow::Done
}
