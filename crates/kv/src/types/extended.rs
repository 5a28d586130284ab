//! Sums as Redis makes them for INCRBYFLOAT: in the 80-bit numbers of the x87, written with up to 17
//! digits behind the point.
//!
//! 64 bits of mantissa keep all digits of whole numbers up to 2^64, and 0.1 + 0.2 is 0.3. Reading,
//! adding and writing round once each, to the nearest number, to the even one of two.

use std::cmp::Ordering;

use super::big::Big;
use super::number_text::{Decimal, Text, hexadecimal, split};

/// Longest text that is read; bytes.
const LONGEST: usize = 5 * 1024;
/// Values at two to the power of this and above are infinite.
const HIGHEST: i32 = 16384;
/// The last bit of the smallest number there is.
const LOWEST: i32 = -16445;
/// Digits written behind the point at most.
const PLACES: u32 = 17;

/// A number: its mantissa times two to the power of its exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// The number in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A number.
    Number(Extended),
    /// Infinity, with or without a minus: nothing can be added to it.
    Infinity,
}

impl Extended {
    /// Zero.
    pub const ZERO: Extended = Extended {
        negative: false,
        mantissa: 0,
        exponent: 0,
    };

    /// Reads what C's `strtold` reads, and all of it: decimal or hexadecimal, with or without an
    /// exponent. `None` for anything else, for a NaN, for what is out of range, for texts of more
    /// than 5 KiB, and where a blank is in front.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Read> {
        if text.len() >= LONGEST {
            return None;
        }
        let (negative, text) = split(text)?;
        let number = match text {
            Text::Infinity => return Some(Read::Infinity),
            Text::Hexadecimal(text) => {
                let hex = hexadecimal(text)?;
                if hex.mantissa == 0 {
                    return Some(Read::Number(Extended::ZERO));
                }
                Extended::rounded(negative, hex.mantissa, hex.exponent, hex.sticky)?
            }
            Text::Decimal(text) => {
                let decimal = Decimal::parse(text)?;
                if decimal.digits.is_empty() {
                    return Some(Read::Number(Extended::ZERO));
                }
                Extended::from_decimal(negative, &decimal)?
            }
        };
        // A number that is too small to differ from zero.
        (number.mantissa != 0).then_some(Read::Number(number))
    }

    fn from_decimal(negative: bool, decimal: &Decimal) -> Option<Extended> {
        let power = decimal.power;
        let magnitude = decimal.digits.len() as i64 + power;
        // Far out of range: nothing needs to be computed to know that.
        if !(-5000..5000).contains(&magnitude) {
            return None;
        }
        /// Digits of a number that 127 bits hold.
        const SHORT: usize = 38;
        /// Five to the power of this is below 2^63.
        const FIVES: i64 = 27;
        let short = decimal.digits.len() <= SHORT;
        if short && power >= 0 && magnitude <= SHORT as i64 {
            let value = decimal.short() * 10u128.pow(power as u32);
            return Extended::rounded(negative, value, 0, false);
        }
        if short && (-FIVES..0).contains(&power) {
            let digits = decimal.short();
            let shift = digits.leading_zeros();
            let fives = 5u128.pow(power.unsigned_abs() as u32);
            let (value, rest) = ((digits << shift) / fives, (digits << shift) % fives);
            return Extended::rounded(negative, value, power as i32 - shift as i32, rest != 0);
        }
        let mut above = Big::from_digits(&decimal.digits);
        let mut below = Big::one();
        let scaled = if power < 0 { &mut below } else { &mut above };
        scaled.times_ten_to(power.unsigned_abs() as usize);
        let (value, exponent, rest) = above.divided_by(below);
        Extended::rounded(negative, value, exponent, rest)
    }

    /// The nearest number; `None` if it is infinite. `sticky` says that there are more bits behind
    /// the value's last one; the value then has more than 64 bits.
    fn rounded(negative: bool, value: u128, exponent: i32, sticky: bool) -> Option<Extended> {
        let bits = 128 - value.leading_zeros() as i32;
        let mut drop = (bits - 64).max(LOWEST - exponent);
        let mut mantissa = match drop {
            ..=0 => value << -drop,
            1..128 => {
                let (kept, rest) = (value >> drop, value & ((1 << drop) - 1));
                let up = match rest.cmp(&(1 << (drop - 1))) {
                    Ordering::Less => false,
                    Ordering::Equal => sticky || kept & 1 == 1,
                    Ordering::Greater => true,
                };
                kept + u128::from(up)
            }
            _ => 0,
        };
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            drop += 1;
        }
        let exponent = exponent + drop;
        let bits = 128 - mantissa.leading_zeros() as i32;
        (exponent + bits <= HIGHEST).then_some(Extended {
            negative,
            mantissa: mantissa as u64,
            exponent,
        })
    }

    /// The sum; `None` if it is infinite.
    #[must_use]
    pub fn plus(self, other: Extended) -> Option<Extended> {
        if self.mantissa == 0 {
            return Some(other);
        }
        if other.mantissa == 0 {
            return Some(self);
        }
        let [mut high, mut low] = [self, other];
        let top = |x: Extended| x.exponent - x.mantissa.leading_zeros() as i32;
        if top(high) < top(low) {
            (high, low) = (low, high);
        }
        // The highest bit of the sum has a place of its own.
        let space = high.mantissa.leading_zeros() as i32 + 62;
        let (a, exponent) = (u128::from(high.mantissa) << space, high.exponent - space);
        let shift = low.exponent - exponent;
        let (b, sticky) = match shift {
            0.. => (u128::from(low.mantissa) << shift, false),
            -63..0 => {
                let kept = u128::from(low.mantissa) >> -shift;
                (kept, kept << -shift != u128::from(low.mantissa))
            }
            _ => (0, true),
        };
        let (negative, sum) = if high.negative == low.negative {
            (high.negative, a + b)
        } else if sticky {
            // The remainder of the last digit is subtracted too.
            (high.negative, a - b - 1)
        } else if a >= b {
            (high.negative, a - b)
        } else {
            (low.negative, b - a)
        };
        if sum == 0 {
            return Some(Extended::ZERO);
        }
        Extended::rounded(negative, sum, exponent, sticky)
    }

    /// The number without an exponent, with at most 17 digits behind the point and no zeros at the
    /// end there. At most 4,953 bytes.
    #[must_use]
    pub fn to_text(self) -> String {
        let mantissa = u128::from(self.mantissa);
        let text = match self.exponent {
            exponent @ 0..=63 => (mantissa << exponent).to_string(),
            exponent @ 64.. => Big::shifted(self.mantissa, exponent as usize).into_text(),
            exponent => {
                let one = 10u128.pow(PLACES);
                let scaled = shift_rounded(mantissa * one, exponent.unsigned_abs());
                let (whole, part) = (scaled / one, scaled % one);
                let text = format!("{whole}.{part:017}");
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            }
        };
        if self.negative && text != "0" {
            format!("-{text}")
        } else {
            text
        }
    }
}

/// A value less these bits, rounded to the nearest, to the even one of two.
fn shift_rounded(value: u128, bits: u32) -> u128 {
    // The value has less than 122 bits.
    if bits > 122 {
        return 0;
    }
    let (kept, rest) = (value >> bits, value & ((1 << bits) - 1));
    let half = 1u128 << (bits - 1);
    let up = rest > half || rest == half && kept & 1 == 1;
    kept + u128::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Extended {
        match Extended::parse(text.as_bytes()) {
            Some(Read::Number(x)) => x,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn sum(a: &str, b: &str) -> String {
        let sum = number(a).plus(number(b));
        sum.map_or("infinite".into(), Extended::to_text)
    }

    #[test]
    fn sums_as_redis_writes_them() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("9007199254740993", "0", "9007199254740993"),
            ("9007199254740993", "2", "9007199254740995"),
            ("18446744073709551615", "0", "18446744073709551615"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("-5e3", "200", "-4800"),
            ("5.0e3", "-5000", "0"),
            ("-1e-20", "0", "0"),
            ("3.0e-17", "0", "0.00000000000000003"),
            ("1e-4940", "1", "1"),
            ("0x1p3", "0x.8", "8.5"),
            ("1e20", "1", "100000000000000000000"),
            ("1e20", "5", "100000000000000000008"),
            ("1e4932", "1e4932", "infinite"),
            ("1.5", "-1.25", "0.25"),
            ("1", "-1e-19", "1"),
            ("1", "-1e-17", "0.99999999999999999"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
        let long = sum("1e300", "1");
        assert!(
            long.len() == 301 && long.starts_with("10000000000000000000"),
            "{long}"
        );
    }

    #[test]
    fn what_is_no_number() {
        let long = "1".repeat(LONGEST);
        for text in [
            "",
            " 1",
            "1 ",
            "x",
            "1e",
            "0x",
            "0x.p1",
            "nan",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "0x1p99999",
            "0x1p-99999",
            "--1",
            ".",
            "e5",
            &long,
            "1e99999999999999999999",
            "infi",
            "1_0",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
        for text in ["inf", "-Infinity", "+INF"] {
            assert_eq!(
                Extended::parse(text.as_bytes()),
                Some(Read::Infinity),
                "{text}"
            );
        }
        for text in ["0", "-0.0e99999999", "0x0p5", ".0", "0."] {
            assert_eq!(number(text).to_text(), "0");
        }
        let long = "0".repeat(3000) + "1." + &"9".repeat(2000);
        assert_eq!(number(&long).to_text(), "2");
    }

    #[test]
    fn long_texts_are_read_as_exactly_as_short_ones() {
        // Equal numbers through the arithmetic of any length.
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let (digits, places) = (rng.u64(..), rng.usize(..25));
            let short = format!("{digits}e-{places}");
            let long = format!("{digits}{}e-{}", "0".repeat(5), places + 5);
            let longer = format!("{digits}.{}1e-{places}", "0".repeat(4000));
            assert_eq!(number(&short), number(&long));
            let near = number(&longer);
            let difference = near
                .plus(Extended {
                    negative: true,
                    ..number(&short)
                })
                .unwrap();
            // The one digit at the end may tip a tie, no more.
            assert!(
                difference.mantissa == 0 || difference.exponent <= near.exponent,
                "{short}"
            );
        }
    }
}
