//! The count from the registers, by Otmar Ertl's improved estimator ("New cardinality estimation algorithms
//! for HyperLogLog sketches", 2017, algorithm 6): without corrections for few or many elements.

use super::layout::{INDEX_BITS, REGISTER_MAX, REGISTERS};

/// The greatest value that the hash of an element leads to, without the last.
const Q: usize = 64 - INDEX_BITS as usize;
/// One half of the inverse of the logarithm of two.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many elements there were, about, by how many registers have each value.
pub(super) fn estimate(histogram: &[u32; REGISTER_MAX as usize + 1]) -> u64 {
    let m = REGISTERS as f64;
    let share = |value: usize| f64::from(histogram[value]) / m;
    let mut z = m * tau((m - f64::from(histogram[Q + 1])) / m);
    for &registers in histogram[1..=Q].iter().rev() {
        z = (z + f64::from(registers)) * 0.5;
    }
    z += m * sigma(share(0));
    // Halves are rounded away from zero.
    (ALPHA * m * m / z).round() as u64
}

/// If `x` is 1, no element was ever added, and the result is infinite.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}
