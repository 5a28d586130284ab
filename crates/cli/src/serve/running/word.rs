//! Words of the lines that say where a server listens.

/// A text as one word of a line.
pub(crate) fn word(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_whitespace() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}
