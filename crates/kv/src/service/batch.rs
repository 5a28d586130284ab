//! The commands of one batch, and the locks that they hold between them.

use std::sync::Arc;

use super::shared::Shared;
use crate::commands::Spec;
use crate::reply::Reply;
use crate::store::{NoRoom, Ran, Runner, Seen, Tracker, Waiter, Watch};

/// Runs the commands about keys of one batch. Locks are kept from one command to the next; they
/// have to be let go of with [`pause`](Batch::pause) before anything else that uses the store.
pub(crate) struct Batch<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) db: u16,
    runner: Runner<'s>,
    in_transaction: bool,
}

impl<'s> Batch<'s> {
    pub(crate) fn new(shared: &'s Shared, db: u16, now_ms: u64, seed: u64) -> Batch<'s> {
        Batch {
            shared,
            db,
            runner: shared.store.runner(now_ms, seed),
            in_transaction: false,
        }
    }

    /// Whether reads count as uses of keys.
    pub(crate) fn set_no_touch(&mut self, yes: bool) {
        self.runner.no_touch = yes;
    }

    /// Whether what finds the log busy is to be tried again, rather than refused.
    pub(crate) fn set_patient(&mut self, yes: bool) {
        self.runner.patient = yes;
    }

    pub(crate) fn is_patient(&self) -> bool {
        self.runner.patient
    }

    /// Commits the changes; returns the ticket that must settle before a client receives the replies,
    /// and the last unit that was written.
    pub(crate) fn commit(&mut self) -> (u64, u64) {
        (self.runner.barrier(), self.runner.written())
    }

    /// The version of the libraries of functions that the batch's commands see.
    pub(crate) fn libraries_seen(&self) -> Seen {
        self.runner.libraries_seen()
    }

    /// A number by chance.
    pub(crate) fn chance(&mut self) -> u32 {
        self.runner.chance()
    }

    /// Brings into the cache what commands are about to use.
    pub(crate) fn prefetch<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
    ) {
        self.runner.prefetch(self.db, commands);
    }

    /// Lets go of all locks.
    #[inline]
    pub(crate) fn pause(&mut self) {
        if !self.in_transaction {
            self.runner.release();
        }
    }

    /// Runs a command.
    #[inline]
    pub(crate) fn run(&mut self, spec: &'static Spec, args: &[&[u8]], reply: &mut Reply) -> Ran {
        self.runner.run(spec, self.db, args, reply)
    }

    /// Takes the locks that a command needs; see [`Runner::hold_for`].
    pub(crate) fn hold_for(&mut self, spec: &Spec, args: &[&[u8]]) {
        self.runner.hold_for(spec, args);
    }

    /// Notes the keys that a command has just read; see [`Runner::track`].
    pub(crate) fn track(&mut self, spec: &Spec, args: &[&[u8]], tracker: &Arc<Tracker>) {
        self.runner.track(spec, self.db, args, tracker);
    }

    /// Sets the client that makes the changes from now on; see [`Runner::set_client`].
    pub(crate) fn set_client(&mut self, client: u64) {
        self.runner.set_client(client);
    }

    /// Whether there is room for what these commands bring, once keys have been evicted for it. To be
    /// asked before [`begin`](Batch::begin), and without a lock.
    pub(crate) fn has_room_for<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
    ) -> bool {
        debug_assert!(!self.in_transaction);
        self.runner.make_room(commands)
    }

    /// Reserves room in the log for the changes of these commands, before they run as one unit.
    pub(crate) fn reserve<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
    ) -> Result<(), NoRoom> {
        self.runner.reserve(commands)
    }

    /// Reserves what the next command of a script may change; see [`Runner::reserve_next`].
    pub(crate) fn reserve_next(&mut self, spec: &Spec, args: &[&[u8]]) -> Result<(), NoRoom> {
        self.runner.reserve_next(spec, args)
    }

    /// Whether the log takes a change just now.
    pub(crate) fn reserve_some(&mut self) -> Result<(), NoRoom> {
        self.runner.reserve_some()
    }

    /// The error reply for a command for which there is no room.
    pub(crate) fn refusal(&self, why: NoRoom) -> &'static str {
        self.runner.refusal(why)
    }

    /// The commands that were [reserved](Batch::reserve) for do not run.
    pub(crate) fn give_up(&mut self) {
        self.runner.give_up();
    }

    /// Lets the command that has just come back blocked wait.
    pub(crate) fn wait(&mut self, waiter: Waiter) -> Arc<Waiter> {
        let waiter = Arc::new(waiter);
        self.runner.wait(&waiter);
        waiter
    }

    /// Takes the locks that these commands need, until the end; false if a watched key has changed.
    pub(crate) fn begin<'x>(
        &mut self,
        commands: impl Iterator<Item = (&'static Spec, &'x [&'x [u8]])>,
        watches: Vec<Watch>,
    ) -> bool {
        self.in_transaction = self.runner.begin(commands, watches);
        self.in_transaction
    }

    /// Whether a transaction did not begin because a script takes long.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.runner.is_shut_out()
    }

    /// The keys that were watched by the transaction that did not begin; it may begin again.
    pub(crate) fn take_watches(&mut self) -> Vec<Watch> {
        self.runner.take_watches()
    }

    /// Lets go of the locks of a script that runs beside the loops, between two of its commands.
    pub(crate) fn leave(&mut self) {
        self.runner.leave();
    }

    /// What was left belongs to another thread from now on: nothing of it is touched any more.
    pub(crate) fn disown(&mut self) {
        self.runner.disown();
        self.in_transaction = false;
    }

    /// Ends the transaction.
    pub(crate) fn end(&mut self) {
        self.runner.end();
        self.in_transaction = false;
    }
}
