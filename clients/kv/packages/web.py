"""flask-limiter lets so many requests through; django-redis keeps, counts and forgets, and its lock lets one at a time in."""

import sys
import threading
import time

import django
from django.conf import settings
from flask import Flask
from flask_limiter import Limiter

host, port = sys.argv[1], int(sys.argv[2])


def limits(strategy):
    app = Flask(strategy)
    limiter = Limiter(
        lambda: strategy,
        app=app,
        storage_uri=f"redis://{host}:{port}",
        strategy=strategy,
    )

    @app.get("/")
    @limiter.limit("5 per minute")
    def page():
        return "page"

    client = app.test_client()
    codes = [client.get("/").status_code for _ in range(8)]
    assert codes == [200] * 5 + [429] * 3, (strategy, codes)
    limiter.reset()
    assert client.get("/").status_code == 200


# Not to end the minute of the window in the middle.
if time.time() % 60 > 50:
    time.sleep(60 - time.time() % 60)
for strategy in ("fixed-window", "moving-window", "sliding-window-counter"):
    limits(strategy)

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://{host}:{port}/1",
        }
    }
)
django.setup()
from django.core.cache import cache  # noqa: E402

cache.clear()
cache.set_many({f"key{n}": {"n": n} for n in range(100)}, timeout=60)
assert cache.get_many(["key1", "key7", "none"]) == {"key1": {"n": 1}, "key7": {"n": 7}}
assert cache.add("once", 1) and not cache.add("once", 2)
assert cache.incr("once", 41) == 42 and cache.decr("once") == 41
assert 0 < cache.ttl("key1") <= 60 and cache.touch("key1", 600) and cache.ttl("key1") > 60
assert sorted(cache.iter_keys("key1*")) == sorted(["key1"] + [f"key1{n}" for n in range(10)])
assert cache.delete_pattern("key*") == 100 and cache.get("key5") is None
cache.set("short", 1, timeout=0.05)
time.sleep(0.1)
assert cache.get("short") is None and cache.has_key("once")

inside, most = 0, 0


def enter():
    global inside, most
    with cache.lock("lock", timeout=5, sleep=0.01):
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1


threads = [threading.Thread(target=enter) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert most == 1 and inside == 0, (most, inside)
print("ok")
