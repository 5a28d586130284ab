"""What a client must do that is given the messages line 1, line 2, ... to store as one named producer: a
server is played for it that is as awkward as the protocol allows, or that breaks it."""

import os
import socket
import struct
import tempfile
import time

from .wire import Failed, Line, expect, server_frame, text

MESSAGES = 200


class Store:
    """What the client has had acknowledged, over all its connections."""

    def __init__(self):
        self.stored = []
        self.level = 2

    def greeted(self, listener):
        """A connection whose hello has come, and has no answer yet."""
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
        self.level = level or 2
        return line

    def welcome(self, line, messages=50, size=1 << 20, level=None, mark=..., flags=0, pieces=0):
        last = (self.stored[-1][0] if self.stored else None) if mark is ... else mark
        fields = struct.pack("<B3xIIIQQ", self.level if level is None else level, 1 << 20, messages, 1000, size, last or 0)
        # Bytes, flags and frames of a later version: to be skipped.
        line.send(server_frame(1, (0 if last is None else 1) | flags | 0x80, fields + b"later"), pieces)
        line.send(server_frame(77, 255, b"unknown"), pieces)

    def accept(self, listener, **welcome):
        """A connection up to its welcome."""
        line = self.greeted(listener)
        self.welcome(line, **welcome)
        return line

    def refuse(self, line, code, ident=0, retry_after_ms=0, why="", flags=1):
        """A refusal that closes: half-close, and what comes is dropped until the client closes."""
        line.send(server_frame(3, flags, struct.pack("<QHHI", ident, code, 0, retry_after_ms) + text(why)))
        line.half_close()
        self.drained(line)

    def end(self, line):
        """An end after which the client has read all that was sent."""
        line.half_close()
        self.drained(line)

    def drained(self, line):
        """Until the client has closed, by a reset if need be."""
        try:
            while line.more():
                line.buffer = b""
        except Failed as e:
            expect("reset" in str(e), f"the client does not close: {e}")
        line.sock.close()

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


def keeps_to_the_window_in_bytes(listener, store):
    # Room for one message of 18 bytes ("line 1" behind 12 bytes), not for two.
    line = store.accept(listener, size=30)
    store.take(line)
    line.sock.settimeout(0.5)
    try:
        extra = store.message(line)
    except Failed:
        extra = None
    expect(extra is None, "the client sent more bytes than the window allows")
    line.sock.settimeout(30)
    store.acknowledge(line)
    store.finish(line)


def sends_a_message_larger_than_the_window_alone(listener, store):
    store.finish(store.accept(listener, size=5))


def takes_frames_in_pieces(listener, store):
    line = store.accept(listener, pieces=1)
    for _ in range(3):
        store.take(line)
    ack = server_frame(2, 0, struct.pack("<Q", store.next() - 1))
    line.send(server_frame(2, 1, struct.pack("<Q", store.first - 1) + text("the disk")) + ack, pieces=3)
    store.finish(line)


def takes_nothing_back_for_a_lower_acknowledgement(listener, store):
    line = store.accept(listener)
    for _ in range(10):
        store.take(line)
    store.acknowledge(line)
    for lower in (4, 9, 1):
        line.send(server_frame(2, 0, struct.pack("<Q", store.first + lower - 1)))
    store.finish(line)


def refuse_the_next(store, line, code, wait_ms):
    """The next message comes, and is not taken; its id."""
    due = store.next()
    expect(store.message(line)[0] == due, f"id {due} was due")
    line.send(server_frame(3, 0, struct.pack("<QHHIB", due, code, 0, wait_ms, 0)))
    return due


def comes_again(store, line, refused):
    """All that was on its way is dropped until the refused one comes again, which is stored."""
    for _ in range(MESSAGES):
        got = store.message(line)
        if got[0] == refused:
            store.stored.append(got)
            return
    raise Failed("the refused message does not come again")


def goes_back_after_a_refusal(listener, store):
    line = store.accept(listener)
    for code in (3, 4, 16, 999):  # Flag 1 says what happens, whatever the reason is.
        for _ in range(3):
            store.take(line)
        store.acknowledge(line)
        since, wait_ms = time.monotonic(), 50
        refused = refuse_the_next(store, line, code, wait_ms)
        comes_again(store, line, refused)
        expect(time.monotonic() - since >= wait_ms / 1000, "the client did not wait before it sent again")
        store.acknowledge(line)
    store.finish(line)


def takes_an_acknowledgement_behind_a_refusal(listener, store):
    line = store.accept(listener)
    for _ in range(5):
        store.take(line)
    refused = refuse_the_next(store, line, 3, 1)
    # Messages before the refused one may be acknowledged later than the refusal.
    store.acknowledge(line)
    comes_again(store, line, refused)
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


def goes_on_after_a_reset(listener, store):
    line = store.accept(listener)
    for _ in range(5):
        store.take(line)
    store.acknowledge(line)
    line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.sock.close()
    store.finish(store.accept(listener))


def goes_on_after_a_frame_that_was_cut(listener, store):
    line = store.accept(listener)
    for _ in range(5):
        store.take(line)
    line.send(server_frame(2, 0, struct.pack("<Q", store.next() - 1))[:11])
    line.sock.close()
    # And a welcome.
    line = store.greeted(listener)
    line.send(server_frame(1, 1, bytes(32))[:20])
    line.sock.close()
    store.finish(store.accept(listener))


def goes_on_after_a_message_that_was_cut(listener, store):
    line = store.accept(listener, messages=1)
    expect(line.take(15) is not None, "the connection ended within a message")
    line.sock.close()
    store.finish(store.accept(listener))


def comes_back_when_told_to(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    store.refuse(line, 9, store.next(), retry_after_ms=20)
    store.finish(store.accept(listener))


def comes_back_later_when_its_hello_is_refused_for_now(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    line.sock.close()
    for code in (3, 4, 9):
        line = store.greeted(listener)
        since, wait = time.monotonic(), 0.3
        store.refuse(line, code, retry_after_ms=int(wait * 1000))
        line = store.greeted(listener)
        expect(time.monotonic() - since >= wait, "the client did not wait for as long as it was told to")
        line.sock.close()
    store.finish(store.accept(listener))


def follows_a_producer_that_moved(listener, store):
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(30)
        place = "127.0.0.1:%d" % other.getsockname()[1]
        store.refuse(store.greeted(listener), 20, why=place)
        line = store.accept(other)
        store.take(line)
        store.acknowledge(line)
        # Back, behind the last acknowledgement.
        store.refuse(line, 20, store.next(), why="127.0.0.1:%d" % listener.getsockname()[1])
        store.finish(store.accept(listener))


def goes_to_no_place_that_is_no_address(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    line.sock.close()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as local:
        # A server cannot lead a client to a socket of the client's own host.
        local.bind(os.path.join(folder, "socket"))
        local.listen()
        for place in ("", "nowhere", "unix:" + local.getsockname(), "a:b:c"):
            store.refuse(store.greeted(listener), 20, why=place)
        store.finish(store.accept(listener))
        local.setblocking(False)
        try:
            local.accept()
        except BlockingIOError:
            return
        raise Failed("the client went to a Unix socket that its server named")


def comes_back_once_for_each_hello_that_was_heard_late(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    line.sock.close()
    # Given up unanswered; the server hears it behind the next.
    store.greeted(listener).sock.close()
    store.refuse(store.accept(listener), 6, store.next())
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    store.refuse(line, 6, store.next())
    is_over(listener)


def ends_badly(case):
    """Marks a case at whose end the client says that it failed, and comes back no more."""
    case.ends_badly = True
    return case


ends_badly(comes_back_once_for_each_hello_that_was_heard_late)


def is_over(listener):
    """Nothing more of the client comes, until it has ended: which the caller waits for."""
    listener.close()


def nothing_but_the_end(store, line):
    """The client closes without a message; by a reset where it has not read all that it was sent."""
    try:
        expect(store.message(line) is None, "the client sent a message")
    except Failed as e:
        expect("reset" in str(e), str(e))
    line.sock.close()


@ends_badly
def ends_when_it_is_fenced(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    store.refuse(line, 6, store.next())
    is_over(listener)


def refused_for_good(code):
    def one(listener, store):
        store.refuse(store.greeted(listener), code, why="a text")
        is_over(listener)
    return one


@ends_badly
def takes_no_lower_level(listener, store):
    line = store.greeted(listener)
    store.welcome(line, level=1)
    nothing_but_the_end(store, line)
    is_over(listener)


@ends_badly
def stores_nothing_twice_when_it_was_forgotten(listener, store):
    line = store.accept(listener, flags=2)
    nothing_but_the_end(store, line)
    is_over(listener)


@ends_badly
def tells_of_a_server_that_lost_what_it_acknowledged(listener, store):
    line = store.accept(listener)
    for _ in range(5):
        store.take(line)
    store.acknowledge(line)
    store.end(line)
    line = store.accept(listener, mark=store.first + 1)
    nothing_but_the_end(store, line)
    is_over(listener)


@ends_badly
def keeps_the_highest_acknowledgement(listener, store):
    line = store.accept(listener)
    for _ in range(10):
        store.take(line)
    store.acknowledge(line)
    line.send(server_frame(2, 0, struct.pack("<Q", store.first + 3)))
    store.end(line)
    # Between the two.
    line = store.accept(listener, mark=store.first + 5)
    nothing_but_the_end(store, line)
    is_over(listener)


@ends_badly
def tells_of_a_server_that_lost_everything(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    store.end(line)
    line = store.accept(listener, mark=None)
    nothing_but_the_end(store, line)
    is_over(listener)


@ends_badly
def tells_of_another_program_with_its_name(listener, store):
    line = store.accept(listener)
    store.take(line)
    store.acknowledge(line)
    store.end(line)
    line = store.accept(listener, mark=1 << 40)
    nothing_but_the_end(store, line)
    is_over(listener)


def breaks_with(frame):
    """A connection on which the server breaks the protocol: the client closes, and does not say that all is well."""
    def one(listener, store):
        line = store.accept(listener)
        store.take(line)
        line.send(frame(store))
        store.drained(line)
        is_over(listener)
    return ends_badly(one)


def ack(ident, flags=0):
    return server_frame(2, flags, struct.pack("<Q", ident % 2**64))


BROKEN = {
    "an_acknowledgement_of_what_was_not_sent": lambda store: ack(store.first + 10 * MESSAGES),
    "an_acknowledgement_that_is_too_short": lambda store: server_frame(2, 0, b"1234567"),
    "a_frame_that_is_too_long": lambda store: struct.pack("<BBHI", 77, 0, 0, 1025),
    "a_second_welcome": lambda store: server_frame(1, 0, struct.pack("<B3xIIIQQ", 2, 1000, 10, 1000, 1000, 0)),
    "a_batch": lambda store: server_frame(5, 0, struct.pack("<QQI", 0, 0, 0) + text("")),
    "a_welcome_of_a_reader": lambda store: server_frame(4, 0, bytes(32)),
    "a_refusal_that_is_cut": lambda store: server_frame(3, 0, struct.pack("<QHHIB", store.next(), 3, 0, 1, 9)),
    "a_refusal_of_what_was_not_sent":
        lambda store: server_frame(3, 0, struct.pack("<QHHIB", store.first + 10 * MESSAGES, 3, 0, 1, 0)),
}

CASES = [case for name, case in list(globals().items())
         if getattr(case, "__module__", "") == __name__ and case.__class__.__name__ == "function"
         and list(case.__code__.co_varnames[:2]) == ["listener", "store"]]
for code, reason in {1: "malformed", 2: "too_large", 5: "out_of_order", 7: "unauthorised", 8: "log_failed", 10: "too_many",
                     14: "no_such_stream", 15: "too_slow", 999: "a_reason_of_a_later_version"}.items():
    CASES.append(ends_badly(refused_for_good(code)))
    CASES[-1].__name__ = "ends_when_its_hello_is_refused_with_" + reason
for what, frame in BROKEN.items():
    CASES.append(breaks_with(frame))
    CASES[-1].__name__ = "closes_on_" + what
