"""What a server must do. Each case is a function of a world: a server, and a stream of the case's own."""

import pathlib
import socket
import struct
import time

from .wire import (Line, administer, commit, credit, expect, hello, message, produce, reader_frame,
                   subscribe, text, wanted)

VECTORS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "formats" / "protocol-vectors.txt"


class World:
    def __init__(self, addr, stream, token):
        self.addr, self.stream, self.token = addr, stream, token

    def line(self):
        return Line(socket.create_connection(self.addr, timeout=10))

    def producer(self, name="", **more):
        line = self.line()
        line.send(produce(self.stream, name, token=self.token, **more))
        return line, line.want(1)

    def reader(self, stream=None, **more):
        line = self.line()
        stream = self.stream if stream is None else stream
        line.send(subscribe(stream, token=self.token, **more))
        return line

    def filled(self, n, name="p"):
        line, _ = self.producer(name)
        line.send(b"".join(message(i, b"%d" % i) for i in range(1, n + 1)))
        line.acknowledged(n)
        return line

    def read(self, **more):
        """Everything that a reader is sent up to the end: ids, and the last frame."""
        line = self.reader(**more)
        welcome = line.want(4)
        position, ids = welcome.start, []
        while True:
            frame = line.frame()
            expect(frame is not None, "a reader was closed without an end")
            if frame.kind != 5:
                line.ends()
                return ids, frame
            expect(frame.first == position, f"position {position} was due, there came {frame}")
            position += frame.count
            ids += [ident for ident, _ in frame.messages]


def stores_and_reads_back(w):
    line, welcome = w.producer("p")
    expect(welcome.last_id is None and welcome.flags == 0, f"a new producer has no mark: {welcome}")
    line.send(b"".join(message(i, b"x" * (i % 50)) for i in range(1, 2001)))
    line.acknowledged(2000)
    line.half_close()
    line.ends()
    ids, end = w.read()
    expect(ids == list(range(1, 2001)), "what was stored is not what was sent")
    expect((end.kind, end.next, end.flags) == (6, 2000, 0), f"an end was due: {end}")


def any_split_means_the_same(w):
    line = w.line()
    line.send(produce(w.stream, "p", token=w.token), pieces=1)
    line.want(1)
    line.send(b"".join(message(i, b"abc") for i in range(1, 6)), pieces=7)
    line.acknowledged(5)


def early_messages_wait(w):
    line = w.line()
    line.send(produce(w.stream, "p", token=w.token) + message(1, b"") + message(2, b"y"))
    line.half_close()
    line.want(1)
    line.acknowledged(2)
    line.ends()


def a_producer_resumes(w):
    w.filled(3)
    line, welcome = w.producer("p")
    expect(welcome.last_id == 3, f"last_id=3 was due: {welcome}")
    line.send(b"".join(message(i, b"again") for i in range(1, 6)))
    line.acknowledged(5)
    expect(w.read()[0] == [1, 2, 3, 4, 5], "something was stored twice, or not at all")


def a_gap_is_refused(w):
    line, _ = w.producer("p")
    line.send(message(1, b"") + message(3, b""))
    line.acknowledged(1)
    line.refused("out of order", 2)


def sparse_ids_rise(w):
    line, _ = w.producer("p", flags=1, first_id=10)
    line.send(message(12, b"") + message(100, b"") + message(50, b""))
    line.acknowledged(100)
    expect(w.read()[0] == [12, 100], "sparse ids are stored as they came")


def a_newer_session_fences(w):
    older = w.filled(2)
    line, welcome = w.producer("p")
    expect(welcome.last_id == 2, f"last_id=2 was due: {welcome}")
    older.refused("fenced")
    line.send(message(3, b""))
    line.acknowledged(3)


def a_large_payload_is_refused(w):
    line, welcome = w.producer("p")
    line.send(message(1, b"") + struct.pack("<QI", 2, welcome.payload_max + 1) + b"begin")
    line.acknowledged(1)
    line.refused("too large", 2)


def a_cut_message_is_told(w):
    line, _ = w.producer("p")
    line.send(message(1, b"whole") + message(2, b"not whole")[:-1])
    line.half_close()
    line.acknowledged(1)
    line.refused("malformed", 2)
    expect(w.read()[0] == [1], "a cut message was stored")


def bad_hellos_are_malformed(w):
    for line in VECTORS.read_text().splitlines():
        words = line.split()
        if len(words) == 4 and words[1] == "hello" and words[3] == "malformed":
            bad = w.line()
            bad.send(bytes.fromhex(words[2]))
            bad.half_close()
            bad.refused("malformed", 0)


def a_cut_hello_is_told(w):
    whole = produce(w.stream, "p", token=w.token)
    for n in (1, 5, 8, len(whole) - 1):
        line = w.line()
        line.send(whole[:n])
        line.half_close()
        line.refused("malformed", 0)
    line = w.line()
    line.half_close()
    line.ends()


def a_half_close_is_no_reason_not_to_welcome(w):
    w.filled(1)
    line = w.line()
    line.send(produce(w.stream, "p", token=w.token))
    line.half_close()
    line.want(1, last_id=1)
    line.ends()


def credit_bounds_a_reader(w):
    w.filled(100)
    for i in range(101, 111):
        line, _ = w.producer("p")
        line.send(message(i, b"z" * 1000))
        line.acknowledged(i)
    line = w.reader(credit=1)
    line.want(4)
    first = line.want(5)
    # Sending it has overdrawn what there was.
    line.send(credit(8 + len(first.body)))
    second = line.want(5)
    expect(second.first == first.count, f"position {first.count} was due: {second}")
    line.half_close()
    end = line.want(6, next=second.first + second.count)
    expect(bool(end.flags & 1) == (end.next < 110), f"flag 1 says whether it is short: {end}")
    line.ends()


def a_follower_sees_what_comes(w):
    line, _ = w.producer("p")
    reader = w.reader(flags=1)
    reader.want(4)
    for i in range(1, 4):
        line.send(message(i, b"now"))
        reader.want(5, first=i - 1)
    reader.half_close()
    reader.want(6, next=3, flags=0)
    reader.ends()


def there_is_nothing_beyond_the_end(w):
    w.filled(3)
    w.reader(at=4).refused("beyond the end", 3)
    ids, end = w.read(at=3)
    expect((ids, end.next) == ([], 3), f"the end itself may be asked for: {end}")


def a_missing_stream_is_refused_or_waited_for(w):
    w.reader(stream=w.stream + "-x").refused("no such stream", 0)
    w.reader(stream=w.stream + "-x", flags=1).refused("no such stream", 0)
    reader = w.reader(flags=3)
    reader.want(4, next=0)
    w.filled(1)
    reader.want(5, first=0)


def cursors_are_kept(w):
    w.filled(5)
    line = w.reader(begin=4, flags=1, cursor="c")
    line.want(4, start=0)
    line.want(5)
    line.send(commit(2) + reader_frame(99, b"unknown") + commit(3))
    line.half_close()
    line.want(6)
    line.ends()
    w.reader(begin=4, cursor="c").want(4, start=3)
    line = w.reader(flags=1, cursor="c")
    line.want(4)
    line.want(5)
    line.send(commit(6))
    line.refused("beyond the end", 5)
    line = w.reader(flags=1)
    line.want(4)
    line.want(5)
    line.send(commit(1))
    line.refused("malformed")


def bad_reader_frames_are_malformed(w):
    w.filled(1)
    for bad in (b"\x01\x01\0\0\x08\0\0\0", reader_frame(1, b"short")):
        line = w.reader(flags=1)
        line.want(4)
        line.want(5)
        line.send(bad)
        line.refused("malformed")


def nonsense_is_no_hello(w):
    for bad in (b"GET / HTTP/1.1\r\n\r\n", hello(4, b""), b"TIDE\x01\x01\x01\x04"):
        line = w.line()
        line.send(bad)
        line.refused("malformed", 0)


def a_late_hello_is_refused(w):
    line = w.line()
    line.send(b"TIDE")
    line.refused("too slow", 0)


class Admin:
    """An administrator's connection."""

    def __init__(self, w):
        self.line, self.asked = w.line(), 0
        self.line.send(administer(w.token))
        self.line.want(7)

    def ask(self, kind, body):
        """What comes up to the answer, which is last: done, or refused."""
        self.line.send(reader_frame(kind, body))
        self.asked += 1
        frames = []
        while not frames or frames[-1].kind not in (3, 10):
            frame = self.line.frame()
            expect(frame is not None, "an administrator was closed without an answer")
            frames.append(frame)
        expect(frames[-1].id == self.asked, f"the answer to {self.asked} was due: {frames[-1]}")
        return frames

    def done(self, kind, body):
        *frames, last = self.ask(kind, body)
        expect(last.kind == 10, f"a request was refused: {last}")
        return frames

    def refused(self, kind, body, reason):
        last = self.ask(kind, body)[-1]
        expect((last.kind, last.flags) == (3, 0) and last.reason == reason, f"{reason} was due: {last}")

    def stream(self, name):
        after = b""
        while True:
            *frames, last = self.ask(1, text(after))
            for frame in frames:
                if frame.name == name:
                    return frame
            if not last.flags & 1:
                return None
            after = frames[-1].name.encode()


def streams_are_created_changed_and_listed(w):
    admin = Admin(w)
    expect(admin.stream(w.stream) is None, "a new stream is there already")
    admin.done(2, wanted(retain_bytes=1 << 30, compression=1) + text(w.stream))
    admin.refused(2, wanted() + text(w.stream), "exists")
    admin.done(3, wanted(limit_bytes=1 << 20, retain_bytes=0) + text(w.stream))
    seen = admin.stream(w.stream)
    expect((seen.retain_bytes, seen.limit_bytes, seen.compression) == (0, 1 << 20, 1), f"{seen}")
    w.filled(50)
    seen = admin.stream(w.stream)
    expect((seen.first, seen.next, seen.producers) == (0, 50, 1), f"{seen}")
    expect(w.read()[0] == list(range(1, 51)), "a compressed stream reads otherwise")
    admin.refused(3, wanted() + text(w.stream + "-other"), "no such stream")
    admin.refused(200, b"", "unsupported")
    admin.line.half_close()
    admin.line.ends()


def a_full_stream_refuses_and_goes_on(w):
    admin = Admin(w)
    admin.done(2, wanted(limit_bytes=100) + text(w.stream))
    line, _ = w.producer("p")
    line.send(message(1, b"x" * 50))
    line.acknowledged(1)
    line.send(message(2, b"x" * 50))
    line.want(3, reason="stream full", id=2, flags=0)
    admin.done(3, wanted(limit_bytes=0) + text(w.stream))
    line.send(message(2, b"x" * 50))
    line.acknowledged(2)


def a_deleted_stream_is_gone(w):
    producer = w.filled(5)
    follower = w.reader(flags=1, cursor="c")
    follower.want(4)
    follower.want(5)
    follower.send(commit(3))
    admin = Admin(w)
    for _ in range(200):
        cursors = admin.done(5, text(w.stream) + text(""))
        if cursors:
            break
    expect([(c.cursor, c.position, c.lag) for c in cursors] == [("c", 3, 2)], f"{cursors}")
    readers = admin.done(6, text(w.stream))
    expect(len(readers) == 1 and readers[0].cursor == "c", f"{readers}")
    admin.done(4, text(w.stream))
    admin.refused(4, text(w.stream), "no such stream")
    producer.send(message(6, b"late"))
    producer.refused("no such stream", 6)
    follower.refused("no such stream")
    w.reader().refused("no such stream")
    # The name comes back, and gives no position twice.
    line, welcome = w.producer("p")
    expect(welcome.last_id is None, f"a mark outlived its stream: {welcome}")
    line.send(message(1, b"anew"))
    line.acknowledged(1)
    expect(admin.stream(w.stream).first == 5, "positions were given again")
    expect(admin.done(5, text(w.stream) + text("")) == [], "a cursor outlived its stream")
    late = w.reader(at=2)
    expect(late.want(4).start == 5, "reading begins where nothing is")


def a_deleted_cursor_is_gone(w):
    w.filled(5)
    admin = Admin(w)
    # One that does not follow is sent the end next, and is not heard any more.
    reader = w.reader(flags=1, cursor="c")
    reader.want(4)
    reader.send(commit(3))
    until = time.monotonic() + 30
    while not admin.done(5, text(w.stream) + text("")):
        expect(time.monotonic() < until, "a cursor that was moved is never listed")
        time.sleep(0.005)
    admin.refused(7, text(w.stream) + text("d"), "no such cursor")
    admin.refused(7, text(w.stream + "-none") + text("c"), "no such stream")
    admin.done(7, text(w.stream) + text("c"))
    expect(admin.done(5, text(w.stream) + text("")) == [], "a deleted cursor is listed")
    admin.refused(7, text(w.stream) + text("c"), "no such cursor")
    later = w.reader(begin=4, cursor="c")
    expect(later.want(4).start == 0, "a deleted cursor stands somewhere")


def bad_requests_are_malformed(w):
    for line in VECTORS.read_text().splitlines():
        words = line.split()
        if len(words) == 4 and words[1] == "admin" and words[3] in ("malformed", "unsupported"):
            admin = Admin(w)
            admin.line.send(bytes.fromhex(words[2]))
            if words[3] == "malformed":
                admin.line.refused("malformed", 1)
            else:
                # The request is refused, and the connection goes on.
                expect(admin.line.want(3, reason="unsupported", flags=0).id == 1, "the id 1 was due")
    admin = Admin(w)
    admin.line.send(reader_frame(1, text(""))[:-1])
    admin.line.half_close()
    admin.line.refused("malformed", 1)


CASES = [case for name, case in list(globals().items())
         if getattr(case, "__module__", "") == __name__ and case.__class__.__name__ == "function"]
