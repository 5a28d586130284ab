//! The thread for scripts that may take long: scripts that were not seen to run yet, and scripts
//! that have taken long before.
//!
//! While one runs there the loops serve on. The loops answer others with BUSY when it has taken too
//! long, and hear SCRIPT KILL. A script that was quick runs on the loops from then on, which costs
//! no change of threads; one that has become slow and changed nothing begins anew here.

#![expect(
    clippy::disallowed_methods,
    reason = "it is a thread because scripts block it, and brings the clock"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewire::{Cx, Permit};

use super::at::At;
use super::away::Away;
use super::command::{answer, busy_text};
use super::kind::Kind;
use super::text::Script;
use super::vm::Interpreter;
use crate::allocator::give_back;
use crate::reply::Reply;
use crate::service::acl::Place;
use crate::service::batch::Batch;
use crate::service::call::Asked;
use crate::service::clients::Card;
use crate::service::conn::{PATIENCE_MS, RETRY, RespConn};
use crate::service::holdings::{Holding, arguments_memory};
use crate::service::local::{GIVING_BACK, Unpublished};
use crate::service::message::Message;
use crate::service::outcome::{Outcome, count_error};
use crate::service::session::Session;
use crate::service::shared::Shared;
use crate::service::stats::LoopStats;
use crate::service::table::table;
use crate::service::transaction::{ABORTED_BUSY, Transaction};

/// How often the thread looks whether there is a script, so many times until it gives its interpreter up: five seconds.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 50;

/// What is to run.
pub(in crate::service) enum Work {
    Script {
        kind: Kind,
        script: Arc<Script>,
        keys: usize,
    },
    /// A transaction that has a script.
    Exec(Box<Transaction>),
    /// FUNCTION LOAD or RESTORE.
    Function,
    /// SCRIPT LOAD of a long text.
    Load,
}

impl Work {
    pub(super) fn script(kind: Kind, script: &Arc<Script>, keys: usize) -> Work {
        Work::Script {
            kind,
            script: script.clone(),
            keys,
        }
    }
}

/// A script, or a transaction with one, that is to run.
struct Job {
    shared: Arc<Shared>,
    session: Session,
    card: Arc<Card>,
    work: Work,
    args: Arc<Vec<Vec<u8>>>,
    seed: u64,
    /// Time of the loop's clock, now.
    now_ms: u64,
    permit: Permit<Message>,
}

fn start() -> Option<Sender<Job>> {
    let (to, jobs) = channel();
    let started = Builder::new()
        .name("tidewire-scripts".into())
        .spawn(move || work(jobs));
    if let Err(error) = &started {
        tracing::error!(%error, "no thread for scripts");
        return None;
    }
    Some(to)
}

/// What the thread has as a loop has it, for one script.
pub(in crate::service) struct Apart {
    pub(super) shared: Arc<Shared>,
    pub(super) interpreter: Option<Box<Interpreter>>,
    pub(super) published: Vec<Unpublished>,
    /// When the script was given away, in milliseconds of the loops' clock.
    pub(super) now_ms: u64,
    pub(super) stats: Arc<LoopStats>,
    jobs: Rc<Receiver<Job>>,
}

impl Apart {
    /// Time since the epoch.
    pub(super) fn wall(&self) -> Duration {
        wall()
    }

    /// Tells clients that have come meanwhile that a script takes long.
    pub(super) fn turn_away(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            let mut reply = Reply::new(job.session.proto);
            match job.work {
                Work::Script { .. } | Work::Function | Work::Load => {
                    reply.error(busy_text(&job.shared))
                }
                Work::Exec(transaction) => {
                    transaction.forget(&job.shared.store);
                    reply.error(ABORTED_BUSY);
                }
            }
            job.permit.post(Message::Served(reply.take(), 0));
        }
    }
}

impl RespConn {
    /// Has the thread run a transaction, which it keeps and which is not there any more then; false if it is to run here.
    pub(in crate::service) fn send_exec_away(&mut self, cx: &mut Cx<'_, RespConn>) -> bool {
        let Some(transaction) = self.session.transaction.take() else {
            return false;
        };
        let work = &mut Some(Work::Exec(transaction));
        let sent = self.send(work, &[b"exec"], cx);
        if let Some(Work::Exec(transaction)) = work.take() {
            self.session.transaction = Some(transaction);
        }
        sent
    }

    /// Has the thread run a script; false if it is to run here.
    pub(super) fn send_away(
        &mut self,
        work: Work,
        args: &[&[u8]],
        cx: &mut Cx<'_, RespConn>,
    ) -> bool {
        self.send(&mut Some(work), args, cx)
    }

    /// Gives the thread what is to run; that stays if there is no thread.
    fn send(&mut self, work: &mut Option<Work>, args: &[&[u8]], cx: &mut Cx<'_, RespConn>) -> bool {
        let Some(entry) = table().find(args[0]) else {
            return false;
        };
        let Ok(permit) = cx.handle().reserve() else {
            return false;
        };
        let args = Arc::new(args.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>());
        let shared = Arc::clone(&cx.local.shared);
        if !shared.scripts.thread.is_there(start) {
            return false;
        }
        let Some(work) = work.take() else {
            return false;
        };
        let mut session = self.session.of_script();
        session.changes_as = self.not_told();
        let given = cx.local.shared.scripts.thread.give(
            Job {
                session,
                card: self.card().clone(),
                work,
                args: args.clone(),
                seed: cx.link.random(),
                now_ms: cx.now_ms(),
                permit,
                shared,
            },
            start,
        );
        if given {
            let begun = cx.link.clock();
            let held = arguments_memory(&args);
            self.card().holdings.set(Holding::Wait, held);
            self.away = Some(Box::new(Away { entry, args, begun }));
        }
        given
    }

    /// The answer of a script that ran on the thread has come.
    pub(crate) fn note_away(&mut self, reply: &[u8], cx: &mut Cx<'_, RespConn>) {
        let Some(away) = self.away.take() else { return };
        let args: Vec<&[u8]> = away.args.iter().map(|arg| &arg[..]).collect();
        let took = cx.link.clock() - away.begun;
        self.note_time(away.entry, &args, took, cx);
        if reply.first() == Some(&b'-') {
            cx.local.stats.command(away.entry.id).failed.add(1);
            count_error(reply, &cx.local.stats);
        }
    }
}

fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The next job; none when there is no server any more. Meanwhile memory that scripts have freed goes back to the system.
fn next(jobs: &Receiver<Job>, kept: &mut Option<Box<Interpreter>>) -> Option<Job> {
    for gives_up in [false, true] {
        if gives_up {
            *kept = None;
        }
        for look in 0..LOOKS {
            match jobs.recv_timeout(LOOK) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if look < GIVING_BACK.into() => give_back(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
    jobs.recv().ok()
}

/// Runs scripts until there is no server any more. Between them it holds nothing of the server.
fn work(jobs: Receiver<Job>) {
    let jobs = Rc::new(jobs);
    let (mut kept, mut stats) = (None, None);
    loop {
        let Some(mut job) = next(&jobs, &mut kept) else {
            return;
        };
        let stats = stats.get_or_insert_with(|| job.shared.stats.on_loop());
        let mut apart = Apart {
            shared: job.shared.clone(),
            interpreter: kept.take(),
            published: Vec::new(),
            now_ms: job.now_ms,
            stats: stats.clone(),
            jobs: jobs.clone(),
        };
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut job, &mut apart)));
        let (reply, ticket) = ran.unwrap_or_else(|_| {
            // As on a loop the connection alone is told of it; what is held is given back by what holds it.
            apart.interpreter = None;
            (b"-ERR the script has failed inside\r\n".to_vec(), 0)
        });
        kept = apart.interpreter.take();
        let permit = job.permit;
        drop((apart, job.shared));
        permit.post(Message::Served(reply, ticket));
    }
}

/// Runs one; its reply, and what that waits for.
fn run(job: &mut Job, apart: &mut Apart) -> (Vec<u8>, u64) {
    let shared = job.shared.clone();
    let args: Vec<&[u8]> = job.args.iter().map(|arg| &arg[..]).collect();
    let mut conn = RespConn::of_script(job.session.of_script(), job.card.clone());
    if let Work::Exec(transaction) = &mut job.work {
        conn.session.transaction = Some(std::mem::take(transaction));
    }
    let mut reply = Reply::new(job.session.proto);
    reply.set_limit(shared.config.client_output.load(Relaxed));
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        let now_ms = wall().as_millis() as u64;
        let mut batch = Batch::new(&shared, job.session.db, now_ms, job.seed);
        batch.set_no_touch(job.session.no_touch);
        let is_patient = begun - first < Duration::from_millis(PATIENCE_MS);
        batch.set_patient(is_patient || shared.awaits_snapshot());
        batch.set_client(conn.not_told());
        let at = &mut At::Apart(apart);
        let outcome = match &job.work {
            Work::Script { kind, script, keys } => {
                conn.run_alone(*kind, script, *keys, &args, &mut batch, &mut reply, at)
            }
            Work::Exec(_) => conn.exec_beside(&mut batch, &mut reply, at),
            Work::Function => conn.function(&mut batch, &args, false, &mut reply, at),
            Work::Load => {
                let mut asked = Asked {
                    shared: &shared,
                    reply: &mut reply,
                    args: &args,
                };
                answer(&mut asked, at);
                Outcome::Done
            }
        };
        if outcome == Outcome::Later {
            drop(batch);
            apart.published.clear();
            std::thread::sleep(RETRY);
            continue;
        }
        let (barrier, _) = batch.commit();
        drop(batch);
        // Waiting commands have its keys from now on.
        shared.scripts.wake_parked();
        let ticket = barrier.max(conn.session.barrier);
        let published = !apart.published.is_empty();
        for message in apart.published.drain(..) {
            let (channel, payload) = (&message.channel, &message.payload);
            // As in any transaction, an inbox may be overfilled.
            let _ = shared
                .hub
                .publish(message.sharded, channel, payload, true, ticket);
        }
        if let Work::Script { script, .. } = &job.work {
            let wrote = shared.scripts.phase.wrote() || published;
            script.note_time(begun.elapsed(), wrote);
        }
        if reply.is_over() {
            reply.clear();
        }
        return (reply.take(), ticket);
    }
}
