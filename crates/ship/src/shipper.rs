//! Everything together, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file_system::{FileId, FileSystem, Seen};
use crate::fingerprint::Fingerprint;
use crate::follower::{Around, Follower, Life};
use crate::network::{Ended, Matter, Network};
use crate::pattern::{Pattern, is_rotated};
use crate::settings::Settings;
use crate::state::{Checkpoint, Entry};
use crate::store::Store;
use crate::trail::Trail;

/// Names are looked for once in so many polls.
const SCAN: u32 = 4;
/// Longest path in the name of a producer; of longer ones the end is shown.
const SHOWN: usize = 130;

/// Nothing more can be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fatal(pub String);

/// What a step came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// There is more to do at once; else not before something happens, or a poll is due.
    pub busy: bool,
    /// Everything there was when this began is shipped; only with
    /// [`once`](crate::Settings::once).
    pub complete: bool,
}

/// What was done, since the shipper was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages acknowledged.
    pub acknowledged: u64,
    /// Bytes of files dealt with.
    pub bytes: u64,
    /// Lines left out because they were too long.
    pub skipped: u64,
    /// Files that cannot be shipped any further, or cannot be read at present.
    pub failed: u64,
    /// Times that something was lost before it could be read; each was told.
    pub losses: u64,
    /// Bytes there at present that no server is known to have.
    pub behind: u64,
    /// Files followed at present.
    pub files: usize,
    /// Bytes of lines without an end, at the ends of files.
    pub unterminated: u64,
}

/// The server in use, for all files.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) server: usize,
    pub(crate) trouble: Option<String>,
    pub(crate) payload_max: usize,
    /// No lane is opened before.
    not_before: Duration,
    /// Lanes lost since something was acknowledged.
    fruitless: usize,
    /// Since when no server was heard.
    silent: Option<Duration>,
}

/// How long to pause when all servers have failed.
const PAUSE: Duration = Duration::from_secs(1);

impl Line {
    pub(crate) fn may_open(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    pub(crate) fn opened(&mut self, server: usize) {
        if server == self.server {
            self.silent = None;
        }
    }

    pub(crate) fn progressed(&mut self) {
        self.fruitless = 0;
    }

    /// A lane has ended: the next server has its turn, if there is a point in that.
    pub(crate) fn lost(
        &mut self,
        server: usize,
        ended: Ended,
        settings: &Settings,
        now: Duration,
        events: &mut Vec<String>,
    ) -> Result<(), Fatal> {
        if server != self.server {
            return Ok(());
        }
        let all = settings.servers.len();
        self.fruitless += 1;
        let silent = now.saturating_sub(*self.silent.get_or_insert(now));
        if ended.matter != Matter::Passing && self.fruitless >= all {
            return Err(Fatal(ended.why));
        }
        // Each has had its turn, however short the time.
        let all_tried = self.fruitless >= all;
        if all_tried && settings.give_up.is_some_and(|most| silent >= most) {
            return Err(Fatal(format!("gave up after {silent:.0?}: {}", ended.why)));
        }
        self.server = (server + 1) % all;
        if self.fruitless.is_multiple_of(all) {
            self.not_before = now + PAUSE;
        }
        if all > 1 {
            let (from, to) = (&settings.servers[server], &settings.servers[self.server]);
            events.push(format!(
                "{}; going on with {to}. What {from} had stored and not acknowledged is in both then, \
                 with the same producer and id",
                ended.why
            ));
        }
        self.trouble = Some(ended.why);
        Ok(())
    }
}

/// See the library. Whoever drives it calls [`step`](Shipper::step) again at once while it is busy,
/// else when a lane has news or [`Settings::poll`] has passed.
pub struct Shipper<F: FileSystem, N: Network, S> {
    files: F,
    network: N,
    store: S,
    settings: Settings,
    patterns: Vec<Pattern>,
    exclude: Vec<Pattern>,
    trails: Vec<Trail<F::File, N::Lane>>,
    /// Of files that are not asked for this time.
    inert: Vec<Entry>,
    line: Line,
    counts: Counts,
    events: Vec<String>,
    /// Polls since names were looked for; none at first, and where a name has something that nobody follows yet.
    polls: Option<u32>,
    polled: Duration,
    waiting: usize,
    dirty: bool,
    saved: Duration,
    stopping: bool,
    /// Problems that were told, so that they are told once.
    told: BTreeSet<PathBuf>,
    /// For the names of producers.
    random: fastrand::Rng,
}

impl<F: FileSystem, N: Network, S> std::fmt::Debug for Shipper<F, N, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shipper")
            .field("line", &self.line)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl<F: FileSystem, N: Network, S: Store> Shipper<F, N, S> {
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
            inert: Vec::new(),
            line: Line {
                server: server.unwrap_or(0),
                trouble: None,
                payload_max: 0,
                not_before: Duration::ZERO,
                fruitless: 0,
                silent: None,
            },
            counts: Counts::default(),
            events: Vec::new(),
            polls: None,
            polled: Duration::ZERO,
            waiting: 0,
            dirty: false,
            saved: Duration::ZERO,
            stopping: false,
            told: BTreeSet::new(),
            random,
        };
        for entry in checkpoint.files {
            if shipper.is_wanted(&entry.followed) {
                let follower = Follower::new(entry, true, Duration::ZERO);
                let at = shipper.trail(&follower.entry.followed.clone());
                shipper.trails[at].followers.push_back(follower);
            } else {
                shipper.inert.push(entry);
            }
        }
        shipper
    }

    fn is_wanted(&self, path: &Path) -> bool {
        self.patterns.iter().any(|pattern| pattern.names(path))
            && !self.exclude.iter().any(|pattern| pattern.names(path))
    }

    /// The number of the trail of this path, which is made if there is none.
    fn trail(&mut self, path: &Path) -> usize {
        let there = self.trails.iter().position(|trail| trail.path == path);
        there.unwrap_or_else(|| {
            self.trails.push(Trail::new(path.to_owned()));
            self.trails.len() - 1
        })
    }

    /// What was done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        for follower in self.followers() {
            counts.behind += follower.behind();
            counts.unterminated += follower.unterminated();
            counts.files += usize::from(follower.life == Life::Active);
            counts.failed += u64::from(follower.is_in_trouble());
        }
        counts
    }

    fn followers(&self) -> impl Iterator<Item = &Follower<F::File, N::Lane>> {
        self.trails.iter().flat_map(|trail| &trail.followers)
    }

    /// What there is to say since this was asked last, a sentence each.
    pub fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Why nothing moves at present.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.line.trouble.as_deref()
    }

    /// The server in use.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.settings.servers[self.line.server]
    }

    /// Nothing new is read or sent from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether everything sent is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.followers().all(Follower::is_settled)
    }

    /// Does what there is to do. `now` counts from anywhere and never goes back.
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
        if polls >= SCAN && !self.stopping {
            self.polls = Some(0);
            self.scan(now);
        }
        let mut busy = false;
        if self.followers().any(|follower| !follower.is_saved) {
            busy |= !self.save(now);
        }
        busy |= self.drive(now)?;
        if self.followers().any(|follower| !follower.is_saved) {
            self.dirty = true;
        }
        for trail in &mut self.trails {
            trail.forget();
        }
        if self.dirty && now.saturating_sub(self.saved) >= self.settings.save_every {
            self.save(now);
        }
        let caught_up = |follower: &Follower<_, _>| follower.is_caught_up(&self.settings);
        let complete = self.settings.once
            && !busy
            && self.polls.is_some()
            && self.followers().all(caught_up)
            && self.followers().all(|follower| follower.is_saved);
        Ok(Step { busy, complete })
    }

    fn drive(&mut self, now: Duration) -> Result<bool, Fatal> {
        let mut busy = false;
        let tracked = self.tracked();
        let open = self.followers().filter(|f| f.has_lane()).count();
        let mut around = Around {
            files: &self.files,
            network: &mut self.network,
            settings: &self.settings,
            now,
            line: &mut self.line,
            counts: &mut self.counts,
            events: &mut self.events,
            free: self.settings.lanes.max(1).saturating_sub(open),
            waiting: self.waiting,
            tracked: &|id| tracked.contains_key(&id),
            stopping: self.stopping,
            vacated: false,
        };
        let mut waiting = 0;
        // Who comes first changes, so that lanes go round.
        if self.waiting > 0 {
            self.trails.rotate_left(1);
        }
        for trail in &mut self.trails {
            for at in 0..trail.followers.len() {
                if at >= trail.active() {
                    break;
                }
                let follower = &mut trail.followers[at];
                if !follower.is_saved {
                    continue;
                }
                let driven = follower.drive(&mut around)?;
                busy |= driven.busy;
                self.dirty |= driven.dirty;
                waiting += usize::from(follower.is_waiting());
            }
        }
        let vacated = around.vacated;
        self.waiting = waiting;
        if vacated {
            self.polls = None;
        }
        Ok(busy)
    }

    /// Which files are known, and the trails they belong to.
    fn tracked(&self) -> BTreeMap<FileId, PathBuf> {
        let mut tracked = BTreeMap::new();
        for trail in &self.trails {
            for follower in trail.followers.iter().filter(|f| !f.is_truncated) {
                tracked.insert(follower.entry.id, trail.path.clone());
            }
        }
        tracked
    }

    /// Looks for files.
    fn scan(&mut self, now: Duration) {
        let mut found: Vec<Seen> = Vec::new();
        // What is not found may be there all the same.
        let mut is_partial = false;
        for pattern in &self.patterns {
            match self.files.find(pattern) {
                Ok(more) => found.extend(more),
                Err(e) => {
                    is_partial = true;
                    let named = PathBuf::from(format!("{pattern:?}"));
                    if self.told.insert(named) {
                        self.events
                            .push(format!("cannot look for files of {pattern:?}: {e}"));
                    }
                }
            }
        }
        let mut paths = BTreeSet::new();
        found.retain(|seen| {
            !self.exclude.iter().any(|pattern| pattern.names(&seen.path))
                && paths.insert(seen.path.clone())
        });
        let mut here: BTreeMap<PathBuf, FileId> = BTreeMap::new();
        for seen in &found {
            here.insert(seen.path.clone(), seen.id);
        }
        let ids: BTreeSet<FileId> = found.iter().map(|seen| seen.id).collect();
        // Whose path names another file now, or none.
        for trail in &mut self.trails {
            let id = here.get(&trail.path);
            for follower in &mut trail.followers {
                let is_found = ids.contains(&follower.entry.id);
                follower.is_here = is_found || (is_partial && follower.is_here);
                if id == Some(&follower.entry.id) && !follower.is_truncated {
                    if follower.life == Life::Active {
                        follower.left = None;
                    }
                } else if id.is_some() || !is_partial {
                    follower.left.get_or_insert(now);
                }
            }
        }
        self.look_for_missing(now);
        for seen in found {
            self.meet(seen, now);
        }
        self.bound();
    }

    /// Files that were not there may be back, also under names that nobody has asked for.
    fn look_for_missing(&mut self, now: Duration) {
        let is_missing = |f: &&Follower<_, _>| f.life == Life::Missing && !f.entry.done;
        let mut directories = BTreeMap::new();
        let mut inodes = BTreeSet::new();
        for follower in self.followers().filter(is_missing) {
            let path = &follower.entry.path;
            directories.insert(path.parent().map(Path::to_owned), path.clone());
            inodes.insert(follower.entry.id.inode);
        }
        for path in directories.values() {
            // What cannot be read is looked for again.
            let mut all = self.files.siblings(path).unwrap_or_default();
            all.retain(|seen| inodes.contains(&seen.id.inode));
            for seen in all {
                let is_one = {
                    let mut missing = self.followers().filter(is_missing);
                    missing.any(|follower| follower.may_be(&seen))
                };
                if is_one {
                    let _ = self.recall(&seen, now);
                }
            }
        }
    }

    /// Forgets what is over, of all paths, if that is more than may be followed: what was written to
    /// longest ago goes first.
    fn bound(&mut self) {
        let over = self.trails.iter().flat_map(Trail::over);
        let mut times: Vec<i128> = over.map(|follower| follower.entry.modified).collect();
        let surplus = times.len().saturating_sub(self.settings.files);
        if surplus > 0 {
            let (_, &mut last, _) = times.select_nth_unstable(surplus - 1);
            for trail in &mut self.trails {
                let goes = |f: &Follower<_, _>| f.is_over() && f.entry.modified <= last;
                trail.followers.retain(|follower| !goes(follower));
            }
        }
        self.trails.retain(|trail| !trail.followers.is_empty());
    }

    /// A file that is asked for.
    fn meet(&mut self, seen: Seen, now: Duration) {
        if seen.path.to_str().is_none() {
            if self.told.insert(seen.path.clone()) {
                self.events.push(format!(
                    "{} is not followed: its name is not UTF-8",
                    seen.path.display()
                ));
            }
            return;
        }
        match self.recall(&seen, now) {
            Ok(false) => {}
            Ok(true) => return,
            Err(e) => return self.cannot_read(&seen, &e),
        }
        match self.is_copy(&seen) {
            Ok(false) => {}
            Ok(true) => return,
            Err(e) => return self.cannot_read(&seen, &e),
        }
        if self.counts().files >= self.settings.files {
            if self.told.insert(PathBuf::new()) {
                self.events.push(format!(
                    "{} and further files are not followed: {} are (see --files)",
                    seen.path.display(),
                    self.settings.files
                ));
            }
            return;
        }
        let at = self.trail(&seen.path);
        if !self.trails[at].followers.is_empty() {
            let near = match self.files.siblings(&seen.path) {
                // What was before it is looked for again first.
                Err(e) => return self.cannot_read(&seen, &e),
                Ok(near) => near,
            };
            if let Err(e) = self.go_on_with_grown(at, &near, now) {
                return self.cannot_read(&seen, &e);
            }
            for missed in self.missed(at, near, &seen) {
                match self.recall(&missed, now) {
                    Ok(true) => {}
                    Ok(false) => self.follow(at, missed, now, true),
                    Err(e) => return self.cannot_read(&missed, &e),
                }
            }
        }
        self.follow(at, seen, now, false);
    }

    /// Files that had this path before, of which there is more than was shipped: that comes before what has
    /// the path now, also if they had left it and were thought to be over.
    fn go_on_with_grown(&mut self, trail: usize, near: &[Seen], now: Duration) -> io::Result<()> {
        for seen in near {
            let is_grown = |f: &Follower<_, _>| {
                f.entry.id == seen.id
                    && !f.is_truncated
                    && matches!(f.life, Life::Done | Life::Lingering(_) | Life::Missing)
                    && f.entry.acked < seen.len
            };
            let followers = &self.trails[trail].followers;
            let Some(at) = followers.iter().position(is_grown) else {
                continue;
            };
            let is_it = match followers[at].life {
                Life::Missing => followers[at].is_again(&self.files, seen)?,
                _ => true,
            };
            if is_it {
                self.come_back(trail, at, seen, now);
            }
        }
        Ok(())
    }

    /// Whether this file is one that is known; if that was over, or missing, it goes on.
    fn recall(&mut self, seen: &Seen, now: Duration) -> io::Result<bool> {
        // One whose device is another now is in no place that can be looked at any more.
        let known = self.place_of(|f| f.entry.id == seen.id);
        let known = known.or_else(|| self.place_of(|f| !f.is_here && f.may_be(seen)));
        let Some((trail, at)) = known else {
            return Ok(false);
        };
        let follower = &self.trails[trail].followers[at];
        let is_same = follower.entry.id == seen.id;
        let has_path = seen.path == self.trails[trail].path;
        let is_it = match follower.life {
            Life::Done if is_same => seen.len >= follower.entry.acked,
            // It had left its path, and is back.
            Life::Lingering(_) if is_same && has_path => true,
            Life::Active | Life::Lingering(_) | Life::Failed if is_same => return Ok(true),
            _ => follower.is_again(&self.files, seen)?,
        };
        if is_it {
            self.come_back(trail, at, seen, now);
        } else if is_same {
            // An inode that is used again, or a file that was emptied.
            self.trails[trail].followers.remove(at);
        }
        Ok(is_it)
    }

    /// The first file of which this holds: the number of its trail, and its place in that.
    fn place_of(
        &self,
        is_it: impl Fn(&Follower<F::File, N::Lane>) -> bool,
    ) -> Option<(usize, usize)> {
        let mut trails = self.trails.iter().enumerate();
        trails.find_map(|(trail, all)| {
            let mut followers = all.followers.iter();
            let at = followers.position(|f| !f.is_truncated && is_it(f));
            at.map(|at| (trail, at))
        })
    }

    fn come_back(&mut self, trail: usize, at: usize, seen: &Seen, now: Duration) {
        let trail = &mut self.trails[trail];
        let follower = &mut trail.followers[at];
        let has_path = seen.path == trail.path;
        let said = follower.come_back(seen, has_path, now, &mut self.counts);
        self.events.extend(said);
        if has_path && follower.life == Life::Active {
            trail.has_path(at, now);
        }
    }

    /// It is met again when names are looked for next.
    fn cannot_read(&mut self, seen: &Seen, error: &io::Error) {
        if self.told.insert(seen.path.clone()) {
            let path = seen.path.display();
            self.events.push(format!("cannot read {path}: {error}"));
        }
    }

    /// Whether a file that nobody knows is a copy that rotation makes before it truncates: called as
    /// a rotated one of a file that is followed, and with all that was read of that.
    fn is_copy(&self, seen: &Seen) -> io::Result<bool> {
        for trail in &self.trails {
            if !is_rotated(&seen.path, &trail.path) {
                continue;
            }
            let Some(last) = trail.followers.back() else {
                continue;
            };
            let is_followed = last.life == Life::Active && last.left.is_none();
            if !is_followed || last.is_truncated || seen.len == 0 {
                continue;
            }
            let file = self.files.open(&seen.path)?;
            if last.is_of(&self.files, &file)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Files that had the path after the last one that is known, and were rotated away before they
    /// were seen.
    fn missed(&self, at: usize, near: Vec<Seen>, now_there: &Seen) -> Vec<Seen> {
        let trail = &self.trails[at];
        let Some(last) = trail.followers.back() else {
            return Vec::new();
        };
        if last.is_truncated {
            return Vec::new();
        }
        let tracked = self.tracked();
        let target = self.files.target(&trail.path);
        let mut missed = near;
        let is_older = |seen: &Seen| match (seen.id.born, last.entry.id.born) {
            (Some(born), Some(last)) => born < last,
            _ => false,
        };
        missed.retain(|seen| {
            !is_older(seen)
                && (is_rotated(&seen.path, &trail.path) || is_rotated(&seen.path, &target))
                && seen.modified >= last.entry.modified
                && seen.id != now_there.id
                && !tracked.contains_key(&seen.id)
        });
        missed.sort_by_key(|seen| (seen.modified, seen.path.clone()));
        missed
    }

    fn follow(&mut self, at: usize, seen: Seen, now: Duration, has_left: bool) {
        let trail = &mut self.trails[at];
        for earlier in &mut trail.followers {
            earlier.left.get_or_insert(now);
        }
        let entry = Entry {
            producer: producer(&self.settings.producer, &trail.path, self.random.u64(..)),
            followed: trail.path.clone(),
            path: seen.path,
            id: seen.id,
            acked: 0,
            servers: BTreeMap::new(),
            head: Fingerprint::default(),
            tail: Fingerprint::default(),
            modified: seen.modified,
            done: false,
            gone: false,
        };
        let mut follower = Follower::new(entry, false, now);
        follower.left = has_left.then_some(now);
        follower.is_here = true;
        follower.len = seen.len;
        trail.followers.push_back(follower);
    }

    /// Writes the checkpoint; whether that was possible.
    pub fn save(&mut self, now: Duration) -> bool {
        let mut checkpoint = Checkpoint {
            server: Some(self.server().to_owned()),
            files: self.inert.clone(),
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
fn producer(prefix: &str, path: &Path, random: u64) -> String {
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
