//! HyperLogLogs: how many different elements there were, about, in at most 12 KiB.
//!
//! HyperLogLogs are strings in Redis's format, so that clients can read, dump and restore them, and
//! their counts are Redis's counts:
//!
//! ```text
//! "HYLL" | form:u8, 0 dense or 1 sparse | three bytes unused | count kept:u64, its highest bit if it is stale
//!     | 16,384 registers
//! ```
//!
//! Dense, a register is six bits, the lowest of a byte first. Sparse, there are runs of registers, see
//! `sparse.rs`. A string may hold anything: all that is read is checked.

mod count;
mod layout;
mod murmur;
mod sparse;

pub use layout::Wrong;
use layout::{DENSE, HEADER, INDEX_BITS, REGISTER_MAX, REGISTERS, STALE};
use sparse::Fitted;

/// All registers of one, or of several together.
pub struct Registers([u8; REGISTERS]);

impl Default for Registers {
    fn default() -> Registers {
        Registers([0; REGISTERS])
    }
}

/// An empty one, sparse.
#[must_use]
pub fn empty() -> Vec<u8> {
    let mut hll = vec![0; HEADER];
    hll[..4].copy_from_slice(b"HYLL");
    hll[4] = 1;
    sparse::put_zeros(&mut hll, REGISTERS);
    hll
}

/// Whether a string is a HyperLogLog, by its header.
///
/// # Errors
/// The string is no HyperLogLog.
pub fn check(hll: &[u8]) -> Result<(), Wrong> {
    let is_one = match hll {
        [b'H', b'Y', b'L', b'L', 0, ..] => hll.len() == DENSE,
        [b'H', b'Y', b'L', b'L', 1, ..] => hll.len() >= HEADER,
        _ => false,
    };
    if is_one { Ok(()) } else { Err(Wrong::Other) }
}

/// Whether a HyperLogLog is in the dense form.
#[must_use]
pub fn is_dense(hll: &[u8]) -> bool {
    hll.get(4) == Some(&0)
}

/// Adds an element; returns whether a register changed. A sparse one that would exceed `sparse_max`
/// bytes becomes dense.
///
/// # Errors
/// The string is no HyperLogLog.
pub fn add(hll: &mut Vec<u8>, element: &[u8], sparse_max: usize) -> Result<bool, Wrong> {
    let (index, value) = register(element);
    raise(hll, index, value, sparse_max)
}

/// Whether adding an element would change a dense one; its form was checked before.
#[must_use]
pub fn is_new(dense: &[u8], element: &[u8]) -> bool {
    let (index, value) = register(element);
    dense_get(dense, index) < value
}

/// The register of an element, and the value to which the register is raised.
fn register(element: &[u8]) -> (usize, u8) {
    let hash = murmur::hash(element);
    // The bit behind the last stops the count.
    let rest = hash >> INDEX_BITS | 1 << (64 - INDEX_BITS);
    let value = rest.trailing_zeros() as u8 + 1;
    (hash as usize % REGISTERS, value)
}

/// Raises a register to a value if it is below; whether it was.
fn raise(hll: &mut Vec<u8>, index: usize, to: u8, sparse_max: usize) -> Result<bool, Wrong> {
    check(hll)?;
    let mut changed = false;
    if !is_dense(hll) {
        match sparse::raise(hll, index, to, sparse_max)? {
            Fitted::Same => return Ok(false),
            Fitted::Raised => changed = true,
            Fitted::TooLarge => make_dense(hll)?,
        }
    }
    if is_dense(hll) {
        changed = dense_get(hll, index) < to;
        if changed {
            dense_set(hll, index, to);
        }
    }
    if changed {
        outdate(hll);
    }
    Ok(changed)
}

/// Raises all registers to the registers of other HyperLogLogs. If any of the sources was dense,
/// the result is dense.
///
/// # Errors
/// The string is no HyperLogLog.
pub fn raise_all(
    hll: &mut Vec<u8>,
    others: &Registers,
    dense: bool,
    sparse_max: usize,
) -> Result<(), Wrong> {
    if dense {
        make_dense(hll)?;
    }
    for (index, &to) in others.0.iter().enumerate().filter(|(_, to)| **to > 0) {
        raise(hll, index, to, sparse_max)?;
    }
    outdate(hll);
    Ok(())
}

/// Says that the count that is kept is not that of the registers any more.
pub fn outdate(hll: &mut [u8]) {
    if let Some(last) = hll.get_mut(HEADER - 1) {
        *last |= STALE;
    }
}

/// Converts a HyperLogLog to the dense form.
///
/// # Errors
/// The string is no HyperLogLog.
pub fn make_dense(hll: &mut Vec<u8>) -> Result<(), Wrong> {
    check(hll)?;
    if is_dense(hll) {
        return Ok(());
    }
    let mut registers = Registers::default();
    registers.join(hll)?;
    let mut dense = vec![0; DENSE];
    dense[..HEADER].copy_from_slice(&hll[..HEADER]);
    dense[4] = 0;
    for (index, &value) in registers.0.iter().enumerate().filter(|(_, v)| **v > 0) {
        dense_set(&mut dense, index, value);
    }
    *hll = dense;
    Ok(())
}

/// The count of one.
///
/// # Errors
/// The string is no HyperLogLog.
pub fn count(hll: &[u8]) -> Result<u64, Wrong> {
    check(hll)?;
    if hll[HEADER - 1] & STALE == 0 {
        let kept = hll[8..HEADER].try_into().expect("eight bytes");
        return Ok(u64::from_le_bytes(kept));
    }
    let mut registers = Registers::default();
    registers.join(hll)?;
    Ok(registers.count())
}

/// The runs of a sparse one as text, in a form for people.
///
/// # Errors
/// The string is no HyperLogLog, or dense.
pub fn decode(hll: &[u8]) -> Result<String, Wrong> {
    check(hll)?;
    if is_dense(hll) {
        return Err(Wrong::Other);
    }
    let runs = sparse::runs(&hll[HEADER..]).map(|run| run.map(|run| run.to_string()));
    Ok(runs.collect::<Result<Vec<_>, _>>()?.join(" "))
}

impl Registers {
    /// Raises the registers to the registers of one HyperLogLog.
    ///
    /// # Errors
    /// The string is no HyperLogLog.
    pub fn join(&mut self, hll: &[u8]) -> Result<(), Wrong> {
        check(hll)?;
        if is_dense(hll) {
            for (index, value) in self.0.iter_mut().enumerate() {
                *value = (*value).max(dense_get(hll, index));
            }
            return Ok(());
        }
        let mut at = 0;
        for run in sparse::runs(&hll[HEADER..]) {
            let run = run?;
            let registers = self.0.get_mut(at..at + run.len).ok_or(Wrong::Corrupt)?;
            registers.iter_mut().for_each(|v| *v = (*v).max(run.value));
            at += run.len;
        }
        if at == REGISTERS {
            Ok(())
        } else {
            Err(Wrong::Corrupt)
        }
    }

    /// How many different elements there were, about.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut histogram = [0; REGISTER_MAX as usize + 1];
        for &value in &self.0 {
            histogram[usize::from(value)] += 1;
        }
        count::estimate(&histogram)
    }

    /// All registers.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.0
    }
}

/// Where in a dense one a register begins: the byte, and the bit of that from the lowest.
fn place(index: usize) -> (usize, usize) {
    let bit = index * 6;
    (HEADER + bit / 8, bit % 8)
}

fn dense_get(hll: &[u8], index: usize) -> u8 {
    let (at, bit) = place(index);
    let next = hll.get(at + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([hll[at], next]) >> bit) as u8 & REGISTER_MAX
}

fn dense_set(hll: &mut [u8], index: usize, value: u8) {
    let (at, bit) = place(index);
    let next = hll.get(at + 1).copied().unwrap_or(0);
    let old = u16::from_le_bytes([hll[at], next]) & !(u16::from(REGISTER_MAX) << bit);
    let new = (old | u16::from(value) << bit).to_le_bytes();
    hll[at] = new[0];
    if let Some(next) = hll.get_mut(at + 1) {
        *next = new[1];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_about_right_in_both_forms_and_the_forms_have_the_same_registers() {
        let (mut sparse, mut dense) = (empty(), empty());
        make_dense(&mut dense).unwrap();
        for n in 0..20_000u32 {
            let element = n.to_string();
            let changed = add(&mut sparse, element.as_bytes(), 3000).unwrap();
            assert_eq!(add(&mut dense, element.as_bytes(), 3000), Ok(changed));
            if [10, 100, 1000, 19_999].contains(&n) {
                let count = count(&sparse).unwrap();
                assert_eq!(super::count(&dense), Ok(count));
                let error = (count as f64 - f64::from(n + 1)).abs() / f64::from(n + 1);
                assert!(error < 0.03, "{count} of {n}");
                assert_eq!(is_dense(&sparse), n > 1000);
            }
        }
        assert_eq!(sparse, dense);
    }

    proptest! {
        #[test]
        fn a_sparse_one_is_what_a_table_of_registers_is(
            raised in proptest::collection::vec((0usize..200, 1u8..34), 1..400),
            spread in 1usize..82,
        ) {
            let (mut hll, mut model) = (empty(), [0; REGISTERS]);
            for (index, value) in raised {
                let index = index * spread;
                let old = model[index];
                prop_assert_eq!(raise(&mut hll, index, value, 3000), Ok(value > old));
                model[index] = old.max(value);
                let mut registers = Registers::default();
                prop_assert_eq!(registers.join(&hll), Ok(()));
                prop_assert!(registers.0 == model);
            }
        }

        #[test]
        fn anything_else_is_refused(
            body in proptest::collection::vec(any::<u8>(), 0..40),
            form in 0u8..3,
        ) {
            let mut hll = [&b"HYLL"[..], &[form], &[0; 10], &[STALE], &body].concat();
            let mut registers = Registers::default();
            let joined = registers.join(&hll);
            prop_assert_eq!(count(&hll).map(drop), joined);
            let _ = add(&mut hll, &body, 3000);
            let _ = make_dense(&mut hll);
            let _ = decode(&hll);
        }
    }
}
