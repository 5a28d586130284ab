"""How a client connects, and connects again: addresses, pauses, servers that name another one. Nothing here opens a socket."""

from __future__ import annotations

import logging
import random
import ssl
from dataclasses import dataclass
from typing import Optional, Union

from ._errors import GaveUp, IngestError, Reason, Refused

_log = logging.getLogger("tidewire_ingest")
_LEAST = 0.25
"""An attempt that is begun is given so many seconds, however little time is left."""

Tls = Union[bool, ssl.SSLContext]


def tls_context(tls: Tls) -> Optional[ssl.SSLContext]:
    if tls is True:
        return ssl.create_default_context()
    return tls or None


@dataclass(frozen=True)
class Retry:
    """How a client connects, and connects again.

    The pause after a failed attempt doubles from ``first`` up to ``longest`` seconds. The pause taken is drawn from its
    upper half, so that clients which lost a server together do not come back together.
    """

    attempts: Optional[int] = None
    """Attempts before giving up, counted from when the connection was lost; 1 makes no second attempt. ``None``: no limit."""
    within: float = 60.0
    """Seconds after which no new attempt begins."""
    first: float = 0.05
    longest: float = 5.0
    timeout: float = 10.0
    """Seconds that one attempt may take, TLS included."""
    at_first: bool = False
    """Whether the very first attempt is repeated as well, when it fails."""
    moves: int = 4
    """How often a server that names another one is followed without a pause."""

    def __post_init__(self) -> None:
        if not (self.first > 0 and self.longest >= self.first and self.timeout > 0 and self.within >= 0 and self.moves >= 0):
            raise ValueError(f"times must be positive, and the longest pause no shorter than the first: {self}")


class Backoff:
    """Attempts since the last success."""

    def __init__(self, retry: Retry, chance: Optional[random.Random] = None) -> None:
        self._retry = retry
        self._chance = chance or random.Random()
        self.failed = 0

    def succeeded(self) -> None:
        self.failed = 0

    def after_failure(self, elapsed: float, asked: float) -> Optional[float]:
        """One more attempt failed, ``elapsed`` seconds after the connection was lost: how long to pause; ``None``: give up."""
        self.failed += 1
        retry = self._retry
        if (retry.attempts is not None and self.failed >= retry.attempts) or elapsed >= retry.within:
            return None
        whole: float = min(retry.first * 2 ** min(self.failed - 1, 30), retry.longest)
        pause = whole * (0.5 + 0.5 * self._chance.random())
        return min(max(pause, asked), retry.within - elapsed)


@dataclass(frozen=True)
class Address:
    """Where a server is: ``HOST:PORT``, ``unix:/PATH``, or ``unix:@NAME`` of the abstract namespace."""

    host: str
    port: int
    path: Optional[str] = None

    @staticmethod
    def parse(text: str) -> "Address":
        if text.startswith("unix:"):
            place = text[5:]
            if place.startswith("@") and len(place) > 1:
                return Address("localhost", 0, "\0" + place[1:])
            if place.startswith("/"):
                return Address("localhost", 0, place)
            raise ValueError(f"{text!r} is no address: a Unix socket is unix:/PATH or unix:@NAME")
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not bare or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in bare and bare == host):
            raise ValueError(f"{text!r} is no address: it is not of the form HOST:PORT, [IPv6]:PORT, unix:/PATH or unix:@NAME")
        return Address(bare, int(port))

    @staticmethod
    def named_by_server(text: str) -> Optional["Address"]:
        """The address in a refusal ``moved``. A server cannot name a socket on this host."""
        try:
            return None if text.startswith("unix:") else Address.parse(text)
        except ValueError:
            return None

    def __str__(self) -> str:
        if self.path is not None:
            return "unix:" + self.path.replace("\0", "@")
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Route:
    """Where to connect: the server that the caller named, or one that this server named."""

    def __init__(self, first: Address, moves_max: int) -> None:
        self._first = first
        self._named: Optional[Address] = None
        self._at_named = False
        self._moves = 0
        self._moves_max = moves_max

    @property
    def address(self) -> Address:
        return self._named if self._at_named and self._named else self._first

    def moved(self, place: str) -> bool:
        """The server named another one; whether to connect there at once."""
        named = Address.named_by_server(place)
        if self._moves >= self._moves_max or named is None:
            return False
        self._moves += 1
        self._named, self._at_named = named, True
        return True

    def welcomed(self) -> None:
        self._moves = 0

    def failed(self) -> None:
        """There is a pause now; the other of the two servers is asked next."""
        self._moves = 0
        self._at_named = not self._at_named and self._named is not None


class Attempts:
    """What was tried since the connection was lost, and what is tried next."""

    def __init__(self, first: Address, retry: Retry) -> None:
        self._retry = retry
        self._route = Route(first, retry.moves)
        self._backoff = Backoff(retry)
        self._is_first = True

    @property
    def address(self) -> Address:
        return self._route.address

    def time_left(self, elapsed: float) -> Optional[float]:
        """How long an answer to the hello may take; ``None`` where only the client's own silence bounds it."""
        return None if self._retry.attempts == 1 else max(self._retry.within - elapsed, _LEAST)

    def time_for_one(self, elapsed: float) -> float:
        """How long connecting may take."""
        left = self.time_left(elapsed)
        return self._retry.timeout if left is None else min(self._retry.timeout, left)

    def succeeded(self) -> None:
        """There was a welcome."""
        self._route.welcomed()
        self._backoff.succeeded()
        self._is_first = False

    def pause_after(self, failure: IngestError, elapsed: float) -> float:
        """Seconds to pause before the next attempt; raises what is final."""
        if isinstance(failure, Refused) and failure.code == Reason.MOVED and self._route.moved(failure.text):
            _log.info("the server names another one: %s", self.address)
            return 0.0
        self._route.failed()
        if not failure.is_passing or (self._is_first and not self._retry.at_first):
            raise failure
        pause = self._backoff.after_failure(elapsed, failure.retry_after if isinstance(failure, Refused) else 0.0)
        if pause is None:
            if self._backoff.failed == 1:
                raise failure
            raise GaveUp(f"gave up after {self._backoff.failed} attempts in {elapsed:.1f} s: {failure}") from failure
        _log.warning("connecting again in %.2f s: %s", pause, failure)
        return pause
