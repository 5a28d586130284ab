"""One producer's conversation with a server, over as many connections as it takes: a state machine without socket and
clock. The blocking client and the asyncio client both drive it.

A message has its id, and stands in the resend buffer, before a byte of it is written. Each connection begins with a
hello; the welcome says how far the server has come; what is left is sent.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Deque, Iterable, Optional, Sequence, Tuple

from ._codec import BODY_MAX, ID_MAX, MESSAGE, Ack, Refusal, Unknown, Welcome, decode, produce_hello
from ._errors import (Forgotten, IngestError, Level, LevelNotGranted, Lost, MessageTooLarge, NameTaken, Overtaken, ProtocolError,
                      Reason, Refused, Unanswered, WrongId)
from ._settings import ProducerSettings

HEADER = MESSAGE.size
LATE = 15 * 60.0
"""For so many seconds after a connection began the server may still read its hello."""


class Chunk:
    """Messages that follow each other, as they are written."""

    __slots__ = ("first", "last", "count", "data")

    def __init__(self, first: int, last: int, count: int, data: bytes) -> None:
        self.first, self.last, self.count, self.data = first, last, count, data

    def split(self, messages: int, size: int, up_to: int) -> Tuple[Optional["Chunk"], Optional["Chunk"]]:
        """The messages of the front that are at most so many, in at most so many bytes, with ids up to ``up_to``; the rest."""
        if self.count <= messages and len(self.data) <= size and self.last <= up_to:
            return self, None
        at = count = 0
        id = self.first
        last = None
        while at < len(self.data):
            id, length = MESSAGE.unpack_from(self.data, at)
            end = at + HEADER + length
            if count >= messages or end > size or id > up_to:
                break
            at, count, last = end, count + 1, id
        if last is None:
            return None, self
        if at == len(self.data):
            return self, None
        return Chunk(self.first, last, count, self.data[:at]), Chunk(id, self.last, self.count - count, self.data[at:])


class Outbox:
    """The resend buffer: what was pushed and is not acknowledged."""

    def __init__(self) -> None:
        self._sent: Deque[Chunk] = deque()
        self._unsent: Deque[Chunk] = deque()
        self.sent_messages = self.sent_bytes = 0
        self.messages = self.bytes = 0

    def push(self, chunk: Chunk) -> None:
        self._unsent.append(chunk)
        self.messages += chunk.count
        self.bytes += len(chunk.data)

    def first_id(self) -> Optional[int]:
        for queue in (self._sent, self._unsent):
            if queue:
                return queue[0].first
        return None

    def next(self, messages: int, size: int) -> Optional[Chunk]:
        """What may be written within a window; one message when nothing is unacknowledged, however large."""
        if not self._unsent:
            return None
        chunk = self._unsent[0]
        front, rest = chunk.split(messages - self.sent_messages, size - self.sent_bytes, ID_MAX)
        if front is None:
            if self.sent_messages:
                return None
            front, rest = chunk.split(1, len(chunk.data), ID_MAX)
            assert front is not None
        if rest is None:
            self._unsent.popleft()
        else:
            self._unsent[0] = rest
        self._sent.append(front)
        self.sent_messages += front.count
        self.sent_bytes += len(front.data)
        return front

    def acknowledged(self, id: int) -> int:
        """Drops the messages up to ``id``; how many."""
        dropped = 0
        for queue in (self._sent, self._unsent):
            is_sent = queue is self._sent
            while queue and queue[0].first <= id:
                front, rest = queue[0].split(queue[0].count, len(queue[0].data), id)
                if front is not None:
                    dropped += front.count
                    self.messages -= front.count
                    self.bytes -= len(front.data)
                    if is_sent:
                        self.sent_messages -= front.count
                        self.sent_bytes -= len(front.data)
                if rest is None:
                    queue.popleft()
                else:
                    queue[0] = rest
                    return dropped
        return dropped

    def rewind(self, id: int) -> None:
        """The messages from ``id`` on are written again."""
        while self._sent and self._sent[-1].last >= id:
            chunk = self._sent.pop()
            front, rest = (None, chunk) if id == 0 else chunk.split(chunk.count, len(chunk.data), id - 1)
            if front is not None:
                self._sent.append(front)
            if rest is not None:
                self._unsent.appendleft(rest)
                self.sent_messages -= rest.count
                self.sent_bytes -= len(rest.data)
            if front is not None:
                return


class Phase(enum.Enum):
    OFFLINE = enum.auto()
    GREETING = enum.auto()
    """The hello is to be handed out."""
    WAITING = enum.auto()
    """The server owes its welcome."""
    OPEN = enum.auto()
    HOLDING = enum.auto()
    """The server refused messages for now; they are sent again then."""


@dataclass
class News:
    """What some received bytes said."""

    welcome: Optional[Welcome] = None
    acknowledged: int = 0
    waits_for: str = ""
    refused: Optional[Refused] = None


class Session:
    """A program that drives it calls ``connected`` when there is a connection, writes what ``output`` hands out whole and in
    order, offers what it receives to ``received``, calls ``expired`` at ``deadline``, and ``disconnected`` when the
    connection has gone. Times are seconds of a monotonic clock."""

    def __init__(self, wants: ProducerSettings) -> None:
        self.wants = wants
        self.outbox = Outbox()
        self.phase = Phase.OFFLINE
        self.granted: Optional[Welcome] = None
        self.next_id: Optional[int] = None
        self.settled: Optional[int] = None
        """All messages up to this id are settled."""
        self._handed_out: Optional[int] = None
        self._heard = 0.0
        self._hold_until = 0.0
        # Hellos that were not answered while their connections lasted. The server may read them yet.
        self._unanswered = 0
        self._last_unanswered = 0.0

    # What callers hand in.

    def has_room(self, size: int) -> bool:
        box, wants = self.outbox, self.wants
        return not box.messages or (box.messages < wants.buffer_messages and box.bytes + HEADER + size <= wants.buffer_bytes)

    def check(self, payload: bytes, id: Optional[int]) -> int:
        """The id that this message gets; an error if it cannot be sent."""
        if self.granted is None:
            raise WrongId("before the first welcome no message can have an id")
        if self.next_id is None:
            raise WrongId("the last id, 2^64-1, was used")
        if id is not None and (id < self.next_id or (id > self.next_id and not self.wants.sparse) or id > ID_MAX):
            raise WrongId(f"the id {id} does not follow: {self.next_id} was expected" + (", or above" if self.wants.sparse else ""))
        if len(payload) > self.granted.payload_max:
            raise MessageTooLarge(f"a message of {len(payload)} bytes is too large: the server takes at most "
                                  f"{self.granted.payload_max}")
        return self.next_id if id is None else id

    def push(self, payload: bytes, id: Optional[int] = None) -> int:
        id = self.check(payload, id)
        self.outbox.push(Chunk(id, id, 1, MESSAGE.pack(id, len(payload)) + payload))
        self.next_id = id + 1 if id < ID_MAX else None
        return id

    def push_many(self, payloads: Sequence[bytes]) -> int:
        """Takes all of them, which must be one or more; the id of the first."""
        first = self.check(max(payloads, key=len), None)
        if first + len(payloads) - 1 > ID_MAX:
            raise WrongId("there are not so many ids left")
        pack = MESSAGE.pack
        id = first
        pieces = []
        for payload in payloads:
            pieces.append(pack(id, len(payload)))
            pieces.append(payload)
            id += 1
        self.outbox.push(Chunk(first, id - 1, len(payloads), b"".join(pieces)))
        self.next_id = id if id <= ID_MAX else None
        return first

    @property
    def is_settled(self) -> bool:
        return not self.outbox.messages

    # The connection.

    def connected(self, now: float) -> None:
        self.disconnected()
        self.phase = Phase.GREETING
        self._heard = now

    def disconnected(self) -> None:
        """What was handed out and not acknowledged is handed out again on the next connection."""
        if self.phase is Phase.WAITING:
            self._unanswered += 1
            self._last_unanswered = self._heard
        self.phase = Phase.OFFLINE
        self.outbox.rewind(0)
        self._handed_out = None

    def awaits_welcome(self) -> bool:
        return self.phase in (Phase.GREETING, Phase.WAITING)

    def _first_id(self) -> int:
        first = self.outbox.first_id()
        if first is not None:
            return first
        if self.next_id is not None:
            return self.next_id
        return ID_MAX if self.granted else self.wants.first_id

    def _hello(self) -> bytes:
        wants = self.wants
        # At level received the server may have lost, in a crash, what it acknowledged.
        adopt = self.granted is not None and wants.level == Level.RECEIVED
        return produce_hello(level=wants.level, sparse=wants.sparse, adopt=adopt, window_messages=wants.window_messages,
                             window_bytes=wants.window_bytes, first_id=self._first_id(), stream=wants.stream,
                             producer=wants.name, token=wants.token)

    def output(self, now: float) -> Optional[bytes]:
        """What is to be written next; ``None`` if nothing may be for now."""
        if self.phase is Phase.GREETING:
            self.phase = Phase.WAITING
            return self._hello()
        if self.phase is not Phase.OPEN:
            return None
        granted = self.granted
        assert granted is not None
        wants = self.wants
        messages = min(wants.window_messages or granted.window_messages, granted.window_messages)
        size = min(wants.window_bytes or granted.window_bytes, granted.window_bytes)
        pieces, total = [], 0
        waited = self.outbox.sent_messages > 0
        while total < 1 << 18:
            chunk = self.outbox.next(messages, size)
            if chunk is None:
                break
            pieces.append(chunk.data)
            total += len(chunk.data)
            self._handed_out = chunk.last
        if not pieces:
            return None
        if not waited:
            self._heard = now
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def received(self, buffer: bytearray, now: float) -> News:
        """Takes whole frames off the front of ``buffer``."""
        self._heard = now
        news = News()
        at = 0
        data = bytes(buffer)
        try:
            while (found := decode(data, at, BODY_MAX)) is not None:
                frame, at = found
                self._frame(frame, news, now)
        finally:
            del buffer[:at]
        return news

    def _frame(self, frame: object, news: News, now: float) -> None:
        if isinstance(frame, Unknown):
            return
        greeted = self.phase in (Phase.OPEN, Phase.HOLDING)
        if isinstance(frame, Ack) and greeted:
            if frame.keep_alive:
                news.waits_for = frame.why or news.waits_for
            else:
                news.acknowledged += self._acknowledged(frame.id)
        elif isinstance(frame, Refusal) and frame.closes:
            self.phase = Phase.OFFLINE
            raise self._refused_for_good(frame, now)
        elif isinstance(frame, Refusal) and greeted:
            self._refused(frame, now)
            news.refused = Refused(frame.code, frame.id, frame.text, frame.retry_after_ms / 1000)
        elif isinstance(frame, Welcome) and self.phase is Phase.WAITING:
            self._welcome(frame)
            news.welcome = frame
        else:
            raise ProtocolError(f"a frame is out of its place: {type(frame).__name__}")

    def _refused_for_good(self, frame: Refusal, now: float) -> IngestError:
        # A newer session of this producer may be one of this client's own, begun by a hello that was read late. Each such
        # hello excuses one refusal.
        if frame.code == Reason.FENCED and self._unanswered and now - self._last_unanswered <= LATE:
            self._unanswered -= 1
            return Overtaken("a session of this producer has begun elsewhere, perhaps by an earlier connection of this client")
        return Refused(frame.code, frame.id, frame.text, frame.retry_after_ms / 1000)

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.level < self.wants.level and not self.wants.accept_lower:
            raise LevelNotGranted(self.wants.level, welcome.level)
        if welcome.forgotten and not self.wants.accept_duplicates:
            raise Forgotten
        again = self.granted is not None
        mark = welcome.last_id
        if not again:
            self.next_id = self.wants.first_id if mark is None else (mark + 1 if mark < ID_MAX else None)
            self.settled = mark
        elif self.wants.name:
            self._resume(welcome)
        self.granted = welcome
        self.phase = Phase.OPEN

    def _resume(self, welcome: Welcome) -> None:
        mark = welcome.last_id
        if mark is not None and self.next_id is not None and mark >= self.next_id:
            raise NameTaken(max(self.next_id - 1, 0), mark)
        lost = self.settled is not None and (mark is None or mark < self.settled)
        if lost and self.wants.level >= Level.DURABLE and not welcome.forgotten:
            assert self.settled is not None
            raise Lost(self.settled, mark)
        if mark is not None:
            self.outbox.acknowledged(mark)
            self.settled = mark if self.settled is None else max(self.settled, mark)

    def _acknowledged(self, id: int) -> int:
        if self.settled is not None and id <= self.settled:
            return 0
        if self._handed_out is None or id > self._handed_out:
            raise ProtocolError(f"the server acknowledged {id}, which was not sent")
        self.settled = id
        return self.outbox.acknowledged(id)

    def _refused(self, frame: Refusal, now: float) -> None:
        waiting = self._handed_out is not None and frame.id <= self._handed_out
        if not waiting or (self.settled is not None and frame.id <= self.settled) or frame.code == Reason.MALFORMED:
            raise ProtocolError(f"the server refused {frame.id}, which was not waiting")
        self.outbox.rewind(frame.id)
        self.phase = Phase.HOLDING
        self._hold_until = now + frame.retry_after_ms / 1000

    # Time.

    def deadline(self) -> Optional[float]:
        """When ``expired`` is to be called, if nothing is received before."""
        if self.phase is Phase.HOLDING:
            return self._hold_until
        if self.awaits_welcome() or (self.phase is Phase.OPEN and self.outbox.sent_messages):
            return self._heard + self.wants.silence
        return None

    def listening(self, now: float) -> None:
        """The driver begins to listen again, after a while in which it did not: that silence was its own."""
        self._heard = max(self._heard, now)

    def expired(self, now: float) -> None:
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return
        if self.phase is Phase.HOLDING:
            self.phase = Phase.OPEN
            self._heard = now
        elif self.awaits_welcome():
            raise Unanswered(f"no answer to the ingest hello within {self.wants.silence:g} s: is another service at this address?")
        else:
            raise Unanswered(f"the server sent nothing for {self.wants.silence:g} s, though an answer is due")


def as_bytes(payloads: Iterable[bytes]) -> Sequence[bytes]:
    return payloads if isinstance(payloads, (list, tuple)) else list(payloads)
