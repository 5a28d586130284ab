//! Replies to commands on keys that are known beforehand.

use super::kv_load::KvLoad;
use super::kv_wire::Wire;
use super::null::Answers;
use super::pattern::Pattern;

/// Answers as if every key were set.
pub(super) struct AllSet {
    pub(super) load: KvLoad,
    pub(super) pattern: Box<Pattern>,
}

impl Answers for AllSet {
    fn answer(&self, input: &[u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while let Some(n) = answer(&self.load, &input[at..], &self.pattern, out) {
            at += n;
        }
        at
    }
}

/// Answers the command at the front of `bytes` as if every key were set; returns its length, or `None` if it is
/// not complete.
fn answer(load: &KvLoad, bytes: &[u8], pattern: &Pattern, out: &mut Vec<u8>) -> Option<usize> {
    let (is_read, head) = match load.wire {
        // *2 and *3 with a name of three bytes, then the key's length.
        Wire::Resp => (*bytes.get(1)? == b'2', 16 + decimals(load.key_size)),
        Wire::Binary => (*bytes.first()? == 1, 4),
    };
    let key = bytes.get(head..head + load.key_size)?;
    let digits = key[4..].iter();
    let number = digits.fold(0u64, |n, digit| {
        n.wrapping_mul(10)
            .wrapping_add(u64::from(digit.wrapping_sub(b'0')))
    });
    let value = load.value(pattern, number);
    let behind = match (load.wire, is_read) {
        (Wire::Resp, true) => 2,
        (Wire::Resp, false) => 7 + decimals(value.len()) + value.len(),
        (Wire::Binary, true) => 0,
        (Wire::Binary, false) => 1 + value.len(),
    };
    let all = head + load.key_size + behind;
    if bytes.len() < all {
        return None;
    }
    match (load.wire, is_read) {
        (Wire::Resp, false) => out.extend_from_slice(b"+OK\r\n"),
        (Wire::Resp, true) => {
            out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        (Wire::Binary, _) => {
            out.extend_from_slice(&[3, value.len() as u8]);
            out.extend_from_slice(value);
        }
    }
    Some(all)
}

fn decimals(n: usize) -> usize {
    n.max(1).ilog10() as usize + 1
}
