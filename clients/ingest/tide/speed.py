"""Messages a second of each client beside the Rust client: one connection, batches of 100 lines of 100 bytes, in turn. And the
processor time of the client for each message, which says more on a machine that does other things as well."""

import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

from . import languages
from .rounds import Server

COUNT = 1_000_000


class World:
    host, within, options = "127.0.0.1", (), ("--segment", "128MiB")

    def __init__(self, tidewire, place):
        self.tidewire, self.place = tidewire, place
        self.data, self.errors = os.path.join(place, "log"), os.path.join(place, "errors")


def rust(tidewire, addr, lines):
    """The Rust client's rate, as `send` has it: it also reads the lines of a file."""
    began = time.monotonic()
    subprocess.run([tidewire, "send", "--to", addr, "--producer", "rust", lines], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return COUNT / (time.monotonic() - began)


def processor_time():
    """Seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(args, wanted):
    made = [language for _, some in languages.made(wanted, args.built) for language in some if language.name != "cpp-polling"]
    place = tempfile.mkdtemp(prefix="speed-")
    lines = os.path.join(place, "lines")
    with open(lines, "wb") as file:
        file.write((b"x" * 100 + b"\n") * COUNT)
    rates = {name: [] for name in ["rust", *(language.name for language in made)]}
    costs = {name: [] for name in rates}
    try:
        for turn in range(args.turns):
            for name in rates:
                # An empty log each: none is slower for what the one before has left.
                world = World(args.tidewire, tempfile.mkdtemp(dir=place))
                server = Server(world)
                addr = "%s:%d" % server.addr()
                before = processor_time()
                if name == "rust":
                    rate = rust(args.tidewire, addr, lines)
                else:
                    language = next(language for language in made if language.name == name)
                    words = language.words(language.flood, to=addr, producer="p", count=COUNT)
                    rate = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                # The server is a child as well, which is counted when it has ended.
                cost = (processor_time() - before) / COUNT * 1e9
                server.kill()
                shutil.rmtree(world.place)
                rates[name].append(rate)
                costs[name].append(cost)
                print(f"turn {turn + 1}: {name}: {rate:,.0f} a second, {cost:,.0f} ns each", flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for name, some in rates.items():
        ratios = [rate / beside for rate, beside in zip(some, rates["rust"])]
        print(f"{name}: median {statistics.median(some):,.0f} messages a second ({min(some):,.0f} to {max(some):,.0f}), "
              f"{statistics.median(ratios):.2f} of the Rust client ({min(ratios):.2f} to {max(ratios):.2f}); processor time of the "
              f"client: median {statistics.median(costs[name]):,.0f} ns a message ({min(costs[name]):,.0f} to {max(costs[name]):,.0f})")
    print("load of the machine at the end: " + " ".join(f"{load:.1f}" for load in os.getloadavg()))
    return True
