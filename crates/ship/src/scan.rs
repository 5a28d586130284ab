//! Looking for files: which are there, which were rotated since, and what each of them is.
//!
//! Directories are listed first, then all files that have followers are looked at, and then what was listed is judged.
//! So whatever a file was made of is known when it is judged: a copy is there only after what it is a copy of was, and the
//! one before it was truncated.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::age::{numbered, put_in_order};
use crate::file_system::{FileId, FileSystem, Found, Seen, directory_of};
use crate::fingerprint::Fingerprint;
use crate::follower::{Follower, Life, Likeness, is_no_copy, read};
use crate::network::Network;
use crate::pattern::{Pattern, is_packed, originals};
use crate::settings::From;
use crate::shipper::Shipper;
use crate::state::{Entry, Surveyed};
use crate::store::Store;
use crate::trail::{Lists, Trail};
use crate::waiting::Waiting;

/// Bytes in which the beginning of a line is looked for at once, and at most.
const BACK: u64 = 64 << 10;
const LINE_MAX: u64 = 16 << 20;

/// The verdict on a file that no follower has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The file may be a copy that is being made, or is empty.
    Undecided,
    /// Known, or not to be read.
    Known,
    /// A file of its own.
    New,
}

/// The state of a scan.
#[derive(Default)]
struct Scan {
    /// What is in the directories that could be listed, in the order of age.
    lists: Rc<Lists>,
    /// Directories with files that could not be judged.
    unsure: BTreeSet<PathBuf>,
    /// Files that may yet become other files.
    undecided: Vec<Seen>,
    /// The trails of paths. Bytes are compared, which takes a tenth of what comparing paths by their parts does.
    paths: BTreeMap<OsString, usize>,
    /// By what a path may have been called before a rotation, the trails of such paths: a pattern may name rotated files too.
    families: BTreeMap<OsString, Vec<usize>>,
    /// The trails of what paths lead to.
    targets: BTreeMap<OsString, usize>,
    /// The trails with files of an inode.
    inodes: BTreeMap<u64, BTreeSet<usize>>,
    /// Trails whose path has had files of which nothing is known.
    unsettled: BTreeSet<usize>,
    /// Trails that have got a file which had left their path before it was seen there.
    rotated: BTreeSet<usize>,
    /// Files followed.
    files: usize,
    /// Files that are open, or are to be.
    open: usize,
    /// Files that were last written too long ago.
    ignored: BTreeSet<FileId>,
}

impl Scan {
    /// `has_packed`: there are compressed files, which alone are asked about by what they may have been called.
    fn settle<F, L>(&mut self, trails: &[Trail<F, L>], has_packed: bool)
    where
        L: crate::network::Lane,
    {
        for (at, trail) in trails.iter().enumerate() {
            self.paths.insert(trail.path.clone().into(), at);
            let names = has_packed.then(|| originals(&trail.path));
            for name in names.into_iter().flatten() {
                let original = directory_of(&trail.path).join(name);
                self.families.entry(original.into()).or_default().push(at);
            }
            for follower in &trail.followers {
                let inode = follower.entry.id.inode;
                self.inodes.entry(inode).or_default().insert(at);
                self.files += usize::from(follower.life == Life::Active);
                self.open += usize::from(follower.needs_room());
            }
        }
    }
}

impl<F: FileSystem, N: Network, S: Store> Shipper<F, N, S> {
    /// Looks for files.
    pub(crate) fn scan(&mut self, now: Duration) {
        let (found, is_partial, will_pass) = self.named();
        // What has a beginning by now is checked by this scan.
        for follower in self
            .trails
            .iter_mut()
            .flat_map(|trail| &mut trail.followers)
        {
            follower.had_head = follower.has_head();
        }
        let mut scan = Scan::default();
        self.list(&found, &mut scan);
        if will_pass {
            // A file that was not met now must be new next time.
            scan.unsure.extend(scan.lists.keys().cloned());
        }
        self.look(now, false);
        self.track();
        let has_packed = found.iter().any(|seen| is_packed(&seen.path));
        scan.settle(&self.trails, has_packed);
        for (at, trail) in self.trails.iter().enumerate() {
            let target = self.files.target(&trail.path);
            if target != trail.path {
                scan.targets.insert(target.into(), at);
            }
        }
        self.note_who_left(&found, &scan, is_partial, now);
        let unsettled = self.trails.iter().enumerate();
        let unsettled = unsettled.filter(|(_, trail)| trail.is_unsettled());
        scan.unsettled = unsettled.map(|(at, _)| at).collect();
        self.look_for_missing(&mut scan, now);
        self.judge_unnamed(&found, &mut scan, now);
        let before = std::mem::take(&mut self.undecided);
        for seen in &found {
            self.meet(seen, &before, &mut scan, now);
        }
        self.settle_blanks(&scan, now);
        for follower in self
            .trails
            .iter_mut()
            .flat_map(|trail| &mut trail.followers)
        {
            let directory = directory_of(&follower.entry.path);
            follower.is_checked |= follower.had_head && !scan.unsure.contains(directory);
        }
        self.note_unmatched(&found);
        self.emptied.are_new = false;
        if scan.unsure.is_empty() {
            self.emptied.files.clear();
        }
        self.survey(scan);
        self.bound();
        self.look(now, true);
    }

    /// The files that are named, whether there may be more that could not be seen, and whether they may be seen next time.
    fn named(&mut self) -> (Vec<Seen>, bool, bool) {
        let mut found: Vec<Seen> = Vec::new();
        let mut hidden = BTreeSet::new();
        let mut will_pass = false;
        for pattern in &self.patterns {
            let (named, unseen) = match self.files.find(pattern) {
                Ok(Found { files, hidden }) => (files, hidden),
                Err(e) => (Vec::new(), vec![(PathBuf::from(pattern.to_string()), e)]),
            };
            found.extend(named);
            for (path, e) in unseen {
                will_pass |= e.kind() != io::ErrorKind::PermissionDenied;
                if self.told.insert(path.clone()) {
                    let what = path.display();
                    self.events
                        .push(format!("cannot look for files in {what}: {e}"));
                }
                hidden.insert(path);
            }
        }
        found.retain(|seen| !self.exclude.iter().any(|pattern| pattern.names(&seen.path)));
        found.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
        found.dedup_by(|one, other| one.path == other.path);
        let is_partial = !hidden.is_empty();
        self.counts.left_out = hidden.len() as u64;
        self.counts.ignored = 0;
        self.crowded_out = 0;
        (found, is_partial, will_pass)
    }

    /// Lists all directories in which files are followed or waited for.
    fn list(&mut self, found: &[Seen], scan: &mut Scan) {
        let mut directories = BTreeSet::new();
        let mut add = |path: &Path| {
            let directory = directory_of(path);
            if !directories.contains(directory) {
                directories.insert(directory.to_owned());
            }
        };
        for trail in &self.trails {
            add(&trail.path);
            add(&self.files.target(&trail.path));
        }
        found.iter().for_each(|seen| add(&seen.path));
        for pattern in &self.patterns {
            if let Pattern::File(path) = pattern {
                add(path);
            }
        }
        // What changes from here on is seen, or told.
        self.events.extend(self.files.watch(&directories));
        let mut lists = BTreeMap::new();
        for directory in directories {
            match self.files.list(&directory) {
                Ok(mut all) => {
                    put_in_order(&mut all);
                    lists.insert(directory, all);
                }
                // Files in it can be read by their names all the same.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                Err(_) => {
                    scan.unsure.insert(directory);
                }
            }
        }
        scan.lists = Rc::new(lists);
    }

    /// Whether a file that no follower has was last written too long ago.
    fn is_too_old(&self, seen: &Seen) -> bool {
        let oldest = self.settings.ignore_older.map(|age| age.as_nanos() as i128);
        oldest.is_some_and(|age| self.files.wall() - seen.modified > age)
    }

    /// Where a file that is met begins.
    fn start_of(&self, seen: &Seen) -> io::Result<u64> {
        let is_there_at_first =
            !self.has_scanned && !self.surveyed.contains_key(directory_of(&seen.path));
        match self.settings.from {
            From::Behind { file, offset } if seen.id == file && !self.has_scanned => {
                return Ok(offset);
            }
            From::End if is_there_at_first => {}
            From::Start | From::End | From::Behind { .. } => return Ok(0),
        }
        let file = self.files.open(&seen.path)?;
        let len = self.files.stat(&file)?.len;
        let mut at = len;
        // A line that has no end as yet is shipped, from its beginning.
        while at > 0 && len - at < LINE_MAX {
            let from = at.saturating_sub(BACK);
            let bytes = read(&self.files, &file, from, (at - from) as usize)?;
            if let Some(feed) = memchr::memrchr(b'\n', &bytes) {
                return Ok(from + feed as u64 + 1);
            }
            at = from;
        }
        Ok(if at == 0 { 0 } else { len })
    }

    /// Which files followers have.
    fn track(&mut self) {
        let followers = self.trails.iter().flat_map(|trail| &trail.followers);
        let with_files = followers.filter(|follower| follower.has_file());
        self.tracked = with_files.map(|follower| follower.entry.id).collect();
    }

    /// Notes followers whose path names another file now, or none.
    fn note_who_left(&mut self, found: &[Seen], scan: &Scan, is_partial: bool, now: Duration) {
        // What could not be found by its name may stand in a list; and what was listed was seen later.
        let listed = scan.lists.values().flatten();
        let here: BTreeMap<&OsStr, FileId> = found
            .iter()
            .chain(listed)
            .map(|seen| (seen.path.as_os_str(), seen.id))
            .collect();
        let ids: BTreeSet<FileId> = found.iter().map(|seen| seen.id).collect();
        for trail in &mut self.trails {
            let id = here.get(trail.path.as_os_str());
            for follower in &mut trail.followers {
                let path = &follower.entry.path;
                let original = numbered(path).map(|(name, _)| directory_of(path).join(name));
                let original = original.and_then(|original| here.get(original.as_os_str()));
                follower.is_numbered = original.is_some_and(|other| *other != follower.entry.id);
                let is_found = ids.contains(&follower.entry.id);
                follower.is_here = is_found || (is_partial && follower.is_here);
                if id == Some(&follower.entry.id) && follower.has_file() {
                    if follower.life == Life::Active {
                        follower.left = None;
                    }
                } else if id.is_some() || !is_partial {
                    follower.left.get_or_insert(now);
                }
            }
        }
    }

    /// Files of which nothing was seen, and which are nowhere: such a one may have been written, rotated and compressed since, and is shipped
    /// as a new file then.
    fn settle_blanks(&mut self, scan: &Scan, now: Duration) {
        for (at, trail) in self.trails.iter_mut().enumerate() {
            if scan.rotated.contains(&at) {
                trail.followers.retain(|follower| follower.blank.is_none());
            }
            for follower in &mut trail.followers {
                let Some(since) = follower.blank else {
                    continue;
                };
                let directory = directory_of(&follower.entry.path);
                let mut undecided = scan.undecided.iter();
                let may_come = scan.unsure.contains(directory)
                    || undecided.any(|seen| directory_of(&seen.path) == directory);
                if !may_come || now.saturating_sub(since) >= self.settings.rotate_wait {
                    let told = follower.is_lost(&mut self.counts);
                    self.events.push(told);
                }
            }
        }
    }

    /// Files that were not there may be back, also under names that no pattern asks for.
    fn look_for_missing(&mut self, scan: &mut Scan, now: Duration) {
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
                    let _ = self.recall(&seen, scan, now);
                }
            }
        }
    }

    /// Files that are named like rotated ones, and that no pattern asks for: some had a path that
    /// is followed, and left it before they were seen there.
    fn judge_unnamed(&mut self, found: &[Seen], scan: &mut Scan, now: Duration) {
        let named: BTreeSet<&OsStr> = found.iter().map(|seen| seen.path.as_os_str()).collect();
        let lists = Rc::clone(&scan.lists);
        for (directory, all) in &*lists {
            for seen in all {
                let is_known =
                    self.tracked.contains(&seen.id) || named.contains(seen.path.as_os_str());
                if is_known || seen.path.to_str().is_none() {
                    continue;
                }
                if let Err(e) = self.judge_one(seen, scan, now) {
                    scan.unsure.insert(directory.clone());
                    self.cannot_read(seen, &e);
                }
            }
        }
    }

    fn judge_one(&mut self, seen: &Seen, scan: &mut Scan, now: Duration) -> io::Result<()> {
        if self.recall(seen, scan, now)? {
            // The file's device has another number, as after its file system was mounted anew.
            return Ok(());
        }
        let (trails, wanted) = self.originals(seen, scan);
        let last = trails
            .iter()
            .find_map(|&at| self.trails[at].followers.back());
        let emptied = self.emptied.files.get(&seen.id);
        let emptied = emptied.and_then(|followed| scan.paths.get(followed.as_os_str()).copied());
        let is_newer = match (self.surveyed.get(directory_of(&seen.path)), last) {
            _ if emptied.is_some() => true,
            (Some(surveyed), _) => surveyed.is_newer(seen),
            (None, Some(last)) => Surveyed::as_of(&last.entry).is_newer(seen),
            (None, None) => false,
        };
        if !is_newer || (trails.is_empty() && wanted.is_none()) {
            return Ok(());
        }
        if self.is_too_old(seen) {
            return Ok(());
        }
        match self.judge(&trails, seen, now)? {
            Verdict::Undecided => scan.undecided.push(seen.clone()),
            Verdict::Known => {}
            Verdict::New => {
                let mut unsettled = trails.iter().filter(|at| scan.unsettled.contains(at));
                let at = match (emptied.or(unsettled.next().copied()), wanted) {
                    (Some(at), _) => at,
                    (None, Some(path)) if trails.is_empty() => self.trail(&path, scan),
                    _ => return Ok(()),
                };
                self.follow(at, seen.clone(), scan, now, true);
            }
        }
        Ok(())
    }

    /// The trails of the paths that a file may have had before it was rotated; and if there is none, such a path that is
    /// asked for.
    fn originals(&self, seen: &Seen, scan: &Scan) -> (Vec<usize>, Option<PathBuf>) {
        let directory = directory_of(&seen.path);
        let paths = || originals(&seen.path).map(|name| directory.join(name));
        let known = |path: PathBuf| {
            let path = path.as_os_str();
            let at = scan.paths.get(path).or_else(|| scan.targets.get(path));
            at.copied()
        };
        let trails: Vec<usize> = paths().filter_map(known).collect();
        let wanted = match trails.is_empty() {
            true => paths().find(|path| self.is_wanted(path)),
            false => None,
        };
        (trails, wanted)
    }

    /// These trails, and for a compressed file the trails of files that had its path, or another
    /// rotated one, before it was compressed.
    fn relatives(&self, seen: &Seen, trails: &[usize], scan: &Scan) -> Vec<usize> {
        let mut all = trails.to_vec();
        if is_packed(&seen.path) {
            let directory = directory_of(&seen.path);
            for name in originals(&seen.path) {
                let family = scan.families.get(directory.join(name).as_os_str());
                all.extend(family.into_iter().flatten());
            }
            all.sort_unstable();
            all.dedup();
        }
        all
    }

    /// What a file that no follower has is to the followers of these paths.
    fn judge(&mut self, trails: &[usize], seen: &Seen, now: Duration) -> io::Result<Verdict> {
        let file = match self.files.open(&seen.path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(Verdict::Known),
            Err(e) if is_no_copy(&e, seen) => return Ok(Verdict::Undecided),
            file => file?,
        };
        let opened = self.files.stat(&file)?;
        if opened.id != seen.id || opened.len == 0 {
            return Ok(Verdict::Undecided);
        }
        for &trail in trails {
            for at in (0..self.trails[trail].followers.len()).rev() {
                let follower = &self.trails[trail].followers[at];
                match follower.likeness(&self.files, (&file, opened.len))? {
                    Likeness::None => {}
                    Likeness::Prefix => return Ok(Verdict::Undecided),
                    Likeness::Same => return Ok(Verdict::Known),
                    Likeness::Rest => {
                        self.goes_on_with(trail, at, seen, now);
                        return Ok(Verdict::Known);
                    }
                }
            }
        }
        Ok(Verdict::New)
    }

    /// A follower whose file has gone has found it under another name, with more in it.
    fn goes_on_with(&mut self, trail: usize, at: usize, seen: &Seen, now: Duration) {
        if let Some(mut follower) = self.trails[trail].followers.remove(at) {
            follower.goes_on_with(seen, &mut self.around(now, 0));
            self.trails[trail].followers.insert(at, follower);
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
    fn meet(
        &mut self,
        seen: &Seen,
        before: &BTreeMap<FileId, Waiting>,
        scan: &mut Scan,
        now: Duration,
    ) {
        if seen.path.to_str().is_none() {
            self.leave_out(seen, "its name is not UTF-8");
            return;
        }
        if let Err(e) = self.meet_one(seen, before, scan, now) {
            scan.unsure.insert(directory_of(&seen.path).to_owned());
            self.counts.left_out += 1;
            self.cannot_read(seen, &e);
        }
    }

    fn meet_one(
        &mut self,
        seen: &Seen,
        before: &BTreeMap<FileId, Waiting>,
        scan: &mut Scan,
        now: Duration,
    ) -> io::Result<()> {
        if self.recall(seen, scan, now)? || self.take_up(seen, scan, now)? {
            return Ok(());
        }
        if self.is_too_old(seen) {
            self.counts.ignored += 1;
            scan.ignored.insert(seen.id);
            return Ok(());
        }
        let (trails, _) = self.originals(seen, scan);
        let mut missed = None;
        let relatives = self.relatives(seen, &trails, scan);
        if !relatives.is_empty() {
            let mut unsettled = trails.iter().filter(|at| scan.unsettled.contains(at));
            match self.judge(&relatives, seen, now)? {
                Verdict::Known => return Ok(()),
                Verdict::New => missed = unsettled.next().copied(),
                Verdict::Undecided => {
                    let waiting = match before.get(&seen.id) {
                        Some(waiting)
                            if (waiting.len, waiting.modified) == (seen.len, seen.modified) =>
                        {
                            *waiting
                        }
                        _ => Waiting {
                            len: seen.len,
                            modified: seen.modified,
                            since: now,
                        },
                    };
                    let is_over = now.saturating_sub(waiting.since) >= self.settings.rotate_wait;
                    if !is_over {
                        self.undecided.insert(seen.id, waiting);
                        scan.undecided.push(seen.clone());
                        return Ok(());
                    }
                    // What it repeats stands as it was: it is a file of its own.
                }
            }
        }
        if is_packed(&seen.path)
            && let Err(e) = self.files.open(&seen.path)
        {
            return match is_no_copy(&e, seen) {
                true => {
                    scan.undecided.push(seen.clone());
                    self.leave_out(seen, &format!("it cannot be unpacked, or not yet: {e}"));
                    Ok(())
                }
                false => Err(e),
            };
        }
        if scan.files >= self.settings.files {
            self.counts.left_out += 1;
            if self.told.insert(PathBuf::new()) {
                self.events.push(format!(
                    "{} and further files are not followed: {} are (see --files)",
                    seen.path.display(),
                    self.settings.files
                ));
            }
            return Ok(());
        }
        if scan.open >= self.settings.open.max(1) {
            self.counts.left_out += 1;
            self.crowded_out += 1;
            self.wait_for_room(&seen.path);
            return Ok(());
        }
        if let Some(at) = missed {
            self.follow(at, seen.clone(), scan, now, true);
            return Ok(());
        }
        let start = self.start_of(seen)?;
        let at = self.trail(&seen.path, scan);
        if !self.trails[at].followers.is_empty() {
            self.go_on_with_grown(at, scan, now)?;
            scan.unsettled.insert(at);
        }
        self.follow(at, seen.clone(), scan, now, false);
        if start > 0
            && let Some(follower) = self.trails[at].followers.back_mut()
        {
            follower.entry.acked = start;
        }
        Ok(())
    }

    /// Files that had this path before, of which there is more than was shipped: that comes before what has
    /// the path now, also if they had left it and were thought to be over.
    fn go_on_with_grown(&mut self, trail: usize, scan: &Scan, now: Duration) -> io::Result<()> {
        let near: BTreeMap<FileId, &Seen> = scan
            .lists
            .values()
            .flatten()
            .map(|seen| (seen.id, seen))
            .collect();
        let mut at = 0;
        while let Some(follower) = self.trails[trail].followers.get(at) {
            at += 1;
            let Some(seen) = near.get(&follower.entry.id) else {
                continue;
            };
            let is_grown = follower.has_file()
                && matches!(
                    follower.life,
                    Life::Done | Life::Lingering(_) | Life::Missing
                )
                && follower.entry.acked < seen.len
                && !is_packed(&seen.path);
            let is_it = is_grown
                && match follower.life {
                    Life::Missing => follower.is_again(&self.files, seen)?,
                    _ => true,
                };
            if is_it {
                self.come_back(trail, at - 1, seen, now);
            }
        }
        Ok(())
    }

    /// Whether this file is one that is known; if that was over, or missing, it goes on.
    fn recall(&mut self, seen: &Seen, scan: &mut Scan, now: Duration) -> io::Result<bool> {
        // A file whose device is another now is in no place that can be looked at any more.
        let known = self.place_of(seen, scan, |f| f.entry.id == seen.id);
        let known = known.or_else(|| self.place_of(seen, scan, |f| !f.is_here && f.may_be(seen)));
        let Some((trail, at)) = known else {
            return Ok(false);
        };
        let follower = &self.trails[trail].followers[at];
        let is_same = follower.entry.id == seen.id;
        let has_path = seen.path == self.trails[trail].path;
        let is_it = match follower.life {
            Life::Done if is_same => seen.len >= follower.entry.acked || is_packed(&seen.path),
            // The file had left its path, and is back.
            Life::Lingering(_) if is_same && has_path => true,
            Life::Active if is_same && has_path => {
                // What had the path meanwhile comes before it.
                self.trails[trail].has_path_again(at, now);
                return Ok(true);
            }
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

    /// Whether this file was followed under a path that is not asked for any more: it goes on under this one.
    fn take_up(&mut self, seen: &Seen, scan: &mut Scan, now: Duration) -> io::Result<bool> {
        let has_room = scan.files < self.settings.files && scan.open < self.settings.open.max(1);
        if !has_room {
            return Ok(false);
        }
        let Some(follower) = self.inert.take_up(&self.files, seen, now)? else {
            return Ok(false);
        };
        let at = self.trail(&seen.path, scan);
        scan.inodes.entry(seen.id.inode).or_default().insert(at);
        scan.files += 1;
        scan.open += 1;
        self.tracked.insert(seen.id);
        let trail = &mut self.trails[at];
        trail.followers.push_back(follower);
        trail.has_path(trail.followers.len() - 1, now);
        self.dirty = true;
        Ok(true)
    }

    /// The first file of which this holds: the number of its trail, and its place in that.
    fn place_of(
        &self,
        seen: &Seen,
        scan: &Scan,
        is_it: impl Fn(&Follower<F::File, N::Lane>) -> bool,
    ) -> Option<(usize, usize)> {
        let mut trails = scan.inodes.get(&seen.id.inode)?.iter();
        trails.find_map(|&trail| {
            let mut followers = self.trails[trail].followers.iter();
            let at = followers.position(|f| f.has_file() && is_it(f));
            at.map(|at| (trail, at))
        })
    }

    fn come_back(&mut self, trail: usize, at: usize, seen: &Seen, now: Duration) {
        let trail = &mut self.trails[trail];
        let follower = &mut trail.followers[at];
        let has_path = seen.path == trail.path;
        let said = follower.come_back(seen, has_path, now, &mut self.counts);
        self.events.extend(said);
        self.tracked.insert(seen.id);
        if has_path && follower.life == Life::Active {
            trail.has_path(at, now);
        }
    }

    /// Notes that a file cannot be read; the next look for names meets it again.
    fn cannot_read(&mut self, seen: &Seen, error: &io::Error) {
        if self.told.insert(seen.path.clone()) {
            let path = seen.path.display();
            self.events.push(format!("cannot read {path}: {error}"));
        }
    }

    /// A named file that cannot be followed.
    fn leave_out(&mut self, seen: &Seen, why: &str) {
        self.counts.left_out += 1;
        if self.told.insert(seen.path.clone()) {
            let path = seen.path.display();
            self.events.push(format!("{path} is not followed: {why}"));
        }
    }

    /// The number of the trail of this path, which is made if there is none.
    fn trail(&mut self, path: &Path, scan: &mut Scan) -> usize {
        *scan.paths.entry(path.into()).or_insert_with(|| {
            self.trails.push(Trail::new(path.to_owned()));
            self.trails.len() - 1
        })
    }

    fn follow(&mut self, at: usize, seen: Seen, scan: &mut Scan, now: Duration, has_left: bool) {
        let path = self.trails[at].path.clone();
        let producer = self.name(&path);
        scan.inodes.entry(seen.id.inode).or_default().insert(at);
        scan.files += 1;
        scan.open += 1;
        self.tracked.insert(seen.id);
        let trail = &mut self.trails[at];
        let entry = Entry {
            producer,
            followed: path,
            path: seen.path,
            id: seen.id,
            acked: 0,
            servers: BTreeMap::new(),
            head: Fingerprint::default(),
            tail: Fingerprint::default(),
            modified: seen.modified,
            done: false,
            gone: false,
            unsure: false,
        };
        let mut follower = Follower::new(entry, false, now);
        follower.left = has_left.then_some(now);
        follower.is_here = true;
        // The length of a compressed file is known when it is opened.
        follower.len = 0;
        if has_left {
            scan.rotated.insert(at);
            trail.insert(follower, &scan.lists);
            return;
        }
        for earlier in &mut trail.followers {
            earlier.left.get_or_insert(now);
        }
        trail.followers.push_back(follower);
    }

    fn note_unmatched(&mut self, found: &[Seen]) {
        let mut unmatched: Vec<usize> = (0..self.patterns.len()).collect();
        unmatched.retain(|&at| {
            let pattern = &self.patterns[at];
            let known = self.trails.iter().map(|trail| &trail.path);
            let known = known.chain(self.inert.entries().map(|entry| &entry.followed));
            let mut all = known.chain(found.iter().map(|seen| &seen.path));
            !all.any(|path| pattern.names(path))
        });
        self.unmatched = unmatched;
    }

    /// Saves the time up to which the directories are known.
    fn survey(&mut self, scan: Scan) {
        for (directory, all) in &*scan.lists {
            if scan.unsure.contains(directory) {
                continue;
            }
            let is_first = !self.surveyed.contains_key(directory);
            // An empty one may be the place of a file system that is not mounted.
            if is_first || !all.is_empty() {
                // What came after names were looked for must be new if it is rotated before the next look.
                let is_unmet = |seen: &Seen| {
                    let is_met = self.tracked.contains(&seen.id) || scan.ignored.contains(&seen.id);
                    !is_met && self.is_wanted(&seen.path)
                };
                // A file that was undecided may have grown or been renamed since.
                let is_undecided =
                    |seen: &Seen| scan.undecided.iter().any(|other| other.id == seen.id);
                let undecided: Vec<Seen> = all
                    .iter()
                    .filter(|seen| is_unmet(seen) || is_undecided(seen))
                    .cloned()
                    .collect();
                self.surveyed
                    .insert(directory.clone(), Surveyed::of(all, &undecided));
            }
        }
    }
}
