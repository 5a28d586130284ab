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
        streams(r)
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


def streams(r: redis.Redis) -> None:
    """Two consumers of a group share the work; one of them dies, and the other takes over what it had."""
    r.delete("jobs")
    r.xgroup_create("jobs", "workers", id="$", mkstream=True)
    added = [r.xadd("jobs", {"n": i, "what": "count"}) for i in range(20)]
    assert added == sorted(added, key=lambda id: [int(part) for part in id.split("-")])
    assert r.xlen("jobs") == 20 and r.type("jobs") == "stream"
    seen: dict[str, str] = {}

    def read(consumer: str, count: int, id: str = ">") -> list:
        got = r.xreadgroup("workers", consumer, {"jobs": id}, count=count, block=1000)
        if isinstance(got, dict):
            got = [[key, [entry for part in parts for entry in part]] for key, parts in got.items()]
        return got[0][1] if got else []

    for consumer, count in (("a", 8), ("b", 12)):
        for id, fields in read(consumer, count):
            assert id not in seen and fields["what"] == "count"
            seen[id] = fields["n"]
    assert [seen[id] for id in added] == [str(i) for i in range(20)]
    assert r.xack("jobs", "workers", *added[:5], *added[8:]) == 17
    pending = r.xpending("jobs", "workers")
    assert pending["pending"] == 3 and pending["min"] == added[5] and pending["max"] == added[7]
    assert [id for id, _ in read("a", 10, "0")] == added[5:8]
    cursor, claimed, gone = r.xautoclaim("jobs", "workers", "b", 0)
    assert cursor == "0-0" and [id for id, _ in claimed] == added[5:8] and gone == []
    assert {row["times_delivered"] for row in r.xpending_range("jobs", "workers", "-", "+", 10)} == {3}
    assert r.xack("jobs", "workers", *added) == 3
    assert r.xtrim("jobs", maxlen=10, approximate=False) == 10
    info = r.xinfo_stream("jobs")
    assert info["length"] == 10 and info["entries-added"] == 20 and info["first-entry"][0] == added[10]
    assert r.xinfo_groups("jobs")[0]["lag"] == 0


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
