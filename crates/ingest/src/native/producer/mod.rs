//! A producer's connection: messages in, acknowledgements out.
//!
//! A chunk becomes one batch of the log where it can. A batch costs one look at the session, one
//! call of the log and one entry in the loop's queue of owed acknowledgements, whatever its number
//! of messages.

mod acks;
mod bound;
mod ending;
mod leaving;
mod put;
mod take;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{Cx, Instant};
use tidewire_log::{Log, Policy, ProducerId, Progress, Refused, StreamId};

use super::codec::{self, Level, Produce, Reason, ServerFrame, Welcome};
use super::counters::Count;
use super::ids::Ids;
use super::local::Native;
use super::local::Sent;
use super::quota::Meter;
use super::reply::{millis, refuse, send};
use super::session::Session;
use super::shared::Shared;
use crate::classic::Parser;
pub(super) use bound::Bound;

/// A producer's connection.
pub(super) struct Producer {
    stream: StreamId,
    id: ProducerId,
    /// `None` for anonymous messages.
    session: Option<Arc<Session>>,
    /// To a partition that moves between servers.
    bound: Option<Box<Bound>>,
    level: Level,
    parser: Parser,
    ids: Ids,
    /// Whether the gap before the producer's first id is to be adopted.
    adopt: bool,
    window_messages: u64,
    window_bytes: u64,
    keepalive: Duration,
    meter: Option<Box<Meter>>,
    sent: Sent,
    committed: Sent,
    /// The highest id acknowledged on this connection.
    acked: Option<u64>,
    /// To be acknowledged at the end of this call.
    due: Option<u64>,
    /// `acked` could not be sent because the output was full.
    unsent: bool,
    /// The time of the last frame to the producer, or of the beginning of its wait.
    told_at: Instant,
    /// Everything is dropped until this id comes again.
    refused: Option<u64>,
    pause: Pause,
    ending: Ending,
}

/// Why the connection does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    No,
    /// The queue of the log is full.
    Crowded,
    /// More is unacknowledged than the window allows.
    Window,
}

/// How the session ends once all messages are acknowledged.
enum Ending {
    No,
    /// The client has finished sending: so does this side.
    Finished,
    /// The session is refused: the server takes no more messages and sends this reason.
    Refused {
        id: u64,
        reason: Reason,
        text: String,
    },
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}, {:?}", self.id, self.level, self.ids)
    }
}

impl Producer {
    /// Begins a session. The welcome is sent when the session is [settled](Producer::settle).
    pub(super) fn begin(
        shared: &Shared,
        stream: &str,
        hello: &Produce<'_>,
        bound: Option<&Bound>,
        cx: &Cx<'_, impl Native>,
    ) -> Result<Producer, Refused> {
        let log = &shared.log;
        let comes_home = log.comes_home(stream);
        let stream = log.stream(stream)?;
        let (id, session) = if hello.producer.is_empty() {
            (ProducerId::ANONYMOUS, None)
        } else {
            let name = bound.map_or(hello.producer.into(), Bound::name_in_log);
            let id = held(&**log, stream, &name)?;
            let hold = bound.map(|bound| bound.hold().clone());
            (id, Some(shared.sessions.begin(id, hold, cx.handle())))
        };
        let settings = &shared.settings;
        let at_most = |wanted: u64, most: u64| if wanted == 0 { most } else { wanted.min(most) };
        Ok(Producer {
            stream,
            id,
            session,
            bound: None,
            level: match (log.policy(), hello.level.unwrap_or(settings.level)) {
                (Policy::Os, _) => Level::Received,
                // Level replicated cannot be promised: no record has reached the home yet, or none will, or this stream
                // is not replicated.
                (_, Level::Replicated)
                    if !comes_home || (bound.is_none() && !log.progress().replicates) =>
                {
                    Level::Durable
                }
                (_, level) => level,
            },
            parser: codec::parser(shared.payload_max),
            ids: Ids {
                mark: None,
                first: hello.first_id,
                sparse: hello.sparse,
            },
            adopt: hello.adopt,
            window_messages: at_most(
                hello.window_messages.into(),
                settings.window_messages.max(1).into(),
            ),
            window_bytes: at_most(hello.window_bytes, settings.window_bytes.max(1)),
            keepalive: settings.keepalive.max(Duration::from_millis(1)),
            meter: settings.quota.meter(),
            sent: Sent::default(),
            committed: Sent::default(),
            acked: None,
            due: None,
            unsent: false,
            told_at: Instant::default(),
            refused: None,
            pause: Pause::No,
            ending: Ending::No,
        })
    }

    /// Welcomes the producer, if all messages handed over for this producer before are committed.
    /// If that will never be, it is refused. False: it has to wait, or has been refused.
    pub(super) fn settle(
        &mut self,
        progress: &Progress,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> bool {
        let mut mark = if self.session.is_some() {
            shared.log.mark(self.id)
        } else {
            tidewire_log::Mark::default()
        };
        if let Some(failure) = &progress.failure {
            refuse(cx, 0, Reason::LogFailed, 0, &failure.0);
            return false;
        }
        let mistakes = shared.settings.mistakes;
        let early = mistakes.makes(|mistakes| mistakes.welcome_early);
        if mark.ticket > progress.committed && !early {
            cx.link.pause();
            return false;
        }
        // The welcome acknowledges the ids up to the one that it names.
        let home = match &self.bound {
            Some(bound) => bound.hold().replicated(),
            None => progress.replicated,
        };
        let is_home = home.is_some_and(|home| mark.ticket <= home);
        if self.level == Level::Replicated && mark.appended.is_some() && !is_home {
            cx.link.pause();
            return false;
        }
        if let Some(bound) = &self.bound
            && mark.appended.is_none()
        {
            // No message has come in this tenure yet; records that are in the home are committed
            // there.
            mark.appended = bound.mark_at_home();
        }
        self.ids.mark = mark.appended;
        cx.local.tally.add(Count::producers, 1);
        cx.local
            .tally
            .add(Count::forgotten, usize::from(mark.forgotten));
        send(
            cx,
            &ServerFrame::Welcome(Welcome {
                level: self.level,
                payload_max: shared.payload_max,
                window_messages: u32::try_from(self.window_messages).unwrap_or(u32::MAX),
                keepalive_ms: millis(self.keepalive),
                window_bytes: self.window_bytes,
                last_id: mark.appended,
                forgotten: mark.forgotten,
            }),
        );
        self.adopt_gap(cx);
        cx.link.resume();
        self.finish_if_settled(cx);
        true
    }

    /// At level received, what lies between the mark and the first id was lost in a crash.
    fn adopt_gap(&mut self, cx: &mut Cx<'_, impl Native>) {
        if let Some(next) = self.ids.next().filter(|_| self.adopt)
            && let Some(gap) = self.ids.first.checked_sub(next).filter(|&gap| gap > 0)
        {
            tracing::warn!(
                peer = %cx.link.peer().endpoint, producer = self.id.0, next, gap,
                "messages that were acknowledged as received are lost: the producer goes on behind them",
            );
            cx.local.tally.add(Count::adopted, 1);
            let gap = usize::try_from(gap).unwrap_or(usize::MAX);
            cx.local.tally.add(Count::adopted_ids, gap);
            self.ids.mark = Some(self.ids.first - 1);
        }
    }

    pub(super) fn closed(self, shared: &Shared) {
        if let Some(session) = &self.session {
            shared.sessions.end(session);
            shared.log.let_go(self.id);
        }
    }
}

/// The number of a producer, which is not forgotten before it is let go: a connected producer is
/// not away.
fn held(log: &dyn Log, stream: StreamId, name: &str) -> Result<ProducerId, Refused> {
    let id = log.producer(stream, name)?;
    if log.hold(id) {
        return Ok(id);
    }
    // Forgotten between the two.
    let id = log.producer(stream, name)?;
    log.hold(id).then_some(id).ok_or(Refused::Forgotten)
}
