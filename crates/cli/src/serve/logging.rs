//! Logs on stderr, for people or for machines.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::args::LogFormat;
use crate::exit::Failure;

/// Starts logging for the rest of the process. The filter is what `--log` takes: a level, or
/// `target=level` pairs; without one, `RUST_LOG`, and without that, `info`.
pub(crate) fn start(format: LogFormat, filter: Option<&str>) -> Result<(), Failure> {
    let filter = match filter {
        Some(text) => EnvFilter::try_new(text)
            .map_err(|e| Failure::usage(format!("--log {text:?} is no filter: {e}")))?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would be said on stderr too, and panic where that is full or gone.
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
