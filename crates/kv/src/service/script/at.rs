//! Where a script runs: on the loop of its connection, or on the thread for scripts.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::Cx;

use super::apart::Apart;
use super::vm::Interpreter;
use super::watched::Watched;
use crate::reply::Reply;
use crate::service::acl::Place;
use crate::service::batch::Batch;
use crate::service::call::{Asked, run_of};
use crate::service::conn::RespConn;
use crate::service::local::Unpublished;
use crate::service::outcome::{Outcome, count_as_called};
use crate::service::shared::{Here, Shared};
use crate::service::table::Entry;
use crate::service::{
    command, hello, misc, persistence, pubsub_commands, replication_commands, saving,
};

/// The place where a script runs: a loop or the thread.
pub(in crate::service) enum At<'a, 'c> {
    Loop(&'a mut Cx<'c, RespConn>),
    Apart(&'a mut Apart),
}

impl Place for At<'_, '_> {
    fn shared(&self) -> &Shared {
        match self {
            At::Loop(cx) => &cx.local.shared,
            At::Apart(apart) => &apart.shared,
        }
    }

    fn now_ms(&self) -> u64 {
        match self {
            At::Loop(cx) => cx.now_ms(),
            At::Apart(apart) => apart.now_ms,
        }
    }

    fn wall(&self) -> Duration {
        match self {
            At::Loop(cx) => cx.link.wall(),
            At::Apart(apart) => apart.wall(),
        }
    }
}

impl At<'_, '_> {
    pub(in crate::service) fn here(&self) -> Here {
        match self {
            At::Loop(cx) => cx.local.shared.clone(),
            At::Apart(apart) => Rc::new(apart.shared.clone()),
        }
    }

    pub(super) fn is_apart(&self) -> bool {
        matches!(self, At::Apart(_))
    }

    /// The watching thread's view of the script; a loop has none.
    pub(super) fn watched(&self) -> Option<&Arc<Watched>> {
        match self {
            At::Loop(_) => None,
            At::Apart(apart) => Some(&apart.watched),
        }
    }

    /// Goes into the interpreter, without a lock.
    pub(super) fn go_in(&self) {
        if let Some(watched) = self.watched() {
            watched.fence.go_in();
        }
    }

    /// Comes back from the interpreter; false if the script was ended meanwhile: then nothing may be touched any more.
    #[must_use]
    pub(super) fn come_back(&self) -> bool {
        self.watched()
            .is_none_or(|watched| watched.fence.come_back())
    }

    /// Whether the script was ended by others, and all that it had is theirs.
    pub(in crate::service) fn is_cut(&self) -> bool {
        self.watched().is_some_and(|watched| watched.fence.is_cut())
    }

    /// A transaction has changed something: its scripts cannot be ended from outside any more.
    pub(in crate::service) fn note_written(&self) {
        if let Some(watched) = self.watched() {
            watched.wrote.store(true, Relaxed);
        }
    }

    /// Lets go of the locks, beside the loops; the keys are kept from others.
    pub(in crate::service) fn leave(&self, batch: &mut Batch<'_>) {
        if let Some(watched) = self.watched() {
            watched.keeps.store(true, Relaxed);
            batch.leave();
        }
    }

    /// The place of the interpreter.
    pub(super) fn interpreter(&mut self) -> &mut Option<Box<Interpreter>> {
        match self {
            At::Loop(cx) => &mut cx.local.interpreter,
            At::Apart(apart) => &mut apart.interpreter,
        }
    }

    pub(in crate::service) fn count_call(&self, entry: &Entry, reply: &[u8]) {
        match self {
            At::Loop(cx) => count_as_called(entry, reply, &cx.local.stats),
            At::Apart(apart) => count_as_called(entry, reply, &apart.stats),
        }
    }

    /// The script has to begin anew a little later.
    pub(super) fn wait_for_room(&mut self, conn: &mut RespConn) -> Outcome {
        match self {
            At::Loop(cx) => conn.wait_for_room(cx),
            At::Apart(_) => Outcome::Later,
        }
    }

    /// Another script keeps the keys: this one has to begin later.
    pub(super) fn park(&mut self, conn: &mut RespConn) -> Outcome {
        match self {
            At::Loop(cx) => conn.park(cx),
            At::Apart(_) => Outcome::Later,
        }
    }

    /// Runs a command about the connection or the server that scripts may use.
    pub(in crate::service) fn session(
        &mut self,
        conn: &mut RespConn,
        entry: &Entry,
        args: &[&[u8]],
        reply: &mut Reply,
    ) {
        let apart = match self {
            At::Loop(cx) => {
                let _ = conn.call(run_of(entry), args, reply, cx, true);
                return;
            }
            At::Apart(apart) => apart,
        };
        let shared = apart.shared.clone();
        let mut asked = Asked {
            shared: &shared,
            reply,
            args,
        };
        match entry.name {
            "command" => command::answer(&mut asked),
            "echo" => reply.bulk(args[1]),
            "lastsave" => reply.integer((saving::last_save_ms(&shared) / 1000) as i64),
            "ping" => hello::pong(&mut asked),
            "pubsub" => pubsub_commands::answer(&mut asked),
            "role" => replication_commands::tell_role(&shared, reply),
            "select" => match hello::database(args[1], &shared) {
                Ok(db) => {
                    conn.session.db = db;
                    reply.ok();
                }
                Err(why) => reply.error(why),
            },
            "time" => misc::tell_time(apart.wall(), reply),
            "wait" => persistence::wait_for_none(&mut asked),
            "waitaof" => persistence::waitaof_for_none(&mut asked, conn.session.written),
            name => {
                let sharded = name == "spublish";
                reply.integer(shared.hub.receivers(sharded, args[1]) as i64);
                apart.published.push(Unpublished {
                    sharded,
                    channel: args[1].to_vec(),
                    payload: args[2].to_vec(),
                });
            }
        }
    }

    /// Tells clients that a long script runs here, if they have come since it began.
    pub(super) fn turn_away(&mut self) {
        if let At::Apart(apart) = self {
            apart.turn_away();
        }
    }
}
