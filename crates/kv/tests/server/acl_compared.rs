//! Categories of commands, and what commands do with their keys, as a real Redis has them.
//!
//! The other server is `redis-server` on the path; without one this says so and passes. It may be older than
//! what this one speaks as: what differs between versions is listed by name.

use std::collections::BTreeSet;

use crate::scripts_compared::{Redis, redis};
use crate::wire::{Client, ENGINES, Server, Value};
use tidewire_kv::service::Settings;

/// Commands and a category that the two do not agree about, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[("wait", "blocking", "since 7.2, and in Valkey")];

/// MIGRATE answers that it is not there, and so has no keys; PFDEBUG TODENSE changes its key, so it takes the
/// right to write, which the other does not ask for.
const LEFT_OUT: &[&str] = &["migrate ", "pfdebug "];

fn both() -> Option<(Redis, Client, Server, Client)> {
    let Some(redis) = redis() else {
        eprintln!("left out: there is no redis-server");
        return None;
    };
    let server = ENGINES
        .into_iter()
        .find_map(|engine| Server::start(engine, 1, Settings::default()))?;
    let (theirs, ours) = (Client::connect(redis.1), server.client());
    Some((redis, theirs, server, ours))
}

fn names(client: &mut Client, category: &str) -> BTreeSet<String> {
    let names = client.ask(&format!("ACL CAT {category}")).array();
    let names = names.into_iter().map(Value::text);
    // A real server has SENTINEL only where it is a Sentinel and serves no keys.
    names
        .filter(|name| name.split('|').next() != Some("sentinel"))
        .collect()
}

#[test]
fn categories_are_as_of_a_real_server() {
    let Some((_redis, mut theirs, _server, mut ours)) = both() else {
        return;
    };
    let categories = |client: &mut Client| -> Vec<String> {
        let all = client.ask("ACL CAT").array();
        all.into_iter().map(Value::text).collect()
    };
    assert_eq!(categories(&mut ours), categories(&mut theirs));
    let all = |client: &mut Client| &names(client, "fast") | &names(client, "slow");
    let known = &all(&mut ours) & &all(&mut theirs);
    assert!(known.len() > 250, "{} commands", known.len());
    let mut wrong = Vec::new();
    for category in categories(&mut theirs) {
        let mine = &names(&mut ours, &category) & &known;
        let real = &names(&mut theirs, &category) & &known;
        for name in &mine ^ &real {
            let is_listed =
                |(command, of, _): &&(&str, &str, &str)| *command == name && *of == category;
            if DIFFERENT.iter().find(is_listed).is_none() {
                let here = mine.contains(&name);
                wrong.push(format!("{name} @{category}: here {here}, there {}", !here));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A command of two or three keys, k0 and so on, and else as few words as it takes; `None` if the table does
/// not say where they are.
fn sample(info: &[Value]) -> Option<String> {
    let [name, arity, _, first, last, step] = &info[..6] else {
        return None;
    };
    let (name, number) = (name.clone().text(), |value: &Value| value.clone().number());
    let (arity, first, last, step) = (number(arity), number(first), number(last), number(step));
    if first == 0 {
        return None;
    }
    let mut len = arity.unsigned_abs() as i64;
    if arity < 0 && last < 0 {
        len += step + 1;
    }
    let end = if last < 0 { len + last } else { last };
    let mut words = vec![name];
    for at in 1..len.max(end + 1) {
        let is_key = at >= first && at <= end && (at - first) % step == 0;
        words.push(if is_key {
            format!("k{}", (at - first) / step)
        } else {
            "1".to_owned()
        });
    }
    Some(words.join(" "))
}

/// Calls whose keys no table names, and subcommands.
const MORE: &[&str] = &[
    "SET k0 v GET",
    "SET k0 GET",
    "SET k0 v EX 10 get",
    "SORT k0 STORE k1",
    "SORT k0 BY nosort LIMIT 0 1 STORE k1",
    "SORT k0 DESC",
    "ZUNION 2 k0 k1",
    "ZINTERCARD 2 k0 k1",
    "ZUNIONSTORE k0 2 k1 k2",
    "ZDIFFSTORE k0 1 k1",
    "ZMPOP 2 k0 k1 MIN",
    "LMPOP 2 k0 k1 LEFT",
    "BLMPOP 1 2 k0 k1 LEFT",
    "BZMPOP 1 2 k0 k1 MIN",
    "SINTERCARD 2 k0 k1",
    "XREAD COUNT 1 BLOCK 1 STREAMS k0 k1 0 0",
    "XREADGROUP GROUP g c NOACK STREAMS k0 k1 > >",
    "XGROUP CREATE k0 g $",
    "XGROUP DESTROY k0 g",
    "XINFO STREAM k0",
    "XINFO GROUPS k0",
    "OBJECT ENCODING k0",
    "OBJECT FREQ k0",
    "MEMORY USAGE k0",
    "EVAL text 2 k0 k1 arg",
    "EVALSHA hash 1 k0",
    "EVAL_RO text 1 k0",
    "EVALSHA_RO hash 1 k0",
    "EVAL text 0",
    "FCALL f 1 k0",
    "FCALL_RO f 1 k0",
    "BITFIELD k0 GET u8 0",
    "BITFIELD k0 SET u8 0 1",
    "BITFIELD k0 GET u8 0 INCRBY u8 0 1",
    "PFCOUNT k0 k1",
    "PFMERGE k0 k1 k2",
    "GEORADIUS k0 1 1 1 m STORE k1",
    "GEOSEARCHSTORE k0 k1 FROMLONLAT 1 1 BYRADIUS 1 m",
    "PUBLISH k0 m",
    "SPUBLISH k0 m",
    "SUBSCRIBE k0 k1",
    "PSUBSCRIBE k0 k1",
    "SSUBSCRIBE k0 k1",
    "KEYS *",
    "FLUSHALL",
    "SWAPDB 0 1",
    "PING",
    "AUTH x",
    "CLIENT ID",
    "CONFIG GET x",
    "ACL WHOAMI",
];

const RULES: &[&str] = &[
    "+@all allchannels ~*",
    "+@all allchannels %R~*",
    "+@all allchannels %W~*",
    "+@all allchannels %R~k0 %W~k0",
    "+@all allchannels ~k0",
    "+@all allchannels %R~k0 %W~k1",
    "+@all allchannels %W~k0 %R~k1",
    "+@all allchannels %W~k0 %R~k1 %R~k2",
    "+@all resetchannels &k0 ~*",
    "+@all resetchannels &k* ~none",
    "+@all resetchannels ~x (+@all ~k0) (+@all allchannels ~k1)",
    "-@all allchannels ~*",
    "+@read allchannels ~* -@dangerous",
    "+@all -@write +set allchannels ~*",
    "-@all +@fast +config|get +acl allchannels ~*",
];

#[test]
fn rights_to_keys_are_as_of_a_real_server() {
    let Some((_redis, mut theirs, _server, mut ours)) = both() else {
        return;
    };
    let mine: BTreeSet<String> = ours
        .ask("COMMAND LIST")
        .array()
        .into_iter()
        .map(Value::text)
        .collect();
    let all = theirs.ask("COMMAND").array().into_iter();
    let mut calls: Vec<String> = all
        .filter_map(|info| sample(&info.array()))
        .chain(MORE.iter().map(|line| (*line).to_owned()))
        .filter(|line| mine.contains(&line.split(' ').next().unwrap().to_ascii_lowercase()))
        .collect();
    calls.retain(|line| !LEFT_OUT.iter().any(|name| line.starts_with(name)));
    assert!(calls.len() > 150, "{} calls", calls.len());
    let mut wrong = Vec::new();
    for rules in RULES {
        let make = format!("ACL SETUSER u reset on {rules}");
        assert_eq!(ours.ask(&make), Value::ok(), "{rules}");
        assert_eq!(theirs.ask(&make), Value::ok(), "{rules}");
        for call in &calls {
            let ask = format!("ACL DRYRUN u {call}");
            let (here, there) = (ours.ask(&ask), theirs.ask(&ask));
            // The words have changed between versions.
            let plain = |value: Value| match value {
                Value::Bulk(text) => text.replace("This user", "User u"),
                other => format!("{other:?}"),
            };
            let (here, there) = (plain(here), plain(there));
            if here != there {
                wrong.push(format!(
                    "{rules}: {call}\n  redis: {there}\n  here:  {here}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
