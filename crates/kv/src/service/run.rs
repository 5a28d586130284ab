//! One command: found, checked, then run or queued.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::Cx;

use super::acl::{Where, name_of_call};
use super::batch::Batch;
use super::call::{Call, Flow, Run, run_of, unknown_command};
use super::conn::RespConn;
use super::loading;
use super::log_keys::NOT_HERE;
use super::memory;
use super::outcome::{Outcome, count_error};
use super::ownership;
use super::script::{self, At, Kind};
use super::secrets;
use super::session::Replies;
use super::shared::Shared;
use super::slowlog::{Slow, shortened};
use super::table::{Entry, What, When};
use crate::commands::Error;
use crate::reply::{Proto, Reply};
use crate::store::Ran;

/// A command that took as long counts against its connection's share of the turn.
const LONG: Duration = Duration::from_micros(5);

impl RespConn {
    /// Runs one command.
    #[inline]
    pub(crate) fn run(
        &mut self,
        batch: &mut Batch<'_>,
        entry: Option<&'static Entry>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let start = reply.len();
        let Some(entry) = entry else {
            if is_http(args[0]) {
                return self.repel(cx);
            }
            return self.reject(None, &unknown_command(args), batch, reply, cx);
        };
        if !entry.takes(args.len()) {
            return self.reject(Some(entry), &Error::arity(entry.name), batch, reply, cx);
        }
        if let Err(error) = entry.check_subcommand(args) {
            return self.reject(Some(entry), &error, batch, reply, cx);
        }
        if (!self.session.is_plain() || batch.shared.attention.differs(self.session.seen()))
            && !self.is_about_the_store(entry, batch.shared, args)
            && let Some(outcome) = self.intercept(entry, batch, args, reply, cx)
        {
            return outcome;
        }
        let outcome = self.run_now(entry, batch, args, reply, cx);
        self.hush(entry, outcome, start, reply);
        outcome
    }

    /// Whether nothing is unusual but that some keys are not the store's, and the keys of this call
    /// are.
    #[inline]
    fn is_about_the_store(&self, entry: &Entry, shared: &Shared, args: &[&[u8]]) -> bool {
        self.session.is_plain()
            && shared.attention.is_about_keys(self.session.seen())
            && !shared
                .log_keys
                .get()
                .is_some_and(|shown| shown.concerns(entry, args))
    }

    /// Takes back the replies that a client does not want.
    #[inline]
    pub(super) fn hush(
        &mut self,
        entry: &Entry,
        outcome: Outcome,
        start: usize,
        reply: &mut Reply,
    ) {
        // A waiting command is answered later, see `end_wait`.
        if self.session.replies != Replies::On && outcome == Outcome::Done {
            // Confirmations of subscriptions are messages, and messages are always heard.
            if self.session.is_unheard() && !entry.confirms() {
                reply.take_back(start);
            }
        }
    }

    /// Runs a command that passed all checks.
    #[inline]
    pub(super) fn run_now(
        &mut self,
        entry: &Entry,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let start = reply.len();
        let begun = self.is_timed(entry, cx).then(|| cx.link.clock());
        let outcome = match entry.what {
            What::Data(spec) => match batch.run(spec, args, reply) {
                Ran::Done => Outcome::Done,
                Ran::Later => self.wait_for_room(cx),
                Ran::Kept => self.park(cx),
                Ran::Blocked(blocked) => self.begin_wait(spec, blocked, args, batch, reply, cx),
                Ran::Outside => {
                    batch.pause();
                    self.call(memory::run, args, reply, cx, false)
                }
            },
            What::Session(spec) => {
                batch.pause();
                if batch.shared.durable.get().is_some() {
                    self.note_commit(batch);
                }
                if spec.name == "exec" {
                    let outcome = self.exec(batch, reply, cx);
                    if outcome == Outcome::Done && batch.shared.attention.is_monitored() {
                        let from = cx.link.peer().client().to_string();
                        self.show_to_monitors(entry, args, &from, cx);
                    }
                    outcome
                } else if spec.name == "function" {
                    self.function(batch, args, false, reply, &mut At::Loop(cx))
                } else if spec.name == "script" {
                    self.script(batch, args, reply, cx)
                } else if let Some(kind) = Kind::of(spec.name) {
                    self.eval(kind, batch, args, reply, cx)
                } else {
                    self.call(run_of(entry), args, reply, cx, false)
                }
            }
        };
        batch.db = self.session.db;
        if let Some(begun) = begun {
            let took = cx.link.clock() - begun;
            if took >= LONG {
                cx.link.spend(took);
                cx.local.spent = true;
            }
            match (outcome, &mut self.wait) {
                (Outcome::Done, _) => self.note_time(entry, args, took, cx),
                (Outcome::Waits, Some(wait)) => wait.took = Some(took),
                _ => {}
            }
        }
        if outcome != Outcome::Later {
            self.session.waits_since_ms = 0;
            if !batch.is_patient() {
                // The commands behind this one have not waited yet.
                batch.set_patient(true);
            }
            self.card().command.store(entry.id.into(), Relaxed);
            let stats = &cx.local.stats;
            stats.commands.add(1);
            let counts = stats.command(entry.id);
            counts.calls.add(1);
            if reply.bytes().get(start) == Some(&b'-') {
                counts.failed.add(1);
                count_error(&reply.bytes()[start..], &cx.local.stats);
            }
        }
        outcome
    }

    /// The log is too busy for this command.
    #[cold]
    pub(crate) fn wait_for_room(&mut self, cx: &mut Cx<'_, RespConn>) -> Outcome {
        if self.session.waits_since_ms == 0 {
            self.session.waits_since_ms = (cx.link.now().as_nanos() / 1_000_000).max(1);
        }
        Outcome::Later
    }

    /// Whether a call is timed. Reading the clock costs as much as a small command: commands that
    /// are always quick are timed only now and then.
    #[inline]
    fn is_timed(&self, entry: &Entry, cx: &mut Cx<'_, RespConn>) -> bool {
        !entry.is_brief() || cx.local.times_all
    }

    /// Counts the time of a call, and keeps it if it was slow.
    pub(crate) fn note_time(
        &mut self,
        entry: &Entry,
        args: &[&[u8]],
        took: Duration,
        cx: &mut Cx<'_, RespConn>,
    ) {
        let shared = &cx.local.shared;
        let counts = cx.local.stats.command(entry.id);
        counts.timed.add(1);
        counts.timed_ns.add(took.as_nanos() as u64);
        if shared.config.tracks_latency.load(Relaxed) {
            counts.times().add(took.as_nanos() as u64);
        }
        let (spikes_ms, took_ms) = (
            shared.config.spikes_ms.load(Relaxed),
            took.as_millis() as u64,
        );
        if spikes_ms > 0 && took_ms >= spikes_ms {
            let event = if entry.is_quick() {
                "fast-command"
            } else {
                "command"
            };
            let at_s = cx.link.wall().as_secs();
            shared.spikes.add(event, at_s, took_ms);
        }
        let slow_us = shared.config.slow_us.load(Relaxed);
        let took_us = took.as_micros() as u64;
        if slow_us < 0 || took_us < slow_us as u64 {
            return;
        }
        let slow = Slow {
            id: 0,
            at_s: cx.link.wall().as_secs(),
            took_us,
            args: shortened(&secrets::shown(entry, args)),
            addr: cx.link.peer().client().to_string(),
            name: self.card().logged_name(),
        };
        shared
            .slowlog
            .add(slow, shared.config.slow_len.load(Relaxed));
    }

    /// Runs a command about the connection or the server.
    pub(crate) fn call(
        &mut self,
        run: Run,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
        in_transaction: bool,
    ) -> Outcome {
        let card = self.card().clone();
        let flow = run(&mut Call {
            shared: cx.local.shared.clone(),
            session: &mut self.session,
            card: &card,
            link: &mut cx.link,
            local: cx.local,
            reply,
            args,
            in_transaction,
        });
        match flow {
            Flow::Done => Outcome::Done,
            Flow::Later => Outcome::Later,
        }
    }

    /// Handles the unusual cases: a client that is not authenticated, a store that loads, a transaction, a subscriber, a
    /// pause, a key that belongs to the log.
    #[cold]
    fn intercept(
        &mut self,
        entry: &'static Entry,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Option<Outcome> {
        let when = match entry.what {
            What::Session(spec) => spec.when,
            What::Data(_) => When::Usual,
        };
        self.session.heed(batch.shared);
        if self.session.account().is_gone() {
            self.session.closing = true;
            return Some(Outcome::Done);
        }
        // The password may have been taken away since this client came.
        if !self.session.is_authenticated() && batch.shared.trusts(cx.link.peer()) {
            self.session.trust();
        }
        if !self.session.is_authenticated() && !matches!(when, When::First | When::Always) {
            let error = Error::new("NOAUTH Authentication required.");
            return Some(self.reject(Some(entry), &error, batch, reply, cx));
        }
        let place = match self.session.is_queuing() {
            true => Where::Queued,
            false => Where::TopLevel,
        };
        if self.session.is_authenticated()
            && let Err(error) = self.permit(entry, args, place, cx)
        {
            return Some(self.reject(Some(entry), &error, batch, reply, cx));
        }
        if batch.shared.is_busy() && !script::may_run_when_busy(entry, args) {
            if entry.name == "exec" && self.session.is_queuing() {
                return Some(self.abort_busy(batch, reply, cx));
            }
            let error = Error::new(script::busy_text(batch.shared));
            return Some(self.reject(Some(entry), &error, batch, reply, cx));
        }
        let among_messages =
            matches!(when, When::Subscribed) || matches!(entry.name, "quit" | "reset");
        if self.session.is_subscribed() && self.session.proto == Proto::Resp2 && !among_messages {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                name_of_call(entry, args)
            );
            return Some(self.reject(Some(entry), &Error::text(text), batch, reply, cx));
        }
        if self.session.loading && entry.needs_keys() {
            return Some(self.reject(Some(entry), &loading::error(), batch, reply, cx));
        }
        if self.session.unproven
            && let Some(error) = ownership::unproven(batch.shared, entry)
        {
            return Some(self.reject(Some(entry), &error, batch, reply, cx));
        }
        if when == When::Alone && self.session.is_queuing() {
            let error = Error::new("ERR Command not allowed inside a transaction");
            return Some(self.reject(Some(entry), &error, batch, reply, cx));
        }
        let queues = self.session.is_queuing()
            && matches!(when, When::Usual | When::Subscribed | When::First);
        if batch.shared.attention.is_paused() {
            let now_ms = cx.link.now().as_nanos() / 1_000_000;
            let writes = !queues && self.writes(entry, args, cx);
            let holds_back = batch.shared.holds_back(now_ms, writes);
            self.card().held_back.store(holds_back, Relaxed);
            if holds_back {
                return Some(Outcome::Later);
            }
        }
        let on_log = batch.shared.log_keys.get();
        let on_log = on_log.filter(|shown| shown.concerns(entry, args));
        if on_log.is_some() && self.session.is_queuing() {
            return Some(self.reject(Some(entry), &Error::new(NOT_HERE), batch, reply, cx));
        }
        if queues {
            return match self.queue(entry, batch, args, cx) {
                Ok(()) => {
                    let start = reply.len();
                    reply.simple("QUEUED");
                    self.silence(reply, start);
                    Some(Outcome::Done)
                }
                Err(why) => Some(self.reject(Some(entry), &Error::new(why), batch, reply, cx)),
            };
        }
        // EXEC is shown behind the commands that it has run.
        if batch.shared.attention.is_monitored() && entry.name != "exec" {
            let from = cx.link.peer().client().to_string();
            self.show_to_monitors(entry, args, &from, cx);
        }
        if let Some(shown) = on_log {
            return Some(self.run_on_log(shown, entry, batch, args, reply, cx));
        }
        if self.session.tracking().is_some() {
            let start = reply.len();
            let outcome = self.run_tracked(entry, batch, args, reply, cx);
            self.hush(entry, outcome, start, reply);
            return Some(outcome);
        }
        None
    }

    /// Whether a call changes keys or is heard by others, or may: then a pause of writers holds it back.
    fn writes(&self, entry: &Entry, args: &[&[u8]], cx: &mut Cx<'_, RespConn>) -> bool {
        match entry.what {
            // As in Redis, PFCOUNT counts as a write, because it may store the number that it has
            // counted.
            What::Data(spec) => spec.is_write() || spec.name == "pfcount",
            What::Session(spec) => match spec.name {
                "publish" | "spublish" | "function" => true,
                "exec" => self.session.transaction.as_ref().is_some_and(|queued| {
                    let args = queued.args();
                    let mut commands = queued.commands(&args).into_iter();
                    commands.any(|(entry, args)| self.writes(entry, args, cx))
                }),
                name => Kind::of(name).is_some_and(|kind| script::may_write(kind, args, cx)),
            },
        }
    }

    /// Answers a command that is not run with an error.
    #[cold]
    fn reject(
        &mut self,
        entry: Option<&Entry>,
        error: &Error,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let start = reply.len();
        let is_exec = entry.is_some_and(|entry| entry.name == "exec");
        if is_exec {
            // A refused EXEC ends the transaction, for whatever reason; as in Redis, the reply is the same outside MULTI.
            let why = error.0.strip_prefix(b"ERR ").unwrap_or(&error.0);
            self.drop_transaction(batch);
            reply.error([b"EXECABORT Transaction discarded because of: ", why].concat());
        } else {
            reply.error(&error.0);
        }
        count_error(&reply.bytes()[start..], &cx.local.stats);
        if let Some(entry) = entry {
            cx.local.stats.command(entry.id).rejected.add(1);
        }
        if self.session.is_queuing()
            && let Some(transaction) = &mut self.session.transaction
        {
            transaction.fail();
        }
        self.silence(reply, start);
        Outcome::Done
    }

    /// Ends a connection that a web page made a browser open: not a byte is answered, and what
    /// stands behind, which the page chose, is not run.
    #[cold]
    fn repel(&mut self, cx: &mut Cx<'_, RespConn>) -> Outcome {
        cx.local.stats.protocol_errors.add(1);
        let peer = cx.link.peer();
        if let Some(held_back) = cx.local.shared.intrusions.pass(cx.link.now()) {
            tracing::warn!(
                peer = %peer.client(), held_back,
                "an HTTP request came to the Redis port, perhaps sent by a web page to attack this \
                 server: closing the connection"
            );
        }
        self.session.closing = true;
        cx.link.finish_because("an HTTP request");
        Outcome::Done
    }

    /// Takes back a reply that the client does not want to hear.
    pub(crate) fn silence(&mut self, reply: &mut Reply, start: usize) {
        if self.session.is_unheard() {
            reply.take_back(start);
        }
    }
}

/// Whether this word begins a line of an HTTP request, and is no command: a method that web pages
/// may use with a body of their own, or the header that every request has.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
