//! What stands at the homes, and what may be said of it.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_replicate::Share;

use super::homes::Brokers;
use super::member::Member;
use crate::seeds::{Verdict, ensure};

#[derive(Default)]
pub(crate) struct Checker {
    /// Records looked at, of each share.
    seen: BTreeMap<Share, usize>,
    /// The last id of each producer.
    last: BTreeMap<String, u64>,
    /// The numbers of all messages at home.
    home: BTreeSet<u64>,
}

impl Checker {
    /// Every message is there once, each producer's in order, and the marks are theirs.
    pub(crate) fn look(&mut self, brokers: &Brokers) -> Verdict {
        for (share, cluster) in brokers.all() {
            let state = cluster.state();
            let seen = self.seen.entry(share).or_default();
            for record in &state.records[*seen..] {
                let last = self.last.entry(record.producer.to_string()).or_default();
                for message in record.frames.chunks(20) {
                    let id = u64::from_le_bytes(*message.first_chunk().expect("an id"));
                    let number = u64::from_le_bytes(message[12..].try_into().expect("a number"));
                    ensure(self.home.insert(number), || {
                        format!("{}: {id} ({number}) is at home twice", record.producer)
                    })?;
                    ensure(record.producer.is_empty() || id == *last + 1, || {
                        format!("{}: {id} is at home behind {last}", record.producer)
                    })?;
                    *last = id;
                }
            }
            *seen = state.records.len();
            for ((_, producer), &mark) in &state.producers {
                let last = self.last.get(&**producer).copied().unwrap_or(0);
                ensure(mark == last, || {
                    format!("{producer}: the mark is {mark}, the last id {last}")
                })?;
            }
        }
        Ok(())
    }

    /// A producer was told that this is at home.
    pub(crate) fn acknowledged(&mut self, brokers: &Brokers, who: &str, number: u64) -> Verdict {
        self.look(brokers)?;
        ensure(self.home.contains(&number), || {
            format!("{who}: {number} was acknowledged and is not at home")
        })
    }

    /// In the end each record of a member is at home, or left behind, which is known, and kept.
    pub(crate) fn nothing_is_forgotten(&self, members: &[Member]) -> Verdict {
        for (at, member) in members.iter().enumerate() {
            let status = member.status();
            let mut left = BTreeSet::new();
            for (stream, position, tenure, number) in member.records() {
                if self.home.contains(&number) {
                    continue;
                }
                ensure(tenure.is_some(), || {
                    format!("member {at}: {number} of nobody is not at home")
                })?;
                left.insert(tenure);
                let kept = status.home.get(&stream).copied().unwrap_or(0);
                ensure(kept <= position, || {
                    format!("member {at}: {stream} {position} of {tenure:?} is not kept: {kept}")
                })?;
            }
            let known = status.fleet.map_or(0, |fleet| fleet.left_tenures);
            ensure(known == left.len(), || {
                format!("member {at}: left are {left:?}, and it knows {known}")
            })?;
        }
        Ok(())
    }
}
