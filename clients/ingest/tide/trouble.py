"""What happens to brokers: away for some seconds, cut off, or back with less than they had."""

import signal
import subprocess
import threading
import time

from .kafka import PATIENCE
from .space import HOME
from .wire import expect


class Troubles:
    """Of one cluster, counted by kind; one at a time. Those of others are counted here, too."""

    def __init__(self, cluster, chance):
        self.cluster, self.chance, self.counts, self.lost = cluster, chance, {}, 0
        self.kinds = ["broker killed", "broker ended", "broker paused"]
        if cluster.brokers[0].space:
            self.kinds += ["broker cut off", "two brokers cut off from each other"]
        if cluster.has_disks:
            self.kinds += ["broker's page cache lost"] * 2

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def told(self):
        kinds = ", ".join(f"{what} {count}" for what, count in sorted(self.counts.items()))
        return kinds + (f" ({self.lost} bytes of logs gone)" if self.lost else "")

    def happen(self):
        """One of them, until it is over."""
        chance, cluster = self.chance, self.cluster
        what = chance.choice(self.kinds)
        broker = chance.choice(cluster.brokers)
        self.count(what)
        if what == "broker killed":
            broker.kill()
            time.sleep(chance.uniform(0, 6))
            broker.start()
        elif what == "broker ended":
            broker.signal(signal.SIGTERM)
            try:
                broker.process.wait(chance.uniform(1, 15))
            except subprocess.TimeoutExpired:
                pass
            broker.kill()
            broker.start()
        elif what == "broker paused":
            broker.signal(signal.SIGSTOP)
            time.sleep(chance.uniform(1, 9))
            broker.signal(signal.SIGCONT)
        elif what == "broker cut off":
            broker.space.cut(HOME)
            # Longer and shorter than its session with the controllers.
            time.sleep(chance.uniform(1, 12))
            broker.space.heal()
        elif what == "two brokers cut off from each other":
            two = chance.sample(cluster.brokers, 2)
            for each in two:
                each.space.shun(HOME, True)
            time.sleep(chance.uniform(3, 15))
            for each in two:
                each.space.shun(HOME, False)
        else:
            # Else it would be more than Kafka can bear by its own promise: a broker that was in sync may be alone.
            cluster.in_sync()
            time.sleep(chance.uniform(0, 2))
            self.lost += broker.lose()
            time.sleep(chance.uniform(0, 6))
            broker.start()


class Beside(threading.Thread):
    """Something that happens meanwhile; what failed in it fails in `done`."""

    def __init__(self, what):
        super().__init__(daemon=True)
        self.what, self.failed = what, None
        self.start()

    def run(self):
        try:
            self.what()
        except Exception as e:  # noqa: BLE001 (told by `done`)
            self.failed = e

    def done(self):
        self.join(4 * PATIENCE)
        expect(not self.is_alive(), "what was to happen to a broker does not end")
        if self.failed:
            raise self.failed
