//! Names of hosts that loops ask for together: each name once at a time, and its answer for as long as it may be kept.

pub(crate) mod system;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::contained::{Theirs, contained};
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::Waker;
use crate::vocabulary::answer::{Answer, Keep, NotFound};
use crate::vocabulary::time::Instant;

/// Names that may be asked for at once, unless [`Builder::lookups`](crate::Builder::lookups) says otherwise.
pub(crate) const LOOKUPS: usize = 1024;
/// Names whose answers are kept.
const KEPT_MAX: usize = 1024;
/// Addresses of a name that are tried.
pub(crate) const ADDRESSES_MAX: usize = 32;
/// However long an answer may be kept.
const KEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// Finds addresses of hosts, for [dials](crate::Dial) to names. Given to
/// [`Builder::resolver`](crate::Builder::resolver); without it the [system's](crate::SystemResolver) is asked.
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tidewire::{Lookup, Resolver};
///
/// /// Knows one name.
/// struct OneHost;
///
/// impl Resolver for OneHost {
///     fn resolve(&self, lookup: Lookup) {
///         match lookup.name() {
///             "store.internal" => lookup.keep([IpAddr::from([10, 0, 0, 7])], Duration::from_secs(60)),
///             _ => lookup.fail(std::io::Error::other("no such host")),
///         }
///     }
/// }
///
/// tidewire::Builder::new().resolver(OneHost);
/// ```
pub trait Resolver: Send + Sync + 'static {
    /// Starts to look a name up. Called on a loop's thread, so it must not wait: the `lookup` may be kept, sent to
    /// another thread, and answered there. One that is dropped without an answer has failed.
    fn resolve(&self, lookup: Lookup);
}

/// A name that dials wait for: what a [`Resolver`] is given and answers.
///
/// Answers may come in parts, IPv6 before IPv4 say; dials begin with what is there, as RFC 8305 says. At most 32 addresses of a name
/// are tried.
///
/// ```
/// use std::io;
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tidewire::Lookup;
///
/// /// Answers with both families, the second as soon as it is there, and with how long it may be kept if that is known.
/// fn answer(mut lookup: Lookup, v4: impl FnOnce(&str) -> io::Result<(Vec<IpAddr>, Option<Duration>)>) {
///     if !lookup.is_wanted() {
///         return; // all dials were given up
///     }
///     lookup.found([IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])]);
///     match v4(lookup.name()) {
///         Ok((found, Some(time))) => lookup.keep(found, time),
///         Ok((found, None)) => lookup.finish(found),
///         Err(e) => lookup.fail(e),
///     }
/// }
/// ```
pub struct Lookup {
    name: Arc<str>,
    names: Arc<Names>,
    is_over: bool,
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lookup({})", self.name)
    }
}

impl Lookup {
    /// The host's name, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a dial waits for the answer.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.names.is_wanted(&self.name)
    }

    /// Some of the addresses, best first; more follow.
    pub fn found(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.names
            .found(&self.name, addresses.into_iter().collect());
    }

    /// The rest of the addresses, best first. How long they are right is not known, so the next dial asks again.
    pub fn finish(mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.end(Ok(addresses.into_iter().collect()), None);
    }

    /// The rest of the addresses. All that were [found](Lookup::found) may be kept for so long, at most a day.
    pub fn keep(mut self, addresses: impl IntoIterator<Item = IpAddr>, time: Duration) {
        self.end(Ok(addresses.into_iter().collect()), Some(time));
    }

    /// There are no (more) addresses, and why. Dials go on with what was found before.
    pub fn fail(mut self, why: io::Error) {
        self.end(Err(why.into()), None);
    }

    fn end(&mut self, found: Result<Vec<IpAddr>, NotFound>, keep: Option<Duration>) {
        self.is_over = true;
        self.names.end(&self.name, found, keep);
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        if !self.is_over {
            let why = io::Error::other("the resolver gave no answer");
            self.end(Err(why.into()), None);
        }
    }
}

/// A dial that waits for an answer: its loop, and its id there.
struct Asker {
    at: Arc<Waker>,
    dial: u64,
}

/// A name that was asked for.
#[derive(Default)]
struct Asked {
    askers: Vec<Asker>,
    /// What was found so far.
    found: Vec<IpAddr>,
}

/// An answer that is still right.
struct Kept {
    addresses: Arc<[IpAddr]>,
    until: Instant,
}

#[derive(Default)]
struct Known {
    asked: BTreeMap<Arc<str>, Asked>,
    kept: BTreeMap<Arc<str>, Kept>,
}

/// What comes of asking for a name.
pub(crate) enum Asking {
    /// The name is known.
    Known(Arc<[IpAddr]>),
    /// An [`Answer`] will come. Some of it may be there.
    Comes(Arc<[IpAddr]>),
    /// As many names are asked for as may be, or there is no resolver.
    Refused(&'static str),
}

/// Names that the loops of a server ask for, and the resolver.
pub(crate) struct Names {
    resolver: Option<Theirs<Arc<dyn Resolver>>>,
    lookups_max: usize,
    known: Mutex<Known>,
}

impl Default for Names {
    /// Without a resolver.
    fn default() -> Names {
        Names {
            resolver: None,
            lookups_max: LOOKUPS,
            known: Mutex::new(Known::default()),
        }
    }
}

impl Names {
    pub(crate) fn of(resolver: Arc<dyn Resolver>, lookups_max: usize) -> Names {
        Names {
            resolver: Some(Theirs::new("a resolver", resolver)),
            lookups_max,
            ..Names::default()
        }
    }

    /// Asks for a name, on behalf of a dial of this loop.
    pub(crate) fn ask(
        self: &Arc<Names>,
        name: &Arc<str>,
        at: &Arc<Waker>,
        dial: u64,
        now: Instant,
    ) -> Asking {
        let Some(resolver) = &self.resolver else {
            return Asking::Refused("there is no resolver");
        };
        let mut known = lock(&self.known);
        match known.kept.get(name) {
            Some(kept) if kept.until > now => return Asking::Known(kept.addresses.clone()),
            Some(_) => {
                known.kept.remove(name);
            }
            None => {}
        }
        let asker = Asker {
            at: at.clone(),
            dial,
        };
        if let Some(asked) = known.asked.get_mut(name) {
            asked.askers.push(asker);
            return Asking::Comes(asked.found[..].into());
        }
        if known.asked.len() >= self.lookups_max {
            return Asking::Refused("as many names are being looked up as may be");
        }
        known
            .asked
            .entry(name.clone())
            .or_default()
            .askers
            .push(asker);
        drop(known);
        let lookup = Lookup {
            name: name.clone(),
            names: self.clone(),
            is_over: false,
        };
        if contained(|| resolver.resolve(lookup)).is_none() {
            tracing::error!(host = %name, "a resolver panicked");
        }
        Asking::Comes(Arc::default())
    }

    /// This dial waits no more.
    pub(crate) fn give_up(&self, name: &str, at: &Arc<Waker>, dial: u64) {
        if let Some(asked) = lock(&self.known).asked.get_mut(name) {
            let other = |asker: &Asker| asker.dial != dial || !Arc::ptr_eq(&asker.at, at);
            asked.askers.retain(other);
        }
    }

    /// Keeps an answer.
    pub(crate) fn keep(&self, name: &Arc<str>, keep: Keep, now: Instant) {
        let until = now + keep.time.min(KEEP_MAX);
        let known = &mut *lock(&self.known);
        if known.kept.len() >= KEPT_MAX && !known.kept.contains_key(name) {
            known.kept.retain(|_, kept| kept.until > now);
            let soonest = known.kept.iter().min_by_key(|(_, kept)| kept.until);
            if known.kept.len() >= KEPT_MAX
                && let Some(soonest) = soonest.map(|(name, _)| name.clone())
            {
                known.kept.remove(&soonest);
            }
        }
        let addresses = keep.addresses;
        known.kept.insert(name.clone(), Kept { addresses, until });
    }

    fn is_wanted(&self, name: &str) -> bool {
        let known = lock(&self.known);
        known
            .asked
            .get(name)
            .is_some_and(|asked| !asked.askers.is_empty())
    }

    fn found(&self, name: &Arc<str>, part: Vec<IpAddr>) {
        let known = &mut *lock(&self.known);
        let Some(asked) = known.asked.get_mut(name) else {
            return;
        };
        let room = ADDRESSES_MAX - asked.found.len();
        asked.found.extend(part.iter().copied().take(room));
        let part: Arc<[IpAddr]> = part.into();
        for asker in &asked.askers {
            asker.at.answer(Answer {
                dial: asker.dial,
                name: name.clone(),
                found: Ok(part.clone()),
                is_last: false,
                keep: None,
            });
        }
    }

    fn end(&self, name: &Arc<str>, found: Result<Vec<IpAddr>, NotFound>, keep: Option<Duration>) {
        let Some(mut asked) = lock(&self.known).asked.remove(name) else {
            return;
        };
        let found: Result<Arc<[IpAddr]>, NotFound> = found.map(Into::into);
        let keep = keep.filter(|time| !time.is_zero()).and_then(|time| {
            let rest = found.as_ref().ok()?;
            let room = ADDRESSES_MAX - asked.found.len();
            asked.found.extend(rest.iter().copied().take(room));
            Some(Keep {
                addresses: asked.found[..].into(),
                time,
            })
        });
        for asker in &asked.askers {
            asker.at.answer(Answer {
                dial: asker.dial,
                name: name.clone(),
                found: found.clone(),
                is_last: true,
                keep: keep.clone(),
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reach::waker::Command;

    /// Keeps what it is asked.
    #[derive(Default)]
    struct Keeps(Mutex<Vec<Lookup>>);

    impl Resolver for Keeps {
        fn resolve(&self, lookup: Lookup) {
            lock(&self.0).push(lookup);
        }
    }

    fn names(lookups_max: usize) -> (Arc<Keeps>, Arc<Names>, Arc<Waker>) {
        let keeps = Arc::<Keeps>::default();
        let names = Names::of(keeps.clone(), lookups_max);
        (keeps, Arc::new(names), Arc::new(Waker::new()))
    }

    impl Resolver for Arc<Keeps> {
        fn resolve(&self, lookup: Lookup) {
            (**self).resolve(lookup);
        }
    }

    fn answers(at: &Waker) -> Vec<Answer> {
        let answer = |command| match command {
            Command::Answered(answer) => answer,
            other => panic!("{other:?}"),
        };
        at.commands().into_iter().map(answer).collect()
    }

    fn taken(keeps: &Keeps) -> Lookup {
        lock(&keeps.0).pop().expect("asked")
    }

    #[test]
    fn a_name_is_asked_for_once_and_answered_to_all() {
        let (keeps, names, at) = names(2);
        let (name, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let now = Instant::default();
        let ip = |n: u8| IpAddr::from([127, 0, 0, n]);
        assert!(matches!(names.ask(&name, &at, 1, now), Asking::Comes(_)));
        let mut lookup = taken(&keeps);
        lookup.found([ip(1)]);
        let Asking::Comes(some) = names.ask(&name, &at, 2, now) else {
            panic!("it is being asked for");
        };
        assert_eq!((some[..].to_vec(), lock(&keeps.0).len()), (vec![ip(1)], 0));
        lookup.keep([ip(2)], Duration::from_secs(5));
        let all = answers(&at);
        let told: Vec<_> = all.iter().map(|a| (a.dial, a.is_last)).collect();
        assert_eq!(told, [(1, false), (1, true), (2, true)]);
        names.keep(&name, all[1].keep.clone().expect("kept"), now);
        let later = now + Duration::from_secs(4);
        match names.ask(&name, &at, 3, later) {
            Asking::Known(all) => assert_eq!(all[..], [ip(1), ip(2)]),
            _ => panic!("it is known"),
        }
        let later = now + Duration::from_secs(5);
        assert!(matches!(names.ask(&name, &at, 3, later), Asking::Comes(_)));
        assert!(matches!(names.ask(&other, &at, 4, later), Asking::Comes(_)));
        let third = "c".into();
        assert!(matches!(
            names.ask(&third, &at, 5, later),
            Asking::Refused(_)
        ));
    }

    #[test]
    fn what_is_given_up_or_not_answered_is_not_kept() {
        let (keeps, names, at) = names(1);
        let name: Arc<str> = "a".into();
        let now = Instant::default();
        names.ask(&name, &at, 1, now);
        let lookup = taken(&keeps);
        assert!(lookup.is_wanted());
        names.give_up(&name, &at, 1);
        assert!(!lookup.is_wanted());
        names.ask(&name, &at, 2, now);
        drop(lookup);
        let all = answers(&at);
        assert_eq!(all.len(), 1);
        let why = all[0].found.as_ref().unwrap_err().of("a").to_string();
        assert!(all[0].dial == 2 && why.contains("no answer"), "{why}");
        assert!(lock(&names.known).asked.is_empty());
    }

    #[test]
    fn kept_answers_are_bounded() {
        let (_, names, _) = names(1);
        let now = Instant::default();
        for n in 0..2 * KEPT_MAX as u64 {
            let keep = Keep {
                addresses: Arc::default(),
                time: Duration::from_secs(1 + n),
            };
            names.keep(&format!("{n}").into(), keep, now);
        }
        let known = lock(&names.known);
        assert_eq!(known.kept.len(), KEPT_MAX);
        assert!(!known.kept.contains_key("0"), "the first to end went first");
    }
}
