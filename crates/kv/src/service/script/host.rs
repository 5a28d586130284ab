//! The work of `redis.call`: finds the command, checks it, and runs it under the locks that are
//! held.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidewire_lua::{Call, Host, Leash, Stop, Value};

use super::at::At;
use super::brief::has_short_reply;
use super::cache::Long;
use super::stops::{BOUND, CUT, ELSEWHERE, LATER};
use super::vm::Running;

use crate::commands::OUT_OF_MEMORY;
use crate::reply::{Proto, Reply};
use crate::service::acl::Where;
use crate::service::batch::Batch;
use crate::service::conn::RespConn;
use crate::service::log_keys::NOT_HERE;
use crate::service::shared::Shared;
use crate::service::slowlog::shortened;
use crate::service::table::{Entry, What, table};
use crate::store::{NoRoom, Ran};

/// The commands about the connection or the server that scripts may use. Others would wait, look at the
/// store from outside its locks, or are not for scripts.
const ALLOWED: &[&str] = &[
    "command", "echo", "lastsave", "ping", "publish", "pubsub", "role", "select", "spublish",
    "time", "wait", "waitaof",
];

/// Whether a command about the connection or the server can be run beside the loops, where a transaction is that has it.
pub(super) fn runs_apart(entry: &Entry) -> bool {
    // A SELECT in a script changes only the script's database.
    ALLOWED.contains(&entry.name) && entry.name != "select"
}

/// Bytes of texts that a script may have from its commands when it first writes on a loop: what it does with them cannot
/// be ended from then on.
const GIVEN: usize = 256 << 10;

/// Bytes that a published message takes beside its text until it is delivered.
const SAID_COST: usize = 64;

const SAYS_TOO_MUCH: &str =
    "ERR what the script publishes takes more than the memory of scripts (script-memory-limit)";

const READ_ONLY: &str = "ERR Write commands are not allowed from read-only scripts.";

#[expect(
    clippy::disallowed_methods,
    reason = "the loop's clock stands still, or there is no loop"
)]
fn now() -> Instant {
    Instant::now()
}

/// As long as this value exists, other clients are told that a script takes long.
pub(super) struct Busy<'s>(&'s Shared);

impl<'s> Busy<'s> {
    fn new(shared: &'s Shared, long: Long) -> Busy<'s> {
        *shared.scripts.long() = Some(long);
        shared.set_busy(true);
        Busy(shared)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set_busy(false);
        *self.0.scripts.long() = None;
    }
}

/// Runs a script's commands.
pub(super) struct Commands<'a, 'b, 's, 'c> {
    pub(super) conn: &'a mut RespConn,
    pub(super) batch: &'a mut Batch<'s>,
    pub(super) at: &'a mut At<'b, 'c>,
    pub(super) reply: &'a mut Reply,
    pub(super) read_only: bool,
    /// Memory had no room when the script began.
    pub(super) out_of_memory: bool,
    /// The script may be run again if there is no room in the log.
    pub(super) may_wait: bool,
    /// The script may be run again on the thread for scripts if it takes long.
    pub(super) may_move: bool,
    /// The script is on a loop, and can go nowhere else.
    pub(super) is_bound: bool,
    /// The watch on the running script, and the script's limit of memory.
    pub(super) running: Rc<Running>,
    pub(super) leash: Leash,
    /// The script's text bounds what it can do: it may write on a loop.
    pub(super) is_brief: bool,
    /// Whether the script has no locks between its commands, and its keys are kept.
    pub(super) leaves: bool,
    /// Bytes of memory of what it has published: done twice, that would be heard.
    pub(super) said: usize,
    pub(super) begun: Instant,
    /// The name of the script in FUNCTION STATS.
    pub(super) name: &'a str,
    pub(super) args: &'a [&'a [u8]],
    /// Whether the script takes long, and other clients are told so.
    pub(super) busy: Option<Busy<'s>>,
}

/// The reason why a command is refused in a script: a code and a text.
type Refusal = Cow<'static, [u8]>;

fn error(text: &'static str) -> Result<Result<(), Refusal>, Stop> {
    Ok(Err(text.as_bytes().into()))
}

impl Host for Commands<'_, '_, '_, '_> {
    fn call(&mut self, call: Call<'_>) -> Result<Value<'_>, Stop> {
        if !self.at.come_back() {
            return Err(Stop(CUT.into()));
        }
        let ran = self.run(call);
        if self.leaves {
            self.batch.leave();
        }
        // Converting the reply to a value of Lua may take long.
        self.at.go_in();
        if let Err(refused) = ran? {
            return Ok(Value::Error(refused));
        }
        let value = Value::parse(self.reply.bytes()).map(|(value, _)| value);
        let deep: &[u8] = b"ERR a reply nests too deep for scripts";
        Ok(value.unwrap_or(Value::Error(deep.into())))
    }

    fn told(&mut self) -> Option<Stop> {
        if let Some(watched) = self.at.watched() {
            watched.tell_busy();
            self.at.turn_away();
            return None;
        }
        let limit_ms = self.batch.shared.config.script_ms.load(Relaxed);
        if limit_ms == 0 || now() - self.begun <= Duration::from_millis(limit_ms) {
            return None;
        }
        if self.busy.is_none() {
            tracing::warn!(
                script = self.name,
                "a script takes long: others are told BUSY until it ends, or SCRIPT KILL ends it"
            );
            let long = Long {
                name: self.name.to_owned(),
                command: shortened(self.args),
                begun: now(),
            };
            self.leaves = true;
            self.batch.leave();
            self.busy = Some(Busy::new(self.batch.shared, long));
        }
        None
    }

    /// A command with a wrong number of arguments counts as none.
    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        let entry = table().find(args.first()?)?;
        if !entry.takes(args.len()) || entry.check_subcommand(args).is_err() {
            return None;
        }
        self.conn.session.heed(self.batch.shared);
        Some(self.conn.session.rights().check(entry, args).is_ok())
    }

    fn chance(&mut self) -> u32 {
        self.batch.chance()
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        // A client decides what stands here, and how often.
        const SHOWN: usize = 1024;
        let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
        match level {
            0 => tracing::trace!(%text, "a script says"),
            1 => tracing::debug!(%text, "a script says"),
            2 => tracing::info!(%text, "a script says"),
            _ => tracing::warn!(%text, "a script says"),
        }
    }
}

impl Commands<'_, '_, '_, '_> {
    /// Before the first change: from then on a script is where it is to its end. On a loop that is one whose text bounds
    /// what it can do.
    fn stay_to_write(&self, wrote: bool, args: &[&[u8]]) -> Result<(), Stop> {
        if !self.may_move && !self.is_bound || wrote || self.said > 0 {
            return Ok(());
        }
        if !self.is_brief || !has_short_reply(args) || self.leash.given() > GIVEN {
            return Err(Stop(match self.may_move {
                true => ELSEWHERE.into(),
                false => BOUND.into(),
            }));
        }
        self.leash.release();
        Ok(())
    }

    /// Runs a command under the locks; its reply is written then.
    fn run(&mut self, call: Call<'_>) -> Result<Result<(), Refusal>, Stop> {
        let args = call.args;
        let Some(entry) = table().find(args[0]) else {
            return error("ERR Unknown Redis command called from script");
        };
        if let Err(why) = check(entry, args) {
            return error(why);
        }
        if let Err(denied) = self.conn.permit(entry, args, Where::Script, self.at) {
            return Ok(Err(denied.0));
        }
        let shown = self.batch.shared.log_keys.get();
        if shown.is_some_and(|shown| shown.concerns(entry, args)) {
            return error(NOT_HERE);
        }
        if self.batch.shared.attention.is_monitored() {
            self.conn.show_to_monitors(entry, args, "lua", self.at);
        }
        self.reply.clear();
        self.reply.proto = if call.resp3 {
            Proto::Resp3
        } else {
            Proto::Resp2
        };
        let limit = self.batch.shared.config.script_memory.load(Relaxed);
        self.reply.set_limit(limit);
        match entry.what {
            What::Data(spec) => {
                let scripts = &self.batch.shared.scripts;
                let wrote = scripts.phase.wrote();
                if spec.is_write() {
                    if self.read_only {
                        return error(READ_ONLY);
                    }
                    if self.out_of_memory && spec.needs_memory(args) && !wrote {
                        return error(OUT_OF_MEMORY);
                    }
                    self.stay_to_write(wrote, args)?;
                    match self.batch.reserve_next(spec, args) {
                        Ok(()) => {}
                        Err(NoRoom::Busy) if self.may_wait && !wrote => {
                            return Err(Stop(LATER.into()));
                        }
                        Err(why) => return error(self.batch.refusal(why)),
                    }
                    if !scripts.phase.may_write() {
                        return Err(scripts.killed());
                    }
                }
                if let Ran::Outside | Ran::Kept = self.batch.run(spec, args, self.reply) {
                    return error(NOT_ALLOWED);
                }
                self.conn.note_read(self.batch, spec, args);
            }
            What::Session(spec) => {
                let says = matches!(spec.name, "publish" | "spublish");
                if says && self.read_only {
                    return error(READ_ONLY);
                }
                if says {
                    let wrote = self.batch.shared.scripts.phase.wrote();
                    self.stay_to_write(wrote, args)?;
                    // No subscriber takes the message before the script ends: so messages are
                    // bounded like the script's own memory.
                    let more = SAID_COST + args[1].len() + args[2].len();
                    if self.said.saturating_add(more) > limit {
                        let scripts = &self.batch.shared.scripts;
                        scripts.out_of_memory.fetch_add(1, Relaxed);
                        return error(SAYS_TOO_MUCH);
                    }
                    self.said += more;
                    self.running.said.set(true);
                }
                self.at.session(self.conn, entry, args, self.reply);
                self.batch.db = self.conn.session.db;
            }
        }
        if self.reply.is_over() {
            self.reply.take_back(0);
            return error("ERR a reply is larger than the memory of scripts");
        }
        self.at.count_call(entry, self.reply.bytes());
        Ok(Ok(()))
    }
}

const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";

/// The reason why a command is refused in a script.
fn check(entry: &Entry, args: &[&[u8]]) -> Result<(), &'static str> {
    if !entry.takes(args.len()) {
        return Err("ERR Wrong number of args calling Redis command from script");
    }
    if let Err(why) = entry.check_subcommand(args) {
        return Err(if why.0.starts_with(b"ERR wrong number") {
            "ERR Wrong number of args calling Redis command from script"
        } else {
            "ERR Unknown Redis command called from script"
        });
    }
    match entry.what {
        What::Session(spec) if !ALLOWED.contains(&spec.name) => Err(NOT_ALLOWED),
        _ => Ok(()),
    }
}
