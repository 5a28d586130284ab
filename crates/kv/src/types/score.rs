//! Scores of sorted sets, and doubles in general, as text.

/// The shortest text that reads back as the same number.
#[must_use]
pub fn format(x: f64) -> String {
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    x.to_string()
}

/// A number that is not a NaN.
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    let x: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!x.is_nan()).then_some(x)
}
