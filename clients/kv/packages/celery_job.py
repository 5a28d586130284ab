"""Celery does its jobs, gives their results back, and runs a chain, a group with an end, a retry and one that is put off."""

import sys

from celery import Celery, chain, chord, group
from celery.contrib.testing.worker import start_worker

url = f"redis://{sys.argv[1]}:{sys.argv[2]}/0"
app = Celery("work", broker=url, backend=url)
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 1:
        raise self.retry(countdown=0)
    return self.request.retries


with start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, loglevel="ERROR"):
    jobs = [add.delay(n, n) for n in range(20)]
    later = add.apply_async((1, 2), countdown=1)
    assert [job.get(timeout=30) for job in jobs] == [2 * n for n in range(20)]
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=30) == 10
    assert group(add.s(n, 1) for n in range(5))().get(timeout=30) == [1, 2, 3, 4, 5]
    assert chord((add.s(n, n) for n in range(10)), total.s())().get(timeout=30) == 90
    assert flaky.delay().get(timeout=30) == 1
    assert later.get(timeout=30) == 3
print("ok")
