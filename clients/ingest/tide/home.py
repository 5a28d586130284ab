"""A server whose log has a home of three brokers, while all of them are killed, paused, cut off and started again; what was
acknowledged as replicated against what an independent reader finds at home."""

import os
import signal
import subprocess
import time

from . import rounds, space
from .kafka import Cluster, read_home
from .trouble import Beside, Troubles
from .wire import Failed, expect

REPLICATED = 3
TOPIC = "tide"
# How long everything may take to be at home when nothing is broken any more.
PATIENCE = 240


class World(rounds.World):
    # What is sent is read again by an interpreter.
    rest = 0.3

    def __init__(self, tidewire, place, cluster, seed, apart, record):
        self.cluster, self.space = cluster, None
        if apart:
            self.space = space.Space("server", 21, [space.HOME, space.CLIENTS])
            self.host, self.within = self.space.addr(space.CLIENTS), self.space.enter()
        options = ("--replicate", f"kafka://{cluster.at()}/{TOPIC}", "--retain-bytes", "16MiB", "--replicate-record", record)
        data, errors = os.path.join(place, "log"), os.path.join(place, "errors")
        super().__init__(tidewire, data, errors, seed, options, level=REPLICATED)
        self.troubles = Troubles(cluster, self.chance)
        self.counts = self.troubles.counts
        self.forget()

    def forget(self):
        """What was read at home: the next look is at everything."""
        self.offset, self.at_home, self.last, self.positions = 0, 0, {}, {}

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
        """Until all that was sent is acknowledged; then each message that has come since the last look is at home once, in the order
        of its producer."""
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
        last, positions = self.last, self.positions
        for offset, stream, name, first, found in read_home(self.cluster.at(), TOPIC, since=self.offset):
            self.offset = offset + 1
            expect(first == positions.get(stream, 0), f"{stream}: position {first} behind {positions.get(stream)}")
            positions[stream] = first + len(found)
            for ident, got in found:
                due = last.get((stream, name), 0) + 1
                expect(ident == due, f"{stream}/{name}: {ident} is at home where {due} is due")
                expect(got == rounds.payload(stream, name, ident), f"{stream}/{name}: {ident} is changed")
                last[stream, name] = ident
            self.at_home += len(found)
        for producer in self.producers:
            at_home = last.get((producer.stream, producer.name_), 0)
            expect(at_home >= producer.acked,
                   f"{producer.stream}/{producer.name_}: {producer.acked} was acknowledged, {at_home} is the last at home")
        self.quiet = False


def one(world):
    """One round: something happens to a broker, to all of them, to the server, or to both."""
    chance, cluster = world.chance, world.cluster
    if world.server is None or world.server.process.poll() is not None:
        world.begun()
    world.go_on(chance.uniform(0, 1))
    whose = chance.choice(("broker", "broker", "server", "server", "both", "all"))
    if whose == "all":
        world.count("all brokers killed")
        for each in cluster.brokers:
            each.kill()
        world.go_on(chance.uniform(0, 2))
        if chance.random() < 0.5:
            # It starts without a home.
            world.kill()
            world.begun()
            world.count("server killed")
    beside = Beside(world.troubles.happen) if whose in ("broker", "both") else None
    if whose in ("server", "both"):
        of_server(world)
    if beside:
        beside.done()
    if whose == "both":
        world.count("both at once")
    world.mend()
    world.go_on(chance.uniform(0, 2))


def of_server(world):
    chance = world.chance
    kinds = ["server killed", "server killed", "server paused", "connections reset"]
    if world.space:
        kinds += ["server cut off from the brokers", "server cut off"]
    what = chance.choice(kinds)
    world.count(what)
    if what == "server killed":
        world.kill()
        while chance.random() < 0.3:
            rounds.interrupted_start(world)
        world.begun()
    elif what == "server paused":
        world.server.signal(signal.SIGSTOP)
        world.go_on(chance.uniform(0, 3))
        world.server.signal(signal.SIGCONT)
    elif what == "connections reset":
        world.reset()
    else:
        world.space.cut(*(world.space.legs if what == "server cut off" else [space.HOME]))
        world.go_on(chance.uniform(1, 15))
        world.space.heal()


def run(tidewire, place, jars, args, apart):
    """Rounds; whether all went well."""
    network = space.Network() if apart else None
    cluster = Cluster(place, jars, bool(network), args.defaults)
    world = None
    began, number = time.monotonic(), 0
    print(f"three brokers at {cluster.at()}", flush=True)
    try:
        world = World(tidewire, place, cluster, args.seed, apart, args.record)
        world.begun()
        world.go_on(5)
        while number < args.rounds:
            number += 1
            one(world)
            if number % args.every == 0 or number == args.rounds:
                if number == args.rounds:
                    # What was there in between is there at the end.
                    world.forget()
                world.settled_at_home()
                print(f"round {number}, {time.monotonic() - began:.0f} s: {world.at_home} messages at home; "
                      f"{world.troubles.told()}", flush=True)
    except (Failed, subprocess.SubprocessError, OSError) as e:
        print(f"FAILED in round {number}, seed {args.seed}: {e}")
        return False
    finally:
        if world:
            world.end()
            if world.server and world.server.process.poll() is None:
                world.kill()
                print(world.server.said[-1500:])
        cluster.end()
    sent, acked = world.totals()
    print(f"home: {number} rounds in {time.monotonic() - began:.0f} s, seed {args.seed}: {world.troubles.told()}; {sent} messages "
          f"sent, {acked} acknowledged as replicated; nothing lost, doubled, changed or out of order")
    return True
