//! Integers as Redis reads them: one spelling for each value.

/// Reads a decimal integer: no `+`, no leading zeros, no `-0`, no blanks; `None` for anything else
/// or a value that an `i64` cannot hold.
#[must_use]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut n: u64 = 0;
    for &d in digits {
        if !d.is_ascii_digit() {
            return None;
        }
        // 19 digits fit a u64.
        n = n * 10 + u64::from(d - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(n)
    } else {
        i64::try_from(n).ok()
    }
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut n: usize) {
    while n > 0x7f {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

/// A text with its length in front, as [`put_number`] writes it.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    put_number(bytes, text.len());
    bytes.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_each_value() {
        for n in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(parse_integer(n.to_string().as_bytes()), Some(n));
        }
        for bad in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1x",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(parse_integer(bad.as_bytes()), None, "{bad}");
        }
    }
}
