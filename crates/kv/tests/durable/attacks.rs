//! What once went wrong: each was found by an attempt to break the promises.

use std::ops::ControlFlow::Continue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire_kv::commands::{Ctx, Done, Keys, Spec, WRITE, find};
use tidewire_kv::durable::{self, Accept};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Deadline, Deliver, Mistakes, Ran, Store, Waiter};
use tidewire_log::Policy;
use tidewire_log::disk::sim::{Faults, SimDisk, Survival};

use crate::by_hand::{START, World};
use crate::disk::{ask, dump, line, open, settings, settle};
use crate::wire::{Value, command, of_words};

/// What was answered before it, and is not sent yet, goes on waiting.
#[test]
fn reset_lets_nothing_out() {
    // Behind commands of a batch before its own.
    let mut world = World::new(Policy::Sync);
    world.send(0, &[command("SET k v"), b"RESET\r\n".to_vec()].concat());
    assert_eq!(world.heard(0), "");
    world.settle();
    assert_eq!(world.heard(0), "+OK|+RESET|");
}

/// The wait is for a change on another loop, of which its own loop knows nothing.
#[test]
fn the_end_of_a_wait_is_heard_once_the_log_has_moved() {
    let mut world = World::new(Policy::Sync);
    world.send(1, &command("BLPOP q 2"));
    world.send(0, &command("SET a 1"));
    assert_eq!(world.heard(0), "");
    world.settle();
    assert_eq!(world.heard(0), "+OK|");
    world.send(0, &command("SET a 2"));
    // The wait's time is over meanwhile.
    assert_eq!(world.heard(0), "");
    assert_eq!(world.heard(1), "");
    world.settle();
    assert_eq!(world.heard(0), "+OK|");
    assert_eq!(world.heard(1), "*-1|");
}

/// An element that was taken for a client that waited is a write of that client.
#[test]
fn waitaof_waits_for_what_was_taken_for_the_client() {
    let mut world = World::new(Policy::Interval(Duration::from_millis(10)));
    world.send(1, &command("BLPOP q 0"));
    assert_eq!(world.heard(1), "");
    world.send(0, &command("RPUSH q x"));
    assert_eq!(world.heard(0), ":1|");
    assert_eq!(world.heard(1), "*2|$1|q|$1|x|");
    world.send(1, &command("WAITAOF 1 0 0"));
    assert_eq!(world.heard(1), "");
    for _ in 0..3 {
        world.settle();
        world.sim.run_for(Duration::from_secs(1));
    }
    assert_eq!(world.heard(1), "*2|:1|:0|");
}

/// The wait would last for ever, and look every other millisecond.
#[test]
fn waitaof_is_refused_when_the_log_has_failed() {
    let mut world = World::new(Policy::Interval(Duration::from_millis(10)));
    world.disk.set_faults(Faults {
        sync: Some(1),
        ..Faults::default()
    });
    world.send(0, &command("SET a 1"));
    assert_eq!(world.heard(0), "+OK|");
    for _ in 0..3 {
        world.settle();
        world.sim.run_for(Duration::from_secs(1));
    }
    world.send(0, &command("WAITAOF 1 0 0"));
    assert_eq!(
        world.heard(0),
        "-MISCONF the log has failed; what is on the disk is unknown|"
    );
}

/// WAITAOF waits for as many as it is asked for, and there are no replicas.
#[test]
fn waitaof_waits_for_replicas_until_its_time_is_over() {
    let mut world = World::new(Policy::Sync);
    assert_eq!(
        world.ask(0, &["SET a 1", "WAITAOF 1 0 3000"]),
        "+OK|*2|:1|:0|"
    );
    world.send(0, &command("WAITAOF 1 1 3000"));
    assert_eq!(world.heard(0) + &world.heard(0), "");
    assert_eq!(world.heard(0) + &world.heard(0), "*2|:1|:0|");
    let asked = ["MULTI", "WAITAOF 1 1 0", "EXEC"];
    assert_eq!(world.ask(0, &asked), "+OK|+QUEUED|*1|*2|:1|:0|");
    for (line, error) in [
        (
            "WAITAOF 2 0 0",
            "-ERR value is out of range, value must between 0 and 1|",
        ),
        (
            "WAITAOF -1 0 0",
            "-ERR value is out of range, value must between 0 and 1|",
        ),
        (
            "WAITAOF x 0 0",
            "-ERR value is not an integer or out of range|",
        ),
        (
            "WAITAOF 1 -1 0",
            "-ERR value is out of range, must be positive|",
        ),
        ("WAITAOF 1 0 -1", "-ERR timeout is negative|"),
        (
            "WAITAOF 1 0 x",
            "-ERR timeout is not an integer or out of range|",
        ),
    ] {
        assert_eq!(world.ask(0, &[line]), error, "{line}");
    }
}

/// WAIT has no part for a log, and the errors of Redis.
#[test]
fn wait_waits_for_replicas_until_its_time_is_over() {
    let mut world = World::new(Policy::Sync);
    assert_eq!(
        world.ask(0, &["SET a 1", "WAIT 0 0", "WAIT -1 0"]),
        "+OK|:0|:0|"
    );
    world.send(0, &[command("WAIT 1 3000"), command("PING")].concat());
    assert_eq!(world.heard(0) + &world.heard(0), "");
    assert_eq!(world.heard(0) + &world.heard(0), ":0|+PONG|");
    let asked = ["MULTI", "WAIT 1 0", "EXEC"];
    assert_eq!(world.ask(0, &asked), "+OK|+QUEUED|*1|:0|");
    for (line, error) in [
        ("WAIT x 0", "-ERR value is not an integer or out of range|"),
        ("WAIT 1 -1", "-ERR timeout is negative|"),
        (
            "WAIT 1 x",
            "-ERR timeout is not an integer or out of range|",
        ),
    ] {
        assert_eq!(world.ask(0, &[line]), error, "{line}");
    }
    // For ever, if no time is said; others go on.
    world.send(1, &command("WAIT 2 0"));
    assert_eq!(world.answered(1), "");
    assert_eq!(world.ask(0, &["GET a"]), "$1|1|");
}

/// As clients that wait for a key are.
#[test]
fn a_wait_for_replicas_or_a_sync_is_unblocked_by_others() {
    let mut world = World::new(Policy::Sync);
    let id = world.ask(1, &["CLIENT ID"]);
    let id = id.trim_matches([':', '|']).to_owned();
    let unblock = |how: &str| format!("CLIENT UNBLOCK {id}{how}");
    assert_eq!(world.ask(0, &[&unblock("")]), ":0|");
    for (line, nothing) in [("WAIT 2 0", ":0|"), ("WAITAOF 1 1 0", "*2|:1|:0|")] {
        for (how, answer) in [
            ("", nothing),
            (" TIMEOUT", nothing),
            (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"),
        ] {
            world.send(1, &[command(line), command("PING")].concat());
            assert_eq!(world.answered(1), "", "{line}");
            let clients = world.ask(0, &["INFO clients"]);
            assert!(clients.contains("blocked_clients:1|"), "{clients}");
            assert_eq!(world.ask(0, &[&unblock(how)]), ":1|", "{line}{how}");
            assert_eq!(world.answered(1), format!("{answer}+PONG|"), "{line}{how}");
            // The client waits no more, and what it asks next is as new.
            assert_eq!(world.ask(0, &[&unblock(how)]), ":0|", "{line}{how}");
        }
    }
    let clients = world.ask(0, &["INFO clients"]);
    assert!(clients.contains("blocked_clients:0|"), "{clients}");
}

/// The script is run again when the log has room, and publishes again what it published before it
/// found none.
#[test]
fn what_a_script_publishes_that_is_run_again_is_heard_once() {
    let mut world = World::new(Policy::Sync);
    world.ask(1, &["SUBSCRIBE c"]);
    let script = "redis.call('publish','c','hello');redis.call('set','k','v')";
    world.send(0, &command(&format!("EVAL {script} 0")));
    // The script cannot be run before the log has moved.
    assert_eq!(world.heard(0) + &world.heard(1), "");
    assert_eq!(world.answered(0), "$-1|");
    assert_eq!(world.heard(1), "*3|$7|message|$1|c|$5|hello|");
}

/// Nothing of what they wait for is taken for how long they have waited for room.
#[test]
fn commands_behind_save_or_waitaof_have_patience_of_their_own() {
    let large = format!("SET k {}", "x".repeat(30_000));
    for (first, answer) in [("SAVE", "+OK|"), ("WAITAOF 1 0 0", "*2|:1|:0|")] {
        let mut world = World::new(Policy::Interval(Duration::from_secs(60)));
        assert_eq!(world.ask(0, &["SET a 1"]), "+OK|");
        world.send(0, &[command(first), command(&large)].concat());
        for _ in 0..7 {
            assert_eq!(world.heard(0), "");
        }
        assert!(world.save(), "it makes what both wait for");
        // The value is larger than what the log gathers so far.
        assert_eq!(world.heard(0), answer);
        assert_eq!(world.answered(0), "+OK|");
    }
}

/// However many records they take in the log.
#[test]
fn changes_since_the_last_snapshot_are_units() {
    let changes = |world: &mut World| {
        let info = world.ask(0, &["INFO persistence"]);
        let (_, rest) = info.split_once("rdb_changes_since_last_save:").unwrap();
        rest.split_once('|').unwrap().0.to_owned()
    };
    let mut world = World::with_log(tidewire_kv::durable::KvLog::settings(Policy::Sync));
    let large = format!("SET k {}", "x".repeat(3 << 20));
    assert_eq!(world.ask(0, &[&large]), "+OK|");
    world.ask(0, &["MULTI", "SET a 1", "SET b 1", "EXEC"]);
    assert_eq!(changes(&mut world), "2");
    assert_eq!(world.reopened().units(), 2);
    assert!(world.save());
    assert_eq!(changes(&mut world), "0");
    world.ask(0, &["SET a 2"]);
    assert_eq!(changes(&mut world), "1");
    assert_eq!(world.reopened().units(), 1);
}

/// Commands about the server that stand in a transaction do not make two of it.
#[test]
fn a_transaction_that_asks_about_the_server_is_one_unit() {
    let mut world = World::new(Policy::Interval(Duration::from_millis(10)));
    let lines = [
        "MULTI",
        "SET a 1",
        "CONFIG GET timeout",
        "INCR a",
        "INFO nothing",
        "CONFIG SET timeout wrong",
        "GET a",
        "EXEC",
    ];
    let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
    world.send(0, &bytes);
    let heard = world.heard(0);
    let heard = heard.split_once("*6|").expect("the replies").1;
    let (expected, error) = heard.split_once("-ERR").expect("an error");
    assert_eq!(expected, "+OK|*2|$7|timeout|$1|0|:2|$0||");
    assert!(error.ends_with("|$1|2|"), "{error}");
    for _ in 0..3 {
        world.settle();
        world.sim.run_for(Duration::from_secs(1));
    }
    let disk = world.disk.crash_with(Survival::Nothing);
    let (log, ..) =
        tidewire_log::EmbeddedLog::open(disk, crate::disk::small(Policy::Sync)).unwrap();
    let store = Store::new(settings(1));
    let go_on = |_: &_, _, _| Continue(());
    let opened = durable::open(Arc::new(log), &store, START, Accept::Nothing, go_on);
    assert_eq!(opened.unwrap().1.units, 1);
}

struct Heard(Arc<Mutex<Vec<u8>>>);

impl Deliver for Heard {
    fn deliver(&self, reply: Vec<u8>, _: u64) {
        *self.0.lock().unwrap() = reply;
    }
}

/// A wait that is served finds its own keys as any other command does: what is past its time is
/// removed first, and in the log.
#[test]
fn a_wait_that_is_served_meets_no_expired_key() {
    for seed in 0..4 {
        let disk = SimDisk::new(seed);
        let mut opened = open(&disk, settings(seed), Mistakes::default(), START).unwrap();
        line(&opened.store, START, "RPUSH to old");
        line(&opened.store, START, "PEXPIRE to 5");
        let heard = Arc::new(Mutex::default());
        {
            let mut runner = opened.store.runner(START, 1);
            let args: [&[u8]; 6] = [b"BLMOVE", b"from", b"to", b"LEFT", b"RIGHT", b"0"];
            let spec = find(b"blmove").unwrap();
            let Ran::Blocked(blocked) = runner.run(spec, 0, &args, &mut Reply::new(Proto::Resp2))
            else {
                panic!("there is nothing to move")
            };
            let to = Box::new(Heard(Arc::clone(&heard)));
            let waiter = Waiter::new(blocked, spec, 0, &args, Proto::Resp2, to);
            runner.wait(&Arc::new(waiter));
        }
        line(&opened.store, START + 10, "RPUSH from new");
        assert_eq!(*heard.lock().unwrap(), b"$3\r\nnew\r\n");
        assert_eq!(line(&opened.store, START + 10, "DBSIZE"), Value::Int(1));
        let before = dump(&opened.store, START + 10);
        settle(&mut opened.writer, 0);
        let crashed = disk.crash_with(Survival::Nothing);
        let again = open(&crashed, settings(seed), Mistakes::default(), START + 10).unwrap();
        assert_eq!(dump(&again.store, START + 10), before);
    }
}

/// Sets its key, and panics.
fn half(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    ctx.db.set_string(args[1], b"half", Deadline::Clear);
    panic!("half way");
}

/// The command has changed what the log does not know of: nothing that builds on it may be kept.
#[test]
fn a_command_that_panics_half_way_is_the_end_of_the_log() {
    static HALF: Spec = Spec::new("half", 2, WRITE, Keys::ONE, half);
    for before in [0, 1] {
        let disk = SimDisk::new(1);
        let opened = open(&disk, settings(1), Mistakes::default(), START).unwrap();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut runner = opened.store.runner(START, 1);
            let mut reply = Reply::new(Proto::Resp2);
            for _ in 0..before {
                runner.run(find(b"set").unwrap(), 0, &[b"SET", b"k", b"v"], &mut reply);
            }
            runner.run(&HALF, 0, &[b"HALF", b"k"], &mut reply);
        }));
        assert!(ran.is_err());
        assert!(opened.log.has_failed(), "after {before} commands");
    }
}

/// The names are more than a unit may hold together.
#[test]
fn keys_with_long_names_expire() {
    let disk = SimDisk::new(1);
    let mut opened = open(&disk, settings(0), Mistakes::default(), START).unwrap();
    for n in 0..40 {
        let key = format!("{n:02}{}", "x".repeat(1000));
        let set = ask(
            &opened.store,
            START,
            0,
            &[b"SET", key.as_bytes(), b"", b"PX", b"1"],
        );
        assert_eq!(set, Value::ok());
        settle(&mut opened.writer, 0);
    }
    for n in 0..1000 {
        opened.store.expire(START + 1);
        settle(&mut opened.writer, n);
    }
    assert_eq!(opened.store.keyspace(0).keys, 0);
}

/// A library that a crash could take back is not told to any client: neither that it is there, nor
/// what its functions say, nor that one is gone.
#[test]
fn no_client_hears_of_a_library_before_it_is_durable() {
    fn load(name: &str) -> Vec<u8> {
        let code = format!(
            "#!lua name={name}\nredis.register_function('f_{name}',function() return 7 end)"
        );
        of_words(&["FUNCTION", "LOAD", &code])
    }
    for asked in [
        command("FUNCTION LIST"),
        command("FUNCTION STATS"),
        command("FUNCTION DUMP"),
        command("FCALL f_new 0"),
        command("FCALL_RO f_old 0"),
        // The replies say that there is such a one already, and that there is no other.
        load("new"),
        command("FUNCTION DELETE old"),
        // A transaction without a change of its own.
        ["MULTI", "FUNCTION LIST", "FCALL f_new 0", "EXEC"]
            .map(command)
            .concat(),
    ] {
        let mut world = World::new(Policy::Sync);
        world.send(0, &load("old"));
        world.answered(0);
        let change = [command("FUNCTION DELETE old"), load("new")].concat();
        world.send(0, &change);
        assert_eq!(world.heard(0), "");
        world.send(1, &asked);
        let asked = String::from_utf8_lossy(&asked).into_owned();
        let heard = world.heard(1).replace("+OK|+QUEUED|+QUEUED|", "");
        assert_eq!(heard, "", "{asked}");
        assert_eq!(world.answered(0), "+OK|$3|new|");
        assert_ne!(world.answered(1), "", "{asked}");
        // No client waits for what is durable.
        world.send(1, &command("FCALL f_new 0"));
        assert_eq!(world.heard(1), ":7|");
    }
}

/// A transaction sees the libraries that it has changed itself.
#[test]
fn a_transaction_sees_its_own_libraries() {
    let code = "#!lua name=l\nredis.register_function('f',function() return 7 end)";
    let mut world = World::new(Policy::Sync);
    let lines = [
        command("MULTI"),
        of_words(&["FUNCTION", "LOAD", code]),
        command("FCALL f 0"),
        command("FUNCTION DELETE l"),
        command("FCALL f 0"),
        command("EXEC"),
    ];
    world.send(0, &lines.concat());
    let heard = world.answered(0);
    let (_, heard) = heard.split_once("*4|").expect("what was done");
    assert_eq!(heard, "$1|l|:7|+OK|-ERR Function not found|");
}
