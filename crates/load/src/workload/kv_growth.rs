//! Replies of commands that make what they name longer or larger: LPUSH, INCR and others.
//!
//! The idea: on one connection such replies rise for each key, whatever other connections do. A server that keeps nothing
//! says the number again that it said before. Only some keys are looked at, so that a connection remembers little.

use super::kv_mix::Mix;
use super::kv_template::Effect;

/// Numbers that all connections together remember for each command.
const REMEMBERED: usize = 1 << 16;
/// Numbers that a connection remembers for each command, at least and at most.
const CELLS: (usize, usize) = (16, 4_096);

/// What a connection remembers.
pub(super) struct Growth {
    effects: Vec<Effect>,
    /// Every key of a number that this divides is looked at.
    step: u64,
    cells: usize,
    /// The last number for each command and key; 0 before the first.
    last: Vec<i64>,
}

impl Growth {
    /// For one of so many connections; `None` if replies need not rise: another command takes away what these have added.
    pub(super) fn of(mix: &Mix, keys: u64, connections: usize) -> Option<Growth> {
        let effects: Vec<Effect> = mix.templates().map(|template| template.effect()).collect();
        let grows = effects.iter().any(|effect| effect.grows());
        if !grows || effects.contains(&Effect::Unknown) {
            return None;
        }
        let cells = (REMEMBERED / connections.max(1)).clamp(CELLS.0, CELLS.1);
        Some(Growth {
            last: vec![0; cells * effects.len()],
            effects,
            step: keys.div_ceil(cells as u64).max(1),
            cells,
        })
    }

    /// Whether a reply is larger than the one before it; `None` if that is not known.
    pub(super) fn rises(&mut self, command: u8, key: u64, reply: &[u8]) -> Option<bool> {
        let key = match self.effects[usize::from(command)] {
            Effect::GrowsKey if key.is_multiple_of(self.step) => key / self.step,
            Effect::GrowsOne => 0,
            Effect::GrowsKey | Effect::None | Effect::Unknown => return None,
        };
        let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
        let number: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let cell = usize::from(command) * self.cells + key as usize % self.cells;
        let before = std::mem::replace(&mut self.last[cell], number);
        (before != 0).then_some(number > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Template;

    fn growth(commands: &[&str], keys: u64, connections: usize) -> Option<Growth> {
        let template = |text: &&str| (Template::parse(text, None).unwrap(), 1.0);
        let mix = Mix::new(commands.iter().map(template).collect()).unwrap();
        Growth::of(&mix, keys, connections)
    }

    #[test]
    fn numbers_that_do_not_rise_are_seen_for_each_key() {
        let mut it = growth(&["LPUSH l:{n} {value}", "INCR c:{key}"], 10, 1).unwrap();
        assert_eq!(it.rises(0, 3, b":1\r\n"), None, "the first");
        assert_eq!(it.rises(0, 4, b":1\r\n"), None, "another key");
        assert_eq!(it.rises(1, 3, b":7\r\n"), None, "another command");
        assert_eq!(it.rises(0, 3, b":2\r\n"), Some(true));
        assert_eq!(it.rises(0, 3, b":2\r\n"), Some(false));
        assert_eq!(it.rises(0, 3, b":1\r\n"), Some(false));
        assert_eq!(it.rises(1, 3, b"$1\r\n8\r\n"), None, "no number");
    }

    #[test]
    fn of_many_keys_some_are_looked_at_and_none_for_another() {
        let mut it = growth(&["RPUSH {key} x"], 1_000_000, 50_000).unwrap();
        assert_eq!(it.last.len(), CELLS.0);
        for key in 0..1_000_000 {
            assert_eq!(it.rises(0, key, b":5\r\n"), None, "{key}");
        }
        let again = (0..1_000_000).filter(|key| it.rises(0, *key, b":6\r\n") == Some(true));
        assert_eq!(again.count(), CELLS.0);
    }

    #[test]
    fn where_something_else_may_take_away_nothing_is_known() {
        for commands in [
            &["LPUSH l:{n} x", "LPOP l:{n}"][..],
            &["INCR c", "DEL c"],
            &["LPUSH l:{n} x", "EVALSHA {{}} 0"],
            &["INCRBY c {n}"],
            &["INCRBY c -1"],
            &["GET {key}"],
            &["SADD s {value}"],
        ] {
            assert!(growth(commands, 10, 1).is_none(), "{commands:?}");
        }
        for commands in [
            &["lpush l:{n} x", "LRANGE l:{n} 0 9"][..],
            &["INCR one"],
            &["INCRBY {key} 3"],
            &["HINCRBY h:{n} f 1"],
            &["APPEND {key} x"],
        ] {
            assert!(growth(commands, 10, 1).is_some(), "{commands:?}");
        }
    }
}
