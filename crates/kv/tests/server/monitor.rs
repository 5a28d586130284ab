//! MONITOR: every command is shown as it is run, with no secret in it, and a monitor that does not
//! read is cut.

use crate::common::{World, on_every_shape};
use tidewire::sim::PlainState;
use tidewire_kv::service::Settings;

/// The lines without times and addresses.
fn lines(shown: &str) -> Vec<String> {
    let lines = shown.split('|').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            assert!(line.starts_with('+'), "{line}");
            let (head, command) = line.split_once("] ").unwrap();
            let (_, from) = head.split_once('[').unwrap();
            let (db, from) = from.split_once(' ').unwrap();
            match from {
                "lua" => format!("{db} lua {command}"),
                _ => format!("{db} {command}"),
            }
        })
        .collect()
}

#[test]
fn commands_are_shown_to_a_monitor() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut looks, mut c) = (w.client(), w.client_of(1));
        w.check(&mut c, "SET before 1", "+OK|");
        w.check(&mut looks, "MONITOR", "+OK|");
        w.check(&mut c, "SELECT 3", "+OK|");
        w.check(&mut c, "SET k a\"b\\\n\u{1}", "+OK|");
        w.check(&mut c, "MULTI", "+OK|");
        w.check(&mut c, "GET k2", "+QUEUED|");
        w.check(&mut c, "EXEC", "*1|$-1|");
        w.check(&mut c, "EVAL return(redis.call('get','x')) 0", "$-1|");
        w.check(
            &mut c,
            "NOPE",
            "-ERR unknown command 'NOPE', with args beginning with: |",
        );
        assert_eq!(
            lines(&w.answer(&mut looks)),
            [
                "0 \"SELECT\" \"3\"",
                "3 \"SET\" \"k\" \"a\\\"b\\\\\\n\\x01\"",
                "3 \"MULTI\"",
                "3 \"GET\" \"k2\"",
                "3 \"EXEC\"",
                "3 \"EVAL\" \"return(redis.call('get','x'))\" \"0\"",
                "3 lua \"get\" \"x\"",
            ]
        );
        let list = w.ask(&mut c, "CLIENT LIST");
        assert!(list.contains("flags=O "), "{list}");
        w.check(&mut looks, "RESET", "+RESET|");
        w.check(&mut c, "GET k", "$6|a\"b\\\n\u{1}|");
        assert_eq!(w.answer(&mut looks), "");
    });
}

#[test]
fn no_secret_is_shown() {
    let mut world = World::with(Settings {
        password: Some("s3cret".into()),
        ..Settings::default()
    });
    let w = &mut world;
    let (mut looks, mut c) = (w.client(), w.client_of(1));
    w.check(&mut looks, "MONITOR", "-NOAUTH Authentication required.|");
    w.check(&mut looks, "AUTH s3cret", "+OK|");
    w.check(&mut looks, "MONITOR", "+OK|");
    for line in [
        "AUTH s3cret",
        "AUTH default s3cret",
        "HELLO 2 AUTH default s3cret",
        "CONFIG SET requirepass s3cret2",
        "ACL SETUSER bob on >s3cret",
        "MULTI",
        "AUTH s3cret2",
        "ACL SETUSER bob on >s3cret",
        "EXEC",
    ] {
        let got = w.ask(&mut c, line);
        assert!(!got.starts_with('-'), "{line}: {got}");
    }
    let shown = w.answer(&mut looks);
    assert!(shown.contains("\"AUTH\" \"(redacted)\""), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn a_user_without_the_right_is_no_monitor() {
    let mut world = World::new();
    let w = &mut world;
    let (mut admin, mut bob) = (w.client(), w.client_of(1));
    w.check(
        &mut admin,
        "ACL SETUSER bob on nopass +@all -@dangerous ~*",
        "+OK|",
    );
    w.check(&mut bob, "AUTH bob x", "+OK|");
    let no = "-NOPERM User bob has no permissions to run the 'monitor' command|";
    w.check(&mut bob, "MONITOR", no);
    // A monitor goes when its user does.
    w.check(&mut admin, "ACL SETUSER bob +monitor", "+OK|");
    w.check(&mut bob, "MONITOR", "+OK|");
    w.check(&mut admin, "ACL DELUSER bob", ":1|");
    w.check(&mut admin, "SET k v", "+OK|");
    assert!(!w.answer(&mut bob).contains("SET"));
    assert_ne!(w.sim.state(bob.peer), PlainState::Open);
}
