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

use crate::disk::{dump, now, open_at, settings, step};
use crate::replay::{START, any, parsed};

/// A server without its network.
pub(crate) struct Scene {
    log: Arc<EmbeddedLog<SimDisk>>,
    pub(crate) kv_log: Arc<KvLog>,
    pub(crate) writer: Writer<SimDisk>,
    pub(crate) store: Arc<Store>,
    pub(crate) keeper: Keeper<SimDisk>,
    found: Option<Found>,
}

pub(crate) fn open(
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
    pub(crate) fn run(&self, now_ms: u64, db: u16, line: &str) {
        let (spec, args) = parsed(line);
        let mut runner = self.store.runner(now_ms, now_ms);
        let _ = runner.run(spec, db, &args, &mut Reply::new(Proto::Resp2));
    }

    /// Steps of everything until a snapshot that was asked for has ended; whether it counts.
    pub(crate) fn save(&mut self, now_ms: u64) -> bool {
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
                    // The snapshot will begin now.
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

pub(crate) fn differs(expected: &[String], found: &[String], what: &str) -> Result<(), String> {
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
    // What the store was behind each position that a recovery may go back to.
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

/// The `n`th sync of the directory fails while a snapshot is made, perhaps the one that was to make
/// its name durable, and later ones say nothing about it: the name is there until the power goes.
/// The next start makes it durable before it cuts the log.
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

/// Long strings are shared and not copied when they are handed out, but a change copies them:
/// unbounded, that would take the memory of all long strings.
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
    // The changes go on when these are written.
    for at in 0..10_000 {
        scene.keeper.step(now(at));
        step(&mut scene.writer, at);
        scene.kv_log.update();
    }
    let outcome = scene.kv_log.snapshots().status().outcome(asked);
    assert_eq!((outcome, scene.store.handed_out()), (Some(true), 0));
    assert!(change(3));
}

/// A step holds up a loop that wants the same processor, and its locks delay commands that want the
/// shard.
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
    // No rest while changes may soon have to wait.
    scene.run(now_ms, 0, "SETRANGE long 500000 x");
    scene.store.set_handed_out_max(600_000);
    scene.kv_log.snapshots().ask();
    scene.keeper.step(now(0));
    assert!(scene.keeper.may_rest());
    scene.run(now_ms, 0, "SETRANGE long 1 y");
    assert!(!scene.keeper.may_rest());
}

/// A script keeps its keys while the snapshot is due: it is made when the script has ended. As a failure it would be tried
/// again a minute later, and on a full disk changes would be refused until then.
#[test]
fn one_that_is_due_while_a_script_runs_is_made_behind_it() {
    let (disk, now_ms) = (SimDisk::new(1), START);
    let mut scene = open(Policy::Os, &disk, settings(1), Mistakes::default(), now_ms).unwrap();
    for n in 0..100 {
        scene.run(now_ms, 0, &format!("SET key:{n} {}", "x".repeat(500)));
        step(&mut scene.writer, 0);
    }
    scene.kv_log.snapshots().set_growth(1);
    let (store, kv_log) = (scene.store.clone(), scene.kv_log.clone());
    let made = || kv_log.snapshots().status().made;
    let (spec, args) = parsed("SET a 1");
    let mut script = store.runner(now_ms, 1);
    assert!(script.begin(std::iter::once((spec, &args[..])), Vec::new()));
    script.leave();
    let steps = |scene: &mut Scene, at: std::ops::Range<u64>| {
        for at in at {
            scene.keeper.step(now(at));
            step(&mut scene.writer, at);
            kv_log.update();
        }
    };
    steps(&mut scene, 0..100);
    assert_eq!((made(), kv_log.snapshots().status().failure), (0, None));
    script.end();
    drop(script);
    steps(&mut scene, 100..1_000);
    assert_eq!((made(), kv_log.snapshots().status().failure), (1, None));
}
