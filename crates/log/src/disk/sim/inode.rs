//! A file: its bytes as processes see them, as a sync has proven them, and every version of every
//! sector between.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use fastrand::Rng;

use super::faults::Survival;
use super::sizes::{BLOCK, SECTOR};
use super::sparse::Sparse;

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    live: Sparse,
    proven: Sparse,
    /// The versions of each sector since the last sync, the oldest first.
    versions: BTreeMap<u64, Vec<Version>>,
    /// The lengths since the last sync, the oldest first. Lengths become durable in this order,
    /// because metadata goes through a journal.
    lengths: Vec<Length>,
    open: Weak<()>,
}

#[derive(Clone, Debug)]
struct Version {
    at: u64,
    image: [u8; SECTOR],
}

#[derive(Clone, Copy, Debug)]
struct Length {
    at: u64,
    len: usize,
    /// Whether the version was made by cutting: then sectors wholly behind the end are gone with
    /// it.
    cut: bool,
}

impl Length {
    fn cuts(&self, sector: u64) -> bool {
        self.cut && start(sector) >= self.len
    }
}

/// The state of a file after a crash.
pub(super) struct Fate {
    pub(super) survival: Survival,
    /// The moment of [`Survival::Prefix`].
    pub(super) until: u64,
    /// The sector that [`Survival::AllButOne`] leaves out, and where [`Survival::Prefix`] tears;
    /// `None` if it is in another file.
    pub(super) victim: Option<u64>,
}

impl Inode {
    pub(super) fn handle(&mut self) -> Arc<()> {
        self.open.upgrade().unwrap_or_else(|| {
            let open = Arc::new(());
            self.open = Arc::downgrade(&open);
            open
        })
    }

    /// Forgets the open handles: another disk's files are not this one's.
    pub(super) fn close(&mut self) {
        self.open = Weak::new();
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.strong_count() > 0
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.live.to_vec()
    }

    /// The space that a file of this length takes.
    pub(super) fn room(len: u64) -> u64 {
        len.div_ceil(BLOCK).max(1) * BLOCK
    }

    pub(super) fn read(&self, into: &mut [u8], offset: u64) -> usize {
        self.live
            .read(into, usize::try_from(offset).unwrap_or(usize::MAX))
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8], offset: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if end > self.live.len() {
            self.resize(at, end, false);
        }
        self.live.write(bytes, offset);
        for sector in offset / SECTOR..=(end - 1) / SECTOR {
            self.remember(at, sector as u64);
        }
    }

    pub(super) fn extend(&mut self, at: u64, len: usize) {
        if len > self.live.len() {
            self.resize(at, len, false);
        }
    }

    pub(super) fn truncate(&mut self, at: u64, len: usize) {
        if len < self.live.len() {
            self.resize(at, len, true);
            if !len.is_multiple_of(SECTOR) {
                // The rest of the sector is cleared in the page cache and written some day.
                self.remember(at, (len / SECTOR) as u64);
            }
        } else {
            self.extend(at, len);
        }
    }

    pub(super) fn sync(&mut self) {
        let lengths = std::mem::take(&mut self.lengths);
        for length in &lengths {
            self.proven.resize(length.len);
        }
        for (sector, versions) in std::mem::take(&mut self.versions) {
            let cut = lengths
                .iter()
                .filter(|length| length.cuts(sector))
                .map(|cut| cut.at)
                .max();
            if let Some(last) = versions.last()
                && cut.is_none_or(|cut| last.at > cut)
            {
                store(&mut self.proven, sector, &last.image);
            }
        }
    }

    /// A sync that failed: the data it was to write count as clean, and a part of them is lost.
    /// The length is the journal's affair and waits for the next sync.
    pub(super) fn fail(&mut self, random: &mut Rng) {
        if random.bool() {
            self.versions.retain(|_, _| random.bool());
            self.sync();
        } else {
            self.versions.clear();
        }
    }

    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        let versions = self.versions.values().flatten().map(|version| version.at);
        versions.chain(self.lengths.iter().map(|length| length.at))
    }

    /// The sectors with versions that are not proven; with `at`, only sectors written at that
    /// moment.
    pub(super) fn dirty(&self, at: Option<u64>) -> impl Iterator<Item = u64> {
        let written = move |versions: &[Version]| {
            at.is_none_or(|at| versions.iter().any(|version| version.at == at))
        };
        self.versions
            .iter()
            .filter(move |(_, versions)| written(versions))
            .map(|(sector, _)| *sector)
    }

    pub(super) fn crash(&mut self, fate: &Fate, random: &mut Rng) {
        let lengths = std::mem::take(&mut self.lengths);
        let kept = match fate.survival {
            Survival::Nothing => 0,
            Survival::Everything | Survival::AllButOne => lengths.len(),
            Survival::Prefix => {
                let last = if random.bool() {
                    fate.until
                } else {
                    fate.until - 1
                };
                lengths.partition_point(|length| length.at <= last)
            }
            Survival::Each(_) => random.usize(0..=lengths.len()),
        };
        let (kept, lost) = lengths.split_at(kept);
        for length in kept {
            self.proven.resize(length.len);
        }
        for (sector, mut versions) in std::mem::take(&mut self.versions) {
            let after = kept
                .iter()
                .filter(|length| length.cuts(sector))
                .map(|cut| cut.at)
                .max();
            let before = lost
                .iter()
                .filter(|length| length.cuts(sector))
                .map(|cut| cut.at)
                .min();
            versions.retain(|version| {
                after.is_none_or(|cut| version.at > cut)
                    && before.is_none_or(|cut| version.at < cut)
            });
            if let Some(image) = self.choose(sector, &versions, fate, random) {
                store(&mut self.proven, sector, &image);
            }
        }
        self.live = self.proven.clone();
    }

    /// Turns a bit over wherever the byte is stored.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) -> bool {
        self.live.flip(offset, mask);
        self.proven.flip(offset, mask);
        if let Some(versions) = self.versions.get_mut(&((offset / SECTOR) as u64)) {
            for version in versions {
                version.image[offset % SECTOR] ^= mask;
            }
        }
        offset < self.live.len()
    }

    /// The contents of a sector after a crash; `None` if the synced contents stay.
    fn choose(
        &self,
        sector: u64,
        versions: &[Version],
        fate: &Fate,
        random: &mut Rng,
    ) -> Option<[u8; SECTOR]> {
        let victim = fate.victim == Some(sector);
        let all = versions.len();
        let (kept, torn) = match fate.survival {
            Survival::Nothing => (0, false),
            Survival::Everything => (all, false),
            Survival::AllButOne if victim => (random.usize(0..=all.saturating_sub(1)), false),
            Survival::AllButOne => (all, false),
            Survival::Prefix => {
                let whole = versions.partition_point(|version| version.at < fate.until);
                let written = fate.victim.is_some_and(|tear| sector < tear)
                    && versions
                        .get(whole)
                        .is_some_and(|version| version.at == fate.until);
                (whole + usize::from(written), victim)
            }
            Survival::Each(percent) if random.u8(0..100) < percent => (all, false),
            Survival::Each(_) => (random.usize(0..=all), random.u8(0..8) == 0),
        };
        let older = match kept {
            0 => self.proven_sector(sector),
            kept => versions[kept - 1].image,
        };
        match versions.get(kept) {
            Some(newer) if torn => Some(tear(older, newer.image, random)),
            _ => (kept > 0).then_some(older),
        }
    }

    fn proven_sector(&self, sector: u64) -> [u8; SECTOR] {
        image(&self.proven, sector)
    }

    fn resize(&mut self, at: u64, len: usize, cut: bool) {
        self.live.resize(len);
        self.lengths.push(Length { at, len, cut });
    }

    fn remember(&mut self, at: u64, sector: u64) {
        let image = image(&self.live, sector);
        self.versions
            .entry(sector)
            .or_default()
            .push(Version { at, image });
    }
}

fn start(sector: u64) -> usize {
    usize::try_from(sector).expect("sectors of files in memory") * SECTOR
}

fn image(bytes: &Sparse, sector: u64) -> [u8; SECTOR] {
    let mut image = [0; SECTOR];
    bytes.read(&mut image, start(sector));
    image
}

/// Writes what the length has room for: the rest of the sector is behind the end of the file.
fn store(bytes: &mut Sparse, sector: u64, image: &[u8; SECTOR]) {
    bytes.write(image, start(sector));
}

fn tear(older: [u8; SECTOR], newer: [u8; SECTOR], random: &mut Rng) -> [u8; SECTOR] {
    let at = random.usize(1..SECTOR);
    let (mut torn, rest) = if random.u8(0..4) > 0 {
        (newer, older)
    } else {
        (older, newer)
    };
    torn[at..].copy_from_slice(&rest[at..]);
    torn
}
