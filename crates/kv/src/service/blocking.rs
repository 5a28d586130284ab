//! Blocking commands: a connection that waits for a key.
//!
//! The store runs the command for it when a key is ready and posts the reply; the place for that in
//! the mailbox is taken beforehand. When the wait ends otherwise (its time is over, CLIENT UNBLOCK,
//! the peer has gone) the store says which was first, so that nothing is answered twice.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire::{Cx, Permit};

use super::acl::{Account, Denied, Where};
use super::batch::Batch;
use super::call::TOO_MUCH_HELD;
use super::conn::{PATIENCE_MS, RETRY, RespConn};
use super::holdings::{Holding, arguments_memory, waiting_memory};
use super::message::Message;
use super::outcome::{Outcome, count_error};
use super::ownership;
use super::table::table;
use super::wait::{Over, Wait};
use crate::commands::{Signature, Spec};
use crate::reply::Reply;
use crate::store::{Blocked, Deliver, Nothing, Ran, Store, Waiter};

/// The error for a client whose wait was ended by CLIENT UNBLOCK.
pub(super) const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// The place in the mailbox of the connection that waits.
struct Place {
    permit: Mutex<Option<Permit<Message>>>,
    /// The user in whose name the command waits.
    account: Arc<Account>,
}

impl Place {
    fn post(&self, message: Message) {
        let permit = self
            .permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(permit) = permit {
            permit.post(message);
        }
    }
}

impl Deliver for Place {
    fn deliver(&self, reply: Vec<u8>, ticket: u64) {
        self.post(Message::Served(reply, ticket));
    }

    fn try_again(&self) {
        self.post(Message::TryAgain);
    }

    fn refuses(&self, spec: &Signature, args: &[&[u8]]) -> bool {
        let refuses = !may_run(&self.account, spec, args);
        if refuses {
            self.post(Message::Refused);
        }
        refuses
    }
}

/// Whether a command may still run in the name of this user.
pub(super) fn may_run(account: &Account, spec: &Signature, args: &[&[u8]]) -> bool {
    let rights = account.rights();
    let entry = table().find(spec.name.as_bytes());
    !account.is_gone() && entry.is_some_and(|entry| rights.check(entry, args).is_ok())
}

impl RespConn {
    /// Begins the wait that the command has asked for. The locks under which the command found no
    /// element are still held.
    #[cold]
    pub(crate) fn begin_wait(
        &mut self,
        spec: &'static Spec,
        blocked: Blocked,
        args: &[&[u8]],
        batch: &mut Batch<'_>,
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        let Ok(permit) = cx.handle().reserve() else {
            reply.error("ERR too many clients wait already");
            return Outcome::Done;
        };
        let timeout = blocked.timeout;
        let kept = blocked.instead.as_deref();
        let kept = kept.map_or_else(|| arguments_memory(args), arguments_memory);
        let held = kept + waiting_memory(&blocked.keys);
        let most = batch.shared.config.query_buffer.load(Relaxed);
        let holdings = &self.card().holdings;
        let others = holdings.sum() - holdings.get(Holding::Wait);
        if others + held as u64 > most as u64 {
            reply.error(TOO_MUCH_HELD);
            cx.local.note_refused(most, &cx.link);
            return Outcome::Done;
        }
        self.card().holdings.set(Holding::Wait, held);
        let to = Box::new(Place {
            permit: Mutex::new(Some(permit)),
            account: self.session.account().clone(),
        });
        let waiter = Waiter::new(blocked, spec, self.session.db, args, self.session.proto, to);
        let limit = batch.shared.config.client_output.load(Relaxed);
        let waiter = waiter.limited(limit).of_client(self.not_told());
        let waiter = batch.wait(waiter);
        if let Some(timeout) = timeout {
            cx.link.set_timer_after(timeout);
        }
        if self.wait.is_none() {
            // Otherwise this wait goes on: a client that has read its number means this wait.
            self.session.waits += 1;
        }
        self.card().wait.store(self.session.waits, Relaxed);
        self.wait = Some(Box::new(Wait {
            waiter,
            took: None,
            until: timeout.map(|timeout| cx.link.now() + timeout),
            unblocked: None,
            refused: false,
            busy_since: None,
        }));
        Outcome::Waits
    }

    /// The key is ready, and the log too busy for the command.
    #[cold]
    pub(crate) fn wait_is_busy(&mut self, cx: &mut Cx<'_, RespConn>) {
        if self.session.closing {
            // No element was taken, and the client is gone.
            self.wait = None;
            return cx.link.finish();
        }
        let Some(wait) = &mut self.wait else { return };
        wait.busy_since = Some(cx.link.now());
        match wait.unblocked {
            Some(error) => self.wait_over(Over::Unblocked { error }, cx),
            None => {
                cx.link.set_timer_after(RETRY);
                // The command waits on, and may do so for long.
                self.tell_own_changes(cx);
            }
        }
    }

    /// Runs the command again for which the log was too busy when its key was ready. If another
    /// client has taken what was there, it goes on waiting.
    #[cold]
    pub(crate) fn wait_again(&mut self, cx: &mut Cx<'_, RespConn>) {
        let Some(wait) = self.wait.take() else { return };
        let (shared, waiter) = (cx.local.shared.clone(), wait.waiter.clone());
        let args: Vec<&[u8]> = waiter.args.iter().map(|arg| &arg[..]).collect();
        let (now, took, until) = (cx.link.now(), wait.took, wait.until);
        let waited = wait.busy_since.map_or(Duration::ZERO, |since| now - since);
        let mut reply = Reply::new(waiter.proto);
        reply.set_limit(waiter.reply_max);
        if !may_run(self.session.account(), waiter.signature, &args) {
            self.wait = Some(wait);
            return self.wait_refused(cx);
        }
        cx.local.begin_batch();
        let now_ms = cx.link.wall().as_millis() as u64;
        let mut batch = Batch::new(&shared, waiter.db, now_ms, cx.link.random());
        let is_patient = waited < Duration::from_millis(PATIENCE_MS);
        batch.set_patient(is_patient || shared.awaits_snapshot());
        let ran = batch.run(waiter.spec(), &args, &mut reply);
        self.wait = Some(wait);
        match ran {
            Ran::Later | Ran::Kept => return cx.link.set_timer_after(RETRY),
            Ran::Blocked(_) if until.is_some_and(|until| until <= now) => {
                drop(batch);
                return self.wait_over(Over::TimedOut, cx);
            }
            Ran::Blocked(mut blocked) => {
                cx.link.clear_timer();
                blocked.timeout = until.map(|until| until - now);
                let outcome =
                    self.begin_wait(waiter.spec(), blocked, &args, &mut batch, &mut reply, cx);
                self.note_commit(&mut batch);
                if outcome == Outcome::Waits {
                    self.wait.as_mut().expect("it waits").took = took;
                    return;
                }
            }
            // No command that waits asks about all of the server.
            Ran::Done | Ran::Outside => self.note_commit(&mut batch),
        }
        drop(batch);
        if reply.is_over() {
            return self.too_much(cx);
        }
        self.end_wait(&mut reply, cx);
    }

    /// The key is ready, but the user may not run the command any more: so the command has done
    /// nothing.
    #[cold]
    pub(crate) fn wait_refused(&mut self, cx: &mut Cx<'_, RespConn>) {
        let Some(wait) = &mut self.wait else { return };
        wait.refused = true;
        let waiter = wait.waiter.clone();
        let shared = cx.local.shared.clone();
        self.session.heed(&shared);
        if self.session.account().is_gone() || self.session.closing {
            self.wait = None;
            return cx.link.finish();
        }
        let args: Vec<&[u8]> = waiter.args.iter().map(|arg| &arg[..]).collect();
        let entry = table().find(waiter.signature.name.as_bytes());
        let entry = entry.expect("it was run by this name");
        let rights = self.session.rights().clone();
        // The command was refused at that time, whatever has changed since.
        let denied = rights.check(entry, &args).err().unwrap_or(Denied::Command);
        let error = self.refuse(entry, &args, denied, Where::TopLevel, cx);
        let mut reply = Reply::new(self.session.proto);
        reply.error(error.0);
        self.end_wait(&mut reply, cx);
    }

    /// Ends the wait that CLIENT UNBLOCK has found it in.
    pub(crate) fn unblock(&mut self, error: bool, cx: &mut Cx<'_, RespConn>) {
        if self.wait.is_some() {
            return self.wait_over(Over::Unblocked { error }, cx);
        }
        if self.reading.is_some() {
            return self.unblock_reading(error, cx);
        }
        // The wait is asked regularly whether it goes on, and now at once.
        self.session.unblocked = Some(error);
        cx.link.clear_timer();
        self.try_again(cx);
    }

    /// Ends the wait without a key, unless a reply is on its way.
    pub(crate) fn wait_over(&mut self, over: Over, cx: &mut Cx<'_, RespConn>) {
        let shared = cx.local.shared.clone();
        let Some(wait) = &mut self.wait else { return };
        if !wait.cancel(&shared.store) {
            if let Over::Unblocked { error } = over {
                // The reply on its way may be the error that the log is too busy.
                wait.unblocked = Some(error);
            }
            return;
        }
        let mut reply = Reply::new(self.session.proto);
        match (over, ownership::stale(&shared)) {
            (Over::Unblocked { error: true }, _) => reply.error(UNBLOCKED),
            // Another server may own the store, and have had something in it.
            (Over::Unblocked { error: false } | Over::TimedOut, Some(error)) => {
                wait.refused = true;
                reply.error(error.0);
            }
            (Over::Unblocked { error: false } | Over::TimedOut, None) => {
                Nothing::Array.write(&mut reply);
            }
        }
        // The key may have been empty all the time because of changes that have not settled, on any
        // loop.
        cx.local.arm();
        self.session.barrier = self.session.barrier.max(shared.last_ticket());
        self.end_wait(&mut reply, cx);
    }

    /// Answers, and goes on with the commands behind.
    pub(crate) fn end_wait(&mut self, reply: &mut Reply, cx: &mut Cx<'_, RespConn>) {
        // The memory counts for the work that runs, not for the wait.
        if let Some(wait) = self.wait.take()
            && let Some(entry) = table().find(wait.waiter.signature.name.as_bytes())
        {
            if let Some(took) = wait.took {
                let args: Vec<&[u8]> = wait.waiter.args.iter().map(|arg| &arg[..]).collect();
                self.note_time(entry, &args, took, cx);
            }
            if reply.bytes().first() == Some(&b'-') {
                let counts = cx.local.stats.command(entry.id);
                match wait.refused {
                    true => counts.rejected.add(1),
                    false => counts.failed.add(1),
                }
                count_error(reply.bytes(), &cx.local.stats);
            }
        }
        self.card().wait.store(0, Relaxed);
        self.card().holdings.set(Holding::Wait, 0);
        cx.link.clear_timer();
        self.silence(reply, 0);
        self.flush(reply, cx);
        self.tell_own_changes(cx);
        cx.link.resume();
    }

    /// Whether the reply for which the connection waits is on its way.
    pub(crate) fn is_served(&self, store: &Store) -> bool {
        self.wait
            .as_ref()
            .is_some_and(|wait| !wait.is_busy() && !store.is_waiting(&wait.waiter))
    }

    /// Gives the wait up, if there is one, before the connection ends, so that no key is spent on
    /// it. False if a reply is on its way already.
    pub(crate) fn abandon_wait(&mut self, cx: &mut Cx<'_, RespConn>) -> bool {
        if let Some(wait) = &self.wait
            && !wait.cancel(&cx.local.shared.store)
        {
            return false;
        }
        self.wait = None;
        true
    }
}
