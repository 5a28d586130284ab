"""What a client must do that reads a stream and prints its messages, a line each: a server is played for it that is as
awkward as the protocol allows, or that breaks it."""

import struct

from .client_cases import ends_badly, is_over
from .wire import Failed, Line, expect, message, server_frame, text

RECORDS = 200
BODY_MAX = 1 << 20


class Source:
    """A stream of records, and what a client has asked for of it."""

    def __init__(self, size=0):
        self.records = [b"line %d" % n + b"x" * size for n in range(1, RECORDS + 1)]
        self.sent = 0
        self.cursor = None

    def greeted(self, listener, begin=None):
        """A connection whose hello has come, and has no answer yet."""
        sock, _ = listener.accept()
        line = Line(sock)
        head = line.take(8)
        expect(head is not None and head[:6] == b"TIDE\x01\x02", f"no hello of a reader: {head}")
        body = line.take(struct.unpack("<H", head[6:])[0])
        kind, flags, reserved, line.credit, at = struct.unpack_from("<BBHQQ", body)
        expect(1 <= kind <= 4 and reserved == 0 and not flags & ~3 and line.credit > 0, f"a bad hello: {body.hex()}")
        names, place = [], 20
        while place < len(body):
            names.append(body[place + 1:place + 1 + body[place]].decode())
            place += 1 + body[place]
        expect(len(names) == 3 and place == len(body), f"three strings were due: {names}")
        line.follows, line.name = bool(flags & 1), names[1]
        if begin is not None:
            expect((kind, at) == begin, f"it was to begin at {begin}: kind {kind}, at {at}")
        return line

    def accept(self, listener, begin=None, start=None, pieces=0):
        line = self.greeted(listener, begin)
        start = self.sent if start is None else start
        line.send(server_frame(4, 0x80, struct.pack("<QQQII", 0, RECORDS, start, BODY_MAX, 7) + b"later"), pieces)
        line.send(server_frame(77, 255, b"unknown"), pieces)
        self.sent = start
        return line

    def batch(self, count):
        """The next records, framed."""
        many = self.records[self.sent:self.sent + count]
        body = struct.pack("<QQI", self.sent, 1, len(many)) + text("p")
        self.sent += len(many)
        return server_frame(5, 0, body + b"".join(message(n, one) for n, one in enumerate(many, 1)))

    def send(self, line, count, pieces=0):
        frame = self.batch(count)
        line.credit -= len(frame)
        line.send(frame, pieces)

    def end(self, line):
        """The rest, and the end: at the tail, or when a client that follows has said that it has enough."""
        while self.sent < RECORDS:
            self.heard(line, wait=line.credit <= 0)
            self.send(line, 8)
        if line.follows:
            while self.heard(line, wait=True):
                pass
        line.send(server_frame(6, 0, struct.pack("<Q", RECORDS)))
        line.half_close()
        while self.heard(line, wait=True):
            pass
        line.sock.close()

    def heard(self, line, wait):
        """Takes in what the client says, waiting for a frame of it; whether one came."""
        if not wait:
            return True
        head = line.take(8)
        if head is None:
            return False
        kind, size = struct.unpack("<B3xI", head)
        expect(head[1:4] == bytes(3) and kind in (1, 2) and size == 8, f"a bad frame of a reader: {head.hex()}")
        value, = struct.unpack("<Q", line.take(8))
        if kind == 1:
            line.credit += value
        else:
            expect(line.name != "" and value <= self.sent, f"a cursor cannot be moved to {value}, {self.sent} were sent")
            self.cursor = value
        return True

    def check(self, printed):
        want = b"".join(record + b"\n" for record in self.records)
        if printed != want:
            at = next((n for n, (a, b) in enumerate(zip(printed.split(b"\n"), want.split(b"\n"))) if a != b), "its end")
            raise Failed(f"not each record once and in order: from line {at} on, of {printed.count(10)}")


def reads_to_the_end(listener, source):
    line = source.accept(listener)
    source.send(line, 1)
    source.end(line)


def takes_frames_in_pieces(listener, source):
    line = source.accept(listener, pieces=1)
    source.send(line, 20, pieces=7)
    source.end(line)


def gives_credit_for_what_it_has_read(listener, source):
    source.records = Source(100_000).records
    # As much as there is credit, and no more until there is.
    source.end(source.accept(listener))


def goes_on_where_a_connection_was_lost(listener, source):
    line = source.accept(listener)
    source.send(line, 30)
    line.half_close()
    line.sock.close()
    line = source.accept(listener, begin=(1, 30))
    source.send(line, 1)
    # A batch that is cut is not there.
    whole = source.batch(20)
    source.sent = 31
    line.send(whole[:len(whole) - 3])
    line.half_close()
    line.sock.close()
    source.end(source.accept(listener, begin=(1, 31)))


def comes_back_when_told_to(listener, source):
    line = source.accept(listener)
    source.send(line, 10)
    line.send(server_frame(3, 1, struct.pack("<QHHIB", 10, 9, 0, 20, 0)))
    line.sock.close()
    source.end(source.accept(listener, begin=(1, 10)))


def refused_for_good(code):
    def one(listener, source):
        line = source.greeted(listener)
        line.send(server_frame(3, 1, struct.pack("<QHHI", 0, code, 0, 0) + text("a text")))
        line.half_close()
        drained(line)
        is_over(listener)
    return ends_badly(one)


def drained(line):
    try:
        while line.more():
            line.buffer = b""
    except Failed as e:
        expect("reset" in str(e), f"the client does not close: {e}")
    line.sock.close()


def breaks_with(frame):
    def one(listener, source):
        line = source.accept(listener)
        source.send(line, 5)
        line.send(frame)
        drained(line)
        is_over(listener)
    return ends_badly(one)


@ends_badly
def tells_of_records_removed_before_they_were_read(listener, source):
    line = source.accept(listener)
    source.send(line, 10)
    line.half_close()
    line.sock.close()
    line = source.accept(listener, begin=(1, 10), start=50)
    drained(line)
    is_over(listener)


def batch(first, count, messages):
    return server_frame(5, 0, struct.pack("<QQI", first, 1, count) + text("p") + messages)


BROKEN_FRAMES = {
    "a_batch_below_the_next_position": batch(4, 1, message(1, b"again")),
    "a_batch_of_nothing": batch(5, 0, b""),
    "a_batch_with_fewer_records_than_it_says": batch(5, 2, message(1, b"one")),
    "a_batch_whose_record_is_cut": batch(5, 1, message(1, b"one")[:-1]),
    "a_batch_behind_the_last_position": batch(2**64 - 1, 2, message(1, b"one") + message(2, b"two")),
    "a_batch_above_the_largest": struct.pack("<BBHI", 5, 0, 0, BODY_MAX + 1),
    "a_welcome_of_a_producer": server_frame(1, 0, struct.pack("<B3xIIIQQ", 2, 1000, 10, 1000, 1000, 0)),
    "an_acknowledgement": server_frame(2, 0, bytes(8)),
}

CASES = [reads_to_the_end, takes_frames_in_pieces, gives_credit_for_what_it_has_read, goes_on_where_a_connection_was_lost,
         comes_back_when_told_to, tells_of_records_removed_before_they_were_read]
for code, reason in {1: "malformed", 7: "unauthorised", 11: "gone", 12: "damaged", 13: "beyond_the_end", 14: "no_such_stream",
                     999: "a_reason_of_a_later_version"}.items():
    CASES.append(refused_for_good(code))
    CASES[-1].__name__ = "ends_when_its_hello_is_refused_with_" + reason
for what, broken in BROKEN_FRAMES.items():
    CASES.append(breaks_with(broken))
    CASES[-1].__name__ = "closes_on_" + what


# A client that has a cursor.

def moves_its_cursor_to_the_end(listener, source):
    line = source.accept(listener, begin=(4, 0))
    source.end(line)
    expect(source.cursor == RECORDS, f"the cursor stands at {source.cursor}")


def keeps_its_cursor_when_a_connection_is_lost(listener, source):
    line = source.accept(listener, begin=(4, 0))
    source.send(line, 30)
    line.half_close()
    line.sock.close()
    source.end(source.accept(listener, begin=(1, 30)))
    expect(source.cursor == RECORDS, f"the cursor stands at {source.cursor}")


CURSOR_CASES = [moves_its_cursor_to_the_end, keeps_its_cursor_when_a_connection_is_lost]
