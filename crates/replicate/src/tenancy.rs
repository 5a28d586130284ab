//! When a replicator begins its lease, proves it and releases it: see [`lease`](crate::lease).

use std::time::Duration;

use crate::home::{Held, Owner, Words};
use crate::lease::{Granted, LEASE, Lease};
use crate::settings::{Mistakes, Settings};
use crate::witness::Witness;

/// The module's comment describes the type.
#[derive(Debug)]
pub(crate) struct Tenancy {
    owner: Owner,
    /// Zero: there are no leases.
    lasts: Duration,
    lease: Lease,
    stage: Stage,
    /// The word that another process left at the home, and when its lease is over.
    others: Option<(Granted, Duration)>,
    /// When the last transaction was sent.
    sent: Duration,
    witness: Witness,
    mistakes: Mistakes,
}

/// The home's record about this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No transaction is under way.
    None,
    /// A transaction with this owner's word is under way.
    Sent,
    /// The word is at home: the tenancy has begun.
    Begun,
    /// The owner leaves, and takes its word back.
    Leaves,
    /// The transaction that takes the word back is under way.
    Releasing,
    /// The process does not own the home any more.
    Over,
}

impl Tenancy {
    pub(crate) fn new(owner: Owner, settings: &Settings) -> Tenancy {
        Tenancy {
            owner,
            lasts: settings.lease,
            lease: Lease::default(),
            stage: Stage::None,
            others: None,
            sent: Duration::ZERO,
            witness: settings.witness.clone(),
            mistakes: settings.mistakes,
        }
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Whether the level may be promised: there are no leases, or this process has proved that it is the owner.
    pub(crate) fn has_begun(&self) -> bool {
        self.lasts.is_zero() || self.stage == Stage::Begun
    }

    pub(crate) fn is_to_be_released(&self) -> bool {
        matches!(self.stage, Stage::Leaves | Stage::Releasing)
    }

    /// The home was opened, so no other process can commit any more: what another one proved before holds for its time from now on.
    /// `has_claimed`: a transaction of this process was committed before, so no other process can have opened the home in between
    /// without leaving its name there.
    pub(crate) fn opened(&mut self, held: &Held, has_claimed: bool, now: Duration) {
        if self.stage == Stage::Sent {
            // The owner's word in the home shows whether the transaction was committed.
            self.stage = Stage::None;
        }
        let granted = Granted::of(&held.notes);
        let is_own = granted.is_some_and(|granted| granted.owner == self.owner);
        self.stage = match self.stage {
            Stage::None if is_own => Stage::Begun,
            Stage::Begun if !is_own => Stage::None,
            stage => stage,
        };
        let Some(granted) = granted.filter(|_| !is_own) else {
            return self.others = None;
        };
        let is_known = has_claimed && self.others.is_some_and(|(known, _)| known == granted);
        if is_known {
            return;
        }
        let wait = match self.mistakes.makes(|mistakes| mistakes.lease_unwaited) {
            true => Duration::ZERO,
            false => granted.wait(),
        };
        // No transaction of that owner was committed since the one that was seen, so it was sent before that moment.
        let seen = held.proofs.get(&granted.owner);
        let seen = match self.mistakes.makes(|mistakes| mistakes.witness_unchecked) {
            true => self.witness.saw_any(granted.owner),
            false => seen.and_then(|&number| self.witness.saw_last(granted.owner, number)),
        };
        let ends = seen.map_or(now, |seen| seen.min(now)) + wait;
        let wait = ends.saturating_sub(now);
        if !self.lasts.is_zero() && !wait.is_zero() {
            tracing::info!(
                wait = ?wait,
                "the home's former owner has not released its lease: waiting until the lease has ended"
            );
        }
        self.others = Some((granted, ends));
    }

    /// When a transaction is to be sent though nothing else is to go home.
    pub(crate) fn due(&self) -> Option<Duration> {
        if self.lasts.is_zero() {
            return None;
        }
        match self.stage {
            Stage::None => Some(self.others.map_or(Duration::ZERO, |(_, ends)| ends)),
            Stage::Begun => Some(self.sent + self.lasts / 4),
            Stage::Leaves => Some(Duration::ZERO),
            Stage::Sent | Stage::Releasing | Stage::Over => None,
        }
    }

    /// Adds the note about the lease to a transaction that is about to be sent.
    pub(crate) fn put_word(&mut self, now: Duration, words: &mut Words) {
        if self.lasts.is_zero() {
            return;
        }
        self.sent = now;
        let waits = self.others.is_some_and(|(_, ends)| now < ends);
        let lasts = match self.stage {
            Stage::None if !waits => {
                self.stage = Stage::Sent;
                self.lasts
            }
            Stage::Leaves => {
                self.stage = Stage::Releasing;
                Duration::ZERO
            }
            _ => return,
        };
        let owner = self.owner;
        let granted = Granted { owner, lasts };
        words.insert(LEASE.into(), granted.encode()[..].into());
    }

    /// A transaction is committed that was sent then.
    pub(crate) fn proved(&mut self, sent: Duration, now: Duration) {
        self.stage = match self.stage {
            Stage::Sent => Stage::Begun,
            Stage::Releasing => Stage::Over,
            stage => stage,
        };
        if self.stage == Stage::Begun {
            let from = match self.mistakes.makes(|mistakes| mistakes.lease_from_answer) {
                true => now,
                false => sent,
            };
            self.lease.extend(from + self.lasts);
        }
    }

    /// Ends the tenancy: the process leaves, or has lost its home.
    pub(crate) fn end(&mut self) {
        self.lease.end();
        self.stage = match self.stage {
            Stage::Begun | Stage::Sent => Stage::Leaves,
            Stage::None => Stage::Over,
            stage => stage,
        };
    }
}
