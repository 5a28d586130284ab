//! Sections of INFO.

use std::fmt::{Display, Write};

/// Adds a line.
pub(super) fn line(text: &mut String, name: &str, value: impl Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}
