"""A disk whose page cache can be lost: ext4 on an image by a loop device, shut down without flushing.

That is what power lost on one machine takes: what was not synced and the kernel had not written by itself is gone, what was
synced is there, in files and names. Not simulated: a disk that lies about its own cache, and blocks written in part."""

import fcntl
import os
import struct
import subprocess

from .wire import expect

# EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH: nothing goes to the device any more, not even the journal.
SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2


class Disk:
    def __init__(self, image, at):
        self.image, self.at = image, at
        os.makedirs(at)
        with open(image, "wb") as file:
            file.truncate(2 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        self.mount()
        self.proven()

    def mount(self):
        # Metadata waits as long as data does.
        subprocess.run(["mount", "-o", "loop,commit=30", self.image, self.at], check=True)

    def lose(self):
        """The process that used it has gone; how many bytes at the ends of files are gone too."""
        before = self.sizes()
        root = os.open(self.at, os.O_RDONLY)
        fcntl.ioctl(root, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        os.close(root)
        subprocess.run(["umount", self.at], check=True)
        self.mount()
        after = self.sizes()
        return sum(max(0, size - after.get(path, 0)) for path, size in before.items())

    def sizes(self):
        """Of the files of messages."""
        paths = (os.path.join(folder, name) for folder, _, names in os.walk(self.at) for name in names if name.endswith(".log"))
        return {path: os.path.getsize(path) for path in paths}

    def proven(self):
        """It does lose, and keeps what is synced."""
        kept, lost = os.path.join(self.at, "kept.log"), os.path.join(self.at, "lost.log")
        for path in (kept, lost):
            with open(path, "wb") as file:
                file.write(b"x" * 9000)
                if path == kept:
                    file.flush()
                    os.fsync(file.fileno())
                    root = os.open(self.at, os.O_RDONLY)
                    os.fsync(root)
                    os.close(root)
        gone = self.lose()
        expect(gone == 9000 and os.path.getsize(kept) == 9000, f"the disk of the test does not lose what it should: {gone}")
        os.remove(kept)


def why_not():
    """Why there can be no such disk here; None if there can be."""
    if os.geteuid() != 0:
        return "that takes root"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    return None
