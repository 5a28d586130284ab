//! The server: what its connections share, and how they learn what the log has done.
//!
//! An acknowledgement at level durable is owed until the log reaches its ticket. Each loop keeps
//! the owed acknowledgements of its connections in one queue, in the order of tickets. When the log
//! has committed more, the loop is woken once and takes the committed ones off the front. Each
//! connection gets one acknowledgement, however many of its batches were in the group.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::{Conns, LoopHandle, Peer, Refusal, Service, Throttle};
use tidewire_log::{Log, Range};
use tidewire_replicate::Ending;

use super::codec::{self, Reason, ServerFrame};
use super::conn::IngestConn;
use super::counters::{Counters, Tally};
use super::local::{IngestLocal, OwedBy};
use super::memory::Memory;
use super::message::Message;
use super::pool::Pool;
use super::reading::{ReaderStatus, Readers};
use super::refused::{Lines, Refused};
use super::session::Sessions;
use super::settings::Settings;
use super::shared::Shared;
use super::tokens::{Token, Tokens};
use crate::alarm;

/// Serves the native protocol; messages go to a [`Log`] and come from there.
///
/// Serve it with the limits of [`Settings::limits`]. Wrapped in an [`Arc`] it can be added to a
/// builder and kept, to look at its counters.
pub struct IngestService {
    shared: Arc<Shared>,
}

impl IngestService {
    /// Serves `log` with these settings.
    #[must_use]
    pub fn new(log: Arc<dyn Log>, settings: Settings) -> IngestService {
        let (alarm, watch) = alarm::of(&*log);
        let owners = settings.fleet.as_ref().and_then(|fleet| fleet.owners());
        let owners = owners.cloned();
        let service = IngestService {
            shared: Arc::new(Shared {
                payload_max: settings.payload_max.min(log.payload_max()),
                sessions: Sessions::new(settings.mistakes),
                pool: Pool::new(settings.read_threads, &log),
                readers: AtomicUsize::new(0),
                reading: Readers::default(),
                tokens: Tokens::new(settings.tokens.clone()),
                administering: Mutex::new(()),
                memory: Memory::new(settings.reader_memory),
                denials: Throttle::new(Duration::from_secs(60)),
                refusals: Arc::new(Lines::default()),
                alarm,
                tally: Tally::default(),
                _watch: watch,
                log,
                settings,
            }),
        };
        if let Some(owners) = owners {
            let shared = Arc::downgrade(&service.shared);
            owners.watch(Arc::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.sessions.unbind();
                    shared.alarm.ring();
                }
            }));
        }
        service
    }

    /// The counters of all loops, at this moment.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::from(&self.shared.tally)
    }

    /// Sessions of named producers that are live now.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.sessions.len()
    }

    /// Bytes that readers hold now: sent and not taken by the system yet, or being read.
    #[must_use]
    pub fn reader_memory(&self) -> usize {
        self.shared.memory.used()
    }

    /// The readers that are connected now.
    #[must_use]
    pub fn reading(&self) -> Vec<ReaderStatus> {
        self.shared.reading.of(None)
    }

    /// The positions of a stream that can be read.
    #[must_use]
    pub fn range(&self, stream: &str) -> Option<Range> {
        self.shared.log.range(stream)
    }

    /// Replaces the accepted tokens by these tokens. A connected client whose token is not accepted
    /// any more, or not for that right, is refused as soon as it sends or is sent something.
    pub fn change_tokens(&self, tokens: Vec<Token>) {
        self.shared.tokens.change(tokens);
        // Followers look at once.
        self.shared.alarm.ring();
    }

    /// The settings of the service.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }
}

impl fmt::Debug for IngestService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IngestService({:?})", self.shared.settings)
    }
}

/// Entries for owed acknowledgements for which a loop keeps memory when it owes none.
const OWED_KEPT: usize = 4096;
/// When a refused client should come again.
const RETRY_AFTER_MS: u32 = 2000;

impl Service for IngestService {
    type Conn = IngestConn;

    fn on_loop(&self, at: LoopHandle<Message>) -> IngestLocal {
        IngestLocal {
            bell: self.shared.alarm.bell(at),
            owed: VecDeque::new(),
            owed_home: VecDeque::new(),
            owed_bound: BTreeMap::new(),
            committed: Vec::new(),
            settling: Vec::new(),
            refused: Refused::new(self.shared.refusals.clone()),
            crowded: Vec::new(),
            followers: Vec::new(),
            tally: self.shared.tally.on_loop(),
            scratch: Vec::new(),
        }
    }

    fn accept(&self, _: &Peer, _: &mut IngestLocal) -> Result<IngestConn, Refusal> {
        Ok(IngestConn::new(self.shared.clone()))
    }

    /// In place of a welcome, as if it answered a hello.
    fn refusal_reply(&self, why: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
        if !why.is_temporary() {
            return None;
        }
        let refusal = ServerFrame::Refusal(codec::Refusal {
            id: 0,
            reason: Reason::OverQuota,
            retry_after_ms: RETRY_AFTER_MS,
            text: "no more connections are taken at the moment",
            closes: true,
        });
        let mut frame = Vec::new();
        refusal.encode(&mut frame);
        Some(frame.into())
    }

    fn woken(&self, local: &mut IngestLocal, all: &mut Conns<'_, IngestConn>) {
        if !local.waits() {
            return;
        }
        local.bell.arm();
        let progress = self.shared.log.progress();
        let mistakes = self.shared.settings.mistakes;
        let reached = if mistakes.makes(|mistakes| mistakes.ack_written) {
            progress.written
        } else {
            progress.committed
        };

        let mut committed = std::mem::take(&mut local.committed);
        let n = local.owed.partition_point(|o| o.ticket <= reached);
        committed.extend(local.owed.drain(..n));
        if let Some(home) = progress.replicated {
            // Each connection waits in one of the two queues.
            let n = local.owed_home.partition_point(|o| o.ticket <= home);
            committed.extend(local.owed_home.drain(..n));
        }
        local.owed_bound.retain(|_, OwedBy { hold, owed }| {
            let home = hold.replicated();
            let n = owed.partition_point(|o| home.is_some_and(|home| o.ticket <= home));
            committed.extend(owed.drain(..n));
            // Clients that wait for an ended hold are told otherwise.
            !owed.is_empty() && hold.ending() != Ending::Over
        });
        // The newest entry of a connection comes first: it covers the connection's older entries.
        for owed in committed.iter().rev() {
            all.with(owed.to, local, |conn, cx| conn.committed(owed, cx));
        }
        committed.clear();
        if committed.capacity() <= OWED_KEPT || !local.owed.is_empty() {
            local.committed = committed;
        }
        for owed in [&mut local.owed, &mut local.owed_home] {
            if owed.is_empty() && owed.capacity() > OWED_KEPT {
                *owed = VecDeque::new();
            }
        }

        if progress.failure.is_some() {
            let bound = std::mem::take(&mut local.owed_bound).into_values();
            let home = std::mem::take(&mut local.owed_home)
                .into_iter()
                .chain(bound.flat_map(|by| by.owed));
            for owed in std::mem::take(&mut local.owed).into_iter().chain(home) {
                all.with(owed.to, local, |conn, cx| conn.log_failed(&progress, cx));
            }
        }
        // Connections that still have to wait put themselves on the list again.
        for id in std::mem::take(&mut local.settling) {
            all.with(id, local, |conn, cx| conn.settle(&progress, cx));
        }
        for id in std::mem::take(&mut local.crowded) {
            all.with(id, local, |conn, cx| conn.room(cx));
        }
        for id in std::mem::take(&mut local.followers) {
            all.with(id, local, |conn, cx| conn.follow(cx));
        }
    }
}
