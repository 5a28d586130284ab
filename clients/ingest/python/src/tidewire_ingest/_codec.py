"""The bytes of the native protocol, version 1: hellos and readers' frames are written, servers' frames are read."""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional, Union

from ._errors import Level, ProtocolError

MESSAGE = struct.Struct("<QI")
"""The header of a message: id and size."""
BODY_MAX = 1024
"""No frame but a batch has a larger body."""
ID_MAX = 2**64 - 1

_HEAD = struct.Struct("<BBHI")
_WELCOME = struct.Struct("<B3xIIIQQ")
_REFUSAL = struct.Struct("<QH2xI")
_READER_WELCOME = struct.Struct("<QQQII")
_BATCH = struct.Struct("<QQI")
_U64 = struct.Struct("<Q")


class Welcome(NamedTuple):
    """What the server grants a producer."""

    level: Level
    payload_max: int
    window_messages: int
    keepalive_ms: int
    window_bytes: int
    last_id: Optional[int]
    """The producer's mark: the highest id that the server has taken."""
    forgotten: bool


class Ack(NamedTuple):
    id: int
    keep_alive: bool
    why: str


class Refusal(NamedTuple):
    id: int
    code: int
    retry_after_ms: int
    text: str
    closes: bool


class ReaderWelcome(NamedTuple):
    """What the server has of a stream."""

    first: int
    """The oldest position kept."""
    next: int
    """One past the last position."""
    start: int
    """Where reading begins."""
    body_max: int
    skipped: bool
    """Whether records between what was asked for and ``start`` have been removed."""


class Batch(NamedTuple):
    first: int
    timestamp_us: int
    records: int
    producer: str
    messages: memoryview


class End(NamedTuple):
    next: int
    short: bool


class Unknown(NamedTuple):
    kind: int


Frame = Union[Welcome, Ack, Refusal, ReaderWelcome, Batch, End, Unknown]


def check_name(field: str, value: str, is_name: bool = True) -> bytes:
    raw = value.encode()
    if len(raw) > 255:
        raise ValueError(f"{field} has {len(raw)} bytes; at most 255 can be sent")
    if is_name and any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise ValueError(f"{field} has control characters: {value!r}")
    return bytes([len(raw)]) + raw


def _hello(kind: int, body: bytes) -> bytes:
    return b"TIDE" + bytes((1, kind)) + struct.pack("<H", len(body)) + body


def produce_hello(*, level: int, sparse: bool, adopt: bool, window_messages: int, window_bytes: int, first_id: int,
                  stream: str, producer: str, token: str) -> bytes:
    fixed = struct.pack("<BBHIQQ", level, sparse | adopt << 1, 0, window_messages, window_bytes, first_id)
    return _hello(1, fixed + check_name("the stream", stream) + check_name("the producer", producer)
                  + check_name("the token", token, False))


def subscribe_hello(*, begin: int, at: int, follow: bool, may_be_absent: bool, credit: int, stream: str, cursor: str,
                    token: str) -> bytes:
    fixed = struct.pack("<BBHQQ", begin, follow | may_be_absent << 1, 0, credit, at)
    return _hello(2, fixed + check_name("the stream", stream) + check_name("the cursor", cursor)
                  + check_name("the token", token, False))


def credit_frame(size: int) -> bytes:
    return struct.pack("<B3xIQ", 1, 8, size)


def cursor_frame(position: int) -> bytes:
    return struct.pack("<B3xIQ", 2, 8, position)


def needed(buffer: bytearray, at: int) -> int:
    """How many bytes the frame at ``at`` has, as far as is known."""
    if len(buffer) - at < 8:
        return 8
    size: int = _HEAD.unpack_from(buffer, at)[3]
    return 8 + size


def decode(buffer: bytes | bytearray | memoryview, at: int, body_max: int) -> tuple[Frame, int] | None:
    """The frame at ``at`` and where it ends; ``None`` if the frame is not whole."""
    if len(buffer) - at < 8:
        return None
    kind, flags, _, size = _HEAD.unpack_from(buffer, at)
    if size > body_max:
        raise ProtocolError(f"a frame of {size} bytes is too long: at most {body_max} are allowed")
    at += 8
    end = at + size
    if len(buffer) < end:
        return None
    body = memoryview(buffer)[at:end]
    try:
        return _body(kind, flags, body), end
    except (struct.error, IndexError):
        raise ProtocolError(f"a frame of kind {kind} is too short for its fields") from None
    except UnicodeDecodeError:
        raise ProtocolError(f"a frame of kind {kind} has a string that is not UTF-8") from None


def _string(body: memoryview, at: int) -> tuple[str, int]:
    end = at + 1 + body[at]
    if end > len(body):
        raise IndexError
    return str(body[at + 1:end], "utf-8"), end


def _body(kind: int, flags: int, body: memoryview) -> Frame:
    if kind == 2:
        return Ack(_U64.unpack_from(body)[0], bool(flags & 1), _string(body, 8)[0] if flags & 1 and len(body) > 8 else "")
    if kind == 5:
        first, timestamp, count = _BATCH.unpack_from(body)
        producer, end = _string(body, 20)
        return Batch(first, timestamp, count, producer, body[end:])
    if kind == 1:
        level, payload, messages, keepalive, size, last = _WELCOME.unpack_from(body)
        if level not in (1, 2, 3):
            raise ProtocolError(f"a welcome grants level {level}, which there is not")
        return Welcome(Level(level), payload, messages, keepalive, size, last if flags & 1 else None, bool(flags & 2))
    if kind == 3:
        id, code, retry = _REFUSAL.unpack_from(body)
        return Refusal(id, code, retry, _string(body, 16)[0], bool(flags & 1))
    if kind == 4:
        first, next, start, body_max, _ = _READER_WELCOME.unpack_from(body)
        return ReaderWelcome(first, next, start, body_max, bool(flags & 1))
    if kind == 6:
        return End(_U64.unpack_from(body)[0], bool(flags & 1))
    return Unknown(kind)
