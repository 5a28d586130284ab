//! Lengths of time as people write them: `3s`, `500ms`, `2m`, or a number of seconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A length of time on the command line or in a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    /// The time, or none for zero: how "never" is written.
    pub fn limit(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }
}

/// Written in the largest unit that leaves no remainder, which parses to the same value.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "m"),
            (1_000_000, "s"),
            (1_000, "ms"),
        ];
        let micros = self.0.as_micros();
        if micros == 0 {
            return f.write_str("0s");
        }
        let fits = |&(unit, _): &(u128, _)| micros.is_multiple_of(unit);
        let (unit, name) = units.into_iter().find(fits).unwrap_or((1, "us"));
        write!(f, "{}{name}", micros / unit)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let not_one = || format!("invalid duration {text:?}; examples: 3s, 500ms, 7d");
        if end.trim().is_empty() {
            return Err(not_one());
        }
        let unit = match &text[end.len()..] {
            "us" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            other => {
                return Err(format!(
                    "unknown unit {other:?} in the duration {text:?}; units: us, ms, s, m, h, d"
                ));
            }
        };
        let number: f64 = end.trim().parse().map_err(|_| not_one())?;
        Duration::try_from_secs_f64(number * unit)
            .map(Span)
            .map_err(|_| format!("the duration {text:?} is negative or too long"))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Span;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of seconds, or text such as \"500ms\"")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Span, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Span, E> {
                self.visit_f64(v as f64)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Span, E> {
                self.visit_f64(v as f64)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Span, E> {
                let time = Duration::try_from_secs_f64(v);
                time.map(Span).map_err(E::custom)
            }
        }
        from.deserialize_any(Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_plain_seconds() {
        let ms = |text: &str| text.parse::<Span>().unwrap().0.as_millis();
        assert_eq!(ms("3s"), 3000);
        assert_eq!(ms("3"), 3000);
        assert_eq!(ms("0.25"), 250);
        assert_eq!(ms("500ms"), 500);
        assert_eq!(ms("2m"), 120_000);
        assert_eq!("70us".parse::<Span>().unwrap().0.as_micros(), 70);
        assert_eq!("0".parse::<Span>().unwrap().limit(), None);
    }

    #[test]
    fn nonsense_is_refused_with_the_text_in_the_message() {
        for text in ["", "s", "3 parsecs", "-1", "1e300", "NaN"] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
            assert!(error.contains("duration"), "{error}");
        }
        assert!(
            "3fortnights"
                .parse::<Span>()
                .unwrap_err()
                .contains("fortnights")
        );
    }
}
