//! The clients that are shown all commands, and what they were not shown yet.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::attention::Attention;
use super::clients::Card;
use super::message::Message;

/// Bytes that wait for one monitor; with more, the client does not read.
const WAITING_MAX: usize = 4 << 20;

/// The monitors, by the numbers of their connections.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    all: Mutex<BTreeMap<u64, Arc<Monitor>>>,
}

/// One monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    card: Arc<Card>,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    posted: bool,
}

impl Monitor {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the commands that the monitor was not shown yet.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut lines = self.lines();
        self.card.unseen_len.store(0, Relaxed);
        std::mem::take(&mut *lines).text
    }

    pub(super) fn show(&self, line: &[u8]) {
        let mut lines = self.lines();
        if lines.text.len() + line.len() > WAITING_MAX {
            lines.text = Vec::new();
            self.card.unseen_len.store(0, Relaxed);
            return self.card.handle.abort();
        }
        lines.text.extend_from_slice(line);
        let unseen = lines.text.capacity() as u64;
        self.card.unseen_len.store(unseen, Relaxed);
        if !std::mem::replace(&mut lines.posted, true)
            && self.card.handle.try_post(Message::Monitored).is_err()
        {
            self.card.handle.abort();
        }
    }
}

impl Monitors {
    pub(super) fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Monitor>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, card: &Arc<Card>, attention: &Attention) -> Arc<Monitor> {
        let monitor = Arc::new(Monitor {
            card: card.clone(),
            lines: Mutex::default(),
        });
        let mut all = self.all();
        all.insert(card.id, monitor.clone());
        attention.set_monitored(true);
        monitor
    }

    pub(crate) fn remove(&self, id: u64, attention: &Attention) {
        let mut all = self.all();
        if all.remove(&id).is_some() && all.is_empty() {
            attention.set_monitored(false);
        }
    }
}
