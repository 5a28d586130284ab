//! Facts that no batch tells: positions that may have been used by lost records, and streams that
//! may no longer own their names.
//!
//! The one idea: no position of a name is used twice. If no batch tells how far a stream went in a gap, the stream goes
//! on behind the most that it can have had. A nameless stream may have followed a deleted one under its name. Then it
//! goes on behind both, and its producers are forgotten: the log's marks may belong to the deleted stream. Streams may
//! have been made without any trace. A nameless stream stands for them: any new stream begins behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::lost::{Lost, Names, Producers, know, pass};
use crate::format::RunView;
use crate::state::{NAMELESS, State};

/// More records than a batch can have: its header has 4 bytes for their number.
pub(super) const BATCH_RECORDS: u64 = 1 << 32;
/// More than a segment can have, which is 1 GiB at most: Zstandard makes 4 bytes of 128 KiB at best, and a record has 12
/// bytes at least.
const SEGMENT_RECORDS: u64 = 1 << 42;
/// No stream goes on behind this position because of a doubt.
const POSITION_MAX: u64 = 1 << 63;

/// What whole batches behind gaps tell: how many gaps there were before the last gap that they
/// follow.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The position of each stream.
    positions: BTreeMap<u32, usize>,
    /// Batches that show a stream.
    shown: BTreeMap<u32, usize>,
    /// How many streams were made by then.
    count: usize,
    /// Streams that batches behind the last gap seem to make, with their names; the batches may also only change
    /// their settings.
    set: Names,
    /// The positions at which deleted streams ended.
    ended: BTreeMap<u32, u64>,
}

impl Told {
    /// Whether it was told behind so many gaps where a stream is.
    pub(super) fn is(&self, stream: u32, gaps: usize) -> bool {
        self.positions.get(&stream) == Some(&gaps)
    }

    /// A stream is there, and where it is, is known.
    pub(super) fn tell(&mut self, stream: u32, gaps: usize) {
        self.positions.insert(stream, gaps);
        self.shown.insert(stream, gaps);
    }

    /// Whether batches behind the last gap make streams, as far as is known: no stream with a higher number was made in
    /// the gap.
    pub(super) fn counts(&self, gaps: usize) -> bool {
        self.count == gaps
    }

    /// The name of a stream that these batches seem to make.
    pub(super) fn seems_made(&self, stream: u32) -> Option<&str> {
        self.set.get(&stream).map(String::as_str)
    }

    /// Takes the names of those streams that may have been made in the gap after all.
    pub(super) fn take_set(&mut self) -> Names {
        std::mem::take(&mut self.set)
    }

    /// Begins another gap.
    pub(super) fn forget_set(&mut self) {
        self.set.clear();
    }

    /// All streams that were made are known.
    pub(super) fn tell_all(&mut self, gaps: usize) {
        self.count = gaps;
    }

    /// Takes what a whole batch tells; for streams in `known`, also their positions. `before` is the state before the
    /// batch, `all` the state in its checkpoint.
    pub(super) fn take(
        &mut self,
        gaps: usize,
        runs: &[RunView<'_>],
        known: BTreeSet<u32>,
        (before, all): (&State, Option<&State>),
    ) {
        known.into_iter().for_each(|stream| self.tell(stream, gaps));
        let mut ends = BTreeMap::new();
        for run in runs {
            match *run {
                RunView::Stream { id, .. } | RunView::StreamSet { id, .. } => {
                    self.tell(id, gaps);
                    if let RunView::StreamSet { name, .. } = *run
                        && !before.streams.contains(id)
                    {
                        self.set.insert(id, name.to_owned());
                    }
                    if !before.streams.contains(id) {
                        // Numbers are dense: a stream that is made tells that all before it were.
                        self.count = gaps;
                    }
                }
                RunView::Producer { stream, .. }
                | RunView::Cursor { stream, .. }
                | RunView::Trimmed { stream, .. } => {
                    self.shown.insert(stream, gaps);
                }
                RunView::Records(run) => {
                    let end = run.first.saturating_add(run.count.into());
                    ends.insert(run.stream, end);
                }
                RunView::Deleted { id, .. } => {
                    let known = before.streams.get(id).map(|known| known.next);
                    let end = ends.get(&id).copied().max(known);
                    self.ended.insert(id, end.unwrap_or(0));
                }
                _ => {}
            }
        }
        if let Some(all) = all {
            all.streams.iter().for_each(|(id, _)| self.tell(id, gaps));
            self.count = gaps;
        }
    }

    /// How many records a stream may have had, in gaps behind which nothing tells where it is.
    pub(super) fn unseen(&self, stream: u32, gaps: &[Lost]) -> u64 {
        let since = self.positions.get(&stream).copied();
        let since = since.or_else(|| made_in(stream, gaps)).unwrap_or(0);
        unseen_in(&gaps[since.min(gaps.len())..])
    }
}

fn unseen_in(gaps: &[Lost]) -> u64 {
    gaps.iter()
        .fold(0, |sum: u64, gap| sum.saturating_add(gap.unseen))
}

/// The gap in which a stream was made.
fn made_in(stream: u32, gaps: &[Lost]) -> Option<usize> {
    gaps.iter()
        .position(|gap| gap.streams.contains_key(&stream))
}

/// A stream that was made in a gap, and whose name is lost.
struct Nameless {
    stream: u32,
    /// The gap, by its number.
    gap: usize,
    /// The stream's first position that is known: a stream that it followed ended there or before.
    low: u64,
    /// The stream ends there or before.
    high: u64,
}

/// Everything that is known when the walk has ended.
pub(super) struct Doubt<'a> {
    pub(super) gaps: &'a mut [Lost],
    pub(super) state: &'a mut State,
    pub(super) told: &'a Told,
    pub(super) names: &'a Names,
    /// Whether streams may have been deleted.
    pub(super) may_delete: bool,
    /// The end of the log is known for all streams with records.
    pub(super) is_all: bool,
    /// The end is lost, and there may have been more batches behind what is known of.
    pub(super) is_open: bool,
}

impl Doubt<'_> {
    /// Has streams go on where no position is given again. With the producers that get other numbers, as they are to be
    /// forgotten.
    pub(super) fn settle(self) -> Producers {
        let mut renumbered = Producers::new();
        let behind = if self.is_open { SEGMENT_RECORDS } else { 0 };
        let nameless = self.nameless();
        let ids = self.state.streams.iter().map(|(id, _)| id);
        for id in ids.collect::<Vec<_>>() {
            let mut end = self.end_of(id);
            let is_nameless = nameless.iter().any(|it| it.stream == id);
            if let Some(others) = (!is_nameless)
                .then(|| self.followed(id, &nameless))
                .flatten()
            {
                end = end.max(others);
                let gap = self.gaps.last_mut().expect("there are doubts");
                gap.unsure.insert(id);
                for (number, name) in forget(self.state, id) {
                    gap.producers.insert(number);
                    renumbered.insert(number, (id, name));
                }
            }
            let gap = self.gaps.last_mut().expect("there are doubts");
            go_on(self.state, gap, self.names, id, end.saturating_add(behind));
        }
        let untold = unseen_in(&self.gaps[self.told.count..]).saturating_add(behind);
        if untold > 0 {
            let id = self.state.streams.next_number();
            let gap = self.gaps.last_mut().expect("there are doubts");
            know(self.state, gap, self.names, id);
            go_on(self.state, gap, self.names, id, untold);
        }
        renumbered
    }

    /// Where a stream ended at most, as far as it is known by its number.
    fn end_of(&self, stream: u32) -> u64 {
        let known = self.state.streams[stream].next;
        known.saturating_add(self.told.unseen(stream, self.gaps))
    }

    /// Streams without a name, streams that whole batches delete among them.
    fn nameless(&self) -> Vec<Nameless> {
        let made = self.gaps.iter().enumerate();
        let made = made.flat_map(|(gap, lost)| lost.streams.iter().map(move |made| (gap, made)));
        let made = made.filter(|(_, (_, made))| made.name.starts_with(NAMELESS));
        let nameless = made.filter_map(|(gap, (&stream, made))| {
            let ended = || self.told.ended.get(&stream).copied();
            let known = self.state.streams.get(stream).map(|known| known.next);
            let next = known.or_else(ended)?;
            let first = made.first;
            let mut lost = self.gaps.iter().flat_map(|gap| &gap.positions);
            let lost = lost.find(|lost| lost.stream == stream && lost.first == first);
            let low = match lost {
                Some(lost) => lost.next,
                None if next > first => first,
                None => u64::MAX,
            };
            let high = match known {
                Some(_) => self.end_of(stream),
                None => next,
            };
            Some(Nameless {
                stream,
                gap,
                low,
                high,
            })
        });
        nameless.collect()
    }

    /// If a stream may have been deleted in what is lost: where others of its name may have ended.
    fn followed(&self, stream: u32, nameless: &[Nameless]) -> Option<u64> {
        let shown = self.told.shown.get(&stream).copied();
        let shown = shown.or_else(|| made_in(stream, self.gaps)).unwrap_or(0);
        let next = self.state.streams[stream].next;
        let may_follow = |it: &&Nameless| {
            self.may_delete && it.stream > stream && it.gap >= shown && it.low >= next
        };
        let ends = nameless.iter().filter(may_follow).map(|it| it.high);
        let is_gone = self.is_all && next > 0 && shown < self.gaps.len();
        ends.max().or(is_gone.then_some(0))
    }
}

/// Gives the producers of a stream other numbers, under which nothing is known of them.
fn forget(state: &mut State, stream: u32) -> Vec<(u32, String)> {
    let known = state.streams[stream].producers.clone();
    let marked = known.into_iter().filter(|(_, number)| {
        let known = state.find(*number);
        known.is_some_and(|known| known.mark.appended.is_some())
    });
    let mut marked = marked.collect::<Vec<_>>();
    marked.sort();
    let mut renumbered = Vec::new();
    for (name, _) in marked {
        let Some(number) = state.next_producer() else {
            break;
        };
        state.add_producer(number, stream, 0, &name);
        renumbered.push((number, name.to_string()));
    }
    renumbered
}

/// Has a stream go on at a position, if that is behind its end; how far the stream went is not
/// known.
pub(super) fn go_on(state: &mut State, gap: &mut Lost, names: &Names, stream: u32, position: u64) {
    let position = position.min(POSITION_MAX);
    let Some(known) = state.streams.get(stream) else {
        return;
    };
    if position > known.next {
        gap.certain.insert(stream, known.next);
        pass(state, gap, names, stream, position);
    }
}
