"""What the clients raise. Every error says what failed, on what, and why."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """What an acknowledgement means."""

    RECEIVED = 1
    """Handed to the log's queue: a crash of the server may lose it."""
    DURABLE = 2
    """Committed: synced to the server's disk."""
    REPLICATED = 3
    """Committed, and stored at the home of the server's log."""


class Reason(enum.IntEnum):
    """Why a server refuses."""

    MALFORMED = 1
    TOO_LARGE = 2
    DISK_FULL = 3
    OVER_QUOTA = 4
    OUT_OF_ORDER = 5
    FENCED = 6
    UNAUTHORISED = 7
    LOG_FAILED = 8
    STOPPING = 9
    TOO_MANY = 10
    GONE = 11
    DAMAGED = 12
    BEYOND_THE_END = 13
    NO_SUCH_STREAM = 14
    TOO_SLOW = 15
    STREAM_FULL = 16
    EXISTS = 17
    UNSUPPORTED = 18
    NO_SUCH_CURSOR = 19
    MOVED = 20


PASSING_REASONS = frozenset({Reason.STOPPING, Reason.DISK_FULL, Reason.OVER_QUOTA, Reason.STREAM_FULL, Reason.MOVED})
"""After these a new connection may help."""


def reason_name(code: int) -> str:
    """``disk full``; ``reason 999`` for a reason of a later version."""
    try:
        return Reason(code).name.lower().replace("_", " ")
    except ValueError:
        return f"reason {code}"


def printable(text: str) -> str:
    """A text of the server's, with escapes for what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class IngestError(Exception):
    """The base of all errors of this package."""

    is_passing = False
    """Whether a new connection may help. The clients make one by themselves then."""


class Unreachable(IngestError, ConnectionError):
    """No connection could be made, or the connection broke."""

    def __init__(self, message: str, is_passing: bool = True) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Unanswered(IngestError, TimeoutError):
    """The server sent nothing for too long, though an answer is due."""

    is_passing = True


class Overtaken(IngestError):
    """A hello of an earlier connection of this client, which the server read late, fenced this one."""

    is_passing = True


class Refused(IngestError):
    """The server refused, and closed the connection."""

    def __init__(self, code: int, id: int, text: str, retry_after: float) -> None:
        name = reason_name(code)
        shown = printable(text)
        super().__init__(f"the server refused: {name}" if shown in ("", name) else f"the server refused: {name}: {shown}")
        self.code = code
        self.id = id
        """The first message refused, or the position of a reader; 0 for a hello."""
        self.text = text
        self.retry_after = retry_after
        """Seconds after which a new attempt is worth while; 0 if the server does not say."""
        self.is_passing = code in PASSING_REASONS

    @property
    def reason(self) -> Reason | None:
        """``None`` for a reason of a later version, whose number is in ``code``."""
        return Reason(self.code) if self.code in Reason._value2member_map_ else None


class LevelNotGranted(IngestError):
    """The server grants less than the level that was asked for."""

    def __init__(self, wanted: Level, granted: Level) -> None:
        super().__init__(f"the server grants level {granted.name.lower()} only, {wanted.name.lower()} was asked for; "
                         "ask for less, or let the producer accept a lower level")
        self.wanted, self.granted = wanted, granted


class Forgotten(IngestError):
    """The producer was away for longer than the server remembers producers."""

    def __init__(self) -> None:
        super().__init__("the server has forgotten this producer: it cannot tell what it has stored, and may store it again")


class Lost(IngestError):
    """The server no longer has messages that it acknowledged."""

    def __init__(self, acknowledged: int, mark: int | None) -> None:
        after = "the beginning" if mark is None else str(mark)
        super().__init__(f"messages were acknowledged up to {acknowledged}, but the server has lost those after {after}")
        self.acknowledged, self.mark = acknowledged, mark


class NameTaken(IngestError):
    """Another program sends under this producer's name."""

    def __init__(self, sent: int, mark: int) -> None:
        super().__init__(f"the server has messages up to {mark} of this producer, but only those up to {sent} were sent here: "
                         "another program uses its name")
        self.sent, self.mark = sent, mark


class ProtocolError(IngestError):
    """What the server sent is not the native protocol, version 1."""


class Gap(IngestError):
    """Records were removed before they were read."""

    def __init__(self, next: int, start: int) -> None:
        super().__init__(f"the records from {next} up to {start} were removed before they were read")
        self.next, self.start = next, start


class GaveUp(IngestError):
    """All attempts to reach the server are used up. ``__cause__`` is the failure of the last attempt."""


class NotAcknowledged(IngestError, TimeoutError):
    """Not everything was acknowledged in the time given. The messages may or may not be stored."""


class MessageTooLarge(IngestError, ValueError):
    """A message above what the server takes."""


class WrongId(IngestError, ValueError):
    """Ids must rise, and by one unless the producer has sparse ids."""


class Closed(IngestError):
    """The producer or reader was closed."""
