//! A server from its start to its end. Another server may follow in the same process: if a successor was to take
//! over and has died.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::admission::Admission;
use tidewire::{Builder, Running, StartError};
use tidewire_admin::{Admin, Listener, Panel, Stage};
use tidewire_handover::{Following, Handed, Offer};
use tidewire_ingest::native::Fleet;

use crate::exit::Failure;
use crate::logging::Logging;
use crate::serve::admin::listener;
use crate::serve::admin::shown::Found;
use crate::serve::handover::handing::{Handing, Wants};
use crate::serve::handover::inherit::{self, Inherited};
use crate::serve::handover::passing;
use crate::serve::handover::takeover;
use crate::serve::listeners::fronts::Fronts;
use crate::serve::logs::blocked::Blocked;
use crate::serve::logs::full::{Full, What};
use crate::serve::logs::open::{Logs, OpenLog, WatchedLog};
use crate::serve::logs::options::OnLogFailure;
use crate::serve::product::Plan;
use crate::serve::running::announce::announce;
use crate::serve::running::end::{SAID, Why};
use crate::serve::running::events::Events;
use crate::serve::running::manager::Manager;
use crate::serve::running::services::Services;
use crate::serve::settings::sources::Sources;
use crate::signals::Alarm;
use crate::span::Span;

/// How soon a log is tried again that a successor holds which did not take over.
const HELD: Duration = Duration::from_millis(100);

/// A server that runs.
pub(crate) struct Life<'a> {
    pub(crate) plan: &'a Plan,
    /// Where the settings come from, to read some again.
    sources: &'a Sources,
    pub(crate) manager: &'a Manager,
    panel: Panel,
    pub(crate) admin: Option<Admin>,
    fronts: Fronts,
    pub(crate) logs: Logs,
    pub(crate) services: Arc<Services>,
    pub(crate) running: Running,
    /// The end was asked for before everything was recovered: no client was served keys.
    was_cut_short: bool,
    /// A signal has asked for that.
    was_signalled: bool,
}

/// The origin of a server: a new start, a predecessor or a service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The server was started, and no other served here.
    Start,
    /// This server is to make way for a successor. Clients that connect meanwhile wait, and are
    /// told nothing.
    Takeover,
    /// A takeover of this one has failed. New clients wait as for a takeover.
    Return,
}

impl<'a> Life<'a> {
    /// Opens what the server needs and starts the loops. The loops start before keys are recovered,
    /// unless another server may still serve these keys. A server that returns after a failed
    /// takeover waits until the successor releases the logs: the successor was refused and ends,
    /// but may have opened a log meanwhile.
    pub(crate) fn begin(
        plan: &'a Plan,
        sources: &'a Sources,
        manager: &'a Manager,
        logging: &Logging,
        mut inherited: Inherited,
        origin: Origin,
        events: &mut Events,
    ) -> Result<Life<'a>, Failure> {
        // Before a log is opened, which may take a while: requests are answered that this server
        // recovers.
        let panel = listener::panel(plan, logging);
        let fronts = Fronts::new(plan.handshake);
        let admin = listener::start(plan, &fronts, &panel, inherited.take_admin())?;
        panel.set_config(plan.shown(&Found {
            admin: admin.as_ref().map(Admin::addr),
            loops: None,
        }));
        manager.recovering();
        let mut logs = Logs::default();
        let mut said: Option<Instant> = None;
        let mut awaits = |log: &Path| {
            if origin != Origin::Return {
                return false;
            }
            if said.is_none_or(|said| said.elapsed() >= SAID) {
                said = Some(Instant::now());
                tracing::warn!(
                    log = %log.display(),
                    "a successor that did not take over still holds the log: new connections \
                     wait. If the successor hangs, end its process, and this server goes on; a \
                     signal ends this server"
                );
            }
            std::thread::sleep(HELD);
            !events.wait(None, None, Some(Duration::ZERO)).end
        };
        if plan.need_log() {
            let owners = plan.fleet.as_ref().and_then(Fleet::owners);
            let log = OpenLog::open(&plan.durable, owners, &panel, &mut awaits)?;
            logs.messages = Some(log);
        }
        for (service, product) in plan.served() {
            if let Some((directory, settings)) = product.opens(plan)? {
                let log = OpenLog::open_at(directory, settings, Some(&panel), &mut awaits)?;
                logs.own.push((service.name, log));
            }
        }
        let (mut builder, services) = prepare(plan, &fronts, &logs, &mut inherited)?;
        let is_early = origin == Origin::Start;
        if !is_early {
            services.recover(plan, &logs, &panel, &[], &mut || true)?;
        }
        // Before any client is served: a client may ask for the end with its first command.
        let alarm = events.alarm();
        let alarm = alarm.map_err(|e| Failure::failed(format!("cannot watch the loops: {e}")))?;
        let alarm = Arc::new(alarm);
        let rung = alarm.clone();
        services.on_shutdown(Arc::new(move || rung.ring()));
        let running = builder.start().map_err(|e| cannot_start(&e))?;
        services.listening(&plan.endpoints, running.addrs());
        passing::let_in(&running.inbound(), inherited.take_connections());
        let mut life = Life {
            plan,
            sources,
            manager,
            panel,
            admin,
            fronts,
            logs,
            services,
            running,
            was_cut_short: false,
            was_signalled: false,
        };
        life.show();
        life.fronts.warn();
        let loops = life.running.waiter();
        watch(move || drop(loops.wait()), alarm);
        if is_early && let Err(why) = life.recover(events) {
            life.running.stop(Duration::ZERO);
            return Err(why);
        }
        if life.was_cut_short {
            return Ok(life);
        }
        life.panel.set_stage(Stage::Serving);
        tracing::info!(
            engine = %life.running.engine(),
            reason = life.running.engine_reason(),
            workers = plan.workers,
            descriptors = plan.descriptors,
            connections = plan.rules_of_all().connections,
            "serving"
        );
        Ok(life)
    }

    /// Builds the state of all products from their logs, while clients are told to wait.
    fn recover(&mut self, events: &mut Events) -> Result<(), Failure> {
        let endpoints = self.plan.endpoints.iter();
        let at = endpoints.zip(self.running.addrs());
        let at: Vec<_> = at
            .map(|(endpoint, addr)| (endpoint.kind, addr.clone()))
            .collect();
        let (mut is_asked, mut is_signalled) = (false, false);
        let mut goes_on = || {
            is_signalled = is_signalled || events.is_end_signalled();
            is_asked = is_asked || is_signalled || events.have_loops_ended();
            !is_asked
        };
        let recovered =
            self.services
                .recover(self.plan, &self.logs, &self.panel, &at, &mut goes_on)?;
        self.was_cut_short = !recovered;
        self.was_signalled = is_signalled;
        let begins_anew = self.services.begin_anew() && !is_signalled;
        if recovered && is_asked && !begins_anew {
            // Nothing was left to cut short: the end is asked for again, where ends are heard from
            // now on.
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
        }
        Ok(())
    }

    /// Prints the listening addresses on stdout, once all clients are served.
    pub(crate) fn announce(&self) -> io::Result<()> {
        if self.was_cut_short {
            return Ok(());
        }
        let front = &self.plan.admin_front;
        let admin = self.admin.as_ref().map(|admin| (admin, front));
        announce(self.plan, &self.running, &self.logs, admin)
    }

    /// Serves until the end.
    pub(crate) fn run(mut self, events: &mut Events, handing: &mut Handing) -> (Life<'a>, Why) {
        let why = match self.was_cut_short {
            true if self.services.begin_anew() && !self.was_signalled => Why::Anew,
            true => Why::Stop,
            false => {
                self.manager.serving(self.running.observer());
                self.wait(events, handing)
            }
        };
        self.services.stop_following();
        self.adopt();
        self.panel.set_stage(Stage::Draining);
        (self, why)
    }

    /// The predecessor accepts no more; connections of which it has read nothing may follow.
    pub(crate) fn is_alone(&self, following: Option<Following>) {
        self.running.accept_waiting();
        if let Some(following) = following {
            passing::take_in(following, self.running.inbound(), self.plan);
        }
    }

    /// Gives up a start: inherited listeners stay with their owner.
    pub(crate) fn abandon(self) {
        self.running.hand_over(Duration::ZERO).wait();
        if let Some(admin) = self.admin {
            admin.hand_over();
        }
    }

    /// Lets clients of the admin listener see what runs.
    fn show(&self) {
        let listeners = self.plan.endpoints.iter().zip(self.running.addrs());
        let listeners = listeners.map(|(endpoint, addr)| Listener {
            service: endpoint.kind.to_string(),
            addr: addr.to_string(),
        });
        self.panel
            .show(self.running.observer(), listeners.collect());
        self.panel.set_config(self.plan.shown(&Found {
            admin: self.admin.as_ref().map(Admin::addr),
            loops: Some((&self.running.observer(), self.running.addrs())),
        }));
        let services = self.services.clone();
        self.panel.add(move |to| services.collect(to));
        let messages = self.logs.messages.iter().map(|log| ("messages", log));
        let own = self.logs.own.iter().map(|(name, log)| (*name, log));
        for (name, log) in messages.chain(own) {
            let log = log.watched();
            self.panel.add(move |to| log.collect(name, to));
        }
        self.show_halts();
    }

    /// Lets clients of the admin listener see why a log takes nothing, when they ask.
    fn show_halts(&self) {
        let logs = self.logs.messages.iter();
        let logs = logs.chain(self.logs.own.iter().map(|(_, log)| log));
        let logs: Vec<_> = logs.map(OpenLog::watched).collect();
        self.panel
            .halts_where(move || logs.iter().find_map(WatchedLog::halted));
    }

    /// Until a signal comes, or a loop fails, or the log has failed and that is to be the end, or a successor takes
    /// over.
    fn wait(&mut self, events: &mut Events, handing: &mut Handing) -> Why {
        let settings = self.plan;
        let mut shown = Instant::now();
        let mut full_disk = Full::new(What::Disk);
        let mut full_streams = Full::new(What::Streams);
        let mut blocked = Blocked::default();
        loop {
            let next = settings
                .stats_interval
                .and_then(Span::limit)
                .map(|every| every.saturating_sub(shown.elapsed()));
            let look = !self.logs.is_empty() || self.services.are_watched();
            let look = look.then_some(LOOK);
            self.adopt();
            if self.services.begin_anew() {
                return Why::Anew;
            }
            // A pause of zero would be none at all.
            let pause = [next, look, handing.look()].into_iter().flatten().min();
            let pause = pause.map(|pause| pause.max(Duration::from_millis(1)));
            let (control, successor) = handing.fds();
            let heard = events.wait(control, successor, pause);
            if !heard.end && heard.loops && self.services.begin_anew() {
                continue;
            }
            if heard.end || heard.loops {
                return Why::Stop;
            }
            if heard.hangup {
                self.reload();
            }
            if heard.upgrade {
                handing.upgrade();
            }
            // The present successor first: it may have gone, and so made way for the next.
            let wants = handing.hear();
            if heard.control {
                handing.accept(None);
            }
            match wants {
                Some(Wants::Nothing) if !handing.are_listeners_astray() => {
                    self.running.exclusive_again();
                }
                Some(Wants::Nothing) | None => {}
                Some(wants) => {
                    // Each time: keys may have come since.
                    let leaves = match wants {
                        Wants::End => self.left_behind(),
                        _ => None,
                    };
                    let forgets = self.services.forgets().or(leaves);
                    if let Some(why) = forgets.filter(|_| !handing.may_forget()) {
                        tracing::warn!(why, "a takeover is refused");
                        handing.refuse(&why);
                        continue;
                    }
                    match wants {
                        Wants::Logs => return Why::LogsAwaited,
                        Wants::End => return Why::Succeeded,
                        Wants::Listeners => handing.offer(self.offer(), self.listeners()),
                        Wants::Nothing => {}
                    }
                }
            }
            // Each failure is reported.
            let failed = self
                .logs
                .each()
                .fold(self.services.failure().is_some(), |failed, log| {
                    log.has_failed() | failed
                });
            if failed && settings.durable.on_failure == OnLogFailure::Exit {
                return Why::Stop;
            }
            let refused = self.services.refused();
            full_disk.look(refused.by_disk);
            full_streams.look(refused.by_streams);
            let why = self.logs.each().find_map(|log| log.blocked());
            blocked.look(why.as_deref());
            if settings
                .stats_interval
                .and_then(Span::limit)
                .is_some_and(|every| shown.elapsed() >= every)
            {
                shown = Instant::now();
                tracing::info!(counters = %self.running.counters(), "so far");
                self.services.log();
            }
        }
    }

    /// The data that a successor would leave behind if it serves without having asked for the logs, as a reason to
    /// refuse the successor. A successor of version 0.3.0 or later finds that out by itself and ends.
    fn left_behind(&self) -> Option<String> {
        let logs = self.plan.log_directories();
        (!logs.is_empty()).then(|| takeover::leaves_behind(&logs, &self.plan.store_directories()))
    }

    /// The followed store is this server's now, with its log.
    fn adopt(&mut self) {
        for (name, log) in self.services.taken_over() {
            let watched = log.watched();
            self.panel.add(move |to| watched.collect(name, to));
            self.logs.own.push((name, log));
        }
        self.show_halts();
    }

    /// Does the work of SIGHUP: reads secrets, certificates and settings again. A mistake in the
    /// files must not end a server that serves.
    fn reload(&self) {
        self.manager.reloading();
        match self.fronts.reload() {
            Ok(0) => {
                tracing::info!("SIGHUP: no listener speaks TLS, so no file was read again");
            }
            Ok(listeners) => {
                tracing::info!(listeners, "SIGHUP: the files of TLS were read again");
                self.fronts.warn();
            }
            Err(Failure { message, .. }) => {
                tracing::error!(
                    why = message,
                    "SIGHUP: a file is invalid, so nothing has changed"
                );
            }
        }
        match self.sources.asked() {
            Ok(again) => self.services.reload(&again.products),
            Err(Failure { message, .. }) => {
                tracing::error!(why = message, "SIGHUP: the settings cannot be read again");
            }
        }
        self.manager.ready();
    }

    /// The facts that a successor needs.
    fn offer(&self) -> Offer {
        let most = self.plan.stop_deadline.0;
        Offer {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            logs: self.plan.log_directories(),
            stores: self.plan.store_directories(),
            release_ms: u64::try_from(most.as_millis()).unwrap_or(u64::MAX),
            packets: 0,
        }
    }

    /// All listeners, except the control socket.
    pub(crate) fn listeners(&self) -> io::Result<Vec<Handed>> {
        let settings = self.plan;
        let mut all = inherit::of_services(settings, self.running.listeners()?);
        if let Some(admin) = &self.admin {
            all.extend(inherit::of_admin(admin, settings.admin_is_given)?);
        }
        Ok(all)
    }
}

/// A server with a loop missing is worse than none: connections hang, and no supervisor restarts
/// it.
fn watch(ended: impl FnOnce() + Send + 'static, alarm: Arc<Alarm>) {
    // The thread is not joined: it ends with the loops.
    std::thread::spawn(move || {
        ended();
        alarm.ring();
    });
}

/// How often the log is asked whether it has failed.
const LOOK: Duration = Duration::from_secs(1);

fn prepare(
    settings: &Plan,
    fronts: &Fronts,
    logs: &Logs,
    inherited: &mut Inherited,
) -> Result<(Builder, Arc<Services>), Failure> {
    let mut builder = Builder::new();
    builder
        .engine(settings.engine)
        .loops(settings.workers)
        .placement(settings.placement.into())
        .cpus(&settings.cpus)
        .busy_poll(Duration::from_micros(settings.busy_poll))
        .turn_output(settings.turn_output)
        .turn_send(settings.turn_send)
        .turn_receive(settings.turn_receive)
        .direct_descriptors(settings.direct_descriptors)
        // The filter of log lines decides.
        .log_connections(true);
    if let Some(bytes) = settings.memory {
        builder.memory(bytes);
    }
    if let Some(threshold) = settings.stall_threshold.limit() {
        builder.watch(threshold);
    }
    let all = settings.rules_of_all();
    if !all.is_empty() {
        builder.admission(Admission::new(all));
    }
    let services = Services::add(&mut builder, settings, fronts, logs, inherited)?;
    Ok((builder, Arc::new(services)))
}

fn cannot_start(error: &StartError) -> Failure {
    let advice = match error {
        StartError::Listen { source, .. } => match source.kind() {
            // The error already says what is at the path of a Unix socket.
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                if source.raw_os_error().is_none() =>
            {
                ""
            }
            io::ErrorKind::AddrInUse => {
                "; another process listens there: stop it, or choose another address with \
                 --listen SERVICE=ADDR (port 0 takes any free port)"
            }
            io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need the right to bind them",
            _ => "; see --listen, --bind and --congestion",
        },
        StartError::Engine { .. } => "; use --engine auto, epoll or threads",
        _ => "",
    };
    Failure::failed(format!("{error}{advice}"))
}
