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

/// Without zeros behind the point.
fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A whole number in the range of 64 bits, if it is one.
pub(crate) fn whole(x: f64) -> Option<i64> {
    const MOST: f64 = 9_223_372_036_854_775_808.0;
    (x.fract() == 0.0 && (-MOST..MOST).contains(&x)).then_some(x as i64)
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
}
