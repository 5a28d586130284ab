//! SCRIPT, and what INFO says of scripts.

use std::sync::atomic::Ordering::Relaxed;

use super::at::At;
use super::phase::Killed;
use super::run::{compile_error, interpreter};
use super::text::TEXT_ON_LOOP;
use crate::commands::subcommands::Subcommands;
use crate::service::call::{Asked, Call};
use crate::service::section::line;
use crate::service::shared::Shared;
use crate::service::table::Entry;

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

/// Runs SCRIPT on a loop or on the thread for scripts.
pub(in crate::service) fn answer(call: &mut Asked<'_>, at: &mut At<'_, '_>) {
    let scripts = &call.shared.scripts;
    let sub = call.args[1].to_ascii_lowercase();
    match (&sub[..], &call.args[2..]) {
        (b"load", [text]) => load(call, text, at),
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
        (b"kill", []) => kill(call, false),
        (b"help", []) => call.help(HELP),
        _ => call.subcommand_error("script"),
    }
}

/// Whether this call of SCRIPT loads a text that takes long to compile.
pub(in crate::service) fn is_long_load(args: &[&[u8]]) -> bool {
    matches!(args, [_, sub, text] if text.len() > TEXT_ON_LOOP && sub.eq_ignore_ascii_case(b"load"))
}

/// Ends the script that runs, or the function, if it has written nothing.
pub(super) fn kill(call: &mut Asked<'_>, function: bool) {
    let scripts = &call.shared.scripts;
    let phase = &scripts.phase;
    if phase.runs() && !phase.wrote() && scripts.is_function.load(Relaxed) != function {
        call.reply.error(busy_text(call.shared));
        return;
    }
    match phase.kill() {
        Killed::Yes => call.reply.ok(),
        Killed::NoneRuns => call
            .reply
            .error("NOTBUSY No scripts in execution right now."),
        Killed::Wrote => call.reply.error(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. \
             You can either wait the script termination or kill the server in a hard way \
             using the SHUTDOWN NOSAVE command.",
        ),
    }
}

/// The error for other clients while a script takes long.
pub(in crate::service) fn busy_text(shared: &Shared) -> &'static str {
    if shared.scripts.is_function.load(Relaxed) {
        "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
    } else {
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
    }
}

/// Whether a command is run although a script takes long.
pub(in crate::service) fn may_run_when_busy(entry: &Entry, args: &[&[u8]]) -> bool {
    let sub = |word: &str| {
        args.get(1)
            .is_some_and(|sub| sub.eq_ignore_ascii_case(word.as_bytes()))
    };
    match entry.name {
        "auth" | "hello" | "quit" | "reset" | "multi" | "discard" | "watch" | "unwatch" => true,
        "script" => sub("kill"),
        "function" => sub("kill") || sub("stats"),
        "shutdown" => args[1..]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(b"nosave")),
        _ => false,
    }
}

fn load(call: &mut Asked<'_>, text: &[u8], at: &mut At<'_, '_>) {
    let scripts = &call.shared.scripts;
    let script = match scripts.of(text) {
        Ok(script) => script,
        Err(error) => return call.reply.error(error.0),
    };
    let mut interpreter = match interpreter(at) {
        Ok(interpreter) => interpreter,
        Err(why) => {
            return call
                .reply
                .error(format!("ERR no interpreter for scripts: {why}"));
        }
    };
    if let Some(watched) = at.watched() {
        watched.begin_load();
    }
    at.go_in();
    // This interpreter may never run it: a long one is kept once, as text.
    let compiled = match script.text.len() > TEXT_ON_LOOP {
        true => interpreter.vm.check(&script.text),
        false => interpreter.vm.compile(&script.name, &script.text),
    };
    if !at.come_back() {
        return;
    }
    if let Some(watched) = at.watched() {
        watched.end();
    }
    interpreter.tell();
    *at.interpreter() = Some(interpreter);
    if let Err(why) = compiled {
        return call.reply.error(compile_error(&why));
    }
    match scripts.keep(&script, true) {
        Ok(()) => call.reply.bulk(script.name.as_bytes()),
        Err(error) => call.reply.error(error.0),
    }
}

/// Bytes of memory of all interpreters.
fn of_interpreters(shared: &Shared) -> usize {
    let stuck = shared.scripts.stuck.load(Relaxed);
    let most = shared.config.script_memory.load(Relaxed);
    // The memory of interpreters whose threads do not return is not known.
    shared.scripts.vm_bytes.load(Relaxed) + stuck * most
}

/// Bytes of memory of scripts that are kept, and of what runs them.
pub(in crate::service) fn memory(shared: &Shared) -> u64 {
    let (_, bytes) = shared.scripts.size();
    (bytes + of_interpreters(shared)) as u64
}

/// Writes what INFO says of scripts.
pub(in crate::service) fn info(call: &Call<'_, '_>, text: &mut String) {
    let scripts = &call.shared.scripts;
    let (count, bytes) = scripts.size();
    let vms = of_interpreters(&call.shared);
    line(text, "used_memory_vm_eval", vms);
    line(text, "used_memory_lua", vms);
    line(text, "used_memory_scripts_eval", bytes);
    line(text, "used_memory_scripts", bytes + vms);
    line(text, "number_of_cached_scripts", count);
    let known = scripts.functions.known();
    let functions = known
        .libraries
        .values()
        .map(|library| library.functions.len());
    line(text, "number_of_functions", functions.sum::<usize>());
    line(text, "number_of_libraries", known.libraries.len());
    line(text, "evicted_scripts", scripts.evicted.load(Relaxed));
    line(text, "stopped_scripts", scripts.stopped.load(Relaxed));
    line(text, "stuck_scripts", scripts.stuck.load(Relaxed));
    line(text, "total_stuck_scripts", scripts.given_up.load(Relaxed));
    line(
        text,
        "scripts_out_of_memory",
        scripts.out_of_memory.load(Relaxed),
    );
}
