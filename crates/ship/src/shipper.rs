//! Everything together, step by step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::counts::{Counts, Fatal};
use crate::file_system::{FileId, FileSystem};
use crate::follower::{Around, Driven, Emptied, Follower, Life};
use crate::inert::Inert;
use crate::line::Line;
use crate::network::Network;
use crate::pattern::Pattern;
use crate::settings::Settings;
use crate::state::{Checkpoint, Entry, Surveyed};
use crate::store::Store;
use crate::trail::Trail;
use crate::waiting::Waiting;

/// Names are looked for once in so many polls.
const SCAN: u32 = 4;
/// Looks for names in one poll, at most, where names change all the time.
const NEWS: u32 = 5;
/// Longest path in the name of a producer; of longer ones the end is shown.
const SHOWN: usize = 130;
/// With `once`, how long a checkpoint that cannot be written is tried again.
const SAVED_WITHIN: Duration = Duration::from_secs(5);

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// More is to be done at once; otherwise not before something happens, or a poll is due.
    pub busy: bool,
    /// Everything there was when this began is shipped; only with
    /// [`once`](crate::Settings::once).
    pub complete: bool,
}

/// A file that is followed, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The path under which it was seen last.
    pub path: PathBuf,
    /// The name under which servers know it.
    pub producer: String,
    /// `followed`; `rotated` (not yet shipped whole), `lingering` (shipped, and still looked at), `done`, `missing`, `failing` (it cannot
    /// be read at present), `waiting` (as many files as may be are open), `failed`.
    pub state: &'static str,
    /// Length of the file in bytes.
    pub len: u64,
    /// Everything before this offset is dealt with.
    pub acked: u64,
    /// Bytes that no server is known to have.
    pub behind: u64,
    /// For how long the first of these has been there.
    pub lag: Duration,
}

/// See the library. The driver calls [`step`](Shipper::step) again at once while it is busy, else
/// when a lane has news or [`Settings::poll`] has passed.
pub struct Shipper<F: FileSystem, N: Network, S> {
    pub(crate) files: F,
    network: N,
    store: S,
    pub(crate) settings: Settings,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) exclude: Vec<Pattern>,
    /// Places of trails change only when names are looked for.
    pub(crate) trails: Vec<Trail<F::File, N::Lane>>,
    /// Entries of files that are not asked for this time.
    pub(crate) inert: Inert,
    line: Line,
    pub(crate) counts: Counts,
    pub(crate) events: Vec<String>,
    /// Polls since names were looked for; none at first, and where a name has something that no follower has yet.
    polls: Option<u32>,
    polled: Duration,
    /// When names were looked for last.
    scanned: Duration,
    /// Names have changed since.
    has_news: bool,
    /// Names were looked for, once at least.
    pub(crate) has_scanned: bool,
    /// Another stream, for which the checkpoint is that was begun with.
    other_stream: Option<String>,
    /// Files that wait for a lane, as of the last time that all were driven.
    waiting: usize,
    /// Trails that have a lane, or whose followers had more to do.
    hot: Vec<usize>,
    /// Trails that wait for a lane, in the order in which they have their turn.
    queue: VecDeque<usize>,
    /// The trail behind the one that has opened a lane last: it is first in the queue.
    turn: usize,
    /// The files that followers have.
    pub(crate) tracked: BTreeSet<FileId>,
    pub(crate) emptied: Emptied,
    /// By server, the producers of which something was acknowledged last.
    last: BTreeMap<String, Vec<String>>,
    /// Up to what directories are known.
    pub(crate) surveyed: BTreeMap<PathBuf, Surveyed>,
    /// Named files that may be copies which are being made.
    pub(crate) undecided: BTreeMap<FileId, Waiting>,
    /// Named files that are not followed for want of descriptors, as of the last scan.
    pub(crate) crowded_out: usize,
    /// Patterns without a file, as of the last scan.
    pub(crate) unmatched: Vec<usize>,
    /// Whether the state is to be saved before more is sent.
    is_unsaved: bool,
    pub(crate) dirty: bool,
    saved: Duration,
    /// Since when the checkpoint cannot be written.
    unsaved_since: Option<Duration>,
    stopping: bool,
    /// Problems that were told, so that they are told once.
    pub(crate) told: BTreeSet<PathBuf>,
    /// For the names of producers.
    random: fastrand::Rng,
}

impl<F: FileSystem, N: Network, S> std::fmt::Debug for Shipper<F, N, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shipper")
            .field("line", &self.line)
            .field("counts", &self.counts)
            .field(
                "followers",
                &self
                    .trails
                    .iter()
                    .flat_map(|t| &t.followers)
                    .collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

impl<F: FileSystem, N: Network, S: Store> Shipper<F, N, S> {
    /// The name of a producer for a file of this path.
    pub(crate) fn name(&mut self, path: &Path) -> String {
        producer(&self.settings.producer, path, self.random.u64(..))
    }

    /// Goes on from a checkpoint with what `patterns` name, but for what `exclude` names.
    #[must_use]
    pub fn new(
        (files, network, store): (F, N, S),
        settings: Settings,
        (patterns, exclude): (Vec<Pattern>, Vec<Pattern>),
        checkpoint: Checkpoint,
    ) -> Shipper<F, N, S> {
        let named = checkpoint.server.as_ref();
        let server = settings.servers.iter().position(|name| Some(name) == named);
        let random = fastrand::Rng::with_seed(settings.seed);
        let mut shipper = Shipper {
            files,
            network,
            store,
            settings,
            patterns,
            exclude,
            trails: Vec::new(),
            inert: Inert::default(),
            line: Line::new(server.unwrap_or(0)),
            counts: Counts::default(),
            events: Vec::new(),
            polls: None,
            polled: Duration::ZERO,
            scanned: Duration::ZERO,
            has_news: false,
            has_scanned: false,
            other_stream: None,
            waiting: 0,
            hot: Vec::new(),
            queue: VecDeque::new(),
            turn: 0,
            tracked: BTreeSet::new(),
            emptied: Emptied::default(),
            surveyed: checkpoint.directories,
            last: checkpoint.last,
            undecided: BTreeMap::new(),
            crowded_out: 0,
            unmatched: Vec::new(),
            is_unsaved: false,
            dirty: false,
            saved: Duration::ZERO,
            unsaved_since: None,
            stopping: false,
            told: BTreeSet::new(),
            random,
        };
        let (before, stream) = (checkpoint.stream, &shipper.settings.stream);
        shipper.other_stream = before.filter(|before| !stream.is_empty() && before != stream);
        if let Some(before) = &shipper.other_stream {
            shipper.events.push(format!(
                "the state is that of stream {before}, and stream {stream} is shipped to now: what it has not is sent from the files that are \
                 there (for each stream, take a --state of its own)"
            ));
        }
        let mut places = BTreeMap::new();
        for entry in checkpoint.files {
            if shipper.is_wanted(&entry.followed) {
                let at = *places.entry(entry.followed.clone()).or_insert_with(|| {
                    shipper.trails.push(Trail::new(entry.followed.clone()));
                    shipper.trails.len() - 1
                });
                let follower = Follower::new(entry, true, Duration::ZERO);
                shipper.trails[at].followers.push_back(follower);
            } else {
                shipper.inert.add(entry);
            }
        }
        shipper.probe(Duration::ZERO);
        shipper
    }

    pub(crate) fn is_wanted(&self, path: &Path) -> bool {
        self.patterns.iter().any(|pattern| pattern.names(path))
            && !self.exclude.iter().any(|pattern| pattern.names(path))
    }

    /// The counts of the shipper.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        for follower in self.followers() {
            counts.behind += follower.behind();
            counts.unterminated += follower.unterminated();
            counts.files += usize::from(follower.life == Life::Active);
            counts.failed += u64::from(follower.is_in_trouble());
            counts.held += follower.held();
            counts.left_out += u64::from(follower.lacks_room);
        }
        counts
    }

    /// All files, in the order of their paths and, for one path, of age. `now` is that of [`step`](Shipper::step).
    pub fn following(&self, now: Duration) -> impl Iterator<Item = Following> {
        self.followers().map(move |follower| Following {
            path: follower.entry.path.clone(),
            producer: follower.entry.producer.clone(),
            state: follower.state(),
            len: follower.len,
            acked: follower.entry.acked,
            behind: follower.behind(),
            lag: follower.lag(now),
        })
    }

    pub(crate) fn followers(&self) -> impl Iterator<Item = &Follower<F::File, N::Lane>> {
        self.trails.iter().flat_map(|trail| &trail.followers)
    }

    /// What there is to say since this was asked last, a sentence each.
    pub fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Why no file moves at present.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.line.trouble.as_deref()
    }

    /// The server in use.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.settings.servers[self.line.server]
    }

    /// Which patterns, in their order, name no file that is there or was shipped.
    #[must_use]
    pub fn unmatched(&self) -> &[usize] {
        &self.unmatched
    }

    /// From now on no more bytes are read or sent.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether everything sent is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.followers().all(Follower::is_settled)
    }

    /// Does the pending work. `now` counts from anywhere and never goes back.
    ///
    /// # Errors
    /// [`Fatal`].
    pub fn step(&mut self, now: Duration) -> Result<Step, Fatal> {
        let is_due = now.saturating_sub(self.polled) >= self.settings.poll;
        let polls = self.polls.map_or(SCAN, |polls| polls + u32::from(is_due));
        if is_due {
            self.polled = now;
        }
        self.polls = Some(polls);
        self.has_news |= self.files.has_news();
        let since = now.saturating_sub(self.scanned);
        let is_news = self.has_news && since >= self.settings.poll / NEWS;
        let is_scan = (polls >= SCAN || is_news) && !self.stopping;
        if is_scan {
            self.polls = Some(0);
            (self.scanned, self.has_news) = (now, false);
            self.scan(now);
            self.has_scanned = true;
        } else if is_due {
            self.look(now, false);
        }
        let mut busy = false;
        if self.is_unsaved && !self.save(now) {
            self.cannot_save(now)?;
        }
        busy |= self.drive(now, is_due || is_scan)?;
        if self.dirty && now.saturating_sub(self.saved) >= self.settings.save_every {
            self.save(now);
        }
        busy |= self.polls.is_none() || (self.is_unsaved && self.unsaved_since.is_none());
        let is_quiet = self.settings.once && !busy && self.undecided.is_empty();
        let caught_up =
            |follower: &Follower<_, _>| follower.is_caught_up(&self.settings) && follower.is_saved;
        let complete = is_quiet && !self.is_unsaved && self.followers().all(caught_up);
        Ok(Step { busy, complete })
    }

    /// With `once` it is not waited for a disk that stays full.
    fn cannot_save(&mut self, now: Duration) -> Result<(), Fatal> {
        let since = *self.unsaved_since.get_or_insert(now);
        let most = self.settings.give_up.unwrap_or(Duration::MAX);
        if self.settings.once && now.saturating_sub(since) >= most.min(SAVED_WITHIN) {
            return Err(Fatal(
                "the checkpoint cannot be written, and without it nothing that is new may be sent"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Looks at all files that have followers, or at the files that are not open yet.
    pub(crate) fn look(&mut self, now: Duration, only_new: bool) {
        let mut held: Vec<(usize, usize, u64)> = Vec::new();
        let mut open = self.make_room();
        let most = self.settings.open.max(1);
        let mut waiting = None;
        let Shipper { trails, .. } = self;
        let mut trails = std::mem::take(trails);
        let mut around = self.around(now, 0);
        let mut dirty = false;
        let mut was_opened = false;
        for (trail, all) in trails.iter_mut().enumerate() {
            for at in 0..all.followers.len() {
                let had = all.followers[at].file.is_some();
                if only_new && had {
                    continue;
                }
                if open >= most && all.followers[at].wants_room() {
                    // What comes after it in its path waits for it.
                    if !all.yields_behind(at) {
                        all.followers[at].lacks_room = true;
                        waiting.get_or_insert_with(|| all.followers[at].entry.path.clone());
                        continue;
                    }
                    open -= 1;
                }
                all.followers[at].lacks_room = false;
                dirty |= all.followers[at].look_at(&mut around).dirty;
                let has = all.followers[at].file.is_some();
                was_opened |= has && !had;
                open = open + usize::from(has) - usize::from(had);
                match all.followers[at].held() {
                    0 => {}
                    len => held.push((trail, at, len)),
                }
            }
        }
        // What was removed longest ago goes first.
        let mut all: u64 = held.iter().map(|(_, _, len)| len).sum();
        for (trail, at, len) in held {
            if all <= around.settings.held {
                break;
            }
            all -= len;
            let how = format!(
                "was removed, and removed files of more than {} bytes are not held open (see --held): what it had",
                around.settings.held
            );
            trails[trail].followers[at].give_up(&mut around, &how);
        }
        let must_scan = around.must_scan;
        self.trails = trails;
        if was_opened {
            self.drop_doubles();
        }
        if let Some(path) = waiting {
            self.wait_for_room(&path);
        }
        self.dirty |= dirty;
        if must_scan {
            self.polls = None;
        }
        let is_unsaved = self.followers().any(|follower| !follower.is_saved);
        self.is_unsaved |= is_unsaved;
    }

    /// A file has one follower. A checkpoint of a version that had a file with a hole at its end followed twice has two, both of which have
    /// found their file as they knew it: the one that is farther stays.
    fn drop_doubles(&mut self) {
        let mut farthest: BTreeMap<FileId, (u64, String)> = BTreeMap::new();
        let mut doubled = BTreeSet::new();
        let have =
            |follower: &Follower<F::File, N::Lane>| follower.file.is_some() && follower.has_file();
        for follower in self.followers().filter(|follower| have(follower)) {
            let Entry {
                id,
                acked,
                producer,
                ..
            } = &follower.entry;
            match farthest.get(id) {
                None => drop(farthest.insert(*id, (*acked, producer.clone()))),
                Some((other, _)) => {
                    doubled.insert(*id);
                    if acked > other {
                        farthest.insert(*id, (*acked, producer.clone()));
                    }
                }
            }
        }
        if doubled.is_empty() {
            return;
        }
        let Shipper { trails, events, .. } = self;
        for trail in trails {
            trail.followers.retain(|follower| {
                let entry = &follower.entry;
                let stays = match farthest.get(&entry.id) {
                    Some((_, producer)) if doubled.contains(&entry.id) => {
                        !have(follower) || *producer == entry.producer
                    }
                    _ => true,
                };
                if !stays {
                    events.push(format!(
                        "the state has {} twice, shipped up to byte {} and up to byte {}: shipping goes on at the latter, and lines before \
                         the former may be stored twice",
                        entry.path.display(),
                        entry.acked,
                        farthest[&entry.id].0
                    ));
                }
                stays
            });
        }
        self.is_unsaved = true;
        self.dirty = true;
    }

    /// Has files that are looked at only for what is written late give their room to others, the ones that were shipped first; how many
    /// files are open then.
    fn make_room(&mut self) -> usize {
        let open = self.followers().filter(|f| f.file.is_some()).count();
        let wanting = self.followers().filter(|f| f.wants_room()).count() + self.crowded_out;
        let surplus = (open + wanting).saturating_sub(self.settings.open.max(1));
        if surplus == 0 {
            return open;
        }
        let mut lingering: Vec<(Duration, usize, usize)> = Vec::new();
        for (trail, all) in self.trails.iter().enumerate() {
            for (at, follower) in all.followers.iter().enumerate() {
                lingering.extend(follower.may_leave().map(|since| (since, trail, at)));
            }
        }
        lingering.sort_unstable();
        for (_, trail, at) in lingering.into_iter().take(surplus) {
            self.trails[trail].followers[at].leave();
            self.dirty = true;
        }
        self.followers().filter(|f| f.file.is_some()).count()
    }

    /// Says, once, that files wait for others to be closed.
    pub(crate) fn wait_for_room(&mut self, path: &Path) {
        if self.told.insert(PathBuf::from("descriptors")) {
            self.events.push(format!(
                "{} and perhaps further files wait: {} are held open, and the other descriptors are kept for connections and the \
                 state (see ulimit -n)",
                path.display(),
                self.settings.open.max(1)
            ));
        }
    }

    /// What a follower needs of the rest, with so many lanes that may be opened.
    pub(crate) fn around(&mut self, now: Duration, free: usize) -> Around<'_, F, N> {
        Around {
            files: &self.files,
            network: &mut self.network,
            settings: &self.settings,
            now,
            line: &mut self.line,
            counts: &mut self.counts,
            events: &mut self.events,
            free,
            waiting: self.waiting,
            tracked: &mut self.tracked,
            emptied: &mut self.emptied,
            stopping: self.stopping,
            must_scan: false,
            was_set_back: false,
            has_broken: false,
            other_stream: self.other_stream.as_deref(),
            last: &mut self.last,
        }
    }

    /// Has followers go on: all of them, or the ones that have something to do.
    fn drive(&mut self, now: Duration, all: bool) -> Result<bool, Fatal> {
        let count = self.trails.len();
        let places: Vec<usize> = match all {
            // Followers that wait for a lane take turns.
            true => (0..count)
                .map(|at| (at + self.turn.min(count)) % count)
                .collect(),
            false => std::mem::take(&mut self.hot),
        };
        let mut trails = std::mem::take(&mut self.trails);
        let open: usize = match all {
            true => trails.iter().map(Trail::lanes).sum(),
            false => places.iter().map(|&at| trails[at].lanes()).sum(),
        };
        let mut free = self.settings.lanes.max(1).saturating_sub(open);
        let mut hot = Vec::new();
        let mut came = Driven::default();
        if all {
            self.queue.clear();
            self.waiting = 0;
        }
        // Each has one turn; a follower that goes on waiting stands behind the others.
        let mut turns = self.queue.len();
        let mut result = Ok(());
        let mut next = places.into_iter();
        let (mut must_scan, mut set_back, mut has_broken) = (false, false, false);
        loop {
            let at = match next.next() {
                Some(at) => at,
                // A lane may have become free.
                None if turns > 0 && free > 0 => match self.queue.pop_front() {
                    Some(at) => {
                        turns -= 1;
                        at
                    }
                    None => break,
                },
                None => break,
            };
            let before = trails[at].lanes();
            let mut around = self.around(now, free);
            let driven = trails[at].drive(&mut around);
            must_scan |= around.must_scan;
            set_back |= around.was_set_back;
            has_broken |= around.has_broken;
            let driven = match driven {
                Ok(driven) => driven,
                Err(fatal) => {
                    result = Err(fatal);
                    break;
                }
            };
            let after = trails[at].lanes();
            free = (free + before).saturating_sub(after);
            if after > before {
                self.turn = at + 1;
            }
            came.busy |= driven.busy;
            came.dirty |= driven.dirty;
            let waits = trails[at].waits();
            if waits > 0 {
                self.queue.push_back(at);
            }
            if all {
                self.waiting += waits;
            } else if after > before {
                self.waiting = self.waiting.saturating_sub(1);
            }
            if driven.busy || trails[at].is_hot() {
                hot.push(at);
            }
        }
        self.hot = hot;
        self.hot.sort_unstable();
        self.hot.dedup();
        if all {
            for trail in &mut trails {
                trail.forget();
            }
        }
        self.is_unsaved |= self
            .hot
            .iter()
            .any(|&at| trails[at].followers.iter().any(|f| !f.is_saved));
        self.trails = trails;
        self.dirty |= came.dirty;
        if must_scan {
            self.polls = None;
        }
        if set_back {
            // The server may have less of others too.
            for trail in &mut self.trails {
                trail.doubt(now);
            }
            self.is_unsaved = true;
        }
        if has_broken {
            self.probe(now);
        }
        result.map(|()| came.busy)
    }

    /// The server in use may have been restored from an older backup since it was heard: whether it has what it
    /// acknowledged last tells.
    fn probe(&mut self, now: Duration) {
        let last = self.last.get(&self.settings.servers[self.line.server]);
        for trail in &mut self.trails {
            match last {
                Some(last) => trail.doubt_some(now, last),
                // A checkpoint of an older version.
                None => trail.doubt_active(now),
            }
        }
    }

    /// Writes the checkpoint; whether that was possible.
    pub fn save(&mut self, now: Duration) -> bool {
        if self.emptied.are_new {
            // What they have now is known to no follower yet.
            self.scan(now);
        }
        let mut checkpoint = Checkpoint {
            server: Some(self.server().to_owned()),
            stream: Some(self.settings.stream.clone()).filter(|name| !name.is_empty()),
            files: self.inert.entries().cloned().collect(),
            directories: self.surveyed.clone(),
            last: self.last.clone(),
            ..Checkpoint::default()
        };
        for trail in &mut self.trails {
            for follower in &mut trail.followers {
                checkpoint.files.extend(follower.checkpoint(&self.files));
            }
        }
        self.saved = now;
        match self.store.save(&checkpoint) {
            Ok(()) => {
                self.dirty = false;
                self.is_unsaved = false;
                self.unsaved_since = None;
                self.told.remove(&PathBuf::from("checkpoint"));
                for trail in &mut self.trails {
                    for follower in &mut trail.followers {
                        follower.saved();
                    }
                }
                true
            }
            Err(e) => {
                if self.told.insert(PathBuf::from("checkpoint")) {
                    self.events.push(format!(
                        "cannot write the checkpoint: {e}. Files that are new wait; the others go on"
                    ));
                }
                false
            }
        }
    }
}

/// A name that no other file gets.
pub(crate) fn producer(prefix: &str, path: &Path, random: u64) -> String {
    let path: String = path
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let mut from = path.len().saturating_sub(SHOWN);
    while !path.is_char_boundary(from) {
        from += 1;
    }
    format!("{prefix}:{}#{random:016x}", &path[from..])
}
