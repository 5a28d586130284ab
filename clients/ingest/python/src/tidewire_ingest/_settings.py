"""What a producer or a reader wants."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Optional

from ._codec import ID_MAX, check_name
from ._errors import Level

@dataclass(frozen=True)
class ProducerSettings:
    stream: str = ""
    name: str = ""
    token: str = field(default="", repr=False)
    level: Level = Level.DURABLE
    accept_lower: bool = False
    accept_duplicates: bool = False
    sparse: bool = False
    first_id: int = 1
    window_messages: int = 0
    window_bytes: int = 0
    buffer_messages: int = 1_000_000
    buffer_bytes: int = 32 << 20
    silence: float = 30.0

    def __post_init__(self) -> None:
        check_name("the stream", self.stream)
        check_name("the producer's name", self.name)
        check_name("the token", self.token, False)
        if not 0 <= self.first_id <= ID_MAX:
            raise ValueError(f"first_id must be from 0 to 2^64-1: {self.first_id}")
        if not (0 <= self.window_messages < 2**32 and 0 <= self.window_bytes <= ID_MAX):
            raise ValueError("a window has at most 2^32-1 messages and 2^64-1 bytes")
        if self.buffer_messages < 1 or self.buffer_bytes < 1 or not self.silence > 0:
            raise ValueError("the buffer and the silence must be above zero")


@dataclass(frozen=True)
class Begin:
    """Where reading begins."""

    kind: int
    at: int = 0

    @staticmethod
    def first() -> "Begin":
        """At the oldest record kept."""
        return Begin(1)

    @staticmethod
    def tail() -> "Begin":
        """Behind the newest record."""
        return Begin(2)

    @staticmethod
    def cursor() -> "Begin":
        """Where the named cursor stands; at the oldest record if it stands nowhere yet."""
        return Begin(4)

    @staticmethod
    def position(at: int) -> "Begin":
        """At a position. Below the oldest one kept, reading begins at the oldest."""
        if not 0 <= at <= ID_MAX:
            raise ValueError(f"a position is from 0 to 2^64-1: {at}")
        return Begin(1, at)

    @staticmethod
    def timestamp(seconds: float) -> "Begin":
        """At the first record that the server received at this time since the Unix epoch, or later."""
        if not (math.isfinite(seconds) and 0 <= seconds < 2**64 / 1e6):
            raise ValueError(f"a time is from 0 seconds since the Unix epoch on: {seconds}")
        return Begin(3, int(seconds * 1e6))


@dataclass(frozen=True)
class ReaderSettings:
    stream: str = ""
    begin: Optional[Begin] = None
    follow: bool = False
    wait: bool = False
    cursor: str = ""
    token: str = field(default="", repr=False)
    credit: int = 4 << 20

    def __post_init__(self) -> None:
        check_name("the stream", self.stream)
        check_name("the cursor", self.cursor)
        check_name("the token", self.token, False)
        if not 1 <= self.credit <= ID_MAX:
            raise ValueError(f"the credit must be above zero: {self.credit}")
        if self.wait and not self.follow:
            raise ValueError("only a reader that follows can wait for a stream")
        if self.begin is not None and self.begin.kind == 4 and not self.cursor:
            raise ValueError("the cursor has no name")
