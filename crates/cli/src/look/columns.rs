//! Chooses which columns of a table fit, and how wide they are.

/// Characters that are left of words, at least.
const WORD: usize = 8;

/// Whether a column is of words, by its head; the others are numbers.
pub(super) fn is_word(head: &[&str], at: usize) -> bool {
    at == 0 || matches!(head[at], "at" | "where" | "service" | "")
}

/// The columns that are shown, and how wide they are. A number is shown whole or not at all: a
/// number that lost its first digits would mislead. So columns that can be spared are left out
/// first, in this order; words are cut.
pub(super) fn columns(
    room: usize,
    head: &[&str],
    rows: &[Vec<String>],
    spare: &[&str],
) -> Vec<(usize, usize)> {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([head[at].chars().count()]).max().unwrap_or(0)
    };
    let mut columns: Vec<_> = (0..head.len()).map(|at| (at, width(at))).collect();
    let over = |columns: &[(usize, usize)]| {
        let all: usize = columns.iter().map(|(_, width)| width + 1).sum();
        all.saturating_sub(room + 1)
    };
    for name in spare {
        if over(&columns) > 0 {
            columns.retain(|&(at, _)| head[at] != *name);
        }
    }
    loop {
        let excess = over(&columns);
        if excess == 0 || columns.len() == 1 {
            return columns;
        }
        let words = columns.iter_mut().filter(|(at, _)| is_word(head, *at));
        match words.max_by_key(|(_, width)| *width) {
            Some((_, width)) if *width > WORD => *width -= excess.min(*width - WORD),
            _ => drop(columns.pop()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    /// On 80 columns `1.47 MiB/s` was once shown as `47 MiB/s`.
    #[test]
    fn numbers_are_whole_or_absent() {
        let row = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let head = report::SERVICES;
        let rows = [
            row(&[
                "ack/request-reply",
                "127.0.0.1:8000 127.0.0.1:8001",
                "50",
                "1.2k/s",
                "1.47 MiB/s",
                "1.48 MiB/s",
                "7",
                "9",
            ]),
            row(&["echo", "", "0", "0/s", "0 B/s", "0 B/s", "0", "0"]),
        ];
        for width in 1..140 {
            let shown = columns(
                width,
                &head,
                &rows,
                &["at", "closed", "accepted", "refused"],
            );
            let all: usize = shown.iter().map(|(_, width)| width + 1).sum();
            assert!(all <= width + 1 || shown.len() == 1, "{width}: {shown:?}");
            for (at, wide) in shown {
                let needs = rows[0][at].len();
                assert!(is_word(&head, at) || wide >= needs, "{width}: {}", head[at]);
            }
        }
        let names = |width| {
            let shown = columns(width, &head, &rows, &["at"]).into_iter();
            shown.map(|(at, _)| head[at]).collect::<Vec<_>>()
        };
        assert_eq!(names(140), head);
        assert!(names(80).contains(&"sent") && !names(80).contains(&"at"));
    }
}
