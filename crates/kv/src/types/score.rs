//! Scores of sorted sets, and doubles in general, as text.

/// Whole numbers up to here are written as such: those that cannot leave 64 bits.
const WHOLE: f64 = (i64::MAX / 2) as f64;

/// The shortest text that reads back as the same number, with an exponent where Redis writes one:
/// `3`, `0.1`, `1e+20`, `inf`.
#[must_use]
pub fn format(x: f64) -> String {
    if x.is_infinite() || x == 0.0 {
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
    x.to_string()
}

/// A decimal number or an infinity; not a NaN. One that is too big for 64 bits is none.
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    let x: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let says_infinity = || text.iter().any(|b| matches!(b, b'n' | b'N'));
    (x.is_finite() || !x.is_nan() && says_infinity()).then_some(x)
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
        for none in ["", " 1", "1 ", "0x1", "1e400", "-1e400", "--1", "+-1", "e1"] {
            assert_eq!(parse(none.as_bytes()), None, "{none}");
        }
        assert_eq!(plain(1e20), "100000000000000000000");
    }
}
