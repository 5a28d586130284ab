"""Messages a second of each client beside the Rust client: one connection, batches of 100 lines of 100 bytes, in turn."""

import os
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


def measure(args, wanted):
    made = [language for _, some in languages.made(wanted, args.built) for language in some if language.name != "cpp-polling"]
    place = tempfile.mkdtemp(prefix="speed-")
    lines = os.path.join(place, "lines")
    with open(lines, "wb") as file:
        file.write((b"x" * 100 + b"\n") * COUNT)
    rates = {name: [] for name in ["rust", *(language.name for language in made)]}
    try:
        for turn in range(args.turns):
            for name in rates:
                # An empty log each: none is slower for what the one before has left.
                world = World(args.tidewire, tempfile.mkdtemp(dir=place))
                server = Server(world)
                addr = "%s:%d" % server.addr()
                if name == "rust":
                    rate = rust(args.tidewire, addr, lines)
                else:
                    language = next(language for language in made if language.name == name)
                    words = language.words(language.flood, to=addr, producer="p", count=COUNT)
                    rate = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                server.kill()
                shutil.rmtree(world.place)
                rates[name].append(rate)
                print(f"turn {turn + 1}: {name}: {rate:,.0f} a second", flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for name, some in rates.items():
        ratios = [rate / beside for rate, beside in zip(some, rates["rust"])]
        print(f"{name}: median {statistics.median(some):,.0f} messages a second ({min(some):,.0f} to {max(some):,.0f}), "
              f"{statistics.median(ratios):.2f} of the Rust client ({min(ratios):.2f} to {max(ratios):.2f})")
    print("load of the machine at the end: " + " ".join(f"{load:.1f}" for load in os.getloadavg()))
    return True
