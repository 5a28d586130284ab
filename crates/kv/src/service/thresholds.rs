//! Settings under Redis's names that say how large collections may be in their small forms.

use super::values::between;
use crate::store::Limits;
use crate::types::{Fit, ListFit, SetFit};

/// One threshold.
pub(super) struct Threshold {
    pub(super) name: &'static str,
    /// The former name of the setting, which Redis still takes.
    before: Option<&'static str>,
    range: (i64, i64),
    read: fn(&Limits) -> i64,
    write: fn(&Limits, i64),
}

const COUNT: (i64, i64) = (0, i64::MAX);

const fn of(
    name: &'static str,
    before: Option<&'static str>,
    read: fn(&Limits) -> i64,
    write: fn(&Limits, i64),
) -> Threshold {
    Threshold {
        name,
        before,
        range: COUNT,
        read,
        write,
    }
}

/// All thresholds. The documentation lists them: keep it up to date.
const ALL: &[Threshold] = &[
    of(
        "hash-max-listpack-entries",
        Some("hash-max-ziplist-entries"),
        |limits| limits.hash().entries as i64,
        |limits, n| limits.set_hash(entries(limits.hash(), n)),
    ),
    of(
        "hash-max-listpack-value",
        Some("hash-max-ziplist-value"),
        |limits| limits.hash().length as i64,
        |limits, n| limits.set_hash(length(limits.hash(), n)),
    ),
    Threshold {
        range: (i32::MIN as i64, i32::MAX as i64),
        ..of(
            "list-max-listpack-size",
            Some("list-max-ziplist-size"),
            |limits| limits.list().0.into(),
            |limits, n| limits.set_list(ListFit(n as i32)),
        )
    },
    of(
        "set-max-intset-entries",
        None,
        |limits| limits.set().integers as i64,
        |limits, n| {
            limits.set_set(SetFit {
                integers: n as usize,
                ..limits.set()
            });
        },
    ),
    of(
        "set-max-listpack-entries",
        None,
        |limits| limits.set().packed.entries as i64,
        |limits, n| set_packed(limits, entries(limits.set().packed, n)),
    ),
    of(
        "set-max-listpack-value",
        None,
        |limits| limits.set().packed.length as i64,
        |limits, n| set_packed(limits, length(limits.set().packed, n)),
    ),
    of(
        "zset-max-listpack-entries",
        Some("zset-max-ziplist-entries"),
        |limits| limits.zset().entries as i64,
        |limits, n| limits.set_zset(entries(limits.zset(), n)),
    ),
    of(
        "zset-max-listpack-value",
        Some("zset-max-ziplist-value"),
        |limits| limits.zset().length as i64,
        |limits, n| limits.set_zset(length(limits.zset(), n)),
    ),
];

fn entries(fit: Fit, n: i64) -> Fit {
    Fit {
        entries: n as usize,
        ..fit
    }
}

fn length(fit: Fit, n: i64) -> Fit {
    Fit {
        length: n as usize,
        ..fit
    }
}

fn set_packed(limits: &Limits, packed: Fit) {
    limits.set_set(SetFit {
        packed,
        ..limits.set()
    });
}

/// The setting of this name, in lower case.
pub(super) fn find(name: &str) -> Option<&'static Threshold> {
    ALL.iter()
        .find(|t| t.name == name || t.before == Some(name))
}

/// All settings with their values, former names included.
pub(super) fn all(limits: &Limits) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for threshold in ALL {
        let value = (threshold.read)(limits).to_string();
        let names = [Some(threshold.name), threshold.before];
        all.extend(
            names
                .into_iter()
                .flatten()
                .map(|name| (name, value.clone())),
        );
    }
    all
}

impl Threshold {
    /// The value as a number.
    ///
    /// # Errors
    /// Why the value is not accepted.
    pub(super) fn check(&self, value: &str) -> Result<i64, String> {
        between(value, self.range.0, self.range.1)
    }

    /// Takes a value that was checked.
    pub(super) fn set(&self, limits: &Limits, value: i64) {
        (self.write)(limits, value);
    }
}
