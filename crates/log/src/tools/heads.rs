//! The facts about a damaged batch that can still be read.
//!
//! The one idea: what a valid checksum covers is true, even if another checksum of the batch is
//! wrong. If only frames are damaged, the body's checksum proves all heads. If the batch's header
//! is damaged, the checksum still proves them, as long as the field of the checksum is whole. And
//! each run of records has a checksum of its own.

use super::lost::{Lost, Names, pass};
use crate::format::{
    ALIGN, BATCH_HEADER, BATCH_HEADER_BEFORE, BatchHeader, Missing, RunView, Runs, body_crc_of,
};
use crate::state::State;

/// The facts in the heads of a damaged batch.
#[derive(Debug)]
pub(super) struct Heads {
    pub(super) number: u64,
    streams: Vec<(u32, String)>,
    producers: Vec<(u32, u32, String)>,
    /// Stream, first position, position after the last.
    pub(super) records: Vec<Missing>,
    deleted: Vec<u32>,
    /// Most records that were in the batch besides the known ones; `None` if that is not known.
    pub(super) unseen: Option<u64>,
    /// The checksum of its body holds: these are all.
    pub(super) is_proven: bool,
    /// The whole state after the batch, if it is proven.
    pub(super) checkpoint: Option<State>,
    /// The end of the batch in its segment, if it is known.
    pub(super) end: Option<u64>,
}

impl Heads {
    /// The heads of the batch that begins `rest`, at `offset` of a segment. If its header does not
    /// tell its number, it is the `expected` one.
    pub(super) fn of(rest: &[u8], offset: u64, segment: u64, expected: u64) -> Option<Heads> {
        if let Ok(batch) = BatchHeader::decode(rest, offset, segment) {
            let runs = batch.runs(rest, offset).ok()?;
            let records = Some(batch.records);
            let heads = Heads::collect(batch.number, runs, batch.body_crc, records);
            let end = Some(offset + u64::from(batch.length));
            return Some(Heads { end, ..heads });
        }
        // The length is in the damaged header too; what is no run ends the body.
        [BATCH_HEADER, BATCH_HEADER_BEFORE]
            .into_iter()
            .filter_map(|length| {
                let runs = Runs::new(rest.get(length..)?, offset, u32::MAX);
                Some(Heads::collect(expected, runs, body_crc_of(rest), None))
            })
            .find(|heads| heads.unseen.is_some() || !heads.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.streams.is_empty()
            && self.producers.is_empty()
            && self.deleted.is_empty()
    }

    /// The proven heads of these runs; `records` is the batch's number of records, if its header
    /// tells.
    fn collect(number: u64, runs: Runs<'_>, body_crc: u32, records: Option<u32>) -> Heads {
        let mut runs = runs.map_while(Result::ok).collect::<Vec<_>>();
        let mut crc = 0;
        let proves_all = runs.iter().position(|(_, run)| {
            crc = crc32c::crc32c_append(crc, run.covered());
            crc == body_crc
        });
        match proves_all {
            Some(last) => runs.truncate(last + 1),
            None => runs.retain(|(at, run)| match run {
                RunView::Records(run) => run.verify(run.frames, *at).is_ok(),
                _ => false,
            }),
        }
        let proven = runs.last().filter(|_| proves_all.is_some());
        let end = proven.map(|(at, run)| {
            let frames = match run {
                RunView::Records(run) => run.frames.len(),
                _ => 0,
            };
            (at + (run.covered().len() + frames) as u64).next_multiple_of(ALIGN as u64)
        });
        let mut heads = Heads {
            number,
            is_proven: proves_all.is_some(),
            checkpoint: None,
            end,
            streams: Vec::new(),
            producers: Vec::new(),
            records: Vec::new(),
            deleted: Vec::new(),
            unseen: match proves_all {
                Some(_) => Some(0),
                None => records.map(u64::from),
            },
        };
        for (_, run) in runs {
            match run {
                RunView::Records(run) => {
                    heads.records.push(Missing {
                        stream: run.stream,
                        first: run.first,
                        next: run.first.saturating_add(run.count.into()),
                    });
                    if let Some(unseen) = &mut heads.unseen {
                        *unseen = unseen.saturating_sub(run.count.into());
                    }
                }
                RunView::Stream { id, name, .. } | RunView::StreamSet { id, name, .. } => {
                    heads.streams.push((id, name.to_owned()))
                }
                RunView::Producer {
                    id, stream, name, ..
                } => heads.producers.push((id, stream, name.to_owned())),
                RunView::Deleted { id, .. } => heads.deleted.push(id),
                RunView::Checkpoint { bytes, form, .. } => {
                    heads.checkpoint = State::decode(bytes, form);
                }
                _ => {}
            }
        }
        heads
    }

    /// Has the state be as it was after the batch, but for what its records tell of producers.
    pub(super) fn apply(self, state: &mut State, gap: &mut Lost, names: &Names) {
        let pass_records = |state: &mut State, gap: &mut Lost, is_new: bool| {
            for lost in &self.records {
                let known = state.streams.get(lost.stream);
                if known.map_or(is_new, |stream| stream.next <= lost.first) {
                    pass(state, gap, names, lost.stream, lost.next);
                }
            }
        };
        // The end of a deleted stream has to be known before.
        pass_records(state, gap, false);
        for (id, name) in self.streams {
            if id == state.streams.next_number() {
                gap.make(state, name);
            }
        }
        for (id, stream, name) in self.producers {
            let is_new = state.find(id).is_none() && id > 0;
            if is_new && state.streams.contains(stream) {
                state.add_producer(id, stream, 0, &name);
                gap.producers.insert(id);
            }
        }
        pass_records(state, gap, true);
        for id in self.deleted {
            gap.delete(state, id);
        }
    }
}
