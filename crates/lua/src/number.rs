//! Numbers as text, as C's printf writes them with `%g`.

/// The number with so many significant digits, in the shorter of the two notations, without zeros at
/// the end.
pub(crate) fn general(x: f64, digits: usize) -> String {
    if x.is_nan() {
        return if x.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let digits = digits.max(1);
    let text = format!("{:.*e}", digits - 1, x);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    } else {
        let places = (digits as i32 - 1 - exponent).max(0) as usize;
        trimmed(&format!("{x:.places$}")).to_owned()
    }
}

/// The shortest text that reads back as this number, as Redis gives it to commands.
pub(crate) fn shortest(x: f64) -> String {
    if !x.is_finite() || x == 0.0 {
        return general(x, 17);
    }
    let text = format!("{:e}", x.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.replace('.', "");
    let exponent: i32 = exponent.parse().unwrap_or(0);
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

/// A number of 64 bits as C casts it on most processors: what is beyond them is the lowest there is.
pub(crate) fn cast(x: f64) -> i64 {
    const MOST: f64 = 9_223_372_036_854_775_808.0;
    match (-MOST..MOST).contains(&x) {
        true => x as i64,
        false => i64::MIN,
    }
}

/// The text without zeros behind the point.
fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A whole number that is well in the range of 64 bits, if it is one.
pub(crate) fn whole(x: f64) -> Option<i64> {
    const MOST: f64 = 4_611_686_018_427_387_904.0;
    (x.fract() == 0.0 && (-MOST..=MOST).contains(&x)).then_some(x as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_printf_does() {
        for (x, digits, text) in [
            (0.0, 14, "0"),
            (1.0, 14, "1"),
            (-1.5, 14, "-1.5"),
            (0.1, 17, "0.10000000000000001"),
            (1e14, 14, "1e+14"),
            (123_456.0, 3, "1.23e+05"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (1e100, 14, "1e+100"),
            (f64::INFINITY, 14, "inf"),
            (99_999.99, 3, "1e+05"),
        ] {
            assert_eq!(general(x, digits), text, "{x}");
        }
        assert_eq!(whole(9.0), Some(9));
        assert_eq!(whole(9_223_372_036_854_775_808.0), None);
        assert_eq!(whole(0.5), None);
    }

    #[test]
    fn as_redis_does() {
        for (x, text) in [
            (0.1, "0.1"),
            (-0.1, "-0.1"),
            (3.5, "3.5"),
            (1e300, "1e+300"),
            (1e-7, "1e-7"),
            (1.0 / 3.0, "0.3333333333333333"),
            (9_223_372_036_854_775_808.0, "9223372036854776000"),
            (1e100, "1e+100"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(shortest(x), text);
        }
        for (x, n) in [
            (3.99, 3),
            (-3.99, -3),
            (1e300, i64::MIN),
            (f64::NAN, i64::MIN),
            (f64::INFINITY, i64::MIN),
            (f64::NEG_INFINITY, i64::MIN),
            (9_223_372_036_854_775_808.0, i64::MIN),
        ] {
            assert_eq!(cast(x), n, "{x}");
        }
    }
}
