//! A figure with groups of three digits, for people.

/// Formats a whole number with commas, and a small fraction with three digits.
pub fn grouped(n: f64) -> String {
    if n > 0.0 && n < 100.0 && n.fract() != 0.0 {
        let digits = (2.0 - n.log10().floor()).clamp(1.0, 9.0) as usize;
        let text = format!("{n:.digits$}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", n.max(0.0));
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time of so many microseconds, in the unit that fits it.
pub fn micros(us: f64) -> String {
    match us {
        us if us >= 10_000.0 => format!("{:.1} ms", us / 1e3),
        us if us >= 100.0 => format!("{us:.0} us"),
        us if us >= 1.0 => format!("{us:.2} us"),
        us => format!("{:.1} ns", us * 1e3),
    }
}

/// A share in percent, with at most one decimal.
pub fn percent(share: f64) -> String {
    let shown = format!("{:.1}", share * 100.0);
    format!("{} %", shown.strip_suffix(".0").unwrap_or(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_units_fit() {
        assert_eq!(grouped(1_234_567.2), "1,234,567");
        assert_eq!(grouped(123.0), "123");
        assert_eq!(micros(0.0123), "12.3 ns");
        assert_eq!(micros(12_345.0), "12.3 ms");
        assert_eq!(percent(0.95), "95 %");
        assert_eq!(percent(0.0123), "1.2 %");
    }
}
