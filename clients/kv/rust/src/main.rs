//! redis-rs against the server at HOST PORT: see ../README.md.

use std::collections::HashMap;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use redis::{Client, Commands, Connection, RedisResult, pipe};

fn main() -> RedisResult<()> {
    let args: Vec<String> = std::env::args().collect();
    let url = format!("redis://{}:{}/", args[1], args[2]);
    for protocol in ["resp2", "resp3"] {
        let client = Client::open(format!("{url}?protocol={protocol}"))?;
        let mut r = client.get_connection()?;
        types(&mut r)?;
        pipeline(&mut r)?;
        transaction(&mut r, &mut client.get_connection()?)?;
        pubsub(&client, &mut r)?;
    }
    let client = Client::open(url)?;
    let mut r = client.get_connection()?;
    let _: () = r.set("before", "restart")?;
    println!("restart");
    io::stdin().read_line(&mut String::new())?;
    // The connection says that it is broken; the client makes another.
    assert!(r.set::<_, _, ()>("after", "1").is_err());
    let mut r = eventually(|| client.get_connection())?;
    let _: () = r.set("after", "1")?;
    assert_eq!(r.get::<_, String>("after")?, "1");
    println!("ok redis-rs");
    Ok(())
}

fn types(r: &mut Connection) -> RedisResult<()> {
    let _: () = redis::cmd("FLUSHALL").query(r)?;
    let _: () = r.set_ex("s", "v", 100)?;
    assert_eq!(r.get::<_, String>("s")?, "v");
    assert_eq!(r.incr::<_, _, i64>("n", 5)?, 5);
    assert_eq!(r.rpush::<_, _, i64>("l", &["a", "b", "c"])?, 3);
    assert_eq!(r.lrange::<_, Vec<String>>("l", 0, -1)?, ["a", "b", "c"]);
    assert_eq!(
        r.blpop::<_, (String, String)>("l", 1.0)?,
        ("l".into(), "a".into())
    );
    let _: () = r.hset_multiple("h", &[("f", "1"), ("g", "2")])?;
    assert_eq!(r.hgetall::<_, HashMap<String, i64>>("h")?.len(), 2);
    assert_eq!(r.sadd::<_, _, i64>("set", &["x", "y"])?, 2);
    assert_eq!(r.smembers::<_, Vec<String>>("set")?.len(), 2);
    let _: () = r.zadd_multiple("z", &[(1.0, "one"), (2.5, "two")])?;
    let scored: Vec<(String, f64)> = r.zrange_withscores("z", 0, -1)?;
    assert_eq!(scored, [("one".into(), 1.0), ("two".into(), 2.5)]);
    assert_eq!(r.scan::<String>()?.count(), 6);
    let wrong = r.lpush::<_, _, i64>("s", "wrong").unwrap_err();
    assert_eq!(wrong.code(), Some("WRONGTYPE"));
    Ok(())
}

fn pipeline(r: &mut Connection) -> RedisResult<()> {
    let mut p = pipe();
    for i in 0..1000 {
        p.set(format!("p{i}"), i).ignore().get(format!("p{i}"));
    }
    assert_eq!(p.query::<Vec<i64>>(r)?, (0..1000).collect::<Vec<_>>());
    Ok(())
}

fn transaction(r: &mut Connection, other: &mut Connection) -> RedisResult<()> {
    let got: Vec<i64> = pipe()
        .atomic()
        .incr("balance", 1)
        .incr("balance", 1)
        .query(r)?;
    assert_eq!(got, [1, 2]);
    let _: () = redis::cmd("WATCH").arg("balance").query(r)?;
    let _: i64 = other.incr("balance", 1)?;
    let lost: Option<Vec<i64>> = pipe().atomic().incr("balance", 1).query(r)?;
    assert_eq!(lost, None, "a watched key changed");
    Ok(())
}

fn pubsub(client: &Client, r: &mut Connection) -> RedisResult<()> {
    let mut own = client.get_connection()?;
    let mut s = own.as_pubsub();
    s.subscribe("news")?;
    s.set_read_timeout(Some(Duration::from_secs(5)))?;
    assert_eq!(r.publish::<_, _, i64>("news", "hello")?, 1);
    assert_eq!(s.get_message()?.get_payload::<String>()?, "hello");
    Ok(())
}

fn eventually<T>(mut attempt: impl FnMut() -> RedisResult<T>) -> RedisResult<T> {
    for _ in 0..100 {
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        sleep(Duration::from_millis(100));
    }
    attempt()
}
