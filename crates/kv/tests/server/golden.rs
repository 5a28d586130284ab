//! The bytes of the Redis protocol, held still.

use std::sync::Arc;

use tidewire::sim::chunking;
use tidewire_kv::hash::HashKey;
use tidewire_kv::service::{RespService, Settings};
use tidewire_kv::store::{self, Store};

use crate::golden_check::check;

/// What is answered to these commands, one after the other, on a line for each line of the protocol.
fn answers(commands: &[&str]) -> String {
    let mut text = String::new();
    let mut sent = Vec::new();
    let mut heard = 0;
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        sent.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            sent.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        let output = everything(&sent);
        text += &format!("> {command}\n");
        let answer = &output[heard..];
        heard = output.len();
        for line in answer.split_inclusive(|byte| *byte == b'\n') {
            text += &format!("{}\n", line.escape_ascii());
        }
    }
    text
}

fn everything(sent: &[u8]) -> Vec<u8> {
    let store = Store::new(store::Settings {
        hash_key: HashKey::from_seed(1),
        shards: 1,
        ..store::Settings::default()
    });
    let settings = Settings {
        protected: false,
        ..Settings::default()
    };
    let service = RespService::new(Arc::new(store), settings);
    chunking::collect(service, sent, &[], true).output
}

#[test]
fn golden_replies() {
    let common = [
        "PING",
        "ECHO hello",
        "SET k v",
        "GET k",
        "GET none",
        "INCR n",
        "APPEND k w",
        "MGET k none n",
        "EXISTS k none",
        "NOSUCH a",
        "SET k",
        "INCR k",
        "LPUSH k x",
        "RPUSH l a b c",
        "LRANGE l 0 -1",
        "LPOP none",
        "LPOP l 2",
        "HSET h f 1",
        "HGETALL h",
        "HGET h none",
        "SADD s m",
        "SMEMBERS s",
        "ZADD z 1.5 m",
        "ZSCORE z m",
        "ZRANGE z 0 -1 WITHSCORES",
        "XADD x 7-1 f v",
        "XRANGE x - +",
        "TYPE z",
        "OBJECT ENCODING l",
        "MULTI",
        "SET k 2",
        "NOSUCH",
        "EXEC",
        "MULTI",
        "INCR n",
        "GET k",
        "EXEC",
        "EVAL return{1,'a',false,{ok='fine'}} 0",
        "SUBSCRIBE c",
    ];
    let second = answers(&common);
    let third = answers(&[&["HELLO 3"], &common[..]].concat());
    check("resp2.txt", &second);
    check("resp3.txt", &third);
}
