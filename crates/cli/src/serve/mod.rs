//! `tidewire serve`: the ready servers in one process, on one set of loops.
//!
//! Settings come from flags and a file ([`args`]), are checked as a whole ([`settings`]), become
//! listeners ([`endpoint`], [`services`]), with a durable log where a service needs one ([`log`]), and
//! run until a signal asks for the end ([`crate::signals`]).

mod admin;
mod admission;
mod args;
mod blocked;
mod counted;
mod door;
mod durable;
mod endpoint;
mod full_disk;
mod guard;
mod kv;
mod listen_at;
mod log;
mod open;
mod services;
mod settings;
mod shown;
mod socket_access;
mod tls;

use std::io::{self, Write};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use tidewire::admission::Admission;
use tidewire::{Builder, Counters, EngineChoice, LoopFailed, Running, StartError};
use tidewire_admin::{Admin, Listener, Panel, Stage};

pub(crate) use args::Args;
pub(crate) use durable::DIRECTORY;
pub(crate) use endpoint::Kind;
pub(crate) use log::KV_DIRECTORY;

use self::blocked::Blocked;
use self::durable::OnLogFailure;
use self::endpoint::{Endpoint, Named};
use self::full_disk::FullDisk;
use self::log::{Logs, OpenLog};
use self::services::Services;
use self::settings::Settings;
use self::tls::Fronts;
use crate::allocator;
use crate::descriptors;
use crate::exit::Failure;
use crate::logging::Logging;
use crate::signals::{Alarm, Hangups, Heard, Signals};

/// Runs until a signal.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let mut settings = Settings::from(args)?;
    settings.close_side_doors()?;
    let logging = Logging::start(settings.log_format, settings.log.as_deref())?;
    settings.warn_of_strangers();
    let descriptors = descriptors::raise_limit();
    if settings.engine == EngineChoice::Threads || !settings.serves_kv() {
        allocator::small_pages();
    }
    // Before anything listens: a signal from here on means a graceful stop.
    let (mut signals, alarm) = Signals::with_alarm()
        .map_err(|e| Failure::usage(format!("cannot catch SIGTERM and SIGINT: {e}")))?;
    let mut hangups =
        Hangups::catch().map_err(|e| Failure::usage(format!("cannot catch SIGHUP: {e}")))?;
    // Before a log is opened, which may take a while: whoever asks is told that this server recovers.
    let panel = admin::panel(&settings, &logging);
    let admin = admin::start(&settings.admin, &panel)?;
    let mut logs = Logs::default();
    if settings.need_log() {
        logs.messages = Some(OpenLog::open(&settings.durable)?);
    }
    if let Some(policy) = settings.kv_durability() {
        logs.kv = Some(OpenLog::open_kv(&settings.durable, policy)?);
    }
    let fronts = Fronts::new(settings.handshake);
    let (running, services) = start(&settings, &fronts, &logs)?;
    show_on(&panel, &settings, &running, &services, &logs);
    fronts.warn();
    let loops = running.waiter();
    let theirs = loops.clone();
    let alarm = Arc::new(alarm);
    let (rung, once) = (alarm.clone(), Once::new());
    // Once: a second one would be a second signal.
    services.on_shutdown(move || once.call_once(|| rung.ring()));
    watch(move || theirs.wait().is_err(), alarm);
    tracing::info!(
        engine = %running.engine(),
        reason = running.engine_reason(),
        workers = settings.workers,
        descriptors,
        "serving"
    );
    announce(&settings.endpoints, &running, &logs, admin.as_ref())
        .map_err(|e| Failure::usage(format!("cannot write to stdout where it listens: {e}")))?;
    let heard = (&mut signals, &mut hangups);
    wait(&settings, heard, &fronts, &mut logs, &services, || {
        tracing::info!(counters = %running.counters(), "so far");
        services.log();
    });
    panel.set_stage(Stage::Draining);
    stop(running, signals, settings.stop_deadline);
    services.log();
    services.let_go_of_logs();
    logs.close()?;
    if services.has_failed() {
        return Err(Failure::wrong(
            "the key-value store has stopped taking changes, see what the log says above; start the \
             server again",
        ));
    }
    loops.wait().map_err(loop_failed)
}

/// Lets those who ask the admin listener see what runs.
fn show_on(
    panel: &Panel,
    settings: &Settings,
    running: &Running,
    services: &Arc<Services>,
    logs: &Logs,
) {
    let listeners = settings.endpoints.iter().zip(running.addrs());
    let listeners = listeners.map(|(endpoint, addr)| Listener {
        service: Named(vec![endpoint.kind]).to_string(),
        addr: addr.to_string(),
    });
    panel.show(running.observer(), listeners.collect());
    let services = services.clone();
    panel.add(move |to| services.collect(to));
    for (name, log) in [("messages", &logs.messages), ("kv", &logs.kv)] {
        if let Some(log) = log.as_ref().map(OpenLog::watched) {
            panel.add(move |to| log.collect(name, to));
        }
    }
    panel.set_stage(Stage::Serving);
}

/// A server with a loop missing is worse than none: connections hang, and nobody restarts it.
fn watch(fails: impl FnOnce() -> bool + Send + 'static, alarm: Arc<Alarm>) {
    // Not joined: it ends with the loops.
    std::thread::spawn(move || {
        if fails() {
            alarm.ring();
        }
    });
}

fn loop_failed(failed: LoopFailed) -> Failure {
    Failure::wrong(format!(
        "{failed}; its connections were cut and the server has stopped. This is a mistake in the \
         server: please report what the log says above, and start it again"
    ))
}

/// How often the log is asked whether it has failed.
const LOOK: Duration = Duration::from_secs(1);

/// Until a signal comes, or a loop fails, or the log has failed and that is to be the end; `show` is called as often
/// as counters are to be shown.
fn wait(
    settings: &Settings,
    (signals, hangups): (&mut Signals, &mut Hangups),
    fronts: &Fronts,
    logs: &mut Logs,
    services: &Services,
    show: impl Fn(),
) {
    let mut shown = Instant::now();
    let mut full = FullDisk::default();
    let mut blocked = Blocked::default();
    loop {
        let next = settings
            .stats_interval
            .map(|every| every.saturating_sub(shown.elapsed()));
        let look = (!logs.is_empty()).then_some(LOOK);
        // A pause of zero would be none at all.
        let pause = [next, look].into_iter().flatten().min();
        let pause = pause.map(|pause| pause.max(Duration::from_millis(1)));
        match signals.wait_or_hangup(hangups, pause) {
            Heard::End => return,
            Heard::Hangup => {
                reload(fronts);
                reload_tokens(settings, services);
            }
            Heard::Nothing => {}
        }
        // Each of them is to be told of.
        let failed = logs.each().fold(services.has_failed(), |failed, log| {
            log.has_failed() | failed
        });
        if failed && settings.on_log_failure == OnLogFailure::Exit {
            return;
        }
        full.look(services.refused_by_full_disk());
        let why = logs.each().find_map(|log| log.blocked());
        blocked.look(why.as_deref());
        if settings
            .stats_interval
            .is_some_and(|every| shown.elapsed() >= every)
        {
            shown = Instant::now();
            show();
        }
    }
}

/// What SIGHUP asks for. A mistake in the files must not end a server that serves.
fn reload(fronts: &Fronts) {
    match fronts.reload() {
        Ok(0) => {
            tracing::info!("SIGHUP: no listener speaks TLS, so there is nothing to read again")
        }
        Ok(listeners) => {
            tracing::info!(listeners, "SIGHUP: the files of TLS were read again");
            fronts.warn();
        }
        Err(Failure { message, .. }) => {
            tracing::error!(why = message, "SIGHUP: nothing has changed");
        }
    }
}

/// The same for the tokens of ingest. Files that now hold none are taken for a mistake: without tokens
/// everybody on this host would be let in.
fn reload_tokens(settings: &Settings, services: &Services) {
    let had = !settings.ingest.tokens.is_empty();
    match settings.token_source.read() {
        Ok(tokens) if had && tokens.is_empty() => {
            tracing::error!("SIGHUP: there would be no tokens any more: nothing has changed");
        }
        Ok(tokens) if had || !tokens.is_empty() => {
            let count = tokens.len();
            if services.change_tokens(tokens) {
                tracing::info!(
                    tokens = count,
                    "SIGHUP: the tokens of ingest were read again"
                );
            }
        }
        Ok(_) => {}
        Err(Failure { message, .. }) => {
            tracing::error!(
                why = message,
                "SIGHUP: the tokens of ingest have not changed"
            );
        }
    }
}

fn start(
    settings: &Settings,
    fronts: &Fronts,
    logs: &Logs,
) -> Result<(Running, Arc<Services>), Failure> {
    let mut builder = Builder::new();
    builder
        .engine(settings.engine)
        .loops(settings.workers)
        .placement(settings.placement)
        .cpus(&settings.cpus)
        .busy_poll(settings.busy_poll);
    if let Some(bytes) = settings.memory {
        builder.memory(bytes);
    }
    if let Some(threshold) = settings.stall_threshold {
        builder.watch(threshold);
    }
    let all = settings.admission.rules_of_all();
    if !all.is_empty() {
        builder.admission(Admission::new(all));
    }
    let services = Services::add(&mut builder, settings, fronts, logs)?;
    let running = builder.start().map_err(|e| cannot_start(&e))?;
    services.listening(&settings.endpoints, running.addrs());
    Ok((running, Arc::new(services)))
}

fn cannot_start(error: &StartError) -> Failure {
    let advice = match error {
        StartError::Listen { source, .. } => match source.kind() {
            // What is found at the path of a Unix socket is said already.
            io::ErrorKind::AddrInUse if source.raw_os_error().is_none() => "",
            io::ErrorKind::AddrInUse => {
                "; another process listens there: stop it, or choose other places with \
                 --listen SERVICE=ADDR (port 0 takes any free one)"
            }
            io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need the right to bind them",
            _ => "; see --listen, --bind and --congestion",
        },
        StartError::Engine { .. } => "; use --engine auto, epoll or threads",
        _ => "",
    };
    Failure::usage(format!("{error}{advice}"))
}

/// One line for each listener, for people and for programs that started this one.
fn announce(
    endpoints: &[Endpoint],
    running: &Running,
    logs: &Logs,
    admin: Option<&Admin>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (endpoint, addr) in endpoints.iter().zip(running.addrs()) {
        write!(out, "listening service={}", endpoint.kind.service())?;
        if let Some(mode) = endpoint.kind.mode() {
            write!(out, " mode={mode}")?;
        }
        write!(out, " addr={addr} engine={}", running.engine())?;
        write!(out, "{}", endpoint.front.described())?;
        match endpoint.kind {
            Kind::Ingest => {
                if let Some(log) = &logs.messages {
                    let directory = word(&log.directory.to_string_lossy());
                    write!(out, " dir={directory} policy={}", log.policy())?;
                }
            }
            Kind::Kv(_) => match &logs.kv {
                Some(log) => {
                    let directory = word(&log.directory.to_string_lossy());
                    write!(out, " durability={} dir={directory}", log.policy())?;
                }
                None => write!(out, " durability=none")?,
            },
            Kind::Echo | Kind::Http | Kind::Ack(_) | Kind::Discard => {}
        }
        writeln!(out)?;
    }
    if let Some(admin) = admin {
        // Last: whoever counts lines counts those of the services.
        writeln!(
            out,
            "listening service=admin addr={} engine=epoll",
            admin.addr()
        )?;
    }
    out.flush()
}

/// A text as one word of a line.
fn word(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_whitespace() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

fn stop(running: Running, mut signals: Signals, deadline: Duration) {
    tracing::info!(
        deadline_s = deadline.as_secs_f64(),
        "stopping; a second signal ends at once"
    );
    let stopper = running.stopper();
    // Not joined: it waits for a signal that need not come.
    std::thread::spawn(move || {
        if signals.wait(None) > 0 {
            tracing::warn!("second signal: cutting all connections");
            stopper.stop_now();
        }
    });
    let counters: Counters = running.stop(deadline);
    tracing::info!(%counters, "stopped");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_fails_ends_the_wait_and_a_stop_does_not() {
        let (mut signals, alarm) = Signals::with_alarm().unwrap();
        watch(|| true, Arc::new(alarm));
        assert_eq!(signals.wait(None), 1);
        let (mut signals, alarm) = Signals::with_alarm().unwrap();
        watch(|| false, Arc::new(alarm));
        assert_eq!(signals.wait(Some(Duration::from_millis(50))), 0);
    }
}
