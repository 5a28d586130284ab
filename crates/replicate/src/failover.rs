//! When a follower takes a home over by itself: a watchman, who reads the marks and says so.
//!
//! One idea: each committed transaction of the owner is a proof that it lives, and the marks show it to all followers. So a follower
//! needs no other sign than that none came for as long as the lease lasts, and a claim is right whenever it is made: the home lets
//! one process in at a time, and the claim names the owner that it follows. All of this only decides *when* to claim, and which
//! follower tries first: those that have read all there is, by their rank in the group.
//!
//! Nothing here reads a clock or asks a home: `now` is given, by the clock of the [leases](crate::monotonic).

use std::fmt;
use std::time::Duration;

use crate::home::{Held, Owner};
use crate::lease::Granted;
use crate::witness::Witness;

/// How much later the follower of the next rank tries: longer than most claims take.
const STEP: Duration = Duration::from_secs(1);
/// How long a follower waits, for each rank, before it tries again what was refused.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a server that has claimed the home, and is a member of the group still or perhaps, may take to begin its lease: it
/// writes a snapshot meanwhile.
const BEGINS_WITHIN: Duration = Duration::from_secs(120);
/// How long a server that has claimed the home may be gone from the group before another one claims it.
const GONE_FOR: Duration = Duration::from_secs(2);

/// The name of the word that says where clients find the owner: the number of its log, little-endian, and the address.
pub const ADDRESS: &str = "address";

/// The [word](ADDRESS) of an owner with this log.
#[must_use]
pub fn address_word(log: u64, at: &str) -> Vec<u8> {
    [&log.to_le_bytes(), at.as_bytes()].concat()
}

/// Where clients find the owner of a home, if it has left word of that.
#[must_use]
pub fn owners_address(held: &Held) -> Option<&str> {
    let (log, at) = held.notes.get(ADDRESS)?.split_first_chunk::<8>()?;
    let is_its_own = held.owner?.log == u64::from_le_bytes(*log);
    is_its_own.then(|| std::str::from_utf8(at).ok()).flatten()
}

/// Why a home has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacancy {
    /// The home never had one.
    Empty,
    /// The owner has stopped in order, and released its lease.
    Released,
    /// The owner has proved nothing for as long as its lease lasts.
    Lapsed,
    /// The owner is not in the group any more, and has proved nothing for longer than it should take.
    Gone,
}

impl fmt::Display for Vacancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Vacancy::Empty => "the home has no owner yet",
            Vacancy::Released => "the owner has stopped in order",
            Vacancy::Lapsed => "the owner's lease has run out",
            Vacancy::Gone => "the owner is not in the group any more",
        })
    }
}

/// The follower's knowledge of itself and of the group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Whether all records of the home were read and applied.
    pub is_current: bool,
    /// How many members of the group, the owner left out, come before this one; `None` if the group is not known.
    pub rank: Option<u32>,
    /// Whether the owner is a member of the group; `None` if that is not known.
    pub owner_is_member: Option<bool>,
    /// How long to wait where the rank is not known; drawn by the caller, so that two followers do not try at one moment.
    pub chance: Duration,
}

/// The follower's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Wait until then, unless a mark comes.
    Wait(Duration),
    /// The home is to be asked whether all was read that is committed, with [`answers`](Watchman::answers); it is about to be claimed.
    Confirm,
    /// The home is to be claimed, from the owner that was read last.
    Claim(Vacancy),
}

/// See the module.
#[derive(Debug)]
pub struct Watchman {
    witness: Witness,
    owner: Option<Owner>,
    granted: Option<Granted>,
    /// The owner has left its address, as every server does that may be taken over from by itself.
    has_address: bool,
    /// The number of the last transaction of the owner.
    number: Option<u64>,
    /// When the failure was first seen.
    seen: Duration,
    /// When the home was last known to hold nothing that was not read.
    confirmed: Option<Duration>,
    vacant: Option<(Vacancy, Duration)>,
    not_before: Duration,
}

impl Watchman {
    /// A watchman who has read nothing yet, and tells `witness` what it sees.
    #[must_use]
    pub fn new(witness: Witness) -> Watchman {
        Watchman {
            witness,
            owner: None,
            granted: None,
            has_address: false,
            number: None,
            seen: Duration::ZERO,
            confirmed: None,
            vacant: None,
            not_before: Duration::ZERO,
        }
    }

    /// The owner that was read last.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// These are the marks, as far as they were read at `now`.
    pub fn reads(&mut self, held: &Held, now: Duration) {
        let number = held
            .owner
            .and_then(|owner| held.proofs.get(&owner).copied());
        let granted = Granted::of(&held.notes);
        if let (Some(owner), Some(number)) = (held.owner, number) {
            self.witness.sees(owner, number, now);
        }
        self.has_address = owners_address(held).is_some();
        if (held.owner, number, granted) == (self.owner, self.number, self.granted) {
            return;
        }
        if held.owner != self.owner {
            self.not_before = Duration::ZERO;
        }
        (self.owner, self.number, self.granted) = (held.owner, number, granted);
        self.seen = now;
        self.vacant = None;
    }

    /// Nothing was committed before `asked` that was not read.
    pub fn answers(&mut self, asked: Duration) {
        self.confirmed = self.confirmed.max(Some(asked));
    }

    /// The claim was refused, or has failed.
    pub fn failed(&mut self, rank: Option<u32>, now: Duration) {
        self.not_before = now + AGAIN * (1 + rank.unwrap_or(0));
    }

    /// The lease of zero length of a server that has claimed a home which never had one: it has left its address, so it will have one.
    fn claimed(&self) -> Option<Granted> {
        let owner = self.owner.filter(|_| self.has_address)?;
        let lasts = Duration::ZERO;
        Some(Granted { owner, lasts })
    }

    /// Why there is no owner, as far as the marks and the group say.
    fn vacancy(&self, found: &Found, now: Duration) -> Result<Vacancy, Duration> {
        let Some(owner) = self.owner else {
            return Ok(Vacancy::Empty);
        };
        let is_gone = found.owner_is_member == Some(false);
        let Some(granted) = self.granted.or(self.claimed()) else {
            // An owner without a lease proves nothing when nothing is written: a person has to decide.
            return Err(now + STEP);
        };
        if granted.owner != owner || self.granted.is_none() {
            // Claimed, and not served yet.
            let within = match is_gone {
                true => GONE_FOR,
                false => BEGINS_WITHIN.max(2 * granted.wait()),
            };
            let ends = self.seen + within;
            return match now >= ends {
                true => Ok(Vacancy::Gone),
                false => Err(ends),
            };
        }
        if granted.lasts.is_zero() {
            return Ok(Vacancy::Released);
        }
        let (ends, late) = (self.seen + granted.wait(), self.seen + granted.lasts / 2);
        if now >= ends {
            return Ok(Vacancy::Lapsed);
        }
        match is_gone {
            true if now >= late => Ok(Vacancy::Gone),
            true => Err(late),
            false => Err(ends),
        }
    }

    /// Whether the owner cannot be serving at level replicated, by what was read: it has proved nothing for its lease, has released
    /// it, or has not begun it.
    #[must_use]
    pub fn is_down(&self, now: Duration) -> bool {
        match (self.owner, self.granted) {
            (Some(owner), Some(granted)) => {
                granted.owner != owner
                    || granted.lasts.is_zero()
                    || now >= self.seen + granted.wait()
            }
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Decides the next action.
    pub fn decide(&mut self, found: &Found, now: Duration) -> Verdict {
        let Some(confirmed) = self.confirmed else {
            // The records read so far may be long past.
            return Verdict::Confirm;
        };
        let vacancy = match self.vacancy(found, now) {
            Ok(vacancy) => vacancy,
            Err(until) => {
                self.vacant = None;
                return Verdict::Wait(until);
            }
        };
        if !found.is_current {
            // The turn of a follower begins when it has read everything.
            self.vacant = None;
            return Verdict::Wait(now + STEP);
        }
        let (_, since) = *self.vacant.get_or_insert((vacancy, now));
        let turn = found.rank.map_or(found.chance, |rank| STEP * rank);
        let due = (since + turn).max(self.not_before);
        if now < due {
            return Verdict::Wait(due);
        }
        if confirmed < since {
            return Verdict::Confirm;
        }
        Verdict::Claim(vacancy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LEASE;

    const SECOND: Duration = Duration::from_secs(1);
    const ONE: Owner = Owner { log: 1, session: 1 };
    const OTHER: Owner = Owner { log: 2, session: 1 };

    fn marks(owner: Owner, number: u64, of: Owner, lasts: Duration) -> Held {
        let mut held = Held {
            owner: Some(owner),
            ..Held::default()
        };
        held.proofs.insert(owner, number);
        let granted = Granted { owner: of, lasts };
        held.notes.insert(LEASE.into(), granted.encode()[..].into());
        held
    }

    fn first() -> Found {
        Found {
            is_current: true,
            rank: Some(0),
            owner_is_member: Some(true),
            chance: Duration::ZERO,
        }
    }

    fn claims(watchman: &mut Watchman, found: &Found, now: Duration) -> Option<Vacancy> {
        if watchman.decide(found, now) == Verdict::Confirm {
            watchman.answers(now);
        }
        match watchman.decide(found, now) {
            Verdict::Claim(vacancy) => Some(vacancy),
            _ => None,
        }
    }

    #[test]
    fn an_owner_that_proves_itself_is_left_alone_and_one_that_does_not_is_not() {
        let mut watchman = Watchman::new(Witness::default());
        let lease = 5 * SECOND;
        for at in 0..10_u32 {
            watchman.reads(&marks(ONE, at.into(), ONE, lease), at * SECOND);
            assert_eq!(claims(&mut watchman, &first(), at * SECOND), None, "{at}");
        }
        let last = 9 * SECOND;
        assert_eq!(claims(&mut watchman, &first(), last + lease), None);
        let ends = last + lease + lease / 50;
        assert_eq!(claims(&mut watchman, &first(), ends), Some(Vacancy::Lapsed));
        // Marks that are read again are no proof.
        watchman.reads(&marks(ONE, 9, ONE, lease), ends);
        assert_eq!(claims(&mut watchman, &first(), ends), Some(Vacancy::Lapsed));
    }

    #[test]
    fn a_lease_that_was_released_and_a_home_without_owner_are_taken_at_once() {
        let mut watchman = Watchman::new(Witness::default());
        watchman.reads(&Held::default(), SECOND);
        assert_eq!(
            claims(&mut watchman, &first(), SECOND),
            Some(Vacancy::Empty)
        );
        watchman.reads(&marks(ONE, 1, ONE, Duration::ZERO), SECOND);
        assert_eq!(
            claims(&mut watchman, &first(), SECOND),
            Some(Vacancy::Released)
        );
    }

    #[test]
    fn nothing_is_claimed_before_the_home_was_asked_since_the_owner_was_missed() {
        let mut watchman = Watchman::new(Witness::default());
        assert_eq!(watchman.decide(&first(), SECOND), Verdict::Confirm);
        watchman.reads(&marks(ONE, 1, ONE, SECOND), SECOND);
        watchman.answers(SECOND);
        assert!(matches!(
            watchman.decide(&first(), SECOND),
            Verdict::Wait(_)
        ));
        assert_eq!(watchman.decide(&first(), 3 * SECOND), Verdict::Confirm);
        // A proof that was on its way.
        watchman.reads(&marks(ONE, 2, ONE, SECOND), 3 * SECOND);
        watchman.answers(3 * SECOND);
        assert!(matches!(
            watchman.decide(&first(), 3 * SECOND),
            Verdict::Wait(_)
        ));
    }

    #[test]
    fn followers_try_by_their_rank_and_only_with_all_that_is_at_home() {
        let mut watchman = Watchman::new(Witness::default());
        watchman.reads(&marks(ONE, 1, ONE, Duration::ZERO), SECOND);
        let third = Found {
            rank: Some(2),
            ..first()
        };
        let behind = Found {
            is_current: false,
            ..third
        };
        let released = Some(Vacancy::Released);
        assert_eq!(claims(&mut watchman, &behind, SECOND), None);
        // The turn of a follower begins when it has read everything.
        assert_eq!(claims(&mut watchman, &third, 3 * SECOND), None);
        assert_eq!(claims(&mut watchman, &third, 4 * SECOND), None);
        assert_eq!(claims(&mut watchman, &third, 5 * SECOND), released);
        watchman.failed(Some(2), 5 * SECOND);
        assert_eq!(claims(&mut watchman, &third, 6 * SECOND), None);
        assert_eq!(claims(&mut watchman, &third, 11 * SECOND), released);
    }

    #[test]
    fn a_server_that_has_claimed_the_home_has_time_to_begin_unless_it_is_gone() {
        let mut watchman = Watchman::new(Witness::default());
        let lease = 5 * SECOND;
        watchman.reads(&marks(OTHER, 2, ONE, lease), SECOND);
        assert_eq!(claims(&mut watchman, &first(), 60 * SECOND), None);
        let gone = Found {
            owner_is_member: Some(false),
            ..first()
        };
        assert_eq!(
            claims(&mut watchman, &gone, 60 * SECOND),
            Some(Vacancy::Gone)
        );
        assert_eq!(
            claims(&mut watchman, &first(), 121 * SECOND),
            Some(Vacancy::Gone)
        );
    }

    #[test]
    fn a_first_owner_that_dies_before_its_lease_is_followed_by_another_one() {
        let mut watchman = Watchman::new(Witness::default());
        let mut held = Held {
            owner: Some(ONE),
            ..Held::default()
        };
        let word = address_word(ONE.log, "a:1");
        held.notes.insert(ADDRESS.into(), word.into());
        watchman.reads(&held, SECOND);
        assert_eq!(claims(&mut watchman, &first(), 60 * SECOND), None);
        let gone = Found {
            owner_is_member: Some(false),
            ..first()
        };
        assert_eq!(
            claims(&mut watchman, &gone, 60 * SECOND),
            Some(Vacancy::Gone)
        );
    }

    #[test]
    fn an_owner_without_a_lease_is_never_deposed() {
        let mut watchman = Watchman::new(Witness::default());
        let held = Held {
            owner: Some(ONE),
            ..Held::default()
        };
        watchman.reads(&held, SECOND);
        let gone = Found {
            owner_is_member: Some(false),
            ..first()
        };
        assert_eq!(claims(&mut watchman, &gone, 1000 * SECOND), None);
    }
}
