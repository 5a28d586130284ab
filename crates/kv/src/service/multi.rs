//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use std::iter;
use std::sync::atomic::Ordering::Relaxed;

use tidewire::Cx;

use super::acl::Where;
use super::batch::Batch;
use super::call::{Asked, run_of};
use super::conn::RespConn;
use super::holdings::Holding;
use super::memory;
use super::outcome::{Outcome, count_as_called, count_error};
use super::script::{self, At, Kind, runs_beside};
use super::shared::Shared;
use super::table::{Entry, What, table};
use super::transaction::{ABORTED_BUSY, Transaction, queued_memory};
use crate::commands::{OUT_OF_MEMORY, Spec};
use crate::reply::Reply;
use crate::store::{NoRoom, Ran, Watch};

impl RespConn {
    /// Queues a command for EXEC.
    pub(crate) fn queue(
        &mut self,
        entry: &Entry,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        cx: &mut Cx<'_, RespConn>,
    ) -> Result<(), &'static str> {
        if let What::Data(spec) = entry.what
            && !batch.has_room_for(iter::once((spec, args)))
        {
            return Err(OUT_OF_MEMORY);
        }
        let card = self.card().clone();
        let Some(transaction) = &mut self.session.transaction else {
            return Ok(());
        };
        let more = queued_memory(args);
        let limit = cx.local.shared.config.query_buffer.load(Relaxed);
        if card.holdings.sum() + more as u64 > limit as u64 {
            cx.local.note_refused(limit, &cx.link);
            return Err("ERR transaction larger than the query buffer limit");
        }
        // A transaction that will be refused need not be kept.
        if !transaction.failed {
            transaction.held += more;
            card.holdings.set(Holding::Transaction, transaction.held);
            transaction.push(entry.id, args);
        }
        card.queued.store(transaction.len() + 1, Relaxed);
        Ok(())
    }

    /// Runs the queued commands, so that no client sees a part of their changes.
    pub(crate) fn exec(
        &mut self,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        if !self.session.is_queuing() {
            reply.error("ERR EXEC without MULTI");
            return Outcome::Done;
        }
        let beside = self
            .session
            .transaction
            .as_ref()
            .is_some_and(|transaction| {
                let args = transaction.args();
                !transaction.failed && runs_beside(&transaction.commands(&args), batch, cx)
            });
        if beside && self.send_exec_away(cx) {
            self.show_no_transaction();
            return Outcome::Waits;
        }
        if let Err(refused) = self.reserve_queued(batch) {
            match refused {
                NoRoom::Busy if batch.is_patient() => return self.wait_for_room(cx),
                why => {
                    self.drop_transaction(batch);
                    reply.error(format!("EXECABORT Transaction discarded because of: {why}"));
                    return Outcome::Done;
                }
            }
        }
        let Some(mut transaction) = self.session.transaction.take() else {
            return Outcome::Done;
        };
        let watches = std::mem::take(&mut transaction.watches);
        if transaction.failed {
            self.show_no_transaction();
            watches
                .into_iter()
                .for_each(|watch| batch.shared.store.unwatch(watch));
            reply.error("EXECABORT Transaction discarded because of previous errors.");
            return Outcome::Done;
        }
        if !self.exec_queued(&transaction, watches, batch, reply, cx) {
            // A script keeps some of its keys: it is all there still, and begins again when that has ended.
            transaction.watches = batch.take_watches();
            self.session.transaction = Some(transaction);
            return self.park(cx);
        }
        self.show_no_transaction();
        Outcome::Done
    }

    /// Reserves room in the log for the changes of the queued commands.
    fn reserve_queued(&self, batch: &mut Batch<'_>) -> Result<(), NoRoom> {
        match &self.session.transaction {
            Some(transaction) if batch.shared.durable.get().is_some() && !transaction.failed => {
                let args = transaction.args();
                batch.reserve(about_keys(&transaction.commands(&args)))
            }
            _ => Ok(()),
        }
    }

    /// Forgets the queued commands and the watched keys. The batch lets go of its locks first: each watched key has its
    /// shard locked.
    pub(super) fn drop_transaction(&mut self, batch: &mut Batch<'_>) {
        if let Some(transaction) = self.session.transaction.take() {
            batch.pause();
            transaction.forget(&batch.shared.store);
        }
        self.show_no_transaction();
    }

    fn show_no_transaction(&self) {
        self.card().queued.store(0, Relaxed);
        self.card().watching.store(0, Relaxed);
        self.card().holdings.set(Holding::Transaction, 0);
    }

    /// EXEC while a script takes long: the transaction is over.
    #[cold]
    pub(super) fn abort_busy(
        &mut self,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        self.drop_transaction(batch);
        let start = reply.len();
        reply.error(ABORTED_BUSY);
        count_error(&reply.bytes()[start..], &cx.local.stats);
        self.silence(reply, start);
        Outcome::Done
    }

    /// Lets others hear what the transaction has published, when it has settled.
    pub(super) fn publish_queued(&mut self, batch: &mut Batch<'_>, cx: &mut Cx<'_, RespConn>) {
        self.note_commit(batch);
        for message in std::mem::take(&mut cx.local.published) {
            let (channel, payload) = (&message.channel, &message.payload);
            let ticket = self.session.barrier;
            // As in any transaction, an inbox may be overfilled.
            let hub = &batch.shared.hub;
            let _ = hub.publish(message.sharded, channel, payload, true, ticket);
        }
    }

    /// Runs the queued commands; false if none has run and the transaction must begin again.
    fn exec_queued(
        &mut self,
        transaction: &Transaction,
        watches: Vec<Watch>,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> bool {
        let args = transaction.args();
        let commands = transaction.commands(&args);
        if !batch.has_room_for(about_keys(&commands)) {
            batch.give_up();
            watches
                .into_iter()
                .for_each(|watch| batch.shared.store.unwatch(watch));
            reply.error(format!(
                "EXECABORT Transaction discarded because of: {OUT_OF_MEMORY}"
            ));
            return true;
        }
        if !batch.begin(about_keys(&commands), watches) {
            if !batch.is_shut_out() {
                reply.null_array();
                return true;
            }
            if !batch.shared.is_busy() {
                return false;
            }
            let watches = batch.take_watches().into_iter();
            watches.for_each(|watch| batch.shared.store.unwatch(watch));
            reply.error(ABORTED_BUSY);
            return true;
        }
        reply.array(commands.len());
        let mut outside = Vec::new();
        for (at, &(entry, args)) in commands.iter().enumerate() {
            let start = reply.len();
            if let Err(error) = self.permit(entry, args, Where::Multi, cx) {
                reply.error(error.0);
                count_call(entry, &reply.bytes()[start..], cx);
                continue;
            }
            if batch.shared.attention.is_monitored() {
                let from = cx.link.peer().client().to_string();
                self.show_to_monitors(entry, args, &from, cx);
            }
            match entry.what {
                What::Data(spec) => match batch.run(spec, args, reply) {
                    Ran::Done => self.note_read(batch, spec, args),
                    Ran::Outside => {
                        outside.push((at, start));
                        continue;
                    }
                    Ran::Blocked(_) | Ran::Later | Ran::Kept => {
                        unreachable!("nothing waits within a transaction")
                    }
                },
                // These commands look at the whole store from outside, so they run after the store's
                // locks are released: in the middle they would split the transaction in two.
                What::Session(spec) if matches!(spec.name, "info" | "config") => {
                    outside.push((at, start));
                    continue;
                }
                What::Session(spec) if spec.name == "function" => {
                    let _ = self.function(batch, args, true, reply, &mut At::Loop(cx));
                }
                What::Session(spec) if spec.name == "script" => {
                    let _ = self.script_now(args, reply, cx);
                }
                What::Session(spec) => match Kind::of(spec.name) {
                    Some(kind) => {
                        self.eval_queued(kind, batch, args, reply, &mut At::Loop(cx));
                    }
                    None => {
                        self.call(run_of(entry), args, reply, cx, true);
                        batch.db = self.session.db;
                    }
                },
            }
            count_call(entry, &reply.bytes()[start..], cx);
        }
        batch.end();
        if batch.shared.durable.get().is_some() {
            self.publish_queued(batch, cx);
        }
        if !outside.is_empty() {
            self.run_outside(&commands, &outside, reply, cx);
        }
        true
    }

    /// Runs the queued commands on the thread for scripts, because one of them may take long. If the outcome is
    /// [later](Outcome::Later), the transaction is still queued, and begins again.
    pub(super) fn exec_beside(
        &mut self,
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        at: &mut At<'_, '_>,
    ) -> Outcome {
        let Some(mut transaction) = self.session.transaction.take() else {
            return Outcome::Done;
        };
        let watches = std::mem::take(&mut transaction.watches);
        let args = transaction.args();
        let commands = transaction.commands(&args);
        let shared = batch.shared;
        let unwatch = |watches: Vec<Watch>| {
            watches
                .into_iter()
                .for_each(|watch| shared.store.unwatch(watch));
        };
        if batch.shared.durable.get().is_some()
            && let Err(refused) = batch.reserve(about_keys(&commands))
        {
            if refused == NoRoom::Busy && batch.is_patient() {
                transaction.watches = watches;
                self.session.transaction = Some(transaction);
                return Outcome::Later;
            }
            unwatch(watches);
            reply.error(format!(
                "EXECABORT Transaction discarded because of: {refused}"
            ));
            return Outcome::Done;
        }
        if !batch.has_room_for(about_keys(&commands)) {
            batch.give_up();
            unwatch(watches);
            reply.error(format!(
                "EXECABORT Transaction discarded because of: {OUT_OF_MEMORY}"
            ));
            return Outcome::Done;
        }
        if !batch.begin(about_keys(&commands), watches) {
            if batch.is_shut_out() {
                transaction.watches = batch.take_watches();
                self.session.transaction = Some(transaction);
                return Outcome::Later;
            }
            reply.null_array();
            return Outcome::Done;
        }
        let from = self.card().addr.to_string();
        reply.array(commands.len());
        for &(entry, args) in &commands {
            // No loop waits for it longer than for a command.
            at.leave(batch);
            let start = reply.len();
            match self.permit(entry, args, Where::Multi, at) {
                Err(error) => reply.error(error.0),
                Ok(()) => {
                    if batch.shared.attention.is_monitored() {
                        self.show_to_monitors(entry, args, &from, at);
                    }
                    match (entry.what, Kind::of(entry.name)) {
                        (_, Some(kind)) => self.eval_queued(kind, batch, args, reply, at),
                        (What::Data(spec), None) => match batch.run(spec, args, reply) {
                            Ran::Done => self.note_read(batch, spec, args),
                            other => unreachable!("within a transaction: {other:?}"),
                        },
                        (What::Session(spec), None) => match spec.name {
                            "function" => {
                                let _ = self.function(batch, args, true, reply, at);
                            }
                            "script" => {
                                let shared = at.here();
                                let mut asked = Asked {
                                    shared: &shared,
                                    reply,
                                    args,
                                };
                                script::answer(&mut asked, at);
                            }
                            _ => at.session(self, entry, args, reply),
                        },
                    }
                }
            }
            if at.is_cut() {
                return Outcome::Done;
            }
            if changes(entry, shared) {
                at.note_written();
            }
            at.count_call(entry, &reply.bytes()[start..]);
        }
        batch.end();
        if batch.shared.attention.is_monitored()
            && let Some(exec) = table().find(b"exec")
        {
            self.show_to_monitors(exec, &[b"exec"], &from, at);
        }
        Outcome::Done
    }

    /// Runs what was left out of a transaction, and puts the replies where they belong.
    fn run_outside(
        &mut self,
        commands: &[(&'static Entry, &[&[u8]])],
        outside: &[(usize, usize)],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) {
        let others = reply.take();
        let mut from = 0;
        for &(at, place) in outside {
            reply.raw(&others[from..place]);
            from = place;
            let (entry, args) = commands[at];
            let start = reply.len();
            let run = match entry.what {
                What::Session(_) => run_of(entry),
                What::Data(_) => memory::run,
            };
            self.call(run, args, reply, cx, true);
            count_call(entry, &reply.bytes()[start..], cx);
        }
        reply.raw(&others[from..]);
    }
}

/// Whether a command of a transaction that has just run may have changed something.
fn changes(entry: &Entry, shared: &Shared) -> bool {
    match entry.what {
        What::Data(spec) => spec.is_write(),
        What::Session(_) if entry.runs_script() => shared.scripts.wrote(),
        What::Session(spec) => spec.name == "function",
    }
}

/// Counts a command of a transaction and how it ended.
fn count_call(entry: &Entry, reply: &[u8], cx: &mut Cx<'_, RespConn>) {
    count_as_called(entry, reply, &cx.local.stats);
}

/// The queued commands that use keys.
fn about_keys<'x>(
    commands: &'x [(&'static Entry, &'x [&'x [u8]])],
) -> impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])> {
    commands
        .iter()
        .filter_map(|&(entry, args)| match entry.what {
            What::Data(spec) => Some((spec, args)),
            What::Session(_) if entry.runs_script() || entry.name == "function" => {
                Some((&script::WHOLE, args))
            }
            What::Session(_) => None,
        })
}
