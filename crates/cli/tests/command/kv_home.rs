//! A key-value store with a home: what is refused at once, and what servers without a home say.

use crate::common::durable::{Place, assert_code};
use crate::common::{Running, addr, run, stderr};

const HOME: &str = "kafka://127.0.0.1:1/keys";

#[test]
fn what_cannot_be_is_refused_before_anything_is_opened() {
    let place = Place::new();
    let data = place.path("none");
    let serve = ["serve", "kv", "--listen", "kv/resp=0", "--data", &data];
    for (flags, says) in [
        (&["--kv-replicate", HOME][..], "needs a log that syncs"),
        (
            &["--kv-replicate", HOME, "--durability", "os"],
            "needs a log that syncs",
        ),
        (
            &["--follow", HOME, "--durability", "none"],
            "needs a log that syncs",
        ),
        (&["--durability", "replicated"], "needs a home"),
        (
            &["--follow", HOME, "--kv-replicate", HOME],
            "--follow and --kv-replicate: give one of them",
        ),
        (&["--follow", "kafka://a"], "names no topic"),
        (
            &["--follow", "kafka://a/t?partitions=3"],
            "a store has one partition",
        ),
        (
            &["--durability", "sync", "--backlog-bytes", "1GiB"],
            "no log is replicated:",
        ),
        (&["--durability", "fsync"], "replicated"),
    ] {
        let output = run(&[&serve[..], flags].concat());
        assert_code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains(says), "{flags:?}: {said}");
    }
    assert!(!place.0.join("none").exists());
}

#[cfg(not(feature = "kafka"))]
#[test]
fn without_the_feature_every_way_to_a_home_names_it() {
    let place = Place::new();
    let data = place.path("none");
    let serve = ["serve", "kv", "--listen", "kv/resp=0", "--data", &data];
    for flags in [
        &["--follow", HOME][..],
        &["--durability", "replicated", "--kv-replicate", HOME],
    ] {
        let output = run(&[&serve[..], flags].concat());
        assert!(!output.status.success());
        let said = stderr(&output);
        assert!(said.contains("--features kafka"), "{flags:?}: {said}");
    }
    assert!(!place.0.join("none").exists());
}

/// A follower has no log, and takes no other log for its own.
#[cfg(feature = "kafka")]
#[test]
fn a_directory_with_a_log_is_no_follower_s() {
    use std::fs;
    let place = Place::new();
    let data = place.path("data");
    let log = place.0.join("data/kv");
    fs::create_dir_all(&log).unwrap();
    fs::write(log.join("claims"), "something").unwrap();
    let serve = [
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--admin",
        "off",
        "--data",
        &data,
    ];
    let output = run(&[&serve[..], &["--follow", HOME]].concat());
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("move it away"), "{said}");
    // A log that was made for a takeover which was not finished is no owner's.
    fs::remove_file(log.join("claims")).unwrap();
    fs::write(log.join("taking-over"), "").unwrap();
    let flags = ["--kv-replicate", HOME, "--durability", "sync"];
    let output = run(&[&serve[..], &flags].concat());
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("a takeover that did not finish"), "{said}");
}

/// The home does not exist: nothing listens there.
#[cfg(feature = "kafka")]
#[test]
fn an_owner_that_does_not_reach_its_home_serves_at_level_sync_and_says_so() {
    use crate::common::kv::{Client, Reply, text};
    let place = Place::new();
    let data = place.path("data");
    let flags = [
        "--data",
        &data,
        "--durability",
        "sync",
        "--kv-replicate",
        HOME,
    ];
    let mut server =
        Running::start(&[&["serve", "kv", "--listen", "kv/resp=0"][..], &flags].concat());
    let mut client = Client::connect(addr(&server.line())).unwrap();
    assert_eq!(client.ask("SET k v").unwrap(), Reply::Line("OK".into()));
    let info = text(client.ask("INFO replication").unwrap());
    for line in [
        "role:master",
        "home_role:owner",
        "home_link:down",
        "home_lag:1",
    ] {
        assert!(info.contains(line), "{info}");
    }
    // Changes that are not at home get older.
    while lag_seconds(&mut client) < 1.0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop((client, server));
    // Across starts, too, the lag's age is the age of the change.
    let mut server =
        Running::start(&[&["serve", "kv", "--listen", "kv/resp=0"][..], &flags].concat());
    let mut client = Client::connect(addr(&server.line())).unwrap();
    while client.ask("GET k").unwrap() != Reply::Bulk(Some("v".into())) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(lag_seconds(&mut client) > 1.0);
}

/// How many seconds the home is behind, by what an owner or a follower says.
#[cfg(feature = "kafka")]
pub(crate) fn lag_seconds(client: &mut crate::common::kv::Client) -> f64 {
    let info = crate::common::kv::text(client.ask("INFO replication").unwrap());
    let mut lines = info.lines();
    let seconds = lines.find_map(|line| line.strip_prefix("home_lag_seconds:"));
    seconds.expect("it has a home").parse().expect("a number")
}

#[test]
fn a_server_without_a_home_has_nothing_to_take_over() {
    let mut server = Running::start(&["serve", "kv", "--listen", "kv/resp=0"]);
    let at = addr(&server.line()).to_string();
    let output = run(&["kv", "promote", "--to", &at]);
    assert_code(&output, 1);
    assert!(stderr(&output).contains("has no home"));
    drop(server);
    // A port that no other test is given.
    let output = run(&["kv", "promote", "--to", "127.0.0.1:1"]);
    assert_code(&output, 1);
    assert!(stderr(&output).contains("cannot connect"));
}

/// Where clients log in, the command's client does, too.
#[test]
fn commands_are_users_of_the_server() {
    let place = Place::new();
    let users = "user default off\nuser operator on >s3cret ~* +@all\n";
    let (users, right) = (place.file("users", users), place.file("right", "s3cret\n"));
    let wrong = place.file("wrong", "s4cret\n");
    let serve = [
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--kv-acl-file",
        &users,
    ];
    let mut server = Running::start(&serve);
    let at = addr(&server.line()).to_string();
    let promote = ["kv", "promote", "--to", &at];
    for (flags, says) in [
        (&[][..], "NOAUTH"),
        (&["--password-file", &right], "WRONGPASS"),
        (
            &["--user", "operator", "--password-file", &wrong],
            "WRONGPASS",
        ),
        // The command is let in, and told that there is nothing to do.
        (
            &["--user", "operator", "--password-file", &right],
            "has no home",
        ),
    ] {
        let output = run(&[&promote[..], flags].concat());
        assert_code(&output, 1);
        let said = stderr(&output);
        assert!(said.contains(says), "{flags:?}: {said}");
    }
    let output = run(&[&promote[..], &["--user", "operator"]].concat());
    assert_code(&output, 2);
    // An empty dump.
    let dump = place.file("dump.rdb", b"REDIS0011\xff\0\0\0\0\0\0\0\0");
    let import = ["kv", "import", &dump, "--to", &at];
    let user = ["--user", "operator", "--password-file", &right];
    assert_code(&run(&[&import[..], &user].concat()), 0);
}
