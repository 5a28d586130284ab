//! Patterns as in file names: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before anything.

/// Whether all of `text` matches. The time is at most the product of both lengths.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last star does not match: with one byte more under it.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            (Some(_), Some(&byte)) => one(&pattern[p..], byte),
            (None, Some(_)) | (Some(_), None) => None,
        };
        match (step, retry) {
            (Some(len), _) => {
                p += len;
                t += 1;
            }
            (None, Some((after_star, at))) if at < text.len() => {
                retry = Some((after_star, at + 1));
                (p, t) = (after_star, at + 1);
            }
            _ => return false,
        }
    }
}

/// The length of the pattern's first element if it matches this byte; it is not a star.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => set(rest, byte).map(|len| len + 1),
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// The length of a set behind its bracket if it has this byte. One that is not closed ends with
/// the pattern.
fn set(pattern: &[u8], byte: u8) -> Option<usize> {
    let (negated, mut at) = match pattern.first() {
        Some(b'^') => (true, 1),
        _ => (false, 0),
    };
    let mut found = false;
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [member, ..] => {
                found |= *member == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b", "xaxb", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("a[", "ab", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
