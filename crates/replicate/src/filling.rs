//! The transaction that fills while the one before is committed.

use std::sync::Arc;
use std::time::Duration;

use tidewire_log::{Frames, Ticket};

use crate::cut::pieces;
use crate::home::{Claim, Owner, Place, Transaction};
use crate::settings::Settings;

/// The module's comment describes the type.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) transaction: Transaction,
    /// Once the transaction is committed, everything up to this ticket is in the home.
    pub(crate) covers: Option<Ticket>,
    /// Bytes of messages with their headers.
    pub(crate) bytes: usize,
    pub(crate) messages: u64,
    /// When the first record was put into the transaction.
    since: Option<Duration>,
    /// The transaction is committed even without records: by it an owner leaves its name.
    claims: bool,
}

impl Filling {
    pub(crate) fn new(owner: Owner, claim: Option<Claim>) -> Filling {
        let transaction = Transaction {
            claim,
            ..Transaction::new(owner)
        };
        Filling {
            transaction,
            covers: None,
            bytes: 0,
            messages: 0,
            since: None,
            claims: false,
        }
    }

    /// The first transaction of an owner.
    pub(crate) fn claiming(owner: Owner, claim: Option<Claim>) -> Filling {
        Filling {
            claims: true,
            ..Filling::new(owner, claim)
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.transaction.records.is_empty() && !self.claims
    }

    /// How many more bytes the transaction should take; 0 when it is full.
    pub(crate) fn room(&self, settings: &Settings) -> usize {
        if self.transaction.records.len() >= settings.transaction_records.max(1) {
            return 0;
        }
        settings.transaction_bytes.max(1).saturating_sub(self.bytes)
    }

    /// The latest time for committing this transaction; `None` if it is empty.
    pub(crate) fn due(&self, settings: &Settings) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let is_full = self.room(settings) == 0;
        let since = self.since.filter(|_| !is_full && !self.claims);
        Some(since.map_or(Duration::ZERO, |since| since + settings.linger))
    }

    /// Puts in as many records of a run as there is room for, with their marks, up to the position that is returned.
    pub(crate) fn put(
        &mut self,
        stream: &Arc<str>,
        run: Frames,
        now: Duration,
        settings: &Settings,
    ) -> u64 {
        let mut next = run.first;
        let records = self.transaction.records.len();
        let many = settings.transaction_records.max(1).saturating_sub(records);
        for piece in pieces(stream, run, settings.record_bytes, many) {
            let record = piece.record;
            next = record.first + u64::from(record.count);
            self.since.get_or_insert(now);
            self.bytes += record.frames.len();
            self.messages += u64::from(record.count);
            if !record.producer.is_empty() {
                let producer = (stream.clone(), record.producer.clone());
                self.transaction.producers.insert(producer, piece.last_id);
            }
            let place = Place {
                next,
                print: piece.print,
            };
            self.transaction.streams.insert(stream.clone(), place);
            self.transaction.records.push(record);
        }
        next
    }
}
