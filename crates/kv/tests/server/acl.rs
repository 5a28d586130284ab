//! Users and their rights: what is refused, wherever it comes from, and what happens to connected
//! users when rights change.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, World, on_every_shape};
use tidewire::sim::chunking;
use tidewire::sim::{Conditions, PlainState};
use tidewire_kv::binary::{encode_read, encode_response, encode_write};
use tidewire_kv::service::{BinaryService, RespService, Settings};
use tidewire_kv::store::Store;

const NO_KEY: &str = "-NOPERM No permissions to access a key|";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel|";

fn no_command(user: &str, call: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{call}' command|")
}

/// A world, a client that may do everything, and bob, who may do as the rules say.
fn with_bob(rules: &str) -> (World, Client, Client) {
    let mut world = World::new();
    let (mut admin, mut bob) = (world.client(), world.client_of(1));
    let line = format!("ACL SETUSER bob on >pw {rules}");
    world.check(&mut admin, &line, "+OK|");
    world.check(&mut bob, "AUTH bob pw", "+OK|");
    (world, admin, bob)
}

impl World {
    /// Sends words that may have spaces in them, with `;` between them.
    fn ask_words(&mut self, client: &mut Client, words: &str) -> String {
        let words: Vec<&str> = words.split(';').collect();
        self.sim.send(client.peer, &crate::wire::of_words(&words));
        self.answer(client)
    }
}

#[test]
fn a_user_may_do_what_the_rules_say_and_nothing_else() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) =
            with_bob("~a:* %R~r:* %W~w:* +@read +set +rename +copy +client|id (+del ~d:*)");
        let w = &mut world;
        w.check(&mut bob, "ACL WHOAMI", &no_command("bob", "acl|whoami"));
        w.check(&mut bob, "SET a:1 x", "+OK|");
        w.check(&mut bob, "GET a:1", "$1|x|");
        w.check(&mut bob, "GET r:1", "$-1|");
        w.check(&mut bob, "SET r:1 x", NO_KEY);
        w.check(&mut bob, "SET w:1 x", "+OK|");
        w.check(&mut bob, "GET w:1", NO_KEY);
        w.check(&mut bob, "SET w:1 y GET", NO_KEY);
        w.check(&mut bob, "SET w:1 GET", "+OK|");
        w.check(&mut bob, "STRLEN w:1", ":3|");
        w.check(&mut bob, "MGET a:1 b", NO_KEY);
        w.check(&mut bob, "RENAME a:1 r:2", NO_KEY);
        w.check(&mut bob, "RENAME r:1 a:2", NO_KEY);
        w.check(&mut bob, "COPY r:1 w:2", ":0|");
        w.check(&mut bob, "COPY w:1 a:2", NO_KEY);
        w.check(&mut bob, "DEL a:1", NO_KEY);
        w.check(&mut bob, "DEL d:1", ":0|");
        w.check(&mut bob, "DEL d:1 a:1", NO_KEY);
        w.check(&mut bob, "CLIENT LIST", &no_command("bob", "client|list"));
        assert!(w.ask(&mut bob, "CLIENT ID").starts_with(':'));
        w.check(&mut bob, "FLUSHALL", &no_command("bob", "flushall"));
        w.check(&mut bob, "CONFIG GET *", &no_command("bob", "config|get"));
        // An unknown command, and one with too few words, are told as such.
        assert!(w.ask(&mut bob, "NOPE").starts_with("-ERR unknown command"));
        let list = w.ask(&mut admin, "CLIENT LIST");
        assert!(
            list.contains(" user=bob ") && list.contains(" user=default "),
            "{list}"
        );
        // Nothing of it was done.
        w.check(&mut admin, "GET a:1", "$1|x|");
        w.check(&mut admin, "DBSIZE", ":2|");
    });
}

#[test]
fn destinations_and_keys_of_every_form_are_asked_for() {
    let (mut world, mut admin, mut bob) = with_bob("~a* +@all");
    let w = &mut world;
    w.check(&mut admin, "RPUSH a1 1", ":1|");
    for line in [
        "SORT a1 STORE b",
        "SORT a1 LIMIT 0 1 STORE b",
        "SORT b",
        "SINTERSTORE b a1",
        "SUNIONSTORE a1 b",
        "ZUNIONSTORE b 1 a1",
        "ZUNIONSTORE a2 2 a1 b",
        "ZINTER 2 a1 b",
        "LMPOP 2 a1 b LEFT",
        "BLMPOP 1 2 a1 b LEFT",
        "BLPOP a1 b 1",
        "BITOP NOT b a1",
        "BITOP NOT a1 b",
        "LMOVE a1 b LEFT LEFT",
        "SMOVE a1 b x",
        "COPY a1 b",
        "RENAMENX a1 b",
        "MSET a1 x b y",
        "XREAD STREAMS a1 b 0 0",
        "XREAD COUNT 1 BLOCK 10 STREAMS b 0",
        "XREADGROUP GROUP g c STREAMS a1 b > >",
        "XGROUP CREATE b g $ MKSTREAM",
        "XINFO STREAM b",
        "OBJECT ENCODING b",
        "MEMORY USAGE b",
        "ZRANGESTORE b a1 0 1",
        "EVAL x 1 b",
        "EVALSHA 0000000000000000000000000000000000000000 2 a1 b",
        "WATCH a1 b",
        "TOUCH b",
        "TYPE b",
    ] {
        let known = w.ask(
            &mut admin,
            &format!("COMMAND INFO {}", line.split(' ').next().unwrap()),
        );
        if known != "*1|$-1|" {
            w.check(&mut bob, line, NO_KEY);
        }
    }
    for (line, option) in [
        ("SORT a1 BY b_*", "BY"),
        ("SORT a1 BY b_* GET #", "BY"),
        ("SORT a1 GET b_*->f", "GET"),
        ("SORT_RO a1 GET b_*", "GET"),
    ] {
        let error =
            format!("-ERR {option} option of SORT denied due to insufficient ACL permissions.|");
        w.check(&mut bob, line, &error);
    }
    w.check(&mut bob, "SORT a1 BY nosort GET #", "*1|$1|1|");
    w.check(&mut admin, "ACL SETUSER bob %R~*", "+OK|");
    w.check(&mut bob, "SORT a1 BY b_* GET b_*", "*1|$-1|");
    w.check(&mut admin, "DBSIZE", ":1|");
}

#[test]
fn rights_are_asked_for_when_queued_and_again_at_exec() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("~a* +@all");
        let w = &mut world;
        w.check(&mut bob, "MULTI", "+OK|");
        w.check(&mut bob, "SET b 1", NO_KEY);
        w.check(&mut bob, "SET a 1", "+QUEUED|");
        let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
        w.check(&mut bob, "EXEC", aborted);
        w.check(&mut bob, "MULTI", "+OK|");
        w.check(&mut bob, "SET a 1", "+QUEUED|");
        w.check(&mut bob, "GET a", "+QUEUED|");
        w.check(&mut admin, "ACL SETUSER bob -set", "+OK|");
        let got = w.ask(&mut bob, "EXEC");
        assert!(
            got.starts_with("*2|-NOPERM ACLs rules changed between") && got.ends_with("|$-1|"),
            "{got}"
        );
        // The script may take its own rights away in the middle.
        w.check(&mut bob, "MULTI", "+OK|");
        w.check(&mut bob, "ACL SETUSER bob -get", "+QUEUED|");
        w.check(&mut bob, "GET a", "+QUEUED|");
        let got = w.ask(&mut bob, "EXEC");
        assert!(
            got.starts_with("*2|+OK|-NOPERM ACLs rules changed"),
            "{got}"
        );
        let log = w.ask(&mut admin, "ACL LOG");
        assert!(log.contains("|multi|"), "{log}");
    });
}

#[test]
fn scripts_have_the_rights_of_their_caller() {
    let (mut world, mut admin, mut bob) = with_bob("~a* &c* +@all -set");
    let w = &mut world;
    let denied = "ACL failure in script: ";
    for (script, why) in [
        (
            "return redis.call('set','a','1')",
            "User bob has no permissions to run the 'set' command",
        ),
        (
            "return redis.call('get','b')",
            "No permissions to access a key",
        ),
        (
            "return redis.call('publish','d','x')",
            "No permissions to access a channel",
        ),
        (
            "return redis.pcall('incr','b')",
            "No permissions to access a key",
        ),
    ] {
        let got = w.ask_words(&mut bob, &format!("EVAL;{script};0"));
        assert!(got.starts_with(&format!("-ERR {denied}{why}")), "{got}");
        let got = w.ask_words(&mut bob, &format!("EVAL;{script};1;b"));
        assert_eq!(got, NO_KEY);
    }
    // A script that another user has loaded gives no rights.
    let hash = w.ask_words(&mut admin, "SCRIPT;LOAD;return redis.call('get',ARGV[1])");
    let hash = hash.split('|').nth(1).unwrap().to_owned();
    let got = w.ask(&mut bob, &format!("EVALSHA {hash} 0 b"));
    assert!(got.contains(denied), "{got}");
    w.check(&mut bob, &format!("EVALSHA {hash} 0 a"), "$-1|");
    // In a transaction too.
    w.check(&mut bob, "MULTI", "+OK|");
    w.check(&mut bob, &format!("EVALSHA {hash} 0 b"), "+QUEUED|");
    let got = w.ask(&mut bob, "EXEC");
    assert!(got.contains(denied), "{got}");
    let log = w.ask(&mut admin, "ACL LOG");
    assert!(log.contains("|lua|"), "{log}");
    w.check(&mut admin, "DBSIZE", ":0|");
}

#[test]
fn channels_are_matched_and_patterns_are_named() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("resetchannels &news* &x +@all");
        let w = &mut world;
        w.check(&mut bob, "PUBLISH other 1", NO_CHANNEL);
        w.check(&mut bob, "SPUBLISH other 1", NO_CHANNEL);
        w.check(&mut bob, "PUBLISH newsletter 1", ":0|");
        w.check(&mut bob, "SUBSCRIBE x other", NO_CHANNEL);
        w.check(&mut bob, "SSUBSCRIBE other", NO_CHANNEL);
        // A pattern that only matches within could be wider than what it may hear.
        w.check(&mut bob, "PSUBSCRIBE news1*", NO_CHANNEL);
        w.check(&mut bob, "PSUBSCRIBE *", NO_CHANNEL);
        w.check(
            &mut bob,
            "PSUBSCRIBE news*",
            "*3|$10|psubscribe|$5|news*|:1|",
        );
        w.check(&mut admin, "PUBLISH news1 hello", ":1|");
        assert!(w.answer(&mut bob).contains("hello"));
        // More rights leave it alone, fewer end it.
        w.check(&mut admin, "ACL SETUSER bob &more", "+OK|");
        w.check(&mut admin, "PUBLISH news1 again", ":1|");
        assert!(w.answer(&mut bob).contains("again"));
        w.check(&mut admin, "ACL SETUSER bob resetchannels &news1", "+OK|");
        let _ = w.ask(&mut admin, "PUBLISH news1 never");
        assert_eq!(w.answer(&mut bob), "");
        assert_ne!(w.sim.state(bob.peer), PlainState::Open);
    });
}

#[test]
fn a_message_that_is_on_its_way_is_not_heard_without_the_right() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("&c +@all");
        let w = &mut world;
        w.check(&mut bob, "SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1|");
        // In one piece, so that no loop turns in between.
        let lines = [
            &["ACL", "SETUSER", "bob", "resetchannels"][..],
            &["PUBLISH", "c", "secret"],
        ];
        let bytes: Vec<u8> = lines
            .iter()
            .flat_map(|line| crate::wire::of_words(line))
            .collect();
        w.sim.send(admin.peer, &bytes);
        assert!(w.answer(&mut admin).starts_with("+OK|:"));
        assert_eq!(w.answer(&mut bob), "");
        assert_ne!(w.sim.state(bob.peer), PlainState::Open);
    });
}

#[test]
fn a_user_that_is_deleted_is_gone_at_once() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("~* &* +@all");
        let w = &mut world;
        let (mut blocked, mut listens, mut queues) = (w.client(), w.client_of(1), w.client());
        for client in [&mut blocked, &mut listens, &mut queues] {
            w.check(client, "AUTH bob pw", "+OK|");
        }
        w.check(&mut blocked, "BLPOP l 0", "");
        w.ask(&mut listens, "SUBSCRIBE c");
        w.check(&mut queues, "MULTI", "+OK|");
        w.check(&mut queues, "SET q 1", "+QUEUED|");
        // What is sent in one piece behind it is not run.
        w.check(&mut admin, "ACL DELUSER bob nobody", ":1|");
        w.send(&queues, "EXEC");
        w.check(&mut admin, "RPUSH l 1", ":1|");
        let _ = w.ask(&mut admin, "PUBLISH c 1");
        for client in [&mut bob, &mut blocked, &mut listens, &mut queues] {
            assert_eq!(w.answer(client), "");
            assert_ne!(w.sim.state(client.peer), PlainState::Open);
        }
        w.check(&mut admin, "LLEN l", ":1|");
        w.check(&mut admin, "EXISTS q", ":0|");
        // A new user of the old name is another user.
        w.check(&mut admin, "ACL SETUSER bob on nopass +ping", "+OK|");
        let mut again = w.client();
        w.check(&mut again, "AUTH bob x", "+OK|");
        w.check(&mut again, "PING", "+PONG|");
    });
}

#[test]
fn a_user_that_deletes_itself_is_answered_and_goes() {
    let (mut world, _, mut bob) = with_bob("~* +@all");
    let bytes = [&["ACL", "DELUSER", "bob"][..], &["SET", "k", "v"]];
    let bytes: Vec<u8> = bytes
        .iter()
        .flat_map(|line| crate::wire::of_words(line))
        .collect();
    world.sim.send(bob.peer, &bytes);
    assert_eq!(world.answer(&mut bob), ":1|");
    assert_ne!(world.sim.state(bob.peer), PlainState::Open);
    let mut other = world.client();
    world.check(&mut other, "EXISTS k", ":0|");
    world.check(
        &mut other,
        "ACL DELUSER x default",
        "-ERR The 'default' user cannot be removed|",
    );
}

#[test]
fn a_blocked_command_is_refused_when_it_would_be_served() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("~l +@all");
        let w = &mut world;
        w.check(&mut bob, "BLPOP l 0", "");
        w.check(&mut admin, "ACL SETUSER bob -blpop", "+OK|");
        w.check(&mut admin, "RPUSH l 1", ":1|");
        assert_eq!(w.answer(&mut bob), no_command("bob", "blpop"));
        w.check(&mut admin, "LRANGE l 0 -1", "*1|$1|1|");
        // The client goes on with what it may do, and may wait again when it has the right.
        w.check(&mut admin, "ACL SETUSER bob +blpop", "+OK|");
        w.check(&mut bob, "BLPOP l 0", "*2|$1|l|$1|1|");
        w.check(&mut bob, "BLPOP l 0", "");
        w.check(&mut admin, "ACL SETUSER bob resetkeys ~m", "+OK|");
        w.check(&mut admin, "RPUSH l 2", ":1|");
        assert_eq!(w.answer(&mut bob), NO_KEY);
        w.check(&mut admin, "LLEN l", ":1|");
    });
}

#[test]
fn a_pipeline_is_held_to_rights_that_change_within_it() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("~* +@all");
        let lines = ["SET k 1", "ACL SETUSER bob -set", "SET k 2", "GET k"];
        let bytes: Vec<u8> = lines
            .iter()
            .flat_map(|line| crate::wire::command(line))
            .collect();
        world.sim.send(bob.peer, &bytes);
        let expected = format!("+OK|+OK|{}$1|1|", no_command("bob", "set"));
        assert_eq!(world.answer(&mut bob), expected);
        // A command of another user: AUTH in the middle.
        world.check(&mut admin, "ACL SETUSER eve on nopass +get ~e", "+OK|");
        let lines = ["GET k", "AUTH eve x", "GET k", "GET e", "RESET", "GET k"];
        let bytes: Vec<u8> = lines
            .iter()
            .flat_map(|line| crate::wire::command(line))
            .collect();
        world.sim.send(bob.peer, &bytes);
        assert_eq!(
            world.answer(&mut bob),
            format!("$1|1|+OK|{NO_KEY}$-1|+RESET|$1|1|")
        );
    });
}

#[test]
fn a_stranger_may_log_in_and_nothing_else() {
    on_every_shape(|| {
        let mut world = World::with(Settings {
            password: Some("secret".into()),
            ..Settings::default()
        });
        let w = &mut world;
        let (mut admin, mut c) = (w.client(), w.client_of(1));
        w.check(&mut admin, "AUTH secret", "+OK|");
        w.check(&mut admin, "ACL SETUSER bob on >pw +@all ~*", "+OK|");
        w.check(&mut admin, "ACL SETUSER off >pw +@all ~*", "+OK|");
        for line in [
            "MULTI",
            "SUBSCRIBE c",
            "ACL WHOAMI",
            "CLIENT REPLY OFF",
            "GET k",
        ] {
            w.check(&mut c, line, "-NOAUTH Authentication required.|");
        }
        let abort = "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.|";
        w.check(&mut c, "EXEC", abort);
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
        for line in [
            "AUTH wrong",
            "AUTH bob secret",
            "AUTH off pw",
            "AUTH nobody pw",
            "AUTH default pw",
            "HELLO 3 AUTH bob wrong",
        ] {
            w.check(&mut c, line, wrong);
        }
        w.check(&mut c, "GET k", "-NOAUTH Authentication required.|");
        assert!(w.ask(&mut c, "HELLO 2 AUTH bob pw").starts_with("*14|"));
        w.check(&mut c, "ACL WHOAMI", "$3|bob|");
        // A wrong password takes nothing away from a client that has shown another.
        w.check(&mut c, "AUTH default wrong", wrong);
        w.check(&mut c, "ACL WHOAMI", "$3|bob|");
        w.check(&mut c, "RESET", "+RESET|");
        w.check(&mut c, "GET k", "-NOAUTH Authentication required.|");
        // A connected user that is switched off stays; a new one cannot log in.
        w.check(&mut c, "AUTH bob pw", "+OK|");
        w.check(&mut admin, "ACL SETUSER bob off", "+OK|");
        w.check(&mut c, "GET k", "$-1|");
        w.check(&mut c, "AUTH bob pw", wrong);
        let info = w.ask(&mut admin, "INFO stats");
        assert!(info.contains("acl_access_denied_auth:8|"), "{info}");
    });
}

#[test]
fn the_default_user_is_every_clients_at_first() {
    let mut world = World::new();
    let w = &mut world;
    let (mut admin, mut c) = (w.client(), w.client_of(1));
    w.check(&mut admin, "ACL SETUSER root on >pw ~* &* +@all", "+OK|");
    w.check(&mut admin, "AUTH root pw", "+OK|");
    w.check(&mut c, "SET k v", "+OK|");
    w.check(&mut admin, "ACL SETUSER default -set", "+OK|");
    w.check(&mut c, "SET k w", &no_command("default", "set"));
    // With a password, present clients stay, and new ones have to say it.
    w.check(&mut admin, "CONFIG SET requirepass secret", "+OK|");
    w.check(&mut c, "GET k", "$1|v|");
    let mut later = w.client();
    w.check(&mut later, "GET k", "-NOAUTH Authentication required.|");
    w.check(&mut later, "AUTH secret", "+OK|");
    w.check(&mut later, "SET k w", &no_command("default", "set"));
    // Switched off, the user is for no client.
    w.check(&mut admin, "ACL SETUSER default off nopass", "+OK|");
    let mut later = w.client();
    w.check(&mut later, "PING", "-NOAUTH Authentication required.|");
    assert!(
        w.ask(&mut later, "AUTH default x")
            .starts_with("-WRONGPASS")
    );
    w.check(&mut later, "AUTH root pw", "+OK|");
    let line = w.ask(&mut admin, "ACL LIST");
    assert!(
        line.contains("user default off nopass ~* &* +@all -set|"),
        "{line}"
    );
}

#[test]
fn the_binary_port_is_for_users_with_all_rights() {
    let store = Store::new(tidewire_kv::store::Settings::default());
    let settings = Settings {
        protected: false,
        ..Settings::default()
    };
    let resp = RespService::new(Arc::new(store), settings);
    let say = |text: &str| chunking::collect(resp.clone(), text.as_bytes(), &[], true).output;
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    encode_write(b"k", b"v", &mut requests);
    encode_response(b"v", &mut answers);
    encode_read(b"k", &mut requests);
    encode_response(b"v", &mut answers);
    let binary = || {
        let binary = BinaryService::guarded(&resp);
        chunking::collect(binary, &requests, &[], true).output
    };
    assert_eq!(binary(), answers);
    assert_eq!(say("ACL SETUSER root on >pw ~* &* +@all\r\n"), b"+OK\r\n");
    for rules in ["-set", "+@all resetkeys ~x", "~* off", "on >pw"] {
        let got = say(&format!("AUTH root pw\r\nACL SETUSER default {rules}\r\n"));
        assert_eq!(got, b"+OK\r\n+OK\r\n", "{rules}");
        assert_eq!(binary(), b"", "{rules}");
    }
    say("AUTH root pw\r\nACL SETUSER default nopass on\r\n");
    assert_eq!(binary(), answers);
    // A connection that is open when rights go is closed.
    let mut sim = tidewire::sim::Sim::under(1, Conditions::calm());
    let at = sim.serve(BinaryService::guarded(&resp), BinaryService::limits());
    let client = sim.plain(at);
    sim.send(client, &requests);
    sim.run_for(Duration::from_millis(20));
    assert_eq!(sim.received(client), answers);
    say("AUTH root pw\r\nACL SETUSER default -get\r\n");
    sim.send(client, &requests);
    sim.run_for(Duration::from_millis(20));
    assert_eq!(sim.received(client), answers, "not a byte more");
}

#[test]
fn the_log_tells_which_user_was_refused_and_no_secret() {
    on_every_shape(|| {
        let (mut world, mut admin, mut bob) = with_bob("~a +@all -config");
        let w = &mut world;
        w.check(&mut admin, "ACL LOG", "*0|");
        w.check(&mut admin, "CONFIG SET slowlog-log-slower-than 0", "+OK|");
        for _ in 0..3 {
            w.check(&mut bob, "GET b", NO_KEY);
        }
        w.ask(&mut bob, "CONFIG SET requirepass s3cret");
        w.ask(&mut bob, "AUTH bob s3cret");
        w.ask(&mut bob, "HELLO 3 AUTH eve s3cret");
        w.check(
            &mut admin,
            "ACL SETUSER eve on >s3cret #bad",
            "-ERR Error in ACL SETUSER modifier '#bad': \
The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters|",
        );
        let log = w.ask(&mut admin, "ACL LOG");
        assert!(
            log.starts_with("*4|*20|$5|count|:1|$6|reason|$4|auth|"),
            "{log}"
        );
        for part in [
            "|$6|object|$5|HELLO|$8|username|$3|eve|",
            "|$6|object|$4|AUTH|$8|username|$3|bob|",
            "|$6|object|$10|config|set|$8|username|$3|bob|",
            "|$5|count|:3|$6|reason|$3|key|$7|context|$8|toplevel|$6|object|$1|b|$8|username|$3|bob|",
            " user=bob ",
        ] {
            assert!(log.contains(part), "{part}: {log}");
        }
        let slow = w.ask(&mut admin, "SLOWLOG GET -1");
        for text in [&log, &slow] {
            assert!(!text.contains("s3cret") && !text.contains("#bad"), "{text}");
        }
        assert!(w.ask(&mut admin, "ACL LOG 1").starts_with("*1|"));
        w.check(&mut admin, "ACL LOG -1", "*0|");
        w.check(&mut admin, "ACL LOG RESET", "+OK|");
        w.check(&mut admin, "ACL LOG", "*0|");
        // The log does not grow.
        w.check(&mut admin, "CONFIG SET acllog-max-len 5", "+OK|");
        for n in 0..20 {
            w.check(&mut bob, &format!("GET b{n}"), NO_KEY);
        }
        assert!(w.ask(&mut admin, "ACL LOG 100").starts_with("*5|"));
    });
}

#[test]
fn users_are_kept_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    std::fs::write(
        &path,
        "# people\n\nuser bob on nopass ~b* &* +@all\nuser eve on nopass +ping\n",
    )
    .unwrap();
    let mut world = World::new();
    world.service.use_acl_file(&path).unwrap();
    let w = &mut world;
    let (mut admin, mut bob, mut eve) = (w.client(), w.client_of(1), w.client());
    w.check(&mut bob, "AUTH bob x", "+OK|");
    w.check(&mut eve, "AUTH eve x", "+OK|");
    w.check(&mut bob, "GET k", NO_KEY);
    w.check(&mut admin, "ACL SETUSER joe on >pw (+get ~j)", "+OK|");
    w.check(&mut admin, "ACL SAVE", "+OK|");
    let saved = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = saved.lines().collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[1], "user default on nopass ~* &* +@all");
    assert!(lines[3].starts_with(
        "user joe on #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4 "
    ));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // A file that is wrong changes nothing, and its secrets are told to no client.
    std::fs::write(&path, "user bob on >s3cret nonsense\n").unwrap();
    let got = w.ask(&mut admin, "ACL LOAD");
    assert!(
        got.starts_with("-ERR ") && got.contains(":1: Syntax error WARNING"),
        "{got}"
    );
    assert!(
        !got.contains("s3cret") && !got.contains("nonsense"),
        "{got}"
    );
    w.check(&mut eve, "PING", "+PONG|");
    for wrong in ["bob on", "user bob on\nuser bob off", "user"] {
        std::fs::write(&path, wrong).unwrap();
        assert!(
            w.ask(&mut admin, "ACL LOAD").starts_with("-ERR "),
            "{wrong}"
        );
    }
    // Users that are not in it any more go, the others stay with other rights.
    std::fs::write(&path, "user bob on nopass ~k +@all").unwrap();
    w.check(&mut admin, "ACL LOAD", "+OK|");
    w.check(&mut bob, "GET k", "$-1|");
    assert_eq!(w.answer(&mut eve), "");
    assert_ne!(w.sim.state(eve.peer), PlainState::Open);
    w.check(&mut admin, "ACL USERS", "*2|$3|bob|$7|default|");
    std::fs::remove_file(&path).unwrap();
    assert!(
        w.ask(&mut admin, "ACL LOAD")
            .starts_with("-ERR the ACL file")
    );
    w.check(&mut admin, "ACL USERS", "*2|$3|bob|$7|default|");
}

#[test]
fn a_password_of_the_settings_and_a_file_do_not_open_a_door_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let open = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let store = Arc::new(Store::new(tidewire_kv::store::Settings::default()));
        let settings = Settings {
            password: Some("secret".into()),
            ..Settings::default()
        };
        let service = RespService::new(store, settings);
        service.use_acl_file(&path).map(|()| service)
    };
    let service = open("user bob on nopass +@all ~*\n").unwrap();
    let say = |text: &str| chunking::collect(service.clone(), text.as_bytes(), &[], true).output;
    assert!(say("PING\r\n").starts_with(b"-NOAUTH"));
    assert_eq!(say("AUTH secret\r\nPING\r\n"), b"+OK\r\n+PONG\r\n");
    open("user default on >secret ~* &* +@all\n").unwrap();
    for text in [
        "user default on nopass ~* &* +@all\n",
        "user default on >other ~* &* +@all\n",
        "user default off\n",
    ] {
        let error = open(text).unwrap_err().to_string();
        assert!(
            error.contains("name it in one place") && !error.contains("secret"),
            "{error}"
        );
    }
}

#[test]
fn what_is_asked_of_acl_is_answered() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    w.check(&mut c, "ACL WHOAMI", "$7|default|");
    w.check(
        &mut c,
        "ACL LIST",
        "*1|$34|user default on nopass ~* &* +@all|",
    );
    let password = w.ask(&mut c, "ACL GENPASS");
    assert!(
        password.starts_with("$64|") && password.len() == 69,
        "{password}"
    );
    assert_ne!(w.ask(&mut c, "ACL GENPASS"), password);
    assert!(w.ask(&mut c, "ACL GENPASS 5").starts_with("$2|"));
    for bits in ["0", "-1", "4097"] {
        assert!(
            w.ask(&mut c, &format!("ACL GENPASS {bits}"))
                .starts_with("-ERR ACL GENPASS argument")
        );
    }
    w.check(&mut c, "ACL CAT nope", "-ERR Unknown category 'nope'|");
    assert!(
        w.ask(&mut c, "ACL CAT")
            .starts_with("*21|$8|keyspace|$4|read|")
    );
    assert!(w.ask(&mut c, "ACL CAT TRANSACTION").starts_with("*5|"));
    w.check(&mut c, "ACL GETUSER nobody", "$-1|");
    w.check(
        &mut c,
        "ACL SETUSER bob on >pw ~a %R~b &c +@read (+set ~d)",
        "+OK|",
    );
    w.check(
        &mut c,
        "ACL GETUSER bob",
        "*12|$5|flags|*1|$2|on|$9|passwords|*1|\
         $64|30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4|\
         $8|commands|$12|-@all +@read|$4|keys|$7|~a %R~b|$8|channels|$2|&c|\
         $9|selectors|*1|*6|$8|commands|$10|-@all +set|$4|keys|$2|~d|$8|channels|$0||",
    );
    w.check(&mut c, "ACL DRYRUN bob GET a", "+OK|");
    w.check(&mut c, "ACL DRYRUN bob SET d 1", "+OK|");
    w.check(
        &mut c,
        "ACL DRYRUN bob GET z",
        "$49|User bob has no permissions to access the 'z' key|",
    );
    w.check(
        &mut c,
        "ACL DRYRUN nobody GET a",
        "-ERR User 'nobody' not found|",
    );
    w.check(
        &mut c,
        "ACL DRYRUN bob nope a",
        "-ERR Command 'nope' not found|",
    );
    w.check(
        &mut c,
        "ACL DRYRUN bob GET",
        "-ERR wrong number of arguments for 'get' command|",
    );
    w.check(&mut c, "EXISTS d", ":0|");
    for line in ["ACL LOAD", "ACL SAVE"] {
        assert!(
            w.ask(&mut c, line)
                .starts_with("-ERR This Redis instance is not configured")
        );
    }
    let mut spaced = w.client();
    let got = w.ask_words(&mut spaced, "ACL;SETUSER;a b;on");
    assert_eq!(
        got,
        "-ERR Usernames can't contain spaces or null characters|"
    );
    w.check(&mut c, "CONFIG SET acl-pubsub-default allchannels", "+OK|");
    w.check(&mut c, "ACL SETUSER eve", "+OK|");
    assert!(w.ask(&mut c, "ACL LIST").contains("user eve off &* -@all|"));
}

#[test]
fn hostile_rules_are_refused_and_leave_no_half_of_them() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let long = "x".repeat(100_000);
    for rule in [format!("~{long}"), format!("&{long}"), format!("(~{long})")] {
        assert!(
            w.ask(&mut c, &format!("ACL SETUSER bob on {rule}"))
                .starts_with("-ERR Error in ACL")
        );
    }
    let words: Vec<String> = (0..2000).map(|n| format!(">p{n}")).collect();
    let got = w.ask(&mut c, &format!("ACL SETUSER bob on {}", words.join(" ")));
    assert!(got.contains("at most 1024 passwords"), "{got}");
    w.check(&mut c, "ACL USERS", "*1|$7|default|");
    w.check(&mut c, "ACL SETUSER bob +get", "+OK|");
    assert!(
        w.ask(&mut c, "ACL SETUSER bob +set +nope")
            .starts_with("-ERR")
    );
    w.check(
        &mut c,
        "ACL DRYRUN bob SET k v",
        "$52|User bob has no permissions to run the 'set' command|",
    );
}

#[test]
fn the_patterns_of_a_selector_are_bounded() {
    let mut world = World::new();
    let mut c = world.client();
    let long = "x".repeat(60_000);
    let keys = |n: usize| -> String { (0..n).map(|n| format!(" ~{n}{long}")).collect() };
    let line = format!("ACL SETUSER bob on{}", keys(17));
    world.check(&mut c, &line, "+OK|");
    for more in [format!("~a{long}"), format!("&b{long}")] {
        let answer = world.ask(&mut c, &format!("ACL SETUSER bob {more}"));
        assert!(answer.contains("at most 1048576 bytes"), "{answer}");
    }
    // Another selector has its own.
    let line = format!("ACL SETUSER bob (~a{long})");
    world.check(&mut c, &line, "+OK|");
}
