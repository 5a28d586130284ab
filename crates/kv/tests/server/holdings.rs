//! What one client makes the server hold: counted, shown, bounded, and gone with the client. On the simulated network; what
//! the kernel says of it is compared in the command's tests (`kv_holdings`).

use std::time::Duration;

use crate::common::{Client, World, on_every_shape};
use tidewire::sim::PlainState;
use tidewire_kv::service::Settings;

const MIB: u64 = 1 << 20;

/// What a field of CLIENT LIST says of the client with this name.
fn field(w: &mut World, watch: &mut Client, name: &str, field: &str) -> u64 {
    let list = w.ask(watch, "CLIENT LIST");
    let line = list
        .split('\n')
        .find(|line| line.contains(&format!(" name={name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {list}"));
    let value = line
        .split(' ')
        .find_map(|word| word.strip_prefix(&format!("{field}=")));
    value.expect("a field").parse().expect("a number")
}

fn memory(w: &mut World, watch: &mut Client, name: &str) -> u64 {
    field(w, watch, name, "tot-mem")
}

/// What INFO says.
fn info(w: &mut World, watch: &mut Client, name: &str) -> u64 {
    let info = w.ask(watch, "INFO everything");
    let value = info
        .split('|')
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    let value = value.unwrap_or_else(|| panic!("no {name} in {info}"));
    value.parse().expect("a number")
}

fn named(w: &mut World, name: &str) -> Client {
    let mut client = w.client_of(1);
    w.check(&mut client, &format!("CLIENT SETNAME {name}"), "+OK|");
    client
}

/// Whether its connection has been cut.
fn is_cut(w: &World, client: &Client) -> bool {
    w.sim.state(client.peer) != PlainState::Open
}

#[test]
fn names_have_a_longest_length_and_logs_keep_less() {
    let mut w = World::new();
    let mut c = w.client();
    let (fits, long) = ("n".repeat(1024), "n".repeat(1025));
    let error = "-ERR Client names are at most 1024 bytes long|";
    w.check(&mut c, &format!("CLIENT SETNAME {long}"), error);
    w.check(&mut c, &format!("HELLO 2 SETNAME {long}"), error);
    for option in ["LIB-NAME", "LIB-VER"] {
        let error = format!("-ERR {option} is at most 1024 bytes long|");
        w.check(&mut c, &format!("CLIENT SETINFO {option} {long}"), &error);
        w.check(&mut c, &format!("CLIENT SETINFO {option} {fits}"), "+OK|");
    }
    w.check(&mut c, &format!("CLIENT SETNAME {fits}"), "+OK|");
    let error = "-ERR Usernames are at most 1024 bytes long|";
    w.check(
        &mut c,
        &format!("ACL SETUSER {} on", "u".repeat(1025)),
        error,
    );
    w.check(&mut c, "CONFIG SET slowlog-log-slower-than 0", "+OK|");
    w.check(&mut c, "GET k", "$-1|");
    let log = w.ask(&mut c, "SLOWLOG GET 1");
    assert!(
        log.contains(&format!("|$128|{}|", "n".repeat(128))),
        "{log}"
    );
    w.check(&mut c, "ACL SETUSER limited on nopass ~x +@all", "+OK|");
    w.check(&mut c, "AUTH limited x", "+OK|");
    assert!(w.ask(&mut c, "GET not-mine").starts_with("-NOPERM"));
    let log = w.ask(&mut c, "ACL LOG");
    assert!(
        log.contains(&format!(" name={} age=", "n".repeat(128))),
        "{log}"
    );
    assert!(log.contains(&format!(
        "lib-name={} lib-ver={}|",
        "n".repeat(128),
        "n".repeat(128)
    )));
}

/// An error's first word is kept to count it; a script makes what it likes of that.
#[test]
fn an_error_of_one_long_word_is_counted_as_no_word() {
    let mut w = World::new();
    let mut c = w.client();
    let script = "return{err=string.rep('A',1000000)}";
    w.sim.send(
        c.peer,
        format!(
            "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
            script.len()
        )
        .as_bytes(),
    );
    assert!(w.answer(&mut c).len() > 1_000_000);
    let errors = w.ask(&mut c, "INFO errorstats");
    assert!(errors.contains("errorstat_ERR:count=1"), "{}", errors.len());
}

#[test]
fn each_thing_that_stays_counts_until_it_goes() {
    let long = "x".repeat(100_000);
    let names = |word: &str| -> String { (0..200).map(|n| format!(" {word}{n}")).collect() };
    let keys = names("key");
    // What is done, what it adds at least, and what takes it back.
    let kinds: Vec<(String, u64, Vec<&str>)> = vec![
        (format!("SUBSCRIBE {long}"), 100_000, vec!["UNSUBSCRIBE"]),
        (
            format!("SUBSCRIBE{}", names("channel")),
            200 * 300,
            vec!["UNSUBSCRIBE"],
        ),
        (format!("SSUBSCRIBE {long}"), 100_000, vec!["SUNSUBSCRIBE"]),
        (
            format!("PSUBSCRIBE{}", names("pattern*")),
            200 * 1_000,
            vec!["PUNSUBSCRIBE"],
        ),
        (format!("WATCH {long}"), 200_000, vec!["UNWATCH"]),
        (format!("WATCH{keys}"), 200 * 250, vec!["MULTI", "DISCARD"]),
        (format!("MULTI;SET k {long}"), 100_000, vec!["DISCARD"]),
        (format!("MULTI;GET k;SET k {long}"), 100_000, vec!["EXEC"]),
        (
            format!("CLIENT TRACKING ON;MGET{keys}"),
            200 * 150,
            vec!["CLIENT TRACKING OFF"],
        ),
        (
            format!("CLIENT TRACKING ON;GET {long}"),
            100_000,
            vec!["RESET"],
        ),
        (
            format!("CLIENT TRACKING ON BCAST PREFIX {long}"),
            100_000,
            vec!["CLIENT TRACKING OFF"],
        ),
        (
            format!("HELLO 3;CLIENT SETNAME {}", "n".repeat(1000)),
            900,
            vec!["CLIENT SETNAME c"],
        ),
    ];
    on_every_shape(|| {
        for (line, least, undo) in &kinds {
            let mut w = World::new();
            let mut watch = w.client();
            let mut c = named(&mut w, "c");
            let id = field(&mut w, &mut watch, "c", "id");
            let memory = |w: &mut World, watch: &mut Client| -> u64 {
                let line = w.ask(watch, &format!("CLIENT LIST ID {id}"));
                let rest = line.split(" tot-mem=").nth(1).expect("its memory");
                rest.split(' ').next().unwrap().parse().unwrap()
            };
            let before = memory(&mut w, &mut watch);
            let clients = info(&mut w, &mut watch, "mem_clients_normal");
            let what = &line[..line.len().min(40)];
            line.split(';').for_each(|line| drop(w.ask(&mut c, line)));
            let held = memory(&mut w, &mut watch) - before;
            assert!(held >= *least && held < least * 4 + 4_000, "{what}: {held}");
            let said = info(&mut w, &mut watch, "mem_clients_normal") - clients;
            assert!(
                said.abs_diff(held) < 2_000,
                "{what}: {held}, in INFO {said}"
            );
            let used = info(&mut w, &mut watch, "used_memory_overhead");
            assert!(used >= held, "{what}: {used}");
            undo.iter().for_each(|line| drop(w.ask(&mut c, line)));
            // What was said before that has left.
            w.sim.run_for(Duration::from_millis(300));
            w.ask(&mut c, "PING");
            let left = memory(&mut w, &mut watch).saturating_sub(before);
            assert!(left < 100, "{what}: {left} are left");
        }
    });
}

#[test]
fn a_blocked_client_counts_its_command_and_its_keys() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut watch = w.client();
        let mut c = named(&mut w, "c");
        let before = memory(&mut w, &mut watch, "c");
        let keys: String = (0..300).map(|n| format!(" key{n}")).collect();
        for line in [
            format!("BLPOP{keys} 0"),
            format!("BLPOP {} key0 0", "k".repeat(50_000)),
            format!("XREAD BLOCK 0 STREAMS key0 {} $ $", "k".repeat(50_000)),
        ] {
            w.send(&c, &line);
            assert_eq!(w.answer(&mut c), "");
            let held = memory(&mut w, &mut watch, "c") - before;
            assert!(
                (140_000..300_000).contains(&held),
                "{held}: {}",
                &line[..20]
            );
            let id = field(&mut w, &mut watch, "c", "id");
            w.check(&mut watch, &format!("CLIENT UNBLOCK {id}"), ":1|");
            w.answer(&mut c);
            w.sim.run_for(Duration::from_millis(300));
            assert!(memory(&mut w, &mut watch, "c") < before + 100, "{line}");
        }
    });
}

/// Half a command, with many arguments in it.
#[test]
fn input_and_output_count_while_they_are_there() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut watch = w.client();
        let c = named(&mut w, "c");
        let mut half = b"*1000000\r\n".to_vec();
        (0..100_000).for_each(|_| half.extend_from_slice(b"$1\r\nx\r\n"));
        w.sim.send(c.peer, &half);
        w.sim.run_for(Duration::from_secs(1));
        let held = memory(&mut w, &mut watch, "c");
        assert!((1_400_000..4_000_000).contains(&held), "{held}");
        w.sim.close(c.peer, true);
        w.sim.run_for(Duration::from_secs(1));
        let left = info(&mut w, &mut watch, "mem_clients_normal");
        assert!(left < 10_000, "{left}");
    });
}

#[test]
fn what_stays_because_of_one_client_is_bounded() {
    on_every_shape(|| {
        let settings = Settings {
            query_buffer: 1 << 20,
            ..Settings::default()
        };
        let mut w = World::with(settings);
        let mut watch = w.client();
        let much = "-ERR the client would make the server hold more than the query buffer limit";
        let name = "x".repeat(400_000);
        let mut c = named(&mut w, "subscribes");
        assert!(
            !w.ask(&mut c, &format!("SUBSCRIBE 1{name}"))
                .starts_with('-')
        );
        assert!(
            !w.ask(&mut c, &format!("SSUBSCRIBE 2{name}"))
                .starts_with('-')
        );
        assert!(
            w.ask(&mut c, &format!("SUBSCRIBE 3{name}"))
                .starts_with(much)
        );
        assert!(
            w.ask(&mut c, &format!("SSUBSCRIBE 3{name}"))
                .starts_with(much)
        );
        let mut c = named(&mut w, "blocks");
        assert!(w.ask(&mut c, &format!("BLPOP {name} 0")).starts_with(much));
        let mut c = named(&mut w, "prefixes");
        let track = |n: u32| format!("CLIENT TRACKING ON BCAST PREFIX {n}{name}");
        w.check(&mut c, &track(1), "+OK|");
        w.check(&mut c, &track(2), "+OK|");
        assert!(w.ask(&mut c, &track(3)).starts_with(much));
        let mut c = named(&mut w, "queues");
        w.check(&mut c, "MULTI", "+OK|");
        w.check(&mut c, &format!("SET a {name}"), "+QUEUED|");
        w.check(&mut c, &format!("SET b {name}"), "+QUEUED|");
        let error = "-ERR transaction larger than the query buffer limit|";
        w.check(&mut c, &format!("SET c {name}"), error);
        assert_eq!(info(&mut w, &mut watch, "client_memory_refusals"), 5);
        // What it has read it would go on believing: it is cut instead.
        let mut c = named(&mut w, "tracks");
        w.check(&mut c, "CLIENT TRACKING ON", "+OK|");
        w.check(&mut c, &format!("GET 1{name}"), "$-1|");
        w.check(&mut c, &format!("GET 2{name}"), "$-1|");
        assert!(!is_cut(&w, &c));
        w.send(&c, &format!("GET 3{name}"));
        w.answer(&mut c);
        assert!(is_cut(&w, &c));
        assert_eq!(w.service.counters().refused_holding, 6);
        assert_eq!(info(&mut w, &mut watch, "tracking_clients"), 1);
        let noted = info(&mut w, &mut watch, "mem_tracking_gone");
        assert!(noted < MIB, "{noted}");
    });
}

#[test]
fn the_largest_clients_are_evicted() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut watch = w.client();
        w.check(&mut watch, "CONFIG SET maxmemory-clients 2mb", "+OK|");
        w.check(
            &mut watch,
            "CONFIG GET maxmemory-clients",
            "*2|$17|maxmemory-clients|$7|2097152|",
        );
        let queue = |w: &mut World, name: &str, bytes: usize| {
            let mut c = named(w, name);
            w.check(&mut c, "MULTI", "+OK|");
            w.send(&c, &format!("SET k {}", "x".repeat(bytes)));
            w.answer(&mut c);
            c
        };
        let small = queue(&mut w, "small", 300_000);
        let middle = queue(&mut w, "middle", 500_000);
        let mut large = queue(&mut w, "large", 900_000);
        assert!(!is_cut(&w, &large));
        w.check(&mut large, "PING", "+QUEUED|");
        let last = queue(&mut w, "last", 600_000);
        w.sim.run_for(Duration::from_millis(300));
        let cut = [&small, &middle, &large, &last].map(|c| is_cut(&w, c));
        assert_eq!(cut, [false, false, true, false]);
        assert_eq!(info(&mut w, &mut watch, "evicted_clients"), 1);
        assert_eq!(info(&mut w, &mut watch, "connected_clients"), 4);
        assert_eq!(w.service.counters().evicted_clients, 1);
        // A client that said NO-EVICT stays, and the next has to go.
        let mut kept = w.client();
        w.check(&mut kept, "CLIENT NO-EVICT ON", "+OK|");
        w.check(&mut kept, "MULTI", "+OK|");
        w.send(&kept, &format!("SET k {}", "x".repeat(1_000_000)));
        w.answer(&mut kept);
        w.sim.run_for(Duration::from_millis(300));
        let cut = [&small, &middle, &kept, &last].map(|c| is_cut(&w, c));
        assert_eq!(cut, [false, false, false, true]);
        // In percent of maxmemory, and lowered while they are there.
        w.check(&mut watch, "CONFIG SET maxmemory 4mb", "+OK|");
        w.check(&mut watch, "CONFIG SET maxmemory-clients 10%", "+OK|");
        let percent = "*2|$17|maxmemory-clients|$3|10%|";
        w.check(&mut watch, "CONFIG GET maxmemory-clients", percent);
        assert_eq!(info(&mut w, &mut watch, "maxmemory_clients"), 419_430);
        w.sim.run_for(Duration::from_millis(300));
        let cut = [&small, &middle, &kept].map(|c| is_cut(&w, c));
        assert_eq!(cut, [true, true, false]);
        for bad in ["-1", "101%", "x", "%"] {
            let answer = w.ask(&mut watch, &format!("CONFIG SET maxmemory-clients {bad}"));
            assert!(
                answer.contains("memory or percent value"),
                "{bad}: {answer}"
            );
        }
    });
}

/// Notes are shared: the first client pays for the name, each later one for its place beside it.
#[test]
fn tracked_names_are_paid_for_once() {
    let mut w = World::new();
    let mut watch = w.client();
    let keys: String = (0..100)
        .map(|n| format!(" {}{n}", "k".repeat(1000)))
        .collect();
    let mut clients: Vec<Client> = (0..10).map(|n| named(&mut w, &format!("c{n}"))).collect();
    for c in &mut clients {
        w.check(c, "CLIENT TRACKING ON", "+OK|");
        w.ask(c, &format!("MGET{keys}"));
    }
    w.sim.run_for(Duration::from_millis(300));
    let sum = info(&mut w, &mut watch, "mem_clients_normal");
    assert!((115_000..250_000).contains(&sum), "{sum}");
    // The next in the note pays when the first has gone and the key is read again.
    let mut first = clients.remove(0);
    w.check(&mut first, "RESET", "+RESET|");
    let gone = info(&mut w, &mut watch, "mem_tracking_gone");
    assert!(gone > 100_000, "{gone}");
    w.ask(&mut clients[0], &format!("MGET{keys}"));
    assert_eq!(info(&mut w, &mut watch, "mem_tracking_gone"), 0);
    assert!(memory(&mut w, &mut watch, "c1") > 100_000);
    for c in &mut clients {
        w.check(c, "RESET", "+RESET|");
    }
    assert_eq!(info(&mut w, &mut watch, "tracking_total_keys"), 0);
    assert_eq!(info(&mut w, &mut watch, "mem_tracking_gone"), 0);
}

/// The peer does not close its side, and the server does not wait for that.
#[test]
fn a_client_that_is_ended_is_gone_at_once() {
    on_every_shape(|| {
        for how in [
            "CLIENT KILL",
            "ACL DELUSER",
            "ACL SETUSER",
            "QUIT",
            "protocol",
        ] {
            let mut w = World::new();
            let mut watch = w.client();
            w.check(&mut watch, "ACL SETUSER user on nopass ~* &* +@all", "+OK|");
            let mut c = named(&mut w, "victim");
            w.check(&mut c, "AUTH user x", "+OK|");
            w.check(&mut c, "MONITOR", "+OK|");
            w.check(&mut c, "WATCH k", "+OK|");
            w.ask(&mut c, "PSUBSCRIBE n*");
            w.ask(&mut c, "SSUBSCRIBE news");
            w.ask(&mut c, "SUBSCRIBE news");
            let id = field(&mut w, &mut watch, "victim", "id");
            w.check(&mut watch, "PUBLISH news x", ":2|");
            w.check(&mut watch, "SPUBLISH news x", ":1|");
            match how {
                "CLIENT KILL" => w.check(&mut watch, &format!("CLIENT KILL ID {id}"), ":1|"),
                "ACL DELUSER" => w.check(&mut watch, "ACL DELUSER user", ":1|"),
                "ACL SETUSER" => w.check(&mut watch, "ACL SETUSER user resetchannels", "+OK|"),
                "QUIT" => drop(w.ask(&mut c, "QUIT")),
                _ => {
                    w.sim.send(c.peer, b"*1\r\nx");
                    w.answer(&mut c);
                }
            }
            w.check(&mut watch, "PUBLISH news x", ":0|");
            w.check(&mut watch, "SPUBLISH news x", ":0|");
            w.check(&mut watch, "PUBSUB NUMSUB news", "*2|$4|news|:0|");
            w.check(&mut watch, "PUBSUB NUMPAT", ":0|");
            w.check(&mut watch, "PUBSUB SHARDCHANNELS", "*0|");
            let list = w.ask(&mut watch, "CLIENT LIST");
            assert!(!list.contains("victim"), "{how}: {list}");
            assert_eq!(info(&mut w, &mut watch, "connected_clients"), 1, "{how}");
            assert_eq!(info(&mut w, &mut watch, "watching_clients"), 0, "{how}");
            assert_eq!(info(&mut w, &mut watch, "pubsub_clients"), 0, "{how}");
        }
    });
}

/// Libraries and users are no client's, and are counted all the same.
#[test]
fn libraries_and_users_count_and_users_are_bounded() {
    let mut w = World::new();
    let mut c = w.client();
    let sum = |w: &mut World, c: &mut Client| info(w, c, "used_memory_overhead");
    let (before, users) = (sum(&mut w, &mut c), info(&mut w, &mut c, "mem_users"));
    let code = format!(
        "#!lua name=f\nredis.register_function('f',function()return'{}'end)",
        "x".repeat(100_000)
    );
    let load = crate::wire::of_words(&["FUNCTION", "LOAD", &code]);
    w.sim.send(c.peer, &load);
    let loaded = w.answer(&mut c);
    assert!(loaded.starts_with('$'), "{loaded}");
    let functions = info(&mut w, &mut c, "used_memory_functions");
    assert!((100_000..110_000).contains(&functions), "{functions}");
    assert!(sum(&mut w, &mut c) >= before + 100_000);
    w.check(&mut c, "FUNCTION FLUSH", "+OK|");
    assert_eq!(info(&mut w, &mut c, "used_memory_functions"), 0);
    let rules: Vec<String> = (0..8)
        .map(|n| format!("~{n}{}", "p".repeat(60_000)))
        .collect();
    let rules = rules.join(" ");
    w.check(&mut c, &format!("ACL SETUSER u {rules}"), "+OK|");
    let with_one = info(&mut w, &mut c, "mem_users");
    assert!(with_one > users + 480_000, "{with_one}");
    w.check(&mut c, "ACL SETUSER u resetkeys", "+OK|");
    assert!(info(&mut w, &mut c, "mem_users") < users + 10_000);
    // Up to so much; what makes less of it is taken.
    let refused = (0..200).find(|n| {
        let said = w.ask(&mut c, &format!("ACL SETUSER u{n} {rules}"));
        said != "+OK|"
    });
    assert!(refused.is_some_and(|n| n > 30), "{refused:?}");
    assert!(info(&mut w, &mut c, "mem_users") <= 64 << 20);
    let said = w.ask(&mut c, &format!("ACL SETUSER u {rules}"));
    let error = |bytes: u64| {
        let said = format!("the names and rules of all users take at most {bytes} bytes of memory");
        format!("-ERR {said} (acl-users-memory-limit)|")
    };
    assert_eq!(said, error(64 * MIB));
    assert_eq!(w.service.counters().refused_holding, 2);
    assert_eq!(info(&mut w, &mut c, "client_memory_refusals"), 2);
    w.check(&mut c, "CONFIG SET acl-users-memory-limit 65mb", "+OK|");
    w.check(&mut c, &format!("ACL SETUSER u {rules}"), "+OK|");
    w.check(&mut c, "CONFIG SET acl-users-memory-limit 1mb", "+OK|");
    let more = format!("ACL SETUSER another {rules}");
    w.check(&mut c, &more, &error(MIB));
    w.check(&mut c, "CONFIG SET acl-users-memory-limit 64mb", "+OK|");
    w.check(&mut c, "ACL SETUSER u resetkeys", "+OK|");
    w.check(&mut c, "ACL SETUSER u1 resetkeys", "+OK|");
    w.check(&mut c, "ACL DELUSER u0", ":1|");
    w.check(&mut c, &format!("ACL SETUSER u {rules}"), "+OK|");
    let all: Vec<String> = (0..200).map(|n| format!("u{n}")).collect();
    w.ask(&mut c, &format!("ACL DELUSER u {}", all.join(" ")));
    assert_eq!(info(&mut w, &mut c, "mem_users"), users);
}

/// The client's loop takes thousands of subscriptions out of the tables over many turns. From the
/// command on that ends it none of them counts, also for what is asked in the same flight.
#[test]
fn a_client_with_a_hundred_thousand_subscriptions_is_gone_at_once() {
    on_every_shape(|| {
        for at in 0..2 {
            let mut w = World::new();
            let mut watch = w.client();
            w.check(&mut watch, "CONFIG SET pubsub-patterns-limit 1gb", "+OK|");
            let mut victim = w.client_of(at);
            w.check(&mut victim, "CLIENT SETNAME victim", "+OK|");
            let names = |prefix: &str, behind: &str, count| {
                let names = (0..count).map(|n| format!("{prefix}{n:05}{behind}"));
                names.collect::<Vec<String>>().join(" ")
            };
            w.ask(
                &mut victim,
                &format!("SUBSCRIBE {}", names("c", "", 50_000)),
            );
            w.ask(
                &mut victim,
                &format!("PSUBSCRIBE {}", names("p", "*", 40_000)),
            );
            w.ask(
                &mut victim,
                &format!("SSUBSCRIBE {}", names("s", "", 10_000)),
            );
            let mut other = w.client_of(1);
            w.ask(&mut other, "SUBSCRIBE c49999");
            w.ask(&mut other, "PSUBSCRIBE p39999*");
            w.check(&mut watch, "PUBSUB NUMPAT", ":40000|");
            w.check(&mut watch, "PUBLISH c49999 x", ":2|");
            let id = field(&mut w, &mut watch, "victim", "id");
            let asked = [
                (&*format!("CLIENT KILL ID {id}"), ":1|"),
                ("PUBLISH c00000 x", ":0|"),
                ("PUBLISH c30000 x", ":0|"),
                ("PUBLISH c49999 x", ":1|"),
                ("PUBLISH p00000x x", ":0|"),
                ("PUBLISH p39998x x", ":0|"),
                ("PUBLISH p39999x x", ":1|"),
                ("SPUBLISH s09999 x", ":0|"),
                (
                    "PUBSUB NUMSUB c49998 c49999",
                    "*4|$6|c49998|:0|$6|c49999|:1|",
                ),
                ("PUBSUB SHARDNUMSUB s09999", "*2|$6|s09999|:0|"),
                ("PUBSUB CHANNELS", "*1|$6|c49999|"),
                ("PUBSUB SHARDCHANNELS", "*0|"),
                ("PUBSUB NUMPAT", ":1|"),
                ("EVAL return~redis.call('PUBLISH','p39998x','x') 0", ":0|"),
            ];
            for (line, _) in asked {
                let line: Vec<String> =
                    line.split(' ').map(|word| word.replace('~', " ")).collect();
                let mut bytes = format!("*{}\r\n", line.len()).into_bytes();
                for word in line {
                    bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
                }
                w.sim.send(watch.peer, &bytes);
            }
            let expected: String = asked.into_iter().map(|(_, reply)| reply).collect();
            assert_eq!(w.answer(&mut watch), expected, "on loop {at}");
            assert!(!w.ask(&mut watch, "CLIENT LIST").contains("victim"));
            assert_eq!(info(&mut w, &mut watch, "pubsub_channels"), 1);
            assert_eq!(info(&mut w, &mut watch, "pubsub_patterns"), 1);
            w.sim.run_for(Duration::from_secs(5));
            w.check(&mut watch, "PUBLISH c49999 x", ":1|");
            w.check(&mut watch, "PUBSUB NUMPAT", ":1|");
            drop(w.ask(&mut other, "RESET"));
            w.check(&mut watch, "PUBSUB NUMPAT", ":0|");
        }
    });
}

/// What was waited for is written when another client has brought it about: it counts as any other output.
#[test]
fn a_reply_that_was_waited_for_counts_until_it_is_read() {
    on_every_shape(|| {
        let mut w = World::new();
        let mut watch = w.client();
        let mut c = named(&mut w, "waits");
        w.sim.reading(c.peer, false);
        w.send(&c, "BLPOP q 0");
        w.sim.run_for(Duration::from_millis(20));
        let long = "x".repeat(4_000_000);
        w.check(&mut watch, &format!("RPUSH q {long}"), ":1|");
        assert!(memory(&mut w, &mut watch, "waits") > 2 * MIB);
        assert!(field(&mut w, &mut watch, "waits", "omem") > 2 * MIB);
        assert!(info(&mut w, &mut watch, "mem_clients_normal") > 2 * MIB);
        w.sim.reading(c.peer, true);
        w.sim.run_for(Duration::from_secs(1));
        assert!(w.answer(&mut c).len() > 4_000_000);
        assert!(memory(&mut w, &mut watch, "waits") < 100_000);
    });
}
