"""What a client must do that is given the messages line 1, line 2, ... to store as one named producer: a
server is played for it that is as awkward as the protocol allows."""

import struct

from .wire import Failed, Line, expect, server_frame

MESSAGES = 200


class Store:
    """What the client has had acknowledged, over all its connections."""

    def __init__(self):
        self.stored = []

    def accept(self, listener, **welcome):
        """A connection up to its welcome."""
        sock, _ = listener.accept()
        line = Line(sock)
        head = line.take(8)
        expect(head is not None and head[:6] == b"TIDE\x01\x01", f"no hello of a producer: {head}")
        body = line.take(struct.unpack("<H", head[6:])[0])
        level, flags, reserved, _, _, first = struct.unpack_from("<BBHIQQ", body)
        expect(level in (0, 1, 2, 3) and reserved == 0 and not flags & ~3, f"a bad hello: {body.hex()}")
        names, at = [], 24
        while at < len(body):
            names.append(body[at + 1:at + 1 + body[at]].decode())
            at += 1 + body[at]
        expect(len(names) == 3 and at == len(body), f"three strings were due: {names}")
        expect(names[1] != "", "the client has no producer's name")
        self.first = first if not self.stored else self.first
        line.window = welcome.pop("messages", 50)
        last = self.stored[-1][0] if self.stored else None
        fields = struct.pack("<B3xIIIQQ", 2, 1 << 20, line.window, 1000, 1 << 20, last or 0)
        # Bytes and frames of a later version: to be skipped.
        line.send(server_frame(1, 0 if last is None else 1, fields + b"later"))
        line.send(server_frame(77, 255, b"unknown"))
        return line

    def next(self):
        return self.stored[-1][0] + 1 if self.stored else self.first

    def message(self, line):
        """The next message as it comes; None at the end."""
        head = line.take(12)
        if head is None:
            return None
        ident, size = struct.unpack("<QI", head)
        payload = line.take(size) if size else b""
        expect(payload is not None, "the connection ended within a message")
        return ident, payload

    def take(self, line):
        """The next message, which must be the next one."""
        got = self.message(line)
        if got is None:
            return None
        expect(got[0] == self.next(), f"id {self.next()} was due, there came {got[0]}")
        self.stored.append(got)
        return got[0]

    def acknowledge(self, line, keep_alive=False):
        last = self.stored[-1][0] if self.stored else self.first - 1
        line.send(server_frame(2, int(keep_alive), struct.pack("<Q", last % 2**64)))

    def is_whole(self):
        return len(self.stored) >= MESSAGES

    def finish(self, line):
        """Stores what comes, and expects the client to end then."""
        while not self.is_whole():
            expect(self.take(line) is not None, "the client ended before all was acknowledged")
            self.acknowledge(line)
        expect(self.message(line) is None, "the client sent more than it was given")
        line.sock.close()

    def check(self):
        want = [b"line %d" % n for n in range(1, MESSAGES + 1)]
        expect([payload for _, payload in self.stored] == want, "not each line once and in order")


def acknowledges_at_once(listener, store):
    store.finish(store.accept(listener))


def keeps_to_the_window(listener, store):
    line = store.accept(listener, messages=7)
    for _ in range(7):
        store.take(line)
    line.sock.settimeout(0.5)
    try:
        extra = store.message(line)
    except Failed:
        extra = None
    expect(extra is None, "the client sent more than the window allows")
    line.sock.settimeout(30)
    store.acknowledge(line, keep_alive=True)
    store.acknowledge(line)
    store.finish(line)


def goes_back_after_a_refusal(listener, store):
    line = store.accept(listener)
    for _ in range(3):
        store.take(line)
    store.acknowledge(line)
    refused = store.next()
    line.send(server_frame(3, 0, struct.pack("<QHHIB", refused, 3, 0, 50, 0)))
    # All that was on its way is dropped until the refused one comes again.
    seen = [store.message(line)[0]]
    while seen[-1] != refused or len(seen) == 1:
        expect(len(seen) < 200, "the refused message does not come again")
        seen.append(store.message(line)[0])
    store.stored.append((refused, b"line %d" % (len(store.stored) + 1)))
    store.acknowledge(line)
    store.finish(line)


def goes_on_after_a_lost_connection(listener, store):
    line = store.accept(listener)
    for _ in range(10):
        store.take(line)
    # Stored, and not acknowledged: the welcome says so.
    line.sock.close()
    line = store.accept(listener)
    for _ in range(5):
        store.take(line)
    store.acknowledge(line)
    line.sock.close()
    store.finish(store.accept(listener))


def comes_back_when_told_to(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    body = struct.pack("<QHHIB", store.next(), 9, 0, 20, 0)
    line.send(server_frame(3, 1, body))
    line.half_close()
    while line.more():
        line.buffer = b""
    line.sock.close()
    store.finish(store.accept(listener))


CASES = [acknowledges_at_once, keeps_to_the_window, goes_back_after_a_refusal,
         goes_on_after_a_lost_connection, comes_back_when_told_to]
