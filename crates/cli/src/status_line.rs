//! One line of progress on a terminal, written over itself.

use std::io::{self, IsTerminal, Write};

/// The line; nothing is shown where stderr is no terminal.
#[derive(Debug)]
pub(crate) struct StatusLine {
    terminal: bool,
    shown: bool,
}

impl StatusLine {
    pub(crate) fn new() -> StatusLine {
        StatusLine {
            terminal: io::stderr().is_terminal(),
            shown: false,
        }
    }

    /// Whether a terminal shows the line.
    pub(crate) fn is_seen(&self) -> bool {
        self.terminal
    }

    /// Shows a line in the place of the last.
    pub(crate) fn show(&mut self, line: &str) {
        if self.terminal {
            let mut err = io::stderr().lock();
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
            self.shown = true;
        }
    }

    /// Wipes the status line.
    pub(crate) fn wipe(&mut self) {
        if std::mem::take(&mut self.shown) {
            crate::say::write(format_args!("\r\x1b[K"));
        }
    }
}
