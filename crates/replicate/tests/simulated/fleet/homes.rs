//! The homes of all shares.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidewire_replicate::{Home, Homes, Share};

use crate::home::{Cluster, SimHome};

/// Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Brokers(Arc<Mutex<State>>);

struct State {
    seed: u64,
    shares: BTreeMap<Share, Cluster>,
    clients: u64,
    is_kind: bool,
}

impl Brokers {
    pub(crate) fn new(seed: u64) -> Brokers {
        Brokers(Arc::new(Mutex::new(State {
            seed,
            shares: BTreeMap::new(),
            clients: 0,
            is_kind: false,
        })))
    }

    pub(crate) fn of(&self, share: Share) -> Cluster {
        let mut state = self.0.lock().expect("one thread");
        let seed = state.seed + state.shares.len() as u64;
        let is_kind = state.is_kind;
        let cluster = state.shares.entry(share).or_insert_with(|| {
            let cluster = Cluster::new(seed);
            cluster.state().is_kind = is_kind;
            cluster
        });
        cluster.clone()
    }

    pub(crate) fn all(&self) -> Vec<(Share, Cluster)> {
        let state = self.0.lock().expect("one thread");
        let all = state.shares.iter();
        all.map(|(share, cluster)| (*share, cluster.clone()))
            .collect()
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        self.0.lock().expect("one thread").is_kind = true;
        for (_, cluster) in self.all() {
            let mut state = cluster.state();
            (state.is_away, state.is_kind) = (false, true);
            state.finish();
        }
    }
}

impl Homes for Brokers {
    fn home(&mut self, share: Share) -> Result<Box<dyn Home>, Arc<str>> {
        let cluster = self.of(share);
        let mut state = self.0.lock().expect("one thread");
        state.clients += 1;
        Ok(Box::new(SimHome::new(&cluster, state.clients)))
    }
}
