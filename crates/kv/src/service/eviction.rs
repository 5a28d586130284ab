//! The sum of what all clients hold, and who goes when it is too much.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::clients::{Card, Clients};
use super::holdings::{BASE, ClientsLimit};
use super::shared::Shared;

impl Clients {
    /// Brings the sum up to date with one client; `passing` is its input and output.
    pub(crate) fn account(&self, card: &Card, passing: u64) {
        let now = match card.gone.load(Relaxed) {
            true => 0,
            false => card.holdings.rounded(passing),
        };
        self.total
            .change(card.holdings.known.swap(now, Relaxed), now);
    }

    /// This client holds nothing any more, as far as other threads can tell.
    pub(crate) fn forget_account(&self, card: &Card) {
        self.total.change(card.holdings.known.swap(0, Relaxed), 0);
    }
}

impl Shared {
    /// Bytes that all clients may hold together; 0 for any number.
    pub(crate) fn clients_limit(&self) -> u64 {
        match self.clients.total.limit() {
            ClientsLimit::Bytes(bytes) => bytes,
            ClientsLimit::Percent(percent) => {
                let most = self.store.maxmemory();
                (u128::from(most) * u128::from(percent) / 100) as u64
            }
        }
    }

    /// By how many bytes clients hold more than they may.
    #[inline]
    pub(crate) fn clients_excess(&self) -> u64 {
        let limit = self.clients_limit();
        if limit == 0 {
            return 0;
        }
        let accounts = self.clients.total.bytes.load(Relaxed).max(0) as u64;
        let base = self.clients.len() as u64 * BASE;
        let tracked = self.store.tracking().bytes() as u64;
        (accounts + base + tracked).saturating_sub(limit)
    }

    /// A client has gone, as far as others can tell: it is not listed, counts nowhere and holds nothing, whenever its loop
    /// comes to close it.
    pub(crate) fn let_go(&self, card: &Card) {
        self.clients.remove(card.id);
        card.gone.store(true, Relaxed);
        self.clients.forget_account(card);
        let listening = card.names().listening.upgrade();
        if let Some(listening) = listening {
            self.hub.depart(&listening);
        }
    }

    /// Evicts the largest clients until all hold no more than they may; how many went. Clients that said
    /// CLIENT NO-EVICT ON stay.
    #[cold]
    pub(crate) fn evict_clients(&self) -> u64 {
        let Ok(_one) = self.clients.total.evicting.try_lock() else {
            // Another loop is evicting already.
            return 0;
        };
        let mut excess = self.clients_excess();
        if excess == 0 {
            return 0;
        }
        let mut large: Vec<(u64, Arc<Card>)> = Vec::new();
        self.clients.each(|card| {
            let size = card.holdings.known.load(Relaxed) + card.tracked_bytes();
            if size > 0 && !card.no_evict.load(Relaxed) {
                large.push((size, card.clone()));
            }
        });
        large.sort_unstable_by_key(|(size, card)| (std::cmp::Reverse(*size), card.id));
        let mut evicted = 0;
        for (size, card) in large {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(size + BASE);
            self.let_go(&card);
            card.handle.abort();
            evicted += 1;
        }
        evicted
    }
}
