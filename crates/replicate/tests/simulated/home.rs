//! A home from a seed: what is asked arrives late, out of order or not at all, what is done is done
//! once or not at all, and the asker may never hear of it.
//!
//! The home knows epochs as a broker's transaction coordinator does: opening begins one, and what
//! comes from an earlier one is fenced. A commit may be decided and not be visible for a while;
//! opening finishes it first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use tidewire_replicate::{Answer, Ask, Held, Home, Record, Transaction};

/// Records in a transaction, at most.
pub(crate) const RECORDS_MAX: usize = 10;

/// What is there, and on its way. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Mutex<State>>);

pub(crate) struct State {
    random: Rng,
    epoch: u64,
    /// Transactions that became visible.
    committed: u64,
    /// Committed and visible.
    pub(crate) records: Vec<Record>,
    pub(crate) held: Held,
    pub(crate) producers: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Decided, not visible yet.
    prepared: Option<Transaction>,
    on_its_way: Vec<Request>,
    answers: Vec<Said>,
    /// Nothing is done.
    pub(crate) is_away: bool,
    /// A client that nothing reaches, and that reaches nothing.
    pub(crate) cut: Option<u64>,
    /// Whether anything goes wrong.
    pub(crate) is_kind: bool,
}

struct Request {
    client: u64,
    number: u64,
    epoch: Option<u64>,
    ask: Ask,
}

struct Said {
    client: u64,
    number: u64,
    answer: Answer,
    epoch: Option<u64>,
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Cluster {
        Cluster(Arc::new(Mutex::new(State {
            random: Rng::with_seed(seed),
            epoch: 0,
            committed: 0,
            records: Vec::new(),
            held: Held::default(),
            producers: BTreeMap::new(),
            prepared: None,
            on_its_way: Vec::new(),
            answers: Vec::new(),
            is_away: false,
            cut: None,
            is_kind: false,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }
}

impl State {
    /// Makes what was decided visible.
    pub(crate) fn finish(&mut self) {
        let Some(transaction) = self.prepared.take() else {
            return;
        };
        self.held.owner = Some(transaction.owner);
        self.committed += 1;
        self.held.proofs.insert(transaction.owner, self.committed);
        self.held.notes.extend(transaction.notes);
        for (of, position) in transaction.cursors {
            match position {
                Some(position) => self.held.cursors.insert(of, position),
                None => self.held.cursors.remove(&of),
            };
        }
        match transaction.claim {
            None => self.held.streams.extend(transaction.streams),
            Some(claim) => {
                self.held.claim = Some(claim);
                self.held.producers.extend(transaction.producers.clone());
                let of = (transaction.owner.log, claim.tenure);
                let places = self.held.places.entry(of).or_default();
                places.extend(transaction.streams);
            }
        }
        self.producers.extend(transaction.producers);
        self.held.has_records |= !transaction.records.is_empty();
        self.records.extend(transaction.records);
    }

    /// What is on its way never arrives.
    #[allow(
        dead_code,
        reason = "the tests of a store's follower have this file, too"
    )]
    pub(crate) fn lose(&mut self) {
        self.on_its_way.clear();
    }

    /// One of the things on their way arrives, or is lost; whether there was any.
    pub(crate) fn deliver(&mut self) -> bool {
        if self.is_away || self.on_its_way.is_empty() {
            return false;
        }
        let at = match self.is_kind {
            true => 0,
            false => self.random.usize(..self.on_its_way.len()),
        };
        let request = self.on_its_way.remove(at);
        if !self.is_kind && self.random.u8(0..12) == 0 {
            return true;
        }
        let (answer, epoch) = self.do_it(&request);
        if self.is_kind || self.random.u8(0..10) > 0 {
            self.answers.push(Said {
                client: request.client,
                number: request.number,
                answer,
                epoch,
            });
        }
        true
    }

    fn do_it(&mut self, request: &Request) -> (Answer, Option<u64>) {
        match &request.ask {
            Ask::Look => (Answer::Held(self.held.clone()), request.epoch),
            Ask::Open => {
                self.finish();
                self.epoch += 1;
                (Answer::Held(self.held.clone()), Some(self.epoch))
            }
            Ask::Carry(_) if request.epoch != Some(self.epoch) => {
                (Answer::Fenced("a newer epoch".into()), request.epoch)
            }
            Ask::Carry(transaction) => {
                self.finish();
                if !self.is_kind && self.random.u8(0..8) == 0 {
                    return (Answer::Failed("aborted".into()), request.epoch);
                }
                self.prepared = Some(transaction.clone());
                // The committer sees its commit; others may not yet.
                if self.is_kind || self.random.bool() {
                    self.finish();
                    return (Answer::Committed, request.epoch);
                }
                (Answer::Failed("nobody knows".into()), request.epoch)
            }
        }
    }
}

/// The home as one process sees it.
pub(crate) struct SimHome {
    client: u64,
    cluster: Cluster,
    epoch: Option<u64>,
    last: u64,
}

impl SimHome {
    pub(crate) fn new(cluster: &Cluster, client: u64) -> SimHome {
        SimHome {
            client,
            cluster: cluster.clone(),
            epoch: None,
            last: 0,
        }
    }
}

impl SimHome {
    /// Which one it is, for [`State::cut`].
    #[allow(
        dead_code,
        reason = "the tests of a store's owners have this file, too"
    )]
    pub(crate) fn client(&self) -> u64 {
        self.client
    }
}

impl Home for SimHome {
    fn ask(&mut self, number: u64, ask: Ask) {
        self.last = number;
        if let Ask::Carry(transaction) = &ask {
            let records = transaction.records.len();
            assert!(records <= RECORDS_MAX, "{records} records at once");
        }
        let mut state = self.cluster.state();
        if state.cut == Some(self.client) {
            return;
        }
        state.on_its_way.push(Request {
            client: self.client,
            number,
            epoch: self.epoch,
            ask,
        });
    }

    fn answer(&mut self) -> Option<(u64, Answer)> {
        let mut state = self.cluster.state();
        if !state.is_kind && state.random.u8(0..3) == 0 {
            return None;
        }
        if state.cut == Some(self.client) {
            return None;
        }
        let mut mine: Vec<usize> = (0..state.answers.len()).collect();
        mine.retain(|&at| state.answers[at].client == self.client);
        let chosen = state.random.usize(..mine.len().max(1));
        let at = *mine.get(chosen)?;
        let Said {
            number,
            answer,
            epoch,
            ..
        } = state.answers.remove(at);
        if number == self.last {
            self.epoch = epoch;
        }
        Some((number, answer))
    }
}
