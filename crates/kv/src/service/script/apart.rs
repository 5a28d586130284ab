//! The thread for scripts that may take long: those that nobody has seen run yet, and those that have taken long before.
//!
//! While one runs there the loops serve on. They answer others with BUSY when it has taken too long, and hear who wants
//! to end it. A script that was quick runs on the loops from then on, which costs no change of threads; one that has
//! become slow and changed nothing begins anew here.

#![expect(
    clippy::disallowed_methods,
    reason = "it is a thread because scripts block it, and brings the clock"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewire::{Cx, Permit};

use super::at::At;
use super::cache::Script;
use super::command::busy_text;
use super::run::Kind;
use super::vm::Interpreter;
use crate::reply::Reply;
use crate::service::acl::Place;
use crate::service::batch::Batch;
use crate::service::clients::Card;
use crate::service::conn::{PATIENCE_MS, RETRY, RespConn};
use crate::service::holdings::{Holding, arguments_memory};
use crate::service::local::Unpublished;
use crate::service::message::Message;
use crate::service::run::{Outcome, count_error};
use crate::service::session::Session;
use crate::service::shared::Shared;
use crate::service::stats::LoopStats;
use crate::service::table::{Entry, table};

/// A script that takes less runs on the loops from then on: it holds up nobody there.
const QUICK: Duration = Duration::from_millis(5);
/// The thread keeps its interpreter for so long without a script.
const KEPT: Duration = Duration::from_secs(5);

/// A script that is to run.
struct Job {
    shared: Arc<Shared>,
    session: Session,
    card: Arc<Card>,
    kind: Kind,
    script: Arc<Script>,
    keys: usize,
    args: Arc<Vec<Vec<u8>>>,
    seed: u64,
    /// Of the loop's clock, now.
    now_ms: u64,
    permit: Permit<Message>,
}

/// A connection's script that runs on the thread.
pub(crate) struct Away {
    pub(crate) entry: &'static Entry,
    pub(crate) args: Arc<Vec<Vec<u8>>>,
    /// When it was given away.
    pub(crate) begun: tidewire::Instant,
}

/// The way to the thread, which is started with the first script for it.
#[derive(Debug, Default)]
pub(super) struct Thread(Mutex<Option<Sender<Job>>>);

impl Thread {
    /// False if there is no thread to be had.
    fn give(&self, job: Job) -> bool {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            return sender.send(job).is_ok();
        }
        let (to, jobs) = channel();
        let _ = to.send(job);
        let started = Builder::new()
            .name("tidewire-scripts".into())
            .spawn(move || work(jobs));
        if let Err(error) = &started {
            tracing::error!(%error, "no thread for scripts");
            return false;
        }
        *sender = Some(to);
        true
    }
}

/// What the thread has as a loop has it, for one script.
pub(super) struct Apart {
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

    /// Tells those that have come meanwhile that a script takes long.
    pub(super) fn turn_away(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            let mut reply = Reply::new(job.session.proto);
            reply.error(busy_text(&job.shared));
            job.permit.post(Message::Served(reply.take(), 0));
        }
    }
}

impl RespConn {
    /// Has the thread run a script; false if it is to run here.
    pub(super) fn send_away(
        &mut self,
        kind: Kind,
        script: &Arc<Script>,
        keys: usize,
        args: &[&[u8]],
        cx: &mut Cx<'_, RespConn>,
    ) -> bool {
        let Some(entry) = table().find(args[0]) else {
            return false;
        };
        let Ok(permit) = cx.handle().reserve() else {
            return false;
        };
        let args = Arc::new(args.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>());
        let shared = Arc::clone(&cx.local.shared);
        let given = cx.local.shared.scripts.thread.give(Job {
            session: self.session.of_script(),
            card: self.card().clone(),
            kind,
            script: script.clone(),
            keys,
            args: args.clone(),
            seed: cx.link.random(),
            now_ms: cx.now_ms(),
            permit,
            shared,
        });
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
            count_error(reply, cx);
        }
    }
}

fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Runs scripts until there is no server any more. Between them it holds nothing of the server.
fn work(jobs: Receiver<Job>) {
    let jobs = Rc::new(jobs);
    let (mut kept, mut stats) = (None, None);
    loop {
        let job = match jobs.recv_timeout(KEPT) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) => {
                kept = None;
                match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
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
        let ran = catch_unwind(AssertUnwindSafe(|| run(&job, &mut apart)));
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
fn run(job: &Job, apart: &mut Apart) -> (Vec<u8>, u64) {
    let shared = job.shared.clone();
    let args: Vec<&[u8]> = job.args.iter().map(|arg| &arg[..]).collect();
    let mut conn = RespConn::of_script(job.session.of_script(), job.card.clone());
    let mut reply = Reply::new(job.session.proto);
    reply.set_limit(shared.config.client_output.load(Relaxed));
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        let now_ms = wall().as_millis() as u64;
        let mut batch = Batch::new(&shared, job.session.db, now_ms, job.seed);
        batch.set_no_touch(job.session.no_touch);
        batch.set_patient(begun - first < Duration::from_millis(PATIENCE_MS));
        let at = &mut At::Apart(apart);
        let (kind, script) = (job.kind, &job.script);
        let outcome = conn.run_alone(kind, script, job.keys, &args, &mut batch, &mut reply, at);
        if outcome == Outcome::Later {
            drop(batch);
            apart.published.clear();
            std::thread::sleep(RETRY);
            continue;
        }
        let (barrier, _) = batch.commit();
        drop(batch);
        let ticket = barrier.max(job.session.barrier);
        for message in apart.published.drain(..) {
            let (channel, payload) = (&message.channel, &message.payload);
            // As in any transaction, an inbox may be overfilled.
            let _ = shared
                .hub
                .publish(message.sharded, channel, payload, true, ticket);
        }
        script.slow.store(begun.elapsed() > QUICK, Relaxed);
        if reply.is_over() {
            reply.clear();
        }
        return (reply.take(), barrier);
    }
}
