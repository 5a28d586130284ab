//! Logs on stderr, for people or for machines. A logging thread never waits for stderr: lines go to
//! a bounded queue that a thread of its own writes out ([`writer`]), in the form that was asked for
//! ([`line`], [`stamp`]).

mod line;
mod stamp;
mod writer;

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use self::line::Lines;
pub(crate) use self::line::LogFormat;
pub(crate) use self::writer::Counts;
use self::writer::Queue;
use crate::colours;
use crate::exit::Failure;

/// The default filter of the log.
const DEFAULT: &str = "info";

/// Lines about connections.
const CONNECTIONS: &str = "tidewire::connection";

/// Logging is on as long as this value lives. Dropping it writes out what is queued, for a second
/// at most.
pub(crate) struct Logging {
    levels: Levels,
    queue: Queue,
}

/// The log filter, which can be read and changed while the server runs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Levels {
    handle: reload::Handle<EnvFilter, Registry>,
    connections: bool,
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Levels({})", self.shown())
    }
}

impl Levels {
    /// The filter in force, in the form that `--log` takes.
    pub(crate) fn shown(&self) -> String {
        let shown = self.handle.with_current(ToString::to_string);
        let shown = shown.unwrap_or_default();
        // The user did not ask for connection lines.
        let unsaid = format!("{CONNECTIONS}=off");
        let said = shown.split(',').filter(|directive| *directive != unsaid);
        said.collect::<Vec<_>>().join(",")
    }

    /// Logs by this filter from now on.
    ///
    /// # Errors
    /// The error that the text is no filter; the old filter stays.
    pub(crate) fn set(&self, filter: &str) -> Result<(), String> {
        let parsed = parse(filter, self.connections)?;
        self.handle.reload(parsed).map_err(|e| e.to_string())
    }
}

/// Parses a filter; lines about connections are logged only if `connections` is set or the filter
/// names their target.
fn parse(filter: &str, connections: bool) -> Result<EnvFilter, String> {
    if filter.trim().is_empty() {
        return Err("a filter is a level, or target=level pairs with commas in between".into());
    }
    for word in filter.split(',').map(str::trim) {
        // The word would be taken for a target that no code logs under.
        let is_word = !word.contains(['=', '[', ':']) && !word.starts_with("tidewire");
        if is_word && word.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{word:?} is no level: off, error, warn, info, debug or trace, or target=level"
            ));
        }
    }
    let parsed = EnvFilter::try_new(filter).map_err(|e| e.to_string())?;
    if filter.contains(CONNECTIONS) {
        return Ok(parsed);
    }
    let level = if connections { "info" } else { "off" };
    let directive = format!("{CONNECTIONS}={level}").parse();
    directive
        .map(|directive| parsed.add_directive(directive))
        .map_err(|e: tracing_subscriber::filter::ParseError| e.to_string())
}

impl Logging {
    /// Starts logging for the rest of the process. The filter is what `--log` takes: a level, or
    /// `target=level` pairs; without one, `RUST_LOG`, and without that, `info`. Without a format, text for a
    /// terminal, else logfmt. `connections` says whether there is a line for each.
    pub(crate) fn start(
        format: Option<LogFormat>,
        filter: Option<&str>,
        connections: bool,
    ) -> Result<Logging, Failure> {
        let wrong = |text, e| Failure::usage(format!("--log {text:?} is no filter: {e}"));
        let filter = match filter {
            Some(text) => parse(text, connections).map_err(|e| wrong(text, e))?,
            None => std::env::var(EnvFilter::DEFAULT_ENV)
                .ok()
                .and_then(|text| parse(&text, connections).ok())
                .map_or_else(|| parse(DEFAULT, connections), Ok)
                .map_err(|e| wrong(DEFAULT, e))?,
        };
        let terminal = io::stderr().is_terminal();
        let format = format.unwrap_or(match terminal {
            true => LogFormat::Text,
            false => LogFormat::Logfmt,
        });
        let queue = Queue::start(io::stderr())
            .map_err(|e| Failure::failed(format!("cannot start the thread that logs: {e}")))?;
        let (filter, handle) = reload::Layer::new(filter);
        let lines = tracing_subscriber::fmt::layer()
            // Internal errors would go to stderr too, and panic where that is full or gone.
            .log_internal_errors(false)
            .with_ansi(colours::wanted(terminal))
            .event_format(Lines::new(format))
            .with_writer(queue.clone());
        let all = tracing_subscriber::registry().with(filter).with(lines);
        // Only a test starts twice in a process.
        let _ = all.try_init();
        Ok(Logging {
            levels: Levels {
                handle,
                connections,
            },
            queue,
        })
    }

    /// The log filter, to be read or changed.
    pub(crate) fn levels(&self) -> Levels {
        self.levels.clone()
    }

    /// A function that counts the written and the dropped lines, to be called at any time.
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
        let connections = false;
        let levels = Levels {
            handle,
            connections,
        };
        assert_eq!(levels.shown(), "info");
        levels.set("warn,tidewire=debug").unwrap();
        assert!(levels.shown().contains("tidewire=debug"), "{levels:?}");
        for wrong in ["", "[", "a=b=c", "verbose", "info,loud", "5x"] {
            levels.set(wrong).unwrap_err();
        }
        assert!(levels.shown().contains("tidewire=debug"), "{levels:?}");
    }

    #[test]
    fn connections_are_logged_where_that_is_wanted_or_said() {
        let shown = |filter, connections| parse(filter, connections).unwrap().to_string();
        assert!(shown("debug", false).contains("tidewire::connection=off"));
        assert!(shown("debug", true).contains("tidewire::connection=info"));
        let said = shown("warn,tidewire::connection=debug", false);
        assert!(said.contains("tidewire::connection=debug"), "{said}");
        assert!(!said.contains("off"), "{said}");
    }
}
