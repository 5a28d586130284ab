//! The directory: names as processes see them, names that a sync has proven, and the changes
//! between.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::faults::Survival;

type Names = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    live: Names,
    proven: Names,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    at: u64,
    /// The name that goes, if the change takes one away, and the name that comes.
    from: Option<String>,
    to: Option<String>,
    inode: u64,
}

impl Directory {
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        self.live.get(name).copied()
    }

    pub(super) fn sorted(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }

    /// The files that have a name now.
    pub(super) fn live(&self) -> BTreeSet<u64> {
        self.live.values().copied().collect()
    }

    /// The files that have a name now or may have one after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<u64> {
        let changed = self.changes.iter().map(|change| change.inode);
        self.live
            .values()
            .chain(self.proven.values())
            .copied()
            .chain(changed)
            .collect()
    }

    pub(super) fn create(&mut self, at: u64, name: &str, inode: u64) {
        self.apply(Change {
            at,
            from: None,
            to: Some(name.to_owned()),
            inode,
        });
    }

    pub(super) fn rename(&mut self, at: u64, from: &str, to: &str, inode: u64) {
        self.apply(Change {
            at,
            from: Some(from.to_owned()),
            to: Some(to.to_owned()),
            inode,
        });
    }

    pub(super) fn remove(&mut self, at: u64, name: &str, inode: u64) {
        self.apply(Change {
            at,
            from: Some(name.to_owned()),
            to: None,
            inode,
        });
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            change.apply(&mut self.proven);
        }
    }

    /// A sync that failed: the changes count as done and are not.
    pub(super) fn fail(&mut self) {
        self.changes.clear();
    }

    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.changes.iter().map(|change| change.at)
    }

    /// Chooses what a crash leaves; `until` is the moment of [`Survival::Prefix`].
    pub(super) fn crash(&mut self, survival: Survival, until: u64, random: &mut Rng) {
        let in_order = random.bool();
        for change in std::mem::take(&mut self.changes) {
            let kept = match survival {
                Survival::Nothing => false,
                Survival::Everything | Survival::AllButOne => true,
                Survival::Prefix => change.at < until || (change.at == until && random.bool()),
                Survival::Each(percent) => random.u8(0..100) < percent,
            };
            if kept {
                change.apply(&mut self.proven);
            } else if in_order {
                break;
            }
        }
        self.live = self.proven.clone();
    }

    fn apply(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.changes.push(change);
    }
}

impl Change {
    fn apply(&self, names: &mut Names) {
        if let Some(from) = &self.from
            && names.get(from) == Some(&self.inode)
        {
            names.remove(from);
        }
        if let Some(to) = &self.to {
            names.insert(to.clone(), self.inode);
        }
    }
}
