//! The end of a server: shows which connections are left, and gives a successor what it waits for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{Drain, Endpoint, LoopFailed, Phase, Running, Stopper, Waiter};
use tidewire_admin::Admin;
use tidewire_log::disk::ReadOnlyDisk;

use crate::exit::Failure;
use crate::serve::handover::handing::{Handing, Wants};
use crate::serve::handover::inherit::Inherited;
use crate::serve::handover::passing::Passing;
use crate::serve::logs::open::Logs;
use crate::serve::product::Plan;
use crate::serve::running::end::{End, SAID, Why};
use crate::serve::running::events::Events;
use crate::serve::running::life::Life;
use crate::serve::running::manager::Manager;
use crate::serve::running::remains::Remains;
use crate::serve::running::services::Services;

/// How often the progress of a stop is logged.
const SHOW: Duration = Duration::from_secs(1);
/// How long a successor waits until the loops have stopped accepting. The loops need moments, unless they are stuck.
const LET_GO: Duration = Duration::from_secs(6);
/// How long a successor that awaits a log may be kept waiting for clients of its services that have connected and said
/// nothing yet.
const UNSERVED: Duration = Duration::from_secs(2);
/// How long the loops may take to cut the remaining connections. A loop that has not ended by then is in a callback that does
/// not return, and no thread can be ended from outside.
const STUCK: Duration = Duration::from_secs(30);
/// How long a successor may have done nothing with the logs that it was given: it opens them at once.
const UNTOUCHED: Duration = Duration::from_secs(10);
/// How often the thread checks whether a log is in use.
const LOOK: Duration = Duration::from_millis(10);
/// How long the successor may have no room for connections of which nothing was read once the loops have ended: as long as it
/// waits for its own loops to have some.
const ROOM: Duration = Duration::from_secs(5);

/// A server on its way out.
pub(crate) struct Ending<'a> {
    plan: &'a Plan,
    manager: &'a Manager,
    /// Answers until the end, unless a successor does.
    _admin: Option<Admin>,
    logs: Logs,
    services: Arc<Services>,
    drain: Drain,
    /// The servers of this process before this one.
    remains: &'a mut Remains,
    stopper: Stopper,
    loops: Waiter,
    successor: Successor,
    /// The connections that go to the successor.
    passing: Passing,
    /// The address of each listener.
    places: Vec<Endpoint>,
    shown: Instant,
    /// Since when what is left is cut, and whether a signal has asked for that.
    cutting: Option<Instant>,
    hurried: bool,
    /// Since when the loops have ended.
    over: Option<Instant>,
    /// The server begins anew when it is over, on these listeners.
    anew: Option<Inherited>,
}

/// Whether a successor takes the listeners over.
enum Successor {
    /// The listeners are closed, or a successor serves there.
    Settled,
    /// A successor needs the logs first. The listeners are kept for the case that the successor
    /// dies.
    AwaitsLogs(Inherited),
    /// The successor that needed the logs is gone. This server goes on as soon as no connection needs the logs any more.
    Gone(Inherited),
    /// The successor may have the logs, and has not said yet that it serves.
    Starts(Inherited, Start),
}

/// The start of a successor, from when the logs were free for it.
struct Start {
    began: Instant,
    /// When a log line last said that the stop takes long.
    said: Option<Instant>,
}

impl<'a> Ending<'a> {
    /// Nothing is accepted any more.
    pub(crate) fn begin(
        life: Life<'a>,
        why: Why,
        handing: &mut Handing,
        remains: &'a mut Remains,
    ) -> Ending<'a> {
        let deadline = life.plan.stop_deadline.0;
        let kept = match why {
            Why::LogsAwaited | Why::Anew => Some(life.listeners().map(Inherited::new)),
            Why::Stop | Why::Succeeded => None,
        };
        let Life {
            plan,
            manager,
            mut admin,
            logs,
            services,
            running,
            ..
        } = life;
        let loops = running.waiter();
        let places = running.addrs().to_vec();
        let deadline_s = deadline.as_secs_f64();
        let mut anew = None;
        let (drain, successor) = match (why, kept) {
            (Why::Stop, _) | (Why::LogsAwaited, None | Some(Err(_))) => {
                handing.refuse("the running server is stopping");
                manager.stopping(deadline);
                tracing::info!(deadline_s, "stopping; a second signal ends at once");
                (running.drain(deadline), Successor::Settled)
            }
            // The places are listened at anew if the listeners cannot be kept.
            (Why::Anew, kept) => {
                tracing::info!(
                    deadline_s,
                    "ending, to begin anew; a signal ends the server"
                );
                let kept = kept.and_then(Result::ok).unwrap_or_default();
                anew = Some(kept);
                (running.hand_over(deadline), Successor::Settled)
            }
            (Why::Succeeded, _) => (hand_over(running, handing, deadline), Successor::Settled),
            (Why::LogsAwaited, Some(Ok(kept))) => {
                tracing::info!(
                    deadline_s,
                    "a successor awaits the logs; a signal ends at once"
                );
                running.limit_unserved(&plan.services_with_logs(), UNSERVED);
                (
                    hand_over(running, handing, deadline),
                    Successor::AwaitsLogs(kept),
                )
            }
        };
        if why != Why::Stop
            && let Some(admin) = admin.take()
        {
            admin.hand_over();
        }
        let mut passing = Passing::new(None, &places);
        if why == Why::Succeeded {
            // Once the successor says that it serves, it gets the new connections.
            let began = Instant::now();
            while drain.progress().phase == Phase::Closing && began.elapsed() < LET_GO {
                drain.wait_for(Duration::from_millis(1));
            }
            passing = let_go(handing, manager, &places);
        }
        Ending {
            plan,
            manager,
            _admin: admin,
            logs,
            services,
            stopper: drain.stopper(),
            drain,
            remains,
            loops,
            successor,
            passing,
            places,
            shown: Instant::now(),
            cutting: None,
            hurried: false,
            over: None,
            anew,
        }
    }

    /// Runs until the stop is over.
    pub(crate) fn run(
        mut self,
        events: &mut Events,
        handing: &mut Handing,
    ) -> Result<End, Failure> {
        loop {
            let over = self.drain.wait_for(Duration::ZERO);
            self.passing.go_on(&self.drain, self.plan);
            if let Successor::AwaitsLogs(_) = self.successor
                && (over || !self.needs_logs())
            {
                self.release_logs(handing);
            }
            if matches!(self.successor, Successor::Gone(_)) && (over || !self.needs_logs()) {
                let before = std::mem::replace(&mut self.successor, Successor::Settled);
                if let Successor::Gone(kept) = before {
                    return Ok(self.go_back(kept));
                }
            }
            let is_settled = over && matches!(self.successor, Successor::Settled);
            if is_settled && !self.awaits_room() && self.remains.are_over() {
                return self.finish();
            }
            if self.is_stuck() {
                return self.give_up();
            }
            self.show(over);
            if self.has_nobody_started(handing) {
                handing.pass_over("the successor has not opened the logs that were released to it");
                let before = std::mem::replace(&mut self.successor, Successor::Settled);
                if let Successor::Starts(kept, _) = before {
                    return Ok(self.go_back(kept.sharing()));
                }
            }
            let pause = match self.successor {
                Successor::AwaitsLogs(_) | Successor::Gone(_) => LOOK,
                // Only what is left of servers before this one is waited for.
                Successor::Settled if over => LOOK,
                // The loops let go of connections as soon as the stop begins.
                Successor::Settled if self.passing.is_open() => LOOK,
                Successor::Starts(..) | Successor::Settled => SHOW,
            };
            let (control, successor) = handing.fds();
            let heard = events.wait(control, successor, Some(pause));
            if heard.end {
                if self.hurried && !over {
                    tracing::error!("third signal: the loops are not waited for");
                    return self.give_up();
                }
                self.hurried = true;
                tracing::warn!(
                    "second signal: cutting all connections; a third does not wait for the loops"
                );
                self.stopper.stop_now();
                self.remains.stop_now();
                if over || matches!(self.successor, Successor::Gone(_)) {
                    // A successor that starts with the logs is on its own.
                    self.successor = Successor::Settled;
                }
            }
            let wants = handing.hear();
            if heard.control {
                handing.accept(Some(match self.successor {
                    Successor::Settled => "the running server is stopping",
                    _ => "another takeover is under way",
                }));
            }
            match wants {
                None => {}
                Some(Wants::End) => {
                    self.passing = let_go(handing, self.manager, &self.places);
                    self.successor = Successor::Settled;
                }
                Some(Wants::Nothing) => {
                    let before = std::mem::replace(&mut self.successor, Successor::Settled);
                    if let Successor::AwaitsLogs(kept)
                    | Successor::Gone(kept)
                    | Successor::Starts(kept, _) = before
                    {
                        let kept = match handing.are_listeners_astray() {
                            true => kept.sharing(),
                            false => kept,
                        };
                        tracing::error!(
                            "the successor has not come to serve: this server goes on, once no connection from before \
                             needs the logs"
                        );
                        self.successor = Successor::Gone(kept);
                    }
                }
                Some(Wants::Listeners | Wants::Logs) => {
                    handing.refuse("the running server is stopping")
                }
            }
        }
    }

    /// Whether the loops have ended, and the successor may still come to have room for connections of which nothing was read.
    fn awaits_room(&mut self) -> bool {
        let over = *self.over.get_or_insert_with(Instant::now);
        !self.hurried && self.passing.is_awaited() && over.elapsed() < ROOM
    }

    /// Whether connections are left that may still write to a log, or wait for it.
    fn needs_logs(&self) -> bool {
        let progress = self.drain.progress();
        let names = self.plan.services_with_logs();
        let busy = |left: &tidewire::Left| {
            left.open > left.lingering && names.iter().any(|name| **name == *left.service)
        };
        progress.phase == Phase::Closing || progress.services.iter().any(busy)
    }

    fn release_logs(&mut self, handing: &mut Handing) {
        if let Successor::AwaitsLogs(kept) =
            std::mem::replace(&mut self.successor, Successor::Settled)
        {
            self.services.let_go_of_logs();
            self.logs.release();
            tracing::info!("the logs are committed, and the successor's");
            handing.released();
            let start = Start {
                began: Instant::now(),
                said: None,
            };
            self.successor = Successor::Starts(kept, start);
        }
    }

    /// Whether the successor hangs and holds none of the logs, so that this server can open them
    /// again. A successor that holds a log may be reading it, which can take long. If the successor
    /// hangs, an operator has to end its process, because two processes must not write one log.
    fn has_nobody_started(&mut self, handing: &Handing) -> bool {
        let Successor::Starts(_, start) = &mut self.successor else {
            return false;
        };
        if start.began.elapsed() < UNTOUCHED {
            return false;
        }
        let is_held = |path: &PathBuf| ReadOnlyDisk::open(path).is_ok_and(|disk| disk.is_written());
        let Some(log) = self.plan.log_directories().into_iter().find(is_held) else {
            return true;
        };
        if start.said.is_none_or(|said| said.elapsed() >= SAID) {
            start.said = Some(Instant::now());
            tracing::warn!(
                pid = handing.pid(),
                log = %log.display(),
                seconds = start.began.elapsed().as_secs(),
                "the successor holds the log and does not serve yet: new connections wait. If \
                 the successor hangs, end its process, and this server goes on"
            );
        }
        false
    }

    fn show(&mut self, over: bool) {
        if over || self.shown.elapsed() < SHOW {
            return;
        }
        self.shown = Instant::now();
        let progress = self.drain.progress();
        tracing::info!(%progress, "draining");
        self.manager.status(&format!("draining: {progress}"));
    }

    /// Whether the loops should have ended long ago.
    fn is_stuck(&mut self) -> bool {
        let is_cutting = self.drain.progress().phase == Phase::Cutting || self.remains.are_cut();
        is_cutting && self.cutting.get_or_insert_with(Instant::now).elapsed() > STUCK
    }

    /// Ends the process without its loops.
    fn give_up(mut self) -> Result<End, Failure> {
        let progress = self.drain.progress();
        self.passing.end();
        // To drop any of it may be to wait for a thread that waits for a loop.
        std::mem::forget(std::mem::take(self.remains));
        std::mem::forget(self);
        Err(Failure::wrong(format!(
            "the loops have not ended ({progress}): a callback does not return, for example an \
             endless script that has written. The server ends without them, as if it were \
             killed; data that was acknowledged as durable is safe"
        )))
    }

    /// The successor has died, and this server serves again. Connections from before are served to their end beside that,
    /// until the deadline that they were given: none of them needs a log.
    fn go_back(mut self, kept: Inherited) -> End {
        let connections = self.drain.take_unserved();
        let progress = self.drain.progress();
        tracing::info!(%progress, "this server goes on; connections from before are finished beside new ones");
        self.services.log();
        self.services.let_go_of_logs();
        self.logs.release();
        self.remains.add(self.drain);
        End::Again(kept.with_connections(connections))
    }

    fn finish(mut self) -> Result<End, Failure> {
        self.passing.end();
        let counters = self.drain.wait();
        tracing::info!(%counters, "stopped");
        self.services.log();
        self.services.let_go_of_logs();
        self.logs.close()?;
        if let Some(kept) = self.anew.filter(|_| !self.hurried) {
            self.services.logs_closed()?;
            return Ok(End::Anew(kept));
        }
        outcome(self.services.failure(), &self.loops)
    }
}

/// How a server has ended whose loops have: in order, or with what went wrong before.
fn outcome(failure: Option<&str>, loops: &Waiter) -> Result<End, Failure> {
    if let Some(why) = failure {
        return Err(Failure::wrong(format!(
            "{why}, see the log lines above; start the server again"
        )));
    }
    loops.wait().map_err(loop_failed)?;
    Ok(End::Over)
}

/// The successor gets connections that wait to be accepted and, if it takes them, connections from which nothing
/// was read.
fn hand_over(running: Running, handing: &Handing, deadline: Duration) -> Drain {
    match handing.takes_connections() {
        true => running.hand_over_unserved(deadline),
        false => running.hand_over(deadline),
    }
}

/// The successor serves.
fn let_go(handing: &mut Handing, manager: &Manager, places: &[Endpoint]) -> Passing {
    if let Some(pid) = handing.pid() {
        manager.succeeded_by(pid);
        tracing::info!(
            pid,
            "a successor serves; this server finishes the connections that it has accepted"
        );
    }
    Passing::new(handing.let_go(), places)
}

fn loop_failed(failed: LoopFailed) -> Failure {
    Failure::wrong(format!(
        "{failed}; its connections were cut and the server has stopped. This is a bug in the \
         server: please report the log lines above, and start the server again"
    ))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use tidewire::{Builder, EngineChoice, Limits, Listen, on_input};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::{Interest, set_global_default};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const DOOMED: &str = "doomed";

    /// A log that panics when it is told about a certain service. This does not happen in a callback, so the loop
    /// ends.
    struct Log;

    #[derive(Default)]
    struct IsDoomed(bool);

    impl Visit for IsDoomed {
        fn record_str(&mut self, field: &Field, value: &str) {
            self.0 |= field.name() == "service" && value == DOOMED;
        }
        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    impl Subscriber for Log {
        fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
            Interest::sometimes()
        }
        fn enabled(&self, of: &Metadata<'_>) -> bool {
            of.is_event()
        }
        fn event(&self, event: &Event<'_>) {
            let mut doomed = IsDoomed::default();
            event.record(&mut doomed);
            assert!(!doomed.0, "on purpose: the log is broken");
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Serves one connection at a time, and says so in the log.
    fn server() -> Running {
        let limits = Limits {
            connections: 1,
            ..Limits::default()
        };
        let mut builder = Builder::new();
        builder.engine(EngineChoice::Epoll);
        let echo = on_input(|input, link| link.forward_all(input));
        let service = builder.service_with(echo, limits);
        builder.name(service, DOOMED);
        builder.listen(service, Listen::at("127.0.0.1:0"));
        builder.start().unwrap()
    }

    #[test]
    fn a_server_of_which_a_loop_has_died_fails() {
        set_global_default(Log).expect("no other test sets one");
        let running = server();
        let loops = running.waiter();
        let connect = || TcpStream::connect(running.addrs()[0].tcp().unwrap()).unwrap();
        let _clients = [connect(), connect()];
        assert!(loops.wait_for(PATIENCE).is_some(), "the loop lives");
        running.stop(PATIENCE);
        let failure = outcome(None, &loops).err().expect("it was no orderly end");
        assert_eq!(failure.status, crate::exit::WRONG);
        assert!(
            failure.message.contains("tidewire-loop-0"),
            "{}",
            failure.message
        );
        assert!(failure.message.contains("on purpose: the log is broken"));
    }

    #[test]
    fn a_server_that_was_stopped_ends_in_order_unless_its_store_has_failed() {
        let running = server();
        let loops = running.waiter();
        running.stop(PATIENCE);
        assert!(matches!(outcome(None, &loops), Ok(End::Over)));
        assert_eq!(
            outcome(Some("the store has failed"), &loops)
                .err()
                .map(|f| f.status),
            Some(crate::exit::WRONG)
        );
    }
}
