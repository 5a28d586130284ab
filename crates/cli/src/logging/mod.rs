//! Logs on stderr, for people or for machines. Whoever logs never waits for stderr: lines go to a bounded queue
//! that a thread of its own writes out ([`writer`]), in the form that was asked for ([`line`]).

mod line;
mod writer;

use std::fmt;
use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use self::line::Lines;
pub(crate) use self::line::LogFormat;
pub(crate) use self::writer::Counts;
use self::writer::Queue;
use crate::exit::Failure;

/// What is logged unless somebody says otherwise.
const DEFAULT: &str = "info";

/// Logging as long as it lives. Dropping it writes out what is queued, for a second at most.
pub(crate) struct Logging {
    levels: Levels,
    queue: Queue,
}

/// What is logged, to be seen and changed while it goes on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Levels(reload::Handle<EnvFilter, Registry>);

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Levels({})", self.shown())
    }
}

impl Levels {
    /// The filter in force, as `--log` takes it.
    pub(crate) fn shown(&self) -> String {
        let shown = self.0.with_current(ToString::to_string);
        shown.unwrap_or_default()
    }

    /// Logs by this filter from now on.
    ///
    /// # Errors
    /// It is no filter; nothing has changed.
    pub(crate) fn set(&self, filter: &str) -> Result<(), String> {
        let parsed = parse(filter)?;
        self.0.reload(parsed).map_err(|e| e.to_string())
    }
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    if filter.trim().is_empty() {
        return Err("a filter is a level, or target=level pairs with commas in between".into());
    }
    EnvFilter::try_new(filter).map_err(|e| e.to_string())
}

impl Logging {
    /// Starts logging for the rest of the process. The filter is what `--log` takes: a level, or
    /// `target=level` pairs; without one, `RUST_LOG`, and without that, `info`. Without a format, text for a
    /// terminal, else logfmt.
    pub(crate) fn start(
        format: Option<LogFormat>,
        filter: Option<&str>,
    ) -> Result<Logging, Failure> {
        let filter = match filter {
            Some(text) => parse(text)
                .map_err(|e| Failure::usage(format!("--log {text:?} is no filter: {e}")))?,
            None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT)),
        };
        let terminal = io::stderr().is_terminal();
        let format = format.unwrap_or(match terminal {
            true => LogFormat::Text,
            false => LogFormat::Logfmt,
        });
        let queue = Queue::start(io::stderr())
            .map_err(|e| Failure::usage(format!("cannot start the thread that logs: {e}")))?;
        let (filter, handle) = reload::Layer::new(filter);
        let lines = tracing_subscriber::fmt::layer()
            // They would be said on stderr too, and panic where that is full or gone.
            .log_internal_errors(false)
            .with_ansi(terminal)
            .event_format(Lines::new(format))
            .with_writer(queue.clone());
        let all = tracing_subscriber::registry().with(filter).with(lines);
        // Only a test starts twice in a process.
        let _ = all.try_init();
        Ok(Logging {
            levels: Levels(handle),
            queue,
        })
    }

    /// What is logged.
    pub(crate) fn levels(&self) -> Levels {
        self.levels.clone()
    }

    /// What became of the lines, to be asked at any time.
    pub(crate) fn counts(&self) -> impl Fn() -> Counts + Send + Sync + 'static {
        let queue = self.queue.clone();
        move || queue.counts()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.queue.flush(writer::PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_change_while_logging_goes_on() {
        let (layer, handle) = reload::Layer::new(EnvFilter::new("info"));
        let _registry = tracing_subscriber::registry().with(layer);
        let levels = Levels(handle);
        assert_eq!(levels.shown(), "info");
        levels.set("warn,tidewire=debug").unwrap();
        assert!(levels.shown().contains("tidewire=debug"), "{levels:?}");
        for wrong in ["", "[", "a=b=c"] {
            levels.set(wrong).unwrap_err();
        }
        assert!(levels.shown().contains("tidewire=debug"), "{levels:?}");
    }
}
