//! How C's `strtod` reads numbers, which is how clients may write them.

/// A number without its sign.
pub(super) enum Text<'a> {
    Infinity,
    /// The digits behind `0x`.
    Hexadecimal(&'a [u8]),
    /// Anything else: perhaps a number.
    Decimal(&'a [u8]),
}

/// Whether there is a minus sign, and the text behind the sign; `None` for a NaN.
pub(super) fn split(text: &[u8]) -> Option<(bool, Text<'_>)> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
    if is("nan") {
        return None;
    }
    let text = match text {
        _ if is("inf") || is("infinity") => Text::Infinity,
        [b'0', b'x' | b'X', rest @ ..] => Text::Hexadecimal(rest),
        _ => Text::Decimal(text),
    };
    Some((negative, text))
}

/// The sign and digits of an exponent; all of `text`.
fn exponent(text: &[u8]) -> Option<i64> {
    /// Far beyond any range, and far from overflowing.
    const MOST: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |n: i64, digit| {
        (n * 10 + i64::from(digit - b'0')).min(MOST)
    });
    Some(if negative { -value } else { value })
}

/// Digits, and the power of ten that they are to be multiplied by.
pub(super) struct Decimal {
    /// 0 to 9 each; no zeros at either end, so none at all for zero.
    pub(super) digits: Vec<u8>,
    pub(super) power: i64,
}

impl Decimal {
    pub(super) fn parse(text: &[u8]) -> Option<Decimal> {
        let is_e = |b: &u8| matches!(b, b'e' | b'E');
        let (number, mut power) = match text.iter().position(is_e) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (mut digits, mut point) = (Vec::with_capacity(number.len()), false);
        for byte in number {
            match byte {
                b'0'..=b'9' => {
                    digits.push(byte - b'0');
                    power -= i64::from(point);
                }
                b'.' if !point => point = true,
                _ => return None,
            }
        }
        if digits.is_empty() {
            return None;
        }
        while digits.last() == Some(&0) {
            digits.pop();
            power += 1;
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        Some(Decimal { digits, power })
    }

    /// The digits as a number; there are at most 38.
    pub(super) fn short(&self) -> u128 {
        let add = |n: u128, digit: &u8| n * 10 + u128::from(*digit);
        self.digits.iter().fold(0, add)
    }
}

/// A mantissa times two to the power of an exponent.
pub(super) struct Hexadecimal {
    /// More than 64 bits if `sticky`, or zero.
    pub(super) mantissa: u128,
    /// Within ±2^30.
    pub(super) exponent: i32,
    /// Set if more digits follow, and not only zeros.
    pub(super) sticky: bool,
}

/// Reads the digits behind `0x`.
pub(super) fn hexadecimal(text: &[u8]) -> Option<Hexadecimal> {
    let is_p = |b: &u8| matches!(b, b'p' | b'P');
    let (number, mut power) = match text.iter().position(is_p) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (mut mantissa, mut sticky, mut point, mut any) = (0u128, false, false, false);
    for &byte in number {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        any = true;
        if mantissa >> 124 == 0 {
            mantissa = mantissa << 4 | u128::from(digit);
            power -= if point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            power += if point { 0 } else { 4 };
        }
    }
    any.then_some(Hexadecimal {
        mantissa,
        exponent: power.clamp(-(1 << 30), 1 << 30) as i32,
        sticky,
    })
}
