//! A connection that reads the log: a thread reads for its command, or the command waits for new records; later commands
//! of the connection wait too.
//!
//! A loop with waiting connections arms its bell before it looks how far the log is, so a commit in between is not
//! missed. The loop looks again whenever it is woken and the log has committed something since.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::{ConnId, Conns, Cx};

use super::Shown;
use super::question::{Ask, Waits, Wanted};
use super::read::{Answer, Bounds, Read, WasRead, read};
use super::reading::{Followers, Reading, State};
use crate::commands::Error;
use crate::reply::Reply;
use crate::service::acl::{Denied, Where};
use crate::service::batch::Batch;
use crate::service::blocking::{UNBLOCKED, may_run};
use crate::service::conn::{RETRY, RespConn};
use crate::service::holdings::{Holding, arguments_memory};
use crate::service::local::RespLocal;
use crate::service::message::Message;
use crate::service::outcome::{Outcome, count_error};
use crate::service::shared::Shared;
use crate::service::table::{Entry, What};
use crate::store::Nothing;

/// When a connection that waits tries again that has found the threads with as much to do as they may have.
const PATIENCE: Duration = Duration::from_millis(100);

impl Ask {
    /// Whether new records may be there.
    fn is_ready(&self, shown: &Shown) -> bool {
        let Ask::Behind { streams, .. } = self else {
            return true;
        };
        streams.iter().any(|wanted| {
            let (Some(stream), Some(from)) = (&wanted.stream, wanted.from) else {
                return false;
            };
            let range = shown.log.range(stream);
            range.is_some_and(|range| range.next > from)
        })
    }

    /// Reading goes on here.
    fn go_on(&mut self, nexts: &[Option<u64>]) {
        let Ask::Behind { streams, .. } = self else {
            return;
        };
        for (Wanted { from, .. }, next) in streams.iter_mut().zip(nexts) {
            *from = *next;
        }
    }
}

impl Reading {
    /// Notes that the connection waits for records of its streams.
    fn join(&self, id: ConnId, local: &mut RespLocal) {
        let Ask::Behind { streams, .. } = &self.ask else {
            return;
        };
        let streams = streams.iter().filter(|wanted| wanted.from.is_some());
        let streams = streams.filter_map(|wanted| wanted.stream.clone());
        local.followers.waiting.add(id, streams);
    }
}

impl Followers {
    /// Has the loop woken when the log moves from now on.
    fn arm(&mut self, shown: &Shown, at: &tidewire::LoopHandle<Message>) {
        let bell = self
            .bell
            .get_or_insert_with(|| shown.alarm.bell(at.clone()));
        bell.arm();
    }

    pub(crate) fn remove(&mut self, id: ConnId) {
        self.waiting.remove(id);
    }

    /// The loop was woken, perhaps because the log has moved.
    pub(crate) fn woken(shared: &Shared, local: &mut RespLocal, all: &mut Conns<'_, RespConn>) {
        let Some(shown) = shared.log_keys.get() else {
            return;
        };
        if local.followers.waiting.is_empty() {
            return;
        }
        local.followers.arm(shown, &local.at);
        // Committed records must be visible before this bell rings, and the bell is rung after the
        // commit.
        let committed = shown.log.progress().committed;
        if local.followers.seen == committed && !shown.is_shut() {
            return;
        }
        local.followers.seen = committed;
        let waiting = &mut local.followers.waiting;
        let moved = match shown.is_shut() {
            true => waiting.all(),
            false => waiting.moved(|stream| shown.log.range(stream).map(|range| range.next)),
        };
        for id in moved {
            all.with(id, local, |conn, cx| conn.log_moved(cx));
        }
    }
}

impl RespConn {
    /// Runs a command that names streams of the log.
    pub(crate) fn run_on_log(
        &mut self,
        shown: &Shown,
        entry: &'static Entry,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        batch.pause();
        if batch.shared.durable.get().is_some() {
            self.note_commit(batch);
        }
        let start = reply.len();
        let outcome = match shown.ask(entry.name, args, reply) {
            Ok(None) => Outcome::Done,
            Ok(Some((ask, waits))) => {
                self.begin_reading(shown, entry, args, (ask, waits), reply, cx)
            }
            Err(error) => {
                reply.truncate(start);
                reply.error(&error.0);
                Outcome::Done
            }
        };
        self.session.waits_since_ms = 0;
        self.card().command.store(entry.id.into(), Relaxed);
        let stats = &cx.local.stats;
        stats.commands.add(1);
        let counts = stats.command(entry.id);
        counts.calls.add(1);
        if reply.bytes().get(start) == Some(&b'-') {
            counts.failed.add(1);
            count_error(&reply.bytes()[start..], &cx.local.stats);
        }
        self.hush(entry, outcome, start, reply);
        outcome
    }

    fn begin_reading(
        &mut self,
        shown: &Shown,
        entry: &'static Entry,
        args: &[&[u8]],
        (ask, waits): (Ask, Waits),
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let now = cx.link.now();
        let mut reading = Reading {
            entry,
            args: args.iter().map(|arg| arg.to_vec()).collect(),
            ask,
            waits: waits != Waits::No,
            until: match waits {
                Waits::For(time) => Some(now + time),
                Waits::No | Waits::ForEver => None,
            },
            state: State::Follows,
            refused: false,
            begun: cx.link.clock(),
            took: Duration::ZERO,
        };
        if reading.waits {
            cx.local.followers.arm(shown, &cx.local.at);
        }
        if reading.ask.is_ready(shown) {
            if !self.send_reading(shown, &mut reading, cx) {
                reply.error("TRYAGAIN too many commands read the log at once");
                return Outcome::Done;
            }
        } else if !reading.waits {
            reply.null_array();
            return Outcome::Done;
        }
        if reading.waits {
            self.session.waits += 1;
            self.card().wait.store(self.session.waits, Relaxed);
        }
        if reading.state == State::Follows {
            self.follow(&reading, cx);
        }
        let held = arguments_memory(&reading.args);
        self.card().holdings.set(Holding::Wait, held);
        self.reading = Some(Box::new(reading));
        Outcome::Waits
    }

    /// Has a thread read; false if there is no room for that.
    fn send_reading(
        &mut self,
        shown: &Shown,
        reading: &mut Reading,
        cx: &mut Cx<'_, RespConn>,
    ) -> bool {
        let Ok(place) = shown.keys.pool.reserve(&cx.handle()) else {
            return false;
        };
        reading.state = State::Read;
        reading.begun = cx.link.clock();
        let bounds = Bounds {
            proto: self.session.proto,
            reply_max: shown.keys.reply_max,
            output_max: cx.local.shared.config.client_output.load(Relaxed),
        };
        let (ask, log) = (reading.ask.clone(), shown.log.clone());
        let answer = |done| Message::FromLog(Box::new(WasRead(done)));
        place.run(move || read(&*log, &ask, bounds), answer);
        true
    }

    /// Waits until the log has new records.
    fn follow(&mut self, reading: &Reading, cx: &mut Cx<'_, RespConn>) {
        reading.join(cx.link.id(), cx.local);
        if let Some(until) = reading.until {
            cx.link.set_timer_after(until - cx.link.now());
        }
    }

    /// The log has moved: reads if there is something for this connection.
    fn log_moved(&mut self, cx: &mut Cx<'_, RespConn>) {
        let Some(mut reading) = self.reading.take() else {
            return;
        };
        let shared = Arc::clone(&cx.local.shared);
        let Some(shown) = shared.log_keys.get() else {
            return;
        };
        let is_read = reading.state == State::Read;
        if is_read || !(shown.is_shut() || reading.ask.is_ready(shown)) {
            self.reading = Some(reading);
            return;
        }
        let now_ms = cx.link.now().as_nanos() / 1_000_000;
        if shared.attention.is_paused() && shared.holds_back(now_ms, false) {
            // The next look is due when the pause may be over.
            let left = reading.until.map(|until| until - cx.link.now());
            let again = left.map_or(RETRY, |left| left.min(RETRY));
            cx.link.set_timer_after(again);
            self.reading = Some(reading);
            return;
        }
        if let Err(error) = self.may_read_on(&reading, shown, cx) {
            let mut reply = Reply::new(self.session.proto);
            reply.error(error.0);
            reading.refused = true;
            return self.end_reading(*reading, &mut reply, cx);
        }
        cx.local.followers.remove(cx.link.id());
        if !self.send_reading(shown, &mut reading, cx) {
            reading.join(cx.link.id(), cx.local);
            let left = reading.until.map(|until| until - cx.link.now());
            cx.link
                .set_timer_after(left.map_or(PATIENCE, |left| left.min(PATIENCE)));
        }
        self.reading = Some(reading);
    }

    /// Whether the connection's user may still read the keys that the command names: rights may have
    /// changed during the wait.
    fn may_read_on(
        &mut self,
        reading: &Reading,
        shown: &Shown,
        cx: &mut Cx<'_, RespConn>,
    ) -> Result<(), Error> {
        shown.open()?;
        let args: Vec<&[u8]> = reading.args.iter().map(|arg| &arg[..]).collect();
        let What::Data(spec) = reading.entry.what else {
            return Ok(());
        };
        if may_run(self.session.account(), spec, &args) {
            return Ok(());
        }
        let shared = Arc::clone(&cx.local.shared);
        self.session.heed(&shared);
        let rights = self.session.rights().clone();
        let denied = rights.check(reading.entry, &args).err();
        let denied = denied.unwrap_or(Denied::Command);
        Err(self.refuse(reading.entry, &args, denied, Where::TopLevel, cx))
    }

    /// A thread has read.
    pub(crate) fn log_was_read(&mut self, WasRead(done): WasRead, cx: &mut Cx<'_, RespConn>) {
        let Some(mut reading) = self.reading.take() else {
            // The wait was given up.
            return;
        };
        let shared = Arc::clone(&cx.local.shared);
        let Some(shown) = shared.log_keys.get() else {
            return;
        };
        reading.took += cx.link.clock() - reading.begun;
        let mut reply = Reply::new(self.session.proto);
        let read = match done {
            Ok(read) => read,
            Err(why) => {
                tracing::debug!(%why, "the log was not read for a command");
                reply.error("ERR the log could not be read");
                return self.end_reading(*reading, &mut reply, cx);
            }
        };
        shown.count(&read, cx);
        match read.answer {
            Answer::Reply(bytes) => reply = Reply::made(self.session.proto, bytes),
            Answer::TooMuch => return self.too_much(cx),
            Answer::Nothing(nexts) => {
                let now = cx.link.now();
                let is_over = reading.until.is_some_and(|until| until <= now);
                if reading.waits && !is_over && !self.session.closing {
                    return self.go_on_following(reading, &nexts, shown, cx);
                }
                Nothing::Array.write(&mut reply);
            }
        }
        self.end_reading(*reading, &mut reply, cx);
    }

    /// No record was found where one might have been: waits on.
    fn go_on_following(
        &mut self,
        mut reading: Box<Reading>,
        nexts: &[Option<u64>],
        shown: &Shown,
        cx: &mut Cx<'_, RespConn>,
    ) {
        reading.ask.go_on(nexts);
        reading.state = State::Follows;
        cx.local.followers.arm(shown, &cx.local.at);
        let is_ready = reading.ask.is_ready(shown);
        self.follow(&reading, cx);
        self.reading = Some(reading);
        if is_ready {
            self.log_moved(cx);
        }
    }

    /// A timer of a connection that reads has gone off.
    pub(crate) fn reading_expired(&mut self, cx: &mut Cx<'_, RespConn>) {
        let Some(reading) = &self.reading else { return };
        if reading.state == State::Read {
            // The read will end soon, and its reply is sent all the same.
            return;
        }
        let now = cx.link.now();
        if reading.until.is_some_and(|until| until <= now) {
            return self.reading_is_over(None, cx);
        }
        if let Some(until) = reading.until {
            cx.link.set_timer_after(until - now);
        }
        self.log_moved(cx);
    }

    /// Ends a wait with nothing, or with the error of CLIENT UNBLOCK; not one for which something is read already.
    pub(crate) fn reading_is_over(&mut self, error: Option<&str>, cx: &mut Cx<'_, RespConn>) {
        let Some(mut reading) = self.reading.take() else {
            return;
        };
        if reading.state == State::Read {
            // If no record is found, the wait's time is over.
            reading.until = Some(cx.link.now());
            self.reading = Some(reading);
            return;
        }
        let mut reply = Reply::new(self.session.proto);
        match error {
            Some(text) => reply.error(text),
            None => Nothing::Array.write(&mut reply),
        }
        self.end_reading(*reading, &mut reply, cx);
    }

    /// CLIENT UNBLOCK.
    pub(crate) fn unblock_reading(&mut self, error: bool, cx: &mut Cx<'_, RespConn>) {
        self.reading_is_over(error.then_some(UNBLOCKED), cx);
    }

    /// Answers, and goes on with the commands behind.
    fn end_reading(&mut self, reading: Reading, reply: &mut Reply, cx: &mut Cx<'_, RespConn>) {
        cx.local.followers.remove(cx.link.id());
        let args: Vec<&[u8]> = reading.args.iter().map(|arg| &arg[..]).collect();
        self.note_time(reading.entry, &args, reading.took, cx);
        if reply.bytes().first() == Some(&b'-') {
            let counts = cx.local.stats.command(reading.entry.id);
            match reading.refused {
                true => counts.rejected.add(1),
                false => counts.failed.add(1),
            }
            count_error(reply.bytes(), &cx.local.stats);
        }
        self.card().wait.store(0, Relaxed);
        self.card().holdings.set(Holding::Wait, 0);
        cx.link.clear_timer();
        self.silence(reply, 0);
        // The replies before this command may wait for the log of keys.
        cx.local.arm();
        self.flush(reply, cx);
        if self.session.closing {
            return cx.link.finish();
        }
        cx.link.resume();
    }

    /// Gives a read up: the connection that asked has gone.
    pub(crate) fn give_reading_up(&mut self, id: ConnId, local: &mut RespLocal) {
        if self.reading.take().is_some() {
            local.followers.remove(id);
        }
    }

    /// Whether a thread reads the log for the connection.
    pub(crate) fn is_read_for(&self) -> bool {
        let reading = self.reading.as_ref();
        reading.is_some_and(|reading| reading.state == State::Read)
    }
}

impl Shown {
    fn count(&self, read: &Read, cx: &mut Cx<'_, RespConn>) {
        self.reads.fetch_add(1, Relaxed);
        self.entries.fetch_add(read.entries, Relaxed);
        self.bytes.fetch_add(read.bytes, Relaxed);
        if !read.refused {
            return;
        }
        self.refused.fetch_add(1, Relaxed);
        if let Some(held_back) = self.refusals.pass(cx.link.now()) {
            tracing::warn!(
                peer = %cx.link.peer().client(), limit = self.keys.reply_max, held_back,
                "a client asked for more of the log than a reply may hold"
            );
        }
    }
}
