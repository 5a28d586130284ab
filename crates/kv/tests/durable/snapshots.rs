//! A snapshot at any moment equals the store at its ticket, and whatever happens while it is made, at any
//! step, nothing is lost and nothing is torn.

use fastrand::Rng;
use tidewire::sim::for_each_seed;
use tidewire_kv::durable::KvLog;
use tidewire_kv::durable::snapshot::{Found, Keeper, load};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{self, Mistakes, Store};
use tidewire_log::disk::sim::{Faults, SimDisk, Survival};
use tidewire_log::{EmbeddedLog, Log, Policy, Range, Writer};

use std::ops::ControlFlow::Continue;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{dump, now, open_at, settings, settle, step};
use crate::replay::{START, any, parsed};

/// A server without its network.
struct Scene {
    log: Arc<EmbeddedLog<SimDisk>>,
    kv_log: Arc<KvLog>,
    writer: Writer<SimDisk>,
    store: Arc<Store>,
    keeper: Keeper<SimDisk>,
    found: Option<Found>,
}

fn open(
    policy: Policy,
    disk: &SimDisk,
    settings: store::Settings,
    mistakes: Mistakes,
    now_ms: u64,
) -> Result<Scene, String> {
    let opened = open_at(policy, disk, settings, mistakes, now_ms)?;
    let (log, found) = (opened.embedded.clone(), opened.found);
    let (store, kv_log, writer, keeper) = opened.keep();
    Ok(Scene {
        log,
        kv_log,
        writer,
        store,
        keeper,
        found,
    })
}

impl Scene {
    fn run(&self, now_ms: u64, db: u16, line: &str) {
        let (spec, args) = parsed(line);
        let mut runner = self.store.runner(now_ms, now_ms);
        let _ = runner.run(spec, db, &args, &mut Reply::new(Proto::Resp2));
    }

    /// Steps of everything until a snapshot that was asked for has ended; whether it counts.
    fn save(&mut self, now_ms: u64) -> bool {
        let asked = self.kv_log.snapshots().ask();
        for at in 0..100_000 {
            self.keeper.step(now(now_ms + at / 100 - START));
            step(&mut self.writer, now_ms + at / 100 - START);
            self.kv_log.update();
            let outcome = self.kv_log.snapshots().status().outcome(asked);
            if let Some(counts) = outcome {
                return counts;
            }
        }
        panic!("the snapshot finds no end");
    }
}

/// What makes large values, and what changes them.
const MAKE: [&str; 7] = [
    "RPUSH lb",
    "HSET hb",
    "SADD sb",
    "ZADD zb",
    "SETRANGE b",
    "RPUSH lc",
    "XADD eb",
];

fn make(scene: &Scene, now_ms: u64, rng: &mut Rng) {
    for which in MAKE {
        if rng.bool() {
            continue;
        }
        let n = rng.usize(260..2400);
        if which == "XADD eb" {
            make_stream(scene, now_ms, n / 8);
            continue;
        }
        let line = match which {
            "SETRANGE b" => format!("{which} {} x", 200_000 + 100 * n),
            "HSET hb" => words(which, n / 4, |i| format!("f{i} {}", i % 7)),
            "ZADD zb" => words(which, n / 4, |i| format!("{} m{i}", i % 50)),
            "SADD sb" => words(which, n / 3, |i| format!("m{i}")),
            _ => words(which, n, |i| (i % 1000).to_string()),
        };
        scene.run(now_ms, 0, &line);
    }
}

/// A stream of long entries and short ones, of which two groups were given some.
fn make_stream(scene: &Scene, now_ms: u64, n: usize) {
    for at in 1..=n {
        let long = "v".repeat(if at % 5 == 0 { 3 } else { 700 });
        scene.run(now_ms, 0, &format!("XADD eb {at}-0 f{} {long}", at % 2));
    }
    for group in 0..2 {
        scene.run(now_ms, 0, &format!("XGROUP CREATE eb g{group} 0"));
        for consumer in 0..2 {
            let count = n / (2 + group);
            let read = format!("XREADGROUP GROUP g{group} c{consumer} COUNT {count} STREAMS eb >");
            scene.run(now_ms, 0, &read);
        }
    }
}

fn words(first: &str, n: usize, word: impl Fn(usize) -> String) -> String {
    let mut line = first.to_owned();
    for i in 0..n {
        line.push(' ');
        line += &word(i);
    }
    line
}

/// A command about something large, or about anything.
fn any_large(rng: &mut Rng) -> String {
    let n = rng.usize(..700);
    let to = ["x", "lb", "lc", "hb", "zb", "eb", "k1"][rng.usize(..7)];
    let of = ["lb", "hb", "sb", "zb", "b", "lc", "eb", "x"][rng.usize(..8)];
    let (group, consumer) = (rng.u8(..3), rng.u8(..3));
    match rng.u8(..44) {
        33 | 34 => format!("XADD eb * f tail{n}"),
        35 => format!("XADD eb MAXLEN {} * f0 tail{n}", n / 2),
        36 => words("XDEL eb", 20, |i| format!("{}-0", n / 2 + i)),
        37 => format!("XTRIM eb MINID {}", n / 3),
        38 => format!(
            "XREADGROUP GROUP g{group} c{consumer} COUNT {} STREAMS eb >",
            1 + n % 90
        ),
        39 => format!(
            "XREADGROUP GROUP g{group} c{consumer} COUNT {} STREAMS eb {}",
            1 + n % 20,
            n / 4
        ),
        40 => words(&format!("XACK eb g{group}"), 30, |i| {
            format!("{}-0", n / 3 + i)
        }),
        41 => format!(
            "XAUTOCLAIM eb g{group} c{consumer} 0 {} COUNT {}",
            n / 3,
            1 + n % 30
        ),
        42 => format!("XGROUP CREATE eb g{group} {n} MKSTREAM"),
        43 if n < 300 => format!("XGROUP DESTROY eb g{group}"),
        0 => format!("LPUSH lb a{n} b{n}"),
        1 => format!("RPUSH lb a{n}"),
        2 => format!("LPOP lb {}", 1 + n % 200),
        3 => format!("RPOP lb {}", 1 + n % 200),
        4 => format!("LSET lb {} v{n}", 3 * n),
        5 => format!("LINSERT lb BEFORE {n} i{n}"),
        6 => format!("LREM lb 0 {n}"),
        7 => format!("LTRIM lb {} -{}", n / 3, 1 + n / 4),
        8 => "RPOPLPUSH lb lc".to_owned(),
        9 | 10 => format!("HSET hb f{n} changed g{n} new"),
        11 => words("HDEL hb", 60, |i| format!("f{}", n + i)),
        12 => format!("HINCRBY hb f{n} 3"),
        13 | 14 => format!("SADD sb m{n} n{n}"),
        15 => words("SREM sb", 60, |i| format!("m{}", n + i)),
        16 => format!("SPOP sb {}", 1 + n % 50),
        17 | 18 => format!("ZADD zb {n} m{n} 1 o{n}"),
        19 => words("ZREM zb", 60, |i| format!("m{}", n + i)),
        20 => format!("ZPOPMIN zb {}", 1 + n % 90),
        21 => format!("ZINCRBY zb 2 m{n}"),
        22 => format!("APPEND b tail{n}"),
        23 => format!("SETRANGE b {n} here"),
        24 => format!("RENAME {of} {to}"),
        25 => format!("COPY {of} {to} REPLACE"),
        26 => format!("MOVE {of} 1"),
        27 => format!("DEL {of}"),
        28 => format!("SET {of} v"),
        29 => format!("PEXPIRE {of} {}", 1 + n % 30),
        30 if n < 30 => "FLUSHDB".into(),
        31 if n < 120 => "SWAPDB 0 1".into(),
        32 if n < 60 => "FLUSHALL".into(),
        _ => any(rng),
    }
}

/// What a snapshot alone has.
fn alone(disk: &SimDisk, log: u64, seed: u64) -> Result<(Store, u64), String> {
    let store = Store::new(settings(seed));
    let found = load(
        &disk.fork(),
        log,
        Range { first: 0, next: 0 },
        &store,
        START,
        &mut |_, _| Continue(()),
    );
    let found = found.map_err(|error| error.to_string())?;
    let found = found.ok_or("there is no snapshot")?;
    Ok((store, found.header.position))
}

/// Changes while snapshots are made; every one is what the store was when it began, and what is
/// recovered is what was there. What is wrong, if anything.
pub(crate) fn any_moment(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    let rng = &mut Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let mut now_ms = START;
    let mut scene = open(Policy::Sync, &disk, settings(seed), mistakes, START)?;
    make(&scene, now_ms, rng);
    let mut moments: Vec<(u64, Vec<String>)> = Vec::new();
    let mut checked = 0;
    for _ in 0..rng.usize(60..400) {
        match rng.u8(..24) {
            0 => now_ms += rng.u64(..6),
            1 => make(&scene, now_ms, rng),
            2 => {
                scene.kv_log.snapshots().ask();
            }
            3 => drop(scene.store.expire(now_ms)),
            4..9 => drop(step(&mut scene.writer, now_ms - START)),
            9..16 => {
                let was_busy = scene.keeper.is_busy();
                let asked = scene.kv_log.snapshots().status().is_scheduled();
                if !was_busy && asked {
                    // It will begin now.
                    moments.push((scene.kv_log.position(), dump(&scene.store, 0)));
                }
                scene.keeper.step(now(now_ms - START));
                let status = scene.kv_log.snapshots().status();
                if status.made > checked {
                    checked = status.made;
                    check(&scene, &disk, &moments, seed)?;
                }
            }
            _ => {
                let db = u16::from(rng.u8(..8) == 0);
                scene.run(now_ms, db, &any_large(rng));
            }
        }
        scene.kv_log.update();
    }
    if !scene.save(now_ms) {
        return Err(format!("{:?}", scene.kv_log.snapshots().status().failure));
    }
    check(
        &scene,
        &disk,
        &[(scene.kv_log.position(), dump(&scene.store, 0))],
        seed,
    )?;
    // Entries are of one epoch again, and the next snapshot is as good.
    if !scene.save(now_ms) {
        return Err("the second has failed".into());
    }
    check(
        &scene,
        &disk,
        &[(scene.kv_log.position(), dump(&scene.store, 0))],
        seed,
    )?;
    for _ in 0..rng.usize(..40) {
        scene.run(now_ms, 0, &any_large(rng));
    }
    for _ in 0..50 {
        step(&mut scene.writer, now_ms - START);
    }
    let before = dump(&scene.store, now_ms);
    let again = open(
        Policy::Sync,
        &disk.crash_with(Survival::Nothing),
        settings(seed + 1),
        Mistakes::default(),
        now_ms,
    )?;
    if again.found.is_none() {
        return Err("the snapshot was not used".into());
    }
    differs(&before, &dump(&again.store, now_ms), "recovered")
}

fn check(
    scene: &Scene,
    disk: &SimDisk,
    moments: &[(u64, Vec<String>)],
    seed: u64,
) -> Result<(), String> {
    let (store, position) = alone(disk, scene.log.identity(), seed + 7)?;
    let moment = moments.iter().rev().find(|(at, _)| *at == position);
    let (_, expected) = moment.ok_or(format!("no snapshot began at {position}"))?;
    differs(expected, &dump(&store, 0), "in the snapshot")
}

fn differs(expected: &[String], found: &[String], what: &str) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let lost = expected.iter().filter(|x| !found.contains(x));
    let made = found.iter().filter(|x| !expected.contains(x));
    let short = |all: Vec<&String>| -> Vec<String> {
        all.iter().map(|text| format!("{text:.300}")).collect()
    };
    Err(format!(
        "{:#?} was {what} {:#?}",
        short(lost.collect()),
        short(made.collect())
    ))
}

#[test]
fn a_snapshot_at_any_moment_is_the_store_at_its_ticket() {
    for_each_seed(400, |seed| any_moment(seed, Mistakes::default()));
}

/// Lives with snapshots, each of which ends by an accident at any step; what was committed is there.
pub(crate) fn accidents(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    let rng = &mut Rng::with_seed(seed);
    let policy = match rng.u8(..4) {
        0 => Policy::Os,
        1 => Policy::Interval(Duration::from_millis(20)),
        _ => Policy::Sync,
    };
    let mut disk = SimDisk::new(rng.u64(..));
    let mut now_ms = START;
    // What the store was behind each position that anybody may be taken back to.
    let mut states: Vec<(u64, Vec<String>)> = vec![(0, Vec::new())];
    let mut least = 0;
    for life in 0..4 {
        let opened = open(policy, &disk, settings(seed + life), mistakes, now_ms);
        let mut scene = opened.map_err(|what| format!("life {life}: {what}"))?;
        let found = scene.kv_log.position();
        let state = states.iter().rev().find(|(at, _)| *at == found);
        let (_, expected) = state.ok_or(format!("life {life}: nothing ended at {found}"))?;
        differs(expected, &dump(&scene.store, 0), "recovered")?;
        if found < least {
            return Err(format!("{least} was committed, and {found} is there"));
        }
        states.retain(|(at, _)| *at <= found);
        match rng.u8(..8) {
            0..4 => disk.set_faults(Faults {
                power: Some(rng.u64(1..120)),
                ..Faults::default()
            }),
            4 => disk.set_faults(Faults {
                sync: Some(rng.u64(1..30)),
                ..Faults::default()
            }),
            5 => disk.set_faults(Faults {
                sync_directory: Some(rng.u64(1..6)),
                ..Faults::default()
            }),
            _ => {}
        }
        if rng.u8(..4) == 0 {
            disk.set_capacity(disk.used() + rng.u64(0..600_000));
        }
        if rng.u8(..4) == 0 {
            make(&scene, now_ms, rng);
        }
        states.push((scene.kv_log.position(), dump(&scene.store, 0)));
        for _ in 0..rng.usize(20..200) {
            now_ms += rng.u64(..4);
            match rng.u8(..16) {
                0 => drop(scene.kv_log.snapshots().ask()),
                1..6 => drop(step(&mut scene.writer, now_ms - START)),
                6..11 => drop(scene.keeper.step(now(now_ms - START))),
                _ => {
                    // One unit, so that every position has its state; long ones, so that segments end.
                    let line = match rng.u8(..4) {
                        0 => format!("SET junk{} {}", rng.u8(..3), "x".repeat(14_000)),
                        _ => any_large(rng),
                    };
                    scene.run(now_ms, 0, &line);
                    states.push((scene.kv_log.position(), dump(&scene.store, 0)));
                }
            }
            scene.kv_log.update();
            if !disk.has_power() {
                break;
            }
        }
        let progress = scene.log.progress();
        least = scene_least(&scene, progress.durable.0);
        disk = if rng.bool() {
            disk.crash()
        } else {
            disk.kill()
        };
        disk.set_capacity(u64::MAX);
    }
    Ok(())
}

/// The position of the last unit that has this ticket or an earlier one: known only for all of them.
fn scene_least(scene: &Scene, durable: u64) -> u64 {
    if durable >= scene.store.last_ticket() && scene.store.last_ticket() > 0 {
        scene.kv_log.position()
    } else {
        0
    }
}

#[test]
fn whatever_happens_while_a_snapshot_is_made_nothing_is_lost() {
    for_each_seed(800, |seed| accidents(seed, Mistakes::default()));
}

/// The `n`th sync of the directory fails while a snapshot is made, perhaps the one that was to make its name durable, and those
/// that come later say nothing about it: the name is there until the power goes. The next start makes it durable
/// before it cuts the log.
pub(crate) fn lost_name(n: u64, mistakes: Mistakes) -> Result<(), String> {
    let (disk, settings) = (SimDisk::new(n), settings(n));
    let open = |disk: &SimDisk| open(Policy::Sync, disk, settings.clone(), mistakes, START);
    let mut scene = open(&disk)?;
    for at in 0..20 {
        let line = format!("SET junk{} {}", at % 3, "x".repeat(14_000));
        scene.run(START, 0, &line);
        for _ in 0..4 {
            step(&mut scene.writer, at);
        }
    }
    let state = dump(&scene.store, 0);
    disk.set_faults(Faults {
        sync_directory: Some(n),
        ..Faults::default()
    });
    scene.save(START);
    let disk = disk.kill();
    let mut scene = open(&disk)?;
    for at in 0..50 {
        scene.keeper.step(now(at));
        step(&mut scene.writer, at);
    }
    let scene = open(&disk.crash_with(Survival::Nothing))?;
    differs(&state, &dump(&scene.store, 0), "recovered")
}

#[test]
fn the_log_is_not_cut_behind_a_snapshot_whose_name_may_be_lost() {
    for n in 1..12 {
        lost_name(n, Mistakes::default()).unwrap_or_else(|why| panic!("sync {n}: {why}"));
    }
}

#[test]
fn libraries_of_functions_are_in_the_log_and_in_snapshots() {
    let function = tidewire_kv::commands::find_logged(b"function").unwrap();
    let names = |scene: &Scene| -> Vec<String> {
        let shown = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let all = scene.store.libraries();
        all.iter()
            .map(|library| shown(&library.name) + "=" + &shown(&library.code))
            .collect()
    };
    let (disk, settings) = (SimDisk::new(3), settings(3));
    let open = |disk: &SimDisk| {
        let none = Mistakes::default();
        open(Policy::Sync, disk, settings.clone(), none, START).unwrap()
    };
    let mut scene = open(&disk);
    let change = |scene: &mut Scene, args: &[&[u8]]| {
        let mut reply = Reply::new(Proto::Resp2);
        let _ = scene
            .store
            .runner(START, 1)
            .run(function, 0, args, &mut reply);
        assert_eq!(reply.bytes(), b"+OK\r\n", "{args:?}");
        for at in 0..8 {
            step(&mut scene.writer, at);
        }
    };
    change(&mut scene, &[b"function", b"put", b"a", b"one"]);
    change(&mut scene, &[b"function", b"put", b"b", b"two"]);
    scene.run(START, 0, "SET k v");
    // From the log alone.
    let disk = disk.kill();
    let mut scene = open(&disk);
    assert_eq!(names(&scene), ["a=one", "b=two"]);
    change(&mut scene, &[b"function", b"put", b"a", b"other"]);
    assert!(scene.save(START));
    change(&mut scene, &[b"function", b"remove", b"b"]);
    change(&mut scene, &[b"function", b"put", b"c", b"three"]);
    let before = names(&scene);
    assert_eq!(before, ["a=other", "c=three"]);
    // From a snapshot and the log behind it.
    let disk = disk.kill();
    let mut scene = open(&disk);
    assert!(scene.found.is_some());
    assert_eq!(names(&scene), before);
    // FLUSHALL leaves them, and they leave nothing when they go.
    scene.run(START, 0, "FLUSHALL");
    assert!(scene.save(START));
    let mut scene = open(&disk.kill());
    assert_eq!(names(&scene), before);
    change(&mut scene, &[b"function", b"clear"]);
    assert!(scene.save(START));
    assert_eq!(names(&scene), [""; 0]);
}

/// What is left of it would hold as much of the disk as the store has in memory.
#[test]
fn nothing_is_left_of_a_snapshot_that_has_failed() {
    let faults = |rename, write| Faults {
        rename,
        write,
        ..Faults::default()
    };
    let renames = [faults(Some(1), None)];
    for faults in (1..8).map(|n| faults(None, Some(n))).chain(renames) {
        let disk = SimDisk::new(1);
        let opened = open(Policy::Sync, &disk, settings(1), Mistakes::default(), START);
        let mut scene = opened.unwrap();
        for n in 0..8 {
            scene.run(START, 0, &format!("SETRANGE long{n} 200000 x"));
            for at in 0..4 {
                step(&mut scene.writer, at);
            }
        }
        disk.set_faults(faults);
        let saved = scene.save(START);
        assert!(!saved || faults.write.is_some(), "{faults:?}");
        let names = disk.names();
        assert!(
            !names.iter().any(|name| name == "snapshot.part"),
            "{faults:?}: {names:?}"
        );
    }
}

/// They are shared and not copied when they are handed out, but a change copies them: memory that nobody
/// held back would be that of all long strings.
#[test]
fn long_strings_that_change_are_held_back_as_all_that_was_handed_out() {
    let (disk, now_ms) = (SimDisk::new(1), START);
    let settings = settings(1);
    let mut scene = open(Policy::Os, &disk, settings, Mistakes::default(), now_ms).unwrap();
    for n in 0..8 {
        scene.run(now_ms, 0, &format!("SETRANGE long{n} 500000 x"));
        step(&mut scene.writer, 0);
    }
    scene.store.set_handed_out_max(1 << 20);
    let asked = scene.kv_log.snapshots().ask();
    scene.keeper.step(now(0));
    let change = |n: usize| {
        let (spec, args) = parsed("SETRANGE long0 1 y");
        let key = format!("long{n}");
        let args = [args[0], key.as_bytes(), args[2], args[3]];
        let mut reply = Reply::new(Proto::Resp2);
        let _ = scene
            .store
            .runner(now_ms, 1)
            .run(spec, 0, &args, &mut reply);
        reply.bytes().starts_with(b":")
    };
    let changed = (0..8).take_while(|n| change(*n)).count();
    assert_eq!((changed, scene.store.handed_out()), (3, 3 * 500_001));
    // They go on when those are written.
    for at in 0..10_000 {
        scene.keeper.step(now(at));
        step(&mut scene.writer, at);
        scene.kv_log.update();
    }
    let outcome = scene.kv_log.snapshots().status().outcome(asked);
    assert_eq!((outcome, scene.store.handed_out()), (Some(true), 0));
    assert!(change(3));
}

/// A step holds up a loop that wants the same processor, and its locks those that want the same shard.
#[test]
fn a_step_of_a_snapshot_is_small_however_many_keys_there_are() {
    const KEYS: u64 = 20_000;
    let (disk, now_ms) = (SimDisk::new(1), START);
    let settings = store::Settings {
        shards: 1,
        ..settings(1)
    };
    let mut scene = open(Policy::Os, &disk, settings, Mistakes::default(), now_ms).unwrap();
    for n in 0..KEYS {
        scene.run(now_ms, 0, &format!("SET key:{n} {n}"));
        step(&mut scene.writer, 0);
    }
    let asked = scene.kv_log.snapshots().ask();
    let (mut steps, mut rests) = (0, 0);
    while scene.kv_log.snapshots().status().outcome(asked).is_none() {
        scene.keeper.step(now(0));
        step(&mut scene.writer, 0);
        scene.kv_log.update();
        rests += u64::from(scene.keeper.may_rest());
        steps += 1;
        assert!(steps < KEYS, "it finds no end");
    }
    // At most 128 buckets in a step; how many keys are in one varies.
    assert!(steps > KEYS / 1024, "{steps} steps");
    assert!(rests + 8 > steps, "{rests} rests in {steps} steps");
    // Not while those who change something may soon have to wait.
    scene.run(now_ms, 0, "SETRANGE long 500000 x");
    scene.store.set_handed_out_max(600_000);
    scene.kv_log.snapshots().ask();
    scene.keeper.step(now(0));
    assert!(scene.keeper.may_rest());
    scene.run(now_ms, 0, "SETRANGE long 1 y");
    assert!(!scene.keeper.may_rest());
}

/// What is free on the disk, from here on.
fn leave_free(disk: &SimDisk, bytes: u64) {
    disk.set_capacity(disk.used() + bytes);
}

/// Memory has room to grow, tables and what is not freed yet: a snapshot has none of it.
#[test]
fn room_for_a_snapshot_is_what_it_takes() {
    let disk = SimDisk::new(1);
    let none = Mistakes::default();
    let mut scene = open(Policy::Sync, &disk, settings(1), none, START).unwrap();
    // More than the log would lend.
    for n in 0..6_000 {
        scene.run(START, 0, &format!("SET key:{n} {}", "x".repeat(40)));
        if n % 100 == 0 {
            settle(&mut scene.writer, 0);
            scene.kv_log.update();
        }
    }
    settle(&mut scene.writer, 0);
    scene.kv_log.update();
    // The log has to go on beside it, with so much as the refusal says.
    leave_free(&disk, 0);
    assert!(!scene.save(START));
    let log = room_for_the_log(&scene);
    let free = scene.kv_log.logged() + log + (12 << 10);
    let memory = scene.store.used_memory();
    assert!(memory + log > free, "{memory} bytes of memory, {free} free");
    leave_free(&disk, free);
    assert!(scene.save(START), "{:?}", scene.kv_log.snapshots().status());
}

/// Bytes that the last refusal has wanted for the log.
fn room_for_the_log(scene: &Scene) -> u64 {
    let failure = scene.kv_log.snapshots().status().failure.unwrap();
    let log = failure.split_once("for it and ").and_then(|(_, rest)| {
        let (log, _) = rest.split_once(" bytes for the log")?;
        log.parse().ok()
    });
    log.unwrap_or_else(|| panic!("{failure}"))
}

/// The log has filled the disk but for the next snapshot, and what it says over and over is little: changes wait for that
/// snapshot, which is made without being asked for, and go on behind it.
#[test]
fn a_log_that_has_filled_the_disk_is_cut() {
    let disk = SimDisk::new(1);
    let none = Mistakes::default();
    let mut scene = open(Policy::Sync, &disk, settings(1), none, START).unwrap();
    // Ten segments: where a segment is a large part of the disk, the next snapshot has to have room for all of it.
    leave_free(&disk, 2 << 20);
    let set = format!("SET k {}", "x".repeat(5_000));
    for _ in 0..1_000 {
        scene.run(START, 0, &set);
        settle(&mut scene.writer, 0);
        scene.kv_log.update();
    }
    assert!(scene.kv_log.is_full(), "{} bytes are used", disk.used());
    assert_eq!(scene.kv_log.refused_full(), 0, "it waits");
    assert!(scene.kv_log.snapshots().waits() > 0);
    let free = tidewire_log::disk::Disk::free(&disk).unwrap();
    assert!(free < 3 << 19, "{free} bytes");
    assert!(free > scene.store.used_memory(), "{free} bytes");
    // As the command has it: nobody asks.
    scene.kv_log.snapshots().set_growth(1 << 30);
    for ms in (0..50_000).step_by(50) {
        scene.keeper.step(now(ms));
        step(&mut scene.writer, ms);
        scene.kv_log.update();
    }
    let status = scene.kv_log.snapshots().status();
    assert_eq!(status.made, 1, "{status:?}");
    let free = tidewire_log::disk::Disk::free(&disk).unwrap();
    assert!(!scene.kv_log.is_full(), "{free} bytes are free");
    let before = scene.kv_log.units();
    scene.run(START, 0, "DEL k");
    assert_eq!(scene.kv_log.units(), before + 1);
}

/// What it says can be acted on: what is needed, and what there is.
#[test]
fn a_snapshot_without_room_says_what_is_missing() {
    let disk = SimDisk::new(1);
    let none = Mistakes::default();
    let mut scene = open(Policy::Sync, &disk, settings(1), none, START).unwrap();
    // More than the log would lend.
    for n in 0..60 {
        scene.run(START, 0, &format!("SET k{n} {}", "x".repeat(5_000)));
        settle(&mut scene.writer, 0);
        scene.kv_log.update();
    }
    leave_free(&disk, 8 << 10);
    assert!(!scene.save(START));
    let failure = scene.kv_log.snapshots().status().failure.unwrap();
    let logged = scene.kv_log.logged();
    let about = failure
        .split_once("about ")
        .and_then(|(_, rest)| rest.split_once(" bytes"));
    let about: u64 = about
        .unwrap_or_else(|| panic!("{failure}"))
        .0
        .parse()
        .unwrap();
    assert!(
        (logged - logged / 20..=logged).contains(&about),
        "{logged} logged: {failure}"
    );
    assert!(room_for_the_log(&scene) > 0);
    assert!(failure.contains("and 8192 are."), "{failure}");
}

/// A server without its network whose keeper and writer go on until nothing is left to do.
fn go_on(scene: &mut Scene, ms: &mut u64) {
    for _ in 0..40 {
        *ms += 50;
        scene.keeper.step(now(*ms));
        settle(&mut scene.writer, *ms);
        scene.kv_log.update();
    }
}

/// The first word of the reply, when the command has not to wait any more.
fn ask(scene: &mut Scene, ms: &mut u64, line: &str) -> String {
    let (spec, args) = parsed(line);
    for _ in 0..2_000 {
        let mut reply = Reply::new(Proto::Resp2);
        let mut runner = scene.store.runner(START, *ms);
        let _ = runner.run(spec, 0, &args, &mut reply);
        drop(runner);
        *ms += 5;
        settle(&mut scene.writer, *ms);
        scene.kv_log.update();
        scene.keeper.step(now(*ms));
        let text = String::from_utf8_lossy(reply.bytes()).into_owned();
        let word = text.split([' ', '\r']).next().unwrap_or_default();
        if word != "-TRYAGAIN" {
            return word.to_owned();
        }
    }
    panic!("{line:.40} waits for ever");
}

/// New keys until there is no room for more; how many.
fn fill(scene: &mut Scene, ms: &mut u64) -> usize {
    let value = "x".repeat(9_000);
    for n in 0..10_000 {
        match &ask(scene, ms, &format!("SET fill:{n} {value}"))[..] {
            "+OK" => {}
            "-MISCONF" => return n,
            other => panic!("{other}"),
        }
    }
    panic!("the disk takes everything");
}

/// What there are always room for are removals and the next snapshot; with them the store heals by itself.
#[test]
fn a_full_disk_takes_removals_and_heals() {
    for seed in 0..24 {
        let disk = SimDisk::new(seed);
        let none = Mistakes::default();
        disk.set_capacity((6 + 3 * (seed % 3)) << 20);
        let mut scene = open(Policy::Sync, &disk, settings(seed), none, START).unwrap();
        scene.kv_log.snapshots().set_growth(1 << 30);
        let mut ms = 1;
        let keys = fill(&mut scene, &mut ms);
        // A quarter of the disk at least, and not all of it.
        let bytes = 9_000 * keys as u64;
        assert!(
            bytes > disk.used() / 5,
            "seed {seed}: {bytes} of {} bytes",
            disk.used()
        );
        let removals = [
            "DEL fill:0",
            "UNLINK fill:1",
            "EXPIRE fill:2 100",
            "GETDEL fill:3",
            "PEXPIREAT fill:4 1",
        ];
        for line in removals {
            let reply = ask(&mut scene, &mut ms, line);
            assert!(!reply.starts_with('-'), "seed {seed}: {line}: {reply}");
        }
        // Also where another process has taken the rest of the disk.
        if seed % 2 == 0 {
            leave_free(&disk, 0);
            let reply = ask(&mut scene, &mut ms, "DEL fill:5");
            assert_eq!(reply, ":1", "seed {seed}");
            disk.set_capacity((6 + 3 * (seed % 3)) << 20);
        }
        let flushes = seed % 3 == 0;
        if flushes {
            assert_eq!(ask(&mut scene, &mut ms, "FLUSHALL"), "+OK", "seed {seed}");
        } else {
            for n in 6..keys {
                let reply = ask(&mut scene, &mut ms, &format!("DEL fill:{n}"));
                assert_eq!(reply, ":1", "seed {seed}: {n} of {keys}");
            }
        }
        go_on(&mut scene, &mut ms);
        let long = format!("SET back {}", "y".repeat(9_000));
        assert_eq!(ask(&mut scene, &mut ms, &long), "+OK", "seed {seed}");
        assert!(
            fill(&mut scene, &mut ms) * 2 > keys,
            "seed {seed}: there is less room than before"
        );
        let before = dump(&scene.store, 0);
        let disk = match seed % 4 {
            0 => disk.kill(),
            _ => disk.crash_with(Survival::Nothing),
        };
        let again = open(Policy::Sync, &disk, settings(seed + 1), none, START).unwrap();
        differs(&before, &dump(&again.store, 0), "recovered").unwrap();
    }
}

/// Overwriting goes on for ever as long as what lives takes at most a quarter of the disk, whatever the growth is that is set.
#[test]
fn overwriting_a_quarter_of_the_disk_is_never_refused() {
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let capacity = (6 + 3 * (seed % 3)) << 20;
        disk.set_capacity(capacity);
        let mut scene = open(
            Policy::Sync,
            &disk,
            settings(seed),
            Mistakes::default(),
            START,
        )
        .unwrap();
        let growth = if seed % 2 == 0 { 1 << 30 } else { 512 << 10 };
        scene.kv_log.snapshots().set_growth(growth);
        let mut ms = 1;
        let (keys, length) = (200, capacity / 4 / 200 - 60);
        let mut written = 0;
        while written < 12 * capacity {
            let value = "v".repeat(rng.u64(length / 2..=length) as usize);
            written += value.len() as u64;
            let reply = ask(
                &mut scene,
                &mut ms,
                &format!("SET key:{} {value}", rng.u64(..keys)),
            );
            assert_eq!(reply, "+OK", "seed {seed}: after {written} bytes");
        }
        assert_eq!(scene.kv_log.refused_full(), 0);
        let before = dump(&scene.store, 0);
        let again = open(
            Policy::Sync,
            &disk.crash_with(Survival::Nothing),
            settings(seed + 1),
            Mistakes::default(),
            START,
        );
        differs(&before, &dump(&again.unwrap().store, 0), "recovered").unwrap();
    }
}

/// What has no room waits for the snapshot, and one that a disk filled by another process has no room for is not waited for.
#[test]
fn without_room_for_a_snapshot_changes_are_refused_at_once() {
    let disk = SimDisk::new(1);
    let mut scene = open(Policy::Sync, &disk, settings(1), Mistakes::default(), START).unwrap();
    scene.kv_log.snapshots().set_growth(1 << 30);
    let mut ms = 1;
    let value = "x".repeat(9_000);
    for n in 0..40 {
        assert_eq!(
            ask(&mut scene, &mut ms, &format!("SET k{n} {value}")),
            "+OK"
        );
    }
    leave_free(&disk, 0);
    let refused =
        (0..100).find(|n| ask(&mut scene, &mut ms, &format!("SET more{n} {value}")) != "+OK");
    assert!(refused.is_some(), "the disk takes everything");
    assert!(scene.kv_log.refused_full() > 0);
    assert_eq!(scene.kv_log.snapshots().status().made, 0);
    // With what is held for removals it can all be emptied.
    assert_eq!(ask(&mut scene, &mut ms, "FLUSHALL"), "+OK");
    go_on(&mut scene, &mut ms);
    assert_eq!(scene.kv_log.snapshots().status().made, 1);
    disk.set_capacity(u64::MAX);
    go_on(&mut scene, &mut ms);
    assert_eq!(
        ask(&mut scene, &mut ms, &format!("SET more {value}")),
        "+OK"
    );
}
