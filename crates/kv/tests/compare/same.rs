//! Whether two servers do the same: replies whose order means nothing are sorted, random choices are
//! checked and then taken over.

use std::collections::BTreeSet;

use tidewire_kv::reply::Proto;

use crate::generate::Args;
use crate::ours::{self, Ours};
use crate::peer::Peer;
use crate::value::{Value, show};

fn words(line: &str) -> Args {
    line.split(' ').map(|word| word.into()).collect()
}

fn with_key(line: &str, key: &[u8]) -> Args {
    let mut args = words(line);
    args.insert(1, key.to_vec());
    args
}

/// Runs the commands on both, then compares all keys; what differs. With `few`, limits of small forms are
/// lower than usual.
pub(crate) fn run(
    commands: &[Args],
    proto: Proto,
    few: bool,
    peer: &mut Peer,
) -> Result<(), String> {
    peer.say("FLUSHALL");
    limit(few, peer);
    let mut ours = Ours::with_limits(proto, 1, few);
    peer.events();
    for args in commands {
        let mut is_error = false;
        let name = String::from_utf8_lossy(&args[0]).to_uppercase();
        match &*name {
            "DUMP" => exchanged(args, &mut ours, peer)?,
            "SPOP" => popped(args, &mut ours, peer)?,
            "SRANDMEMBER" | "HRANDFIELD" | "ZRANDMEMBER" => chosen(args, &name, &mut ours, peer)?,
            _ => {
                let (mut left, mut right) = (ours.run(args), ask(args, &name, peer));
                normalise(&name, &mut left, peer.is_7_2);
                normalise(&name, &mut right, peer.is_7_2);
                differ(args, &left, &right)?;
                is_error = left.is_error();
            }
        }
        let (left, right) = (ours.events(), peer.events());
        same_events(args, &name, (is_error, peer.is_7_2), left, right)?;
    }
    let is_7_2 = peer.is_7_2;
    let left = dump(|args| ours.run(args), is_7_2);
    let right = dump(|args| peer.run(args), is_7_2);
    if left.len() != right.len() {
        return Err(format!(
            "in the end ours has {left:?}\nthe peer has {right:?}"
        ));
    }
    for (left, right) in left.iter().zip(&right) {
        if left != right {
            return Err(format!(
                "in the end ours has {left:?}\nthe peer has         {right:?}"
            ));
        }
    }
    Ok(())
}

/// Whether the same was told of keys.
fn same_events(
    args: &Args,
    name: &str,
    (is_error, is_7_2): (bool, bool),
    mut left: Vec<(String, Vec<u8>)>,
    mut right: Vec<(String, Vec<u8>)>,
) -> Result<(), String> {
    if name == "PFCOUNT" {
        // The peer was asked in another way.
        return Ok(());
    }
    let is =
        |arg: &[u8], words: [&[u8]; 2]| words.iter().any(|word| arg.eq_ignore_ascii_case(word));
    let is_timed = name == "SET" && args.iter().any(|arg| is(arg, [b"EXAT", b"PXAT"]));
    if is_timed && !is_7_2 {
        // In 7.0 a key that SET gives a time long past is there until it is looked for.
        return Ok(());
    }
    if name == "SPOP" {
        // What ours has chosen was taken from the peer by name.
        for (channel, _) in &mut right {
            *channel = channel.replace(":srem", ":spop");
        }
    }
    // A time that is past deletes in Redis; of Valkey 9 the key has expired then.
    let past = matches!(
        name,
        "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" | "GETEX" | "SET"
    ) && left.iter().any(|(channel, _)| channel.ends_with(":del"));
    if past {
        for (channel, _) in &mut right {
            *channel = channel.replace(":expired", ":del");
        }
    }
    // Some commands of Redis look twice, or before they look at their arguments.
    let missed = |events: &[(String, Vec<u8>)]| -> BTreeSet<Vec<u8>> {
        let missed = events
            .iter()
            .filter(|(channel, _)| channel.ends_with(":keymiss"));
        missed.map(|(_, key)| key.clone()).collect()
    };
    let same_missed = is_error || missed(&left) == missed(&right);
    if same_missed {
        for events in [&mut left, &mut right] {
            events.retain(|(channel, _)| !channel.ends_with(":keymiss"));
        }
    }
    for events in [&mut left, &mut right] {
        // In 7.0 a client that asks in vain becomes no consumer, and keys that SET gave a time long
        // past are found at any time.
        let differs = [":xgroup-createconsumer", ":expired"];
        let kept = |channel: &str| is_7_2 || !differs.iter().any(|end| channel.ends_with(end));
        events.retain(|(channel, _)| kept(channel));
    }
    if left == right {
        return Ok(());
    }
    let shown = |events: &[(String, Vec<u8>)]| {
        let one = |(channel, key): &(String, Vec<u8>)| format!("{channel} {}", key.escape_ascii());
        events.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    Err(format!(
        "{}\nours tells: {}\npeer tells: {}",
        show(args),
        shown(&left),
        shown(&right)
    ))
}

fn limit(few: bool, peer: &mut Peer) {
    let settings = [
        ("hash-max-listpack-value", ours::LENGTH, 64),
        ("hash-max-listpack-entries", ours::HASH, 512),
        ("zset-max-listpack-value", ours::LENGTH, 64),
        ("zset-max-listpack-entries", ours::ZSET, 128),
        ("set-max-intset-entries", ours::INTEGERS, 512),
        // Redis 7.0 does not know these.
        ("set-max-listpack-value", ours::LENGTH, 64),
        ("set-max-listpack-entries", ours::SET, 128),
    ];
    for (name, low, usual) in settings {
        let value = if few { low } else { usual };
        peer.say(&format!("CONFIG SET {name} {value}"));
    }
}

fn differ(args: &Args, left: &Value, right: &Value) -> Result<(), String> {
    if left == right {
        return Ok(());
    }
    let args = show(args);
    Err(format!("{args}\nours: {left:?}\npeer: {right:?}"))
}

fn ask(args: &Args, name: &str, peer: &mut Peer) -> Value {
    if name == "PFCOUNT" && args.len() == 2 {
        // Redis keeps the count of a single key in it, which ours does not do.
        return peer.run(&[&args[..], &[b"none".to_vec()]].concat());
    }
    let blocks = args.iter().any(|arg| arg.eq_ignore_ascii_case(b"BLOCK"));
    if name.starts_with('B') && !name.starts_with("BIT") || name.starts_with("XREAD") && blocks {
        peer.run_without_waiting(args)
    } else {
        peer.run(args)
    }
}

fn normalise(name: &str, value: &mut Value, is_7_2: bool) {
    if name.starts_with('Z') || name.starts_with("BZ") {
        // How long a set in Redis keeps the sign of a zero depends on its encoding.
        value.unsign_zeros();
        // Redis 7.0 writes 0.1 with 17 digits, Valkey some big numbers with more than it takes.
        value.reformat(|text| !is_7_2 || text.len() > 19 || text.windows(2).any(|e| e == b"e+"));
    }
    let is_new_text = |text: &[u8]| text.starts_with(b"ERR member ") && name.starts_with("GEO");
    if value.is_error() && value.text().is_some_and(is_new_text) {
        // Valkey names the member.
        let text = b"ERR could not decode requested zset member";
        *value = Value::Plain(b'-', Some(text.to_vec()));
    }
    match name {
        "XPENDING" | "XINFO" => without_times(value),
        "KEYS" | "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "HKEYS" | "HVALS" => value.sort(1),
        "HGETALL" => value.sort(2),
        // Only the bytes of a string are kept, not how they came about: the rest follows from them.
        // Nor of a sorted set, as what a command has stored may begin as either. Other types have
        // other encodings.
        "OBJECT" if !is_7_2 && value.text().is_some() && !value.is_error() => {
            *value = Value::Plain(b'$', None);
        }
        "OBJECT" => {
            let like = match value.text() {
                Some(b"int" | b"embstr" | b"raw") => "string",
                Some(b"skiplist") => "listpack",
                _ => return,
            };
            *value = Value::Plain(b'$', Some(like.into()));
        }
        "SCAN" | "SSCAN" | "HSCAN" | "ZSCAN" => {
            if let Value::Parts(_, parts) = value {
                let size = if matches!(name, "HSCAN" | "ZSCAN") {
                    2
                } else {
                    1
                };
                parts.iter_mut().for_each(|part| part.sort(size));
                // Redis writes these scores in another way than all others.
                if let ("ZSCAN", Some(Value::Parts(_, found))) = (name, parts.last_mut()) {
                    found
                        .chunks_mut(2)
                        .for_each(|pair| pair[1].reformat(|_| true));
                }
            }
        }
        _ => {}
    }
}

/// Takes out what depends on the clock, and on the tree in which Redis has the blocks of a stream.
fn without_times(value: &mut Value) {
    const TIMES: [&[u8]; 5] = [
        b"idle",
        b"inactive",
        b"seen-time",
        b"active-time",
        b"radix-tree-nodes",
    ];
    fn forget(value: &mut Value) {
        if let Value::Plain(b':', Some(text)) = value
            && !text.starts_with(b"-")
        {
            // What is long ago stays long ago.
            let ms = String::from_utf8_lossy(text).parse().unwrap_or(0);
            let long_ago: bool = (150_000u64..1_000_000_000).contains(&ms);
            *text = format!("{}", u8::from(long_ago)).into_bytes();
        }
    }
    let Value::Parts(_, parts) = value else {
        return;
    };
    let is_number = |value: &Value| matches!(value, Value::Plain(b':', _));
    // An entry that was delivered: id, consumer, time, count; or without the consumer.
    match parts.len() {
        4 if is_number(&parts[2]) && is_number(&parts[3]) => forget(&mut parts[2]),
        3 if is_number(&parts[1]) && is_number(&parts[2]) => forget(&mut parts[1]),
        _ => {}
    }
    for at in 1..parts.len() {
        if parts[at - 1]
            .text()
            .is_some_and(|name| TIMES.contains(&name))
        {
            forget(&mut parts[at]);
        }
    }
    parts.iter_mut().for_each(without_times);
}

/// Dumps a key on both, and has each restore what the other has.
fn exchanged(args: &Args, ours: &mut Ours, peer: &mut Peer) -> Result<(), String> {
    let (left, right) = (ours.run(args), peer.run(args));
    let (Value::Plain(b'$', Some(mine)), Value::Plain(b'$', Some(other))) = (&left, &right) else {
        return differ(args, &left, &right);
    };
    let restore = |payload: &Vec<u8>| {
        let mut restore = with_key("RESTORE 0 REPLACE", &args[1]);
        restore.insert(3, payload.clone());
        restore
    };
    let (left, right) = (ours.run(&restore(other)), peer.run(&restore(mine)));
    differ(args, &left, &right)
}

/// Pops from ours, looks whether the peer had these members, and removes them there.
fn popped(args: &Args, ours: &mut Ours, peer: &mut Peer) -> Result<(), String> {
    let members = peer.run(&with_key("SMEMBERS", args.get(1).map_or(b"", |key| key)));
    // The test did not ask for these events.
    peer.events();
    let left = ours.run(args);
    let taken: Vec<Vec<u8>> = match &left {
        Value::Parts(_, parts) => parts
            .iter()
            .filter_map(|m| Some(m.text()?.to_vec()))
            .collect(),
        Value::Plain(b'-', _) | Value::Plain(_, None) => {
            return differ(args, &left, &peer.run(args));
        }
        // Nothing in RESP3.
        Value::Plain(b'_', _) => return differ(args, &left, &peer.run(args)),
        Value::Plain(_, Some(member)) => vec![member.clone()],
    };
    let all = members.parts().unwrap_or_default();
    let wanted = args
        .get(2)
        .map_or(Some(1), |n| std::str::from_utf8(n).ok()?.parse().ok());
    if wanted.map(|n: usize| n.min(all.len())) != Some(taken.len()) {
        return Err(format!("{} took {left:?} of {members:?}", show(args)));
    }
    if taken.is_empty() {
        return differ(args, &left, &peer.run(args));
    }
    let mut remove = with_key("SREM", &args[1]);
    remove.extend(taken.iter().cloned());
    let removed = peer.run(&remove);
    if removed != Value::Plain(b':', Some(taken.len().to_string().into_bytes())) {
        return Err(format!("{} took {left:?} of {members:?}", show(args)));
    }
    Ok(())
}

/// Chooses on both; the replies must have the same shape, and ours must be of what there is.
fn chosen(args: &Args, name: &str, ours: &mut Ours, peer: &mut Peer) -> Result<(), String> {
    let (mut left, mut right) = (ours.run(args), peer.run(args));
    normalise(name, &mut left, peer.is_7_2);
    normalise(name, &mut right, peer.is_7_2);
    if left.is_error() || right.is_error() || left.parts().is_none() {
        let same = match (&left, &right) {
            // One member: a text or nothing.
            (Value::Plain(b'$', Some(_)), Value::Plain(b'$', Some(_))) => true,
            _ => left == right,
        };
        return if same {
            Ok(())
        } else {
            differ(args, &left, &right)
        };
    }
    let has = |flat: &Value| -> usize {
        let parts = flat.parts().unwrap_or_default();
        parts
            .iter()
            .map(|part| part.parts().map_or(1, <[Value]>::len))
            .sum()
    };
    let lengths = |value: &Value| (value.parts().map(<[Value]>::len), has(value));
    if lengths(&left) != lengths(&right) {
        return differ(args, &left, &right);
    }
    let key = &args[1];
    let all = match name {
        "SRANDMEMBER" => peer.run(&with_key("SMEMBERS", key)),
        "HRANDFIELD" => peer.run(&with_key("HGETALL", key)),
        _ => {
            let mut all = peer.run(&with_key("ZRANGE 0 -1 WITHSCORES", key));
            normalise(name, &mut all, peer.is_7_2);
            all
        }
    };
    let flat = |value: &Value| -> Vec<Value> {
        let parts = value.parts().unwrap_or_default().iter();
        parts
            .flat_map(|part| {
                part.parts()
                    .map_or_else(|| vec![part.clone()], <[Value]>::to_vec)
            })
            .collect()
    };
    let (mine, all) = (flat(&left), flat(&all));
    let step = if name == "SRANDMEMBER" { 1 } else { 2 };
    let own_step = if args.len() > 3 { step } else { 1 };
    let known = |group: &[Value]| all.chunks(step).any(|known| known.starts_with(group));
    if !mine.chunks(own_step).all(known) {
        return Err(format!("{} chose {left:?} of {all:?}", show(args)));
    }
    let mut firsts: Vec<&Value> = mine.chunks(own_step).map(|group| &group[0]).collect();
    firsts.sort();
    let n = firsts.len();
    firsts.dedup();
    if !args[2].starts_with(b"-") && firsts.len() != n {
        return Err(format!("{} chose one twice: {left:?}", show(args)));
    }
    Ok(())
}

/// All that there is: each key, its deadline, its encoding and its value.
pub(crate) fn dump(mut ask: impl FnMut(&Args) -> Value, is_7_2: bool) -> Vec<Vec<Value>> {
    let mut keys = ask(&words("KEYS *"));
    keys.sort(1);
    let mut all = Vec::new();
    for key in keys.parts().unwrap_or_default() {
        let name = key.text().unwrap_or_default();
        let mut encoding = ask(&[words("OBJECT ENCODING"), vec![name.to_vec()]].concat());
        if name.starts_with(b"q") {
            // What SDIFFSTORE has stored was bigger in Redis before.
            encoding = Value::Plain(b'$', None);
        }
        normalise("OBJECT", &mut encoding, is_7_2);
        let mut row = vec![key.clone(), ask(&with_key("PEXPIRETIME", name)), encoding];
        let kind = ask(&with_key("TYPE", name));
        let (line, command) = match kind.text().unwrap_or_default() {
            b"string" => ("GET", "GET"),
            b"list" => ("LRANGE 0 -1", "LRANGE"),
            b"hash" => ("HGETALL", "HGETALL"),
            b"set" => ("SMEMBERS", "SMEMBERS"),
            b"zset" => ("ZRANGE 0 -1 WITHSCORES", "ZRANGE"),
            b"stream" => {
                let (words, at) = match is_7_2 {
                    true => ("XINFO STREAM FULL COUNT 0", 2),
                    false => ("XINFO STREAM", 2),
                };
                let mut line = self::words(words);
                line.insert(at, name.to_vec());
                let mut value = ask(&line);
                normalise("XINFO", &mut value, is_7_2);
                row.push(value);
                ("XRANGE - +", "XRANGE")
            }
            other => panic!("a type: {}", other.escape_ascii()),
        };
        let mut value = ask(&with_key(line, name));
        normalise(command, &mut value, is_7_2);
        row.push(value);
        all.push(row);
    }
    all
}
