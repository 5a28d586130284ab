//! One file on its way to a server.

mod copy;
mod hole;
mod lane;
mod likeness;
mod missing;
mod passing;
mod place;
mod reading;
mod room;
mod stumble;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use crate::buffer::{Buffer, Cutting, Filled};
use crate::counts::{Counts, Fatal};
use crate::file_system::{FileId, FileSystem};
use crate::fingerprint::{Fingerprint, HEAD};
use crate::lag::Lag;
use crate::line::Line;
use crate::network::{Lane, Network};
use crate::pattern::is_packed;
use crate::settings::Settings;
use crate::state::Entry;
use hole::Holes;
pub(crate) use likeness::{Likeness, is_no_copy};
pub(crate) use reading::read;
use trouble::Trouble;

/// Chunks that are read in one step, so that every file has its turn.
const CHUNKS: usize = 16;
/// How long a lane without work stays open.
const IDLE: Duration = Duration::from_secs(60);
/// How long a lane is kept while other files wait for one.
const TURN: Duration = Duration::from_secs(2);

/// Where a file stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// The file is shipped, and what comes after it waits.
    Active,
    /// The file was rotated away and has been shipped; what is still written to it is shipped too.
    Lingering(Duration),
    /// The file is not looked at any more.
    Done,
    /// The file was not there at the last look; it may come back.
    Missing,
    /// The file cannot be shipped.
    Failed,
}

/// Files that were truncated, and have other contents now, which their followers leave to others. Such a file may have been renamed since, when no
/// pattern names it and its birth does not tell that what it has is new.
#[derive(Debug, Default)]
pub(crate) struct Emptied {
    /// The paths that were followed to them.
    pub(crate) files: BTreeMap<FileId, PathBuf>,
    /// Some have come since names were looked for last. The checkpoint must not forget them before they have been looked for.
    pub(crate) are_new: bool,
}

impl Emptied {
    pub(crate) fn note(&mut self, id: FileId, followed: PathBuf) {
        self.files.insert(id, followed);
        self.are_new = true;
    }
}

/// The parts of the shipper that a step needs.
pub(crate) struct Around<'a, F: FileSystem, N: Network> {
    pub(crate) files: &'a F,
    pub(crate) network: &'a mut N,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Duration,
    pub(crate) line: &'a mut Line,
    pub(crate) counts: &'a mut Counts,
    pub(crate) events: &'a mut Vec<String>,
    /// Lanes that may be opened.
    pub(crate) free: usize,
    /// Files that wait for a lane, as of the last step.
    pub(crate) waiting: usize,
    /// Files that followers have: no copies.
    pub(crate) tracked: &'a mut BTreeSet<FileId>,
    /// Files that were truncated.
    pub(crate) emptied: &'a mut Emptied,
    /// Whether the shipper stops: no new work is begun.
    pub(crate) stopping: bool,
    /// Names are to be looked for at once: a file was truncated and what it has now has no follower, or a file has got
    /// its beginning.
    pub(crate) must_scan: bool,
    /// A server has less than it had acknowledged.
    pub(crate) was_set_back: bool,
    /// A lane has broken, so that the server may be another one now.
    pub(crate) has_broken: bool,
    /// The stream for which the checkpoint is that was begun with, if that is another one.
    pub(crate) other_stream: Option<&'a str>,
    /// By server, the producers of which something was acknowledged last.
    pub(crate) last: &'a mut BTreeMap<String, Vec<String>>,
}

/// A lane in use.
struct Slot<L> {
    lane: L,
    server: usize,
    opened: bool,
    /// Since when the server has not been heard on it, or has refused.
    unheard: Option<Duration>,
    since: Duration,
    busy_at: Duration,
}

pub(crate) struct Follower<F, L> {
    pub(crate) entry: Entry,
    pub(crate) life: Life,
    /// What the entry says is in the checkpoint; before that nothing is sent.
    pub(crate) is_saved: bool,
    /// Bytes of the beginning that are in the checkpoint. Of a file that is no longer than what is
    /// remembered of its beginning, nothing else is sent: else another content in its place could
    /// be taken for it.
    saved_head: usize,
    /// Since when its path names another file or none.
    pub(crate) left: Option<Duration>,
    /// Whether the file was truncated: only the bytes in memory count.
    pub(crate) is_truncated: bool,
    /// A pattern names it, as of the last scan.
    pub(crate) is_here: bool,
    /// The file has a rotated name, with a number, of a file that is there: the writer has gone on
    /// to that one.
    pub(crate) is_numbered: bool,
    pub(crate) len: u64,
    pub(crate) file: Option<F>,
    /// The file is not opened before another one is closed: as many as may be are open.
    pub(crate) lacks_room: bool,
    /// The file's last name has gone: the disk keeps it for this process alone.
    pub(crate) is_removed: bool,
    /// When the search began for a copy of the truncated file that has the rest of it; `None` without a search.
    seeking: Option<Duration>,
    /// The last bytes that were seen of it, and where they stand, while the buffer is not placed.
    seen_end: (u64, Vec<u8>),
    /// Rotated files that came before it were looked for after its beginning was seen; before that nothing is sent.
    pub(crate) is_checked: bool,
    /// The file's beginning was seen before names were looked for last.
    pub(crate) had_head: bool,
    /// The server in use has said, since this process began or since a server was set back, how far it has the file.
    pub(crate) is_verified: bool,
    holes: Holes,
    buffer: Buffer,
    /// The buffer stands where it should.
    is_placed: bool,
    /// How the file begins, as far as it was read.
    head: Vec<u8>,
    slot: Option<Slot<L>>,
    /// What was offered on this lane and is not settled: ids of the last of each offer, and messages.
    offered: VecDeque<(u64, usize)>,
    grew: Duration,
    waits: bool,
    /// Why the file cannot be read at present.
    trouble: Option<Trouble>,
    /// The server does not take its producer at present.
    crowded: Option<Trouble>,
    /// Since when its file, of which not a byte was seen, is nowhere: it may be a rotated file that is taken for new, and then it is no loss.
    pub(crate) blank: Option<Duration>,
    /// Whether the missing file was counted as a loss.
    is_loss: bool,
    lag: Lag,
}

impl<F, L> std::fmt::Debug for Follower<F, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower")
            .field("followed", &self.entry.followed)
            .field("path", &self.entry.path)
            .field("inode", &self.entry.id.inode)
            .field("acked", &self.entry.acked)
            .field("len", &self.len)
            .field("life", &self.life)
            .field("left", &self.left)
            .field("is_saved", &self.is_saved)
            .field("is_checked", &self.is_checked)
            .field("is_verified", &self.is_verified)
            .field("is_truncated", &self.is_truncated)
            .field("seeking", &self.seeking)
            .field("is_open", &self.file.is_some())
            .field("lacks_room", &self.lacks_room)
            .field("has_lane", &self.slot.is_some())
            .field("waits", &self.waits)
            .field("trouble", &self.trouble)
            .finish_non_exhaustive()
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driven {
    /// More is to be done at once.
    pub(crate) busy: bool,
    /// Whether the entry changed and should be saved.
    pub(crate) dirty: bool,
}

impl<F, L: Lane> Follower<F, L> {
    pub(crate) fn new(entry: Entry, is_saved: bool, now: Duration) -> Follower<F, L> {
        Follower {
            life: match (entry.gone, entry.done && !entry.unsure) {
                (true, _) => Life::Missing,
                (false, true) => Life::Lingering(now),
                (false, false) => Life::Active,
            },
            is_saved,
            saved_head: entry.head.len,
            left: entry.done.then_some(now),
            is_truncated: false,
            is_here: false,
            is_numbered: false,
            len: entry.acked,
            file: None,
            lacks_room: false,
            is_removed: false,
            seeking: None,
            seen_end: (0, Vec::new()),
            is_checked: entry.acked > 0,
            had_head: false,
            is_verified: !entry.unsure,
            holes: Holes::default(),
            buffer: Buffer::default(),
            is_placed: false,
            head: Vec::new(),
            slot: None,
            offered: VecDeque::new(),
            grew: now,
            waits: false,
            trouble: None,
            crowded: None,
            blank: None,
            is_loss: false,
            lag: Lag::default(),
            entry,
        }
    }

    /// Whether it need only be remembered.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.life, Life::Done | Life::Missing) && !self.is_here
    }

    pub(crate) fn has_lane(&self) -> bool {
        self.slot.is_some()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waits
    }

    /// Whether everything that was offered is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.offered.is_empty()
    }

    /// Whether all that there is at present was shipped, but for a line without an end.
    pub(crate) fn is_caught_up(&self, settings: &Settings) -> bool {
        let read = if self.is_placed {
            self.buffer.end() >= self.readable()
        } else {
            self.file.is_some() && self.entry.acked >= self.readable()
        };
        let has_end = self.is_numbered || settings.partial_after.is_some();
        let is_late = self.unterminated() == 0 || !has_end;
        if self.blank.is_some() {
            return false;
        }
        self.life != Life::Active
            // What counts as failed, or as left out, is not waited for.
            || self.is_in_trouble()
            || self.lacks_room
            || (read
                && self.seeking.is_none()
                && self.is_verified
                && is_late
                && !self.buffer.has_messages()
                && self.is_settled()
                && !self.buffer.has_lines())
    }

    /// Bytes of a last line without an end.
    pub(crate) fn unterminated(&self) -> u64 {
        match self.is_placed && self.life == Life::Active {
            true => self.buffer.end().saturating_sub(self.buffer.next()),
            false => 0,
        }
    }

    /// Bytes that are not known to be with a server.
    pub(crate) fn behind(&self) -> u64 {
        match self.life {
            Life::Active | Life::Lingering(_) => self.readable().saturating_sub(self.entry.acked),
            Life::Done | Life::Missing | Life::Failed => 0,
        }
    }

    /// For how long the first byte that no server is known to have has been there.
    pub(crate) fn lag(&self, now: Duration) -> Duration {
        match self.behind() {
            0 => Duration::ZERO,
            _ => self.lag.of(now, self.entry.acked),
        }
    }

    /// What becomes of it, in a word.
    pub(crate) fn state(&self) -> &'static str {
        match self.life {
            _ if self.is_in_trouble() => "failing",
            _ if self.lacks_room => "waiting",
            Life::Active if self.left.is_some() => "rotated",
            Life::Active => "followed",
            Life::Lingering(_) => "lingering",
            Life::Done => "done",
            Life::Missing => "missing",
            Life::Failed => "failed",
        }
    }

    /// Whether it has the file of its id: one whose content has gone has no file.
    pub(crate) fn has_file(&self) -> bool {
        !self.is_truncated && self.seeking.is_none()
    }

    /// Whether the beginning of the file is known.
    pub(crate) fn has_head(&self) -> bool {
        !self.head.is_empty() || self.entry.head.len > 0
    }

    /// Whether it waits for the file system or the network only: else nothing happens before the next look.
    pub(crate) fn is_hot(&self) -> bool {
        self.slot.is_some() || self.buffer.has_messages()
    }

    fn end(&self) -> u64 {
        match self.is_placed {
            true => self.buffer.end(),
            false => self.entry.acked,
        }
    }

    /// Goes on as far as it can.
    pub(crate) fn drive<S, N>(&mut self, around: &mut Around<'_, S, N>) -> Result<Driven, Fatal>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let mut driven = Driven::default();
        self.waits = false;
        match self.life {
            Life::Done | Life::Missing | Life::Failed => return Ok(driven),
            Life::Lingering(_) | Life::Active => {}
        }
        if self.is_pausing(around.now) {
            return Ok(driven);
        }
        if self.seeking.is_some() {
            // What was read goes on its way; nothing more is read before its copy is found, or is known to be nowhere.
            if self.slot.as_ref().is_some_and(|slot| !slot.opened) {
                self.slot = None;
            }
            self.heard(around, &mut driven)?;
            return Ok(driven);
        }
        let must_wait = !self.is_checked && self.readable() > 0;
        if must_wait || (self.file.is_none() && !self.is_truncated) {
            return Ok(driven);
        }
        if !self.needs_lane() {
            // The file has no byte to read.
            self.recovered(around);
        }
        if self.slot.is_none() && self.needs_lane() {
            if around.free == 0 || around.stopping || !around.line.may_open(around.now) {
                self.waits = around.free == 0;
                return Ok(driven);
            }
            self.open(around)?;
        }
        if !self.heard(around, &mut driven)? {
            return Ok(driven);
        }
        if self.slot.is_some() && !around.stopping {
            self.ship(around, &mut driven);
        }
        if self.life == Life::Failed {
            self.slot = None;
            return Ok(driven);
        }
        self.conclude(around, &mut driven);
        Ok(driven)
    }

    fn needs_lane(&self) -> bool {
        let unread = !self.is_truncated && self.readable() > self.end();
        let is_unsure = !self.is_verified && !self.is_truncated;
        unread || is_unsure || self.buffer.has_messages() || !self.offered.is_empty()
    }

    /// Bytes that the disk keeps for this process alone.
    pub(crate) fn held(&self) -> u64 {
        match self.is_removed && self.file.is_some() {
            true => self.len,
            false => 0,
        }
    }

    /// Lets a removed file go.
    pub(crate) fn give_up<S: FileSystem, N: Network>(
        &mut self,
        around: &mut Around<'_, S, N>,
        how: &str,
    ) {
        if self.len > self.entry.acked {
            self.lose(around, how);
        } else {
            self.life = Life::Done;
            self.file = None;
            self.is_removed = false;
        }
    }

    /// Looks at the file. What that comes to is told.
    pub(crate) fn look_at<S, N>(&mut self, around: &mut Around<'_, S, N>) -> Driven
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let mut driven = Driven::default();
        if !matches!(self.life, Life::Lingering(_) | Life::Active) || self.is_pausing(around.now) {
            return driven;
        }
        let before = (self.len, self.life, self.entry.id);
        if let Err(e) = self.look(around) {
            self.stumble(around, &e);
        }
        if self.head.len() > self.saved_head && !self.is_truncated && self.saved_head < HEAD {
            // All that is new goes into one checkpoint.
            self.is_saved = false;
        }
        if !self.is_checked && self.has_head() {
            around.must_scan = true;
        }
        self.lag.saw(around.now, self.len);
        self.lag.dealt(self.entry.acked);
        driven.dirty = before != (self.len, self.life, self.entry.id);
        driven
    }

    fn fail<S: FileSystem, N: Network>(&mut self, around: &mut Around<'_, S, N>, why: String) {
        around.counts.failed += 1;
        around.events.push(why);
        self.life = Life::Failed;
        self.file = None;
        self.seeking = None;
        self.offered.clear();
        self.buffer = Buffer::default();
    }

    /// Reads, cuts and offers.
    fn ship<S, N>(&mut self, around: &mut Around<'_, S, N>, driven: &mut Driven)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let (now, settings) = (around.now, around.settings);
        let slot = self.slot.as_mut().expect("it has one");
        if around.waiting > 0 && now.saturating_sub(slot.since) > TURN && !self.is_truncated {
            // What was cut is read again by the follower with the next turn.
            return;
        }
        for _ in 0..CHUNKS {
            if self.buffer.has_messages() {
                if self.head.len() > self.saved_head && !self.is_truncated {
                    self.is_saved = false;
                    driven.busy = true;
                    return;
                }
                let slot = self.slot.as_mut().expect("it has one");
                let taken = slot.lane.offer(&mut self.buffer.messages());
                if taken > 0 {
                    slot.busy_at = now;
                }
                if let Some(id) = self.buffer.taken(taken) {
                    self.offered.push_back((id, taken));
                }
                if self.buffer.has_messages() {
                    return;
                }
            }
            if self.pass_hole() {
                continue;
            }
            if self.is_truncated || self.readable() <= self.buffer.end() {
                self.tell_hole_at_end(around);
                return;
            }
            let file = self.file.as_ref().expect("it is open");
            let read = self.buffer.fill(settings.chunk, |offset, into| {
                around.files.read_at(file, offset, into)
            });
            match read {
                Err(e) => return self.stumble(around, &e),
                Ok(Filled::Changed) => return self.overwritten(around),
                Ok(Filled::More(_)) => {}
                Ok(Filled::End(n)) => {
                    self.len = self.buffer.end();
                    if n == 0 {
                        return;
                    }
                }
            }
            self.recovered(around);
            self.grew = now;
            self.meet_holes(around);
            match self.remember_head(around.files) {
                Ok(true) => {}
                // Truncated and written anew since it was looked at, which the next look finds.
                Ok(false) => return self.displace(),
                Err(e) => return self.stumble(around, &e),
            }
            let cutting = Cutting {
                start: settings.multiline_start.as_ref(),
                oversized: settings.oversized,
                most: around.line.payload_max,
            };
            let skipped = self.buffer.skipped;
            if let Err(long) = self.buffer.cut(cutting) {
                let path = self.entry.path.display();
                let why = format!(
                    "{path}: the line at byte {} is longer than the {} bytes that the server takes; \
                     nothing more of it is shipped (see --oversized)",
                    long.at, cutting.most
                );
                self.fail(around, why);
                return;
            }
            around.counts.skipped += self.buffer.skipped - skipped;
        }
        driven.busy = true;
    }

    /// Drops the bytes in memory.
    fn displace(&mut self) {
        self.slot = None;
        self.buffer = Buffer::default();
        self.is_placed = false;
        self.holes.displaced();
    }

    /// Handles the end of the file's known bytes.
    fn conclude<S: FileSystem, N: Network>(
        &mut self,
        around: &mut Around<'_, S, N>,
        driven: &mut Driven,
    ) {
        let (now, settings) = (around.now, around.settings);
        let quiet = now.saturating_sub(self.grew);
        let has_left = self.is_truncated
            || self.left.is_some_and(|left| {
                now.saturating_sub(left) >= settings.rotate_wait && quiet >= settings.rotate_wait
            });
        let at_end =
            self.is_placed && self.buffer.end() >= self.readable() && !self.buffer.has_messages();
        if at_end && !around.stopping {
            let is_whole = quiet >= settings.multiline_after || settings.once || has_left;
            if self.buffer.has_lines() && is_whole {
                self.buffer.close_lines();
            }
            let is_late = settings.partial_after.is_some_and(|after| quiet >= after);
            // A compressed file does not grow.
            let is_final = match is_packed(&self.entry.path) {
                true => quiet >= settings.rotate_wait || settings.once,
                false => quiet >= settings.rotate_wait && self.is_numbered,
            };
            if self.buffer.has_rest() && (has_left || is_late || is_final) {
                self.buffer.close_all();
            }
            driven.busy |= self.buffer.has_messages();
            if has_left && !self.is_truncated && self.is_settled() && !self.buffer.has_rest() {
                self.pass_hole_at_end(around);
            }
        }
        let is_idle = !self.needs_lane();
        if is_idle && has_left && !self.buffer.has_rest() && self.life == Life::Active {
            self.life = Life::Lingering(now);
            driven.dirty = true;
            driven.busy = true;
        }
        if let Life::Lingering(since) = self.life
            && is_idle
            && (self.is_truncated
                || (now.saturating_sub(since) >= settings.linger && quiet >= settings.linger))
        {
            self.life = Life::Done;
            self.file = None;
            driven.dirty = true;
        }
        if let Some(slot) = &self.slot
            && self.offered.is_empty()
        {
            let is_turn_over = around.waiting > 0 && now.saturating_sub(slot.since) > TURN;
            let is_unused = is_idle
                && (around.waiting > 0
                    || self.life != Life::Active
                    || now.saturating_sub(slot.busy_at) > IDLE);
            if slot.opened && (is_unused || (is_turn_over && !self.is_truncated)) {
                self.slot = None;
                self.buffer.rest();
                if is_turn_over && !is_idle {
                    self.displace();
                }
            }
        }
    }

    /// The entry as it is to be written down; `None` if it means nothing any more.
    pub(crate) fn checkpoint<S: FileSystem<File = F>>(&mut self, files: &S) -> Option<Entry> {
        if self.is_truncated {
            return None;
        }
        self.entry.gone = self.life == Life::Missing && self.blank.is_none();
        if !self.entry.gone {
            self.entry.done = matches!(self.life, Life::Done | Life::Lingering(_));
        }
        if self.life != Life::Failed
            && let Some(file) = &self.file
        {
            let acked = self.entry.acked;
            if self.entry.head.len < self.head.len() {
                self.entry.head = Fingerprint::of(0, &self.head);
            }
            let before = (acked as usize).min(HEAD);
            let at = acked - before as u64;
            if self.entry.tail.at + self.entry.tail.len as u64 != acked
                && let Ok(bytes) = read(files, file, at, before)
                && bytes.len() == before
                // Asked afterwards: what has been truncated does not become what it was.
                && self.is_placed
                && self.is_of(files, file).unwrap_or(false)
            {
                self.entry.tail = Fingerprint::of(at, &bytes);
            }
        }
        Some(self.entry.clone())
    }

    /// The entry is in the checkpoint.
    pub(crate) fn saved(&mut self) {
        self.is_saved = true;
        self.saved_head = self.entry.head.len;
    }

    /// Has the file looked at again.
    pub(crate) fn revive(&mut self, now: Duration) {
        self.life = Life::Active;
        self.left = Some(now);
        self.grew = now;
        self.is_placed = false;
        self.is_removed = false;
        self.seeking = None;
        self.buffer = Buffer::default();
        self.holes.displaced();
    }

    /// The server in use may have less of it than it had: that is asked. If it is known that it has less of something, that
    /// this is to be asked stands in the checkpoint before anything is sent again. Whether what comes after it in its
    /// path waits for that, and did not wait before.
    pub(crate) fn doubt(&mut self, now: Duration, is_known: bool) -> bool {
        // A lane with something under way tells by its end if it was opened before; one that is idle may be closed unheard.
        let is_open = self.slot.as_ref().is_some_and(|slot| slot.opened);
        let tells = is_open && !self.offered.is_empty() && !is_known;
        let is_gone = matches!(self.life, Life::Failed | Life::Missing);
        if self.entry.acked == 0 || !self.has_file() || tells || is_gone {
            return false;
        }
        if is_open {
            self.offered.clear();
            self.displace();
        }
        let was_over = self.life != Life::Active;
        if was_over {
            self.revive(now);
        }
        self.is_verified = false;
        if is_known {
            self.entry.unsure = true;
            self.is_saved = false;
        }
        was_over
    }

    /// Another file of its path has its turn first.
    pub(crate) fn wait_again(&mut self) {
        self.waits = false;
        if self.has_lane() && self.has_file() {
            self.offered.clear();
            self.displace();
        }
    }
}
