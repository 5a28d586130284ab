//! The thread beside a run: it handles Ctrl-C, and shows progress on a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tidewire_load::workload::Progress;

use tidewire_command::exit::Failure;
use tidewire_load::numbers::grouped;

/// Runs shorter than this show no progress.
const SILENT: Duration = Duration::from_secs(1);

/// Tells a run whether to go on.
pub(crate) struct Watcher {
    interrupted: Arc<AtomicBool>,
    shown: bool,
}

impl Watcher {
    /// From now on SIGINT and SIGTERM end the run instead of the process.
    pub(crate) fn new() -> Result<Watcher, Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, interrupted.clone())
                .map_err(|e| Failure::failed(format!("cannot catch SIGINT and SIGTERM: {e}")))?;
        }
        Ok(Watcher {
            interrupted,
            shown: false,
        })
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Shows how far a run is; answers whether to go on.
    pub(crate) fn look(&mut self, progress: Progress) -> bool {
        if progress.elapsed > SILENT {
            let each = progress.requests as f64 / progress.elapsed.as_secs_f64();
            let seconds = progress.elapsed.as_secs_f64();
            self.show(&format!("{seconds:.1} s, {} messages/s", grouped(each)));
        }
        !self.interrupted()
    }

    /// Shows one line in the place of the last, if a terminal is there.
    pub(crate) fn show(&mut self, line: &str) {
        let mut err = io::stderr().lock();
        if err.is_terminal() {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
            self.shown = true;
        }
    }

    /// Wipes the shown line.
    pub(crate) fn done(&mut self) {
        if std::mem::take(&mut self.shown) {
            tidewire_command::say::write(format_args!("\r\x1b[K"));
        }
    }
}
