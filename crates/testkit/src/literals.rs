//! The string literals of a source file, as they read when the program prints them.

/// A literal and the line on which it begins, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Literal {
    /// From 1.
    pub line: usize,
    /// Text of the literal. Lines that go on behind a backslash are joined; other escapes stand as
    /// they are written.
    pub text: String,
}

/// All string literals of a source, raw ones included; comments and character literals are passed over.
#[must_use]
pub fn literals(source: &str) -> Vec<Literal> {
    let bytes = source.as_bytes();
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(len) = character(rest) {
            at += len;
        } else if let Some((text, len)) = raw(rest).filter(|_| !ends_in_name(&source[..at])) {
            all.push(Literal {
                line: line_of(source, at),
                text: text.to_owned(),
            });
            at += len;
        } else if bytes[at] == b'"' {
            let len = quoted(rest);
            all.push(Literal {
                line: line_of(source, at),
                text: joined(&rest[1..len - 1]),
            });
            at += len;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    all
}

fn line_of(source: &str, at: usize) -> usize {
    1 + source[..at].matches('\n').count()
}

fn ends_in_name(before: &str) -> bool {
    before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The length of a character literal. A lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let mut chars = inner.char_indices();
    match chars.next()?.1 {
        '\\' => {
            chars.next();
            let (end, _) = chars.find(|(_, c)| *c == '\'')?;
            Some(1 + end + 1)
        }
        _ => {
            let (end, c) = chars.next()?;
            (c == '\'').then_some(1 + end + 1)
        }
    }
}

/// A raw literal's text, and its length with all that is around it.
fn raw(rest: &str) -> Option<(&str, usize)> {
    let after = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let text = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let len = text.find(&end)?;
    let before = rest.len() - text.len();
    Some((&text[..len], before + len + end.len()))
}

/// The length of a literal in quotes.
fn quoted(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Without the ends of lines that a backslash hides, and the blanks behind them.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_and_comments_are_not() {
        let source = "// \"no\"\nlet a = 'x'; let b: &'static str = \"one \\\n    two\";\nlet c = br#\"th\"ree\"#; let d = '\"'; let e = '\\'';\nf(\"a \\\" b\");";
        let found = literals(source);
        let texts: Vec<(usize, &str)> = found.iter().map(|l| (l.line, &*l.text)).collect();
        assert_eq!(texts, [(2, "one two"), (4, "th\"ree"), (5, "a \\\" b")]);
    }
}
