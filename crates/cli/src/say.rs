//! Words for whoever looks at stderr. Where it cannot be written (closed, full), they are lost and nothing else is:
//! `eprintln!` would end the command in a panic, with a status that says nothing of why it failed.

use std::fmt;
use std::io::{self, Write};

/// A line on stderr.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::write(format_args!("{}\n", format_args!($($words)*))) };
}

/// As it is.
pub(crate) fn write(words: fmt::Arguments<'_>) {
    // In one piece, so that lines of several threads do not mix.
    let _ = io::stderr().lock().write_all(words.to_string().as_bytes());
}
