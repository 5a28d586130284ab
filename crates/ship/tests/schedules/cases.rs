//! Single cases, step by step.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tidewire_ship::{Checkpoint, Counts, Following, From, Pattern, Settings, Shipper, Store};

use crate::files::{Files, Life, Tree};
use crate::servers::{Net, Server, Wire};

#[derive(Clone, Default)]
pub(crate) struct Kept(pub(crate) Rc<RefCell<Checkpoint>>);

impl Store for Kept {
    fn save(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        *self.0.borrow_mut() = checkpoint.clone();
        Ok(())
    }
}

/// One shipper, one server and `/log`.
pub(crate) struct Case {
    pub(crate) files: Files,
    wire: Wire,
    pub(crate) kept: Kept,
    pub(crate) process: Shipper<Files, Wire, Kept>,
    rng: Rng,
    pub(crate) now: Duration,
    pub(crate) events: Vec<String>,
}

impl Case {
    pub(crate) fn new() -> Case {
        let life = Life::default();
        let files = Files {
            tree: Rc::new(RefCell::new(Tree::default())),
            life: life.clone(),
            errors: Rc::new(RefCell::new((Rng::with_seed(1), 0.0))),
        };
        let net = Rc::new(RefCell::new(Net::default()));
        net.borrow_mut().servers.push(Server::default());
        let wire = Wire { net, life };
        let kept = Kept::default();
        Case {
            process: started(&files, &wire, &kept),
            files,
            wire,
            kept,
            rng: Rng::with_seed(1),
            now: Duration::ZERO,
            events: Vec::new(),
        }
    }

    /// Another process takes the place of the one that runs.
    pub(crate) fn restart(&mut self) {
        self.process = started(&self.files, &self.wire, &self.kept);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let mut tree = self.files.tree.borrow_mut();
        let path = Path::new("/log").join(name);
        let inode = tree.names.get(&path).copied();
        let inode = inode.unwrap_or_else(|| tree.create(&path, 0));
        tree.write(inode, text.as_bytes());
    }

    /// Renames a file, and makes a new one in its place.
    pub(crate) fn rotate(&self, name: &str) {
        let mut tree = self.files.tree.borrow_mut();
        let path = Path::new("/log").join(name);
        let inode = tree.names.remove(&path).unwrap();
        tree.names
            .insert(Path::new("/log").join(format!("{name}.1")), inode);
        tree.create(&path, 0);
    }

    pub(crate) fn run(&mut self, seconds: u64) -> Counts {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.process.step(self.now).unwrap();
            self.events.extend(self.process.events());
            self.wire.net.borrow_mut().turn(&mut self.rng, 0.0);
            self.now += Duration::from_millis(5);
        }
        self.process.counts()
    }

    /// Another process ships what is there, and ends; whether it ends within so many seconds.
    pub(crate) fn once(&mut self, seconds: u64) -> bool {
        let settings = Settings {
            once: true,
            ..settings()
        };
        self.process = begun(&self.files, &self.wire, &self.kept, settings);
        let until = self.now + Duration::from_secs(seconds);
        let mut ends = false;
        while self.now < until && !ends {
            ends = self.process.step(self.now).unwrap().complete;
            self.events.extend(self.process.events());
            self.wire.net.borrow_mut().turn(&mut self.rng, 0.0);
            self.now += Duration::from_millis(5);
        }
        self.process.save(self.now);
        ends
    }

    pub(crate) fn told(&self, what: &str) -> usize {
        let told = self.events.iter().filter(|event| event.contains(what));
        told.count()
    }

    /// What is stored, by producer, all in one.
    pub(crate) fn stored(&self) -> Vec<String> {
        let net = self.wire.net.borrow();
        let producers = net.servers[0].producers.values();
        let all = producers.map(|stored| {
            let lines = stored.iter();
            let lines = lines.map(|line| String::from_utf8_lossy(&line.payload).into_owned());
            lines.collect::<Vec<_>>().join(" ")
        });
        all.collect()
    }
}

fn started(files: &Files, wire: &Wire, kept: &Kept) -> Shipper<Files, Wire, Kept> {
    begun(files, wire, kept, settings())
}

fn settings() -> Settings {
    Settings {
        servers: vec!["0".into()],
        poll: Duration::from_millis(10),
        rotate_wait: Duration::from_millis(200),
        linger: Duration::from_secs(2),
        save_every: Duration::from_millis(50),
        ..Settings::default()
    }
}

fn begun(
    files: &Files,
    wire: &Wire,
    kept: &Kept,
    settings: Settings,
) -> Shipper<Files, Wire, Kept> {
    let all = Pattern::new(Path::new("/log/*.log"), false).unwrap();
    let outside = (files.clone(), wire.clone(), kept.clone());
    let checkpoint = kept.0.borrow().clone();
    Shipper::new(outside, settings, (vec![all], Vec::new()), checkpoint)
}

#[test]
fn what_may_not_be_read_at_first_is_shipped_when_it_may() {
    let mut case = Case::new();
    let path = Path::new("/log/a.log").to_owned();
    case.files.tree.borrow_mut().forbidden.insert(path.clone());
    case.write("a.log", "one\n");
    case.write("b.log", "other\n");
    assert_eq!(case.run(5).failed, 1);
    assert_eq!(case.stored(), ["other"]);
    case.files.tree.borrow_mut().forbidden.remove(&path);
    assert_eq!(case.run(10).failed, 0);
    assert_eq!(case.stored().len(), 2);
    assert_eq!(case.told("cannot read /log/a.log"), 1, "{:?}", case.events);
    assert_eq!(case.told("can be read again"), 1, "{:?}", case.events);
}

#[test]
fn a_run_without_the_file_system_is_no_new_start() {
    for (device, name) in [(false, "a.log"), (true, "a.log"), (true, "a.log.1")] {
        let mut case = Case::new();
        let log = Path::new("/log");
        case.write("a.log", "one\ntwo\n");
        case.run(1);
        case.files.tree.borrow_mut().unmount_or_mount(log);
        case.restart();
        assert_eq!(case.run(5).losses, 1);
        assert_eq!(case.told("is not there"), 1, "{:?}", case.events);
        // The loss is told once only.
        case.restart();
        assert_eq!(case.run(5).losses, 0);
        {
            let mut tree = case.files.tree.borrow_mut();
            tree.unmount_or_mount(log);
            if device {
                tree.number_anew(log);
            }
            let inode = tree.names.remove(&log.join("a.log")).unwrap();
            tree.names.insert(log.join(name), inode);
        }
        case.write(name, "three\n");
        assert_eq!(case.run(5).losses, 0);
        assert_eq!(case.stored(), ["one two three"], "{device} {name}");
        assert_eq!(case.told("is there again"), 1, "{:?}", case.events);
    }
}

#[test]
fn another_device_under_a_running_process_is_no_new_start() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    case.run(5);
    case.files.tree.borrow_mut().number_anew(Path::new("/log"));
    case.write("a.log", "two\n");
    case.run(5);
    assert_eq!(case.stored(), ["one two"], "{:?}", case.events);
}

/// Two files with one inode and beginning stay two files.
#[test]
fn another_file_with_the_inode_of_one_that_is_gone_is_shipped() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    case.run(1);
    {
        let mut tree = case.files.tree.borrow_mut();
        tree.names.clear();
    }
    case.restart();
    case.run(1);
    case.write("a.log", "one\ntwo\n");
    case.run(5);
    let mut stored = case.stored();
    stored.sort();
    assert_eq!(stored, ["one", "one two"], "{:?}", case.events);
}

#[test]
fn what_is_gone_is_not_remembered_for_ever() {
    let mut case = Case::new();
    for n in 0..100 {
        case.write("a.log", &format!("{n}\n"));
        case.run(1);
        let mut tree = case.files.tree.borrow_mut();
        tree.names.clear();
        drop(tree);
        case.restart();
        case.run(1);
    }
    assert_eq!(case.stored().len(), 100);
    assert_eq!(case.kept.0.borrow().files.len(), 64);
}

/// The others go on, and it is said which one does not, and why.
#[test]
fn a_producer_that_was_forgotten_stops_its_file_only() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    case.write("b.log", "other\n");
    case.run(1);
    case.wire.net.borrow_mut().servers[0].forgotten = Some("ship:/log/a.log".into());
    case.restart();
    case.write("a.log", "two\n");
    case.write("b.log", "more\n");
    let counts = case.run(5);
    assert_eq!((counts.failed, counts.acknowledged), (1, 1));
    assert_eq!(
        case.told("/log/a.log: it was forgotten"),
        1,
        "{:?}",
        case.events
    );
    assert_eq!(case.stored(), ["one", "other more"]);
}

/// As after it was restored from an older backup: nothing new need be written for that.
#[test]
fn what_a_server_does_not_have_any_more_is_sent_again() {
    for is_running in [false, true] {
        let mut case = Case::new();
        case.write("a.log", "one\ntwo\n");
        case.write("b.log", "other\n");
        case.run(1);
        case.rotate("b.log");
        case.write("b.log", "new\n");
        case.run(5);
        for (name, stored) in &mut case.wire.net.borrow_mut().servers[0].producers {
            stored.truncate(usize::from(name.contains("a.log")));
        }
        case.wire.net.borrow_mut().end_all();
        match is_running {
            true => case.write("a.log", "three\n"),
            false => case.restart(),
        }
        let counts = case.run(5);
        assert_eq!((counts.failed, counts.losses), (0, 0), "{:?}", case.events);
        let mut stored = case.stored();
        stored.sort();
        let first = ["one two", "one two three"][usize::from(is_running)];
        assert_eq!(stored, ["new", first, "other"], "{:?}", case.events);
        assert_eq!(case.told("it is sent again from there"), 3);
    }
}

/// All would have ended with the first one that is refused.
#[test]
fn a_server_with_too_many_producers_holds_up_new_files_only() {
    let mut case = Case::new();
    case.write("a.log", "a\n");
    case.run(1);
    case.wire.net.borrow_mut().servers[0].most = Some(1);
    case.write("b.log", "b\n");
    case.write("a.log", "more\n");
    let counts = case.run(20);
    assert_eq!((counts.acknowledged, counts.failed), (2, 1));
    assert_eq!(case.stored(), ["a more"]);
    assert_eq!(case.told("b.log: too many; it is tried again"), 1);
    case.wire.net.borrow_mut().servers[0].most = Some(2);
    let counts = case.run(70);
    assert_eq!((counts.acknowledged, counts.failed), (3, 0));
    assert_eq!(case.stored(), ["a more", "b"]);
    assert_eq!(case.told("b.log is shipped again"), 1);
}

/// What a truncated file has now is shipped too before a run with `once` is complete, whether the rest of what it had is in a
/// copy or lost.
#[test]
fn once_is_not_over_before_a_truncated_file_was_read_anew() {
    for has_copy in [true, false] {
        let mut case = Case::new();
        case.write("a.log", "one\ntwo\n");
        case.run(5);
        case.write("a.log", "three\n");
        if has_copy {
            case.write("a.log.1", "one\ntwo\nthree\n");
        }
        {
            let mut tree = case.files.tree.borrow_mut();
            let inode = tree.names[Path::new("/log/a.log")];
            tree.truncate(inode, 1);
            tree.write(inode, b"four\n");
        }
        let once = Settings {
            once: true,
            ..settings()
        };
        case.process = begun(&case.files, &case.wire, &case.kept, once);
        let mut complete = false;
        for _ in 0..2_000 {
            complete = case.process.step(case.now).unwrap().complete;
            case.events.extend(case.process.events());
            if complete {
                break;
            }
            case.wire.net.borrow_mut().turn(&mut case.rng, 0.0);
            case.now += Duration::from_millis(5);
        }
        assert!(complete, "{:?}", case.events);
        assert_eq!(case.told("was truncated"), 1, "{:?}", case.events);
        let stored = case.stored();
        assert_eq!(
            stored.iter().any(|all| all == "one two three"),
            has_copy,
            "{stored:?}"
        );
        assert!(stored.iter().any(|all| all == "four"), "{stored:?}");
    }
}

/// What was shipped of a file is not shipped again when it is compressed, and the rest of it is taken from what it was compressed to,
/// once that is whole.
#[test]
fn what_was_compressed_is_gone_on_with() {
    for has_more in [false, true] {
        let mut case = Case::new();
        case.write("a.log", "one\n");
        case.run(5);
        if has_more {
            case.write("a.log", "two\n");
        }
        case.rotate("a.log");
        case.write("a.log", "three\n");
        let at = {
            let mut tree = case.files.tree.borrow_mut();
            let packed = tree.pack(Path::new("/log/a.log.1"));
            let at = tree.names[&packed];
            tree.inodes[at].is_partial = true;
            at
        };
        case.restart();
        case.run(1);
        case.files.tree.borrow_mut().inodes[at].is_partial = false;
        case.run(5);
        let first = ["one", "one two"][usize::from(has_more)];
        let mut stored = case.stored();
        stored.sort();
        assert_eq!(stored, [first, "three"], "{:?}", case.events);
    }
}

/// What is there at first begins behind its last whole line; what comes later, or while no process runs, at its start.
#[test]
fn files_begin_at_their_end_where_that_is_asked_for() {
    let mut case = Case::new();
    let at_the_end = || Settings {
        from: From::End,
        ..settings()
    };
    case.write("a.log", "one\ntwo\nthr");
    case.write("b.log", "no line yet");
    case.process = begun(&case.files, &case.wire, &case.kept, at_the_end());
    case.run(2);
    assert_eq!(case.stored(), [""; 0]);
    case.write("a.log", "ee\nfour\n");
    case.write("b.log", " but now\n");
    case.write("c.log", "came later\n");
    let counts = case.run(2);
    let mut stored = case.stored();
    stored.sort();
    let all = ["came later", "no line yet but now", "three four"];
    assert_eq!(stored, all, "{:?}", case.events);
    assert_eq!(counts.behind, 0);
    // Another process.
    case.write("d.log", "came while nothing ran\n");
    case.rotate("a.log");
    case.write("a.log", "new\n");
    case.process = begun(&case.files, &case.wire, &case.kept, at_the_end());
    case.run(5);
    let mut stored = case.stored();
    stored.sort();
    let all = [
        "came later",
        "came while nothing ran",
        "new",
        "no line yet but now",
        "three four",
    ];
    assert_eq!(stored, all, "{:?}", case.events);
}

#[test]
fn files_that_are_old_are_not_followed_before_they_are_written_again() {
    let mut case = Case::new();
    case.write("old.log", "old\n");
    for n in 0..20 {
        case.write("young.log", &format!("{n}\n"));
    }
    let settings = Settings {
        ignore_older: Some(Duration::from_nanos(10)),
        ..settings()
    };
    case.process = begun(&case.files, &case.wire, &case.kept, settings);
    let counts = case.run(2);
    assert_eq!((counts.files, counts.ignored), (1, 1));
    assert_eq!(case.stored().len(), 1);
    case.write("old.log", "again\n");
    let counts = case.run(2);
    assert_eq!((counts.files, counts.ignored), (2, 0));
    assert!(case.stored().contains(&"old again".to_owned()));
}

/// Between two looks, far apart.
#[test]
fn what_the_system_tells_is_looked_at_at_once() {
    let mut case = Case::new();
    let settings = Settings {
        poll: Duration::from_secs(3600),
        ..settings()
    };
    case.process = begun(&case.files, &case.wire, &case.kept, settings);
    case.run(1);
    case.now += Duration::from_secs(1000);
    case.write("a.log", "one\n");
    case.run(1);
    assert_eq!(case.stored(), [""; 0]);
    case.files.tree.borrow_mut().has_news = true;
    case.run(1);
    assert_eq!(case.stored(), ["one"], "{:?}", case.events);
}

#[test]
fn what_is_followed_is_listed_with_how_far_it_is_behind() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    case.run(2);
    case.wire.net.borrow_mut().servers[0].is_down = true;
    case.run(2);
    case.write("a.log", "three\n");
    case.rotate("a.log");
    let since = case.now;
    case.run(10);
    let now = case.now;
    let all: Vec<Following> = case.process.following(now).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    let Following {
        path,
        producer,
        state,
        len,
        acked,
        behind,
        lag,
    } = &all[0];
    // The file is open, and no name of it is needed.
    assert_eq!(path, Path::new("/log/a.log"));
    assert_eq!((all[1].state, all[1].len), ("followed", 0));
    assert!(producer.contains("/log/a.log#"), "{producer}");
    assert_eq!((*state, *len, *acked, *behind), ("rotated", 10, 4, 6));
    // Not more than a poll later.
    let longest = now - since;
    assert!(
        *lag <= longest && *lag + Duration::from_millis(20) >= longest,
        "{lag:?} of {longest:?}"
    );
    case.wire.net.borrow_mut().servers[0].is_down = false;
    case.run(20);
    let caught_up = case.process.following(case.now).all(|f| f.lag.is_zero());
    assert!(caught_up);
}

/// Where a pattern names it, it has its name for ever.
#[test]
fn the_last_line_of_a_compressed_file_needs_no_end() {
    let mut case = Case::new();
    case.write("a.gz", "one\ntwo");
    let every = Pattern::new(Path::new("/log/*"), false).unwrap();
    let outside = (case.files.clone(), case.wire.clone(), case.kept.clone());
    let checkpoint = case.kept.0.borrow().clone();
    case.process = Shipper::new(outside, settings(), (vec![every], Vec::new()), checkpoint);
    case.run(5);
    assert_eq!(case.stored(), ["one two"], "{:?}", case.events);
}

/// Where a pattern names it, its name told nothing, and the line waited for an end for ever.
#[test]
fn the_last_line_of_a_numbered_file_needs_no_end_where_the_one_without_a_number_is_there() {
    let shipped = |names: [&str; 2], once: bool| {
        let mut case = Case::new();
        case.write(names[0], "one\ntwo");
        case.write(names[1], "three\n");
        let every = Pattern::new(Path::new("/log/*"), false).unwrap();
        let outside = (case.files.clone(), case.wire.clone(), case.kept.clone());
        let settings = Settings { once, ..settings() };
        case.process = Shipper::new(
            outside,
            settings,
            (vec![every], Vec::new()),
            Default::default(),
        );
        let counts = case.run(5);
        let mut stored = case.stored();
        stored.sort();
        (stored, counts.unterminated)
    };
    for once in [false, true] {
        let all = shipped(["a.log.1", "a.log"], once);
        assert_eq!(all, (vec!["one two".into(), "three".into()], 0));
    }
    // Each of these may be written yet.
    for names in [
        ["b.log", "a.log"],
        ["a.log.1", "b.log"],
        ["a.log", "a.log.1"],
    ] {
        let (stored, unterminated) = shipped(names, false);
        assert_eq!(stored, ["one", "three"], "{names:?}");
        assert_eq!(unterminated, 3, "{names:?}");
    }
}

/// Such a file was taken for a copy of the first one, and never shipped.
#[test]
fn a_file_that_begins_as_another_does_is_a_file_of_its_own() {
    let mut case = Case::new();
    case.write("x.log", "name,size\n");
    case.run(1);
    case.write("x.log-2026-11-27", "name,size\none,1\ntwo,2\n");
    let every = Pattern::new(Path::new("/log/*"), false).unwrap();
    let outside = (case.files.clone(), case.wire.clone(), case.kept.clone());
    let checkpoint = case.kept.0.borrow().clone();
    case.process = Shipper::new(outside, settings(), (vec![every], Vec::new()), checkpoint);
    case.run(5);
    let mut stored = case.stored();
    stored.sort();
    let all = ["name,size", "name,size one,1 two,2"];
    assert_eq!(stored, all, "{:?}", case.events);
}

/// The zeros of such a file were stored as a message, or as many.
#[test]
fn the_zeros_that_a_writer_leaves_which_does_not_append_are_passed_over_and_told() {
    let mut case = Case::new();
    case.write("a.log", &format!("{}one\ntwo\n", "\0".repeat(1000)));
    let counts = case.run(5);
    assert_eq!(case.stored(), ["one two"], "{:?}", case.events);
    assert_eq!(counts.holes, 1000);
    assert_eq!(
        case.told("bytes of zeros from byte 0 on are not shipped"),
        1
    );
}

/// Every file that was seen was held open, so that no directory could be listed any more, and nothing at all was shipped.
#[test]
fn with_more_files_than_may_be_open_some_are_shipped_and_the_others_have_their_turn_when_those_are_rotated()
 {
    let mut case = Case::new();
    case.files.tree.borrow_mut().most_open = Some(8);
    let few = || Settings {
        open: 5,
        ..settings()
    };
    case.process = begun(&case.files, &case.wire, &case.kept, few());
    let name = |n: usize| format!("{n:02}.log");
    (0..12).for_each(|n| case.write(&name(n), &format!("{n}\n")));
    let counts = case.run(5);
    assert_eq!((counts.files, counts.left_out), (5, 7), "{:?}", case.events);
    assert_eq!(
        case.stored(),
        ["0", "1", "2", "3", "4"],
        "{:?}",
        case.events
    );
    assert_eq!(
        case.told("files wait: 5 are held open"),
        1,
        "{:?}",
        case.events
    );
    assert_eq!(case.told("cannot"), 0, "{:?}", case.events);
    // The followed files go on, also in another process; a rotated file gives its room to one that waits.
    case.process = begun(&case.files, &case.wire, &case.kept, few());
    case.write(&name(3), "more\n");
    for n in 0..3 {
        let mut tree = case.files.tree.borrow_mut();
        let path = Path::new("/log").join(name(n));
        tree.rename(&path, &path.with_extension("log.1"));
    }
    let counts = case.run(5);
    assert_eq!((counts.files, counts.left_out), (5, 4), "{:?}", case.events);
    assert_eq!(case.stored(), ["0", "1", "2", "3 more", "4", "5", "6", "7"]);
}

/// Followed before with more descriptors than there are now.
#[test]
fn of_files_that_are_known_more_than_may_be_open_wait_too() {
    let mut case = Case::new();
    let name = |n: usize| format!("{n:02}.log");
    (0..12).for_each(|n| case.write(&name(n), &format!("{n}\n")));
    case.run(5);
    assert_eq!(case.stored().len(), 12);
    (0..12).for_each(|n| case.write(&name(n), "more\n"));
    case.files.tree.borrow_mut().most_open = Some(8);
    let few = Settings {
        open: 5,
        once: true,
        ..settings()
    };
    case.process = begun(&case.files, &case.wire, &case.kept, few);
    let counts = case.run(5);
    let is_complete = case.process.step(case.now).unwrap().complete;
    assert_eq!(
        (counts.left_out, is_complete),
        (7, true),
        "{:?}",
        case.events
    );
    assert_eq!(
        case.told("files wait: 5 are held open"),
        1,
        "{:?}",
        case.events
    );
    let more = case
        .stored()
        .iter()
        .filter(|all| all.ends_with("more"))
        .count();
    assert_eq!(more, 5, "{:?}", case.events);
}

/// What it had was shipped from the compressed file, and told as lost besides.
#[test]
fn an_empty_file_that_was_written_rotated_and_compressed_since_is_no_loss() {
    for (is_rotated, once) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut case = Case::new();
        case.write("a.log", "");
        case.run(1);
        let path = Path::new("/log/a.log");
        match is_rotated {
            true => {
                case.write("a.log", "one\ntwo\n");
                let mut tree = case.files.tree.borrow_mut();
                let rotated = Path::new("/log/a.log.1");
                tree.rename(path, rotated);
                tree.pack(rotated);
            }
            false => case.files.tree.borrow_mut().remove(path),
        }
        case.write("a.log", "three\n");
        let settings = Settings { once, ..settings() };
        case.process = begun(&case.files, &case.wire, &case.kept, settings);
        let counts = case.run(5);
        let mut stored = case.stored();
        stored.sort();
        let (all, losses) = match is_rotated {
            true => (vec!["one two", "three"], 0),
            false => (vec!["three"], 1),
        };
        assert_eq!(stored, all, "{:?}", case.events);
        assert_eq!(counts.losses, losses, "{:?}", case.events);
        assert_eq!(
            case.told("is not there"),
            losses as usize,
            "{:?}",
            case.events
        );
    }
}

/// A writer that does not append leaves a hole when its file is truncated. While nothing but zeros had been read of one, the next copy was
/// taken for the same file, and never shipped.
#[test]
fn files_that_begin_with_zeros_are_not_taken_for_each_other() {
    for steps in 10..40 {
        let mut case = Case::new();
        let slow = Settings {
            chunk: 1 << 10,
            ..settings()
        };
        case.process = begun(&case.files, &case.wire, &case.kept, slow);
        case.write("b.log", "other\n");
        case.run(1);
        let holed = |len: usize, text: &str| format!("{}{text}\n", "\0".repeat(len));
        case.write("a.log", &holed(300_000, "one"));
        for _ in 0..steps {
            case.process.step(case.now).unwrap();
            case.events.extend(case.process.events());
            case.wire.net.borrow_mut().turn(&mut case.rng, 0.0);
            case.now += Duration::from_millis(5);
        }
        case.write("a.log.2", &holed(300_000, "one"));
        case.write("a.log.1", &holed(400_000, "two"));
        {
            let mut tree = case.files.tree.borrow_mut();
            let inode = tree.names[Path::new("/log/a.log")];
            tree.truncate(inode, 0);
            tree.write(inode, holed(500_000, "three").as_bytes());
        }
        let counts = case.run(10);
        let mut stored = case.stored();
        stored.sort();
        assert_eq!(
            stored,
            ["one", "other", "three", "two"],
            "{steps}: {:?}",
            case.events
        );
        assert_eq!(counts.losses, 0, "{steps}: {:?}", case.events);
    }
}

/// A directory that was renamed while no process ran, and asked for under its new name, was shipped again. So was a file that was moved.
#[test]
fn a_file_that_is_asked_for_under_another_path_goes_on_where_it_was() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    case.write("b.log", "two\n");
    case.run(2);
    let patterns = |pattern: &str| vec![Pattern::new(Path::new(pattern), false).unwrap()];
    for (directory, text) in [("/old", " more"), ("/older", " again")] {
        {
            let mut tree = case.files.tree.borrow_mut();
            let names: Vec<_> = tree.names.keys().cloned().collect();
            for name in names {
                let to = Path::new(directory).join(name.file_name().unwrap());
                tree.rename(&name, &to);
                let inode = tree.names[&to];
                tree.write(inode, format!("{}\n", text.trim()).as_bytes());
            }
        }
        let outside = (case.files.clone(), case.wire.clone(), case.kept.clone());
        let checkpoint = case.kept.0.borrow().clone();
        let wanted = patterns(&format!("{directory}/*.log"));
        case.process = Shipper::new(outside, settings(), (wanted, Vec::new()), checkpoint);
        let counts = case.run(3);
        assert_eq!((counts.losses, counts.failed), (0, 0), "{:?}", case.events);
    }
    let mut stored = case.stored();
    stored.sort();
    assert_eq!(
        stored,
        ["one more again", "two more again"],
        "{:?}",
        case.events
    );
    // Another file with its inode is another file.
    let path = Path::new("/older/a.log");
    {
        let mut tree = case.files.tree.borrow_mut();
        tree.remove(path);
        let inode = tree.create(Path::new("/new/c.log"), 0);
        tree.write(inode, b"other\n");
    }
    let outside = (case.files.clone(), case.wire.clone(), case.kept.clone());
    let checkpoint = case.kept.0.borrow().clone();
    let wanted = patterns("/new/*.log");
    case.process = Shipper::new(outside, settings(), (wanted, Vec::new()), checkpoint);
    case.run(3);
    assert_eq!(case.stored().len(), 3, "{:?}", case.events);
}

/// One file under several paths, as with hard links, and one in a directory that two patterns reach.
#[test]
fn a_file_that_has_several_names_is_shipped_once() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    {
        let mut tree = case.files.tree.borrow_mut();
        let inode = tree.names[Path::new("/log/a.log")];
        tree.names.insert("/log/b.log".into(), inode);
    }
    case.run(2);
    case.write("a.log", "two\n");
    case.run(1);
    case.restart();
    case.write("a.log", "three\n");
    let counts = case.run(2);
    assert_eq!(case.stored(), ["one two three"], "{:?}", case.events);
    assert_eq!(counts.losses, 0);
}

/// The one behind it waited for ever: the file that has the path was not over, and did not come after it.
#[test]
fn a_file_that_has_its_path_again_comes_after_what_had_it_meanwhile() {
    let mut case = Case::new();
    case.write("a.log", "one\n");
    case.run(1);
    case.rotate("a.log");
    case.write("a.log", "two\n");
    // Less than a rotated file must be quiet.
    for _ in 0..20 {
        case.process.step(case.now).unwrap();
        case.now += Duration::from_millis(5);
    }
    {
        let names = &mut case.files.tree.borrow_mut().names;
        let log = Path::new("/log");
        let second = names.remove(&log.join("a.log")).unwrap();
        let first = names.remove(&log.join("a.log.1")).unwrap();
        names.insert(log.join("a.log.2"), second);
        names.insert(log.join("a.log"), first);
    }
    case.write("a.log", "three\n");
    case.process.save(case.now);
    assert!(case.once(30), "{:?} {:?}", case.process, case.events);
    let mut stored = case.stored();
    stored.sort();
    assert_eq!(stored, ["one three", "two"], "{:?}", case.events);
}
