//! The order in which rotated files were written.
//!
//! Files that were made in one tick of the file system's clock (4 ms, say) have one time of birth. Their other times tell them apart
//! as long as one of them lasted for longer than a tick; behind that there are only the numbers in their names.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::file_system::{FileId, Seen};
use crate::pattern::is_packed;

/// When what a file holds was begun: a file that was renamed has its birth, and a copy is made when what it holds ends,
/// which is before the next is begun. What was compressed has the time at which it was last written.
pub(crate) fn begun(path: &Path, id: FileId, modified: i128) -> i128 {
    match id.born {
        Some(born) if !is_packed(path) => born,
        _ => modified,
    }
}

/// The times of a file, the most telling ones first: a writer goes on in one file until it begins
/// the next, and a file gets its new name before the one after it does.
fn times(seen: &Seen) -> (i128, i128, i128) {
    // Compression itself has changed the file.
    let changed = match is_packed(&seen.path) {
        true => seen.modified,
        false => seen.changed,
    };
    let begun = begun(&seen.path, seen.id, seen.modified);
    (begun, seen.modified, changed)
}

/// The name of a rotated file up to its number, and that. What has more digits is a date, which is in order as text.
pub(crate) fn numbered(path: &Path) -> Option<(&str, u64)> {
    let name = path.file_name()?.to_str()?;
    let mut end = name.len();
    for (at, _) in name.rmatch_indices(['.', '-']) {
        let part = &name[at + 1..end];
        let number = part.parse().ok().filter(|_| part.len() < 6);
        if let Some(number) = number {
            return Some((&name[..at], number));
        }
        end = at;
    }
    None
}

/// Puts the files of a directory in the order in which what they hold was begun, the oldest first. Where times tell nothing, their
/// numbers do: they grow with each rotation, so that the largest is the oldest, unless the files of that name whose times differ show
/// that each new one gets the next number.
pub(crate) fn put_in_order(files: &mut [Seen]) {
    files.sort_by_cached_key(times);
    let has_packed = files.iter().any(|seen| is_packed(&seen.path));
    if !has_packed && files.is_sorted_by(|one, other| times(one) < times(other)) {
        return;
    }
    let rising = directions(files);
    let number = |seen: &Seen| {
        let (name, number) = numbered(&seen.path)?;
        let is_rising = rising.get(name).is_some_and(|&by| by > 0);
        // At most five digits.
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        Some(if is_rising { number } else { -number })
    };
    let begun = begun_before(files, number);
    let times = |seen: &Seen| {
        let (first, modified, changed) = times(seen);
        (*begun.get(&seen.id).unwrap_or(&first), modified, changed)
    };
    files.sort_by_key(times);
    // At one moment, the file without a number is the one that is written to.
    let place = |seen: &Seen| (number(seen).is_none(), number(seen));
    for tied in files.chunk_by_mut(|one, other| times(one) == times(other)) {
        tied.sort_by(|one, other| (place(one), &one.path).cmp(&(place(other), &other.path)));
    }
}

/// By name, how often a later file has a larger number, less how often it has a smaller one. The
/// files are in the order of their times; the times of compressed files are compared only with each
/// other.
fn directions(files: &[Seen]) -> BTreeMap<String, i64> {
    let mut rising: BTreeMap<String, i64> = BTreeMap::new();
    let mut last: BTreeMap<(&str, bool), (&Seen, u64)> = BTreeMap::new();
    for seen in files {
        let Some((name, number)) = numbered(&seen.path).filter(|_| seen.len > 0) else {
            continue;
        };
        if let Some((before, less)) = last.insert((name, is_packed(&seen.path)), (seen, number))
            && times(before) < times(seen)
        {
            let by = match number.cmp(&less) {
                Ordering::Greater => 1,
                Ordering::Equal => 0,
                Ordering::Less => -1,
            };
            *rising.entry(name.to_owned()).or_default() += by;
        }
    }
    rising
}

/// When compressed files were begun at the latest that were written to, for a moment, after the
/// next one had been made, as by a writer that has not noticed the rotation: right before the first
/// later-numbered file was made, unless one that is earlier was made or written after that, as
/// where files are copied and truncated, which keep their birth.
fn begun_before(files: &[Seen], number: impl Fn(&Seen) -> Option<i64>) -> BTreeMap<FileId, i128> {
    // By name, the plain files with their places in the order of numbers; the one that is written to is the last.
    let mut plain: BTreeMap<&str, Vec<(i64, i128)>> = BTreeMap::new();
    for seen in files.iter().filter(|seen| !is_packed(&seen.path)) {
        let Some(born) = seen.id.born else { continue };
        let name = seen.path.file_name().and_then(|name| name.to_str());
        let (name, place) = match (numbered(&seen.path), number(seen)) {
            (Some((name, _)), Some(place)) => (name, place),
            _ => (name.unwrap_or_default(), i64::MAX),
        };
        plain.entry(name).or_default().push((place, born));
    }
    let paths: BTreeSet<&Path> = files.iter().map(|seen| &*seen.path).collect();
    // What is still being compressed is beside what it is made of, and was written just now.
    let is_whole =
        |seen: &&Seen| is_packed(&seen.path) && !paths.contains(&*seen.path.with_extension(""));
    let mut packed: BTreeMap<&str, Vec<(i64, i128)>> = BTreeMap::new();
    for seen in files.iter().filter(is_whole) {
        if let (Some((name, _)), Some(place)) = (numbered(&seen.path), number(seen)) {
            packed.entry(name).or_default().push((place, seen.modified));
        }
    }
    let mut begun = BTreeMap::new();
    for seen in files.iter().filter(|seen| is_packed(&seen.path)) {
        let (Some((name, _)), Some(place)) = (numbered(&seen.path), number(seen)) else {
            continue;
        };
        let of_name = || plain.get(name).into_iter().flatten();
        let later = of_name().filter(|(other, _)| *other > place);
        let earlier = of_name().filter(|(other, _)| *other < place);
        let earlier = earlier.map(|(_, born)| *born);
        let packed = packed.get(name).into_iter().flatten();
        let earlier = earlier.chain(
            packed
                .filter(|(other, _)| *other < place)
                .map(|(_, at)| *at),
        );
        if let Some(next) = later.map(|(_, born)| *born).min()
            && next <= seen.modified
            && earlier.max().is_none_or(|last| last < next)
        {
            begun.insert(seen.id, next - 1);
        }
    }
    begun
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn seen(name: &str, [born, modified, changed]: [i128; 3]) -> Seen {
        Seen {
            path: PathBuf::from(format!("/l/{name}")),
            id: FileId {
                device: 1,
                inode: name
                    .bytes()
                    .map(u64::from)
                    .fold(7, |all, byte| all * 31 + byte),
                born: Some(born),
            },
            len: 1,
            modified,
            changed,
            removed: false,
        }
    }

    fn ordered(files: &[(&str, [i128; 3])]) -> Vec<String> {
        let mut all: Vec<Seen> = files
            .iter()
            .map(|(name, times)| seen(name, *times))
            .collect();
        let forwards = {
            put_in_order(&mut all);
            all.clone()
        };
        all.reverse();
        put_in_order(&mut all);
        assert_eq!(all, forwards);
        let names = all.iter().map(|seen| seen.path.file_name().unwrap());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    /// Each new one got the next number, and the larger one was taken for the older one.
    #[test]
    fn of_one_birth_the_last_writing_and_the_renaming_tell() {
        let written = [("a.3", [10, 10, 14]), ("a.4", [10, 14, 18])];
        assert_eq!(ordered(&written), ["a.3", "a.4"]);
        let renamed = [("a.3", [10, 10, 10]), ("a.4", [10, 10, 14])];
        assert_eq!(ordered(&renamed), ["a.3", "a.4"]);
        let now = [
            ("a", [10, 10, 10]),
            ("a.1", [10, 10, 10]),
            ("a.2", [10, 10, 10]),
        ];
        assert_eq!(ordered(&now), ["a.2", "a.1", "a"]);
    }

    #[test]
    fn of_one_moment_the_numbers_tell_in_the_direction_that_others_show() {
        let rising = [
            ("a.8", [1, 2, 3]),
            ("a.9", [10, 10, 10]),
            ("a.10", [10, 10, 10]),
            ("b.2", [10, 10, 10]),
            ("b.1", [10, 10, 10]),
            ("b.3", [1, 2, 3]),
        ];
        let all = ordered(&rising);
        let of = |name: &str| -> Vec<String> {
            let all = all.iter().filter(|other| other.starts_with(name));
            all.cloned().collect()
        };
        assert_eq!(of("a"), ["a.8", "a.9", "a.10"]);
        assert_eq!(of("b"), ["b.3", "b.2", "b.1"]);
        let dates = [("a-20260102", [10, 10, 10]), ("a-20260101", [10, 10, 10])];
        assert_eq!(ordered(&dates), ["a-20260101", "a-20260102"]);
    }

    /// Times of birth and of change are the times of the compression.
    #[test]
    fn what_was_compressed_has_the_time_of_its_last_writing() {
        let packed = [("a.2.gz", [50, 9, 50]), ("a.1", [10, 20, 51])];
        assert_eq!(ordered(&packed), ["a.2.gz", "a.1"]);
    }

    /// The writer had not noticed for a moment that the file was rotated, so that its last writing
    /// came after the next one was made.
    #[test]
    fn what_was_written_late_and_compressed_then_comes_before_the_next_one() {
        let late = [
            ("a.3.gz", [60, 12, 60]),
            ("a.2.gz", [50, 24, 50]),
            ("a.1", [20, 29, 51]),
            ("a", [30, 40, 40]),
        ];
        assert_eq!(ordered(&late), ["a.3.gz", "a.2.gz", "a.1", "a"]);
        // The oldest is being compressed.
        let begun = [&late[..], &[("a.4", [1, 9, 9]), ("a.4.gz", [70, 70, 70])]].concat();
        let mut all = ordered(&begun);
        all.retain(|name| name != "a.4.gz");
        assert_eq!(all, ["a.4", "a.3.gz", "a.2.gz", "a.1", "a"]);
        let now = [("a.1.gz", [50, 31, 50]), ("a", [30, 40, 40])];
        assert_eq!(ordered(&now), ["a.1.gz", "a"]);
        let rising = [
            ("a.1", [1, 5, 9]),
            ("a.2", [6, 19, 29]),
            ("a.3.gz", [50, 31, 50]),
            ("a.4", [30, 40, 41]),
        ];
        assert_eq!(ordered(&rising), ["a.1", "a.2", "a.3.gz", "a.4"]);
        // Copied and truncated: what is written to is as old as the path.
        let copied = [
            ("a.3.gz", [60, 20, 60]),
            ("a.2", [30, 30, 61]),
            ("a.1.gz", [62, 40, 62]),
            ("a", [1, 50, 50]),
        ];
        assert_eq!(ordered(&copied), ["a.3.gz", "a", "a.2", "a.1.gz"]);
    }
}
