//! Histories of one key, and whether they are linearizable: whether the operations can be put in an
//! order in which each has the result that it had, that keeps the order of each client's
//! operations, and in which none that ended before another began comes after it.
//!
//! The search is that of Wing and Gong with Lowe's memory of where it has been: a place is how far
//! each client got, and the value then.

use std::collections::HashSet;

/// What was asked of the key. Its values are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    Set(i64),
    /// SET with GET.
    Swap(i64),
    SetIfAbsent(i64),
    Increment,
    Delete,
    Take,
}

/// What was answered: a value or its absence; for SET nothing, for DEL and SETNX 1 or 0.
pub(crate) type Answer = Option<i64>;

/// When an operation ends that was never answered: it may have happened at any time since it began, or never, and
/// its answer says nothing.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// One operation of a client, with the times at which it began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) ask: Ask,
    pub(crate) answer: Answer,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// What the key answers, and what it holds afterwards.
fn apply(ask: Ask, held: Option<i64>) -> (Answer, Option<i64>) {
    match ask {
        Ask::Get => (held, held),
        Ask::Set(v) => (None, Some(v)),
        Ask::Swap(v) => (held, Some(v)),
        Ask::SetIfAbsent(v) => (Some(held.is_none().into()), held.or(Some(v))),
        Ask::Increment => {
            let next = held.unwrap_or(0) + 1;
            (Some(next), Some(next))
        }
        Ask::Delete => (Some(held.is_some().into()), None),
        Ask::Take => (held, None),
    }
}

/// Whether the operations of these clients, each in its order, on a key that is absent at first,
/// are linearizable.
pub(crate) fn is_linearizable(clients: &[Vec<Op>]) -> bool {
    let start = (vec![0; clients.len()], None);
    let mut seen = HashSet::from([start.clone()]);
    let mut open: Vec<(Vec<usize>, Option<i64>)> = vec![start];
    while let Some((place, held)) = open.pop() {
        let next = |c: usize| clients[c].get(place[c]);
        let pending = || (0..clients.len()).filter_map(|c| Some((c, next(c)?)));
        let first_end = pending().map(|(_, op)| op.end).min().unwrap_or(UNKNOWN);
        if first_end == UNKNOWN {
            return true;
        }
        for (c, op) in pending().filter(|(_, op)| op.begin <= first_end) {
            let (answer, held) = apply(op.ask, held);
            if answer != op.answer && op.end != UNKNOWN {
                continue;
            }
            let mut place = place.clone();
            place[c] += 1;
            if seen.insert((place.clone(), held)) {
                open.push((place, held));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(ask: Ask, answer: Answer, begin: u64, end: u64) -> Op {
        Op {
            ask,
            answer,
            begin,
            end,
        }
    }

    #[test]
    fn overlapping_operations_may_come_in_any_order() {
        let reads = |first, second| {
            let a = vec![op(Ask::Set(1), None, 0, 1), op(Ask::Set(2), None, 2, 9)];
            let b = vec![
                op(Ask::Get, Some(first), 3, 4),
                op(Ask::Get, Some(second), 5, 6),
            ];
            is_linearizable(&[a, b])
        };
        assert!(reads(1, 1) && reads(1, 2) && reads(2, 2));
        assert!(!reads(2, 1), "time runs backwards");
        assert!(!reads(3, 3), "nobody wrote that");
    }

    #[test]
    fn a_stale_read_is_found() {
        let write = vec![op(Ask::Set(1), None, 0, 1), op(Ask::Set(2), None, 2, 3)];
        let fresh = vec![op(Ask::Get, Some(2), 4, 5)];
        let stale = vec![op(Ask::Get, Some(1), 4, 5)];
        assert!(is_linearizable(&[write.clone(), fresh]));
        assert!(!is_linearizable(&[write, stale]));
    }

    #[test]
    fn a_lost_update_is_found() {
        let increments = |a, b| {
            is_linearizable(&[
                vec![op(Ask::Increment, Some(a), 0, 5)],
                vec![op(Ask::Increment, Some(b), 1, 6)],
            ])
        };
        assert!(increments(1, 2) && increments(2, 1));
        assert!(!increments(1, 1));
    }

    #[test]
    fn two_winners_are_found() {
        let race = |ask: Ask, answers: [i64; 2]| {
            let before = vec![op(Ask::Set(7), None, 0, 1); usize::from(ask == Ask::Delete)];
            let [a, b] = answers.map(|answer| vec![op(ask, Some(answer), 2, 5)]);
            is_linearizable(&[before, a, b])
        };
        for ask in [Ask::SetIfAbsent(1), Ask::Delete] {
            assert!(race(ask, [1, 0]) && race(ask, [0, 1]));
            assert!(!race(ask, [1, 1]) && !race(ask, [0, 0]));
        }
    }

    #[test]
    fn what_was_never_answered_may_have_happened() {
        let lost = || vec![op(Ask::Set(2), None, 2, UNKNOWN)];
        let first = vec![op(Ask::Set(1), None, 0, 1)];
        let reads = |answers: &[i64]| {
            let reads = answers.iter().zip([4, 6, 8]);
            reads
                .map(|(a, at)| op(Ask::Get, Some(*a), at, at + 1))
                .collect()
        };
        let holds = |answers| is_linearizable(&[first.clone(), lost(), reads(answers)]);
        assert!(holds(&[1, 1, 1]) && holds(&[2, 2, 2]) && holds(&[1, 1, 2]));
        assert!(!holds(&[1, 2, 1]), "it was read, and is gone");
        assert!(!holds(&[3, 3, 3]), "nobody wrote that");
    }

    #[test]
    fn one_wrong_answer_in_a_long_history_is_found() {
        // Three clients take turns within overlapping windows.
        let mut clients = vec![Vec::new(); 3];
        let mut held = None;
        let mut rng = fastrand::Rng::with_seed(1);
        for at in 0..300u64 {
            let value = rng.i64(100..1_000_000);
            let ask = [Ask::Get, Ask::Swap(value), Ask::Increment, Ask::Take][rng.usize(..4)];
            let (answer, next) = apply(ask, held);
            held = next;
            clients[at as usize % 3].push(op(ask, answer, at, at + 2));
        }
        assert!(is_linearizable(&clients));
        let swap = clients[1]
            .iter()
            .rposition(|op| matches!(op.ask, Ask::Swap(_)) && op.answer.is_some());
        clients[1][swap.unwrap()].answer = Some(5);
        assert!(!is_linearizable(&clients));
    }
}
