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
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Builder;
use std::time::{Duration, Instant};

use tidewire::{Cx, Permit};

use super::at::At;
use super::away::Away;
use super::command::{answer, busy_text};
use super::functions;
use super::kind::Kind;
use super::text::Script;
use super::thread::{Next, Queue};
use super::vm::Interpreter;
use super::watched::{self, Watched, wall};
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
use crate::store::Seen;

/// How often the thread looks whether there is a script, so many times until it gives its interpreter up: five seconds.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 50;

/// The kind of work that runs on the thread.
pub(in crate::service) enum Work {
    Script {
        kind: Kind,
        script: Arc<Script>,
        keys: usize,
    },
    /// FCALL while it is not known what functions there are.
    Call(Kind),
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

/// The queue of the thread for scripts, and what is watched of it.
type Jobs = Arc<Queue<Job, Watched>>;

/// Makes the queue, with the thread that watches.
fn start() -> Option<Jobs> {
    let jobs = Jobs::default();
    let watched = jobs.clone();
    spawn("tidewire-watch", move || watch(&watched)).then_some(jobs)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    let started = Builder::new().name(name.into()).spawn(run);
    if let Err(error) = &started {
        tracing::error!(%error, "no thread for scripts");
    }
    started.is_ok()
}

/// Starts a thread that takes jobs, unless too many have been given up that have not come back.
fn serve(jobs: &Jobs, shared: &Shared) -> bool {
    let most = shared.config.scripts_stuck.load(Relaxed);
    let jobs = jobs.clone();
    shared.scripts.stuck.load(Relaxed) < most && spawn("tidewire-scripts", move || work(jobs))
}

/// Ends scripts that the hook does not reach.
fn watch(jobs: &Jobs) {
    /// So many looks at nothing, until the thread waits to be woken.
    const LOOKS: u32 = 40;
    let mut idle = 0;
    loop {
        if idle >= LOOKS && !jobs.wait_until_one_runs() {
            return;
        }
        std::thread::sleep(watched::LOOK);
        let Some(running) = jobs.running() else {
            idle += 1;
            continue;
        };
        idle = 0;
        let (why, busy) = running.look();
        if busy {
            turn_away(jobs);
        }
        if why.is_some() {
            let shared = &running.shared;
            shared.scripts.stuck.fetch_add(1, Relaxed);
            shared.scripts.given_up.fetch_add(1, Relaxed);
            let left = jobs.give_up(|| serve(jobs, shared));
            if !left.is_empty() {
                tracing::warn!(
                    "too many threads of scripts have not come back: scripts are refused (script-stuck-limit)"
                );
            }
            left.into_iter().for_each(refuse);
        }
    }
}

/// Tells clients that have come meanwhile that a script takes long.
fn turn_away(jobs: &Jobs) {
    while let Some(job) = jobs.take() {
        let text = busy_text(&job.shared);
        job.end(text, ABORTED_BUSY);
    }
}

/// Tells a client that there is no thread for its script.
fn refuse(job: Job) {
    job.end(
        "ERR scripts are refused: too many that were ended have not come back (script-stuck-limit)",
        "EXECABORT Transaction discarded because of: scripts are refused (script-stuck-limit)",
    );
}

impl Job {
    /// Answers without having run.
    fn end(self, text: &str, of_transaction: &str) {
        let mut reply = Reply::new(self.session.proto);
        match self.work {
            Work::Script { .. } | Work::Call(_) | Work::Function | Work::Load => reply.error(text),
            Work::Exec(transaction) => {
                transaction.forget(&self.shared.store);
                reply.error(of_transaction);
            }
        }
        self.permit.post(Message::Served(reply.take(), 0));
    }
}

/// The state that the thread has in the place of a loop's state, for one script.
pub(in crate::service) struct Apart {
    pub(super) shared: Arc<Shared>,
    pub(super) interpreter: Option<Box<Interpreter>>,
    pub(super) published: Vec<Unpublished>,
    /// When the script was given away, in milliseconds of the loops' clock.
    pub(super) now_ms: u64,
    pub(super) stats: Arc<LoopStats>,
    pub(super) watched: Arc<Watched>,
    jobs: Jobs,
}

impl Apart {
    /// Time since the epoch.
    pub(super) fn wall(&self) -> Duration {
        wall()
    }

    /// Tells clients that have come meanwhile that a script takes long.
    pub(super) fn turn_away(&mut self) {
        turn_away(&self.jobs);
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
        let Some(jobs) = shared.scripts.thread.queue(start) else {
            return false;
        };
        let Some(work) = work.take() else {
            return false;
        };
        let mut session = self.session.of_script();
        session.changes_as = self.not_told();
        let job = Job {
            session,
            card: self.card().clone(),
            work,
            args: args.clone(),
            seed: cx.link.random(),
            now_ms: cx.now_ms(),
            permit,
            shared: shared.clone(),
        };
        let begun = cx.link.clock();
        let held = arguments_memory(&args);
        self.card().holdings.set(Holding::Wait, held);
        self.away = Some(Box::new(Away { entry, args, begun }));
        if let Err(job) = jobs.put(job, || serve(&jobs, &shared)) {
            refuse(job);
        }
        true
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

/// The next job; none when there is no server any more. Meanwhile memory that scripts have freed goes back to the system.
fn next(jobs: &Jobs, kept: &mut Option<Box<Interpreter>>) -> Option<Job> {
    for gives_up in [false, true] {
        if gives_up {
            *kept = None;
        }
        for look in 0..LOOKS {
            match jobs.next(Some(LOOK)) {
                Next::Job(job) => return Some(job),
                Next::Closed => return None,
                Next::Nothing if look < GIVING_BACK.into() => give_back(),
                Next::Nothing => {}
            }
        }
    }
    match jobs.next(None) {
        Next::Job(job) => Some(job),
        Next::Nothing | Next::Closed => None,
    }
}

/// Runs scripts until there is no server any more, or the thread was given up. Between two scripts the thread holds no
/// state of the server.
fn work(jobs: Jobs) {
    let (mut kept, mut stats) = (None, None);
    loop {
        let Some(job) = next(&jobs, &mut kept) else {
            return;
        };
        let stats = stats.get_or_insert_with(|| job.shared.stats.on_loop());
        let is_transaction = matches!(job.work, Work::Exec(_));
        let watched = Watched::new(job.shared.clone(), job.permit, is_transaction);
        let watched = Arc::new(watched);
        jobs.begin(watched.clone());
        let mut apart = Apart {
            shared: job.shared.clone(),
            interpreter: kept.take(),
            published: Vec::new(),
            now_ms: job.now_ms,
            stats: stats.clone(),
            watched: watched.clone(),
            jobs: jobs.clone(),
        };
        let mut task = Task {
            session: job.session,
            card: job.card,
            work: job.work,
            args: job.args,
            seed: job.seed,
        };
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut task, &mut apart)));
        if watched.fence.is_cut() {
            // Another thread takes the jobs, and the client was answered.
            drop((task, apart));
            let scripts = &job.shared.scripts;
            scripts.stuck.fetch_sub(1, Relaxed);
            tracing::info!("the thread of a script that was ended has come back, and ends");
            return;
        }
        watched.end();
        jobs.end();
        let (reply, ticket) = ran.unwrap_or_else(|_| {
            // As on a loop the connection alone is told of it; what is held is given back by what holds it.
            apart.interpreter = None;
            (b"-ERR the script has failed inside\r\n".to_vec(), 0)
        });
        kept = apart.interpreter.take();
        drop((task, apart, job.shared));
        watched.answer(reply, ticket);
    }
}

/// A job without its client.
struct Task {
    session: Session,
    card: Arc<Card>,
    work: Work,
    args: Arc<Vec<Vec<u8>>>,
    seed: u64,
}

/// Whether a job needs to know which functions there are while it keeps keys from others.
fn looks_first(work: &Work, args: &[&[u8]]) -> bool {
    match work {
        Work::Function => {
            let is = |word: &[u8]| {
                args.get(1)
                    .is_some_and(|sub| sub.eq_ignore_ascii_case(word))
            };
            !is(b"kill") && !is(b"help")
        }
        Work::Exec(transaction) => transaction.asks_for_functions(),
        Work::Script { .. } | Work::Call(_) | Work::Load => false,
    }
}

/// Runs a job; returns its reply, and the ticket for which the reply waits.
fn run(job: &mut Task, apart: &mut Apart) -> (Vec<u8>, u64) {
    let shared = apart.shared.clone();
    let args: Vec<&[u8]> = job.args.iter().map(|arg| &arg[..]).collect();
    let mut conn = RespConn::of_script(job.session.of_script(), job.card.clone());
    let looks_first = looks_first(&job.work, &args);
    if let Work::Exec(transaction) = &mut job.work {
        conn.session.transaction = Some(std::mem::take(transaction));
    }
    let mut reply = Reply::new(job.session.proto);
    reply.set_limit(shared.config.client_output.load(Relaxed));
    let first = Instant::now();
    if looks_first {
        // Before any key is kept from others: it may take long.
        let _ = functions::current(Seen::Committed, &mut At::Apart(apart));
        if apart.watched.fence.is_cut() {
            if let Some(transaction) = conn.session.transaction.take() {
                transaction.forget(&shared.store);
            }
            return (Vec::new(), 0);
        }
    }
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
            Work::Call(kind) => conn.call_beside(*kind, &args, &mut batch, &mut reply, at),
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
        if apart.watched.fence.is_cut() {
            batch.disown();
            return (Vec::new(), 0);
        }
        if outcome == Outcome::Later {
            drop(batch);
            apart.watched.keeps.store(false, Relaxed);
            apart.published.clear();
            std::thread::sleep(RETRY);
            continue;
        }
        let (barrier, _) = batch.commit();
        drop(batch);
        // Waiting commands may use the script's keys from now on.
        shared.scripts.wake_parked();
        let ticket = barrier.max(conn.session.barrier);
        if matches!(job.work, Work::Function) {
            if reply.is_over() {
                reply.clear();
            }
            apart.watched.keeps.store(false, Relaxed);
            apart.watched.is_done(reply.bytes(), ticket);
            // Looked into here, so that no loop has to. The client is told what was done, however that ends.
            let _ = functions::current(Seen::Newest, &mut At::Apart(apart));
            return (reply.take(), ticket);
        }
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
