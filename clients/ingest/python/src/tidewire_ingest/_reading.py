"""A reader's conversation with a server, over as many connections as it takes: a state machine without socket and clock."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional

from ._codec import (BODY_MAX, ID_MAX, MESSAGE, Batch, End, ReaderWelcome, Refusal, Unknown, credit_frame, cursor_frame, decode,
                     needed, subscribe_hello)
from ._errors import Gap, ProtocolError, Refused
from ._settings import Begin, ReaderSettings


class Record(NamedTuple):
    """One message as it is stored."""

    position: int
    """Its place in the stream."""
    id: int
    """The id that its producer gave it."""
    producer: str
    """Empty if the producer had no name."""
    timestamp_us: int
    """When the server received it: microseconds since the Unix epoch."""
    payload: bytes


class Reading:
    """A program that drives it calls ``connected`` for each connection, writes what ``output`` hands out, and offers what it
    receives to ``received``."""

    def __init__(self, wants: ReaderSettings) -> None:
        self.wants = wants
        self.welcome: Optional[ReaderWelcome] = None
        self.next: Optional[int] = None
        """The position that is received next."""
        self.is_open = False
        self._ended = False
        # A reader with a cursor asks to follow, and ends by itself where the tail was at its first welcome: a server that
        # has sent the end does not hear where the cursor is moved to.
        self._until: Optional[int] = None
        self._spent = 0
        self._committed: Optional[int] = None
        self._out: List[bytes] = []

    def connected(self) -> None:
        wants = self.wants
        begin = wants.begin or (Begin.cursor() if wants.cursor else Begin.first())
        if self.next is not None:
            begin = Begin.position(self.next)
        self._out = [subscribe_hello(begin=begin.kind, at=begin.at, follow=wants.follow or bool(wants.cursor),
                                     may_be_absent=wants.wait, credit=wants.credit, stream=wants.stream, cursor=wants.cursor,
                                     token=wants.token)]
        self.is_open = False
        self._spent = 0

    @property
    def is_over(self) -> bool:
        return self._ended or (self._until is not None and self.next is not None and self.next >= self._until)

    def output(self) -> bytes:
        out = b"".join(self._out)
        self._out.clear()
        return out

    def commit(self, position: int) -> None:
        if not self.wants.cursor:
            raise ValueError("this reader was given no cursor to move")
        if not 0 <= position <= ID_MAX:
            raise ValueError(f"a position is from 0 to 2^64-1: {position}")
        self._committed = position
        if self.is_open:
            self._out.append(cursor_frame(position))

    def received(self, buffer: bytearray) -> Optional[Iterator[Record]]:
        """Takes frames off the front of ``buffer`` up to a batch, whose records it returns. ``None`` behind a welcome, and if
        no batch is whole."""
        while not self.is_over:
            body_max = max(BODY_MAX, self.welcome.body_max) if self.is_open and self.welcome else BODY_MAX
            size = needed(buffer, 0)
            if len(buffer) < size and size - 8 <= body_max:
                return None
            data = bytes(buffer[:size])
            found = decode(data, 0, body_max)
            if found is None:
                return None
            del buffer[:size]
            frame = found[0]
            if isinstance(frame, Batch) and self.is_open:
                self._took(frame, size)
                return records(frame)
            if isinstance(frame, Refusal):
                raise Refused(frame.code, frame.id, frame.text, frame.retry_after_ms / 1000)
            if isinstance(frame, ReaderWelcome) and not self.is_open:
                self._welcome(frame)
                return None
            elif isinstance(frame, End) and self.is_open:
                self.next = max(self.next or 0, frame.next)
                self._ended = True
            elif not isinstance(frame, Unknown):
                raise ProtocolError(f"a frame is out of its place: {type(frame).__name__}")
        return None

    def _welcome(self, welcome: ReaderWelcome) -> None:
        if self.next is not None and welcome.start != self.next:
            raise Gap(self.next, welcome.start)
        if self.next is None and not self.wants.follow and self.wants.cursor:
            self._until = welcome.next
        self.next = welcome.start
        self.welcome = welcome
        self.is_open = True
        if self._committed is not None:
            # The connection before may have broken before the server heard it.
            self._out.append(cursor_frame(self._committed))

    def _took(self, batch: Batch, size: int) -> None:
        # A later position is a gap: what was there was lost in damage, which the log has marked.
        if self.next is None or batch.first < self.next or batch.records == 0 or batch.first + batch.records > ID_MAX:
            raise ProtocolError(f"{batch.records} records from position {batch.first} on, where {self.next} is next")
        self.next = batch.first + batch.records
        self._spent += size
        if self._spent >= self.wants.credit // 4:
            self._out.append(credit_frame(self._spent))
            self._spent = 0


def records(batch: Batch) -> Iterator[Record]:
    messages, at, position = batch.messages, 0, batch.first
    for position in range(batch.first, batch.first + batch.records):
        if len(messages) - at < MESSAGE.size:
            raise ProtocolError("a batch has fewer records than it says")
        id, size = MESSAGE.unpack_from(messages, at)
        at += MESSAGE.size
        if len(messages) - at < size:
            raise ProtocolError("a batch with a record that is cut")
        yield Record(position, id, batch.producer, batch.timestamp_us, bytes(messages[at:at + size]))
        at += size
    if at != len(messages):
        raise ProtocolError("a batch has more bytes than records")
