//! Scores of sorted sets, and doubles in general, as text.

use super::number_text::{Text, hexadecimal, split};

/// Whole numbers up to here are written as such: they cannot leave 64 bits.
const WHOLE: f64 = (i64::MAX / 2) as f64;

/// The shortest text that reads back as the same number, with an exponent where Redis writes one:
/// `3`, `0.1`, `1e+20`, `inf`.
#[must_use]
pub fn format(x: f64) -> String {
    if !x.is_finite() || x == 0.0 {
        return plain(x);
    }
    if x.abs() <= WHOLE && x.fract() == 0.0 {
        return (x as i64).to_string();
    }
    let text = format!("{:e}", x.abs());
    let (digits, exponent) = text.split_once('e').expect("it has an exponent");
    let digits = digits.replace('.', "");
    let exponent: i32 = exponent.parse().expect("it is a number");
    let n = digits.len() as i32;
    // The number is its digits times ten to the power of this.
    let power = exponent - (n - 1);
    let text = if power >= 0 && exponent < n + 7 {
        digits + &"0".repeat(power as usize)
    } else if power < 0 && (power > -7 || exponent.abs() < 4) {
        let point = n + power;
        if point <= 0 {
            format!("0.{}{digits}", "0".repeat(-point as usize))
        } else {
            let (whole, part) = digits.split_at(point as usize);
            format!("{whole}.{part}")
        }
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{first}{point}{rest}e{sign}{}", exponent.abs())
    };
    if x < 0.0 { format!("-{text}") } else { text }
}

/// The shortest text that reads back as the same number, without an exponent.
#[must_use]
pub fn plain(x: f64) -> String {
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    if x.is_nan() {
        return "nan".to_string();
    }
    x.to_string()
}

/// Parses a number, decimal or hexadecimal, or an infinity; not a NaN, nor a number that is too
/// large or too small for 64 bits.
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    let (x, exact) = read(text)?;
    exact.then_some(x)
}

/// As [`parse`], with all that C's `strtod` forgives: blanks in front, nothing at all, which is zero,
/// and numbers out of range, which are infinite or zero. Bounds of ranges are read with these rules.
#[must_use]
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |b: &u8| matches!(b, b' ' | 9..=13);
    let blanks = text.iter().take_while(|b| is_blank(b)).count();
    read(&text[blanks..]).map(|(x, _)| x)
}

/// The number in a text, and whether the number is in range.
fn read(text: &[u8]) -> Option<(f64, bool)> {
    let (negative, number) = split(text)?;
    match number {
        Text::Infinity => Some((signed(f64::INFINITY, negative), true)),
        Text::Hexadecimal(text) => {
            let hex = hexadecimal(text)?;
            // One bit more behind more than 64 tips ties, and nothing else.
            let x = (hex.mantissa | u128::from(hex.sticky)) as f64;
            let x = scaled(x, hex.exponent);
            let exact = x.is_finite() && (x != 0.0 || hex.mantissa == 0);
            Some((signed(x, negative), exact))
        }
        Text::Decimal(text) => {
            let x: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
            // A second sign would be read.
            if !text.first()?.is_ascii_digit() && text[0] != b'.' {
                return None;
            }
            let is_zero = || {
                let digits = text.iter().take_while(|b| !matches!(b, b'e' | b'E'));
                !digits.into_iter().any(|b| (b'1'..=b'9').contains(b))
            };
            let exact = x.is_finite() && (x != 0.0 || is_zero());
            Some((signed(x, negative), exact))
        }
    }
}

fn signed(x: f64, negative: bool) -> f64 {
    if negative { -x } else { x }
}

/// A number times two to the power of an exponent, in steps that are exact until the last.
fn scaled(mut x: f64, mut exponent: i32) -> f64 {
    const STEP: i32 = 1000;
    while exponent > STEP && x.is_finite() && x != 0.0 {
        x *= 2f64.powi(STEP);
        exponent -= STEP;
    }
    while exponent < -STEP && x != 0.0 {
        x *= 2f64.powi(-STEP);
        exponent += STEP;
    }
    if x == 0.0 {
        x
    } else {
        x * 2f64.powi(exponent.clamp(-STEP, STEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_redis_writes_them() {
        for (x, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1e20, "1e+20"),
            (1e7, "10000000"),
            (1234567890123456789.0, "1234567890123456768"),
            (9234567890123456789.0, "9234567890123457000"),
            (1e17, "100000000000000000"),
            (1e-7, "1e-7"),
            (0.0001, "0.0001"),
            (1.5e300, "1.5e+300"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format(x), text);
            assert_eq!(parse(text.as_bytes()), Some(x));
        }
        assert_eq!(parse(b"nan"), None);
        assert_eq!(parse(b"+Inf"), Some(f64::INFINITY));
        for none in [
            "", " 1", "1 ", "0x", "1e400", "-1e400", "--1", "+-1", "e1", "1e-400", "0x1p5000",
            "infx",
        ] {
            assert_eq!(parse(none.as_bytes()), None, "{none}");
        }
        for (text, x) in [
            ("0x10", 16.0),
            ("-0X1.8p1", -3.0),
            ("0x.1", 0.0625),
            ("0x1p-1074", 5e-324),
            ("0x10000000000000.8", 4503599627370496.0),
            (
                "0x10000000000000.80000000000000000000000000000001",
                4503599627370497.0,
            ),
            ("0e-999", 0.0),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(x), "{text}");
        }
        for (text, x) in [
            ("", 0.0),
            (" 1", 1.0),
            ("1e400", f64::INFINITY),
            ("-1e-400", 0.0),
            ("0x2", 2.0),
        ] {
            assert_eq!(parse_bound(text.as_bytes()), Some(x), "{text}");
        }
        for none in ["1 ", "nan", "x", " "] {
            assert_eq!(parse_bound(none.as_bytes()), None, "{none}");
        }
        assert_eq!(plain(1e20), "100000000000000000000");
    }
}
