//! A durable store on a full disk, simulated: room for the next snapshot is kept free, removals have a reserve, and the store heals by
//! itself.

use std::collections::BTreeSet;

use fastrand::Rng;
use tidewire_kv::commands::all;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::Mistakes;
use tidewire_log::Policy;
use tidewire_log::disk::sim::{SimDisk, Survival};

use crate::by_hand::World;
use crate::disk::{dump, now, settings, settle, step};
use crate::replay::{START, parsed};
use crate::snapshots::{Scene, differs, open};
use crate::wire::{command, of_words};

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
    let (scene, disk) = cut_behind_a_snapshot(2 << 20);
    drop((scene, disk));
}

/// Where a segment is two fifths of the disk, the next segment and what is held for removals are most of what is left.
#[test]
fn a_log_whose_segments_are_a_large_part_of_the_disk_is_cut() {
    for kib in [450, 500, 550, 600, 700, 800, 1_000, 1_300] {
        let (mut scene, disk) = cut_behind_a_snapshot(kib << 10);
        // The store is overwritten again, for ever.
        let set = format!("SET k {}", "y".repeat(5_000));
        let mut ms = 50_000;
        for n in 0..1_000 {
            let reply = ask(&mut scene, &mut ms, &set);
            assert_eq!(reply, "+OK", "{kib} KiB: after {n} changes");
        }
        let again = scene.kv_log.snapshots().status().made;
        assert!(again > 5, "{kib} KiB: {again} snapshots");
        drop(disk);
    }
}

/// A scene whose log has filled a disk with so many bytes free, and was cut behind a snapshot.
fn cut_behind_a_snapshot(bytes: u64) -> (Scene, SimDisk) {
    let disk = SimDisk::new(1);
    let none = Mistakes::default();
    let mut scene = open(Policy::Sync, &disk, settings(1), none, START).unwrap();
    leave_free(&disk, bytes);
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
    assert!(free < bytes - bytes / 5, "{free} of {bytes} bytes");
    assert!(free > scene.store.used_memory(), "{free} bytes");
    // As in the command: no client asks for a snapshot.
    scene.kv_log.snapshots().set_growth(1 << 30);
    for ms in (0..50_000).step_by(50) {
        scene.keeper.step(now(ms));
        step(&mut scene.writer, ms);
        scene.kv_log.update();
    }
    let status = scene.kv_log.snapshots().status();
    assert_eq!(status.made, 1, "{status:?}");
    let free = tidewire_log::disk::Disk::free(&disk).unwrap();
    assert!(!scene.kv_log.is_full(), "{free} of {bytes} bytes are free");
    let before = scene.kv_log.units();
    scene.run(START, 0, "DEL k");
    assert_eq!(scene.kv_log.units(), before + 1);
    (scene, disk)
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

/// What each is run on, and the command; all that have the flag are here.
const REMOVALS: &[(&str, &str)] = &[
    ("SET a x", "DEL a"),
    ("SET a x", "UNLINK a"),
    ("SET a x", "GETDEL a"),
    ("SET a x", "EXPIRE a 100"),
    ("SET a x", "PEXPIRE a 100000"),
    ("SET a x", "EXPIREAT a 4000000000"),
    ("SET a x", "PEXPIREAT a 4000000000000"),
    ("RPUSH l 1 2 3", "LPOP l"),
    ("RPUSH l 1 2 3", "RPOP l"),
    ("RPUSH l 1 2 3", "LREM l 0 2"),
    ("RPUSH l 1 2 3", "LTRIM l 1 1"),
    ("RPUSH l 1 2 3", "LMPOP 1 l LEFT"),
    ("RPUSH l 1 2 3", "BLPOP l 0"),
    ("RPUSH l 1 2 3", "BRPOP l 0"),
    ("RPUSH l 1 2 3", "BLMPOP 0 1 l LEFT"),
    ("SADD s 1 2 3", "SREM s 1"),
    ("SADD s 1 2 3", "SPOP s"),
    ("ZADD z 1 a 2 b 3 c", "ZREM z a"),
    ("ZADD z 1 a 2 b 3 c", "ZREMRANGEBYRANK z 0 0"),
    ("ZADD z 1 a 2 b 3 c", "ZREMRANGEBYSCORE z 0 1"),
    ("ZADD z 1 a 1 b 1 c", "ZREMRANGEBYLEX z [a [a"),
    ("ZADD z 1 a 2 b 3 c", "ZPOPMIN z"),
    ("ZADD z 1 a 2 b 3 c", "ZPOPMAX z"),
    ("ZADD z 1 a 2 b 3 c", "ZMPOP 1 z MIN"),
    ("ZADD z 1 a 2 b 3 c", "BZPOPMIN z 0"),
    ("ZADD z 1 a 2 b 3 c", "BZPOPMAX z 0"),
    ("ZADD z 1 a 2 b 3 c", "BZMPOP 0 1 z MIN"),
    ("HSET h a 1 b 2", "HDEL h a"),
    ("XADD x 1-1 a 1", "XDEL x 1-1"),
    ("XADD x 1-1 a 1", "XTRIM x MAXLEN 0"),
    ("XADD x 1-1 a 1", "XACK x g 1-1"),
    ("XADD x 1-1 a 1", "XGROUP DELCONSUMER x g c"),
    ("XADD x 1-1 a 1", "XGROUP DESTROY x g"),
    ("SET a x", "FLUSHDB"),
    ("SET a x", "FLUSHALL"),
];

/// A command without the flag is refused when it is needed most; one with it that makes more would use up what removals need.
#[test]
fn each_command_that_removes_is_taken_by_a_full_disk_and_no_other() {
    let named: BTreeSet<&str> = REMOVALS
        .iter()
        .map(|(_, line)| parsed(line).0.name)
        .collect();
    let flagged = all().filter(|spec| spec.removes(&[b"", b""]) || spec.name == "xgroup");
    let flagged: BTreeSet<&str> = flagged.map(|spec| spec.name).collect();
    assert_eq!(named, flagged);
    let create: [&[u8]; 2] = [b"xgroup", b"CREATE"];
    assert!(!parsed("XGROUP CREATE x g 0").0.removes(&create));
    for (before, line) in REMOVALS {
        let disk = SimDisk::new(1);
        disk.set_capacity(6 << 20);
        let none = Mistakes::default();
        let mut scene = open(Policy::Sync, &disk, settings(1), none, START).unwrap();
        scene.kv_log.snapshots().set_growth(1 << 30);
        let mut ms = 1;
        let made = ask(&mut scene, &mut ms, before);
        assert!(!made.starts_with('-'), "{before}: {made}");
        if before.starts_with("XADD") {
            for line in ["XGROUP CREATE x g 0", "XREADGROUP GROUP g c STREAMS x >"] {
                let made = ask(&mut scene, &mut ms, line);
                assert!(!made.starts_with('-'), "{line}: {made}");
            }
        }
        fill(&mut scene, &mut ms);
        // Small keys are written, too.
        let small = (0..10_000)
            .find(|n| ask(&mut scene, &mut ms, &format!("SET small:{n} x")) == "-MISCONF");
        assert!(small.is_some(), "the disk takes everything");
        for write in ["SET more x", "XGROUP CREATE new g 0 MKSTREAM"] {
            assert_eq!(ask(&mut scene, &mut ms, write), "-MISCONF", "{write}");
        }
        let units = scene.kv_log.units();
        let reply = ask(&mut scene, &mut ms, line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        assert!(scene.kv_log.units() != units, "{line} has done nothing");
    }
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
        // Another process may have taken the rest of the disk.
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

/// Transactions and scripts that make room run on a full disk as single commands do. A script is refused at its first command
/// that does not, and what it did before stays.
#[test]
fn transactions_and_scripts_that_make_room_are_taken_by_a_full_disk() {
    let mut world = World::new(Policy::Sync);
    let lines =
        |lines: &[&str]| -> Vec<u8> { lines.iter().flat_map(|line| command(line)).collect() };
    let eval = |script: &str| of_words(&["EVAL", script, "0"]);
    let load = "#!lua name=lib\nredis.register_function('gone',function(keys) return redis.call('del',unpack(keys)) end)";
    world.ask_on(0, &of_words(&["FUNCTION", "LOAD", load]));
    world.ask_on(0, &lines(&["SADD s 1 2 3 4 5 6 7 8", "SADD t 1 2 3"]));
    let value = "x".repeat(900);
    let fill: Vec<String> = (0..30).map(|n| format!("SET k{n} {value}")).collect();
    let fill: Vec<&str> = fill.iter().map(String::as_str).collect();
    world.ask_on(0, &lines(&fill));
    world.disk.set_capacity(world.disk.used());
    let long = "x".repeat(9_000);
    let refused = (0..1_000).find(|n| {
        let heard = world.ask_on(0, &lines(&[&format!("SET more{n} {long}")]));
        heard.starts_with("-MISCONF")
    });
    // Another process has taken the rest.
    world.disk.set_capacity(world.disk.used());
    assert!(refused.is_some(), "the disk takes everything");
    let refused = (0..1_000).find(|n| {
        let heard = world.ask_on(0, &lines(&[&format!("SET small:{n} x")]));
        heard.starts_with("-MISCONF")
    });
    assert!(refused.is_some(), "the disk takes everything that is small");
    // One that makes more is refused as a whole.
    let heard = world.ask_on(
        0,
        &lines(&["MULTI", "DEL k23", "SET new x", "EXEC", "EXISTS k23"]),
    );
    assert!(
        heard.contains("EXECABORT") && heard.ends_with("|:1|"),
        "{heard}"
    );
    let heard = world.ask_on(0, &eval("return redis.call('SET','new','x')"));
    assert!(heard.contains("nothing was changed"), "{heard}");
    let heard = world.ask_on(
        0,
        &eval("redis.call('DEL','k23') redis.call('SET','new','x')"),
    );
    assert!(
        heard.contains("full; what was done before this command stays"),
        "{heard}"
    );
    assert_eq!(world.ask_on(0, &lines(&["EXISTS k23 new"])), ":0|");
    let mixed = [
        &lines(&["MULTI"])[..],
        &eval("return #redis.call('SPOP','t',2)"),
        &lines(&["EXEC"]),
    ]
    .concat();
    let heard = world.ask_on(0, &mixed);
    assert!(
        heard.contains("EXECABORT") && heard.contains("disk of the log is full"),
        "{heard}"
    );
    let refused = world.refused_full();
    let exec = [
        "MULTI",
        "DEL k0",
        "UNLINK k1",
        "EXPIRE k2 100",
        "SPOP s 2",
        "HDEL none f",
        "EXEC",
    ];
    let heard = world.ask_on(0, &lines(&exec));
    assert!(
        heard.contains("*5|:1|:1|:1|*2|") && heard.ends_with("|:0|"),
        "{heard}"
    );
    assert_eq!(
        world.ask_on(0, &eval("return redis.call('DEL','k3')")),
        ":1|"
    );
    let many = "local n=0 for i=4,20 do n=n+redis.call('unlink','k'..i) end return n";
    assert_eq!(world.ask_on(0, &eval(many)), ":17|");
    let fcall = of_words(&["FCALL", "gone", "2", "k21", "k22"]);
    assert_eq!(world.ask_on(0, &fcall), ":2|");
    assert_eq!(
        world.ask_on(0, &eval("return #redis.call('SPOP','t',2)")),
        ":2|"
    );
    assert_eq!(world.refused_full(), refused, "none of these was refused");
    // What was removed is in the log.
    let recovered = world.recovered();
    for gone in ["k0", "k1", "k3", "k20", "k21", "k23", "new"] {
        let key = format!("{gone} ");
        assert!(
            !recovered.iter().any(|line| line.contains(&key)),
            "{gone}: {recovered:.80?}"
        );
    }
    assert_eq!(
        world.ask_on(0, &eval("return redis.call('FLUSHALL')")),
        "+OK|"
    );
    world.disk.set_capacity(world.disk.used() + (1 << 20));
    world.ask_on(0, &lines(&["PING"]));
    assert_eq!(world.ask_on(0, &lines(&["SET back x"])), "+OK|");
}
