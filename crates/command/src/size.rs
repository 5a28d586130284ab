//! Numbers of bytes as people write them: `64MiB`, `10GB`, `4096`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes on the command line or in a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match text[end.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            other => {
                return Err(format!(
                    "{other:?} is no unit of size: give a number and KiB, MiB, GiB or TiB, such as 64MiB"
                ));
            }
        };
        let number: u64 = end
            .trim()
            .parse()
            .map_err(|_| format!("{text:?} is no size such as 64MiB or 4096"))?;
        number
            .checked_mul(unit)
            .map(Size)
            .ok_or_else(|| format!("{text:?} is too large"))
    }
}

/// In the largest unit that makes a whole number of it.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let whole = |(bits, _): &(u32, &str)| self.0 > 0 && self.0.trailing_zeros() >= *bits;
        match units.into_iter().find(whole) {
            Some((bits, unit)) => write!(f, "{}{unit}", self.0 >> bits),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Size;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of bytes, or text such as \"64MiB\"")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Size, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Size, E> {
                u64::try_from(v).map(Size).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Size, E> {
                Ok(Size(v))
            }
        }
        from.deserialize_any(Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_unless_they_say_otherwise() {
        let size = |text: &str| text.parse::<Size>().unwrap().0;
        assert_eq!(size("4096"), 4096);
        assert_eq!(size("64MiB"), 64 << 20);
        assert_eq!(size("2 g"), 2 << 30);
        assert_eq!(size("5kb"), 5000);
    }

    #[test]
    fn it_is_shown_as_it_may_be_written() {
        for (bytes, shown) in [
            (0, "0"),
            (1000, "1000"),
            (4096, "4KiB"),
            (128 << 20, "128MiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), shown);
            assert_eq!(shown.parse(), Ok(Size(bytes)));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "MiB", "-1", "1.5GiB", "3 parsecs", "99999999999999TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
