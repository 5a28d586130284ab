//! Running a script: by itself under all locks, or as a command of a transaction that has them.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidewire::Cx;
use tidewire_lua::{Ended, Fcall, NotLoaded, Run, Stop};

use super::answered::write;
use super::apart::Work;
use super::at::At;
use super::cache::Scripts;
use super::command::{answer, busy_text, is_long_load};
use super::function;
use super::functions;
use super::host::{Commands, runs_apart};
use super::kind::{By, Kind};
use super::stops::{BOUND, ELSEWHERE, LATER};
use super::text::Script;
use super::vm::{Interpreter, LEASH, What};
use crate::commands::{Ctx, Done, Error, Keys, MEMORY, OUT_OF_MEMORY, Spec, UNBOUNDED, WRITE};
use crate::number::parse_integer;
use crate::reply::{Proto, Reply};
use crate::service::batch::Batch;
use crate::service::call::Asked;
use crate::service::conn::RespConn;
use crate::service::outcome::Outcome;
use crate::service::table::{Entry, What as Command};
use crate::store::{NoRoom, Seen};

/// A call with more arguments runs on the thread for scripts: to give them to Lua takes long where they collide.
const ARGS_ON_LOOP: usize = 1024;

/// A script from the store's point of view: a command that may use any key.
pub(crate) static WHOLE: Spec = Spec::new("eval", -3, WRITE | MEMORY | UNBOUNDED, Keys::All, never);

/// The commands of a script run, not the script.
fn never(_: &mut Ctx<'_, '_>, _: &[&[u8]]) -> Done {
    Err(Error::new("ERR scripts are run elsewhere"))
}

/// Whether a call may change keys: one that finds its script does, unless that says otherwise.
pub(in crate::service) fn may_write(kind: Kind, args: &[&[u8]], cx: &mut Cx<'_, RespConn>) -> bool {
    let shared = &cx.local.shared;
    if kind.by == By::Function
        && shared.scripts.apart.load(Relaxed)
        && !functions::are_at_hand(Seen::Committed, shared)
    {
        // Finding out which functions exist takes long.
        return !kind.read_only;
    }
    let mut found = || find_script(kind, args, Seen::Committed, &mut At::Loop(cx));
    !kind.read_only && found().is_ok_and(|(script, _)| !script.flags.no_writes)
}

/// The arguments with which a script is run.
#[derive(Clone, Copy)]
struct Given<'x> {
    kind: Kind,
    /// How many of the arguments are keys.
    keys: usize,
    /// The command.
    args: &'x [&'x [u8]],
    /// Memory had no room when the script began.
    out_of_memory: bool,
    /// The script is no part of a transaction.
    alone: bool,
}

impl RespConn {
    /// Runs a script as a transaction of its own.
    pub(crate) fn eval(
        &mut self,
        kind: Kind,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        if kind.by == By::Function
            && may_send_away(batch)
            && !functions::are_at_hand(batch.libraries_seen(), batch.shared)
            && self.send_away(Work::Call(kind), args, cx)
        {
            return Outcome::Waits;
        }
        let found = self.find_script(kind, batch, args, &mut At::Loop(cx));
        let (script, keys) = match found {
            Ok(found) => found,
            Err(error) => {
                reply.error(error.0);
                return Outcome::Done;
            }
        };
        if may_send_away(batch)
            && (script.slow.load(Relaxed) || args.len() > ARGS_ON_LOOP)
            && self.send_away(Work::script(kind, &script, keys), args, cx)
        {
            return Outcome::Waits;
        }
        let outcome = self.run_alone(kind, &script, keys, args, batch, reply, &mut At::Loop(cx));
        if outcome == Outcome::Later {
            // The script publishes its messages again when it runs again.
            cx.local.published.clear();
        }
        if batch.shared.durable.get().is_some() {
            self.publish_queued(batch, cx);
        }
        if outcome == Outcome::Waits && !self.send_away(Work::script(kind, &script, keys), args, cx)
        {
            reply.error("ERR the script takes long, and there is no thread for it");
            return Outcome::Done;
        }
        outcome
    }

    /// Finds a function and calls it, on the thread for scripts.
    pub(super) fn call_beside(
        &mut self,
        kind: Kind,
        args: &[&[u8]],
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        at: &mut At<'_, '_>,
    ) -> Outcome {
        match self.find_script(kind, batch, args, at) {
            Ok((script, keys)) => self.run_alone(kind, &script, keys, args, batch, reply, at),
            Err(error) => {
                reply.error(error.0);
                Outcome::Done
            }
        }
    }

    /// Runs a script that was found, on a loop or on the thread. The script is to be run elsewhere,
    /// and has done nothing, if the outcome is [`Waits`](Outcome::Waits).
    #[expect(clippy::too_many_arguments, reason = "what a script is run with")]
    pub(super) fn run_alone(
        &mut self,
        kind: Kind,
        script: &Arc<Script>,
        keys: usize,
        args: &[&[u8]],
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        at: &mut At<'_, '_>,
    ) -> Outcome {
        let flags = script.flags;
        let whole = || iter::once((&WHOLE, &args[..1]));
        let out_of_memory = !batch.has_room_for(whole());
        if out_of_memory && flags.declared && !flags.allow_oom && !flags.no_writes {
            reply.error(OUT_OF_MEMORY);
            return Outcome::Done;
        }
        let writes = !kind.read_only && !flags.no_writes;
        // If there never will be room, the script may still read: commands that write are refused
        // one by one. That the unit may grow is asked for by the first that writes, when no other
        // script holds up the answer.
        if writes
            && let Err(NoRoom::Busy) = batch.reserve_some()
            && batch.is_patient()
        {
            return at.wait_for_room(self);
        }
        if !batch.begin(whole(), Vec::new()) {
            if !batch.shared.is_busy() {
                return at.park(self);
            }
            reply.error(busy_text(batch.shared));
            return Outcome::Done;
        }
        let given = Given {
            kind,
            keys,
            args,
            out_of_memory: out_of_memory && !flags.allow_oom,
            alone: true,
        };
        let outcome = self.run_script(script, given, batch, reply, at);
        if !at.is_cut() {
            batch.end();
        }
        outcome
    }

    /// Runs SCRIPT: a long text is loaded on the thread for scripts.
    pub(crate) fn script(
        &mut self,
        batch: &Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        if is_long_load(args) && may_send_away(batch) && self.send_away(Work::Load, args, cx) {
            return Outcome::Waits;
        }
        self.script_now(args, reply, cx)
    }

    /// Runs SCRIPT on the loop.
    pub(in crate::service) fn script_now(
        &mut self,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let shared = cx.local.shared.clone();
        let mut asked = Asked {
            shared: &shared,
            reply,
            args,
        };
        answer(&mut asked, &mut At::Loop(cx));
        Outcome::Done
    }

    /// Runs a script within a transaction, whose locks are held.
    pub(in crate::service) fn eval_queued(
        &mut self,
        kind: Kind,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        at: &mut At<'_, '_>,
    ) {
        match self.find_script(kind, batch, args, at) {
            Ok((script, keys)) => {
                let given = Given {
                    kind,
                    keys,
                    args,
                    out_of_memory: false,
                    alone: false,
                };
                let begun = at.is_apart().then(now);
                self.run_script(&script, given, batch, reply, at);
                if let Some(begun) = begun
                    && !at.is_cut()
                {
                    script.note_time(now() - begun, true);
                }
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// The script that a call names, whose answer waits for the library that it is of.
    fn find_script(
        &mut self,
        kind: Kind,
        batch: &Batch<'_>,
        args: &[&[u8]],
        at: &mut At<'_, '_>,
    ) -> Result<(Arc<Script>, usize), Error> {
        let found = find_script(kind, args, batch.libraries_seen(), at);
        if kind.by == By::Function {
            self.heed_libraries(batch.shared);
        }
        found
    }

    fn run_script(
        &mut self,
        script: &Arc<Script>,
        given: Given<'_>,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        at: &mut At<'_, '_>,
    ) -> Outcome {
        let shared = batch.shared;
        // No loop waits for what is done between two commands: others find the keys kept.
        at.leave(batch);
        let mut interpreter = match interpreter(at) {
            Ok(interpreter) => interpreter,
            Err(why) => {
                reply.error(format!("ERR no interpreter for scripts: {why}"));
                return Outcome::Done;
            }
        };
        let scripts = &shared.scripts;
        scripts.is_function.store(script.library.is_some(), Relaxed);
        scripts.phase.begin();
        if let Some(watched) = at.watched() {
            watched.begin_script(script, given.args);
        }
        let may_leave_loop = may_send_away(batch) && !at.is_apart();
        let (may_move, is_bound) = (
            may_leave_loop && given.alone,
            may_leave_loop && !given.alone && !script.is_bounded(),
        );
        let what = match at {
            At::Apart(_) => What::Apart,
            At::Loop(_) if may_move => What::Here,
            At::Loop(_) if is_bound => What::Bound,
            At::Loop(_) => What::Alone,
        };
        interpreter.running.begin(what, at.watched());
        let leash = (may_move || is_bound).then_some(LEASH);
        if given.kind.by == By::Text {
            at.go_in();
            let compiled = interpreter.vm.compile(&script.name, &script.text);
            if !at.come_back() {
                return Outcome::Done;
            }
            if let Err(why) = compiled {
                interpreter.running.end();
                end_phase(at, scripts);
                reply.error(compile_error(&why));
                *at.interpreter() = Some(interpreter);
                return Outcome::Done;
            }
            // A script that is not to stay always finds room, or is not kept.
            let _ = scripts.keep(script, false);
        }
        let db = self.session.db;
        let (keys, args) = given.args[3..].split_at(given.keys);
        let mut inner = Reply::new(Proto::Resp2);
        let patient = batch.is_patient();
        let is_apart = at.is_apart();
        let mut commands = Commands {
            conn: self,
            batch,
            at,
            reply: &mut inner,
            read_only: given.kind.read_only || script.flags.no_writes,
            out_of_memory: given.out_of_memory,
            may_wait: given.alone && patient,
            may_move,
            is_bound,
            running: interpreter.running.clone(),
            leash: interpreter.vm.leash(),
            is_brief: script.is_brief(),
            leaves: is_apart,
            said: 0,
            begun: now(),
            name: &script.name,
            args: given.args,
            busy: None,
        };
        commands.at.go_in();
        let ended = match script.library {
            None => {
                let run = Run {
                    name: &script.name,
                    text: &script.text,
                    keys,
                    args,
                    leash,
                };
                interpreter.vm.run(run, &mut commands)
            }
            Some(library) => {
                let call = Fcall {
                    library,
                    text: &script.text,
                    function: &script.name,
                    keys,
                    args,
                    leash,
                };
                if may_leave_loop && !interpreter.vm.has_library(library) {
                    let loads = match may_move {
                        true => What::LibraryHere,
                        false => What::Bound,
                    };
                    load_here(&interpreter, loads, call).unwrap_or_else(|| {
                        interpreter.running.begin(what, None);
                        interpreter.vm.call(call, &mut commands)
                    })
                } else {
                    interpreter.vm.call(call, &mut commands)
                }
            }
        };
        if !commands.at.come_back() {
            return Outcome::Done;
        }
        // The script's keys are kept until the script is committed.
        drop(commands.busy.take());
        interpreter.running.end();
        // One that was killed ends so, also if it has come to its end before it was looked at.
        let ended = if end_phase(at, scripts) {
            scripts.stopped.fetch_add(1, Relaxed);
            Ended::Stopped(scripts.killed())
        } else {
            ended
        };
        // A script's SELECT has no effect on its client.
        self.session.db = db;
        batch.db = db;
        match ended {
            Ended::Done(answer) => write(&answer, reply),
            Ended::Failed(line) => {
                if line.windows(17).any(|words| words == b"not enough memory") {
                    scripts.out_of_memory.fetch_add(1, Relaxed);
                }
                reply.error(line);
            }
            Ended::Stopped(Stop(why)) if why == LATER => {
                *at.interpreter() = Some(interpreter);
                return at.wait_for_room(self);
            }
            Ended::Stopped(Stop(why)) if why == ELSEWHERE && may_move => {
                *at.interpreter() = Some(interpreter);
                script.note_slow(false);
                return Outcome::Waits;
            }
            // While the script is held to little memory it has written nothing; its published messages are not
            // sent yet.
            Ended::Outgrown if may_move => {
                *at.interpreter() = Some(interpreter);
                script.note_slow(true);
                return Outcome::Waits;
            }
            Ended::Outgrown => reply.error(BOUND),
            Ended::Stopped(Stop(why)) if why == ELSEWHERE => reply.error(BOUND),
            Ended::Stopped(Stop(why)) => {
                reply.error(format!("{why} script: {}.", script.name));
            }
        }
        interpreter.tell();
        if script.library.is_some() && !is_apart && interpreter.vm.has_grown() {
            // What libraries keep may be large on the thread only.
            script.note_slow(true);
        } else if interpreter.is_fresh(shared) {
            *at.interpreter() = Some(interpreter);
        }
        Outcome::Done
    }
}

/// Loads a library on a loop; how its call ended, if it did.
fn load_here(interpreter: &Interpreter, what: What, call: Fcall<'_>) -> Option<Ended> {
    interpreter.running.begin(what, None);
    let loaded = interpreter.vm.load(call.library, call.text, Some(LEASH));
    match loaded {
        Ok(_) => None,
        Err(NotLoaded::Failed(line)) => Some(Ended::Failed(line)),
        Err(NotLoaded::Stopped(stop)) => Some(Ended::Stopped(stop)),
        Err(NotLoaded::Outgrown) => Some(Ended::Outgrown),
    }
}

/// The script that runs has come to its end; whether it was killed.
fn end_phase(at: &At<'_, '_>, scripts: &Scripts) -> bool {
    let killed = scripts.phase.end();
    if let Some(watched) = at.watched() {
        watched.end();
    }
    killed
}

/// Whether a transaction has a script that may take long, and nothing that only a loop can do.
pub(in crate::service) fn runs_beside(
    commands: &[(&'static Entry, &[&[u8]])],
    batch: &Batch<'_>,
    cx: &mut Cx<'_, RespConn>,
) -> bool {
    let may_be_long = |(entry, _): &(&Entry, _)| {
        entry.runs_script() || matches!(entry.name, "publish" | "function" | "script")
    };
    if !may_send_away(batch) || !commands.iter().any(may_be_long) {
        return false;
    }
    let are_unknown = || !functions::are_at_hand(batch.libraries_seen(), batch.shared);
    let is_long = |(entry, args): &(&'static Entry, &[&[u8]])| match entry.name {
        "publish" => batch.shared.hub.is_costly(args[1]).then_some(()),
        // Loading a library means to run it.
        "function" => (function::runs_lua(args) || are_unknown()).then_some(()),
        "script" => is_long_load(args).then_some(()),
        name => {
            let kind = Kind::of(name)?;
            if kind.by == By::Function && are_unknown() || args.len() > ARGS_ON_LOOP {
                return Some(());
            }
            let found = find_script(kind, args, batch.libraries_seen(), &mut At::Loop(cx));
            let (script, _) = found.ok()?;
            let interpreter = cx.local.interpreter.as_ref();
            let is_loaded = script.library.is_none_or(|library| {
                interpreter.is_some_and(|interpreter| interpreter.vm.has_library(library))
            });
            (script.slow.load(Relaxed) || !script.is_bounded() || !is_loaded).then_some(())
        }
    };
    commands.iter().find_map(is_long).is_some()
        && commands.iter().all(|(entry, _)| match entry.what {
            Command::Data(spec) => spec.name != "memory",
            Command::Session(_) => {
                entry.runs_script()
                    || runs_apart(entry)
                    || matches!(entry.name, "function" | "script")
            }
        })
}

/// Whether there is a thread for scripts.
pub(super) fn may_send_away(batch: &Batch<'_>) -> bool {
    batch.shared.scripts.apart.load(Relaxed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "for the thread for scripts, which has no loop's clock"
)]
fn now() -> Instant {
    Instant::now()
}

/// The script that a call names, and how many keys.
fn find_script(
    kind: Kind,
    args: &[&[u8]],
    seen: Seen,
    at: &mut At<'_, '_>,
) -> Result<(Arc<Script>, usize), Error> {
    let shared = at.here();
    let scripts = &shared.scripts;
    let function = match kind.by {
        By::Function => Some(functions::find(args[1], seen, at)?),
        By::Text | By::Hash => None,
    };
    let keys = parse_integer(args[2]).ok_or(match kind.by {
        By::Function => Error::new("ERR Bad number of keys provided"),
        By::Text | By::Hash => Error::NOT_INTEGER,
    })?;
    if keys > args.len() as i64 - 3 {
        return Err(Error::new(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    let keys =
        usize::try_from(keys).map_err(|_| Error::new("ERR Number of keys can't be negative"))?;
    let script = match (function, kind.by) {
        (Some(script), _) => script,
        (None, By::Hash) => {
            let missing = Error::new("NOSCRIPT No matching script. Please use EVAL.");
            scripts.find(args[1]).ok_or(missing)?
        }
        (None, _) => scripts.of(args[1])?,
    };
    if kind.read_only && script.flags.declared && !script.flags.no_writes {
        return Err(Error::new(
            "ERR Can not execute a script with write flag using *_ro command.",
        ));
    }
    Ok((script, keys))
}

/// The interpreter of this loop or thread, to be put back.
pub(super) fn interpreter(at: &mut At<'_, '_>) -> Result<Box<Interpreter>, String> {
    let shared = at.here();
    let may_keep = at.is_apart();
    if let Some(mut kept) = at.interpreter().take()
        && kept.is_fresh(&shared)
        && (may_keep || !kept.vm.has_grown())
    {
        return Ok(kept);
    }
    Interpreter::new(&shared).map(Box::new)
}

/// The error of a text that is no script.
pub(super) fn compile_error(why: &[u8]) -> Vec<u8> {
    [b"ERR Error compiling script (new function): ", why].concat()
}
