"""A file system for one directory that behaves as disks do at their worst: what was not synced is lost, kept, torn or
reordered by a power cut; a sync fails, and what it was to make durable counts as clean and is lost later; there is no
room. It speaks the kernel's own protocol (linux/fuse.h) at /dev/fuse, so it needs no library, and root.

What is written is in `now`, as a page cache has it; `safe` is what a power cut leaves in any case."""

import ctypes
import errno
import os
import random
import stat
import struct
import sys
import time

SECTOR = 512
BLOCK = 4096
ROOT = 1
DIRECT_IO = 1
MOST = 1 << 20

LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, RENAME, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 10, 12, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR, CREATE = 20, 25, 26, 27, 28, 29, 30, 35
INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE, RENAME2 = 36, 38, 42, 43, 45


class File:
    def __init__(self):
        self.now, self.safe = bytearray(), bytearray()
        # Sectors that differ from what is safe: dirty ones, which a sync makes safe, and those that a sync has lost.
        self.dirty, self.lost = set(), set()
        self.blocks, self.names = set(), 0

    def touch(self, begin, end):
        sectors = range(begin // SECTOR, -(-end // SECTOR))
        self.dirty.update(sectors)
        self.lost.difference_update(sectors)

    def resize(self, length):
        before = len(self.now)
        if length < before:
            del self.now[length:]
            self.blocks = {block for block in self.blocks if block * BLOCK < length}
        else:
            self.now.extend(bytes(length - before))
        self.touch(min(before, length), max(before, length))

    def keep(self, sectors):
        """Has these sectors be on the disk."""
        for sector in sectors:
            at = sector * SECTOR
            piece = self.now[at:at + SECTOR]
            if not piece:
                continue
            if len(self.safe) < at + len(piece):
                self.safe.extend(bytes(at + len(piece) - len(self.safe)))
            self.safe[at:at + len(piece)] = piece

    def sync(self, fails):
        if fails:
            self.lost |= self.dirty
        else:
            if len(self.safe) > len(self.now):
                del self.safe[len(self.now):]
            self.keep(self.dirty)
            self.safe.extend(bytes(len(self.now) - len(self.safe)))
        self.dirty = set()

    def cut(self, chance):
        """The power goes: of what is not safe each sector is there or not, one of them torn."""
        share = chance.choice((0, 0, 0.1, 0.5, 0.9, 1, 1))
        unsafe = sorted(self.dirty | self.lost)
        if unsafe and chance.random() < 0.5:
            # All that was written up to a moment, as far as the order of the file tells.
            unsafe = unsafe[:chance.randrange(len(unsafe) + 1)]
        self.keep(sector for sector in unsafe if chance.random() < share)
        if unsafe and chance.random() < 0.5:
            at = chance.choice(unsafe) * SECTOR
            torn = self.now[at:at + chance.randrange(SECTOR)]
            if len(self.safe) >= at + len(torn):
                self.safe[at:at + len(torn)] = torn
        if chance.random() < 0.5 and len(self.now) > len(self.safe):
            self.safe.extend(bytes(len(self.now) - len(self.safe)))
        self.now = bytearray(self.safe)
        self.dirty, self.lost = set(), set()


class Disk:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.files, self.last = {}, ROOT
        self.now, self.safe = {}, {}
        # Changes of names that are not safe: (name that goes or None, name that comes or None, file).
        self.changes, self.lost = [], []
        self.limit = 1 << 40
        self.fail_sync = self.fail_directory = 0
        self.counts = dict(cuts=0, syncs=0, failed=0, full=0)

    # What the test asks for.

    def cut(self):
        self.counts["cuts"] += 1
        share = self.chance.choice((0, 0.5, 1))
        names = dict(self.safe)
        changes = self.changes
        if self.chance.random() < 0.5:
            changes = changes[:self.chance.randrange(len(changes) + 1)]
        for change in self.lost + changes:
            if self.chance.random() < share:
                rename(names, *change)
        self.now, self.safe = dict(names), names
        self.changes, self.lost = [], []
        there = set(names.values())
        for number, file in list(self.files.items()):
            file.cut(self.chance)
            if number not in there:
                del self.files[number]

    def full(self, room):
        self.limit = self.used() + room if room >= 0 else 1 << 40

    def used(self):
        return sum(len(file.blocks) for file in self.files.values()) * BLOCK

    # What the kernel asks for.

    def take(self, file, begin, end):
        wanted = set(range(begin // BLOCK, -(-end // BLOCK))) - file.blocks
        if wanted and self.used() + len(wanted) * BLOCK > self.limit:
            self.counts["full"] += 1
            raise OSError(errno.ENOSPC, "")
        file.blocks |= wanted

    def change(self, *change):
        rename(self.now, *change)
        self.changes.append(change)

    def sync_directory(self):
        if strikes(self, "fail_directory"):
            self.lost += self.changes
            self.changes = []
            raise OSError(errno.EIO, "")
        for change in self.changes:
            rename(self.safe, *change)
        self.changes = []

    def sync(self, file):
        self.counts["syncs"] += 1
        fails = strikes(self, "fail_sync")
        file.sync(fails)
        if fails:
            self.counts["failed"] += 1
            raise OSError(errno.EIO, "")


def rename(names, gone, come, number):
    names.pop(gone, None)
    if come is not None:
        names[come] = number


def strikes(disk, fault):
    left = getattr(disk, fault)
    setattr(disk, fault, max(0, left - 1))
    return left == 1


def attributes(number, file):
    mode = stat.S_IFREG | 0o600 if file else stat.S_IFDIR | 0o700
    size = len(file.now) if file else 0
    blocks = len(file.blocks) * (BLOCK // 512) if file else 0
    return struct.pack("<6Q10I", number, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, BLOCK, 0)


def entry(number, file):
    return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + attributes(number, file)


def answer(disk, op, node, body):
    def named(raw):
        return raw.split(b"\0")[0]

    file = disk.files.get(node)
    if file is None and op in (READ, WRITE, FALLOCATE, FSYNC):
        raise OSError(errno.ESTALE, "")
    if op == INIT:
        major, minor = struct.unpack_from("<II", body)
        flags = 1 << 5 | 1 << 22  # big writes, of up to max_pages
        return struct.pack("<4I2H2I2H8I", 7, min(minor, 36), MOST, flags, 12, 10, MOST, 1, MOST // BLOCK, 0, *[0] * 8)
    if op == LOOKUP:
        number = disk.now.get(named(body))
        if number is None:
            raise OSError(errno.ENOENT, "")
        return entry(number, disk.files[number])
    if op == GETATTR:
        if node != ROOT and not file:
            raise OSError(errno.ESTALE, "")
        return struct.pack("<QII", 0, 0, 0) + attributes(node, file)
    if op == SETATTR:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if file and valid & 8:
            file.resize(size)
        return struct.pack("<QII", 0, 0, 0) + attributes(node, file)
    if op == CREATE:
        name = named(body[16:])
        disk.last += 1
        disk.files[disk.last] = File()
        disk.change(None, name, disk.last)
        return entry(disk.last, disk.files[disk.last]) + struct.pack("<QII", 0, DIRECT_IO, 0)
    if op == UNLINK:
        name = named(body)
        if name not in disk.now:
            raise OSError(errno.ENOENT, "")
        # Its room is free again, though it may come back.
        disk.files[disk.now[name]].blocks = set()
        disk.change(name, None, disk.now[name])
        return b""
    if op in (RENAME, RENAME2):
        old, new = body[8 if op == RENAME else 16:].split(b"\0")[:2]
        if old not in disk.now:
            raise OSError(errno.ENOENT, "")
        disk.change(old, new, disk.now[old])
        return b""
    if op == OPEN:
        return struct.pack("<QII", 0, DIRECT_IO, 0)
    if op == OPENDIR:
        return struct.pack("<QII", 0, 0, 0)
    if op == READDIR:
        _, offset, size = struct.unpack_from("<QQI", body)
        said = b""
        for at, (name, number) in enumerate(sorted(disk.now.items())):
            one = struct.pack("<QQII", number, at + 1, len(name), 8) + name
            one += bytes(-len(one) % 8)
            if at >= offset and len(said) + len(one) <= size:
                said += one
            elif at >= offset:
                break
        return said
    if op == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(file.now[offset:offset + size])
    if op == WRITE:
        _, offset, size = struct.unpack_from("<QQI", body)
        data = body[40:40 + size]
        disk.take(file, offset, offset + size)
        if len(file.now) < offset + size:
            file.now.extend(bytes(offset + size - len(file.now)))
        file.now[offset:offset + size] = data
        file.touch(offset, offset + size)
        return struct.pack("<II", size, 0)
    if op == FALLOCATE:
        _, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "")
        disk.take(file, offset, offset + length)
        if len(file.now) < offset + length:
            file.resize(offset + length)
        return b""
    if op == STATFS:
        free = max(0, min(disk.limit, 1 << 34) - disk.used()) // BLOCK
        return struct.pack("<5Q4I6I", 1 << 22, free, free, 1 << 20, 1 << 20, BLOCK, 255, BLOCK, 0, *[0] * 6)
    if op == FSYNC:
        disk.sync(file)
        return b""
    if op == FSYNCDIR:
        disk.sync_directory()
        return b""
    if op in (FLUSH, RELEASE, RELEASEDIR, DESTROY):
        return b""
    raise OSError(errno.ENOSYS, "")


def command(disk, words):
    what, *rest = words
    if what == "cut":
        disk.cut()
    elif what == "full":
        disk.full(int(rest[0]))
    elif what == "fail-sync":
        disk.fail_sync = int(rest[0])
    elif what == "fail-directory":
        disk.fail_directory = int(rest[0])
    elif what == "heal":
        disk.fail_sync = disk.fail_directory = 0
        disk.full(-1)
    elif what == "flip":
        # A bit of what is on the disk, in the first half of a segment: not in its tail.
        names = sorted(name for name in disk.now if name.endswith(b".seg"))
        file = disk.files[disk.now[disk.chance.choice(names)]]
        used = len(bytes(file.now).rstrip(b"\0"))
        if used > 4096:
            file.now[disk.chance.randrange(200, used // 2)] ^= 1 << disk.chance.randrange(8)
    elif what == "clear":
        disk.files, disk.now, disk.safe, disk.changes, disk.lost = {}, {}, {}, [], []
    return " ".join(f"{name}={count}" for name, count in disk.counts.items())


def serve(directory, seed):
    """Serves the file system at a directory, and commands from standard input, until that ends."""
    import select
    libc = ctypes.CDLL(None, use_errno=True)
    # A request may be withdrawn, by the end of its process, between being announced and being read.
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
    if libc.mount(b"endure", directory.encode(), b"fuse", 6, options):
        raise OSError(ctypes.get_errno(), f"mounting at {directory}")
    disk = Disk(seed)
    print("mounted", flush=True)
    try:
        while True:
            ready, _, _ = select.select([fuse, 0], [], [])
            if 0 in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                print(command(disk, line.split()), flush=True)
            if fuse not in ready:
                continue
            try:
                request = os.read(fuse, MOST + 65536)
            except OSError as e:
                if e.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return
            _, op, unique, node = struct.unpack_from("<IIQQ", request)
            if op in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                said, failed = answer(disk, op, node, request[40:]), 0
            except OSError as e:
                said, failed = b"", -e.errno
            try:
                os.write(fuse, struct.pack("<IiQ", 16 + len(said), failed, unique) + said)
            except OSError as e:
                # The requester is gone.
                if e.errno != errno.ENOENT:
                    raise
    finally:
        libc.umount2(directory.encode(), 2)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
