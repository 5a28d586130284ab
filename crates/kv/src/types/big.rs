//! Whole numbers of any length, as far as it takes to read and write numbers with exponents.

use std::cmp::Ordering;

/// A whole number in parts of 32 bits, the lowest first, the last not zero.
#[derive(Clone, Debug)]
pub(super) struct Big(Vec<u32>);

impl Big {
    pub(super) fn one() -> Big {
        Big(vec![1])
    }

    /// From digits 0 to 9, the highest first.
    pub(super) fn from_digits(digits: &[u8]) -> Big {
        let mut big = Big(Vec::new());
        for chunk in digits.chunks(9) {
            let value = chunk.iter().fold(0, |n, digit| n * 10 + u32::from(*digit));
            big.times(10u32.pow(chunk.len() as u32), value);
        }
        big
    }

    /// A number with so many zero bits behind it.
    pub(super) fn shifted(value: u64, bits: usize) -> Big {
        let mut big = Big(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big.shift_up(bits);
        big
    }

    /// Multiplies by one number and adds another.
    fn times(&mut self, factor: u32, more: u32) {
        let mut carry = u64::from(more);
        for part in &mut self.0 {
            carry += u64::from(*part) * u64::from(factor);
            *part = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    pub(super) fn times_ten_to(&mut self, power: usize) {
        for _ in 0..power / 9 {
            self.times(1_000_000_000, 0);
        }
        self.times(10u32.pow((power % 9) as u32), 0);
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn bits(&self) -> usize {
        let top = self.0.last().map_or(32, |top| top.leading_zeros());
        32 * self.0.len() - top as usize
    }

    fn shift_up(&mut self, bits: usize) {
        let (whole, part) = (bits / 32, bits % 32);
        if part > 0 {
            self.times(1 << part, 0);
        }
        self.0.splice(0..0, std::iter::repeat_n(0, whole));
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for part in self.0.iter_mut().rev() {
            let low = *part & 1;
            *part = *part >> 1 | carry << 31;
            carry = low;
        }
        self.trim();
    }

    fn compare(&self, other: &Big) -> Ordering {
        let by_len = self.0.len().cmp(&other.0.len());
        by_len.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Takes a number away that is not greater.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = 0;
        for (at, part) in self.0.iter_mut().enumerate() {
            let less = i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            let left = i64::from(*part) - less;
            *part = left as u32;
            borrow = i64::from(left < 0);
        }
        self.trim();
    }

    /// The quotient as a value of 66 bits or more times two to the power of an exponent, and
    /// whether there is a rest.
    pub(super) fn divided_by(mut self, mut by: Big) -> (u128, i32, bool) {
        /// Bits of the quotient, or one more.
        const BITS: usize = 67;
        let (bits, wanted) = (self.bits(), by.bits() + BITS);
        if bits < wanted {
            self.shift_up(wanted - bits);
        } else {
            by.shift_up(bits - wanted);
        }
        let exponent = bits as i32 - wanted as i32;
        by.shift_up(BITS);
        let mut quotient = 0;
        for _ in 0..=BITS {
            quotient <<= 1;
            if self.compare(&by) != Ordering::Less {
                self.subtract(&by);
                quotient |= 1;
            }
            by.halve();
        }
        (quotient, exponent, !self.0.is_empty())
    }

    /// Writes the number in decimal.
    pub(super) fn into_text(mut self) -> String {
        let mut groups = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0;
            for part in self.0.iter_mut().rev() {
                let value = rest << 32 | u64::from(*part);
                *part = (value / 1_000_000_000) as u32;
                rest = value % 1_000_000_000;
            }
            self.trim();
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        text.extend(groups.iter().rev().map(|group| format!("{group:09}")));
        text
    }
}
