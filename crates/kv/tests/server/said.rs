//! What the server says of itself and of what it was told, as Redis does: counts, logs, encodings, the small print.

use std::time::Duration;

use crate::common::{Client, World, on_every_shape};
use crate::wire::command;
use tidewire_kv::service::Settings;

fn info(w: &mut World, c: &mut Client, name: &str) -> String {
    let info = w.ask(c, "INFO everything");
    let value = info
        .split('|')
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    value
        .unwrap_or_else(|| panic!("no {name} in {info}"))
        .to_owned()
}

#[test]
fn maxclients_is_what_the_server_was_started_with() {
    let settings = Settings {
        clients_max: 321,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let mut c = w.client();
    w.check(&mut c, "CONFIG GET maxclients", "*2|$10|maxclients|$3|321|");
    assert_eq!(info(&mut w, &mut c, "maxclients"), "321");
}

#[test]
fn secrets_are_in_no_log() {
    let mut w = World::new();
    let mut c = w.client();
    let mut monitor = w.client();
    w.check(&mut c, "CONFIG SET slowlog-log-slower-than 0", "+OK|");
    w.check(&mut monitor, "MONITOR", "+OK|");
    for line in [
        "MIGRATE host 6379 key 0 100 AUTH s3cret",
        "MIGRATE host 6379 key 0 100 COPY AUTH2 s3cret s3cret KEYS k",
        "CONFIG SET masterauth s3cret",
        "CONFIG SET hz 10 requirepass s3cret",
        "HELLO 2 AUTH default s3cret",
        "AUTH s3cret",
        "AUTH default s3cret",
        "ACL SETUSER s3cret >s3cret",
    ] {
        w.ask(&mut c, line);
    }
    let slow = w.ask(&mut c, "SLOWLOG GET -1");
    let shown = w.answer(&mut monitor);
    for (what, log) in [("SLOWLOG", &slow), ("MONITOR", &shown)] {
        assert!(!log.contains("s3cret"), "{what}: {log}");
        assert!(log.to_lowercase().contains("migrate"), "{what}: {log}");
    }
    assert!(slow.contains("|masterauth|$10|(redacted)|"), "{slow}");
    assert!(
        slow.contains("|AUTH2|$10|(redacted)|$10|(redacted)|$4|KEYS|$1|k|"),
        "{slow}"
    );
}

#[test]
fn acl_log_names_the_command_that_was_refused() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut c = w.client();
        w.check(&mut c, "ACL SETUSER reader on nopass +@all %R~*", "+OK|");
        w.check(&mut c, "AUTH reader x", "+OK|");
        w.check(&mut c, "GET a", "$-1|");
        assert!(w.ask(&mut c, "SET a b").starts_with("-NOPERM"));
        let log = w.ask(&mut c, "ACL LOG 1");
        assert!(log.contains(" cmd=set user=reader "), "{log}");
        w.check(&mut c, "MULTI", "+OK|");
        assert!(w.ask(&mut c, "LPUSH a b").starts_with("-NOPERM"));
        assert!(w.ask(&mut c, "EXEC").starts_with("-EXECABORT"));
        let log = w.ask(&mut c, "ACL LOG");
        assert!(log.contains(" cmd=lpush user=reader "), "{log}");
        assert!(
            w.ask(&mut c, "HELLO 3 AUTH nobody x")
                .starts_with("-WRONGPASS")
        );
        let log = w.ask(&mut c, "ACL LOG");
        assert!(log.contains(" cmd=hello user=reader "), "{log}");
    });
}

#[test]
fn exec_that_is_refused_says_execabort_without_multi_too() {
    let mut w = World::new();
    let mut c = w.client();
    w.check(
        &mut c,
        "ACL SETUSER noexec on nopass +@all -exec ~*",
        "+OK|",
    );
    let abort = "-EXECABORT Transaction discarded because of: ";
    let arity = format!("{abort}wrong number of arguments for 'exec' command|");
    w.check(&mut c, "EXEC now", &arity);
    w.check(&mut c, "AUTH noexec x", "+OK|");
    let no_right =
        format!("{abort}NOPERM User noexec has no permissions to run the 'exec' command|");
    w.check(&mut c, "EXEC", &no_right);
    w.check(&mut c, "MULTI", "+OK|");
    w.check(&mut c, "EXEC", &no_right);
    w.check(&mut c, "DISCARD", "-ERR DISCARD without MULTI|");
}

#[test]
fn info_counts_the_keys_that_commands_wait_for() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut c = w.client();
        let (one, other, reader) = (w.client(), w.client_of(1), w.client_of(1));
        let both = |w: &mut World, c: &mut Client| {
            let one = info(w, c, "total_blocking_keys");
            (one, info(w, c, "total_blocking_keys_on_nokey"))
        };
        let counts = |keys: &str, nokey: &str| (keys.to_owned(), nokey.to_owned());
        assert_eq!(both(&mut w, &mut c), counts("0", "0"));
        w.check(&mut c, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
        w.send(&one, "BLPOP a b c 0");
        w.send(&other, "BLPOP c d 0");
        w.send(&reader, "XREADGROUP GROUP g me BLOCK 0 STREAMS s >");
        w.sim.run_for(Duration::from_millis(50));
        assert_eq!(both(&mut w, &mut c), counts("5", "1"));
        w.check(&mut c, "DEL s", ":1|");
        w.check(&mut c, "LPUSH c x y", ":2|");
        assert_eq!(both(&mut w, &mut c), counts("0", "0"));
    });
}

#[test]
fn the_last_auth_of_hello_counts() {
    let mut w = World::new();
    let mut c = w.client();
    for user in ["one", "other"] {
        w.check(
            &mut c,
            &format!("ACL SETUSER {user} on >{user} +@all"),
            "+OK|",
        );
    }
    assert!(
        w.ask(&mut c, "HELLO 2 AUTH one one AUTH other other")
            .starts_with('*')
    );
    w.check(&mut c, "ACL WHOAMI", "$5|other|");
    assert!(
        w.ask(&mut c, "HELLO 2 AUTH nobody x AUTH one one")
            .starts_with('*')
    );
    w.check(&mut c, "ACL WHOAMI", "$3|one|");
    assert!(
        w.ask(&mut c, "HELLO 2 AUTH other other AUTH one wrong")
            .starts_with("-WRONGPASS")
    );
    w.check(&mut c, "ACL WHOAMI", "$3|one|");
}

#[test]
fn a_blocked_command_that_is_refused_counts_as_rejected() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut c = w.client();
        w.check(&mut c, "ACL SETUSER user on nopass +@all ~*", "+OK|");
        let mut blocked = w.client_of(1);
        w.check(&mut blocked, "AUTH user x", "+OK|");
        w.send(&blocked, "BLPOP list 0");
        w.sim.run_for(Duration::from_millis(50));
        w.check(&mut c, "ACL SETUSER user -blpop", "+OK|");
        w.check(&mut c, "LPUSH list x", ":1|");
        assert!(w.answer(&mut blocked).starts_with("-NOPERM"));
        let counts = info(&mut w, &mut c, "cmdstat_blpop");
        assert!(
            counts.ends_with(",rejected_calls=1,failed_calls=0"),
            "{counts}"
        );
    });
}

#[test]
fn scripts_may_call_wait_and_do_not_wait() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut c = w.client();
        for (script, expected) in [
            (
                "return{redis.call('WAIT',0,0),redis.call('WAIT','1','0')}",
                "*2|:0|:0|",
            ),
            ("return{redis.call('WAITAOF','0','0','0')}", "*1|*2|:0|:0|"),
            (
                "return{redis.pcall('WAIT','x','0').err}",
                "*1|$43|ERR value is not an integer or out of range|",
            ),
        ] {
            w.check(&mut c, &format!("EVAL {script} 0"), expected);
        }
        let error = w.ask(&mut c, "EVAL return{redis.call('WAITAOF','1','0','0')} 0");
        assert!(
            error.starts_with("-ERR WAITAOF cannot be used when numlocal is set"),
            "{error}"
        );
    });
}

#[test]
fn object_encoding_tells_of_strings_that_were_changed_in_place() {
    for (lines, key, expected) in [
        ("SET a 12;APPEND a 3", "a", "raw"),
        ("APPEND a 3", "a", "int"),
        ("SET a x;APPEND a ", "a", "raw"),
        ("SET a 12;SETRANGE a 0 3", "a", "raw"),
        ("SET a 12;SETRANGE a 0 ", "a", "int"),
        ("SETRANGE a 0 3", "a", "raw"),
        ("SET a 12;SETBIT a 7 0", "a", "raw"),
        ("SETBIT a 1 0", "a", "raw"),
        ("SET a 12;BITFIELD a SET u8 0 50", "a", "raw"),
        ("BITFIELD a SET u8 0 49", "a", "raw"),
        ("SET a 12;BITFIELD a GET u8 0", "a", "int"),
        ("SET a 12;INCRBYFLOAT a 3", "a", "embstr"),
        ("INCRBYFLOAT a 3", "a", "embstr"),
        ("SET a 12;INCRBYFLOAT a 3;INCR a", "a", "int"),
        ("SET a 12;APPEND a 3;INCR a", "a", "int"),
        ("SET a 12;APPEND a 3;SET a 123", "a", "int"),
        ("SET a 12;APPEND a 3;SET a 45", "a", "int"),
        ("SET a 12;APPEND a 3;GETSET a 456", "a", "int"),
        ("SET a 12;APPEND a 3;EXPIRE a 100", "a", "raw"),
        ("SET a 12;EXPIRE a 100;APPEND a 3;PERSIST a", "a", "raw"),
        ("SET a 12;APPEND a 3;COPY a b", "b", "raw"),
        ("SET a 12;APPEND a 3;RENAME a b", "b", "raw"),
        ("SET a 12;COPY a b", "b", "int"),
        ("SET a 12;RENAME a b", "b", "int"),
        ("PFADD a x", "a", "raw"),
        ("SET a x;BITOP NOT b a", "b", "raw"),
        (
            "EVAL redis.call('set','a',12)redis.call('append','a',3) 0",
            "a",
            "raw",
        ),
        ("MULTI;SET a 12;APPEND a 3;EXEC", "a", "raw"),
    ] {
        let mut w = World::new();
        let mut c = w.client();
        for line in lines.split(';') {
            let answer = w.ask(&mut c, line);
            assert!(!answer.starts_with('-'), "{line}: {answer}");
        }
        let expected = format!("${}|{expected}|", expected.len());
        assert_eq!(
            w.ask(&mut c, &format!("OBJECT ENCODING {key}")),
            expected,
            "{lines}"
        );
    }
    let mut w = World::new();
    let mut c = w.client();
    w.ask(&mut c, "SET a 12");
    w.ask(&mut c, "APPEND a 3");
    w.check(&mut c, "MOVE a 1", ":1|");
    w.check(&mut c, "SELECT 1", "+OK|");
    w.check(&mut c, "OBJECT ENCODING a", "$3|raw|");
}

/// As in Redis: the string is longer than any other command makes it.
#[test]
fn a_bitfield_may_end_behind_the_longest_string() {
    let mut w = World::new();
    let mut c = w.client();
    w.check(&mut c, "BITFIELD k SET u16 4294967288 258", "*1|:0|");
    w.check(&mut c, "STRLEN k", ":536870913|");
    w.check(&mut c, "BITFIELD k GET u16 4294967288", "*1|:258|");
    let error = "-ERR bit offset is not an integer or out of range|";
    w.check(&mut c, "BITFIELD k SET u8 4294967296 1", error);
    let error = w.ask(&mut c, "APPEND k x");
    assert!(
        error.starts_with("-ERR string exceeds maximum allowed size"),
        "{error}"
    );
    w.check(&mut c, "DEL k", ":1|");
}

/// BITFIELD needs the right to read alone, as long as it only gets.
#[test]
fn bitfield_that_gets_needs_the_right_to_read_alone() {
    let mut w = World::new();
    let mut c = w.client();
    w.check(&mut c, "ACL SETUSER reader on nopass +@all %R~*", "+OK|");
    w.check(&mut c, "AUTH reader x", "+OK|");
    w.check(&mut c, "BITFIELD k GET u8 0", "*1|:0|");
    w.check(&mut c, "BITFIELD k OVERFLOW SAT GET u8 0", "*1|:0|");
    w.check(&mut c, "BITFIELD k", "*0|");
    // The offset is wrong, and no operation.
    let error = "-ERR bit offset is not an integer or out of range|";
    w.check(&mut c, "BITFIELD k GET u8 set", error);
    assert!(w.ask(&mut c, "BITFIELD k nonsense").starts_with("-NOPERM"));
    assert!(
        w.ask(&mut c, "BITFIELD k GET u8 0 SET u8 0 1")
            .starts_with("-NOPERM")
    );
    assert!(
        w.ask(&mut c, "BITFIELD k INCRBY u8 0 1")
            .starts_with("-NOPERM")
    );
    w.check(
        &mut c,
        "COMMAND GETKEYSANDFLAGS BITFIELD k GET u8 0",
        "*1|*2|$1|k|*2|+RO|+access|",
    );
}

/// The batch holds the shard of the watched key when EXEC is refused, which lets go of the watch. All of it comes in one
/// piece, for only then it is one batch; commands in lines never are.
#[test]
fn exec_refused_in_one_flight_with_a_write_to_a_watched_key_answers() {
    for (before, exec) in [
        ("WATCH k", "EXEC now"),
        ("WATCH k other", "EXEC now"),
        ("WATCH other", "EXEC now"),
    ] {
        let mut w = World::new();
        let mut c = w.client();
        w.check(&mut c, before, "+OK|");
        let lines = ["SET k v", exec, "PING"].map(command);
        w.sim.send(c.peer, &lines.concat());
        let said = w.answer(&mut c);
        assert!(said.starts_with("+OK|-EXECABORT"), "{said}");
        assert!(said.ends_with("|+PONG|"), "{said}");
    }
}
