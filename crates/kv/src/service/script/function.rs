//! FUNCTION: libraries are put in, removed, shown, and taken out as a dump.

use super::apart::Work;
use super::at::At;
use super::command::{busy_text, kill};
use super::functions;
use super::known::Known;
use super::run::may_send_away;
use super::shebang;
use crate::commands::functions::{FEWER_FUNCTIONS, FUNCTION};
use crate::commands::subcommands::{self, Subcommands};
use crate::commands::{Error, Spec};
use crate::reply::{Proto, Reply};
use crate::service::batch::Batch;
use crate::service::call::Asked;
use crate::service::conn::RespConn;
use crate::service::outcome::Outcome;
use crate::store::{NoRoom, Ran, Seen};
use crate::types::glob::Glob;

/// The subcommands of FUNCTION.
pub(in crate::service) const SUBCOMMANDS: Subcommands = &[
    ("delete", 3),
    ("dump", 2),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("list", -2),
    ("load", -3),
    ("restore", -3),
    ("stats", 2),
];

const HELP: &[&str] = &[
    "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DELETE <library-name>",
    "    Remove a library and its functions.",
    "DUMP",
    "    Return all libraries as bytes for RESTORE.",
    "FLUSH [ASYNC|SYNC]",
    "    Remove all libraries.",
    "KILL",
    "    End the running function, if it has written nothing.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Show the libraries, those whose names match a pattern, and their texts.",
    "LOAD [REPLACE] <code>",
    "    Put a library in.",
    "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
    "    Put the libraries of a dump in; first remove all, or refuse names that are there, or replace them.",
    "STATS",
    "    Show what runs, and how many libraries and functions there are.",
];

/// A change of the libraries, as the command that the log has.
type Change = Vec<Vec<u8>>;

fn put(name: &[u8], code: &[u8]) -> Change {
    vec![
        b"function".to_vec(),
        b"put".to_vec(),
        name.to_vec(),
        code.to_vec(),
    ]
}

/// A library that was looked into, and is to be put in.
struct New {
    name: Vec<u8>,
    code: Vec<u8>,
    functions: Vec<Vec<u8>>,
}

/// How a library is restored whose name exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// FUNCTION LOAD without REPLACE refuses it, as FUNCTION RESTORE does in other words.
    New,
    Append,
    Replace,
    /// No library of that name is left: all are removed before.
    Flush,
}

/// The change of libraries that a command asks for.
enum Plan {
    Put(Vec<New>, Policy),
    Delete(Vec<u8>),
    Flush,
}

impl Plan {
    fn spec(&self) -> &'static Spec {
        match self {
            Plan::Put(..) => &FUNCTION,
            Plan::Delete(_) | Plan::Flush => &FEWER_FUNCTIONS,
        }
    }

    /// The plan as changes of libraries, if the existing libraries allow it.
    fn changes(&self, known: &Known) -> Result<Vec<Change>, Error> {
        let is_there = |name: &[u8]| known.libraries.contains_key(name);
        match self {
            Plan::Flush => Ok(vec![vec![b"function".to_vec(), b"clear".to_vec()]]),
            Plan::Delete(name) if !is_there(name) => Err(Error::new("ERR Library not found")),
            Plan::Delete(name) => Ok(vec![vec![
                b"function".to_vec(),
                b"remove".to_vec(),
                name.clone(),
            ]]),
            Plan::Put(all, policy) => {
                let mut changes = Vec::new();
                if *policy == Policy::Flush {
                    changes = Plan::Flush.changes(known)?;
                }
                for new in all {
                    if matches!(policy, Policy::New | Policy::Append) && is_there(&new.name) {
                        let (before, after) = match policy {
                            Policy::New => ("ERR Library '", "' already exists"),
                            _ => ("ERR Library ", " already exists"),
                        };
                        return Err(Error::quoting(before, &new.name, after));
                    }
                    let taken = |name: &&Vec<u8>| {
                        // A library that goes takes its functions along, if all that is put in replaces.
                        *policy != Policy::Flush && known.has(name, &new.name)
                    };
                    if let Some(name) = new.functions.iter().find(taken) {
                        return Err(Error::quoting("ERR Function ", name, " already exists"));
                    }
                    changes.push(put(&new.name, &new.code));
                }
                Ok(changes)
            }
        }
    }
}

impl RespConn {
    /// Runs FUNCTION, within a transaction or by itself.
    pub(in crate::service) fn function(
        &mut self,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        in_transaction: bool,
        reply: &mut Reply,
        at: &mut At<'_, '_>,
    ) -> Outcome {
        let sub = args[1].to_ascii_lowercase();
        let may_run_lua =
            runs_lua(args) || !functions::are_at_hand(batch.libraries_seen(), batch.shared);
        if may_run_lua
            && !in_transaction
            && let At::Loop(cx) = at
            && may_send_away(batch)
            && self.send_away(Work::Function, args, cx)
        {
            // Loading a library means to run it.
            return Outcome::Waits;
        }
        let plan = match (&sub[..], &args[2..]) {
            (b"load", rest) => plan_load(rest, at),
            (b"delete", [name]) => Ok(Plan::Delete(name.to_vec())),
            (b"flush", how) => plan_flush(how),
            (b"restore", rest) => plan_restore(rest, at),
            (sub, rest) => {
                let shared = at.here();
                let asked = &mut Asked {
                    shared: &shared,
                    reply,
                    args,
                };
                if let Err(error) = tell(sub, rest, asked, batch.libraries_seen(), at) {
                    reply.error(error.0);
                }
                self.heed_libraries(&shared);
                return Outcome::Done;
            }
        };
        match plan.and_then(|plan| apply(&plan, batch, in_transaction, at)) {
            Ok(true) if sub == b"load" => {
                let name = args
                    .last()
                    .and_then(|code| shebang::read_library(code).ok());
                reply.bulk(&name.unwrap_or_default().0);
            }
            Ok(true) => reply.ok(),
            Ok(false) if batch.is_shut_out() => return at.park(self),
            Ok(false) => return at.wait_for_room(self),
            Err(error) => reply.error(error.0),
        }
        // A refusal too shows which libraries exist.
        self.heed_libraries(batch.shared);
        Outcome::Done
    }
}

/// Whether this call of FUNCTION runs the code of a library.
pub(super) fn runs_lua(args: &[&[u8]]) -> bool {
    let is = |word: &[u8]| args[1].eq_ignore_ascii_case(word);
    is(b"load") || is(b"restore")
}

/// Answers a subcommand that only shows libraries.
fn tell(
    sub: &[u8],
    rest: &[&[u8]],
    asked: &mut Asked<'_>,
    seen: Seen,
    at: &mut At<'_, '_>,
) -> Result<(), Error> {
    match (sub, rest) {
        (b"list", rest) => list(rest, &*functions::current(seen, at)?, asked.reply)?,
        (b"stats", []) => stats(&*functions::current(seen, at)?, asked),
        (b"dump", []) => {
            let known = functions::current(seen, at)?;
            let codes = known.libraries.values().map(|library| &library.code[..]);
            asked.reply.bulk(&tidewire_rdb::dump_libraries(codes));
        }
        (b"kill", []) => kill(asked, true),
        (b"help", []) => asked.help(HELP),
        _ => asked.subcommand_error("function"),
    }
    Ok(())
}

fn plan_load(rest: &[&[u8]], at: &mut At<'_, '_>) -> Result<Plan, Error> {
    let (policy, code) = match rest {
        [code] => (Policy::New, code),
        [word, code] if word.eq_ignore_ascii_case(b"replace") => (Policy::Replace, code),
        [word, ..] => return Err(Error::quoting("ERR Unknown option given: ", word, "")),
        [] => return Err(Error::SYNTAX),
    };
    Ok(Plan::Put(vec![look_into(code, at)?], policy))
}

/// Reads a text as a library, without loading it.
fn look_into(code: &[u8], at: &mut At<'_, '_>) -> Result<New, Error> {
    let (name, _) = shebang::read_library(code)?;
    let registered = functions::try_text(code, at)?.map_err(|line| Error(line.into()))?;
    Ok(New {
        name,
        code: code.to_vec(),
        functions: registered.into_iter().map(|one| one.name).collect(),
    })
}

fn plan_flush(how: &[&[u8]]) -> Result<Plan, Error> {
    let wrong = Error::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    match how {
        [] => Ok(Plan::Flush),
        [word] if word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async") => {
            Ok(Plan::Flush)
        }
        [_] => Err(wrong),
        _ => Err(subcommands::unknown(
            "function",
            b"flush",
            " or wrong number of arguments for",
        )),
    }
}

fn plan_restore(rest: &[&[u8]], at: &mut At<'_, '_>) -> Result<Plan, Error> {
    let policy = match rest {
        [_] => Policy::Append,
        [_, word] if word.eq_ignore_ascii_case(b"append") => Policy::Append,
        [_, word] if word.eq_ignore_ascii_case(b"replace") => Policy::Replace,
        [_, word] if word.eq_ignore_ascii_case(b"flush") => Policy::Flush,
        [_, _] => {
            return Err(Error::new(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
        _ => {
            return Err(subcommands::unknown(
                "function",
                b"restore",
                " or wrong number of arguments for",
            ));
        }
    };
    let codes = tidewire_rdb::read_libraries(rest[0])
        .ok_or(Error::new("ERR DUMP payload version or checksum are wrong"))?;
    let mut all: Vec<New> = Vec::new();
    for code in codes {
        let new = look_into(&code, at)?;
        if all.iter().any(|other| other.name == new.name) {
            return Err(Error::quoting(
                "ERR Library '",
                &new.name,
                "' already exists",
            ));
        }
        let theirs = || all.iter().flat_map(|other| &other.functions);
        let same = |name: &&Vec<u8>| theirs().any(|other| other.eq_ignore_ascii_case(name));
        if let Some(name) = new.functions.iter().find(same) {
            return Err(Error::quoting("ERR Function ", name, " already exists"));
        }
        all.push(new);
    }
    Ok(Plan::Put(all, policy))
}

/// Has the store keep the change, as one unit; false if the command is to be tried again a little
/// later.
fn apply(
    plan: &Plan,
    batch: &mut Batch<'_>,
    in_transaction: bool,
    at: &mut At<'_, '_>,
) -> Result<bool, Error> {
    // What is asked for before it is known whether it may be done; a few bytes too much do no harm.
    let changes = match plan {
        Plan::Put(all, _) => all.iter().map(|new| put(&new.name, &new.code)).collect(),
        Plan::Delete(name) => vec![put(name, b"")],
        Plan::Flush => Vec::new(),
    };
    let mut most = vec![vec![b"function".to_vec(), b"clear".to_vec()]];
    most.extend(changes);
    let spec = plan.spec();
    if !in_transaction {
        let most: Vec<Vec<&[u8]>> = most.iter().map(as_args).collect();
        let each = || most.iter().map(|args| (spec, &args[..]));
        if !batch.has_room_for(each()) {
            return Err(Error::OUT_OF_MEMORY);
        }
        match batch.reserve(each()) {
            Ok(()) => {}
            Err(NoRoom::Busy) if batch.is_patient() => return Ok(false),
            Err(why) => return Err(Error::new(batch.refusal(why))),
        }
        if !batch.begin(each(), Vec::new()) {
            if !batch.shared.is_busy() {
                return Ok(false);
            }
            return Err(Error::new(busy_text(batch.shared)));
        }
    }
    if at.is_apart() {
        // The functions of other libraries may have to be found out, and no loop waits for that.
        at.leave(batch);
        functions::current(batch.libraries_seen(), at)?;
    }
    // Under the locks of all shards, so that no other client adds one meanwhile.
    let done = functions::current(batch.libraries_seen(), at).and_then(|known| {
        for change in plan.changes(&known)? {
            let mut answer = Reply::new(Proto::Resp2);
            let ran = batch.run(spec, &as_args(&change), &mut answer);
            debug_assert!(matches!(ran, Ran::Done), "nothing waits in a transaction");
            if let Some(error) = answer.bytes().strip_prefix(b"-") {
                return Err(Error(error.trim_ascii_end().to_vec().into()));
            }
        }
        Ok(true)
    });
    if !in_transaction {
        batch.end();
    }
    done
}

fn as_args(change: &Change) -> Vec<&[u8]> {
    change.iter().map(|arg| &arg[..]).collect()
}

fn list(mut rest: &[&[u8]], known: &Known, reply: &mut Reply) -> Result<(), Error> {
    let (mut pattern, mut with_code) = (None, false);
    while let [word, behind @ ..] = rest {
        rest = behind;
        if !with_code && word.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            let [glob, behind @ ..] = rest else {
                return Err(Error::new("ERR library name argument was not given"));
            };
            rest = behind;
            pattern = Some(Glob::new(glob).ok_or(Error::new("ERR the pattern is too long"))?);
        } else {
            return Err(Error::quoting("ERR Unknown argument ", word, ""));
        }
    }
    let shown: Vec<_> = known
        .libraries
        .values()
        .filter(|library| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.matches(&library.name))
        })
        .collect();
    reply.array(shown.len());
    for library in shown {
        reply.map(3 + usize::from(with_code));
        reply.bulk(b"library_name");
        reply.bulk(&library.name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for function in &library.functions {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(function.script.name.as_bytes());
            reply.bulk(b"description");
            match &function.description {
                Some(text) => reply.bulk(text),
                None => reply.null(),
            }
            reply.bulk(b"flags");
            reply.set(function.flags.len());
            for flag in &function.flags {
                reply.simple(&String::from_utf8_lossy(flag));
            }
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

fn stats(known: &Known, asked: &mut Asked<'_>) {
    let scripts = &asked.shared.scripts;
    let reply = &mut *asked.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match &*scripts.long() {
        None => reply.null(),
        Some(long) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(long.name.as_bytes());
            reply.bulk(b"command");
            reply.array(long.command.len());
            for arg in &long.command {
                reply.bulk(arg);
            }
            reply.bulk(b"duration_ms");
            let begun = long.begun;
            #[expect(
                clippy::disallowed_methods,
                reason = "it may run beside the loops, whose clock is not its own"
            )]
            reply.integer(begun.elapsed().as_millis() as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(known.libraries.len() as i64);
    reply.bulk(b"functions_count");
    let functions = known
        .libraries
        .values()
        .map(|library| library.functions.len());
    reply.integer(functions.sum::<usize>() as i64);
}
