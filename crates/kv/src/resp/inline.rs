//! Commands typed as a line: words, some of them in quotes.

/// The words of a line; `None` if a quote is not closed or is followed by anything but a blank.
///
/// Between double quotes `\n \r \t \b \a`, `\xHH` and a backslash before any other character mean
/// what they mean in C; between single quotes only `\'` is an escape.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|&b| blank(b)) {
            at += 1;
        }
        if at >= line.len() || line[at] == 0 {
            return Some(words);
        }
        let mut word = Vec::new();
        at = read_word(line, at, &mut word)?;
        words.push(word);
    }
}

/// Reads the word at `at`; returns where the word ends.
fn read_word(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    while let Some(&b) = line.get(at) {
        match b {
            b'"' => return double_quoted(line, at + 1, word),
            b'\'' => return single_quoted(line, at + 1, word),
            0 => return Some(at),
            b if blank(b) => return Some(at),
            b => word.push(b),
        }
        at += 1;
    }
    Some(at)
}

fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'\\' => {
                if let (b'x', Some(high), Some(low)) = (
                    *line.get(at + 1)?,
                    line.get(at + 2).and_then(|&b| hex(b)),
                    line.get(at + 3).and_then(|&b| hex(b)),
                ) {
                    word.push(high << 4 | low);
                    at += 4;
                    continue;
                }
                word.push(match line[at + 1] {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 2;
            }
            b'"' => return after_quote(line, at + 1),
            b => {
                word.push(b);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'\\' if line.get(at + 1) == Some(&b'\'') => {
                word.push(b'\'');
                at += 2;
            }
            b'\'' => return after_quote(line, at + 1),
            b => {
                word.push(b);
                at += 1;
            }
        }
    }
}

/// Checks that a closing quote ends its word.
fn after_quote(line: &[u8], at: usize) -> Option<usize> {
    line.get(at).is_none_or(|&b| blank(b)).then_some(at)
}

fn blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn hex(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(
            words
                .into_iter()
                .map(|w| w.iter().map(|&b| b as char).collect())
                .collect(),
        )
    }

    #[test]
    fn words_and_quotes() {
        let some = |w: &[&str]| Some(w.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        assert_eq!(words("  set  a\tb "), some(&["set", "a", "b"]));
        assert_eq!(words(r#"set "a b" 'c d'"#), some(&["set", "a b", "c d"]));
        assert_eq!(words(r#""\x41\n\t\"\q""#), some(&["A\n\t\"q"]));
        assert_eq!(words(r#""\xzz""#), some(&["xzz"]));
        assert_eq!(words(r"'it\'s \n'"), some(&["it's \\n"]));
        assert_eq!(words(r#"x"y z""#), some(&["xy z"]));
        assert_eq!(words(r#""""#), some(&[""]));
        assert_eq!(words(""), some(&[]));
    }

    #[test]
    fn quotes_must_close_and_end_their_word() {
        for bad in [r#"set "a"#, r"set 'a", r#""a"b"#, "'a'b", r#""a\"#] {
            assert_eq!(words(bad), None, "{bad}");
        }
    }
}
