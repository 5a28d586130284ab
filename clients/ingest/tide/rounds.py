"""Servers that are killed, stopped, reset and lied to by their disks, while producers go on; what was sent and
acknowledged against what is stored."""

import fcntl
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from .wire import Failed, Line, expect, message, produce, subscribe

STREAMS = ("one", "two", "three")
PRODUCERS = ("p", "q")
# How long a server may take to listen, and all producers to be acknowledged.
PATIENCE = 120


def payload(stream, name, ident):
    head = b"%s %s %d " % (stream.encode(), name.encode(), ident)
    return head * (1 + ident % 5) + (b"x" * 20000 if ident % 97 == 0 else b"")


class Server:
    """A `tidewire serve`, which may end at any moment."""

    def __init__(self, world, wrap=()):
        command = [*world.within, *wrap, world.tidewire, "serve", "ingest", "--listen", f"ingest={world.host}:0", "--data", world.data,
                   "--admin", "off", "--control", "off", "--workers", "1", "--segment", "512KiB", "--log-payload", "64KiB",
                   *world.options]
        self.log, self.wrapped, self.lock = open(world.errors, "w+"), bool(wrap), os.path.join(world.data, "LOCK")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True)

    def addr(self):
        """Where it listens; None if it ended instead."""
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        expect(ready, "a server neither listens nor ends")
        line = self.process.stdout.readline().decode()
        if " addr=" not in line:
            self.process.wait(PATIENCE)
            return None
        host, _, port = line.split(" addr=")[1].split()[0].rpartition(":")
        return host, int(port)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.ended()

    def ended(self):
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        if self.wrapped:
            self.unlocked()
        self.log.seek(0)
        self.said = self.log.read()
        self.log.close()
        expect("panicked" not in self.said, f"a server panicked: {self.said}")
        return code

    def unlocked(self):
        """Until the server itself has gone, too, which was killed with what wraps it and may take longer to die."""
        since = time.monotonic()
        while os.path.exists(self.lock):
            with open(self.lock) as lock:
                try:
                    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    expect(time.monotonic() - since < PATIENCE, "a server that was killed does not die")
            time.sleep(0.005)


class Producer(threading.Thread):
    """Sends messages for as long as the world goes on; knows what was acknowledged."""

    def __init__(self, world, stream, name, seed):
        super().__init__(daemon=True)
        self.world, self.stream, self.name_, self.chance = world, stream, name, random.Random(seed)
        self.sent = self.acked = 0
        self.wrong, self.line, self.reset = None, None, False

    def run(self):
        while not self.world.over:
            try:
                self.session()
            except Failed as e:
                if "was due" in str(e) or "mark" in str(e):
                    self.wrong = self.wrong or f"{self.stream}/{self.name_}: {e}"
            except OSError:
                pass
            finally:
                if self.line:
                    self.line.sock.close()
                self.line = None
            time.sleep(0.02)

    def session(self):
        addr = self.world.addr
        if addr is None or self.world.quiet:
            return
        sock = socket.create_connection(addr, timeout=5)
        # Of a connection that is reset nothing is flushed.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.line, self.reset = Line(sock), False
        sock.settimeout(5)
        token = os.environ.get("TIDEWIRE_TOKEN", "")
        self.line.send(produce(self.stream, self.name_, self.world.level, token=token))
        frame = self.line.frame()
        if frame is None or frame.kind != 1 or frame.level < self.world.level:
            return
        mark = frame.last_id or 0
        expect(self.acked <= mark <= self.sent, f"the mark is {mark}: sent {self.sent}, acknowledged {self.acked}")
        self.acked, at, sock_ok = mark, mark, True
        while sock_ok and not (self.world.over or self.world.quiet or self.reset):
            if at - self.acked < 3000:
                count = self.chance.randrange(1, 200)
                ids = range(at + 1, at + 1 + count)
                at += count
                self.sent = max(self.sent, at)
                self.line.send(b"".join(message(i, payload(self.stream, self.name_, i)) for i in ids))
            sock_ok = self.hear(self.world.rest)
        while sock_ok and self.acked < at and not (self.reset or self.world.over):
            sock_ok = self.hear(0.2)

    def hear(self, wait):
        while True:
            ready, _, _ = select.select([self.line.sock], [], [], wait)
            if not ready and len(self.line.buffer) < 8:
                return True
            frame = self.line.frame()
            if frame is None or frame.kind == 3:
                if frame and not frame.flags & 1:
                    time.sleep(min(1, frame.retry_after_ms / 1000))
                return False
            if frame.kind == 2 and not frame.flags & 1:
                expect(frame.id <= self.sent, f"the mark {frame.id} is of nothing that was sent")
                self.acked = max(self.acked, frame.id)
            wait = 0


class World:
    # Where servers listen, and what their commands begin with.
    host, within = "127.0.0.1", ()
    # How long a producer rests between two writes, in seconds.
    rest = 0.002

    def __init__(self, tidewire, data, errors, seed, options=(), level=2):
        self.tidewire, self.data, self.errors, self.options = tidewire, data, errors, options
        self.level = level
        self.chance = random.Random(seed)
        self.over, self.quiet, self.addr, self.server = False, False, None, None
        # Whether the file system copies blocks when they are written. There a log may fail for want of room, as it says at
        # its start, also for some time after there is room again.
        self.copies = False
        self.counts = {}
        self.producers, self.sent_before, self.acked_before = [], 0, 0
        self.begin()

    def begin(self):
        """An empty log."""
        # Of the logs before.
        self.sent_before, self.acked_before = self.totals() if self.producers else (0, 0)
        self.read = {stream: 0 for stream in STREAMS}
        self.next = {(stream, name): 1 for stream in STREAMS for name in PRODUCERS}
        self.producers = [Producer(self, stream, name, self.chance.random())
                          for stream in STREAMS for name in PRODUCERS]
        self.over = self.quiet = False
        for producer in self.producers:
            producer.start()

    def end(self):
        self.over = True
        for producer in self.producers:
            producer.join(PATIENCE)

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def start(self, wrap=()):
        self.server = Server(self, wrap)
        self.addr = self.server.addr()
        return self.addr is not None

    def kill(self):
        self.addr = None
        code = self.server.kill()
        return code

    def ran_full(self):
        """Whether the server, which has ended, did so as it may where blocks are copied."""
        is_it = self.copies and "No space left on device" in self.server.said
        if is_it:
            self.count("logs failed for want of room")
        return is_it

    def go_on(self, seconds):
        time.sleep(seconds)

    def begun(self):
        """A server that runs, whatever it takes; one that does not start says why."""
        if not self.start():
            self.server.ended()
            raise Failed(f"the server does not start: {self.server.said}")

    def settled(self):
        """Until all that was sent is acknowledged; then what is stored is what was sent."""
        self.quiet = True
        since = time.monotonic()
        while any(producer.line for producer in self.producers):
            expect(time.monotonic() - since < PATIENCE, "not everything is acknowledged")
            if self.copies and self.server.process.poll() is not None:
                code = self.server.ended()
                expect(self.ran_full(), f"it ended with {code}: {self.server.said}")
                self.begun()
            time.sleep(0.005)
        for producer in self.producers:
            expect(producer.wrong is None, producer.wrong)
        for stream in STREAMS:
            self.check(stream)
        self.quiet = False

    def check(self, stream, gaps=False):
        """Reads what has come since; every message once, in its producer's order, as it was sent."""
        line = Line(socket.create_connection(self.addr, timeout=10))
        line.sock.settimeout(PATIENCE)
        line.send(subscribe(stream, at=self.read[stream]))
        frame = line.frame()
        if frame and frame.kind == 3 and frame.reason == "no such stream":
            expect(all(p.acked == 0 for p in self.producers if p.stream == stream), f"{stream} is gone")
            return
        expect(frame is not None and frame.kind == 4, f"{stream}: from {self.read[stream]} on: {frame}")
        lost = 0
        while True:
            frame = line.frame()
            expect(frame is not None and frame.kind in (5, 6), f"{stream}: reading came to {frame}")
            if frame.kind == 6:
                break
            lost += frame.first - self.read[stream]
            expect(gaps or frame.first == self.read[stream], f"{stream}: {frame.first} after {self.read[stream]}")
            self.read[stream] = frame.first + frame.count
            for ident, got in frame.messages:
                due = self.next[stream, frame.producer]
                expect(ident == due or (gaps and ident > due),
                       f"{stream}/{frame.producer}: message {ident} where {due} is due")
                expect(got == payload(stream, frame.producer, ident), f"{stream}/{frame.producer}: {ident} is changed")
                self.next[stream, frame.producer] = ident + 1
        lost += frame.next - self.read[stream]
        line.sock.close()
        missing = 0
        for producer in self.producers:
            if producer.stream == stream:
                last = self.next[stream, producer.name_] - 1
                expect(last <= producer.sent, f"{stream}/{producer.name_}: {last} was never sent")
                expect(gaps or last >= producer.acked,
                       f"{stream}/{producer.name_}: {producer.acked} was acknowledged, {last} is the last stored")
                missing += max(0, producer.acked - last)
        return lost, missing

    def again(self):
        """Everything from the beginning."""
        self.read = {stream: 0 for stream in STREAMS}
        self.next = {(stream, name): 1 for stream in STREAMS for name in PRODUCERS}

    def totals(self):
        sent = sum(producer.sent for producer in self.producers)
        acked = sum(producer.acked for producer in self.producers)
        return self.sent_before + sent, self.acked_before + acked

    def reset(self):
        for producer in self.producers:
            producer.reset = True


def interrupted_start(world):
    """A recovery that is killed on its way."""
    world.server = Server(world)
    time.sleep(world.chance.choice((0, 0.005, 0.02, 0.05)))
    world.server.kill()
    world.count("recoveries killed")


def kills(world, number):
    """One round: something happens to a server under load."""
    chance = world.chance
    if world.server is None or world.server.process.poll() is not None:
        world.begun()
    world.go_on(chance.uniform(0, 0.25))
    what = chance.choice(("kill", "kill", "stop", "reset", "end"))
    world.count({"kill": "SIGKILL", "stop": "SIGSTOP", "reset": "connections reset", "end": "SIGTERM"}[what])
    if what == "stop":
        world.server.signal(signal.SIGSTOP)
        world.go_on(chance.uniform(0, 0.3))
        if chance.random() < 0.5:
            world.reset()
        if chance.random() < 0.3:
            world.kill()
            world.count("SIGKILL")
        else:
            world.server.signal(signal.SIGCONT)
    elif what == "reset":
        world.reset()
    elif what == "end":
        world.addr = None
        world.server.signal(signal.SIGTERM)
        code = world.server.ended()
        expect(code == 0 or world.ran_full(), f"SIGTERM ended it with {code}: {world.server.said}")
    else:
        world.kill()
    if world.server.process.poll() is not None:
        while chance.random() < 0.3:
            interrupted_start(world)
        world.begun()
    if number % 10 == 0:
        world.settled()


def full_disk(world, place):
    """A file takes all the room for a while. Where blocks are copied when they are written a log that was killed cannot be
    opened on a full disk, which it does not promise."""
    ballast = os.path.join(place, "ballast")
    try:
        with open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError:
        pass
    world.go_on(world.chance.uniform(0.1, 0.6))
    is_killed = world.chance.random() < 0.5
    if is_killed:
        world.kill()
        if not world.copies:
            world.begun()
    os.remove(ballast)
    if world.copies:
        # The room is there when the removal is durable.
        subprocess.run(["sync", "-f", place], check=True)
    world.count("disks full")


class BadDisk:
    """The file system of `disk.py`, in a process of its own."""

    def __init__(self, place, seed):
        command = [sys.executable, "-m", "tide.disk", place, str(seed)]
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.process = subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        expect(self.process.stdout.readline() == "mounted\n", "the file system cannot be mounted (root and /dev/fuse)")

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def bad_disk(world, disk, number):
    """One round on a disk that fails: then the power goes, and what was acknowledged is there."""
    chance = world.chance
    world.begun()
    what = chance.choice(("cut", "cut", "sync", "directory", "full"))
    if what == "sync":
        disk.ask("fail-sync", chance.randrange(1, 12))
        world.count("syncs failed")
    elif what == "directory":
        disk.ask("fail-directory", chance.randrange(1, 4))
        world.count("syncs of the directory failed")
    elif what == "full":
        disk.ask("full", chance.choice((0, 4096, 100_000, 600_000)))
        world.count("disks full")
    world.go_on(chance.uniform(0.02, 0.4))
    if what == "full" and chance.random() < 0.5:
        disk.ask("heal")
        world.go_on(0.2)
    world.kill()
    if chance.random() < 0.8:
        disk.ask("cut")
        world.count("power cuts")
    disk.ask("heal")
    while chance.random() < 0.3:
        # Also when its own syncs fail.
        if chance.random() < 0.3:
            disk.ask("fail-sync", chance.randrange(1, 4))
        interrupted_start(world)
        if chance.random() < 0.7:
            disk.ask("cut")
            world.count("power cuts")
        disk.ask("heal")
    if number % 5 == 0:
        world.begun()
        world.settled()
        if number % 25 == 0:
            world.again()
            world.settled()
        world.kill()
    if number % 50 == 0:
        repaired(world, disk)
        world.end()
        disk.ask("clear")
        world.begin()


def repaired(world, disk):
    """A bit is flipped in what is durable; the repair is killed on its way, then done. What it says is missing is what
    is missing."""
    world.end()
    world.begun()
    world.addr = None
    world.server.signal(signal.SIGTERM)
    world.server.ended()
    disk.ask("flip")
    command = [world.tidewire, "log", "repair", "--data", world.data, "--yes"]
    for _ in range(world.chance.randrange(3)):
        repair = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(world.chance.choice((0.003, 0.01, 0.03)))
        repair.kill()
        repair.wait()
        if world.chance.random() < 0.5:
            disk.ask("cut")
        world.count("repairs killed")
    done = subprocess.run(command, capture_output=True, text=True)
    expect("panicked" not in done.stderr, done.stderr)
    world.count("repairs")
    world.begun()
    world.again()
    for stream in STREAMS:
        lost, missing = world.check(stream, gaps=True) or (0, 0)
        expect(missing <= lost, f"{stream}: {missing} acknowledged messages are missing behind the last, {lost} marked")
        stored = sum(ident - 1 for (of, _), ident in world.next.items() if of == stream)
        expect(stored == world.read[stream] or lost, f"{stream}: messages are missing that no gap tells of")
    world.kill()


CALLS = {
    "pwritev": ("EIO", "ENOSPC", "EINTR", "EDQUOT"), "pwrite64": ("EIO", "ENOSPC", "EINTR"),
    "pread64": ("EIO", "EINTR"), "fdatasync": ("EIO", "ENOSPC", "EINTR"), "fsync": ("EIO", "EINTR"),
    "fallocate": ("ENOSPC", "EIO", "EOPNOTSUPP", "EINTR", "EFBIG"), "ftruncate": ("EIO", "EINTR", "EPERM"),
    "rename": ("EIO", "ENOSPC"), "renameat": ("EIO", "ENOSPC"), "renameat2": ("EIO", "ENOSPC"),
    "unlink": ("EIO", "EPERM"), "unlinkat": ("EIO", "EPERM"), "openat": ("EMFILE", "EIO", "ENOMEM", "EINTR"),
    "getdents64": ("EIO",), "fstat": ("EIO",), "statx": ("EIO",), "flock": ("EINTR", "ENOLCK"), "mkdir": ("EIO",),
    "statfs": ("EIO",), "fstatfs": ("EIO",), "lseek": ("EIO",), "fcntl": ("EMFILE",), "write": ("EIO",),
}


def calls(world, number):
    """One round: one system call, or all from one on, fails; a server may end for it, and nothing is lost."""
    chance = world.chance
    call = list(CALLS)[number % len(CALLS)]
    error = chance.choice(CALLS[call])
    when = chance.choice((1, 2, 3, 5, 8, 13, 30, 100))
    # Not all of write: the log has no use for it, but for the eventfd that wakes a loop, which no kernel fails, and for the
    # line that says where the server listens.
    lasts = chance.random() < 0.2 and error != "EINTR" and call != "write"
    which = f"{when}+" if lasts else f"{when}"
    inject = f"inject={call}:error={error}:when={which}"
    world.count(call)
    wrap = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    world.server = Server(world, wrap)
    addr = world.server.addr()
    if addr:
        world.addr = addr
        world.go_on(chance.uniform(0.1, 0.6))
    world.addr = None
    world.server.kill()
    world.begun()
    if number % 3 == 0:
        world.settled()
    world.kill()
