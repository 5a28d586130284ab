//! Gathers the visible state of a server from its parts.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tidewire::Observer;

use crate::catalogue::server as metrics;
use crate::json::{Listener, Page};
use crate::snapshot::Snapshot;
use crate::{loops, process};

/// The stage of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The server does not serve yet: for example, a log is being opened.
    Recovering,
    /// The server serves.
    Serving,
    /// The server stops: connections are told, and wait for what is under way.
    Draining,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Recovering, Stage::Serving, Stage::Draining];

    /// The name of the stage.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Recovering => "recovering",
            Stage::Serving => "serving",
            Stage::Draining => "draining",
        }
    }
}

/// The log levels, which can be changed while the server runs.
pub trait Levels: Send + Sync + 'static {
    /// The filter in force.
    fn shown(&self) -> String;

    /// Logs by this filter from now on.
    ///
    /// # Errors
    /// The reason why the text is no filter; the old filter stays.
    fn set(&self, filter: &str) -> Result<(), String>;
}

type Source = Box<dyn Fn(&mut Snapshot) + Send + Sync>;

/// Gathers the figures and settings of a server for the admin listener. A clone is another handle
/// on the same panel.
///
/// ```
/// use tidewire_admin::{Panel, Stage, catalogue};
///
/// let panel = Panel::new(serde_json::json!({ "engine": "auto" }));
/// panel.add(|to| to.add(&catalogue::kv::HITS, &[], 7_u64));
/// panel.set_doing("opening the log, 3 of 9 segments".into());
/// assert_eq!(panel.state(), "recovering: opening the log, 3 of 9 segments");
/// panel.set_stage(Stage::Serving);
/// panel.halts_where(|| Some("its disk is full".into()));
/// assert_eq!((panel.state(), panel.is_ready()), ("halted: its disk is full".into(), false));
/// panel.halts_where(|| None);
/// assert!(panel.snapshot().to_prometheus().contains("tidewire_kv_hits_total 7\n"));
/// assert_eq!(panel.page().state, "serving");
/// ```
#[derive(Clone)]
pub struct Panel(Arc<Inner>);

struct Inner {
    began: Instant,
    stage: AtomicU8,
    seen: Mutex<Seen>,
}

/// Returns why a server accepts no data for now.
type Halted = dyn Fn() -> Option<String> + Send + Sync;

#[derive(Default)]
struct Seen {
    config: serde_json::Value,
    server: Option<(Observer, Vec<Listener>)>,
    sources: Vec<Arc<Source>>,
    levels: Option<Arc<dyn Levels>>,
    /// The server's present work in its stage, and its progress.
    doing: String,
    /// The function that returns why the server accepts no data, though it serves.
    halted: Option<Arc<Halted>>,
}

impl fmt::Debug for Panel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Panel({})", self.stage().name())
    }
}

impl Panel {
    /// The panel of a server that recovers. `config` is what `/config` shows: no secret may be in
    /// it.
    #[must_use]
    pub fn new(config: serde_json::Value) -> Panel {
        Panel(Arc::new(Inner {
            began: Instant::now(),
            stage: AtomicU8::new(Stage::Recovering as u8),
            seen: Mutex::new(Seen {
                config,
                ..Seen::default()
            }),
        }))
    }

    /// The present stage of the server.
    #[must_use]
    pub fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.0.stage.load(Relaxed))]
    }

    /// Sets the server's stage. The progress text of the former stage is removed.
    pub fn set_stage(&self, stage: Stage) {
        self.0.stage.store(stage as u8, Relaxed);
        self.seen().doing.clear();
    }

    /// Says in a few words what the server is doing in its stage, and how far that is: `/ready` shows it.
    pub fn set_doing(&self, doing: String) {
        self.seen().doing = doing;
    }

    /// `halted` says why the server takes nothing for now, though it serves what it has; `None` if it takes what comes. It is asked for each
    /// request, on the admin listener's loop, in the place of what was given before.
    pub fn halts_where(&self, halted: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.seen().halted = Some(Arc::new(halted));
    }

    fn halted(&self) -> Option<String> {
        // Asked without the lock: the answer may take one of its own.
        let halted = self.seen().halted.clone();
        halted.and_then(|halted| halted())
    }

    /// Whether the server serves and accepts new data.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.readiness().0
    }

    /// How far the server is, in words.
    #[must_use]
    pub fn state(&self) -> String {
        self.readiness().1
    }

    /// Whether it serves, and takes what comes; and how far it is, in words.
    #[must_use]
    pub fn readiness(&self) -> (bool, String) {
        let stage = self.stage();
        if stage == Stage::Serving
            && let Some(why) = self.halted()
        {
            return (false, format!("halted: {why}"));
        }
        let doing = self.seen().doing.clone();
        let state = match doing.is_empty() {
            true => stage.name().into(),
            false => format!("{}: {doing}", stage.name()),
        };
        (stage == Stage::Serving, state)
    }

    /// Replaces what `/config` shows: more is known once a server runs. The configuration must not
    /// contain a secret.
    pub fn set_config(&self, config: serde_json::Value) {
        self.seen().config = config;
    }

    /// Shows the loops of a running server, and where it listens.
    pub fn show(&self, observer: Observer, listeners: Vec<Listener>) {
        self.seen().server = Some((observer, listeners));
    }

    /// Adds a source, which is asked for its metrics for each request. The source is called on the
    /// admin listener's loop.
    pub fn add(&self, source: impl Fn(&mut Snapshot) + Send + Sync + 'static) {
        self.seen().sources.push(Arc::new(Box::new(source)));
    }

    /// Lets clients with the token change what is logged.
    pub fn set_levels(&self, levels: impl Levels) {
        self.seen().levels = Some(Arc::new(levels));
    }

    pub(crate) fn levels(&self) -> Option<Arc<dyn Levels>> {
        self.seen().levels.clone()
    }

    /// Drops all sources.
    pub(crate) fn clear(&self) {
        *self.seen() = Seen::default();
    }

    /// The effective settings.
    pub(crate) fn config(&self) -> String {
        let mut config = self.seen().config.clone();
        if let (Some(levels), Some(map)) = (self.levels(), config.as_object_mut()) {
            map.insert("log-filter".into(), levels.shown().into());
        }
        format!("{config:#}\n")
    }

    /// All metrics, now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        // Not under the lock: sources take locks of their own.
        let (server, sources) = {
            let seen = self.seen();
            (seen.server.clone(), seen.sources.clone())
        };
        if let Some((observer, _)) = &server {
            loops::collect(observer, &mut snapshot);
        }
        snapshot.add(&metrics::READY, &[], self.stage() == Stage::Serving);
        process::collect(&mut snapshot);
        for source in sources {
            source(&mut snapshot);
        }
        snapshot
    }

    /// All there is to see, now.
    #[must_use]
    pub fn page(&self) -> Page {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut page = Page {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            time: now.as_secs_f64(),
            uptime_seconds: self.0.began.elapsed().as_secs_f64(),
            state: self.stage().name().into(),
            doing: self.seen().doing.clone(),
            ..Page::default()
        };
        if let Some((observer, listeners)) = &self.seen().server {
            page.engine = observer.engine().to_string();
            page.engine_reason = observer.engine_reason().into();
            page.listeners.clone_from(listeners);
        }
        page.set_metrics(&self.snapshot());
        page
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    /// The page said what a turn of the server had found some time before.
    #[test]
    fn whether_a_server_takes_nothing_is_asked_for_each_answer() {
        let panel = Panel::new(serde_json::Value::Null);
        let is_full = Arc::new(AtomicBool::new(true));
        let asked = is_full.clone();
        panel.halts_where(move || asked.load(Relaxed).then(|| "its disk is full".into()));
        assert_eq!(panel.readiness(), (false, "recovering".into()));
        panel.set_stage(Stage::Serving);
        assert_eq!(
            panel.readiness(),
            (false, "halted: its disk is full".into())
        );
        is_full.store(false, Relaxed);
        assert_eq!(panel.readiness(), (true, "serving".into()));
    }
}
