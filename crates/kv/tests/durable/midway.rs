//! What a transaction or script does is not refused half way: where the answer says that nothing was changed, nothing
//! was, and what has begun goes on to the size that units may have, whatever the log, the disk and a snapshot do.

use tidewire_kv::commands::Spec;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Mistakes, NoRoom};
use tidewire_log::disk::sim::{SimDisk, Survival};
use tidewire_log::{Policy, Settings};

use crate::by_hand::{START, World};
use crate::disk::{dump, line, open, settings, settle, small, step};
use crate::wire::{command, of_words};

/// A log that gathers much less at first than the largest unit has.
fn growing() -> Settings {
    Settings {
        segment_bytes: 1 << 20,
        group_bytes: 256 << 10,
        group_first: 40 << 10,
        ..small(Policy::Sync)
    }
}

/// A key with so many elements of 10,000 bytes, more together than a group of the log gathers at first; each
/// command is less than half of that, so that it stays so.
fn world_with(fill: &str, elements: usize) -> World {
    let mut world = World::with_log(growing());
    for n in 0..elements {
        let filled = world.ask(0, &[&format!("{fill} {n:0>10000}")]);
        assert!(filled.starts_with(':'), "{filled}");
    }
    world
}

#[test]
fn a_transaction_whose_sort_is_more_than_was_thought_is_done_as_a_whole() {
    let mut world = world_with("RPUSH l", 15);
    let heard = world.ask(
        0,
        &["MULTI", "SET a 1", "SORT l ALPHA STORE d", "DEL l", "EXEC"],
    );
    assert_eq!(heard, "+OK|+QUEUED|+QUEUED|+QUEUED|*3|+OK|:15|:1|");
    assert_eq!(world.ask(0, &["LLEN d", "EXISTS l"]), ":15|:0|");
    let recovered = world.recovered();
    assert_eq!(recovered.len(), 2, "{recovered:.60?}");
}

#[test]
fn a_transaction_whose_spop_takes_much_is_done_as_a_whole() {
    let mut world = world_with("SADD s", 15);
    let heard = world.ask(0, &["MULTI", "SET taken 1", "SPOP s 15", "EXEC"]);
    assert!(
        heard.starts_with("+OK|+QUEUED|+QUEUED|*2|+OK|*15|"),
        "{heard:.99}"
    );
    assert_eq!(world.ask(0, &["EXISTS s"]), ":0|");
}

/// SORT and SPOP have the patience that every command has.
#[test]
fn sort_and_spop_wait_for_the_log_as_others_do() {
    let mut world = world_with("SADD s", 15);
    assert_eq!(world.ask(0, &["SORT s ALPHA STORE d"]), ":15|");
    let heard = world.ask(0, &["SPOP s 15"]);
    assert!(heard.starts_with("*15|"), "{heard:.99}");
    let mut world = world_with("SADD s", 15);
    world.send(0, &command("SPOP s 15"));
    let mut heard = String::new();
    for _ in 0..7 {
        // The log does nothing.
        heard += &world.heard(0);
    }
    assert!(heard.starts_with("-TRYAGAIN") && heard.contains("nothing was changed"));
    assert_eq!(world.ask(0, &["SCARD s"]), ":15|");
}

/// A script that sets so many keys of 10,000 bytes each.
fn sets(n: usize) -> Vec<u8> {
    let script = "for i=1,tonumber(ARGV[1]) do redis.call('set','s:'..i,string.rep('x',10000)) end";
    let n = n.to_string();
    of_words(&["EVAL", script, "0", &n])
}

#[test]
fn a_script_goes_on_to_its_end() {
    let mut world = World::with_log(growing());
    for round in 0..3 {
        world.send(0, &sets(20 + round));
        assert_eq!(world.answered(0), "$-1|");
        assert_eq!(world.recovered().len(), 20 + round);
    }
}

/// The script stops where it cannot be one unit any more, and the answer does not say that nothing
/// was changed: what it did is there, as a whole.
#[test]
fn a_script_that_is_too_large_says_that_half_of_it_stays() {
    let mut world = World::with_log(growing());
    world.send(0, &sets(40));
    let heard = world.answered(0);
    assert!(
        heard.starts_with("-ERR larger than what the log takes as one unit"),
        "{heard}"
    );
    assert!(
        heard.contains("what was done before this command stays"),
        "{heard}"
    );
    assert!(!heard.contains("nothing was changed"), "{heard}");
    let there = world.ask(0, &["DBSIZE"]);
    let recovered = world.recovered();
    assert_eq!(there, format!(":{}|", recovered.len()));
    assert!(recovered.len() > 20, "{}", recovered.len());
    // One command of that size has done nothing.
    let large = "x".repeat(300_000);
    let heard = world.ask(0, &[&format!("SET k {large}")]);
    assert!(heard.contains("one unit; nothing was changed"), "{heard}");
}

/// A script that takes several records.
#[test]
fn a_script_that_is_far_too_large_goes_to_the_limit() {
    let mut world = World::with_log(Settings {
        segment_bytes: 32 << 20,
        group_bytes: 4 << 20,
        payload_max: 1 << 20,
        ..growing()
    });
    world.send(0, &sets(500));
    let heard = world.answered(0);
    assert!(
        heard.contains("what was done before this command stays"),
        "{heard}"
    );
    let recovered = world.recovered();
    assert_eq!(world.ask(0, &["DBSIZE"]), format!(":{}|", recovered.len()));
    assert!(recovered.len() > 400, "{}", recovered.len());
}

/// A pop that is served finds the log as busy as any other command does, whichever command made its
/// key ready.
#[test]
fn a_wait_that_is_served_waits_for_the_log() {
    for filled in (0..40).map(|n| 4_000 + 100 * n) {
        let mut world = World::new(Policy::Sync);
        let other = "o".repeat(500);
        world.send(1, &command(&format!("BLPOP q {other} 0")));
        assert_eq!(world.heard(1), "");
        // The log does nothing, so the element is there and is not taken, for some of these.
        let pad = "x".repeat(filled);
        let (set, push) = (command(&format!("SET pad {pad}")), command("RPUSH q x"));
        world.send(0, &[set, push].concat());
        assert_eq!(world.heard(1), "", "{filled} bytes before");
        assert_eq!(world.answered(1), "*2|$1|q|$1|x|", "{filled} bytes before");
        assert_eq!(world.answered(0), "+OK|:1|");
    }
}

/// CLIENT UNBLOCK was answered with 1, so the wait is over, though its key was made ready before it heard of either.
#[test]
fn a_wait_that_was_unblocked_is_over_when_the_log_is_busy() {
    let mut unblocked = 0;
    for filled in (0..20).map(|n| 4_000 + 200 * n) {
        let mut world = World::new(Policy::Sync);
        let other = "o".repeat(500);
        let id = world.ask(1, &["CLIENT ID"]);
        world.send(1, &command(&format!("BLPOP q {other} 0")));
        assert_eq!(world.heard(1), "");
        let (id, pad) = (id.trim_matches([':', '|']), "x".repeat(filled));
        let lines = [
            format!("CLIENT UNBLOCK {id} ERROR"),
            format!("SET pad {pad}"),
            "RPUSH q x".to_owned(),
        ];
        world.send(0, &lines.map(|line| command(&line)).concat());
        // The log does nothing.
        assert_eq!(world.heard(1), "", "{filled} bytes before");
        let heard = world.answered(1);
        assert_eq!(world.answered(0), ":1|+OK|:1|");
        let there = world.ask(0, &["LLEN q"]);
        if heard.starts_with("-UNBLOCKED") {
            assert_eq!(there, ":1|", "{filled} bytes before");
            unblocked += 1;
        } else {
            // The element was on its way.
            assert_eq!((&heard[..], &there[..]), ("*2|$1|q|$1|x|", ":0|"));
        }
    }
    assert!(unblocked > 0);
}

/// [`line`] of commands as a script runs them: it is not known before which come.
fn unforeseen(store: &tidewire_kv::store::Store, lines: &[String]) -> Result<(), NoRoom> {
    let commands: Vec<(&'static Spec, Vec<&[u8]>)> = lines
        .iter()
        .map(|line| crate::replay::parsed(line))
        .collect();
    let each = || commands.iter().map(|(spec, args)| (*spec, &args[..]));
    let mut runner = store.runner(START, 1);
    assert!(runner.begin(each(), Vec::new()));
    let mut done = Ok(());
    for (spec, args) in each() {
        done = runner.reserve_next(spec, args);
        if done.is_err() {
            break;
        }
        let _ = runner.run(spec, 0, args, &mut Reply::new(Proto::Resp2));
    }
    runner.end();
    done
}

/// Room for a unit is held on the disk before it begins.
#[test]
fn a_disk_that_runs_full_does_not_stop_what_has_begun() {
    for steps in 0..6 {
        let disk = SimDisk::new(1);
        let mut opened = open(&disk, settings(1), Mistakes::default(), START).unwrap();
        let lines: Vec<String> = (0..25)
            .map(|n| format!("SET k{n} {}", "x".repeat(1000)))
            .collect();
        assert_eq!(unforeseen(&opened.store, &lines), Err(NoRoom::Busy));
        assert_eq!(opened.store.keyspace(0).keys, 0, "nothing was changed");
        settle(&mut opened.writer, 0);
        disk.set_capacity(disk.used());
        for _ in 0..steps {
            step(&mut opened.writer, 0);
        }
        assert_eq!(unforeseen(&opened.store, &lines), Ok(()));
        settle(&mut opened.writer, 0);
        assert!(opened.log.failure().is_none());
        // One of the next commands hears it before it begins.
        let refused = (0..50).find_map(|_| {
            let refused = unforeseen(&opened.store, &lines[..1]).err();
            settle(&mut opened.writer, 0);
            refused
        });
        assert_eq!(refused, Some(NoRoom::DiskFull));
        let before = dump(&opened.store, START);
        assert_eq!(before.len(), 25);
        let crashed = disk.crash_with(Survival::Nothing);
        let again = open(&crashed, settings(1), Mistakes::default(), START).unwrap();
        assert!(dump(&again.store, START) == before);
    }
}

/// A unit that has begun may hand out more than others wait for.
#[test]
fn a_snapshot_does_not_stop_what_has_begun() {
    let disk = SimDisk::new(1);
    let mut opened = open(&disk, settings(1), Mistakes::default(), START).unwrap();
    for n in 0..8 {
        line(&opened.store, START, &format!("SETRANGE long{n} 500000 x"));
        settle(&mut opened.writer, 0);
    }
    let change = "y".repeat(3_000);
    let lines: Vec<String> = (0..8)
        .map(|n| format!("SETRANGE long{n} 1 {change}"))
        .collect();
    // The room to grow is there from the second time on.
    assert_eq!(unforeseen(&opened.store, &lines[..1]), Err(NoRoom::Busy));
    settle(&mut opened.writer, 0);
    opened.store.set_handed_out_max(1 << 20);
    let asked = opened.log.snapshots().ask();
    let (store, log, mut writer, mut keeper) = opened.keep();
    keeper.step(crate::disk::now(0));
    assert_eq!(unforeseen(&store, &lines), Ok(()));
    assert_eq!(store.handed_out(), 8 * 500_001);
    assert_eq!(unforeseen(&store, &lines), Err(NoRoom::Busy));
    for at in 0..10_000 {
        keeper.step(crate::disk::now(at));
        step(&mut writer, at);
        log.update();
    }
    assert_eq!(log.snapshots().status().outcome(asked), Some(true));
    assert_eq!(unforeseen(&store, &lines), Ok(()));
}
