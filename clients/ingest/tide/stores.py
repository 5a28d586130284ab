"""Rounds in which our clients in several languages store the lines of files and read them back, while servers and clients are
killed, paused and cut off from each other."""

import hashlib
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

from . import languages
from .rounds import Server
from .wire import Failed, Line, expect, subscribe

# How long everything may take to be stored and read when nothing is broken any more.
PATIENCE = 180
# What a client may end with that was begun, or connected, while its server was away. Another session of a client that was killed
# may fence the next one: its hello is read late.
PASSING = ("cannot connect", "closed the connection", "reset", "refused", "broken pipe", "end of file", "fenced", "stopping", "no such stream",
           "no answer", "cannot go on", "eof", "cannot read from", "cannot write to", "cannot end reading")


class Proxy:
    """Carries connections to wherever the server is, from one address. It cuts some after so many bytes, in the middle of whatever
    that is, and all of them when it is told to."""

    def __init__(self, world, chance):
        self.world, self.chance, self.over, self.calm = world, chance, False, False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.addr = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.pairs, self.lock = set(), threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.over:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connection, args=(near,), daemon=True).start()

    def connection(self, near):
        addr = self.world.addr
        try:
            far = socket.create_connection(addr, timeout=5) if addr else None
        except OSError:
            far = None
        if far is None:
            near.close()
            return
        is_cut = not self.calm and self.chance.random() < 0.7
        budget = self.chance.choice((50, 1000, 50_000, 1_000_000)) + self.chance.randrange(1000) if is_cut else 1 << 60
        with self.lock:
            self.pairs.add((near, far))
        try:
            while budget > 0:
                ready, _, _ = select.select([near, far], [], [], 60)
                if not ready:
                    break
                for one in ready:
                    data = one.recv(max(1, min(65536, budget)))
                    if not data:
                        return
                    budget -= len(data)
                    (far if one is near else near).sendall(data)
            self.world.count("cuts")
            self.reset(near if self.chance.random() < 0.5 else far)
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.pairs.discard((near, far))
            near.close()
            far.close()

    @staticmethod
    def reset(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def cut_all(self):
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            for sock in pair:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.over = True
        self.listener.close()
        self.cut_all()


class Program(threading.Thread):
    """A client's program, which is begun again for as long as it is needed."""

    def __init__(self, world, language):
        super().__init__(daemon=True)
        self.world, self.language, self.stream = world, language, language.name
        self.process, self.wrong, self.is_done = None, None, False

    def run(self):
        try:
            while not self.is_done:
                self.once()
        except Failed as why:
            self.wrong = f"{self.language.name}: {why}"
        except Exception as why:  # A fault of this program is a bad round.
            self.wrong = f"{self.language.name}: {why!r}"

    def begin(self, words):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.errors)

    def end(self):
        """Its status; a failure that breaks explain is one to try again after."""
        status = self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")
        self.errors.close()
        expect("Traceback" not in said and "panic" not in said and "terminate called" not in said, said[-2000:])
        expect(status in (0, 1, -signal.SIGKILL), f"ended with {status}: {said[-2000:]}")
        last = said.strip().split("\n")[-1].lower()
        expect(status != 1 or any(word in last for word in PASSING), f"ended with {status}: {said[-2000:]}")
        if status == 1:
            self.world.count("ends without a server")
            time.sleep(0.05)
        return status

    def signal(self, number):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Storing(Program):
    """Stores the lines of a file that grows."""

    def __init__(self, world, language):
        super().__init__(world, language)
        self.path = os.path.join(world.place, language.name + ".lines")
        self.chance = random.Random(world.chance.random())
        self.acknowledged = self.size = self.lines = 0
        open(self.path, "wb").close()

    def grow(self):
        with open(self.path, "ab") as file:
            for _ in range(self.chance.randrange(200, 4000)):
                self.lines += 1
                file.write(b"%s %d " % (self.language.name.encode(), self.lines) + b"x" * self.chance.choice((0, 20, 80, 200, 3000)) + b"\n")
        self.size = os.path.getsize(self.path)

    def once(self):
        if self.acknowledged == self.size:
            if self.world.ends:
                self.is_done = True
                return
            self.grow()
        words = self.language.words(self.language.store, to=self.world.proxy.addr, producer="p", stream=self.stream, progress=True)
        self.begin([*words, self.path])
        is_known = False
        for line in self.process.stdout:
            what, _, id = line.decode().partition(" ")
            if not line.endswith(b"\n"):
                break
            id = int(id)
            if what == "mark":
                is_known = True
                expect(id >= self.acknowledged, f"{self.acknowledged} was acknowledged, and the server has {id}")
            expect(id <= self.size, f"{id} is known of a file of {self.size} bytes")
            self.acknowledged = max(self.acknowledged, id)
        if self.end() == 0:
            expect(is_known and self.acknowledged == self.size,
                   f"it ended well with {self.acknowledged} of {self.size} bytes acknowledged")


class Reading(Program):
    """Reads what was stored, with a cursor, from the run before on."""

    def __init__(self, world, language):
        super().__init__(world, language)
        self.seen, self.storing = [], None

    def once(self):
        words = self.language.words(self.language.read, to=self.world.proxy.addr, stream=self.stream, cursor="c", positions=True)
        self.begin(words)
        last = None
        is_last = self.storing.is_done
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break
            position, _, payload = line[:-1].partition(b" ")
            position = int(position)
            if last is None:
                expect(position <= len(self.seen), f"it went on at {position} with {len(self.seen)} read")
            else:
                expect(position == last + 1, f"{position} was read after {last}")
            last = position
            digest = hashlib.blake2b(payload, digest_size=8).digest()
            if position == len(self.seen):
                self.seen.append(digest)
            expect(self.seen[position] == digest, f"{position} was read twice, and not alike")
        if self.end() == 0 and is_last:
            self.is_done = True
        else:
            time.sleep(0.1)


class World:
    host, within, options = "127.0.0.1", (), ()

    def __init__(self, tidewire, place, seed, made):
        self.tidewire, self.place, self.chance = tidewire, place, random.Random(seed)
        self.data, self.errors = os.path.join(place, "log"), os.path.join(place, "errors")
        self.addr, self.ends, self.counts, self.lock = None, False, {}, threading.Lock()
        self.proxy = Proxy(self, random.Random(self.chance.random()))
        self.storing = [Storing(self, language) for language in made]
        self.reading = [Reading(self, language) for language in made]
        for storing, reading in zip(self.storing, self.reading):
            reading.storing = storing

    def count(self, what, more=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + more

    def start(self):
        self.server = Server(self)
        self.addr = self.server.addr()
        expect(self.addr is not None, "the server does not start")

    def kill_server(self):
        self.addr = None
        self.server.kill()
        self.count("servers killed")

    def kill_client(self):
        self.chance.choice(self.storing + self.reading).signal(signal.SIGKILL)
        self.count("clients killed")

    def one_break(self):
        what = self.chance.choice(("server", "clients", "client", "client", "both", "pause server", "pause client", "cut", "end"))
        if what in ("server", "both", "end"):
            if what == "both":
                for _ in range(3):
                    self.kill_client()
            if what == "end":
                self.addr = None
                self.server.signal(signal.SIGTERM)
                expect(self.server.ended() == 0, f"SIGTERM: {self.server.said}")
                self.count("servers ended")
            else:
                self.kill_server()
            time.sleep(self.chance.uniform(0, 0.2))
            self.start()
        elif what == "client":
            self.kill_client()
        elif what == "clients":
            for program in self.storing + self.reading:
                program.signal(signal.SIGKILL)
            self.count("clients killed", len(self.storing + self.reading))
        elif what == "cut":
            self.proxy.cut_all()
            self.count("cuts")
        else:
            paused = self.server if what == "pause server" else self.chance.choice(self.storing + self.reading)
            paused.signal(signal.SIGSTOP)
            time.sleep(self.chance.uniform(0, 0.4))
            paused.signal(signal.SIGCONT)
            self.count("pauses")

    def round(self):
        self.start()
        programs = self.storing + self.reading
        for program in programs:
            program.start()
        for _ in range(self.chance.randrange(6, 14)):
            time.sleep(self.chance.uniform(0, 0.35))
            self.one_break()
            self.check_wrong()
        # Nothing is broken any more: everything is stored, and read.
        self.ends = self.proxy.calm = True
        since = time.monotonic()
        while not all(program.is_done for program in programs):
            self.check_wrong()
            expect(time.monotonic() - since < PATIENCE, "not everything is stored and read: "
                   + ", ".join(f"{p.language.name} {type(p).__name__}" for p in programs if not p.is_done))
            time.sleep(0.05)
        for storing, reading in zip(self.storing, self.reading):
            self.check(storing, reading)

    def check_wrong(self):
        for program in self.storing + self.reading:
            expect(program.wrong is None, program.wrong)

    def check(self, storing, reading):
        """What is stored is each line of the file, once and in order, under its offset; and what was read is that."""
        want, offset = [], 0
        for line in open(storing.path, "rb"):
            offset += len(line)
            want.append((offset, line[:-1]))
        line = Line(socket.create_connection(self.addr, timeout=10))
        line.send(subscribe(storing.stream))
        got = []
        frame = line.frame() if want else None
        expect(not want or frame.kind == 4, f"{storing.stream}: {frame}")
        while want:
            frame = line.frame()
            expect(frame is not None and frame.kind in (5, 6), f"reading {storing.stream} came to {frame}")
            if frame.kind == 6:
                break
            got += frame.messages
        line.sock.close()
        for at, (due, found) in enumerate(zip(want, got)):
            expect(due == found, f"{storing.stream}: at {at} there is {found[0]} {found[1][:40]!r}, {due[0]} {due[1][:40]!r} was due")
        expect(len(want) == len(got), f"{storing.stream}: {len(got)} records of {len(want)} lines")
        digests = [hashlib.blake2b(payload, digest_size=8).digest() for _, payload in got]
        expect(reading.seen == digests, f"{storing.stream}: {len(reading.seen)} records were read of {len(digests)}")
        self.count("lines", len(want))

    def close(self):
        for program in self.storing + self.reading:
            program.is_done = True
            program.signal(signal.SIGCONT)
            program.signal(signal.SIGKILL)
        self.proxy.close()
        for program in self.storing + self.reading:
            if program.is_alive():
                program.join(30)
        try:
            self.server.signal(signal.SIGCONT)
            self.server.kill()
        except (AttributeError, ValueError):
            pass


def made_of(tidewire):
    """The commit, and a hash of the clients and the server's program; "changed" if the clients are not committed."""
    def git(*words):
        return subprocess.run(["git", "-C", languages.ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()
    commit, digest = git("rev-parse", "--short=12", "HEAD"), hashlib.sha256()
    if git("status", "--porcelain", "--", "clients/ingest"):
        return commit, "changed"
    digest.update(git("rev-parse", "HEAD:clients/ingest").encode())
    with open(tidewire, "rb") as program:
        while block := program.read(1 << 20):
            digest.update(block)
    return commit, digest.hexdigest()[:12]


def verdicts(path, tree, which):
    """Verdicts of rounds that count: of the clients and the server as they are."""
    if not os.path.exists(path):
        return []
    words = [line.split() for line in open(path)]
    return [line[6] for line in words if len(line) > 6 and line[2] == tree and line[3] == which and tree != "changed"]


def rounds(args, wanted):
    commit, tree = made_of(args.tidewire)
    made = [language for _, some in languages.made(wanted, args.built) for language in some if language.name != "cpp-polling"]
    which = "+".join(language.name for language in made)
    began, seed, new = time.monotonic(), args.seed, 0
    while (new if tree == "changed" else len(verdicts(args.file, tree, which))) < args.rounds:
        if args.seconds is not None and time.monotonic() - began >= args.seconds:
            print("the time is over; run it again to go on")
            return False
        seed = random.randrange(1 << 31) if seed is None else seed
        place = tempfile.mkdtemp(prefix="languages-")
        world, why, since = World(args.tidewire, place, seed, made), None, time.monotonic()
        try:
            world.round()
        except Failed as failed:
            why = str(failed)
        finally:
            world.close()
        counts = ",".join(f"{what.replace(' ', '-')}={count}" for what, count in sorted(world.counts.items()))
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f"{when} {commit} {tree} {which} {seed} {time.monotonic() - since:.0f} {'bad' if why else 'good'} {counts}"
        with open(args.file, "a") as file:
            file.write(line + "\n")
        print(line, flush=True)
        if why:
            print(f"FAILED: {why}\nits folder: {place}", flush=True)
            return False
        shutil.rmtree(place)
        seed, new = None, new + 1
    return "bad" not in verdicts(args.file, tree, which)
