//! A short, deterministic part of the fuzzing of the journal's export format.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/src/journal.rs"]
mod journal;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use fastrand::Rng;

/// Fields of both forms and ends of entries, some of them spoilt.
#[test]
fn any_export_is_read_alike_in_pieces() {
    let mut random = Rng::with_seed(1);
    for _ in 0..5000 {
        let mut input = vec![random.u8(..40)];
        for _ in 0..random.usize(..12) {
            match random.u8(..4) {
                0 => input.push(b'\n'),
                1 => input.extend(b"__CURSOR=s=1;i=2\n"),
                2 => input.extend(b"MESSAGE=one\n"),
                _ => {
                    let len = random.usize(..20);
                    input.extend(b"RAW\n");
                    input.extend((len as u64).to_le_bytes());
                    input.extend(std::iter::repeat_with(|| random.u8(..)).take(len));
                    input.push(b'\n');
                }
            }
        }
        if random.u8(..3) == 0 {
            let at = random.usize(..input.len());
            input[at] = random.u8(..);
        }
        input.truncate(input.len() - random.usize(..input.len().min(4)));
        journal::journal_export(&input);
    }
}

#[test]
fn corpus() {
    replay::replay("journal_export", journal::journal_export);
}
