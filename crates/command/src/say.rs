//! Output for stderr and stdout. If a text cannot be written (closed, full), the text is lost and
//! the command goes on: `eprintln!` and `println!` would end the command in a panic, with a status
//! that does not say why it failed.

use std::fmt;
use std::io::{self, Write};

/// A line on stderr.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say::write(format_args!("{}\n", format_args!($($words)*))) };
}

/// A result on stdout, with a line end.
#[macro_export]
macro_rules! show_line {
    () => { $crate::say::show(format_args!("\n")) };
    ($($words:tt)*) => { $crate::say::show(format_args!("{}\n", format_args!($($words)*))) };
}

/// A result on stdout, as it is.
#[macro_export]
macro_rules! show {
    ($($words:tt)*) => { $crate::say::show(format_args!($($words)*)) };
}

/// Writes a text to stdout without a change. A reader that stops early is no mistake; a failed
/// write is reported.
pub fn show(words: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let shown = out.write_all(words.to_string().as_bytes());
    match shown.and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            say!("tidewire: cannot write the result: {e}")
        }
        _ => {}
    }
}

/// Writes a text to stdout without a change.
pub fn write(words: fmt::Arguments<'_>) {
    // In one piece, so that lines of several threads do not mix.
    let _ = io::stderr().lock().write_all(words.to_string().as_bytes());
}
