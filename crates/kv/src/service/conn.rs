//! One connection: parses the received commands, runs them in order, writes the replies together.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tidewire::{Closed, ConnId, Conns, Cx, Input, Next, Protocol, Turn};

use super::batch::Batch;
use super::clients::Card;
use super::holdings::IN_PASSING;
use super::local::{Command, GIVING_BACK, KEPT_REPLY, RespLocal};
use super::log_keys::Reading;
use super::message::Message;
use super::outcome::Outcome;
use super::ownership;
use super::pubsub::Frame;
use super::script::Away;
use super::session::Session;
use super::settings::FLUSH;
use super::shared::Shared;
use super::table::{What, table};
use super::wait::{Over, Wait};
use crate::commands::Spec;
use crate::reply::Reply;
use crate::resp::{Bounds, Parser, Step};
use crate::store::AHEAD;

/// Commands that are parsed before the first of them runs.
const BATCH: usize = 256;
/// When a command that could not run is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(2);

/// When a command is tried again whose keys a script keeps; the script's end has it tried at once.
const RETRY_PARKED: Duration = Duration::from_millis(50);

/// How long a command is tried again that the log is too busy for; then it is refused.
pub(super) const PATIENCE_MS: u64 = 5_000;

/// The reply to a client of another host while there is no password.
const DENIED: &[u8] = b"-DENIED this server has no password, so it serves only clients on its own \
host. From there, CONFIG SET requirepass gives it one; CONFIG SET protected-mode no, or the option \
--open of its command, opens it to every host.\r\n";

/// One connection of a [`RespService`](super::RespService).
pub struct RespConn {
    parser: Parser,
    pub(crate) session: Session,
    /// The client's card, from `opened` on.
    card: Option<Arc<Card>>,
    id: Option<ConnId>,
    /// The wait of a blocking command.
    pub(crate) wait: Option<Box<Wait>>,
    /// The client's script runs on the thread for scripts.
    pub(crate) away: Option<Box<Away>>,
    /// The client's command reads the log of messages.
    pub(crate) reading: Option<Box<Reading>>,
    /// From another host, and there is no password: told so, and ended.
    denied: bool,
    /// The connection has much input or output under way, and its loop looks at it again.
    passes_much: bool,
}

impl std::fmt::Debug for RespConn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RespConn({:?})", self.session)
    }
}

/// The kind of data behind the parsed commands of the input.
enum Rest {
    /// The rest was not looked at yet.
    Unknown,
    Line(Vec<Vec<u8>>, usize),
    Unfinished(usize),
    Wrong(crate::resp::ProtocolError),
}

/// How the serving of a batch ended.
enum Served {
    All,
    /// Before a command that cannot run now.
    Early(Next),
    /// The connection ends.
    End,
    /// A reply was larger than this client may have.
    TooMuch,
}

impl Protocol for RespConn {
    type Local = RespLocal;
    type Message = Message;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        if self.denied {
            return turn_away(cx);
        }
        let shared = &cx.local.shared;
        let now_ms = cx.link.now().as_nanos() / 1_000_000;
        let card = Card::new(
            shared.clients.next_id(),
            cx.link.peer().client().clone(),
            cx.handle(),
            self.session.account().clone(),
            now_ms,
        );
        let card = Arc::new(card);
        shared.clients.add(card.clone());
        cx.local.stats.connections.add(1);
        let link = &mut cx.link;
        shared.name_run(|| [link.random(), link.random(), link.random()]);
        self.card = Some(card);
        self.id = Some(cx.link.id());
        if !self.session.is_authenticated()
            && let Some(within) = shared.config.login_within
        {
            cx.link.set_timer_after(within);
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if self.wait.is_some() || self.away.is_some() || self.reading.is_some() {
            return Next::Paused;
        }
        let before = input.len();
        let mut reply = std::mem::take(&mut cx.local.scratch.reply);
        let mut commands = std::mem::take(&mut cx.local.scratch.commands);
        let mut args = cx.local.scratch.take_args();
        reply.proto = self.session.proto;
        let next = self.serve(input, &mut args, &mut commands, &mut reply, cx);
        cx.local.scratch.keep(args, commands);
        cx.local.stats.bytes_in.add((before - input.len()) as u64);
        cx.local.scratch.reply = reply;
        self.show(input.len(), cx);
        next
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        match &self.wait {
            Some(wait) if wait.is_busy() => self.wait_again(cx),
            Some(_) => self.wait_over(Over::TimedOut, cx),
            None if self.reading.is_some() => self.reading_expired(cx),
            None if !self.session.is_authenticated() => self.look_at_login(cx),
            None => self.try_again(cx),
        }
        self.show_output(cx);
    }

    fn posted(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Served(bytes, _) if bytes.is_empty() => self.too_much(cx),
            Message::Served(bytes, ticket) => {
                self.note_away(&bytes, cx);
                cx.local.arm();
                self.session.barrier = self.session.barrier.max(ticket);
                // The changes made for this client are at this ticket or before it.
                self.session.written = cx.local.shared.store.last_ticket();
                let mut reply = Reply::of(bytes, self.session.proto);
                self.end_wait(&mut reply, cx);
                if self.session.closing {
                    self.leave(cx.local);
                    cx.link.finish();
                }
            }
            Message::TryAgain => self.wait_is_busy(cx),
            Message::Unblock { wait, error } => {
                if wait == self.card().wait.load(Relaxed) {
                    self.unblock(error, cx);
                }
            }
            Message::Refused => self.wait_refused(cx),
            Message::Changed(tracker) => self.tell_changes(&tracker, cx),
            Message::RedirectGone => self.redirect_gone(cx),
            Message::FromLog(was_read) => self.log_was_read(*was_read, cx),
            Message::Monitored => self.monitored(cx),
            Message::Kill => self.finish(cx),
        }
        self.show_output(cx);
    }

    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        // The client would not read the reply for which it waits.
        self.finish(cx);
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        if self.away.is_some() {
            // The answer comes, unless the script takes too long for that.
            cx.local.shared.scripts.end_slow();
            self.session.closing = true;
            return;
        }
        if self.is_read_for() {
            self.session.closing = true;
            return;
        }
        self.finish(cx);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        let shared = &cx.local.shared;
        let now_ms = cx.link.now().as_nanos() / 1_000_000;
        let silent_ms = self.card().active_ms.load(Relaxed);
        let silent_ms = now_ms.saturating_sub(silent_ms);
        let stall = shared
            .config
            .stall
            .map_or(u64::MAX, |d| d.as_millis() as u64);
        if self.parser.is_partial() && silent_ms >= stall {
            cx.local.stats.timed_out.add(1);
            cx.link.finish_because("half a command, then silence");
            return;
        }
        let timeout_s = shared.config.timeout_s.load(Relaxed);
        if timeout_s > 0 && silent_ms >= timeout_s * 1000 && !self.session.is_subscribed() {
            cx.local.stats.timed_out.add(1);
            cx.link.finish_because("idle for the timeout");
        }
    }

    fn closed(mut self, _: Closed, turn: &mut Turn<'_, Self>) {
        let local = &mut *turn.local;
        let shared = local.shared.clone();
        if let Some(wait) = self.wait.take() {
            // If the wait was served after all, no client is left to tell.
            let _ = wait.cancel(&shared.store);
        }
        if let Some(id) = self.id {
            self.give_reading_up(id, local);
        }
        self.leave(local);
    }
}

impl RespConn {
    /// Makes a connection. `trusted`: the client need not authenticate. `loading`: the store is being
    /// recovered.
    pub(crate) fn new(shared: &Shared, trusted: bool, loading: bool) -> RespConn {
        let mut session = Session::new(shared, trusted);
        session.loading = loading;
        RespConn {
            parser: Parser::default(),
            session,
            card: None,
            id: None,
            wait: None,
            away: None,
            reading: None,
            denied: false,
            passes_much: false,
        }
    }

    /// A substitute for a connection, on the thread where the connection's script runs.
    pub(crate) fn of_script(session: Session, card: Arc<Card>) -> RespConn {
        RespConn {
            parser: Parser::default(),
            session,
            card: Some(card),
            id: None,
            wait: None,
            away: None,
            reading: None,
            denied: false,
            passes_much: false,
        }
    }

    /// Makes a connection for a client that is turned away.
    pub(crate) fn denied(shared: &Shared) -> RespConn {
        RespConn {
            denied: true,
            ..RespConn::new(shared, false, false)
        }
    }

    pub(crate) fn card(&self) -> &Arc<Card> {
        self.card.as_ref().expect("made when it was opened")
    }

    /// Serves all there is, a batch at a time, as long as the replies are taken.
    fn serve<'a>(
        &mut self,
        input: &mut Input<'a>,
        args: &mut Vec<&'a [u8]>,
        commands: &mut Vec<Command>,
        reply: &mut Reply,
        cx: &mut Cx<'_, Self>,
    ) -> Next {
        loop {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let rest = self.parse(
                input.bytes(),
                args,
                commands,
                &cx.local.shared.config.bounds(),
            );
            let done = commands.last().map_or(0, |c| c.input_end);
            let (served, used) = self.run_batch(args, commands, reply, cx);
            match served {
                Served::All => input.consume(done),
                Served::Early(next) => {
                    input.consume(used);
                    self.parser = Parser::default();
                    self.flush(reply, cx);
                    return match next {
                        Next::AfterDrain if input.is_empty() => Next::More,
                        next => next,
                    };
                }
                Served::End => return self.end(input, reply, None, cx),
                Served::TooMuch => return self.cut(input, reply, cx),
            }
            match rest {
                Rest::Unknown => {}
                Rest::Unfinished(needed) => {
                    self.flush(reply, cx);
                    return if input.is_empty() {
                        Next::More
                    } else {
                        Next::AtLeast(needed)
                    };
                }
                Rest::Line(words, len) => {
                    let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
                    let line = Command {
                        entry: table().find(words[0]),
                        args_end: words.len(),
                        input_end: len,
                    };
                    let (served, used) = self.run_batch(&words, &[line], reply, cx);
                    match served {
                        Served::All => input.consume(len),
                        Served::Early(next) => {
                            // Consumes the command's bytes only if the command has run.
                            input.consume(used);
                            self.flush(reply, cx);
                            return match next {
                                Next::AfterDrain if input.is_empty() => Next::More,
                                next => next,
                            };
                        }
                        Served::End => return self.end(input, reply, None, cx),
                        Served::TooMuch => return self.cut(input, reply, cx),
                    }
                }
                Rest::Wrong(error) => {
                    cx.local.stats.protocol_errors.add(1);
                    cx.local.stats.errors.add(1);
                    cx.local.stats.error(b"ERR");
                    tracing::debug!(peer = %cx.link.peer().client(), %error, "closing the connection");
                    reply.error(format!("ERR {error}"));
                    return self.end(input, reply, Some("protocol error"), cx);
                }
            }
        }
    }

    /// The command waits for what a script keeps; its connection does, and no other.
    #[cold]
    pub(crate) fn park(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.local.parks = true;
        cx.local.parked.insert(cx.link.id());
        Outcome::Later
    }

    /// Tries the command again that waits for keys of a script.
    pub(crate) fn unpark(&mut self, cx: &mut Cx<'_, Self>) {
        if self.wait.is_none() && self.away.is_none() && self.reading.is_none() {
            cx.link.clear_timer();
            self.try_again(cx);
        }
    }

    /// Ends a connection that has not authenticated in time. The connection's timer has other uses as well: a wrong
    /// password costs a pause.
    fn look_at_login(&mut self, cx: &mut Cx<'_, Self>) {
        let shared = cx.local.shared.clone();
        if let (Some(within), Some(card)) = (shared.config.login_within, &self.card) {
            let now_ms = cx.link.now().as_nanos() / 1_000_000;
            let open = Duration::from_millis(now_ms.saturating_sub(card.opened_ms()));
            if open >= within {
                cx.local.stats.not_logged_in.add(1);
                shared.tell_not_logged_in(now_ms);
                return cx.link.finish_because("not logged in in time");
            }
            cx.link.set_timer_after(within - open);
        }
        self.try_again(cx);
    }

    /// Goes on with a command that could not run.
    pub(crate) fn try_again(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(card) = &self.card {
            // The connection says so again if it is held back still.
            card.held_back.store(false, Relaxed);
        }
        cx.link.resume();
    }

    /// Parses the commands of one batch.
    fn parse<'a>(
        &mut self,
        bytes: &'a [u8],
        args: &mut Vec<&'a [u8]>,
        commands: &mut Vec<Command>,
        bounds: &Bounds,
    ) -> Rest {
        args.clear();
        commands.clear();
        // Authentication changes which commands may follow.
        let (bounds, most) = if self.session.is_authenticated() {
            (*bounds, BATCH)
        } else {
            (bounds.unauthenticated(), 1)
        };
        let mut at = 0;
        while commands.len() < most {
            match self.parser.next(&bytes[at..], args, &bounds) {
                Step::Command { len } => at += len,
                Step::Nothing { len } => at += len,
                Step::Inline { words, len } => return Rest::Line(words, len),
                Step::Needs(n) => return Rest::Unfinished(n),
                Step::Error(error) => return Rest::Wrong(error),
            }
            let first = commands.last().map_or(0, |c: &Command| c.args_end);
            commands.push(Command {
                entry: args.get(first).and_then(|name| table().find(name)),
                args_end: args.len(),
                input_end: at,
            });
        }
        Rest::Unknown
    }

    /// Runs commands until one cannot run; returns how that ended, and how much input was consumed.
    fn run_batch(
        &mut self,
        args: &[&[u8]],
        commands: &[Command],
        reply: &mut Reply,
        cx: &mut Cx<'_, Self>,
    ) -> (Served, usize) {
        if commands.is_empty() {
            return (Served::All, 0);
        }
        let shared = cx.local.shared.clone();
        if self.session.loading && !shared.store.is_loading() {
            // All following commands are served, and their replies held until the commit.
            self.session.loading = false;
            cx.local.find_log();
        }
        self.session.unproven = ownership::is_asked_for(&shared);
        if shared.store.tells_events() && shared.hub.is_crowded() {
            // A command that makes events waits as a publisher does.
            cx.link.set_timer_after(RETRY);
            return (Served::Early(Next::Paused), 0);
        }
        cx.local.begin_batch();
        let now_ms = cx.link.wall().as_millis() as u64;
        let mut batch = Batch::new(&shared, self.session.db, now_ms, cx.link.random());
        batch.set_no_touch(self.session.no_touch);
        if shared.durable.get().is_none() {
            return self.run_commands(&mut batch, args, commands, reply, cx);
        }
        batch.set_patient(self.is_patient(cx));
        let ran = self.run_commands(&mut batch, args, commands, reply, cx);
        self.note_commit(&mut batch);
        ran
    }

    #[inline]
    fn run_commands(
        &mut self,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        commands: &[Command],
        reply: &mut Reply,
        cx: &mut Cx<'_, Self>,
    ) -> (Served, usize) {
        let (mut used, mut from) = (0, 0);
        let limit = batch.shared.config.client_output.load(Relaxed);
        for (i, command) in commands.iter().enumerate() {
            // The last one alone would only be looked up twice.
            if i.is_multiple_of(AHEAD) && i + 1 < commands.len() && self.session.is_plain() {
                batch.prefetch(about_keys(args, from, &commands[i..]));
            }
            let these = &args[from..command.args_end];
            // Nothing to run: an empty line, or an array of no arguments.
            if these.is_empty() {
                used = command.input_end;
                continue;
            }
            if reply.len() >= FLUSH {
                batch.pause();
                self.note_commit(batch);
                self.flush(reply, cx);
                if cx.link.full() {
                    return (Served::Early(Next::AfterDrain), used);
                }
            }
            // The limit is this command's alone: replies before it are paced.
            reply.set_limit(reply.len().saturating_add(limit));
            match self.run(batch, command.entry, these, reply, cx) {
                _ if reply.is_over() => return (Served::TooMuch, used),
                Outcome::Done => {}
                Outcome::Later => {
                    let parks = std::mem::take(&mut cx.local.parks);
                    cx.link
                        .set_timer_after(if parks { RETRY_PARKED } else { RETRY });
                    return (Served::Early(Next::Paused), used);
                }
                Outcome::Waits => return (Served::Early(Next::Paused), command.input_end),
            }
            used = command.input_end;
            from = command.args_end;
            if self.session.closing {
                return (Served::End, used);
            }
            if cx.local.spent {
                cx.local.spent = false;
                if cx.link.full() {
                    // Other connections of the loop have their turn first.
                    return (Served::Early(Next::AfterDrain), used);
                }
            }
            if let Some(time) = cx.local.sleep.take() {
                cx.link.set_timer_after(time);
                return (Served::Early(Next::Paused), used);
            }
        }
        (Served::All, used)
    }

    /// Ends the connection, but not before a reply that is on its way: a value that was taken from
    /// a key would be lost to a peer that has only finished sending.
    fn finish(&mut self, cx: &mut Cx<'_, Self>) {
        self.give_reading_up(cx.link.id(), cx.local);
        if self.abandon_wait(cx) {
            self.leave(cx.local);
            cx.link.finish();
        } else {
            self.session.closing = true;
        }
    }

    /// The client has gone for all other clients, though its peer may take its time to close: it is not listed, has no
    /// subscription and holds nothing. Clients for which it received notifications of changes are told that it has gone;
    /// notifications that wait for it are not delivered.
    pub(crate) fn leave(&mut self, local: &mut RespLocal) {
        let shared = local.shared.clone();
        self.session.waits_for_takeover = None;
        if let Some(transaction) = self.session.transaction.take() {
            transaction.forget(&shared.store);
        }
        if let (Some(listening), Some(id)) = (self.session.listening.take(), self.id) {
            shared.hub.depart(&listening);
            local.leaving.add(id, listening);
            local.end_subscriptions();
        }
        if let Some(following) = self.session.set_tracking(None) {
            following.close(&shared.store);
        }
        let Some(card) = &self.card else { return };
        if card.memory() > IN_PASSING {
            local.gives_back();
        }
        if self.session.monitor.take().is_some() {
            shared.monitors.remove(card.id, &shared.attention);
        }
        shared.let_go(card);
        if card.hears_for_others.load(Relaxed) {
            shared.store.tracking().notify_again();
        }
    }

    fn cut(&mut self, input: &mut Input<'_>, reply: &mut Reply, cx: &mut Cx<'_, Self>) -> Next {
        // The reply's memory is freed, which is as much as a client may have.
        drop(reply.take());
        reply.clear();
        input.consume(input.len());
        self.too_much(cx);
        Next::More
    }

    /// Ends the connection at once: its reply is larger than its output limit.
    #[cold]
    pub(super) fn too_much(&mut self, cx: &mut Cx<'_, Self>) {
        let stats = &cx.local.stats;
        stats.large_replies.add(1);
        cx.local.gives_back();
        let command = self.card().command.load(Relaxed);
        let command = u16::try_from(command).map_or("none", |id| table().name(id));
        let limit = cx.local.shared.config.client_output.load(Relaxed);
        // A client can have this said as often as it can connect.
        if cx.local.may_warn(cx.link.now()) {
            tracing::warn!(
                peer = %cx.link.peer().client(), command, limit,
                "a reply is larger than the limit of a client's output: cutting the connection",
            );
        }
        cx.link.abort_because("client output limit");
    }

    /// Sends the replies that are ready and ends the connection.
    fn end(
        &mut self,
        input: &mut Input<'_>,
        reply: &mut Reply,
        why: Option<&'static str>,
        cx: &mut Cx<'_, Self>,
    ) -> Next {
        self.flush(reply, cx);
        input.consume(input.len());
        self.leave(cx.local);
        match why {
            Some(why) => cx.link.finish_because(why),
            None => cx.link.finish(),
        }
        Next::More
    }

    /// Sends the replies: a small one as a copy, so that the memory stays; a large one without a copy.
    /// The replies are held until the changes that they report have settled.
    pub(crate) fn flush(&self, reply: &mut Reply, cx: &mut Cx<'_, Self>) {
        if reply.is_empty() {
            return;
        }
        if self.session.barrier > 0
            && let Some(waiting) = &mut cx.local.waiting
            && !waiting.hold(self.session.barrier, &mut cx.link)
        {
            return drop(reply.take());
        }
        cx.local.stats.bytes_out.add(reply.len() as u64);
        if reply.len() <= KEPT_REPLY {
            cx.link.write(reply.bytes());
            reply.clear();
        } else {
            cx.link.write_shared(Bytes::from(reply.take()));
        }
    }

    /// Commits the changes of the batch, and remembers which commit its replies wait for.
    pub(crate) fn note_commit(&mut self, batch: &mut Batch<'_>) {
        let (barrier, written) = batch.commit();
        self.session.barrier = self.session.barrier.max(barrier);
        self.session.written = self.session.written.max(written);
    }

    /// Has replies wait for the libraries of functions that were looked at.
    pub(crate) fn heed_libraries(&mut self, shared: &Shared) {
        self.session.barrier = self.session.barrier.max(shared.library_ticket());
    }

    /// Whether the connection may still wait for a log that is busy.
    fn is_patient(&self, cx: &mut Cx<'_, Self>) -> bool {
        let since_ms = self.session.waits_since_ms;
        let now_ms = cx.link.now().as_nanos() / 1_000_000;
        since_ms == 0
            || now_ms.saturating_sub(since_ms) < PATIENCE_MS
            || cx.local.shared.awaits_snapshot()
    }

    /// Brings the figures of the client's card up to date.
    #[inline]
    fn show(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        let card = self.card();
        let now_ms = cx.link.now().as_nanos() / 1_000_000;
        card.active_ms.store(now_ms, Relaxed);
        let output = cx.link.queued_len() as u64;
        card.input_len.store(unread as u32, Relaxed);
        card.output_len.store(output, Relaxed);
        if card.holdings.has_changed(unread as u64 + output) {
            self.account(unread, cx);
        }
    }

    /// Brings the sum of what all clients hold up to date with this one, which holds much, or did.
    #[cold]
    pub(crate) fn account(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        let output = cx.link.queued_len() as u64;
        let parsed = self.parser.memory() as u64;
        let card = self.card();
        card.parsed_len.store(parsed, Relaxed);
        let passing = unread as u64 + output + parsed;
        let shared = &cx.local.shared;
        shared.clients.account(card, passing);
        if passing > IN_PASSING
            && let Some(id) = self.id
            && !std::mem::replace(&mut self.passes_much, true)
        {
            // The engine does not say when output has left, so the loop looks again.
            cx.local.busy.push(id);
            cx.local.at.signal();
        }
        if cx.local.shared.clients_excess() > 0 {
            cx.local.evict_clients(cx.link.now());
        }
    }

    /// Looks again at input and output of a connection that had much of them; whether it still has.
    pub(crate) fn look_again(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let Some(card) = &self.card else { return false };
        let output = cx.link.queued_len();
        // The rest of what the link holds is carried input, with its room to grow.
        let unread = cx.link.held().saturating_sub(output);
        let unread = unread.min(u32::MAX as usize);
        card.input_len.store(unread as u32, Relaxed);
        card.output_len.store(output as u64, Relaxed);
        let parsed = self.parser.memory() as u64;
        card.parsed_len.store(parsed, Relaxed);
        let passing = (unread + output) as u64 + parsed;
        if card.holdings.has_changed(passing) {
            cx.local.shared.clients.account(card, passing);
        }
        self.passes_much = passing > IN_PASSING;
        self.passes_much
    }

    /// Hands a published message to this subscriber, or cuts it if it takes none.
    pub(crate) fn deliver(&mut self, frame: &mut Frame<'_>, most: usize, cx: &mut Cx<'_, Self>) {
        if !self.session.is_subscribed() {
            // The client has gone, and its subscriptions are not all removed yet.
            return;
        }
        if cx.local.shared.attention.differs(self.session.seen()) {
            let shared = cx.local.shared.clone();
            if !self.may_go_on_listening(&shared) {
                return self.finish(cx);
            }
        }
        let ticket = frame.ticket();
        if ticket > 0
            && let Some(waiting) = &mut cx.local.waiting
            && !waiting.hold(ticket, &mut cx.link)
        {
            return;
        }
        self.hand_out(frame.bytes(self.session.proto), most, cx);
    }

    /// Writes what this client did not ask for just now, or cuts it if it takes none.
    pub(crate) fn hand_out(&mut self, bytes: &Bytes, most: usize, cx: &mut Cx<'_, Self>) {
        if cx.link.queued_len().saturating_add(bytes.len()) > most {
            return self.cut_subscriber(most, cx);
        }
        cx.local.stats.bytes_out.add(bytes.len() as u64);
        if bytes.len() > KEPT_REPLY / 16 {
            cx.link.write_shared(bytes.clone());
        } else {
            cx.link.write(bytes);
        }
        self.show_output(cx);
    }

    /// Brings what others see up to date where the connection was given output without having asked for it just now.
    fn show_output(&mut self, cx: &mut Cx<'_, Self>) {
        let output = cx.link.queued_len() as u64;
        let Some(card) = &self.card else { return };
        if output <= IN_PASSING {
            return;
        }
        card.output_len.store(output, Relaxed);
        let unread = card.input_len.load(Relaxed);
        if card.holdings.has_changed(u64::from(unread) + output) {
            self.account(unread as usize, cx);
        }
    }

    /// Ends the connection of a subscriber that does not take its messages, or that has lost one:
    /// `limit` is how much may wait for it.
    #[cold]
    pub(crate) fn cut_subscriber(&mut self, limit: usize, cx: &mut Cx<'_, Self>) {
        cx.local.stats.slow_subscribers.add(1);
        if cx.local.may_warn(cx.link.now()) {
            tracing::warn!(
                peer = %cx.link.peer().client(), limit,
                "a subscriber does not take its messages: cutting the connection",
            );
        }
        cx.link.abort_because("subscriber output limit");
    }
}

impl RespLocal {
    /// Looks again at connections that had much input or output under way; whether that is to be done again.
    pub(crate) fn look_at_busy(&mut self, all: &mut Conns<'_, RespConn>) -> bool {
        let busy = std::mem::take(&mut self.busy);
        for id in busy {
            let mut still = false;
            all.with(id, self, |conn, cx| still = conn.look_again(cx));
            if still {
                self.busy.push(id);
            } else {
                self.giving_back = GIVING_BACK;
            }
        }
        // Memory that has grown by doubling leaves its halves behind, even while it is in use.
        let again = self.is_busy();
        self.giving_back = self.giving_back.saturating_sub(1);
        if again {
            crate::allocator::give_back();
        }
        again
    }
}

/// Tells a client of another host why it is not served.
fn turn_away(cx: &mut Cx<'_, RespConn>) {
    cx.local.stats.denied.add(1);
    let peer = cx.link.peer();
    if let Some(held_back) = cx.local.shared.denials.pass(cx.link.now()) {
        tracing::warn!(
            peer = %peer.client(), held_back,
            "a client of another host was denied: set a password, or open the service on purpose"
        );
    }
    cx.link.write(DENIED);
    cx.link.finish_because("protected mode");
}

/// Commands of a batch that use keys, and may be run. The arguments of these commands start at
/// `from`.
fn about_keys<'x>(
    args: &'x [&'x [u8]],
    mut from: usize,
    commands: &'x [Command],
) -> impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])> {
    commands.iter().filter_map(move |command| {
        let these = &args[from..command.args_end];
        from = command.args_end;
        match command.entry?.what {
            What::Data(spec) if spec.takes(these.len()) => Some((spec, these)),
            _ => None,
        }
    })
}
