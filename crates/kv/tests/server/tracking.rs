//! CLIENT TRACKING: a client that caches what it has read hears of every change, whichever client
//! makes it and however.

use std::time::Duration;

use crate::common::{Client, World, on_every_shape};

/// What is pushed for a key.
fn push(key: &str) -> String {
    format!(">2|$10|invalidate|*1|${}|{key}|", key.len())
}

const SUBSCRIBED: &str = "*3|$9|subscribe|$20|__redis__:invalidate|:1|";
const ALL: &str = ">2|$10|invalidate|_|";

/// A world, a client that speaks RESP3 and has said so much, and another on the other loop.
fn tracking(options: &str) -> (World, Client, Client) {
    let mut world = World::new();
    let (mut reader, writer) = (world.client(), world.client_of(1));
    world.ask(&mut reader, "HELLO 3");
    let line = format!("CLIENT TRACKING ON{options}");
    world.check(&mut reader, &line, "+OK|");
    (world, reader, writer)
}

#[test]
fn what_was_read_is_told_of_once() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking("");
        let w = &mut world;
        w.check(&mut reader, "GET a", "_|");
        w.check(&mut writer, "SET b 1", "+OK|");
        assert_eq!(w.answer(&mut reader), "", "it has not read this");
        w.check(&mut writer, "SET a 1", "+OK|");
        assert_eq!(w.answer(&mut reader), push("a"));
        w.check(&mut writer, "SET a 2", "+OK|");
        assert_eq!(w.answer(&mut reader), "", "it was told already");
        w.check(&mut reader, "GET a", "$1|2|");
        // The client's own changes are told, too, behind the reply.
        w.check(&mut reader, "SET a 3", &format!("+OK|{}", push("a")));
        // What it only writes it does not keep.
        w.check(&mut writer, "SET a 4", "+OK|");
        assert_eq!(w.answer(&mut reader), "");
        w.check(&mut reader, "CLIENT TRACKING OFF", "+OK|");
        w.check(&mut reader, "GET a", "$1|4|");
        w.check(&mut writer, "SET a 5", "+OK|");
        assert_eq!(w.answer(&mut reader), "");
    });
}

#[test]
fn every_way_in_which_a_key_changes_is_one() {
    on_every_shape(|| {
        for change in [
            "DEL a",
            "UNLINK a",
            "APPEND a x",
            "SETRANGE a 0 x",
            "EXPIRE a 100",
            "PEXPIRE a 0",
            "RENAME a b",
            "RENAME c a",
            "COPY c a REPLACE",
            "MOVE a 1",
            "GETDEL a",
            "GETEX a EX 10",
            "SETBIT a 1 1",
            "SINTERSTORE a none none",
            "EVAL return(redis.call('set','a','1')) 0",
            "FLUSHDB",
            "FLUSHALL ASYNC",
            "SWAPDB 0 1",
        ] {
            let (mut world, mut reader, mut writer) = tracking("");
            let w = &mut world;
            w.check(&mut writer, "MSET a 1 c 2", "+OK|");
            w.check(&mut reader, "MGET a x", "*2|$1|1|_|");
            let got = w.ask(&mut writer, change);
            assert!(!got.starts_with('-'), "{change}: {got}");
            let told = w.answer(&mut reader);
            let all = ["FLUSH", "SWAP"]
                .iter()
                .any(|word| change.starts_with(word));
            assert_eq!(
                told,
                if all { ALL.to_owned() } else { push("a") },
                "{change}"
            );
        }
    });
}

#[test]
fn keys_that_expire_or_are_evicted_are_told_of() {
    let (mut world, mut reader, mut writer) = tracking("");
    let w = &mut world;
    w.check(&mut writer, "SET a 1 PX 50", "+OK|");
    w.check(&mut reader, "GET a", "$1|1|");
    w.sim.run_for(Duration::from_secs(2));
    assert_eq!(w.answer(&mut reader), push("a"), "nobody has asked for it");
    w.check(&mut writer, "SET b 1", "+OK|");
    w.check(&mut reader, "GET b", "$1|1|");
    w.check(
        &mut writer,
        "CONFIG SET maxmemory-policy allkeys-random maxmemory 1",
        "+OK|",
    );
    let _ = w.ask(&mut writer, "SET c 1");
    assert_eq!(w.answer(&mut reader), push("b"));
}

#[test]
fn transactions_and_scripts_read_and_change_as_others_do() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking("");
        let w = &mut world;
        w.check(&mut reader, "MULTI", "+OK|");
        w.check(&mut reader, "GET a", "+QUEUED|");
        w.check(&mut reader, "EXEC", "*1|_|");
        w.check(&mut reader, "EVAL return(redis.call('get','b')) 0", "_|");
        w.check(&mut writer, "MULTI", "+OK|");
        w.check(&mut writer, "SET a 1", "+QUEUED|");
        w.check(&mut writer, "SET b 1", "+QUEUED|");
        assert_eq!(w.answer(&mut reader), "");
        w.check(&mut writer, "EXEC", "*2|+OK|+OK|");
        let told = w.answer(&mut reader);
        assert!(told.contains("|$1|a|") && told.contains("|$1|b|"), "{told}");
    });
}

#[test]
fn a_client_may_choose_what_it_keeps() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking(" OPTIN");
        let w = &mut world;
        let no = "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.|";
        w.check(&mut reader, "CLIENT CACHING NO", no);
        w.check(&mut reader, "GET a", "_|");
        w.check(&mut reader, "CLIENT CACHING YES", "+OK|");
        w.check(&mut reader, "GET b", "_|");
        w.check(&mut reader, "GET c", "_|");
        w.check(&mut reader, "CLIENT CACHING YES", "+OK|");
        w.check(&mut reader, "MULTI", "+OK|");
        w.check(&mut reader, "GET d", "+QUEUED|");
        w.check(&mut reader, "EXEC", "*1|_|");
        w.check(&mut reader, "GET e", "_|");
        for key in ["a", "b", "c", "d", "e"] {
            w.check(&mut writer, &format!("SET {key} 1"), "+OK|");
        }
        assert_eq!(w.answer(&mut reader), push("b") + &push("d"));
        let (mut world, mut reader, mut writer) = tracking(" OPTOUT");
        let w = &mut world;
        w.check(&mut reader, "CLIENT CACHING NO", "+OK|");
        w.check(&mut reader, "GET a", "_|");
        w.check(&mut reader, "GET b", "_|");
        w.check(&mut writer, "SET a 1", "+OK|");
        w.check(&mut writer, "SET b 1", "+OK|");
        assert_eq!(w.answer(&mut reader), push("b"));
    });
}

#[test]
fn prefixes_of_keys_are_told_of_whichever_client_reads_them() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking(" BCAST PREFIX user: PREFIX x NOLOOP");
        let w = &mut world;
        for key in ["user:1", "user:1", "use", "other", "x"] {
            w.check(&mut writer, &format!("SET {key} 1"), "+OK|");
        }
        assert_eq!(
            w.answer(&mut reader),
            push("user:1") + &push("user:1") + &push("x")
        );
        w.check(&mut reader, "SET user:1 2", "+OK|");
        w.check(&mut reader, "MULTI", "+OK|");
        w.check(&mut reader, "SET x 2", "+QUEUED|");
        w.check(&mut reader, "EXEC", "*1|+OK|");
        w.check(&mut reader, "CLIENT TRACKING ON BCAST PREFIX more", "+OK|");
        w.check(&mut writer, "SET more 1", "+OK|");
        w.check(&mut writer, "SET user:2 1", "+OK|");
        assert_eq!(w.answer(&mut reader), push("more") + &push("user:2"));
        let overlap = "-ERR Prefix 'use' overlaps with an existing prefix 'user:'. \
                       Prefixes for a single client must not overlap.|";
        w.check(&mut reader, "CLIENT TRACKING ON BCAST PREFIX use", overlap);
        w.check(&mut reader, "CLIENT TRACKING OFF", "+OK|");
        w.check(&mut writer, "SET user:1 3", "+OK|");
        assert_eq!(w.answer(&mut reader), "");
        // Without a beginning it is all keys.
        w.check(&mut reader, "CLIENT TRACKING ON BCAST", "+OK|");
        w.check(&mut reader, "SET own 1", &format!("+OK|{}", push("own")));
        w.check(&mut writer, "FLUSHALL", "+OK|");
        assert_eq!(w.answer(&mut reader), ALL);
    });
}

#[test]
fn another_connection_is_told_in_resp2() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut reader, mut listener, mut writer) = (w.client(), w.client_of(1), w.client_of(1));
        let id = w.ask(&mut listener, "CLIENT ID");
        let id = id.trim_matches([':', '|']).to_owned();
        w.ask(&mut listener, "SUBSCRIBE __redis__:invalidate");
        w.check(
            &mut reader,
            &format!("CLIENT TRACKING ON REDIRECT {id}"),
            "+OK|",
        );
        w.check(&mut reader, "CLIENT GETREDIR", &format!(":{id}|"));
        let list = w.ask(&mut writer, "CLIENT LIST");
        assert!(
            list.contains(&format!(" redir={id} ")) && list.contains(" flags=t "),
            "{list}"
        );
        w.check(&mut reader, "GET a", "$-1|");
        w.check(&mut writer, "SET a 1", "+OK|");
        let message = "*3|$7|message|$20|__redis__:invalidate|*1|$1|a|";
        assert_eq!(w.answer(&mut listener), message);
        assert_eq!(w.answer(&mut reader), "");
        w.check(&mut writer, "FLUSHALL", "+OK|");
        assert_eq!(
            w.answer(&mut listener),
            "*3|$7|message|$20|__redis__:invalidate|*-1|"
        );
        // When it has gone, clients that rely on it can know.
        w.check(&mut writer, &format!("CLIENT KILL ID {id}"), ":1|");
        assert!(w.ask(&mut reader, "HELLO 3").starts_with("%7"));
        w.check(&mut reader, "GET a", "_|");
        w.check(&mut writer, "SET a 2", "+OK|");
        assert_eq!(
            w.answer(&mut reader),
            format!(">2|$21|tracking-redir-broken|:{id}|")
        );
        let info = w.ask(&mut reader, "CLIENT TRACKINGINFO");
        assert!(info.contains("broken_redirect"), "{info}");
        let missing = "-ERR The client ID you want redirect to does not exist|";
        w.check(&mut writer, "CLIENT TRACKING ON REDIRECT 12345", missing);
    });
}

#[test]
fn notes_are_bounded_and_go_by_telling() {
    let (mut world, mut reader, mut writer) = tracking("");
    let w = &mut world;
    w.check(&mut writer, "CONFIG SET tracking-table-max-keys 10", "+OK|");
    for n in 0..100 {
        let _ = w.ask(&mut reader, &format!("GET k{n}"));
    }
    let told = w.sim.received(reader.peer);
    let told = String::from_utf8_lossy(told).matches("invalidate").count();
    let info = w.ask(&mut writer, "INFO stats");
    let left: usize = info
        .split('|')
        .find_map(|line| line.strip_prefix("tracking_total_keys:"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(told + left, 100, "every key is noted or was told of");
    // A shard has one at least.
    assert!(left <= 64, "{left}");
    w.check(&mut reader, "CLIENT TRACKING OFF", "+OK|");
    let info = w.ask(&mut writer, "INFO stats");
    for nothing in ["|tracking_total_keys:0|", "|tracking_total_items:0|"] {
        assert!(info.contains(nothing), "nobody wants to know: {info}");
    }
}

#[test]
fn a_closed_client_is_told_nothing_and_leaves_nothing() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking(" BCAST PREFIX a PREFIX b");
        let w = &mut world;
        let info = w.ask(&mut writer, "INFO");
        assert!(info.contains("|tracking_clients:1|"), "{info}");
        assert!(info.contains("|tracking_total_prefixes:2|"), "{info}");
        w.check(&mut reader, "RESET", "+RESET|");
        w.check(&mut writer, "SET a 1", "+OK|");
        assert_eq!(w.answer(&mut reader), "");
        let _ = w.ask(&mut reader, "HELLO 3");
        w.check(&mut reader, "CLIENT TRACKING ON", "+OK|");
        w.check(&mut reader, "GET a", "$1|1|");
        let mut second = w.client();
        let _ = w.ask(&mut second, "HELLO 3");
        w.check(&mut second, "CLIENT TRACKING ON", "+OK|");
        for line in ["GET a", "GET b", "GET b"] {
            let _ = w.ask(&mut second, line);
        }
        let info = w.ask(&mut writer, "INFO");
        assert!(info.contains("|tracking_total_keys:2|"), "{info}");
        assert!(info.contains("|tracking_total_items:3|"), "{info}");
        w.check(&mut second, "CLIENT TRACKING OFF", "+OK|");
        w.sim.close(reader.peer, true);
        let info = w.ask(&mut writer, "INFO");
        for field in [
            "tracking_clients",
            "tracking_total_prefixes",
            "tracking_total_keys",
            "tracking_total_items",
        ] {
            assert!(info.contains(&format!("|{field}:0|")), "{info}");
        }
    });
}

/// The client's peer may take its time to close.
#[test]
fn a_client_that_quits_counts_no_more() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking(" BCAST");
        let w = &mut world;
        w.check(&mut reader, "QUIT", "+OK|");
        let info = w.ask(&mut writer, "INFO");
        assert!(info.contains("|tracking_clients:0|"), "{info}");
        assert!(info.contains("|tracking_total_prefixes:0|"), "{info}");
    });
}

#[test]
fn a_client_that_reads_nothing_is_told_that_all_has_changed() {
    let (mut world, mut reader, mut writer) = tracking(" BCAST");
    let w = &mut world;
    // More names in one transaction than are kept for one client.
    let key = "k".repeat(60_000);
    w.check(&mut writer, "MULTI", "+OK|");
    for n in 0..30 {
        w.check(&mut writer, &format!("SET {key}{n} 1"), "+QUEUED|");
    }
    assert!(w.ask(&mut writer, "EXEC").starts_with("*30|"));
    assert_eq!(w.answer(&mut reader), ALL);
}

#[test]
fn a_user_without_right_to_a_key_does_not_hear_its_name() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking(" BCAST");
        let w = &mut world;
        w.check(
            &mut writer,
            "ACL SETUSER bob on nopass ~mine* +@all",
            "+OK|",
        );
        w.check(&mut reader, "AUTH bob x", "+OK|");
        w.check(&mut writer, "SET secret 1", "+OK|");
        w.check(&mut writer, "SET mine 1", "+OK|");
        assert_eq!(w.answer(&mut reader), push("mine"));
        // A change of user does not take away what the client has asked for.
        w.check(
            &mut reader,
            "GET secret",
            "-NOPERM No permissions to access a key|",
        );
        w.check(&mut reader, "GET mine", "$1|1|");
    });
}

#[test]
fn wrong_words_are_refused() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    for (line, error) in [
        ("CLIENT TRACKING MAYBE", "syntax error"),
        ("CLIENT TRACKING ON NOPE", "syntax error"),
        ("CLIENT TRACKING ON PREFIX", "syntax error"),
        (
            "CLIENT TRACKING ON PREFIX a",
            "PREFIX option requires BCAST mode to be enabled",
        ),
        (
            "CLIENT TRACKING ON BCAST OPTIN",
            "OPTIN and OPTOUT are not compatible with BCAST",
        ),
        (
            "CLIENT TRACKING ON OPTIN OPTOUT",
            "You can't specify both OPTIN mode and OPTOUT mode",
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
            "Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap.",
        ),
        (
            "CLIENT CACHING YES",
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ),
    ] {
        w.check(&mut c, line, &format!("-ERR {error}|"));
    }
    w.check(&mut c, "CLIENT GETREDIR", ":-1|");
    w.check(
        &mut c,
        "CLIENT TRACKINGINFO",
        "*6|$5|flags|*1|$3|off|$8|redirect|:-1|$8|prefixes|*0|",
    );
    w.check(&mut c, "CLIENT TRACKING ON OPTIN NOLOOP", "+OK|");
    w.check(&mut c, "CLIENT GETREDIR", ":0|");
    w.check(&mut c, "CLIENT CACHING YES", "+OK|");
    w.check(
        &mut c,
        "CLIENT TRACKINGINFO",
        "*6|$5|flags|*4|$2|on|$5|optin|$11|caching-yes|$6|noloop|$8|redirect|:0|$8|prefixes|*0|",
    );
    let switch = "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
                  then re-enabling it with a different mode.|";
    w.check(&mut c, "CLIENT TRACKING ON BCAST", switch);
    w.check(&mut c, "CLIENT TRACKING OFF", "+OK|");
    w.check(&mut c, "MULTI", "+OK|");
    w.check(&mut c, "CLIENT TRACKING ON BCAST", "+QUEUED|");
    assert!(w.ask(&mut c, "EXEC").contains("not for transactions"));
}

/// A client's number.
fn id_of(w: &mut World, client: &mut Client) -> String {
    let id = w.ask(client, "CLIENT ID");
    id.trim_matches([':', '|']).to_owned()
}

#[test]
fn every_change_is_told_of_once_its_listener_has_gone() {
    on_every_shape(|| {
        let (mut world, mut reader, mut writer) = tracking("");
        let w = &mut world;
        let mut old = w.client_of(1);
        let id = id_of(w, &mut old);
        let on = format!("CLIENT TRACKING ON REDIRECT {id}");
        w.check(&mut reader, &on, "+OK|");
        w.check(&mut old, "QUIT", "+OK|");
        let broken = format!(">2|$21|tracking-redir-broken|:{id}|");
        for value in 1..4 {
            let _ = w.ask(&mut reader, "GET a");
            w.check(&mut writer, &format!("SET a {value}"), "+OK|");
            assert_eq!(w.answer(&mut reader), broken, "change {value}");
        }
        // Another client hears of later changes, and of nothing before.
        let mut listener = w.client_of(1);
        let id = id_of(w, &mut listener);
        w.check(&mut listener, "SUBSCRIBE __redis__:invalidate", SUBSCRIBED);
        let on = format!("CLIENT TRACKING ON REDIRECT {id}");
        w.check(&mut reader, &on, "+OK|");
        w.check(&mut reader, "GET b", "_|");
        w.check(&mut writer, "SET b 1", "+OK|");
        let message = "*3|$7|message|$20|__redis__:invalidate|*1|$1|b|";
        assert_eq!(w.answer(&mut listener), message);
    });
}

#[test]
fn what_a_listener_did_not_take_before_it_went_is_not_lost() {
    on_every_shape(|| {
        let (mut world, mut reader, writer) = tracking("");
        let w = &mut world;
        let mut listener = w.client();
        let id = id_of(w, &mut listener);
        let on = format!("CLIENT TRACKING ON REDIRECT {id}");
        w.check(&mut reader, &on, "+OK|");
        let _ = w.ask(&mut reader, "GET a");
        // The change is on its way to the listener when that ends.
        w.sim.send(writer.peer, b"SET a 1\r\n");
        w.sim.send(listener.peer, b"QUIT\r\n");
        w.sim.run_for(Duration::from_secs(1));
        let told = w.answer(&mut reader) + &w.answer(&mut reader);
        let mut writer = w.client_of(1);
        let _ = w.ask(&mut reader, "GET a");
        w.check(&mut writer, "SET a 2", "+OK|");
        let broken = format!(">2|$21|tracking-redir-broken|:{id}|");
        assert_eq!(w.answer(&mut reader), broken, "told before: {told}");
    });
}

#[test]
fn a_reply_that_was_waited_for_comes_before_what_it_has_changed() {
    on_every_shape(|| {
        for options in ["", " NOLOOP"] {
            let (mut world, mut reader, mut writer) = tracking(options);
            let w = &mut world;
            w.check(&mut writer, "RPUSH to a", ":1|");
            w.check(&mut reader, "LRANGE to 0 -1", "*1|$1|a|");
            w.check(&mut reader, "BLMOVE from to LEFT LEFT 0", "");
            w.check(&mut writer, "RPUSH from foo", ":1|");
            let told = if options.is_empty() {
                push("to")
            } else {
                String::new()
            };
            assert_eq!(w.answer(&mut reader), format!("$3|foo|{told}"), "{options}");
            // While it waits it hears of what others do.
            w.check(&mut reader, "LRANGE to 0 -1", "*2|$3|foo|$1|a|");
            w.check(&mut reader, "BLMOVE from to LEFT LEFT 0", "");
            w.check(&mut writer, "DEL to", ":1|");
            assert_eq!(w.answer(&mut reader), push("to"), "{options}");
        }
    });
}

#[test]
fn what_others_do_when_a_client_makes_their_key_ready_is_not_its_own_change() {
    on_every_shape(|| {
        let (mut world, mut reader, mut waiter) = tracking(" NOLOOP");
        let w = &mut world;
        w.check(&mut reader, "LRANGE to 0 -1", "*0|");
        w.check(&mut waiter, "BLMOVE from to LEFT LEFT 0", "");
        let got = w.ask(&mut reader, "RPUSH from foo");
        assert_eq!(got, format!(":1|{}", push("to")));
        assert_eq!(w.answer(&mut waiter), "$3|foo|");
    });
}

#[test]
fn a_smaller_limit_of_notes_holds_without_reads() {
    let (mut world, mut reader, mut writer) = tracking("");
    let w = &mut world;
    for n in 0..100 {
        let _ = w.ask(&mut reader, &format!("GET k{n}"));
    }
    w.check(&mut writer, "CONFIG SET tracking-table-max-keys 1", "+OK|");
    w.sim.run_for(Duration::from_secs(5));
    let info = w.ask(&mut writer, "INFO stats");
    assert!(info.contains("|tracking_total_keys:1|"), "{info}");
    assert!(info.contains("|tracking_total_items:1|"), "{info}");
    let told = w.sim.received(reader.peer);
    let told = String::from_utf8_lossy(told).matches("\r\nk").count();
    assert_eq!(told, 99, "each that went was told of");
}
