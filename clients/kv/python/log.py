"""redis-py against the server at HOST PORT, which shows the stream `default` of its log as a key: see ../README.md.

1,000 lines are there; when it prints `reads`, 500 more are to be sent.
"""

import sys

import redis


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    for protocol in (2, 3):
        r = redis.Redis(host=host, port=port, protocol=protocol, decode_responses=True)
        assert r.xlen("log:default") >= 1000 and r.type("log:default") == "stream"
        first = r.xrange("log:default", count=2)
        assert [id for id, _ in first] == ["0-1", "1-1"], first
        assert first[0][1]["payload"] == "line 1" and first[0][1]["producer"] == "numbers", first
        assert int(first[0][1]["timestamp_us"]) > 1_700_000_000_000_000
        assert r.xrevrange("log:default", "999", count=1)[0][1]["payload"] == "line 1000"
        assert r.xinfo_stream("log:default")["first-entry"][0] == "0-1"
        try:
            r.xadd("log:default", {"payload": "no"})
        except redis.ResponseError as e:
            assert "streams of the log" in str(e), e
        else:
            raise AssertionError("it was written")
    print("reads", flush=True)
    last, n = "0", 0
    while n < 1500:
        read = r.xread({"log:default": last}, count=100, block=60_000)
        # A map in the third version of the protocol.
        (entries,) = read.values() if isinstance(read, dict) else [read[0][1]]
        entries = entries[0] if entries and isinstance(entries[0], list) else entries
        for id, fields in entries:
            n += 1
            assert id == f"{n - 1}-1" and fields["payload"] == f"line {n}", (id, fields)
            last = id
    print(f"ok redis-py {redis.__version__}", flush=True)


main()
