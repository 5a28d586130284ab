"""Frames, read and written, and a connection that speaks them."""

import socket
import struct
import time

PATIENCE = 30.0
REASONS = {
    1: "malformed", 2: "too large", 3: "disk full", 4: "over quota", 5: "out of order", 6: "fenced",
    7: "unauthorised", 8: "log failed", 9: "stopping", 10: "too many", 11: "gone", 12: "damaged",
    13: "beyond the end", 14: "no such stream", 15: "too slow", 16: "stream full", 17: "exists",
    18: "unsupported", 19: "no such cursor",
}


class Failed(Exception):
    """The other side did what the protocol does not say."""


def expect(holds, why):
    if not holds:
        raise Failed(why)


def text(string):
    raw = string if isinstance(string, bytes) else string.encode()
    return bytes([len(raw)]) + raw


def hello(kind, body):
    return b"TIDE" + bytes([1, kind]) + struct.pack("<H", len(body)) + body


def produce(stream, producer="", level=2, flags=0, first_id=1, messages=0, size=0, token=""):
    fixed = struct.pack("<BBHIQQ", level, flags, 0, messages, size, first_id)
    return hello(1, fixed + text(stream) + text(producer) + text(token))


def subscribe(stream, begin=1, at=0, flags=0, credit=1 << 40, cursor="", token=""):
    fixed = struct.pack("<BBHQQ", begin, flags, 0, credit, at)
    return hello(2, fixed + text(stream) + text(cursor) + text(token))


def administer(token=""):
    return hello(3, bytes(4) + text(token))


def wanted(retain_bytes=None, retain_age_us=None, limit_bytes=None, compression=None):
    """Settings of a stream; 0 is no limit, None stays as it is."""
    limits = [retain_bytes, retain_age_us, limit_bytes]
    mask = sum(bit for bit, one in zip((1, 2, 4, 8), limits + [compression]) if one is not None)
    return struct.pack("<BBHQQQ", mask, compression or 0, 0, *(one or 0 for one in limits))


def message(ident, payload):
    return struct.pack("<QI", ident, len(payload)) + payload


def reader_frame(kind, body):
    return struct.pack("<B3xI", kind, len(body)) + body


def credit(size):
    return reader_frame(1, struct.pack("<Q", size))


def commit(position):
    return reader_frame(2, struct.pack("<Q", position))


def server_frame(kind, flags, body):
    return struct.pack("<BBHI", kind, flags, 0, len(body)) + body


class Frame:
    """A server's frame, decoded as far as it is known."""

    def __init__(self, kind, flags, body):
        self.kind, self.flags, self.body = kind, flags, body
        if kind == 1:
            (self.level, self.payload_max, self.window_messages, self.keepalive_ms,
             self.window_bytes, self.last_id) = struct.unpack_from("<B3xIIIQQ", body)
            if not flags & 1:
                self.last_id = None
        elif kind == 2:
            self.id, = struct.unpack_from("<Q", body)
            self.why = body[9:9 + body[8]].decode() if flags & 1 and len(body) > 8 else ""
        elif kind == 3:
            self.id, code, self.retry_after_ms = struct.unpack_from("<QH2xI", body)
            self.reason = REASONS.get(code, code)
        elif kind == 4:
            self.first, self.next, self.start, self.body_max = struct.unpack_from("<QQQI", body)
        elif kind == 5:
            self.first, self.timestamp_us, self.count = struct.unpack_from("<QQI", body)
            named = 21 + body[20]
            self.producer = body[21:named].decode()
            self.messages = list(messages(body[named:]))
            expect(len(self.messages) == self.count, "a batch counts other messages than it has")
        elif kind == 6:
            self.next, = struct.unpack_from("<Q", body)
        elif kind == 8:
            (self.first, self.next, self.bytes, self.newest_us, self.retain_bytes, self.retain_age_us,
             self.limit_bytes, self.lag, self.producers, self.cursors, self.readers,
             self.compression) = struct.unpack_from("<QQQQQQQQIIIB", body)
            self.name = body[81:81 + body[80]].decode()
        elif kind == 9:
            self.position, self.lag = struct.unpack_from("<QQ", body)
            at = 17 + body[16]
            self.cursor, self.peer = body[17:at].decode(), body[at + 1:at + 1 + body[at]].decode()
        elif kind == 10:
            self.id, = struct.unpack_from("<Q", body)

    def __repr__(self):
        shown = {k: v for k, v in vars(self).items() if k != "body"}
        return f"{shown}"


def messages(raw):
    at = 0
    while at < len(raw):
        expect(at + 12 <= len(raw), "a message without its header")
        ident, size = struct.unpack_from("<QI", raw, at)
        expect(at + 12 + size <= len(raw), "a message that is cut")
        yield ident, raw[at + 12:at + 12 + size]
        at += 12 + size


class Line:
    """A connection."""

    def __init__(self, sock):
        self.sock, self.buffer = sock, b""
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, raw, pieces=0):
        """Sends; with `pieces`, so many bytes at a time."""
        if not pieces:
            return self.sock.sendall(raw)
        for at in range(0, len(raw), pieces):
            self.sock.sendall(raw[at:at + pieces])
            time.sleep(0.001)

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def more(self):
        """Receives something; false at the end."""
        try:
            got = self.sock.recv(1 << 16)
        except socket.timeout:
            raise Failed(f"nothing came for {PATIENCE:.0f} s") from None
        except ConnectionResetError:
            raise Failed("the connection was reset") from None
        self.buffer += got
        return bool(got)

    def take(self, n):
        """The next `n` bytes; None at the end."""
        while len(self.buffer) < n:
            if not self.more():
                expect(not self.buffer, f"the connection ended in the middle: {self.buffer.hex()}")
                return None
        got, self.buffer = self.buffer[:n], self.buffer[n:]
        return got

    def frame(self):
        """The server's next frame that is known; None at the end."""
        while True:
            head = self.take(8)
            if head is None:
                return None
            kind, flags, reserved, size = struct.unpack("<BBHI", head)
            expect(reserved == 0, "a reserved field is not 0")
            body = self.take(size) if size else b""
            expect(body is not None, "the connection ended within a frame")
            if 1 <= kind <= 10:
                return Frame(kind, flags, body)

    def want(self, kind, **fields):
        """The next frame that is no keep-alive, which must be of this kind with these fields."""
        frame = self.frame()
        while frame is not None and frame.kind == 2 and frame.flags & 1:
            frame = self.frame()
        expect(frame is not None and frame.kind == kind,
               f"a frame of kind {kind} {fields} was due, there came {frame}")
        for name, value in fields.items():
            expect(getattr(frame, name) == value, f"{name}={value!r} was due, there came {frame}")
        return frame

    def acknowledged(self, ident):
        """Reads until everything up to `ident` is acknowledged, and nothing beyond."""
        last = -1
        while last < ident:
            frame = self.want(2)
            expect(last < frame.id <= ident, f"acknowledged {frame.id} after {last}, sent to {ident}")
            last = frame.id

    def refused(self, reason, ident=None):
        """A refusal that closes, and the end."""
        frame = self.want(3, reason=reason, flags=1)
        expect(ident is None or frame.id == ident, f"the id {ident} was due, there came {frame}")
        self.ends()

    def ends(self):
        frame = self.frame()
        expect(frame is None, f"the end was due, there came {frame}")
        self.sock.close()
