//! What becomes of a stream beside its records: it is deleted and made again, and things are set about
//! it; what may be so after a crash.

use tidewire_log::StreamSettings;

use crate::seeds::{Verdict, ensure};

/// What was done about a stream, and by which ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The stream was deleted with so many records.
    Deleted(usize),
    Made,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Life {
    /// Whether the stream is there, for callers that append.
    pub(crate) exists: bool,
    /// Whether it is there for sure: committed.
    firm: bool,
    /// Records before this one went with a stream of the same name that was deleted; committed.
    cut: usize,
    /// What is not committed yet.
    turns: Vec<(u64, Turn)>,
    /// What may be set, the oldest first; the last one is.
    settings: Vec<(u64, StreamSettings)>,
    /// Retention of its own was set at some time.
    pub(crate) limited: bool,
}

impl Default for Life {
    fn default() -> Life {
        Life {
            exists: true,
            firm: true,
            cut: 0,
            turns: Vec::new(),
            settings: vec![(0, StreamSettings::default())],
            limited: false,
        }
    }
}

impl Life {
    pub(crate) fn deleted(&mut self, ticket: u64, records: usize) {
        self.exists = false;
        self.turns.push((ticket, Turn::Deleted(records)));
    }

    pub(crate) fn made(&mut self, ticket: u64, settings: StreamSettings) {
        self.exists = true;
        self.turns.push((ticket, Turn::Made));
        self.set(ticket, settings);
    }

    pub(crate) fn set(&mut self, ticket: u64, settings: StreamSettings) {
        self.limited |= settings.retain_bytes.is_some() || settings.retain_age.is_some();
        self.settings.push((ticket, settings));
    }

    pub(crate) fn committed(&mut self, committed: u64) {
        let count = self
            .turns
            .partition_point(|&(ticket, _)| ticket <= committed);
        for (_, turn) in self.turns.drain(..count) {
            match turn {
                Turn::Deleted(records) => (self.firm, self.cut) = (false, records),
                Turn::Made => self.firm = true,
            }
        }
        let mut settled = self.settings.iter();
        let settled = settled.rposition(|&(ticket, _)| ticket <= committed);
        self.settings.drain(..settled.unwrap_or(0));
    }

    /// What readers must see: whether it is there; `None` if that is on its way to change.
    pub(crate) fn seen(&self) -> Option<bool> {
        self.turns.is_empty().then_some(self.firm)
    }

    fn cuts(&self) -> impl Iterator<Item = usize> {
        let turns = self.turns.iter().filter_map(|(_, turn)| match turn {
            Turn::Deleted(records) => Some(*records),
            Turn::Made => None,
        });
        std::iter::once(self.cut).chain(turns)
    }

    /// Whether a stream of this name was deleted at some time.
    pub(crate) fn was_deleted(&self) -> bool {
        self.cut > 0 || !self.firm || !self.turns.is_empty()
    }

    /// The log was opened and has no such stream.
    pub(crate) fn may_be_gone(&self, committed: usize) -> bool {
        committed == 0 || !self.firm || self.cuts().count() > 1
    }

    /// The stream was made anew then, and begins at this position.
    pub(crate) fn reborn(&mut self, ticket: u64, first: usize) -> Verdict {
        ensure(self.cuts().any(|cut| cut == first), || {
            format!("begins again at {first}: {self:?}")
        })?;
        *self = Life {
            exists: true,
            firm: false,
            cut: first,
            turns: vec![(ticket, Turn::Made)],
            ..Life::default()
        };
        Ok(())
    }

    /// The log was opened and has it, from this position on, with these settings; `shortened` if other
    /// things than deletion may have shortened it.
    pub(crate) fn found(
        &mut self,
        first: usize,
        set: StreamSettings,
        shortened: bool,
    ) -> Verdict<Vec<usize>> {
        ensure(first >= self.cut, || format!("begins at {first}: {self:?}"))?;
        let cuts = self.cuts().filter(|&cut| cut <= first).collect::<Vec<_>>();
        ensure(shortened || self.limited || cuts.contains(&first), || {
            format!("begins at {first}: {self:?}")
        })?;
        ensure(self.settings.iter().any(|&(_, known)| known == set), || {
            format!("has {set:?}: {self:?}")
        })?;
        *self = Life {
            cut: *cuts.iter().max().expect("the cut"),
            settings: vec![(0, set)],
            limited: self.limited,
            ..Life::default()
        };
        Ok(cuts)
    }
}
