//! Commands and subcommands as numbers, for what a user may run to be bits.

use std::sync::LazyLock;

use super::category::{self, Categories};
use crate::service::table::{Entry, table};

/// A command, or a subcommand of one.
pub(super) struct Leaf {
    pub(super) entry: &'static Entry,
    pub(super) sub: Option<&'static str>,
    pub(super) categories: Categories,
}

/// The leaves of all commands, one command after the other: first the command's own leaf, then the leaves of its
/// subcommands in order.
pub(super) struct Leaves {
    all: Vec<Leaf>,
    /// Where each command stands, by its number in the table; and the end.
    first: Vec<usize>,
}

static LEAVES: LazyLock<Leaves> = LazyLock::new(Leaves::new);

/// The categories of the command that a call runs.
pub(in crate::service) fn categories_of_call(entry: &Entry, args: &[&[u8]]) -> Categories {
    LEAVES.all[LEAVES.called(entry, args)].categories
}

/// The names of all commands and subcommands, as in `config|get`, and what categories they are in.
pub(in crate::service) fn names() -> impl Iterator<Item = (String, Categories)> {
    LEAVES.all.iter().map(|leaf| (leaf.name(), leaf.categories))
}

/// The list of all commands, made once.
pub(super) fn leaves() -> &'static Leaves {
    &LEAVES
}

impl Leaf {
    /// Name of the leaf, as in `config|get`.
    pub(super) fn name(&self) -> String {
        match self.sub {
            None => self.entry.name.to_owned(),
            Some(sub) => format!("{}|{sub}", self.entry.name),
        }
    }
}

impl Leaves {
    fn new() -> Leaves {
        let (mut all, mut first) = (Vec::new(), Vec::new());
        for entry in table().all() {
            first.push(all.len());
            let subs = entry.subcommands().iter().map(|(name, _)| Some(*name));
            for sub in std::iter::once(None).chain(subs) {
                let categories = category::of(entry, sub);
                all.push(Leaf {
                    entry,
                    sub,
                    categories,
                });
            }
        }
        first.push(all.len());
        Leaves { all, first }
    }

    pub(super) fn all(&self) -> &[Leaf] {
        &self.all
    }

    /// A command and its subcommands.
    pub(super) fn of(&self, entry: &Entry) -> std::ops::Range<usize> {
        let id = usize::from(entry.id);
        self.first[id]..self.first[id + 1]
    }

    /// The leaf that a call runs.
    pub(super) fn called(&self, entry: &Entry, args: &[&[u8]]) -> usize {
        let sub = args.get(1).filter(|_| entry.has_subcommands());
        sub.and_then(|sub| self.sub(entry, sub))
            .unwrap_or(self.first[usize::from(entry.id)])
    }

    /// A subcommand by its name, in any case.
    pub(super) fn sub(&self, entry: &Entry, name: &[u8]) -> Option<usize> {
        let range = self.of(entry);
        let is_it = |at: &usize| {
            let sub = self.all[*at].sub;
            sub.is_some_and(|sub| sub.as_bytes().eq_ignore_ascii_case(name))
        };
        range.into_iter().find(is_it)
    }

    /// The leaf that a rule names: `get`, `config`, `config|get`.
    pub(super) fn named(&self, name: &[u8]) -> Option<usize> {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let entry = table().find(parts.next()?)?;
        match parts.next() {
            None => Some(self.first[usize::from(entry.id)]),
            Some(sub) => self.sub(entry, sub),
        }
    }
}
