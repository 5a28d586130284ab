//! No command waits for a lock that its own batch, transaction or script holds. With debug assertions a lock that is taken so
//! panics (`store/lock.rs`), which ends the connection; without them the test would hang.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Client, World};
use crate::wire::{command, of_words};

/// These end the server, or the connection, or have it wait for as long as they say.
const LEFT_OUT: [&str; 4] = ["shutdown", "quit", "debug", "psync"];

/// Words behind the name of a command, or of a subcommand.
const WORDS: [&str; 14] = [
    "",
    "k",
    "k v",
    "k 0",
    "0",
    "k k 1",
    "on",
    "off",
    "on bcast",
    "reset",
    "user default on nopass ~* &* +@all",
    "id 4294967295",
    "maxmemory 0",
    "return(redis.call('set','k','v')) 1 k",
];

/// Every command, and every subcommand as two words.
fn calls(w: &mut World, c: &mut Client) -> BTreeSet<String> {
    let list = w.ask(c, "COMMAND LIST");
    let names = list
        .split('|')
        .filter(|word| !word.is_empty() && !word.starts_with(['*', '$']));
    let mut calls: BTreeSet<String> = names.map(str::to_owned).collect();
    for name in calls.clone() {
        let info = w.ask(c, &format!("COMMAND INFO {name}"));
        // Elements of lines are held together by `|` here, as the two names of a subcommand are.
        let words: Vec<&str> = info.split('|').collect();
        let subs = words.windows(2).filter(|pair| pair[0] == name);
        let subs: Vec<String> = subs
            .filter(|pair| pair[1].chars().all(|c| c.is_ascii_lowercase() || c == '-'))
            .map(|pair| format!("{name} {}", pair[1]))
            .filter(|call| !call.ends_with(' '))
            .collect();
        calls.extend(subs);
    }
    calls.retain(|call| !LEFT_OUT.contains(&call.split(' ').next().unwrap_or_default()));
    calls
}

/// Sends all in one piece, which is one batch, and asks for a sign of life.
#[track_caller]
fn answers(w: &mut World, before: &[&str], flight: &[&str]) {
    let mut c = w.client();
    for line in before {
        w.ask(&mut c, line);
    }
    let bytes: Vec<u8> = flight.iter().flat_map(|line| command(line)).collect();
    w.sim.send(c.peer, &bytes);
    w.answer(&mut c);
    let mut said = String::new();
    // What waits a little, such as a wrong password, is answered later.
    for _ in 0..100 {
        let alive = [of_words(&["DISCARD"]), of_words(&["PING", "alive"])];
        w.sim.send(c.peer, &alive.concat());
        said += &w.answer(&mut c);
        if said.contains("alive") {
            return;
        }
        w.sim.run_for(Duration::from_millis(100));
    }
    panic!("no answer behind {before:?}, {flight:?}: {said:?}");
}

#[test]
fn no_command_waits_for_a_lock_of_its_own_batch_or_transaction() {
    let mut w = World::new();
    let mut c = w.client();
    let calls = calls(&mut w, &mut c);
    assert!(calls.len() > 300, "{}", calls.len());
    assert!(calls.contains("client kill"), "{calls:?}");
    for call in &calls {
        let mut w = World::new();
        for words in WORDS {
            let line = format!("{call} {words}");
            let line = line.trim_end();
            let blocks = call.starts_with('b') || call.starts_with("xread") || *call == "wait";
            // RESP3, so that a subscriber may go on asking.
            let before: &[&str] = &["HELLO 3", "CLIENT TRACKING ON", "WATCH k other"];
            if !blocks && !matches!(call.as_str(), "client reply" | "client pause" | "monitor") {
                answers(&mut w, before, &["SET k v", line, "GET k", line]);
            }
            if !matches!(call.as_str(), "client reply" | "client pause") {
                let flight = &[
                    "SET k v", "MULTI", "SET k v", line, "GET k", "EXEC", "GET k",
                ];
                answers(&mut w, &["HELLO 3"], flight);
            }
        }
    }
}
