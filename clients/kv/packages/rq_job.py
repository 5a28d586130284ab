"""RQ does its jobs, and redis-py's Lock, whose scripts are called by their hashes, lets one in at a time."""

import sys
import threading
import time

import redis
from rq import Queue, SimpleWorker
from rq.job import JobStatus

connection = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
queue = Queue(connection=connection)
jobs = [queue.enqueue(pow, 2, n) for n in range(10)]
failing = queue.enqueue(divmod, 1, 0)
SimpleWorker([queue], connection=connection).work(burst=True, logging_level="ERROR")
assert [job.return_value() for job in jobs] == [2**n for n in range(10)]
assert failing.get_status() == JobStatus.FAILED

inside, most = 0, 0


def enter():
    global inside, most
    with connection.lock("lock", timeout=5, sleep=0.01) as lock:
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        lock.extend(5)
        lock.reacquire()
        inside -= 1


threads = [threading.Thread(target=enter) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert most == 1 and inside == 0, (most, inside)
print("ok")
