//! Running a script: by itself under all locks, or as a command of a transaction that has them.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidewire::Cx;
use tidewire_lua::{Answer, Ended, Run, Stop};

use super::cache::Script;
use super::host::{Commands, LATER};
use super::vm::Interpreter;
use crate::commands::{Ctx, Done, Error, Keys, MEMORY, OUT_OF_MEMORY, Spec, UNBOUNDED, WRITE};
use crate::number::parse_integer;
use crate::reply::{Proto, Reply};
use crate::service::batch::Batch;
use crate::service::conn::RespConn;
use crate::service::run::Outcome;
use crate::store::NoRoom;

/// What a script is for the store: something that may use any key.
pub(crate) static WHOLE: Spec = Spec::new("eval", -3, WRITE | MEMORY | UNBOUNDED, Keys::All, never);

/// The commands of a script run, not the script.
fn never(_: &mut Ctx<'_, '_>, _: &[&[u8]]) -> Done {
    Err(Error::new("ERR scripts are run elsewhere"))
}

/// Which of the commands that run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    by_hash: bool,
    pub(crate) read_only: bool,
}

impl Kind {
    /// The one of this name.
    pub(crate) fn of(name: &str) -> Option<Kind> {
        let (by_hash, read_only) = match name {
            "eval" => (false, false),
            "evalsha" => (true, false),
            "eval_ro" => (false, true),
            "evalsha_ro" => (true, true),
            _ => return None,
        };
        Some(Kind { by_hash, read_only })
    }
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
        let (script, keys) = match self.find_script(kind, args, cx) {
            Ok(found) => found,
            Err(error) => {
                reply.error(error.0);
                return Outcome::Done;
            }
        };
        let whole = || iter::once((&WHOLE, &args[..1]));
        let out_of_memory = !batch.has_room_for(whole());
        if out_of_memory
            && script.flags.declared
            && !script.flags.allow_oom
            && !script.flags.no_writes
        {
            reply.error(OUT_OF_MEMORY);
            return Outcome::Done;
        }
        let writes = !kind.read_only && !script.flags.no_writes;
        // If there never will be room it may read all the same: what writes is refused by itself. That the unit
        // may grow is asked for by the first that writes, when no other script holds up the answer.
        if writes
            && let Err(NoRoom::Busy) = batch.reserve_some()
            && batch.is_patient()
        {
            return self.wait_for_room(cx);
        }
        if !batch.begin(whole(), Vec::new()) {
            reply.error("ERR nothing was watched and it has changed");
            return Outcome::Done;
        }
        let out_of_memory = out_of_memory && !script.flags.allow_oom;
        let outcome = self.run_script(
            &script,
            kind,
            keys,
            args,
            out_of_memory,
            true,
            batch,
            reply,
            cx,
        );
        batch.end();
        if outcome == Outcome::Later {
            // It says so again when it runs again.
            cx.local.published.clear();
        }
        if batch.shared.durable.get().is_some() {
            self.publish_queued(batch, cx);
        }
        outcome
    }

    /// Runs a script within a transaction, whose locks are held.
    pub(crate) fn eval_queued(
        &mut self,
        kind: Kind,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) {
        match self.find_script(kind, args, cx) {
            Ok((script, keys)) => {
                self.run_script(&script, kind, keys, args, false, false, batch, reply, cx);
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// The script that a call names, and how many keys.
    fn find_script(
        &self,
        kind: Kind,
        args: &[&[u8]],
        cx: &Cx<'_, RespConn>,
    ) -> Result<(Arc<Script>, usize), Error> {
        let keys = parse_integer(args[2]).ok_or(Error::NOT_INTEGER)?;
        if keys > args.len() as i64 - 3 {
            return Err(Error::new(
                "ERR Number of keys can't be greater than number of args",
            ));
        }
        let keys = usize::try_from(keys)
            .map_err(|_| Error::new("ERR Number of keys can't be negative"))?;
        let scripts = &cx.local.shared.scripts;
        let script = if kind.by_hash {
            let missing = Error::new("NOSCRIPT No matching script. Please use EVAL.");
            scripts.find(args[1]).ok_or(missing)?
        } else {
            scripts.of(args[1])?
        };
        if kind.read_only && script.flags.declared && !script.flags.no_writes {
            return Err(Error::new(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        Ok((script, keys))
    }

    #[expect(clippy::too_many_arguments, reason = "the two callers are above")]
    fn run_script(
        &mut self,
        script: &Arc<Script>,
        kind: Kind,
        keys: usize,
        args: &[&[u8]],
        out_of_memory: bool,
        may_wait: bool,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let shared = batch.shared;
        let mut interpreter = match interpreter(cx) {
            Ok(interpreter) => interpreter,
            Err(why) => {
                reply.error(format!("ERR no interpreter for scripts: {why}"));
                return Outcome::Done;
            }
        };
        if !kind.by_hash
            && let Err(why) = interpreter.vm.compile(&script.name, &script.text)
        {
            reply.error(compile_error(&why));
            cx.local.interpreter = Some(interpreter);
            return Outcome::Done;
        }
        if !kind.by_hash {
            // One that is not to stay always finds room, or is not kept.
            let _ = shared.scripts.keep(script, false);
        }
        let scripts = &shared.scripts;
        scripts.wrote.store(false, Relaxed);
        scripts.kill.store(false, Relaxed);
        scripts.runs.store(true, Relaxed);
        interpreter.running.begin();
        let db = self.session.db;
        let (keys, args) = args[3..].split_at(keys);
        let run = Run {
            name: &script.name,
            text: &script.text,
            keys,
            args,
        };
        let mut inner = Reply::new(Proto::Resp2);
        let patient = batch.is_patient();
        let ended = interpreter.vm.run(
            run,
            &mut Commands {
                conn: self,
                batch,
                cx,
                reply: &mut inner,
                read_only: kind.read_only || script.flags.no_writes,
                out_of_memory,
                may_wait: may_wait && patient,
            },
        );
        interpreter.running.begun.set(None);
        scripts.runs.store(false, Relaxed);
        // A script's SELECT is its own.
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
                cx.local.interpreter = Some(interpreter);
                return self.wait_for_room(cx);
            }
            Ended::Stopped(Stop(why)) => {
                reply.error(format!("{why} script: {}.", script.name));
            }
        }
        interpreter.tell();
        if interpreter.is_fresh(shared) {
            cx.local.interpreter = Some(interpreter);
        }
        Outcome::Done
    }
}

/// The interpreter of this loop, to be put back.
pub(super) fn interpreter(cx: &mut Cx<'_, RespConn>) -> Result<Box<Interpreter>, String> {
    let shared = cx.local.shared.clone();
    if let Some(mut kept) = cx.local.interpreter.take()
        && kept.is_fresh(&shared)
    {
        return Ok(kept);
    }
    Interpreter::new(&shared).map(Box::new)
}

/// The error of a text that is no script.
pub(super) fn compile_error(why: &[u8]) -> Vec<u8> {
    [b"ERR Error compiling script (new function): ", why].concat()
}

/// Writes what a script has answered.
fn write(answer: &Answer, reply: &mut Reply) {
    if reply.is_over() {
        return;
    }
    match answer {
        Answer::Nil => reply.null(),
        Answer::Integer(n) => reply.integer(*n),
        Answer::Bulk(bytes) => reply.bulk(bytes),
        Answer::Status(text) => line(b'+', text, reply),
        Answer::Error(text) => reply.error(text),
        Answer::Bool(yes) => match (reply.proto, yes) {
            (Proto::Resp3, true) => reply.raw(b"#t\r\n"),
            (Proto::Resp3, false) => reply.raw(b"#f\r\n"),
            (Proto::Resp2, yes) => reply.integer((*yes).into()),
        },
        Answer::Double(x) => reply.double(*x),
        Answer::Big(text) => match reply.proto {
            Proto::Resp3 => line(b'(', text, reply),
            Proto::Resp2 => reply.bulk(text),
        },
        Answer::Verbatim(format, text) => match reply.proto {
            Proto::Resp2 => reply.bulk(text),
            Proto::Resp3 => {
                let head = format!("={}\r\n", text.len() + 4);
                reply.raw(&[head.as_bytes(), format, b":", text, b"\r\n"].concat());
            }
        },
        Answer::Array(all) => {
            reply.array(all.len());
            all.iter().for_each(|one| write(one, reply));
        }
        Answer::Set(all) => {
            reply.set(all.len());
            all.iter().for_each(|one| write(one, reply));
        }
        Answer::Map(pairs) => {
            reply.map(pairs.len());
            for (key, value) in pairs {
                write(key, reply);
                write(value, reply);
            }
        }
    }
}

/// A line of a kind; line breaks in it become spaces.
fn line(kind: u8, text: &[u8], reply: &mut Reply) {
    let clean = |b: &u8| if matches!(b, b'\r' | b'\n') { b' ' } else { *b };
    let mut line = vec![kind];
    line.extend(text.iter().map(clean));
    line.extend_from_slice(b"\r\n");
    reply.raw(&line);
}
