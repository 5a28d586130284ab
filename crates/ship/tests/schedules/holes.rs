//! Holes in files: before, between and inside lines, and at the end.

use std::path::Path;

use crate::cases::Case;

/// What a file is made of, and what is stored of it.
struct Made<'a> {
    parts: &'a [(u64, &'a str)],
    stored: &'a str,
    zeros: u64,
}

/// In one go, and with another process after each step.
fn shipped(made: &Made<'_>, restarts: bool) {
    let mut case = Case::new();
    case.write("a.log", "");
    for (offset, text) in made.parts {
        {
            let mut tree = case.files.tree.borrow_mut();
            let inode = tree.names[Path::new("/log/a.log")];
            tree.write_at(inode, *offset, text.as_bytes());
        }
        if restarts {
            case.run(1);
            case.restart();
        }
    }
    let counts = case.run(5);
    assert_eq!(case.stored(), [made.stored], "{:?}", case.events);
    if !restarts {
        assert_eq!(counts.holes, made.zeros, "{:?}", case.events);
        assert_eq!((counts.losses, counts.failed), (0, 0), "{:?}", case.events);
    }
    if made.zeros > 0 {
        assert!(
            case.told("bytes of zeros from byte") > 0,
            "{:?}",
            case.events
        );
    }
}

/// The zeros between the first line and the hole, which file systems do not call one, had the hole stored with the second line.
#[test]
fn a_hole_is_passed_over_wherever_it_is() {
    for made in [
        Made {
            parts: &[(0, "one\n"), (1_000_000, "two\nthree\n")],
            stored: "one two three",
            zeros: 999_996,
        },
        // A line that was begun ends at the hole.
        Made {
            parts: &[(0, "one\ntw"), (1_000_000, "o\nthree\n")],
            stored: "one tw o three",
            zeros: 999_994,
        },
        Made {
            parts: &[(5_000, "one\n"), (20_000, "two\n"), (40_960, "three\n")],
            stored: "one two three",
            zeros: 5_000 + 14_996 + 20_956,
        },
        // What was written is no hole, though it is zeros.
        Made {
            parts: &[(0, "one\n"), (4, "\0\0\0\0two\n")],
            stored: "one \0\0\0\0two",
            zeros: 0,
        },
    ] {
        shipped(&made, false);
        shipped(&made, true);
    }
}

/// A file whose length is ahead of what is written to it was read to its end, and what came later was lost without a word.
#[test]
fn a_hole_at_the_end_is_waited_at() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    let inode = case.files.tree.borrow().names[Path::new("/log/a.log")];
    let write_at = |case: &Case, offset: u64, text: &str| {
        let mut tree = case.files.tree.borrow_mut();
        tree.write_at(inode, offset, text.as_bytes());
    };
    write_at(&case, 100_000, "");
    let counts = case.run(2);
    assert_eq!(case.stored(), ["one"], "{:?}", case.events);
    assert_eq!((counts.holes, counts.behind), (0, 0), "{:?}", case.events);
    assert_eq!(
        case.told("has a hole of 99996 bytes"),
        1,
        "{:?}",
        case.events
    );
    for (offset, line) in [(4, "two\n"), (8, "three\n"), (14, "four\n")] {
        write_at(&case, offset, line);
        case.run(1);
    }
    assert_eq!(case.stored(), ["one two three four"], "{:?}", case.events);
    case.write("b.log", "");
    {
        let mut tree = case.files.tree.borrow_mut();
        let inode = tree.names[Path::new("/log/b.log")];
        tree.write_at(inode, 5_000, b"");
    }
    case.restart();
    write_at(&case, 19, "five\n");
    case.run(1);
    case.rotate("a.log");
    let counts = case.run(3);
    assert_eq!(
        case.stored(),
        ["one two three four five"],
        "{:?}",
        case.events
    );
    assert_eq!(counts.holes, 100_000 - 24, "{:?}", case.events);
    let mut following = case.process.following(case.now);
    assert!(following.all(|file| file.behind == 0));
}

/// A file that was nothing but a hole at the end of which something was seen was taken for truncated once that was written to: it had a second
/// follower, and was stored twice.
#[test]
fn what_is_written_into_a_hole_makes_no_other_file() {
    let lines = |text: &str| format!("{text}\n{}", "line\n".repeat(940));
    for (first, offset, text) in [
        // Nothing but a hole: across its end, and at its beginning.
        ("", 12_288, lines("one")),
        ("", 16_300, lines("one")),
        ("", 0, lines("one")),
        // A hole behind a line.
        ("zero\n", 5, lines("one")),
        ("zero\n", 12_288, lines("one")),
    ] {
        for restarts in [false, true] {
            let mut case = Case::new();
            case.write("a.log", first);
            let inode = case.files.tree.borrow().names[Path::new("/log/a.log")];
            let write_at = |case: &Case, offset: u64, text: &str| {
                let mut tree = case.files.tree.borrow_mut();
                tree.write_at(inode, offset, text.as_bytes());
            };
            write_at(&case, 16_384, "");
            case.run(1);
            write_at(&case, offset, &text);
            // Less than a copy of a truncated file is looked for.
            for _ in 0..20 {
                case.process.step(case.now).unwrap();
                case.now += std::time::Duration::from_millis(5);
            }
            case.process.save(case.now);
            if restarts {
                case.restart();
            }
            let counts = case.run(3);
            assert_eq!(counts.losses, 0, "{first:?} {offset} {:?}", case.events);
            assert_eq!(case.process.following(case.now).count(), 1);
            assert!(case.once(30), "{:?}", case.events);
            let stored = format!("{first}{text}").replace('\n', " ");
            assert_eq!(case.stored(), [stored.trim_end()], "{:?}", case.events);
        }
    }
}

/// A process that ships what is there waited for ever for the second one, which waited for the first.
#[test]
fn a_file_that_a_checkpoint_has_twice_is_followed_once() {
    for is_first in [false, true] {
        let mut case = Case::new();
        case.write("a.log", "one\ntwo\n");
        case.run(1);
        {
            let mut kept = case.kept.0.borrow_mut();
            let mut double = kept.files[0].clone();
            double.producer.push('2');
            double.acked = 0;
            double.servers.clear();
            double.head = Default::default();
            double.tail = Default::default();
            let at = usize::from(!is_first);
            kept.files.insert(at, double);
        }
        case.write("a.log", "three\n");
        assert!(case.once(30), "{:?}", case.events);
        assert_eq!(case.told("/log/a.log twice"), 1, "{:?}", case.events);
        assert_eq!(case.stored(), ["one two three"], "{:?}", case.events);
        assert_eq!(case.kept.0.borrow().files.len(), 1);
        case.restart();
        case.rotate("a.log");
        case.write("a.log", "four\n");
        case.run(5);
        assert_eq!(case.stored().len(), 2, "{:?}", case.events);
    }
}
