//! SCRIPT, and what INFO says of scripts.

use std::sync::atomic::Ordering::Relaxed;

use super::run::{compile_error, interpreter};
use crate::commands::subcommands::Subcommands;
use crate::service::call::{Call, Flow};
use crate::service::info::line;

/// The subcommands of SCRIPT.
pub(in crate::service) const SUBCOMMANDS: Subcommands = &[
    ("exists", -3),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("load", 3),
];

const HELP: &[&str] = &[
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return whether the scripts of these hashes are known.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts.",
    "KILL",
    "    End the running script, if it has written nothing.",
    "LOAD <script>",
    "    Keep a script without running it.",
];

/// Scripts run where transactions do, not among commands about the connection.
pub(in crate::service) fn unreachable(_: &mut Call<'_, '_>) -> Flow {
    unreachable!("scripts are run by RespConn::eval")
}

/// Runs SCRIPT.
pub(in crate::service) fn script(call: &mut Call<'_, '_>) -> Flow {
    let shared = call.shared.clone();
    let scripts = &shared.scripts;
    let sub = call.args[1].to_ascii_lowercase();
    match (&sub[..], &call.args[2..]) {
        (b"load", [text]) => load(call, text),
        (b"exists", names @ [_, ..]) => {
            call.reply.array(names.len());
            for name in names {
                call.reply.integer(scripts.find(name).is_some().into());
            }
        }
        (b"flush", how @ ([] | [_])) => {
            let known = how.first().is_none_or(|how| {
                how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async")
            });
            if known {
                scripts.flush();
                call.reply.ok();
            } else {
                call.reply
                    .error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
            }
        }
        (b"kill", []) => {
            if !scripts.runs.load(Relaxed) {
                call.reply
                    .error("NOTBUSY No scripts in execution right now.");
            } else if scripts.wrote.load(Relaxed) {
                call.reply.error(
                    "UNKILLABLE Sorry the script already executed write commands against the dataset. \
                     You can either wait the script termination or kill the server in a hard way \
                     using the SHUTDOWN NOSAVE command.",
                );
            } else {
                scripts.kill.store(true, Relaxed);
                call.reply.ok();
            }
        }
        (b"help", []) => call.help(HELP),
        _ => call.subcommand_error("script"),
    }
    Flow::Done
}

fn load(call: &mut Call<'_, '_>, text: &[u8]) {
    let shared = call.shared.clone();
    let script = match shared.scripts.of(text) {
        Ok(script) => script,
        Err(error) => return call.reply.error(error.0),
    };
    let mut interpreter = match interpreter(call.cx) {
        Ok(interpreter) => interpreter,
        Err(why) => {
            return call
                .reply
                .error(format!("ERR no interpreter for scripts: {why}"));
        }
    };
    let compiled = interpreter.vm.compile(&script.name, &script.text);
    interpreter.tell();
    call.cx.local.interpreter = Some(interpreter);
    if let Err(why) = compiled {
        return call.reply.error(compile_error(&why));
    }
    match shared.scripts.keep(&script, true) {
        Ok(()) => call.reply.bulk(script.name.as_bytes()),
        Err(error) => call.reply.error(error.0),
    }
}

/// Writes what INFO says of scripts.
pub(in crate::service) fn info(call: &Call<'_, '_>, text: &mut String) {
    let scripts = &call.shared.scripts;
    let (count, bytes) = scripts.size();
    let vms = scripts.vm_bytes.load(Relaxed);
    line(text, "used_memory_vm_eval", vms);
    line(text, "used_memory_lua", vms);
    line(text, "used_memory_scripts_eval", bytes);
    line(text, "used_memory_scripts", bytes + vms);
    line(text, "number_of_cached_scripts", count);
    line(text, "number_of_functions", 0);
    line(text, "number_of_libraries", 0);
    line(text, "evicted_scripts", scripts.evicted.load(Relaxed));
    line(text, "stopped_scripts", scripts.stopped.load(Relaxed));
    line(
        text,
        "scripts_out_of_memory",
        scripts.out_of_memory.load(Relaxed),
    );
}
