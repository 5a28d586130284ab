"""redis-py against the server at HOST PORT, over TLS if a file of authorities follows: see ../README.md."""

import sys
import time

import redis


def main() -> None:
    at = {"host": sys.argv[1], "port": int(sys.argv[2])}
    if len(sys.argv) > 3:
        at.update(ssl=True, ssl_ca_certs=sys.argv[3])
    major = int(redis.__version__.split(".")[0])
    for protocol in (2, 3):
        # redis-py 8 speaks RESP3 unless told otherwise; ask for both, whatever the version.
        r = redis.Redis(**at, protocol=protocol, decode_responses=True, client_name="check")
        types(r)
        pipeline(r)
        transaction(r)
        pubsub(r)
    default = redis.Redis(**at, decode_responses=True)
    default.set("before", "restart")
    print("restart", flush=True)
    sys.stdin.readline()
    eventually(lambda: default.ping() is True)
    assert default.set("after", "1") is True and default.get("after") == "1"
    print(f"ok redis-py {redis.__version__} ({major})", flush=True)


def types(r: redis.Redis) -> None:
    assert r.ping() is True
    assert r.client_getname() == "check"
    r.flushall()
    assert r.set("s", "v", ex=100) is True and r.get("s") == "v" and 0 < r.ttl("s") <= 100
    assert r.incrby("n", 5) == 5 and r.incrbyfloat("n", 0.5) == 5.5
    assert r.rpush("l", "a", "b", "c") == 3 and r.lrange("l", 0, -1) == ["a", "b", "c"]
    assert r.blpop(["l"], timeout=1) in (("l", "a"), ["l", "a"])
    assert r.hset("h", mapping={"f": "1", "g": "2"}) == 2 and r.hgetall("h") == {"f": "1", "g": "2"}
    assert r.sadd("set", "x", "y") == 2 and set(r.smembers("set")) == {"x", "y"}
    assert r.zadd("z", {"one": 1, "two": 2.5}) == 2
    assert [tuple(p) for p in r.zrange("z", 0, -1, withscores=True)] == [("one", 1.0), ("two", 2.5)]
    assert r.setbit("bits", 7, 1) == 0 and r.bitcount("bits") == 1
    assert sorted(r.scan_iter(match="*")) == sorted(["s", "n", "l", "h", "set", "z", "bits"])
    assert r.type("z") == "zset" and r.delete("z", "nothing") == 1
    try:
        r.lpush("s", "wrong")
    except redis.ResponseError as e:
        assert str(e).startswith("WRONGTYPE"), e
    else:
        raise AssertionError("a wrong type was not refused")
    assert r.info()["loading"] == 0


def pipeline(r: redis.Redis) -> None:
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"p{i}", i)
            p.get(f"p{i}")
        got = p.execute()
    assert got[0::2] == [True] * 1000 and got[1::2] == [str(i) for i in range(1000)]


def transaction(r: redis.Redis) -> None:
    with r.pipeline(transaction=True) as p:
        p.watch("balance")
        p.multi()
        p.incr("balance")
        p.incr("balance")
        assert p.execute() == [1, 2]
    with r.pipeline(transaction=True) as p:
        p.watch("balance")
        r.incr("balance")
        p.multi()
        p.incr("balance")
        try:
            p.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("a watched key changed and the transaction ran")


def pubsub(r: redis.Redis) -> None:
    with r.pubsub() as p:
        p.subscribe("news")
        p.psubscribe("n?ws")
        for _ in range(2):
            assert p.get_message(timeout=5)["type"] in ("subscribe", "psubscribe")
        assert r.publish("news", "hello") == 2
        got = {p.get_message(timeout=5)["type"] for _ in range(2)}
        assert got == {"message", "pmessage"}, got


def eventually(holds) -> None:
    for _ in range(100):
        try:
            if holds():
                return
        except redis.ConnectionError:
            pass
        time.sleep(0.1)
    raise AssertionError("the client did not reconnect")


main()
