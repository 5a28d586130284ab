//! A table of what paths through a server cost, as text that is kept with the sources and compared with later.

use std::fmt::{self, Write as _};

use super::profile::{Change, Profile};

/// Functions below this share of a path are lumped together.
const SHOWN: f64 = 0.004;
/// Tolerated difference of system calls between counts of one server: threads that wake by the clock cause some. The
/// number applies to one message, and as a share.
const CALLS: f64 = 0.05;
const CALLS_SHARE: f64 = 0.02;
/// The name of the row for all other functions.
const OTHERS: &str = "(others)";

/// One path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Name of the path.
    pub name: String,
    /// The cost of a message.
    pub cost: f64,
    /// Half of the interval of the cost, as a share: how well it is known.
    pub spread: f64,
    /// System calls of a message, where they were counted.
    pub calls: Option<f64>,
    /// The costs by function.
    pub profile: Profile,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The machine and tools of the table: counts compare only where all of these are equal.
    pub made_on: Vec<(String, String)>,
    /// The paths.
    pub paths: Vec<Path>,
}

/// A path that has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Name of the path.
    pub name: String,
    /// Cost of the path in the table.
    pub before: f64,
    /// Cost of the path now.
    pub after: f64,
    /// System calls of the path in the table, and now, if they have changed.
    pub calls: Option<(f64, f64)>,
    /// Functions of the path, the largest change first.
    pub functions: Vec<Change>,
}

/// Why a text is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the table cannot be understood: {text:?}")]
pub struct NotATable {
    line: usize,
    text: String,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// [`NotATable`].
    pub fn parse(text: &str) -> Result<Table, NotATable> {
        let mut table = Table::default();
        for (number, line) in text.lines().enumerate() {
            let read = table.read(line);
            read.ok_or_else(|| NotATable {
                line: number + 1,
                text: line.chars().take(80).collect(),
            })?;
        }
        Ok(table)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        if line.is_empty() || line.starts_with('#') {
            return Some(());
        }
        if let Some(function) = line.strip_prefix("  ") {
            let (cost, name) = function.trim_start().split_once(' ')?;
            self.paths.last_mut()?.profile.add(name, cost.parse().ok()?);
            return Some(());
        }
        if let Some(path) = line.strip_prefix("path ") {
            let mut words = path.rsplitn(4, ' ');
            let calls = match words.next()? {
                "-" => None,
                calls => Some(calls.parse().ok()?),
            };
            let spread: f64 = words.next()?.strip_suffix('%')?.parse().ok()?;
            let cost = words.next()?.parse().ok()?;
            self.paths.push(Path {
                name: words.next()?.to_owned(),
                cost,
                spread: spread / 100.0,
                calls,
                profile: Profile::default(),
            });
            return Some(());
        }
        let (name, value) = line.split_once(": ")?;
        self.made_on.push((name.to_owned(), value.to_owned()));
        Some(())
    }

    /// Circumstances in which this table differs from another: name, here, there.
    pub fn elsewhere(&self, other: &Table) -> Vec<(String, String, String)> {
        let mut differ = Vec::new();
        for (name, here) in &self.made_on {
            let there = other.made_on.iter().find(|(known, _)| known == name);
            let there = there.map_or("nothing said", |(_, value)| value);
            if here != there {
                differ.push((name.clone(), here.clone(), there.to_owned()));
            }
        }
        differ
    }

    /// Paths of `now` that cost more or less than here by more than `threshold`, and by more than their own spread.
    pub fn changed(&self, now: &Table, threshold: f64) -> Vec<Changed> {
        let mut all = Vec::new();
        for after in &now.paths {
            let Some(before) = self.paths.iter().find(|path| path.name == after.name) else {
                continue;
            };
            let share = (after.cost / before.cost.max(f64::MIN_POSITIVE) - 1.0).abs();
            let costs = share > threshold.max(before.spread).max(after.spread);
            let calls = before.calls.zip(after.calls).filter(|(before, after)| {
                (after - before).abs() > CALLS.max(before * threshold.max(CALLS_SHARE))
            });
            if !costs && calls.is_none() {
                continue;
            }
            // Paths that the table lumps together are lumped together now, too.
            let listed = |name: &str| {
                before
                    .profile
                    .dearest()
                    .iter()
                    .any(|(known, _)| *known == name)
            };
            let mut profile = Profile::default();
            for (name, cost) in after.profile.dearest() {
                let lumped = !listed(name) && cost < before.cost * SHOWN;
                profile.add(if lumped { OTHERS } else { name }, cost);
            }
            all.push(Changed {
                name: after.name.clone(),
                before: before.cost,
                after: after.cost,
                calls,
                functions: Profile::changes(&before.profile, &profile),
            });
        }
        all
    }

    /// Names of paths that only one of both has: here, then there.
    pub fn unmatched(&self, now: &Table) -> (Vec<String>, Vec<String>) {
        let only = |a: &Table, b: &Table| -> Vec<String> {
            let has = |name: &String| b.paths.iter().any(|path| path.name == *name);
            let names = a.paths.iter().map(|path| &path.name);
            names.filter(|name| !has(name)).cloned().collect()
        };
        (only(self, now), only(now, self))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.made_on {
            writeln!(f, "{name}: {value}")?;
        }
        for path in &self.paths {
            let spread = path.spread * 100.0;
            let calls = path
                .calls
                .map_or("-".to_owned(), |calls| format!("{calls:.2}"));
            writeln!(
                f,
                "\npath {} {:.1} {spread:.2}% {calls}",
                path.name, path.cost
            )?;
            let mut lines = String::new();
            let mut others = 0.0;
            for (name, cost) in path.profile.dearest() {
                if cost < path.cost * SHOWN || name == OTHERS {
                    others += cost;
                } else {
                    writeln!(lines, "  {cost:.1} {name}")?;
                }
            }
            f.write_str(&lines)?;
            writeln!(f, "  {others:.1} {OTHERS}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(costs: &[(&str, f64)], spread: f64) -> Table {
        let profile: Profile = costs
            .iter()
            .map(|(name, cost)| ((*name).to_owned(), *cost))
            .collect();
        Table {
            made_on: vec![("toolchain".into(), "rustc 1.0".into())],
            paths: vec![Path {
                name: "echo of 64, 50 connections".into(),
                cost: profile.total(),
                spread,
                calls: Some(3.02),
                profile,
            }],
        }
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        let table = table(
            &[
                ("a::<impl b for c>::d", 600.0),
                ("e", 398.0),
                ("(others)", 2.0),
            ],
            0.0012,
        );
        let text = format!("# A comment.\n{table}");
        assert_eq!(Table::parse(&text).unwrap(), table);
        for wrong in [
            "path a 1.0\n",
            "  1.0 early\n",
            "what\n",
            "path a b 0.1% -\n",
        ] {
            assert!(Table::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_planted_loop_is_named_and_less_than_a_percent_is_not_told() {
        let before = table(
            &[("receive", 3_000.0), ("send", 330.0), ("tiny", 3.0)],
            0.0001,
        );
        let before = Table::parse(&before.to_string()).unwrap();
        let planted = table(
            &[
                ("receive", 3_000.0),
                ("send", 330.0),
                ("tiny", 3.0),
                ("planted", 100.0),
            ],
            0.0001,
        );
        let changed = before.changed(&planted, 0.01);
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].functions[0].function, "planted");
        assert!((changed[0].functions[0].by() - 100.0).abs() < 1.0);
        assert_eq!(
            changed[0].functions.len(),
            1,
            "what was lumped together has not changed"
        );
        let little = table(&[("receive", 3_020.0), ("send", 330.0)], 0.0001);
        assert_eq!(before.changed(&little, 0.01), []);
        let mut calls = before.clone();
        calls.paths[0].calls = Some(4.02);
        assert_eq!(before.changed(&calls, 0.01)[0].calls, Some((3.02, 4.02)));
        let noisy = table(&[("receive", 3_100.0), ("send", 330.0)], 0.05);
        assert_eq!(before.changed(&noisy, 0.01), [], "within its own spread");
    }

    #[test]
    fn another_toolchain_and_other_paths_are_said() {
        let here = table(&[("a", 1.0)], 0.0);
        let mut there = here.clone();
        assert_eq!(here.elsewhere(&there), []);
        there.made_on[0].1 = "rustc 2.0".into();
        there.paths[0].name = "other".into();
        assert_eq!(here.elsewhere(&there)[0].2, "rustc 2.0");
        let (gone, new) = here.unmatched(&there);
        assert_eq!((gone.len(), &*new[0]), (1, "other"));
    }
}
