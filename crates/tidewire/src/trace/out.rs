//! The output of a tracer.

use std::io::Write;
use std::time::Duration;

use crate::trace::pcap::{self, Flow};
use crate::trace::words::Ms;
use crate::vocabulary::time::Instant;

type Sink = Box<dyn Write + Send>;

pub(super) struct Out {
    pub(super) words: Option<Sink>,
    pub(super) pcap: Option<Sink>,
    /// Bytes that may still be written.
    pub(super) left: u64,
    /// When the first connection opened, by both clocks.
    began: Option<(Instant, Duration)>,
    /// Said once that there is no more to come.
    over: bool,
}

impl Out {
    pub(super) fn limited(left: u64) -> Out {
        Out {
            words: None,
            pcap: None,
            left,
            began: None,
            over: false,
        }
    }

    pub(super) fn begin(&mut self, now: Instant, wall: Duration) {
        if self.began.is_none() {
            self.began = Some((now, wall));
            put(&mut self.pcap, &pcap::HEADER, &mut self.left);
        }
    }

    /// Writes a line, which is made only if it is wanted.
    pub(super) fn say(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.words.is_none() || self.over {
            return;
        }
        let Some((began, _)) = self.began else { return };
        let at = Instant::from_nanos(now.as_nanos().saturating_sub(began.as_nanos()));
        let line = format!("{}  {}\n", Ms(at), line());
        put(&mut self.words, line.as_bytes(), &mut self.left);
        self.end_if_full();
    }

    pub(super) fn packet(
        &mut self,
        now: Instant,
        flow: &mut Flow,
        (side, flags): (u8, u8),
        payload: &[u8],
    ) {
        let (Some(_), Some((began, wall))) = (&self.pcap, self.began) else {
            return;
        };
        if self.over {
            return;
        }
        let since = now.as_nanos().saturating_sub(began.as_nanos());
        let mut bytes = Vec::with_capacity(payload.len() + 100);
        let at = wall + Duration::from_nanos(since);
        flow.send(&mut bytes, at, side, flags, payload);
        put(&mut self.pcap, &bytes, &mut self.left);
        self.end_if_full();
    }

    fn end_if_full(&mut self) {
        if self.left == 0 && !std::mem::replace(&mut self.over, true) {
            tracing::warn!("a trace has reached its limit; nothing more is written to it");
            if let Some(words) = &mut self.words {
                let _ = writeln!(words, "(the limit of the trace is reached)");
            }
        }
    }
}

/// Writes all bytes, or ends the trace. After a failed write, nothing more is traced.
fn put(sink: &mut Option<Sink>, bytes: &[u8], left: &mut u64) {
    let Some(open) = sink else { return };
    let len = bytes.len() as u64;
    if len > *left {
        *left = 0;
        return;
    }
    *left -= len;
    if let Err(e) = open.write_all(bytes).and_then(|()| open.flush()) {
        tracing::warn!(error = %e, "a trace cannot be written");
        *sink = None;
    }
}
