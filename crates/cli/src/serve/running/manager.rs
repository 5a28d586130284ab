//! The service manager: the sockets that it passes on, and the notifications to it (systemd, and
//! managers with its protocol).

use std::collections::HashMap;
use std::env;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tidewire::{Endpoint, Observer};
use tidewire_handover::Handed;

use crate::exit::Failure;

/// How often the service manager is asked for more time while the server recovers, and how much.
const EXTEND_EVERY: Duration = Duration::from_secs(10);
const EXTEND_BY: Duration = Duration::from_secs(30);

/// Says how far the server is, if a manager listens.
#[derive(Default)]
pub(crate) struct Manager {
    beat: Mutex<Option<Beat>>,
}

impl Manager {
    /// Says that the server starts, which may take a while.
    pub(crate) fn recovering(&self) {
        tell(&[NotifyState::Status("recovering")]);
        self.beat_with(EXTEND_EVERY, || {
            tell(&[extend(EXTEND_BY)]);
        });
    }

    /// Tells the service manager that the server serves. From now on it is watched whether its
    /// loops turn, if that is wanted.
    pub(crate) fn serving(&self, observer: Observer) {
        self.ready();
        self.stop_beat();
        if let Some(within) = sd_notify::watchdog_enabled() {
            let mut loops = Loops::new(observer);
            self.beat_with(within / 3, move || {
                if loops.turn() {
                    tell(&[NotifyState::Watchdog]);
                } else {
                    tracing::error!(
                        "a loop is stuck: the watchdog of the service manager is not fed"
                    );
                }
            });
        }
    }

    pub(crate) fn ready(&self) {
        tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
    }

    /// Tells the service manager that files are read again, until the server is
    /// [ready](Manager::ready).
    pub(crate) fn reloading(&self) {
        let now = NotifyState::monotonic_usec_now();
        match now {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// Says that the server stops, and how long that may take.
    pub(crate) fn stopping(&self, most: Duration) {
        self.stop_beat();
        tell(&[NotifyState::Stopping, extend(most + EXTEND_BY)]);
    }

    /// Another process is the server now. That process announces its readiness itself.
    pub(crate) fn succeeded_by(&self, pid: u32) {
        self.stop_beat();
        tell(&[NotifyState::MainPid(pid)]);
    }

    pub(crate) fn status(&self, text: &str) {
        tell(&[NotifyState::Status(text)]);
    }

    fn beat_with(&self, every: Duration, beat: impl FnMut() + Send + 'static) {
        if env::var_os("NOTIFY_SOCKET").is_some() {
            *self.lock() = Some(Beat::start(every, beat));
        }
    }

    fn stop_beat(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Beat>> {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn extend(by: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX))
}

/// Sends a state to the service manager, if one listens. A service manager that cannot be reached
/// must not end a server.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager is not reached");
    }
}

/// Says something again and again, on a thread of its own, until it is dropped.
struct Beat {
    _stop: Sender<()>,
}

impl Beat {
    fn start(every: Duration, mut beat: impl FnMut() + Send + 'static) -> Beat {
        let (stop, stopped) = channel::<()>();
        // The thread is not joined: it ends when the sender is dropped.
        std::thread::spawn(move || {
            beat();
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                beat();
            }
        });
        Beat { _stop: stop }
    }
}

/// Whether loops turn, from one look to the next.
struct Loops {
    observer: Observer,
    turns: HashMap<Arc<str>, u64>,
}

impl Loops {
    fn new(observer: Observer) -> Loops {
        Loops {
            observer,
            turns: HashMap::new(),
        }
    }

    /// Whether each loop waits for something to do, or has turned since the last look. Threads of
    /// single connections are not looked at: a stuck one delays only itself.
    fn turn(&mut self) -> bool {
        let mut all = true;
        for of in self.observer.loops() {
            if of.thread.is_some() {
                let turns = of.counters.turns;
                let before = self.turns.insert(of.name, turns);
                all &= of.waits || before != Some(turns);
            }
        }
        all
    }
}

/// The sockets that the service manager passes on, under their names. Once in a process.
pub(crate) fn sockets() -> Result<Vec<Handed>, Failure> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let names: Vec<&str> = names.split(':').collect();
    let mut all: Vec<Handed> = Vec::new();
    for i in 0..passed.len() {
        let service = names.get(i).copied().unwrap_or_default();
        let wrong = |e| {
            Failure::failed(format!(
                "cannot use the socket {service:?} of the service manager, which is neither a TCP nor a Unix stream \
                 socket: {e}"
            ))
        };
        let (socket, at) = take(&mut passed, i).map_err(wrong)?;
        match all
            .iter_mut()
            .find(|of| of.service == service && of.at == at)
        {
            // Several sockets of one place, with ReusePort= say.
            Some(same) => same.sockets.push(socket),
            None => all.push(Handed {
                service: service.into(),
                at,
                is_given: true,
                owns_file: false,
                sockets: vec![socket],
            }),
        }
    }
    Ok(all)
}

fn take(passed: &mut ListenFd, i: usize) -> std::io::Result<(OwnedFd, Endpoint)> {
    let socket: OwnedFd = match passed.take_tcp_listener(i) {
        Ok(Some(tcp)) => tcp.into(),
        _ => match passed.take_unix_listener(i)? {
            Some(unix) => unix.into(),
            None => return Err(std::io::ErrorKind::NotFound.into()),
        },
    };
    let at = Endpoint::of_socket(&socket)?;
    Ok((socket, at))
}
