//! A schedule, and what must hold at its end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use sha2::{Digest, Sha256};
use tidewire_ship::{Checkpoint, Pattern, Settings, Shipper, Store};

use crate::files::{Files, Life, Tree};
use crate::mirror::Mirror;
use crate::servers::{Net, PAYLOAD_MAX, Server, Stored, Wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Renamed,
    /// Renamed several times in one tick of the file system's clock, and each in its way: the number of the newest is 1, or the
    /// next one.
    Ticks,
    Pattern,
    Truncated,
    Failover,
    /// Several servers that share producers out among them, all of which are named.
    Fleet,
    /// Renamed, and what is asked for is not to be had for a moment.
    Errors,
    /// Renamed, and no more files may be open at once than there are writers, and one more.
    Crowded,
    /// Directories whose file system is away for a while, and has another device then.
    Absent,
    /// Such directories, with errors, and the names are matched by one pattern.
    AbsentPattern,
    /// A server that is restored from an older backup, again and again.
    SetBack,
    /// A server that is not as it should be.
    Forgetful,
    /// Renamed, copied and truncated, compressed and removed, while the shipper or the server is away for long.
    Mixed,
    /// As above, and one pattern matches all names.
    MixedPattern,
    /// As the random histories above, in a real directory.
    Real,
}

impl Profile {
    fn is_absent(self) -> bool {
        matches!(self, Profile::Absent | Profile::AbsentPattern)
    }

    /// How often there is an error that passes.
    fn errors(self) -> f64 {
        match self {
            Profile::Errors | Profile::AbsentPattern => 0.01,
            _ => 0.0,
        }
    }

    fn is_pattern(self) -> bool {
        let patterns = [
            Profile::Pattern,
            Profile::AbsentPattern,
            Profile::MixedPattern,
        ];
        patterns.contains(&self)
    }

    fn is_mixed(self) -> bool {
        matches!(self, Profile::Mixed | Profile::MixedPattern | Profile::Real)
    }
}

/// What a file held, from its creation or truncation on.
struct Content {
    path: usize,
    bytes: Vec<u8>,
    /// The content may be lost: no shipper could have known of it.
    may_be_lost: bool,
    /// The file that had it was removed: if it is not stored, that was told.
    was_removed: bool,
    /// The file was written to after the shipper may have gone on to the next.
    is_late: bool,
    /// The checkpoint had it when it was rotated away.
    was_known: bool,
    /// When it was rotated away.
    left: Option<Duration>,
}

/// A path that a program writes to.
struct Writer {
    path: PathBuf,
    /// The file that is written to.
    inode: usize,
    /// No rotation before the shipper has looked so often.
    rest: u32,
    /// How often it was renamed.
    renamed: u32,
    /// Each rotated file gets the next number and keeps it.
    is_rising: bool,
    /// How its files are rotated, where both can be.
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Renamed,
    Copied,
    /// Now so, now so. The time of birth of a file that was truncated and renamed then is older than that of its copies, so the order of what they
    /// hold cannot be known unless it was seen before that.
    Both,
}

#[derive(Clone)]
struct Saved {
    bytes: Rc<RefCell<Vec<u8>>>,
    life: Life,
    fails: Rc<RefCell<Rng>>,
}

impl Store for Saved {
    fn save(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        if !self.life.acts() || self.fails.borrow_mut().f64() < 0.02 {
            return Err(io::Error::other("no room"));
        }
        *self.bytes.borrow_mut() = checkpoint.encode();
        // The process may be killed right behind that too.
        self.life.acts();
        Ok(())
    }
}

type Process = Shipper<Files, Wire, Saved>;

pub(crate) struct World {
    rng: Rng,
    profile: Profile,
    files: Files,
    wire: Wire,
    saved: Saved,
    life: Life,
    process: Option<Process>,
    writers: Vec<Writer>,
    contents: Vec<Content>,
    now: Duration,
    lines: u64,
    /// No process is started before so many acts.
    away: u32,
    /// Files that are being compressed, and to what.
    packing: Vec<(PathBuf, PathBuf)>,
    /// Losses that processes told of.
    losses: u64,
    /// Hash of all steps, where it is asked for.
    trace: Option<DefaultHasher>,
}

const ROTATE_WAIT: Duration = Duration::from_millis(200);

impl World {
    pub(crate) fn new(seed: u64, profile: Profile) -> World {
        let life = Life::default();
        let mut rng = Rng::with_seed(seed);
        let files = Files {
            tree: Rc::new(RefCell::new(Tree::default())),
            life: life.clone(),
            errors: Rc::new(RefCell::new((rng.fork(), profile.errors()))),
        };
        let net = Rc::new(RefCell::new(Net::default()));
        let servers = match profile {
            Profile::Failover => 2,
            Profile::Fleet => 3,
            _ => 1,
        };
        net.borrow_mut().is_fleet = profile == Profile::Fleet;
        net.borrow_mut()
            .servers
            .resize_with(servers, Server::default);
        let saved = Saved {
            bytes: Rc::default(),
            life: life.clone(),
            fails: Rc::new(RefCell::new(rng.fork())),
        };
        let wire = Wire {
            net,
            life: life.clone(),
        };
        let mut world = World {
            rng,
            profile,
            files,
            wire,
            saved,
            life,
            process: None,
            writers: Vec::new(),
            contents: Vec::new(),
            now: Duration::ZERO,
            lines: 0,
            away: 0,
            packing: Vec::new(),
            losses: 0,
            trace: None,
        };
        let mirror = (profile == Profile::Real).then(Mirror::new);
        let root = mirror.as_ref().map(Mirror::root).unwrap_or_default();
        world.files.tree.borrow_mut().mirror = mirror;
        if profile == Profile::Ticks {
            world.files.tree.borrow_mut().tick = world.rng.u64(2..40).into();
        }
        let writers = world.rng.usize(1..=3);
        if profile == Profile::Crowded {
            // One more is compared with, or a directory is listed.
            world.files.tree.borrow_mut().most_open = Some(writers + 2);
        }
        for path in 0..writers {
            let path = PathBuf::from(format!("{}/log/{path}/app.log", root.display()));
            let inode = world.create(&path, world.writers.len());
            world.writers.push(Writer {
                path,
                inode,
                rest: 0,
                renamed: 0,
                is_rising: profile == Profile::Ticks && world.rng.bool(),
                way: match profile.is_mixed() {
                    true => [Way::Renamed, Way::Copied, Way::Both][world.rng.usize(..3)],
                    false => Way::Both,
                },
            });
        }
        world
    }

    fn create(&mut self, path: &Path, writer: usize) -> usize {
        self.contents.push(Content {
            path: writer,
            bytes: Vec::new(),
            may_be_lost: false,
            was_removed: false,
            is_late: false,
            was_known: false,
            left: None,
        });
        let mut tree = self.files.tree.borrow_mut();
        tree.create(path, self.contents.len() - 1)
    }

    /// Runs, and answers with a hash of all that happened in all steps.
    pub(crate) fn traced(mut self) -> u64 {
        self.trace = Some(DefaultHasher::new());
        self.go();
        let net = self.wire.net.borrow();
        let mut trace = self.trace.take().unwrap();
        for (name, stored) in net.servers.iter().flat_map(|server| &server.producers) {
            name.hash(&mut trace);
            for stored in stored {
                (stored.id, &stored.payload, stored.place).hash(&mut trace);
            }
        }
        self.saved.bytes.borrow().hash(&mut trace);
        trace.finish()
    }

    pub(crate) fn run(mut self) {
        self.go();
        self.check();
    }

    fn go(&mut self) {
        for _ in 0..self.rng.usize(50..250) {
            match self.rng.u32(0..100) {
                0..40 => self.write(),
                40..46 => self.rotate(),
                46..50 => self.disturb(),
                50..53 => self.kill(),
                53..57 if self.profile.is_absent() => self.unmount_or_mount(),
                53..58 if self.profile.is_mixed() => self.pack(),
                58..59 if self.profile.is_mixed() => self.remove(),
                _ => self.step(),
            }
            let breaks = 0.02;
            self.wire.net.borrow_mut().turn(&mut self.rng, breaks);
            self.now += Duration::from_millis(self.rng.u64(0..30));
        }
        self.finish();
    }

    fn write(&mut self) {
        let at = self.rng.usize(..self.writers.len());
        self.lines += 1;
        let most = if self.rng.u8(..10) == 0 { 120 } else { 12 };
        let fill = self.rng.usize(0..most);
        let mut bytes = format!("{}:{}", self.lines, "x".repeat(fill)).into_bytes();
        match self.rng.u8(..10) {
            // An empty line too, or a line that goes on later.
            0 => bytes.extend(b"\n\n"),
            1 => {}
            _ => bytes.push(b'\n'),
        }
        if self.is_absent(at) {
            return;
        }
        self.append(self.writers[at].inode, &bytes);
    }

    /// A program does not write where there is no directory.
    fn is_absent(&self, writer: usize) -> bool {
        let path = &self.writers[writer].path;
        self.files.tree.borrow().is_absent(path)
    }

    fn unmount_or_mount(&mut self) {
        let at = self.rng.usize(..self.writers.len());
        let directory = self.writers[at].path.parent().unwrap().to_owned();
        let mut tree = self.files.tree.borrow_mut();
        let is_there = tree.unmount_or_mount(&directory);
        println!(
            "{:?} {} is there: {is_there}",
            self.now,
            directory.display()
        );
        if is_there && self.rng.bool() {
            tree.number_anew(&directory);
        }
    }

    fn append(&mut self, inode: usize, bytes: &[u8]) {
        let mut tree = self.files.tree.borrow_mut();
        tree.write(inode, bytes);
        let content = &mut self.contents[tree.inodes[inode].content];
        content.bytes.extend_from_slice(bytes);
        let slow = Duration::from_millis(1);
        content.is_late |= content.left.is_some_and(|left| self.now > left + slow);
    }

    fn rotate(&mut self) {
        let at = self.rng.usize(..self.writers.len());
        if self.writers[at].rest > 0 || self.is_absent(at) {
            return;
        }
        match self.profile {
            Profile::Truncated if self.rng.u8(..4) > 0 => self.copy_and_truncate(at),
            _ if self.profile.is_mixed() => {
                self.end_packing();
                let is_copied = match self.writers[at].way {
                    Way::Renamed => false,
                    Way::Copied => true,
                    Way::Both => self.rng.bool(),
                };
                match is_copied {
                    true => self.copy_and_truncate(at),
                    false => self.rename(at),
                }
            }
            Profile::Ticks => {
                for _ in 0..self.rng.u32(1..4) {
                    self.rename(at);
                    self.lines += 1;
                    let line = format!("{}\n", self.lines);
                    self.append(self.writers[at].inode, line.as_bytes());
                }
            }
            _ => self.rename(at),
        }
    }

    fn shift(&mut self, path: &Path) {
        let name = |n: u32| PathBuf::from(format!("{}.{n}", path.display()));
        let mut tree = self.files.tree.borrow_mut();
        // Old ones stay for long enough that nothing is removed before it is shipped.
        let packed = |n: u32| PathBuf::from(format!("{}.{n}.gz", path.display()));
        for n in (1..400).rev() {
            tree.rename(&name(n), &name(n + 1));
            tree.rename(&packed(n), &packed(n + 1));
        }
    }

    /// What was rotated away, and is not being compressed.
    fn rotated(&self) -> Vec<PathBuf> {
        let tree = self.files.tree.borrow();
        let is_rotated = |path: &PathBuf| {
            let is_written = self.writers.iter().any(|writer| writer.path == **path);
            let is_packing = |(plain, packed): &(PathBuf, PathBuf)| plain == path || packed == path;
            !is_written && !self.packing.iter().any(is_packing)
        };
        let names = tree.names.keys().filter(|path| is_rotated(path));
        names.cloned().collect()
    }

    /// A rotated file begins to be compressed, or compressions that have begun are whole.
    fn pack(&mut self) {
        if !self.packing.is_empty() && self.rng.bool() {
            return self.end_packing();
        }
        let mut plain = self.rotated();
        plain.retain(|path| path.extension().is_none_or(|ending| ending != "gz"));
        if let Some(path) = self.rng.choice(&plain).cloned() {
            println!("{:?} {} is compressed", self.now, path.display());
            let packed = self.files.tree.borrow_mut().begin_to_pack(&path);
            self.packing.push((path, packed));
        }
    }

    fn end_packing(&mut self) {
        let mut tree = self.files.tree.borrow_mut();
        for (path, packed) in self.packing.drain(..) {
            println!("{:?} {} is whole", self.now, packed.display());
            tree.end_packing(&path, &packed);
        }
    }

    fn remove(&mut self) {
        let rotated = self.rotated();
        if let Some(path) = self.rng.choice(&rotated).cloned() {
            println!("{:?} {} removed", self.now, path.display());
            let mut tree = self.files.tree.borrow_mut();
            let content = tree.inodes[tree.names[&path]].content;
            tree.remove(&path);
            self.contents[content].was_removed = true;
        }
    }

    fn rename(&mut self, at: usize) {
        let path = self.writers[at].path.clone();
        self.writers[at].renamed += 1;
        let (renamed, is_rising) = (self.writers[at].renamed, self.writers[at].is_rising);
        let number = if is_rising { renamed } else { 1 };
        if !is_rising {
            self.shift(&path);
        } else if renamed < 4 {
            // The first ones show which way the numbers go.
            self.files.tree.borrow_mut().next_tick();
        }
        let old = self.writers[at].inode;
        let was_known = self.is_known(old);
        let known = self.checkpoint().files;
        if !known.iter().any(|entry| entry.followed == path) && !self.profile.is_pattern() {
            // The file came and went before the first look.
            let content = self.files.tree.borrow().inodes[old].content;
            self.contents[content].may_be_lost = true;
        }
        {
            let mut tree = self.files.tree.borrow_mut();
            let rotated = PathBuf::from(format!("{}.{number}", path.display()));
            assert!(tree.rename(&path, &rotated));
            let content = tree.inodes[old].content;
            self.contents[content].left = Some(self.now);
            self.contents[content].was_known = was_known;
        }
        println!("{:?} {} renamed", self.now, path.display());
        let new = self.create(&path, at);
        if self.rng.bool() {
            // The writer has not noticed.
            self.lines += 1;
            let line = format!("{}\n", self.lines);
            self.append(old, line.as_bytes());
        }
        self.writers[at].inode = new;
    }

    /// Whether the checkpoint has what this file holds, and not what it held before it was truncated.
    fn is_known(&self, inode: usize) -> bool {
        let tree = self.files.tree.borrow();
        let inode = &tree.inodes[inode];
        let known = self.checkpoint().files;
        known.iter().any(|entry| {
            let head = inode.bytes.get(..entry.head.len).unwrap_or_default();
            let hash = Sha256::digest(head);
            let hash: String = hash[..16]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            entry.id == inode.id && entry.head.len > 0 && entry.head.hash == hash
        })
    }

    /// Nothing must be lost if the shipper knew how the file began, and has time to look before the
    /// next one.
    fn copy_and_truncate(&mut self, at: usize) {
        let path = self.writers[at].path.clone();
        self.shift(&path);
        let inode = self.writers[at].inode;
        let copy = PathBuf::from(format!("{}.1", path.display()));
        let (id, content, bytes) = {
            let tree = self.files.tree.borrow();
            let inode = &tree.inodes[inode];
            (inode.id, inode.content, inode.bytes.clone())
        };
        let known = self.checkpoint().files;
        let is_known = known
            .iter()
            .any(|entry| entry.id == id && entry.head.len > 0 && !entry.done);
        self.contents[content].may_be_lost |= match self.profile.is_mixed() {
            true => !known.iter().any(|entry| entry.followed == path) && !self.profile.is_pattern(),
            false => !is_known,
        };
        self.contents[content].left = Some(self.now);
        self.contents[content].was_known = self.is_known(inode);
        let mut tree = self.files.tree.borrow_mut();
        let copied = tree.create(&copy, content);
        tree.write(copied, &bytes);
        self.contents.push(Content {
            path: at,
            bytes: Vec::new(),
            may_be_lost: false,
            was_removed: false,
            is_late: false,
            was_known: false,
            left: None,
        });
        tree.truncate(inode, self.contents.len() - 1);
        self.writers[at].rest = if self.profile.is_mixed() { 0 } else { 40 };
        println!("{:?} {} copied and truncated", self.now, path.display());
    }

    fn disturb(&mut self) {
        let server = self.rng.usize(..self.wire.net.borrow().servers.len());
        let mut net = self.wire.net.borrow_mut();
        net.servers[server].is_down ^= true;
        if !matches!(self.profile, Profile::Forgetful | Profile::SetBack) {
            return;
        }
        let all = net.servers[server].producers.values();
        let last = all.flatten().map(|stored| stored.place).max().unwrap_or(0);
        let kept = self.rng.u64(..=last);
        for stored in net.servers[server].producers.values_mut() {
            match self.profile {
                Profile::SetBack => stored.retain(|stored| stored.place <= kept),
                // What is before the mark is not asked for.
                _ if stored.len() > 1 => drop(stored.remove(0)),
                _ => {}
            }
        }
        net.end_all();
    }

    fn kill(&mut self) {
        match self.rng.bool() {
            true => self.life.ends_in(self.rng.u32(1..60)),
            false => self.bury(),
        }
    }

    fn bury(&mut self) {
        println!("{:?} killed", self.now);
        self.process = None;
        if self.profile.is_mixed() && self.rng.bool() {
            self.away = self.rng.u32(1..40);
        }
        self.wire.net.borrow_mut().orphan_all();
        self.life.goes_on();
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::decode(&self.saved.bytes.borrow()).unwrap_or_default()
    }

    fn settings(&mut self) -> Settings {
        let servers = self.wire.net.borrow().servers.len();
        Settings {
            servers: (0..servers).map(|server| server.to_string()).collect(),
            poll: Duration::from_millis(10),
            rotate_wait: ROTATE_WAIT,
            linger: Duration::from_secs(2),
            lanes: 2,
            open: match self.profile {
                Profile::Crowded => self.writers.len() + 1,
                _ => usize::MAX,
            },
            save_every: Duration::from_millis(50),
            chunk: 100,
            accept_loss: self.profile == Profile::Forgetful,
            seed: self.rng.u64(..),
            ..Settings::default()
        }
    }

    fn start(&mut self) -> Process {
        let pattern = |text: &str| Pattern::new(Path::new(text), false).unwrap();
        let patterns = match self.profile {
            _ if self.profile.is_pattern() => vec![pattern("/log/*/app.log*")],
            _ => {
                let paths = self.writers.iter();
                paths
                    .map(|writer| pattern(writer.path.to_str().unwrap()))
                    .collect()
            }
        };
        let saved = self.checkpoint();
        let outside = (self.files.clone(), self.wire.clone(), self.saved.clone());
        Shipper::new(outside, self.settings(), (patterns, Vec::new()), saved)
    }

    fn step(&mut self) {
        if self.process.is_none() {
            if self.away > 0 {
                self.away -= 1;
                return;
            }
            self.process = Some(self.start());
        }
        let process = self.process.as_mut().unwrap();
        let before = process.counts().losses;
        let done = process.step(self.now);
        // A file that was missing and has come back is no loss any more.
        self.losses += process.counts().losses.saturating_sub(before);
        if std::env::var_os("TIDEWIRE_TRACE").is_some() {
            println!("{:?} {process:?}", self.now);
        }
        if self.life.is_over() {
            return self.bury();
        }
        let done = done.unwrap();
        if let Some(trace) = &mut self.trace {
            format!("{:?} {done:?} {process:?}", self.now).hash(trace);
        }
        for event in process.events() {
            if let Some(trace) = &mut self.trace {
                event.hash(trace);
            }
            // Seen when a seed has failed.
            println!("{:?} {event}", self.now);
        }
        for writer in &mut self.writers {
            writer.rest = writer.rest.saturating_sub(1);
        }
    }

    /// Everything is well from now on, for long enough.
    fn finish(&mut self) {
        self.life.goes_on();
        self.away = 0;
        self.end_packing();
        if self.profile == Profile::SetBack {
            // While no lane is open nothing tells that a server has ended: it is asked when a process starts.
            self.bury();
        }
        self.files.errors.borrow_mut().1 = 0.0;
        for at in 0..self.writers.len() {
            if self.is_absent(at) {
                let directory = self.writers[at].path.parent().unwrap();
                let mut tree = self.files.tree.borrow_mut();
                tree.unmount_or_mount(directory);
            }
            self.append(self.writers[at].inode, format!("end {at}\n").as_bytes());
        }
        for server in &mut self.wire.net.borrow_mut().servers {
            server.is_down = false;
        }
        let until = self.now + Duration::from_secs(60);
        while self.now < until {
            self.step();
            self.wire.net.borrow_mut().turn(&mut self.rng, 0.0);
            self.now += Duration::from_millis(7);
            let process = self.process.as_ref().unwrap();
            let counts = process.counts();
            if counts.behind == 0 && self.now > until - Duration::from_secs(55) {
                break;
            }
        }
        let process = self.process.as_ref().unwrap();
        // Seen when a seed has failed.
        println!("{process:?}");
        assert_eq!(process.counts().failed, 0);
    }

    fn check(&self) {
        let net = self.wire.net.borrow();
        let mut producers: BTreeMap<&str, Vec<&Stored>> = BTreeMap::new();
        for server in &net.servers {
            for (name, stored) in &server.producers {
                assert!(stored.is_sorted_by(|one, other| one.id < other.id));
                producers.entry(name).or_default().extend(stored);
            }
        }
        let may_overlap = self.profile == Profile::Failover;
        let mut found: Vec<Option<(u64, u64)>> = vec![None; self.contents.len()];
        for (name, mut stored) in producers {
            stored.sort_by_key(|stored| stored.id);
            if stored.is_empty() {
                // A server that was set back has lost all of it; the file was truncated, or is empty.
                continue;
            }
            let fits = |way: Tiling| {
                let mut ends = self.contents.iter().enumerate();
                ends.find_map(|(at, content)| {
                    // What was under way when the file, and then its copy, had gone is told as lost; what was in memory follows.
                    let may_lack = content.was_removed && self.losses > 0;
                    let may_be = way != Tiling::WithHoles || may_lack;
                    let end = may_be.then(|| tiles(&content.bytes, &stored, way))?;
                    end.map(|end| (at, end))
                })
            };
            let found_at = match may_overlap {
                true => fits(Tiling::Overlapping),
                false => fits(Tiling::Whole).or_else(|| fits(Tiling::WithHoles)),
            };
            let shown = || {
                let texts = stored
                    .iter()
                    .map(|s| (s.id, String::from_utf8_lossy(&s.payload)));
                texts.collect::<Vec<_>>()
            };
            let Some((at, end)) = found_at else {
                panic!("{name} fits no file: {:?}", shown())
            };
            assert!(found[at].is_none(), "twice: {name} {:?}", shown());
            let content = &self.contents[at];
            let all = content.bytes.len();
            let is_told = content.was_removed && self.losses > 0;
            assert!(
                end == all || content.may_be_lost || is_told,
                "{name}: {end} of {all}: {:?}",
                String::from_utf8_lossy(&content.bytes)
            );
            let places = stored.iter().map(|stored| stored.place);
            found[at] = Some((places.clone().min().unwrap(), places.max().unwrap()));
        }
        let mut last: BTreeMap<usize, u64> = BTreeMap::new();
        for (content, found) in self.contents.iter().zip(found) {
            let Some((first, end)) = found else {
                let is_empty =
                    content.bytes.iter().all(|byte| *byte == b'\n') && content.bytes.is_empty();
                // A file that was not seen before it was removed is known to no process.
                assert!(
                    is_empty || content.may_be_lost || content.was_removed,
                    "not stored: {:?}",
                    String::from_utf8_lossy(&content.bytes)
                );
                continue;
            };
            // What no shipper could know of may be found later.
            let is_again = self.profile == Profile::SetBack;
            // The shipper knows the order of what it has seen.
            let is_both = self.profile.is_mixed() && self.writers[content.path].way == Way::Both;
            let is_unknown = is_both && content.left.is_some() && !content.was_known;
            if is_unknown {
                last.remove(&content.path);
            }
            let is_ordered = !content.may_be_lost
                && !is_unknown
                && !content.was_removed
                && !self.profile.is_pattern()
                && !may_overlap
                && !is_again;
            let before = last.entry(content.path).or_default();
            assert!(
                !is_ordered || first > *before,
                "out of order: {:?} was stored from {first} on, and what was before it up to {before}",
                String::from_utf8_lossy(&content.bytes)
            );
            if !content.is_late && !content.may_be_lost && !content.was_removed && !is_unknown {
                *before = end;
            }
        }
    }
}

/// How messages have to follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tiling {
    /// Each begins where the one before has ended.
    Whole,
    /// Some are there twice.
    Overlapping,
    /// Some are not there.
    WithHoles,
}

/// How much of `bytes` the messages are, one after the other; `None` if they are not.
fn tiles(bytes: &[u8], stored: &[&Stored], tiling: Tiling) -> Option<usize> {
    let mut at = 0;
    for message in stored {
        assert!(message.payload.len() <= PAYLOAD_MAX as usize);
        let end = message.id as usize;
        let rest = bytes.get(..end)?;
        if tiling != Tiling::Whole {
            let begin = [0, 1].into_iter().find_map(|feed| {
                let begin = end.checked_sub(feed + message.payload.len())?;
                let is_there = rest[begin..].starts_with(&message.payload)
                    && (feed == 0 || rest[end - 1] == b'\n');
                is_there.then_some(begin)
            })?;
            let is_next = begin == at || (begin == at + 1 && bytes[at] == b'\n');
            let is_allowed = match tiling {
                Tiling::Overlapping => begin < at,
                _ => begin > at,
            };
            if !is_next && !is_allowed {
                return None;
            }
            at = at.max(end);
            continue;
        }
        let between = rest.get(at..)?;
        // The end of a line of which all before was sent is in no message.
        let is_inside = at > 0 && bytes[at - 1] != b'\n';
        let between = match between {
            [b'\n', more @ ..] if is_inside && !more.is_empty() => more,
            all => all,
        };
        let is_line = between.strip_suffix(b"\n") == Some(&message.payload);
        if !is_line && between != message.payload {
            return None;
        }
        at = end;
    }
    if bytes[at..] == *b"\n" && at > 0 && bytes[at - 1] != b'\n' {
        at += 1;
    }
    Some(at)
}
