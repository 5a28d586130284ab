//! Numbers as people write them: `10k`, `1m`, `2.5k`, `200000`. Thousands, not 1,024: see
//! [`size`](crate::size) for bytes.

/// A whole number with an optional suffix.
pub fn count(text: &str) -> Result<u64, String> {
    let number = rate(text)?;
    if number.fract() != 0.0 || number > 2f64.powi(53) {
        return Err(format!("{text:?} is no whole number"));
    }
    Ok(number as u64)
}

/// A whole number that is at least one.
pub fn at_least_one(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("must be at least 1".into()),
        n => Ok(n),
    }
}

/// A whole number without a suffix.
pub fn plain<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no whole number, or too large"))
}

/// A number of things of which there are at most some four thousand million.
pub fn small(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?).map_err(|_| format!("{text:?} is too large"))
}

/// A number that is at least one.
pub fn some(text: &str) -> Result<u32, String> {
    u32::try_from(at_least_one(text)?).map_err(|_| format!("{text:?} is too large"))
}

/// A number of bytes, with the suffixes of [`Size`](crate::size::Size).
pub fn bytes(text: &str) -> Result<usize, String> {
    let size: crate::size::Size = text.parse()?;
    usize::try_from(size.0).map_err(|_| format!("{text:?} is too large"))
}

/// A number with an optional suffix that is not negative.
pub fn rate(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        other => return Err(format!("{other:?} is no suffix: k, m or g")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is no number such as 200k or 1000"))?;
    if !number.is_finite() || number < 0.0 {
        return Err(format!("{text:?} is negative or has no end"));
    }
    // Multiplied as decimals are read: 2.3k is 2,300 and not 2,299.9999.
    let product = number * unit;
    let whole = product.round();
    Ok(match (product - whole).abs() < 1e-6 * product.abs() {
        true if unit > 1.0 => whole,
        _ => product,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_decimal() {
        for (text, n) in [
            ("200k", 200_000),
            ("1m", 1_000_000),
            ("1M", 1_000_000),
            ("2.3k", 2_300),
            ("0.5g", 500_000_000),
            ("77", 77),
            ("0", 0),
        ] {
            assert_eq!(count(text), Ok(n), "{text}");
        }
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(bytes("4k"), Ok(4096));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "k",
            "-1",
            "1.5",
            "1kb",
            "nan",
            "inf",
            "1e400",
            "99999999999g",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
        assert!(
            plain::<u8>("x").is_err()
                && plain::<u8>("256").is_err()
                && plain::<u8>("255") == Ok(255)
        );
        assert!(some("0").is_err() && some("5g").is_err() && small("0").is_ok());
    }
}
