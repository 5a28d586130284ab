"""A server whose log has a home of three brokers, while all of them are killed, paused and started again; what was
acknowledged as replicated against what an independent reader finds at home."""

import os
import random
import signal
import time

from . import rounds
from .kafka import Cluster, read_home
from .wire import Failed, expect

REPLICATED = 3
TOPIC = "tide"
# How long everything may take to be at home when nothing is broken any more.
PATIENCE = 240


class World(rounds.World):
    def __init__(self, tidewire, place, cluster, seed):
        self.cluster = cluster
        options = ("--replicate", f"kafka://{cluster.at()}/{TOPIC}", "--retain-bytes", "16MiB")
        data, errors = os.path.join(place, "log"), os.path.join(place, "errors")
        super().__init__(tidewire, data, errors, seed, options, level=REPLICATED)

    def mend(self):
        """All run."""
        for broker in self.cluster.brokers:
            if broker.is_stopped:
                broker.signal(signal.SIGCONT)
            if broker.process.poll() is not None:
                broker.start()
        self.cluster.up()
        if self.server is None or self.server.process.poll() is not None:
            self.begun()

    def settled_at_home(self):
        """Until all that was sent is acknowledged; then each message is at home once, in the order of its producer."""
        self.mend()
        self.quiet = True
        since = time.monotonic()
        while any(producer.line or producer.acked < producer.sent for producer in self.producers):
            if any(not producer.line and producer.acked < producer.sent for producer in self.producers):
                # One that was cut off asks again.
                self.quiet = False
                time.sleep(0.05)
                self.quiet = True
            expect(time.monotonic() - since < PATIENCE, "not everything comes home")
            time.sleep(0.05)
        for producer in self.producers:
            expect(producer.wrong is None, producer.wrong)
        last, positions, count = {}, {}, 0
        for stream, name, first, found in read_home(self.cluster.at(), TOPIC):
            expect(first == positions.get(stream, 0), f"{stream}: position {first} behind {positions.get(stream)}")
            positions[stream] = first + len(found)
            for ident, got in found:
                due = last.get((stream, name), 0) + 1
                expect(ident == due, f"{stream}/{name}: {ident} is at home where {due} is due")
                expect(got == rounds.payload(stream, name, ident), f"{stream}/{name}: {ident} is changed")
                last[stream, name] = ident
                count += 1
        for producer in self.producers:
            at_home = last.get((producer.stream, producer.name_), 0)
            expect(at_home >= producer.acked,
                   f"{producer.stream}/{producer.name_}: {producer.acked} was acknowledged, {at_home} is the last at home")
        self.quiet = False
        return count


def one(world, number):
    """One round: something happens to a broker or to the server."""
    chance, cluster = world.chance, world.cluster
    if world.server is None or world.server.process.poll() is not None:
        world.begun()
    world.go_on(chance.uniform(0, 1))
    broker = chance.choice(cluster.brokers)
    what = chance.choice(("kill", "kill", "pause", "end", "all", "server", "server", "server pause", "reset"))
    world.count(what)
    if what in ("kill", "end"):
        if what == "kill":
            broker.kill()
        else:
            broker.signal(signal.SIGTERM)
            world.go_on(chance.uniform(0, 3))
            broker.kill()
        if chance.random() < 0.5:
            world.kill()
            world.begun()
            world.count("server")
        world.go_on(chance.uniform(0, 4))
    elif what == "pause":
        broker.signal(signal.SIGSTOP)
        world.go_on(chance.uniform(0, 9))
    elif what == "all":
        for each in cluster.brokers:
            each.kill()
        world.go_on(chance.uniform(0, 2))
        if chance.random() < 0.5:
            # It starts without a home.
            world.kill()
            world.begun()
    elif what == "server":
        world.kill()
        while chance.random() < 0.3:
            rounds.interrupted_start(world)
    elif what == "server pause":
        world.server.signal(signal.SIGSTOP)
        world.go_on(chance.uniform(0, 3))
        world.server.signal(signal.SIGCONT)
    else:
        world.reset()
    world.mend()
    world.go_on(chance.uniform(0, 2))


def run(tidewire, place, jars, seed, count, often):
    """Rounds; whether all went well."""
    cluster = Cluster(place, jars)
    world = None
    began, number = time.monotonic(), 0
    print(f"three brokers at {cluster.at()}", flush=True)
    try:
        world = World(tidewire, place, cluster, seed)
        world.begun()
        world.go_on(5)
        while number < count:
            number += 1
            one(world, number)
            if number % often == 0 or number == count:
                at_home = world.settled_at_home()
                print(f"round {number}, {time.monotonic() - began:.0f} s: {at_home} messages at home", flush=True)
    except Failed as e:
        print(f"FAILED in round {number}, seed {seed}: {e}")
        return False
    finally:
        if world:
            world.end()
            if world.server and world.server.process.poll() is None:
                world.kill()
                print(world.server.said[-1500:])
        cluster.end()
    counts = ", ".join(f"{what} {count}" for what, count in sorted(world.counts.items()))
    sent, acked = world.totals()
    print(f"home: {number} rounds in {time.monotonic() - began:.0f} s, seed {seed}: {counts}; {sent} messages sent, {acked} "
          "acknowledged as replicated; nothing lost, doubled, changed or out of order")
    return True
